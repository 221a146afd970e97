"""Wake runs that died and that no person stopped, a few at a time, each in a process of its own that outlives this one."""

import contextlib
import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from outlast.core import events as ev, restarts, verdict
from outlast.core.state import Status
from outlast.core.statuses import CLOSED
from outlast.errors import RunHeld, UnknownRun
from outlast.inspect import find
from outlast.inspect.standing import words
from outlast.notifications import delivery
from outlast.operations import requests
from outlast.processes import reap
from outlast.runs.engine.steps import Append
from outlast.runs.inbox import STOPS
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor import notify
from outlast.supervisor.attempt import limits as attempt_limits
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.chronicle import conclusion
from outlast.supervisor.control import standing, takeover
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import background, last_launch
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing

JOBS = 4
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


def sleepers(store: Store, *, parked_only: bool = False, now: bool = False) -> list[Sleeper]:
    """Every open run of all projects, oldest first, with whether it is to be woken and the reason.

    `parked_only`: only runs that wait for a moment in time. `now`: as if that moment had come.
    """
    runs = parked(store) if parked_only else _all_open(store)
    return [_judged(store, summary, now=now) for summary in reversed(runs)]


def take_answers(store: Store) -> None:
    """Put on record what nobody did yet: answers in the inboxes of runs that wait for a person, and deadlines that passed."""
    for summary in find.all_runs(store, RunFilter(parent="", statuses=("parked",)), unreadable=True):
        if not summary.problem and summary.state.waits:
            with contextlib.suppress(RunHeld, UnknownRun):
                requests.take_answers(store, summary.run)


def lift_walls(store: Store) -> None:
    """A person says that the quota is back: remove all walls, and make every run due that waits for a moment in time."""
    for wall in list(quota_walls.every(store.shelf)):
        quota_walls.lift(store.shelf, wall.name)
    for summary in _at_walls(store):
        attempt_limits.bring_forward(store, summary.run)


def _all_open(store: Store) -> list[Summary]:
    """All open runs. A run that cannot be read here (written by a newer outlast) does not stop the others from waking."""
    return list(find.all_runs(store, RunFilter(parent="", open_only=True), unreadable=True))


def parked(store: Store) -> list[Summary]:
    """The runs that wait for a moment in time, newest first."""
    found = find.all_runs(store, RunFilter(parent="", statuses=("parked",)), unreadable=True)
    return [
        each
        for each in found
        if not each.problem
        and each.state.parked_until is not None
        and each.state.supervised
        and not each.state.awaits_start
    ]


def _at_walls(store: Store) -> list[Summary]:
    """Those of them that wait for the end of a usage limit; a person's answer is no wall."""
    return [each for each in parked(store) if not each.state.waits]


def _judged(store: Store, summary: Summary, *, now: bool = False) -> Sleeper:
    if summary.problem:
        return Sleeper(
            run=summary.run, task=summary.task, project=summary.project, status=summary.state.status,
            beats=summary.state.beats, wake=False, why=f"cannot be read here: {summary.problem}",
        )  # fmt: skip
    shown = find.shown_status(store, summary.state, summary.run)
    wakes, why = False, _refused(store, summary.run)
    if not why:
        facts, at = verdict.HostFacts(limits=_limits(store, summary)), datetime.now(UTC)
        if now and summary.state.parked_until is not None and not summary.state.waits:
            at = max(at, summary.state.parked_until)
        found = verdict.of(summary.state, shown, at, find.children_in(store), facts)
        wakes, why = found.wakes, found.why
    if wakes and takeover.is_at_terminal(last_launch.launch_of(store, summary)):
        wakes, why = False, "a session at a terminal: `outlast open` goes on"
    if wakes and (around := _open_around(store, summary)):
        wakes, why = False, f"started inside run {around}: goes on with it"
    return Sleeper(
        run=summary.run, task=summary.task, project=summary.project, status=shown, beats=summary.state.beats,
        wake=wakes, why=why,
    )  # fmt: skip


def _open_around(store: Store, summary: Summary) -> str:
    """The run that this one was started in, if it is open: it starts this one again itself. Else empty."""
    launch = last_launch.launch_of(store, summary)
    if launch is None or not launch.within:
        return ""
    try:
        above = requests.summary_of(store, launch.within)
    except UnknownRun:
        return ""  # it was removed
    return "" if above.state.status in CLOSED else launch.within


def _limits(store: Store, summary: Summary) -> restarts.Limits | None:
    """How many attempts its supervisor would have made; None if it never had a supervisor."""
    launch = last_launch.launch_of(store, summary) if summary.state.supervised else None
    return attempt_limits.limits_of(launch) if launch is not None else None


