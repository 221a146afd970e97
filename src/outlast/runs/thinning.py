"""Letting go of saves that nobody needs: one anchor stays of each run that is over, and the room they take is bounded.

Never touched: a run that is not over, a save that an event of such a run names, the runs of other stores, and what a
person saved by hand. Oldest first, and only when a repository's saves take more than their budget, anchors go too.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from outlast.core import events as ev
from outlast.core.statuses import CLOSED
from outlast.errors import SaveError, SaveFailed
from outlast.runs import find
from outlast.runs.savepoints import HAND
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore
from outlast.workspace import git, objects, refs, repo, saves, shedding
from outlast.workspace import thinning as chains
from outlast.workspace.reader import ObjectReader
from outlast.workspace.saves import Held
from outlast.workspace.seam import text
from outlast.workspace.worktree import write_over

_PASSING = ("watch", "pre-restore")

Why = Literal["over", "old", "budget"]


class ThinnedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What was let go of one run in one repository, or would be. `kept` is what its anchor is called now."""

    repository: str
    run: str
    task: str
    why: Why
    removed: int
    kept: str | None = None


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What the saves of one repository take."""

    repository: str
    bytes_before: int
    bytes_after: int
    budget_bytes: int

    @property
    def is_over(self) -> bool:
        return self.bytes_after > self.budget_bytes


class Thinned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the saves of all repositories. `failed` could not be looked at, with the reason."""

    runs: tuple[ThinnedRun, ...] = ()
    rooms: tuple[Room, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept, and how."""

    older_than: timedelta
    now: datetime
    budget_bytes: int
    dry_run: bool = False

    @property
    def limit(self) -> datetime:
        return self.now - self.older_than


def thin(store: SqliteStore, terms: Terms, tell: Callable[[str], None] = lambda line: None) -> Thinned:
    """Thin the saves of every repository that this store's workspaces are in. Safe to repeat after a kill."""
    known = {summary.run: _is_over(summary, terms.limit) for summary in find.every(store, Where(parent=""))}
    named = _named(store)
    anchored = _Anchored(store.root)
    runs: list[ThinnedRun] = []
    rooms: list[Room] = []
    failed: list[tuple[str, str]] = []
    for place, privates in _repositories(store.root):
        tell(text(place.folder))
        try:
            with _locked(privates), ObjectReader(place.common_dir, git.environment()) as reader:
                one = _Thinning(place, reader, terms, known, named, anchored)
                runs += one.thinned()
                rooms.append(one.room())
                runs += one.removed
        except SaveError as error:
            failed.append((text(place.folder), str(error)))
    return Thinned(runs=tuple(runs), rooms=tuple(rooms), failed=tuple(failed))


def _is_over(summary: Summary, limit: datetime) -> bool:
    state = summary.state
    return state.status in CLOSED and state.updated_at is not None and state.updated_at < limit


def _named(store: SqliteStore) -> set[str]:
    """Saves of other runs that an open run's events name: a fork shares its source's past, and so its saves."""
    found: set[str] = set()
    for summary in find.every(store, Where(open_only=True)):
        found |= {summary.state.last_save, summary.state.save_point}
        if summary.state.fork is None:
            continue
        after = 0
        while page := store.read(summary.run, after=after).events:
            found |= {_save_in(item.event) for item in page}
            after = page[-1].seq
    return found - {""}


def _save_in(event: ev.AnyEvent) -> str:
    if isinstance(event, ev.BeatDone | ev.EffectConfirmed):
        return event.save
    return event.commit if isinstance(event, ev.SaveMade) else ""


class _Anchored:
    """Runs that this store gave an anchor, and may have forgotten since. Those of other stores are not ours to touch."""

    def __init__(self, state: Path) -> None:
        self._file = state / "workspaces" / "anchored"
        try:
            self.runs = set(self._file.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            self.runs = set()

    def add(self, run: str) -> None:
        """Durable when it returns: an anchor without this would stay for ever."""
        if run not in self.runs:
            self.runs.add(run)
            lines = "".join(f"{each}\n" for each in sorted(self.runs))
            try:
                write_over(os.fsencode(self._file), lines.encode(), mode=0o600)
            except OSError as error:
                raise SaveFailed(f"{self._file} cannot be written: {error.strerror}") from error


# -- where saves are ---------------------------------------------------------------------------------------------


def _repositories(state: Path) -> Iterator[tuple[repo.Repo, list[Path]]]:
    """Every repository that a workspace of this state folder saved to, with the private folders of those."""
    found: dict[Path, tuple[repo.Repo, list[Path]]] = {}
    for private in sorted((state / "workspaces").glob("*/")):
        for place in _places(private):
            found.setdefault(place.common_dir, (place, []))[1].append(private)
    yield from found.values()


def _places(private: Path) -> Iterator[repo.Repo]:
    noted = repo.noted(private)
    shadow = private / "shadow.git"
    if (shadow / "HEAD").exists():
        folder = Path(noted.folder) if noted else private
        yield repo.Repo(folder, shadow, shadow, objects.SHA1, shadow=True)
    if noted is None or noted.shadow or not os.path.isdir(noted.common_dir):
        return
    common = Path(noted.common_dir)
    with contextlib.suppress(SaveFailed):  # no repository any more: nothing of ours is there
        form = git.run(["rev-parse", "--show-object-format"], git_dir=common).decode().strip()
        yield repo.Repo(Path(noted.folder), common, common, objects.algo_named(form))


@contextlib.contextmanager
def _locked(privates: Sequence[Path]) -> Iterator[None]:
    """Nobody saves or restores in these workspaces meanwhile."""
    with contextlib.ExitStack() as stack:
        for private in privates:
            fd = os.open(private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield


# -- one repository ----------------------------------------------------------------------------------------------


class _Thinning:
    """One repository being thinned; its locks are ours."""

    def __init__(
        self, place: repo.Repo, reader: ObjectReader, terms: Terms, known: dict[str, bool], named: set[str],
        anchored: _Anchored,
    ) -> None:  # fmt: skip
        self._place, self._reader, self._terms = place, reader, terms
        self._known, self._named, self._anchored = known, named, anchored
        self._over = {run for run, over in known.items() if over}
        self._before = shedding.packed_bytes(place)
        self._changed = False
        self.removed: list[ThinnedRun] = []

    def thinned(self) -> list[ThinnedRun]:
        """One anchor for each run that is over; by hand, nothing that only a machine asked for and that is old."""
        found = []
        for run in sorted(
            {name.split("/")[2] for name in refs.list_refs(self._place.common_dir, chains.REFS)}
        ):
            forgotten = run not in self._known and run in self._anchored.runs
            if run in self._over or forgotten:
                found.append(self._to_one(run))
            elif run == HAND:
                found.append(self._by_hand())
        return [each for each in found if each is not None]

    def _to_one(self, run: str) -> ThinnedRun | None:
        held = chains.newest_first(self._place, self._reader, run)
        if not held or held[0].meta.at >= self._terms.limit:
            return None  # somebody still saves under this name
        if self._named & {each.commit for each in held}:
            self._leave(run, held[0])
            return None
        if len(held) == 1 and list(chains.refs_of(self._place, run)) == [chains.kept_ref(run)]:
            return None
        newest = next((each for each in held if each.meta.kind != "pre-restore"), held[0])
        return self._thin(run, "over", held, [newest])

    def _leave(self, run: str, newest: Held) -> None:
        """An open run needs these. Mark them as of a run that is over, for the store will have forgotten it by then."""
        if not self._terms.dry_run:
            self._anchored.add(run)
            refs.write_ref(self._place.common_dir, chains.kept_ref(run), newest.commit, old=refs.ANY)

    def _by_hand(self) -> ThinnedRun | None:
        held = chains.newest_first(self._place, self._reader, HAND)
        keep = [each for each in held if each is held[0] or not self._is_passing(each)]
        if len(keep) == len(held) or self._named & {each.commit for each in held}:
            return None
        return self._thin(HAND, "old", held, keep[::-1])

    def _is_passing(self, held: Held) -> bool:
        return held.meta.kind in _PASSING and held.meta.at < self._terms.limit

    def _thin(self, run: str, why: Why, held: Sequence[Held], keep: Sequence[Held]) -> ThinnedRun:
        kept = keep[-1].commit
        if not self._terms.dry_run:
            if why == "over":
                self._anchored.add(run)
            kept = chains.thin(self._place, self._reader, run, keep, anchor=why == "over").kept[kept]
            self._changed = True
        return self._said(run, held[0].meta.task, why, len(held) - len(keep), kept)

    def _said(self, run: str, task: str, why: Why, removed: int, kept: str | None) -> ThinnedRun:
        return ThinnedRun(
            repository=text(self._place.folder), run=run, task=task, why=why, removed=removed, kept=kept
        )

    # -- room ----------------------------------------------------------------------------------------------------

    def room(self) -> Room:
        """Give back what nothing reaches any more, and keep to the budget."""
        if not self._terms.dry_run:
            if self._before > self._terms.budget_bytes:
                self._keep_to_budget()
            if self._changed or self._before > self._terms.budget_bytes:
                self._reader.close()
                shedding.shed(self._place)
        return Room(
            repository=text(self._place.folder), bytes_before=self._before,
            bytes_after=shedding.packed_bytes(self._place), budget_bytes=self._terms.budget_bytes,
        )  # fmt: skip

    def _keep_to_budget(self) -> None:
        """Let go of the oldest anchors of runs that are over, as few as will do."""
        ours = refs.list_refs(self._place.common_dir, chains.REFS)
        anchors = self._anchors(ours)
        few, many = 0, len(anchors)
        while few < many:
            middle = (few + many) // 2
            gone = {ref for ref, _ in anchors[:middle]}
            left = {commit for ref, commit in ours.items() if ref not in gone}
            enough = shedding.reached_bytes(self._place, sorted(left)) <= self._terms.budget_bytes
            few, many = (few, middle) if enough else (middle + 1, many)
        for ref, commit in anchors[:few]:
            task = saves.read(self._reader, commit, self._place.algo).meta.task
            refs.delete_ref(self._place.common_dir, ref, commit)
            self.removed.append(self._said(ref.split("/")[2], task, "budget", 1, None))

    def _anchors(self, ours: dict[str, str]) -> list[tuple[str, str]]:
        """The anchors of runs that are over, oldest first."""
        kept = [(ref, commit) for ref, commit in ours.items() if ref == chains.kept_ref(ref.split("/")[2])]
        free = [
            (ref, commit)
            for ref, commit in kept
            if self._is_ours_and_over(ref.split("/")[2]) and not self._is_named(commit)
        ]
        return sorted(free, key=lambda pair: saves.read(self._reader, pair[1], self._place.algo).meta.at)

    def _is_ours_and_over(self, run: str) -> bool:
        return self._known.get(run, run in self._anchored.runs)

    def _is_named(self, commit: str) -> bool:
        """Whether an open run needs this save or one before it."""
        while commit:
            if commit in self._named:
                return True
            commit = saves.read(self._reader, commit, self._place.algo).previous
        return False
