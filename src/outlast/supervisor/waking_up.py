"""Waking runs that died without anybody's wish, a few at a time, each in a process of its own that outlives this one."""

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from outlast.core import waking
from outlast.core.state import Status
from outlast.processes import reaping
from outlast.runs import acts, find
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore
from outlast.supervisor import detaching, guarding, watchers
from outlast.supervisor.supervised import STOPS

JOBS = 4
START_LIMIT_S = 120.0
_LOOK_EVERY_S = 0.05
_LAST_WORDS_BYTES = 4_096


class Sleeper(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is not over. `wake`: it goes on by itself, and `started` says whether it does (null: not tried)."""

    run: str
    task: str
    project: str
    status: Status
    beats: int
    wake: bool
    why: str
    started: bool | None = None
    log: str | None = None


def sleepers(store: SqliteStore) -> list[Sleeper]:
    """Every run that is not over, of all projects, oldest first, with whether it is to be woken and why (not)."""
    runs = list(find.every(store, Where(parent="", open_only=True)))
    return [_judged(store, summary) for summary in reversed(runs)]


def _judged(store: SqliteStore, summary: Summary) -> Sleeper:
    shown = find.shown_status(store, summary.state, summary.run)
    wake = _refused(store, summary.run) or waking.judge(summary.state, shown, datetime.now(UTC))
    return Sleeper(
        run=summary.run, task=summary.task, project=summary.project, status=shown, beats=summary.state.beats,
        wake=wake.yes, why=wake.why,
    )  # fmt: skip


def _refused(store: SqliteStore, run: str) -> waking.Wake | None:
    """What the journal does not know: somebody looks after it already, or asked it to stop just before it died."""
    watcher = watchers.of(store.root, run)
    if watcher is not None and watcher.supervisor:
        return waking.Wake(False, f"its supervisor (pid {watcher.supervisor}) looks after it")
    asked = next((request for request in store.inbox.pending(run) if request.what in STOPS), None)
    return waking.Wake(False, f"asked to {asked.what} by {asked.by}") if asked is not None else None


# -- waking ------------------------------------------------------------------------------------------------------


def wake(
    store: SqliteStore, asleep: list[Sleeper], jobs: int, tell: Callable[[Sleeper], None]
) -> list[Sleeper]:
    """Start all that are to be woken, at most `jobs` at a time being started; each is told of when it is settled."""
    waiting = iter([sleeper for sleeper in asleep if sleeper.wake])
    starting: list[_Start] = []
    settled: dict[str, Sleeper] = {}
    while True:
        starting += _next(store, waiting, jobs - len(starting))
        if not starting:
            return [settled.get(sleeper.run, sleeper) for sleeper in asleep]
        for start in list(starting):
            found = start.look()
            if found is not None:
                starting.remove(start)
                settled[found.run] = found
                tell(found)
        time.sleep(_LOOK_EVERY_S)


def _next(store: SqliteStore, waiting: Iterator[Sleeper], count: int) -> "list[_Start]":
    return [_Start(store, sleeper) for sleeper in itertools.islice(waiting, count)]


class _Start:
    """One run being woken, until its command runs, its process has ended, or the time is over."""

    def __init__(self, store: SqliteStore, sleeper: Sleeper) -> None:
        self._store, self._sleeper = store, sleeper
        self._epoch = acts.summary_of(store, sleeper.run).epoch
        self._log = guarding.folder_of(store.root, sleeper.run) / detaching.LOG
        self._until_s = time.monotonic() + START_LIMIT_S
        self._said_from = self._log.stat().st_size if self._log.exists() else 0
        words = detaching.ourselves("resume", sleeper.run, "--woken", "--store", store.url)
        self._process: subprocess.Popen[bytes] = detaching.start(words, self._log)

    def look(self) -> Sleeper | None:
        """How it went, once that is known."""
        code = self._process.poll()
        if code is not None:
            return self._ended(code)
        summary = acts.summary_of(self._store, self._sleeper.run)
        if summary.epoch > self._epoch and self._is_at_work(summary):
            return self._settled(summary, True, f"goes on from beat {self._sleeper.beats + 1}")
        if time.monotonic() > self._until_s:
            return self._settled(summary, False, f"did not start within {START_LIMIT_S:.0f} s")
        return None

    def _is_at_work(self, summary: Summary) -> bool:
        """Its first new beat is done, or its command runs."""
        if summary.state.beats > self._sleeper.beats:
            return True
        attempt = summary.state.attempt
        return attempt is not None and bool(
            attempt.epoch > self._epoch and reaping.find(summary.run, epoch=attempt.epoch)
        )

    def _ended(self, code: int) -> Sleeper:
        summary = acts.summary_of(self._store, self._sleeper.run)
        shown = find.shown_status(self._store, summary.state, summary.run)
        has_gone_on = summary.epoch > self._epoch and shown != "parked"
        if code == 0 or has_gone_on:
            return self._settled(summary, True, f"went on, and is {shown.replace('_', ' ')}")
        return self._settled(summary, False, self._last_words() or f"ended with {code}")

    def _last_words(self) -> str:
        """What it complained of, without the hint."""
        with self._log.open("rb") as file:
            file.seek(max(self._said_from, self._log.stat().st_size - _LAST_WORDS_BYTES))
            lines = file.read(_LAST_WORDS_BYTES).decode(errors="replace").splitlines()
        said = [line for line in lines if line.strip() and not line.startswith("hint: ")]
        return said[-1].removeprefix("error: ").removeprefix("outlast: ") if said else ""

    def _settled(self, summary: Summary, started: bool, why: str) -> Sleeper:
        shown = find.shown_status(self._store, summary.state, summary.run)
        return msgspec.structs.replace(
            self._sleeper, started=started, why=why, status=shown, log=str(self._log)
        )