def _refused(store: Store, run: str) -> str:
    """Reasons against waking that are not in the run's state: a supervisor lives, a person stopped the run, or a request to
    stop came just before it died. Empty if there is none."""
    watcher = lock.of(store.local, run)
    if watcher is not None and watcher.supervisor:
        return f"its supervisor (pid {watcher.supervisor}) looks after it"
    note = lock.noted(store.local, run)
    if note is not None and note.wanted and note.epoch == _last_epoch(store, run):
        return f"stopped: {note.why}"
    stop = next((request for request in store.inbox.pending(run) if request.what in STOPS), None)
    return f"asked to {stop.what} by {stop.by}" if stop is not None else ""


def _last_epoch(store: Store, run: str) -> int:
    """The epoch of the last attempt. Later claims that only wrote an event do not count."""
    page = store.read(run, after=0, limit=1, tags=("attempt_started",), newest=True).events
    event = page[0].event if page else None
    return event.epoch if isinstance(event, ev.AttemptStarted) else 0


# -- waking ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def alone(store: Store) -> Iterator[bool]:
    """Yields whether this process is the only one that wakes runs of this store, while the block lasts."""
    fd = os.open(store.local.waking_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def wake(
    store: Store, asleep: list[Sleeper], jobs: int, person: Person, *, apart_s: float = 0.0
) -> list[Sleeper]:
    """Start all that are to be woken, at most `jobs` at a time. Reports each outcome to the person as soon as it is known.

    Runs that waited at the wall of one account are started `apart_s` after one another. A run whose attempts have reached
    their limit while no supervisor lived is recorded as given up.
    """
    delivery.start(store.local, within_run=notify.is_within_run())  # a notice whose sender was killed
    asleep = [_given_up(store, sleeper) for sleeper in asleep]
    turns = _Turns(store, [sleeper for sleeper in asleep if sleeper.wake], apart_s)
    starting: list[_Start] = []
    settled: dict[str, Sleeper] = {}
    while True:
        starting += [_Start(store, sleeper) for sleeper in turns.take(jobs - len(starting))]
        if not starting and not turns.left:
            return [settled.get(sleeper.run, sleeper) for sleeper in asleep]
        for start in list(starting):
            found = start.look()
            if found is not None:
                starting.remove(start)
                settled[found.run] = found
                person.say(f"{find.project_name(found.project)}:{found.task}: {found.why}")
        time.sleep(Timing.current().look_every_s)


def _given_up(store: Store, sleeper: Sleeper) -> Sleeper:
    summary = requests.summary_of(store, sleeper.run)
    limits = None if sleeper.wake or summary.state.status == "failed" else _limits(store, summary)
    stop = verdict.limit_reached(summary.state, limits) if limits is not None else None
    if stop is None or _refused(store, sleeper.run) or summary.state.attempt is not None:
        return sleeper
    with contextlib.suppress(RunHeld), requests.claimed(store, sleeper.run) as journal:
        why = f"{stop.why}; the last: {journal.state.evidence}"
        journal.store.append(journal.batch(Append((attempt_limits.given_up(stop, why, journal.now()),))))
        return msgspec.structs.replace(sleeper, status=journal.state.status, why=f"quarantined: {why}")
    return sleeper


def tidy(store: Store) -> None:
    """Forget walls that are over and that no run waits at; restore the walls that runs wait at."""
    waiting = {each.run: each.state.parked_until for each in _at_walls(store)}
    quota_walls.tidy(store.shelf, {run: until for run, until in waiting.items() if until is not None})


def wake_one(store: Store, summary: Summary, within_s: float) -> Sleeper:
    """Start one run that a person asked for. `started` is None if it is still unknown after `within_s`."""
    shown = find.shown_status(store, summary.state, summary.run)
    asleep = Sleeper(
        run=summary.run, task=summary.task, project=summary.project, status=shown, beats=summary.state.beats,
        wake=True, why="is being started",
    )  # fmt: skip
    start = _Start(store, asleep)
    until_s = time.monotonic() + within_s
    while (found := start.look()) is None and time.monotonic() < until_s:
        time.sleep(Timing.current().look_every_s)
    start.leave()
    return found or asleep


class _Turns:
    """The order of starts: all at once, but one after the other for runs that waited at the same wall."""

    def __init__(self, store: Store, asleep: Sequence[Sleeper], apart_s: float) -> None:
        self.left = [(sleeper, self._account(store, sleeper)) for sleeper in asleep]
        self._apart_s, self._last_s = apart_s, dict[str, float]()

    def take(self, count: int) -> list[Sleeper]:
        """At most `count` runs whose turn it is."""
        taken: list[Sleeper] = []
        for sleeper, account in list(self.left):
            if len(taken) == count:
                break
            now_s = time.monotonic()
            if not account or now_s - self._last_s.get(account, -self._apart_s) >= self._apart_s:
                self._last_s[account] = now_s
                self.left.remove((sleeper, account))
                taken.append(sleeper)
        return taken

    def _account(self, store: Store, sleeper: Sleeper) -> str:
        """The account whose wall the run waited at; empty if it did not wait."""
        waited = sleeper.status == "parked"
        return last_launch.account_in(store, requests.summary_of(store, sleeper.run)) if waited else ""


class _Start:
    """One run being woken, until its command runs, its process has ended, or the time is over."""

    def __init__(self, store: Store, sleeper: Sleeper) -> None:
        self._store, self._sleeper = store, sleeper
        summary = requests.summary_of(store, sleeper.run)
        self._epoch, self._attempts = summary.epoch, summary.state.attempts
        self._log = store.local.supervisor_log(sleeper.run)
        self._limit_s = Timing.current().wake_limit_s
        self._until_s = time.monotonic() + self._limit_s
        self._log_start = background.room_in(self._log)
        words = background.ourselves("resume", sleeper.run, "--woken", "--store", store.url)
        self._process: subprocess.Popen[bytes] = background.spawn(words, self._log)

    def leave(self) -> None:
        """Stop watching. A thread reaps the process when it ends, so that it is no zombie of a long-lived process of ours."""
        if self._process.poll() is None:
            threading.Thread(target=self._process.wait, name="outlast-reap", daemon=True).start()

    def look(self) -> Sleeper | None:
        """The outcome, once it is known; None until then."""
        code = self._process.poll()
        if code is not None:
            return self._ended(code)
        summary = requests.summary_of(self._store, self._sleeper.run)
        if summary.epoch > self._epoch and self._is_at_work(summary):
            return self._settled(summary, True, f"goes on from beat {self._sleeper.beats + 1}")
        if time.monotonic() > self._until_s:
            return self._settled(summary, False, f"did not start within {self._limit_s:.0f} s")
        return None

    def _is_at_work(self, summary: Summary) -> bool:
        """Whether its first new beat is done, or its command runs."""
        if summary.state.beats > self._sleeper.beats:
            return True
        attempt = summary.state.attempt
        return attempt is not None and bool(
            attempt.epoch > self._epoch and reap.find(summary.run, epoch=attempt.epoch)
        )

    def _ended(self, code: int) -> Sleeper:
        summary = requests.summary_of(self._store, self._sleeper.run)
        shown = find.shown_status(self._store, summary.state, summary.run)
        has_started = summary.state.attempts > self._attempts
        if shown == "failed" and not has_started:  # it found that the attempts before were enough
            settled = self._settled(summary, False, f"quarantined: {summary.state.evidence}")
            return msgspec.structs.replace(settled, wake=False, started=None)
        if shown == "parked" and summary.state.parked_until is not None:
            why = verdict.of(summary.state, shown, datetime.now(UTC)).why
            settled = self._settled(summary, True, f"{why}: {summary.state.evidence}")
            return settled if has_started else msgspec.structs.replace(settled, wake=False, started=None)
        if code == 0 or (has_started and shown != "parked"):
            return self._settled(summary, True, f"went on, and is {self._word(summary, shown)}")
        if shown == "running" or lock.of(self._store.local, summary.run) is not None:
            # Another `outlast resume` was faster.
            return self._settled(summary, True, "another process goes on with it")
        return self._settled(summary, False, self._last_words() or f"ended with {code}")

    def _word(self, summary: Summary, shown: Status) -> str:
        """How it stands, in the word that `ls` shows."""
        return words(standing.of(self._store, summary, shown).word)

    def _last_words(self) -> str:
        """Its last error, without the hint and what the run took."""
        with self._log.open("rb") as file:
            file.seek(max(self._log_start, self._log.stat().st_size - _LAST_WORDS_BYTES))
            lines = file.read(_LAST_WORDS_BYTES).decode(errors="replace").splitlines()
        errors = [
            line
            for line in lines
            if line.strip() and not line.startswith("hint: ") and not conclusion.IN_WORDS.match(line)
        ]
        return errors[-1].removeprefix("error: ").removeprefix("outlast: ") if errors else ""

    def _settled(self, summary: Summary, started: bool, why: str) -> Sleeper:
        shown = find.shown_status(self._store, summary.state, summary.run)
        return msgspec.structs.replace(
            self._sleeper, started=started, why=why, status=shown, log=str(self._log)
        )
