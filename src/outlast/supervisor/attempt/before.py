"""What an attempt does before anything of its own runs: nothing of an earlier one may run on, nor what it did be lost."""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime

import msgspec

from outlast.core import events as ev, restarts, state as st, wakeups
from outlast.errors import RunRefused
from outlast.processes import proc, reap
from outlast.runs import attempts
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.store.protocol import Where
from outlast.supervisor.attempt import progress as attempt_progress
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import environment
from outlast.supervisor.socket import pipe as socket_pipe

REAP_GRACE_S = 1.0
LEAVING_S = 2.0  # for one that has ended and is on its way out
_LOOK_EVERY_S = 0.05


def stop_earlier(
    run: RunEngine, say: Callable[[str], None], *, guardian: int = 0, spare: Collection[int] = ()
) -> None:
    """Wait for a guardian of an earlier attempt, then stop what carries the run's mark or holds its pipe."""
    local = run.journal.store.local
    run.supervision.mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
    _refuse_waiting(run, guardian)
    lock.wait_for_other(local, run.id, mine=guardian)
    pipe = socket_pipe.path_of(local.socket(run.id))
    spared = {*spare, *((guardian,) if guardian else ())}

    def found() -> Iterator[proc.Proc]:
        scripts = [pid for pid in socket_pipe.holders(pipe) if pid not in spared]
        return reap.search(run.id, roots=scripts, spare=spared)

    above = reap.inside(run.id)
    if above is not None:
        raise RunRefused(
            f"this was started by what it would stop: {proc.describe(above.pid)} belongs to an earlier attempt",
            hint="start it from another terminal",
        )

    reaped = reap.stop(found, first=signal.SIGTERM, grace_s=REAP_GRACE_S)
    for name in (*reaped.stopped, *reaped.killed):
        say(f"stopped {name}, left by an earlier attempt")


def _refuse_waiting(run: RunEngine, guardian: int) -> None:
    """A living supervisor that waits between two attempts has let the run go, and will take it up again."""
    until_s = time.monotonic() + LEAVING_S
    while True:
        watcher = lock.of(run.journal.store.local, run.id)
        if watcher is None or not watcher.supervisor or watcher.guardian == guardian:
            return
        if time.monotonic() > until_s:
            raise RunRefused(
                f"run {run.id} of task {run.task!r} waits for its next attempt in pid {watcher.supervisor}",
                hint=f"wait for it, or stop it with `outlast kill {run.id}`",
            )
        time.sleep(_LOOK_EVERY_S)


# -- whether one more is allowed -----------------------------------------------------------------------------------


class GivenUp(Exception):
    """The attempts so far have reached a limit: that is on record now, and no other was started."""

    def __init__(self, stop: restarts.Stop, evidence: str) -> None:
        super().__init__(evidence)
        self.stop = stop


def judge(run: RunEngine, limits: restarts.Limits) -> ev.AttemptEnded | None:
    """How an attempt ended that died without a word. Raises GivenUp where with it a limit is reached.

    A supervisor judges its own attempts; this judges those of supervisors that died with theirs.
    """
    journal, lost = run.journal, _lost(run)
    events: list[ev.AnyEvent] = [lost] if lost is not None else []
    after = st.fold(run.state, events)
    if run.supervision.typed:  # attempts in all are a limit for those that nobody asked for
        limits = msgspec.structs.replace(limits, attempts_max=sys.maxsize)
    stop = wakeups.stopped_by(after, limits)
    if stop is None:
        return lost
    why = f"{stop.why}; the last: {after.evidence}"
    if events and run.files is not None:  # nobody else saved what it left
        events += run.drive(run.files.ending("emergency", journal, f"{stop.cause}: {why}", None))
    events.append(given_up(stop, why, journal.now()))
    run.drive(append(*events))
    raise GivenUp(stop, why)


class HeldBack(Exception):
    """No attempt before a quota wall is gone: the run is parked, and that is on record."""

    def __init__(self, why: str, until: datetime) -> None:
        super().__init__(why)
        self.until = until


def hold_back(run: RunEngine, lost: ev.AttemptEnded | None, account: str) -> None:
    """Raise HeldBack where the run is parked until later, or a wall stands before its account that it has to wait at."""
    journal, state = run.journal, run.state
    if state.status == "parked" and state.parked_until is not None and state.parked_until > journal.now():
        raise HeldBack(f"{state.cause}: {state.evidence}", state.parked_until)
    stay = quota_walls.join(journal.store.shelf, account, run.id, run.settings["wake_apart_s"])
    if stay is None:
        return
    events: list[ev.AnyEvent] = [lost] if lost is not None else []
    if events and run.files is not None:  # nobody else saved what it left
        events += run.drive(run.files.ending("emergency", journal, f"quota: {stay.why}", None))
    events.append(ev.Parked(at=journal.now(), until=stay.until, evidence=stay.why, account=account))
    run.drive(append(*events))
    raise HeldBack(stay.why, stay.until)


def _lost(run: RunEngine) -> ev.AttemptEnded | None:
    """The end of an attempt that recorded none: as its guardian knows it, else by what it left."""
    journal, attempt = run.journal, run.state.attempt
    if attempt is None:
        return None
    folder = journal.store.local.run_folder(run.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    progress = attempt_progress.has_progress(run.files, folder, run.state.save_point)
    lost = attempts.lost(run.state, journal.now(), last_seen_s=journal.lease.last_seen_s, progress=progress)
    note = lock.noted(journal.store.local, run.id)
    if note is None or not note.wanted or note.epoch != attempt.epoch:
        return lost
    return msgspec.structs.replace(lost, cause="signal", evidence=note.why, wanted=True)


def given_up(stop: restarts.Stop, why: str, at: datetime) -> ev.AttemptEnded:
    """No more attempts by itself: on record, so that nothing wakes it before a person looks."""
    return ev.AttemptEnded(
        at=at, epoch=0, status=stop.status, cause=stop.cause, evidence=why, wanted=True
    )  # fmt: skip


def name_doubts(run: RunEngine, say: Callable[[str], None]) -> None:
    """A task that is begun anew does again what its last run may have done: that is said before it does."""
    if not run.terms.again or run.state.attempts > 1:
        return
    where = Where(task=run.task, project=run.terms.project, parent="")
    for before in run.journal.store.list(where, limit=2)[1:]:
        for effect in before.state.in_doubt:
            say(
                f"effect {effect.id} {effect.name!r} of run {before.run} is in doubt and may be done again here;"
                f" see `outlast effects {before.run}`"
            )


# -- what the guardian did -----------------------------------------------------------------------------------------


def take_up_note(run: RunEngine) -> None:
    """What the guardian of a killed supervisor did, on record."""
    note = lock.noted(run.journal.store.local, run.id)
    if note is None:
        return
    at, events = run.journal.now(), list[ev.AnyEvent]()
    if note.save:
        events.append(
            ev.SaveMade(at=at, kind="emergency", commit=note.save, beat=run.state.beats, reason=note.why)
        )
    stopped = f"; stopped {', '.join(note.stopped)}" if note.stopped else ""
    events.append(ev.Warned(at=at, level=f"guardian {note.epoch}", text=f"{note.why}{stopped}"))
    run.drive(append(*events))
    lock.forget_note(run.journal.store.local, run.id)
