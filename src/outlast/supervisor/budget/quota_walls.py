"""Quota walls: which account reached a usage limit and when it resets, so that no run of the account starts before that.

The store's shelf has one small document per account; every supervisor reads it before an attempt."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

import msgspec

from outlast import decoders
from outlast.core import restarts
from outlast.core.values import shorten
from outlast.errors import StoreError
from outlast.runs.attempts import NO_RESET
from outlast.store.protocol import Shelf

WALLS_MAX = 1_000
WAITING_MAX = 10_000
EVIDENCE_CHARS_MAX = 300
ACCOUNT_CHARS_MAX = 120
_MaybeWall = TypeVar("_MaybeWall", bound="Wall | None")
_ODD = re.compile(r"[^A-Za-z0-9._@+-]+")


class Wall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit that was met. `until`: its reset, or when it is tried again; `waiting`: runs in the order of their turns.

    `spared`: runs that a person let go on although it may still stand. Runs that wait have a turn each, so that they do not
    all come back in one instant. An account is a short name, never a secret; a run without one has a wall of its own.
    """

    account: str
    run: str
    met_at: datetime
    until: datetime
    known: bool = True
    evidence: str = ""
    waiting: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.account or self.run

    def words(self) -> str:
        """The wall in words, for a run that waits at it."""
        whose = f"account {self.account}" if self.account else "its account"
        return f"{whose} has met a limit (run {self.run}: {self.evidence})"


class Stay(msgspec.Struct, frozen=True):
    """How long a run waits at a wall, and why, in words."""

    wall: Wall
    until: datetime
    why: str


def clock(moment: datetime) -> str:
    """A moment as the reader's own clock shows it."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


# -- meeting one -------------------------------------------------------------------------------------------------


def meet(
    shelf: Shelf, account: str, run: str, *, reset_at: datetime | None, parks: int, evidence: str, apart_s: float
) -> Stay:  # fmt: skip
    """Record that a run met a limit; return when to wake it. Without a reset time, an earlier known one counts.

    If the disk refuses the file, other runs do not know of the wall; this run still waits.
    """
    now = datetime.now(UTC)

    def met(before: Wall | None) -> Wall:
        reset, known = restarts.reset_time(reset_at, now, parks)
        is_same = before is not None and (before.until == reset or (before.known and not known))
        if before is not None and before.until > now and is_same:
            left = tuple(each for each in before.spared if each != run)
            return msgspec.structs.replace(before, waiting=_with(before.waiting, run), spared=left)
        text = shorten(evidence, EVIDENCE_CHARS_MAX)
        return Wall(
            account=account, run=run, met_at=now, until=reset, known=known, evidence=text, waiting=(run,)
        )

    wall = _change(shelf, account or run, met)
    return _stay(wall, run, apart_s, evidence)


def join(shelf: Shelf, account: str, run: str, apart_s: float) -> Stay | None:
    """Give a run its turn at the account's wall. None if no wall stands, or the run may go on despite it."""
    now = datetime.now(UTC)
    if standing(shelf, account, now, run) is None:
        return None

    def joined(before: Wall | None) -> Wall | None:
        if before is None or before.until <= now:
            return before
        return msgspec.structs.replace(before, waiting=_with(before.waiting, run))

    wall = _change(shelf, account, joined)
    return _stay(wall, run, apart_s, wall.words()) if wall is not None and wall.until > now else None


def standing(shelf: Shelf, account: str, now: datetime, run: str = "") -> Wall | None:
    """The wall before an account, if it stands for this run."""
    wall = _read(shelf, account) if account else None
    return wall if wall is not None and wall.until > now and run not in wall.spared else None


