"""The beat that an attempt is in, shared by the calls of its scripts and those of its agent."""

import contextlib
import errno
import threading
import time
from collections.abc import Iterator

from outlast.core import events as ev
from outlast.errors import (
    BudgetReached,
    DiskFull,
    EffectInDoubt,
    OutlastError,
    SaveError,
    StoreError,
    WaitsForPerson,
)
from outlast.runs.engine.beat import BeatEngine
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append

ENDS_ATTEMPT = (StoreError, DiskFull, BudgetReached, WaitsForPerson)
ROOM_BYTES_MIN = 1 << 20  # with less on its disk, a save that failed most likely had no room
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class BeatInFlight:
    """One lock orders everything that is recorded in the beat, from every thread.

    `failure` is an error that the attempt cannot go on after. The attempt's watch looks at it.
    """

    def __init__(self, run: RunEngine) -> None:
        self.run = run
        self.lock = threading.RLock()
        self.failure: OutlastError | None = None
        self._beats = iter(run.beats())
        self._no_more: OutlastError | None = None
        self._waits_since_s = 0.0  # since when an event of `append_soon` waits for a commit
        self._beat: BeatEngine = next(self._beats)

    def now(self) -> BeatEngine:
        """The open beat. After the end of a beat, the first call opens the next one.

        Raises the error that forbids another beat (a spent budget, for instance), and the same error at each later call.
        """
        if self._beat.closed:
            self._beat = self._next()
        return self._beat

    def _next(self) -> BeatEngine:
        if self._no_more is not None:
            raise self._no_more
        try:
            beat: BeatEngine = next(self._beats)
        except OutlastError as error:
            self._no_more = error
            raise
        return beat

    @property
    def last(self) -> BeatEngine:
        """The open beat, or the one that ended last."""
        return self._beat

    @property
    def is_open(self) -> bool:
        """Whether a beat has begun and not ended."""
        return not self._beat.closed

    def append(self, *events: ev.AnyEvent) -> None:
        """Record events of the open beat; durable when this returns."""
        self.run.drive(append(*events, in_beat=True))

    def append_soon(self, event: ev.AnyEvent) -> None:
        """Record an event of the open beat in the next commit, which is mostly that of the beat's end."""
        if not self.run.journal.waits:
            self._waits_since_s = time.monotonic()
        self.run.journal.later(event)

    def append_waiting(self, after_s: float) -> None:
        """Record what has waited so long that no other commit comes soon."""
        if self.run.journal.waits and time.monotonic() - self._waits_since_s >= after_s:
            self.run.drive(append())

    def doubt(self, ended: str = "ended with 0") -> EffectInDoubt | None:
        """The error that names the effects a person must settle before the run can end; None if none is in doubt."""
        doubts = self.run.state.in_doubt
        if not doubts:
            return None
        names = ", ".join(f"effect {effect.id} {effect.name!r}" for effect in doubts)
        verb = "is" if len(doubts) == 1 else "are"
        return EffectInDoubt(
            f"the command {ended} and {names} {verb} in doubt",
            hint=f"look whether it happened, then `outlast settle {self.run.id} {doubts[0].id} --happened` or `--did-not`",
        )

    # -- failing ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def noting_failure(self) -> Iterator[None]:
        """An error that keeps something from being recorded ends the attempt: after a failed append nothing more is written."""
        try:
            yield
        except ENDS_ATTEMPT as error:
            self.fail(error)
            raise
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise self.fail(self.no_room()) from error

    @contextlib.contextmanager
    def telling_full_disk(self) -> Iterator[None]:
        """A save that fails because the disk of the state folder is full says so, whatever git said."""
        try:
            yield
        except SaveError as error:
            if self.run.journal.store.local.room_bytes() >= ROOM_BYTES_MIN:
                raise
            raise self.no_room() from error

    def fail(self, error: OutlastError) -> OutlastError:
        """End the attempt with this error. The first one counts."""
        self.failure = self.failure or error
        return error

    def no_room(self) -> DiskFull:
        """The error for a full disk."""
        url = self.run.journal.store.url
        return DiskFull(f"the disk under {url} is full: nothing is begun", hint="make room, then start again")
