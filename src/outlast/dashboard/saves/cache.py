"""Saves as they are read for a page, and kept once read: a commit never changes."""

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from outlast.core.values import shorten
from outlast.dashboard.timing import Timing
from outlast.errors import OutlastError, RunRefused, UsageError
from outlast.inspect import ledger, ledger_sums
from outlast.operations.saves import listing
from outlast.operations.saves.find import Saves
from outlast.store.protocol import Store, Summary
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command
from outlast.workspace.saves import SaveContents

SAVES_MAX = 20_000  # that are kept, of all runs together
LOOKING_MAX = 4  # at one workspace
COUNTS_MAX = 20_000
SUMS_MAX = 8  # runs of a store; the longest take some 4 MB each
PROBLEM_CHARS_MAX = 500

K = TypeVar("K")
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """The last values that were asked for, for several threads; each has a weight."""

    def __init__(self, weight_max: int) -> None:
        self._max, self._held = weight_max, 0
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        with self._lock:
            self._held += weight - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, weight
            while self._held > self._max:
                self._held -= self._values.popitem(last=False)[1][1]


_saves: RecentValues[tuple[str, str], dict[str, SaveContents]] = RecentValues(SAVES_MAX)
_counts: RecentValues[str, int] = RecentValues(COUNTS_MAX)


class _Summed:
    """The sums of a run, and the lock of the one thread that continues them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sums = ledger_sums.Sums(last=ledger.LAST)


_summed: "weakref.WeakKeyDictionary[Store, RecentValues[str, _Summed]]" = weakref.WeakKeyDictionary()
_summed_lock = threading.Lock()


@contextmanager
def sums(store: Store, run: str) -> Iterator[ledger_sums.Sums]:
    """The sums of a run's journal as far as it was read before, for one thread that continues them."""
    with _summed_lock:
        of_store = _summed.setdefault(store, RecentValues(SUMS_MAX))
        summed = of_store.get(run) or _Summed()
        of_store.put(run, summed)
    with summed.lock:
        if not ledger.is_continued(store, run, summed.sums):
            summed.sums = ledger_sums.Sums(last=ledger.LAST)
        try:
            yield summed.sums
        except BaseException:
            summed.sums = ledger_sums.Sums(last=ledger.LAST)  # it may have been taken in half
            raise


_looking: dict[str, int] = {}
_fewer = threading.Condition()


@contextmanager
def patience(summary: Summary, seconds: float | None = None) -> Iterator[None]:
    """The workspace of a run may be looked at inside the block: few do at a time, and git has so many seconds.

    An agent can make its workspace never answer. Raises RunRefused where too many wait already.
    """
    folder, timing = summary.state.workspace, Timing.current()
    with _fewer:
        if not _fewer.wait_for(lambda: _looking.get(folder, 0) < LOOKING_MAX, timing.turn_wait_s):
            raise RunRefused(
                f"{LOOKING_MAX} others wait for the workspace of run {summary.run}",
                hint="look again in a moment; if it stays so, see `git status` there",
            )
        _looking[folder] = _looking.get(folder, 0) + 1
    try:
        with command.within(timing.git_s if seconds is None else seconds):
            yield
    finally:
        with _fewer:
            _looking[folder] -= 1
            if not _looking[folder]:
                del _looking[folder]
            _fewer.notify_all()


@contextmanager
def opened(store: Store, summary: Summary, seconds: float | None = None) -> Iterator[Saver]:
    """The saver of a run's workspace, for one question. Raises UsageError if the run has none, or if it is gone for good.

    It is opened for each question and closed after it, because several threads ask.
    """
    folder = summary.state.workspace
    if not folder:
        raise UsageError(
            f"run {summary.run} has no workspace, so no files of it were saved",
            hint="start it with `--workspace DIR`, in a program with `workspace=`",
        )
    with patience(summary, seconds):
        try:
            saves = Saves(store.local, store, summary.project, Path(folder))
        except UsageError as error:
            raise UsageError(
                f"the workspace {folder} is gone, and nothing says where its repository is",
                hint="put it back where it was, and look again",
            ) from error
        try:
            yield saves.saver_of(summary)
        finally:
            saves.close()


class Listed(NamedTuple):
    """The saves of a run with their refs, newest first; not `whole` where more than these could not be read yet."""

    found: list[tuple[SaveContents, str]]
    whole: bool


def of_run(saver: Saver, run: str) -> Listed:
    """The saves of a run, those that were read before not again: of very many, as many more each time as a moment allows."""
    place = os.fsdecode(saver.repo().vault), run
    tips, known = listing.tips(saver, run), dict(_saves.get(place) or {})
    until_s = time.monotonic() + Timing.current().read_on_s
    whole = listing.read_on(saver, tips, known, until_s, SAVES_MAX)
    found = listing.reached(saver, tips, known, known_only=True)
    _saves.put(place, {held.commit: held for held, _ in found}, len(found))
    return Listed(found, whole)


def changed(saver: Saver, held: SaveContents) -> int | None:
    """How many files differ from what was before; None where that cannot be read."""
    known = changed_before(held.commit)
    if known is not None:
        return known
    count = listing.changed(saver, held)
    if count is not None:
        _counts.put(held.commit, count)
    return count


def changed_before(commit: str) -> int | None:
    """How many files a save changed, if that was counted before; else None."""
    return _counts.get(commit)


def problem(error: Exception) -> str:
    """Why a workspace cannot be read, and what to type, on one line."""
    sentence = shorten(" ".join(str(error).split()), PROBLEM_CHARS_MAX)
    hint = error.hint if isinstance(error, OutlastError) else ""
    return f"{sentence}; {hint}" if hint else sentence