def spare(shelf: Shelf, account: str, run: str) -> Wall | None:
    """A person lets a run go on at once, despite a wall. Returns that wall, if one stands."""
    now = datetime.now(UTC)
    if standing(shelf, account, now) is None:
        return None

    def spared(before: Wall | None) -> Wall | None:
        if before is None:
            return None
        rest = tuple(each for each in before.waiting if each != run)
        return msgspec.structs.replace(before, waiting=rest, spared=_with(before.spared, run))

    return _change(shelf, account, spared)


def lift(shelf: Shelf, account: str, begun_at: datetime | None = None) -> tuple[str, ...]:
    """Remove the wall of an account that works again, or of which a person says so. Returns the runs that waited at it.

    `begun_at`: when the successful attempt began. An attempt that began before the limit was met proves nothing.
    """
    now = datetime.now(UTC)
    wall = standing(shelf, account, now)
    if wall is None or (begun_at is not None and begun_at < wall.met_at):
        return ()

    def lifted(before: Wall | None) -> Wall | None:
        if before is None or before.met_at != wall.met_at:
            return before
        return msgspec.structs.replace(before, until=min(before.until, now), spared=())

    _change(shelf, account, lifted)
    return wall.waiting


def _stay(wall: Wall, run: str, apart_s: float, why: str) -> Stay:
    place = wall.waiting.index(run) if run in wall.waiting else len(wall.waiting)
    until = restarts.wake_at(wall.until, wall.run, place, apart_s)
    return Stay(wall, until, why if wall.known else f"{why}; {NO_RESET}")


def _with(runs: tuple[str, ...], run: str) -> tuple[str, ...]:
    return runs if run in runs else (*runs, run)[-WAITING_MAX:]


# -- looking after them ------------------------------------------------------------------------------------------


def every(shelf: Shelf) -> Iterator[Wall]:
    """All recorded walls, also those that are over."""
    with contextlib.suppress(StoreError):
        for _, data in islice(shelf.every("walls"), WALLS_MAX):
            wall = _decoded(data)
            if wall is not None:
                yield wall


def tidy(shelf: Shelf, parked: Mapping[str, datetime]) -> None:
    """Remove walls that fell and that no run waits at, and put back a wall for every run that waits.

    `parked`: every run that waits for a moment in time. The service looks for runs to wake only while there is a wall.
    """
    now = datetime.now(UTC)
    known: set[str] = set()
    for wall in every(shelf):
        still = [run for run in wall.waiting if run in parked]
        known |= set(still)
        if wall.until <= now and not still:
            _change(shelf, wall.name, lambda before: None if before and before.until <= now else before)
    for run, until in parked.items():
        if run not in known:
            _stand_alone(shelf, Wall(account="", run=run, met_at=now, until=until, waiting=(run,)))


def _stand_alone(shelf: Shelf, wall: Wall) -> None:
    _change(shelf, wall.run, lambda before: before or wall)


def _read(shelf: Shelf, name: str) -> Wall | None:
    """A wall, if there is one. A wall that cannot be read stops no run."""
    with contextlib.suppress(StoreError):
        return _decoded(shelf.get("walls", _name(name)))
    return None


def _decoded(data: bytes | None) -> Wall | None:
    with contextlib.suppress(msgspec.MsgspecError):
        return None if data is None else decoders.decode(data, Wall)
    return None


def _name(account: str) -> str:
    """The name of an account's wall on the shelf."""
    digest = hashlib.blake2b(account.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{_ODD.sub('-', account)[:60]}-{digest}"


def _change(shelf: Shelf, name: str, change: Callable[[Wall | None], _MaybeWall]) -> _MaybeWall:
    """Replace a wall in one step by the result of `change`; None removes it. Returns the result."""
    changed: list[_MaybeWall] = []

    def written(data: bytes | None) -> bytes | None:
        before = _decoded(data)
        after = change(before)
        changed.append(after)
        if after == before:
            return data if after is not None else None
        return None if after is None else msgspec.json.encode(after)

    try:
        shelf.change("walls", _name(name), written)
    except StoreError:
        if not changed:
            return change(_read(shelf, name))
    return changed[0]
