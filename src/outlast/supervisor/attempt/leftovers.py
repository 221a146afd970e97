"""Leftovers of an earlier attempt: stops its processes, records its guardian's note, names its effects in doubt."""

import signal
import time
from collections.abc import Collection, Iterator

from outlast.core import events as ev
from outlast.errors import RunRefused
from outlast.processes import proc, reap
from outlast.processes.roster import Roster
from outlast.runs.engine import stores
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.store.protocol import RunFilter
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.launch import environment
from outlast.supervisor.person import Person
from outlast.supervisor.socket import pipe as socket_pipe
from outlast.supervisor.timing import Timing


def stop_earlier(run: RunEngine, person: Person, *, guardian: int = 0, spare: Collection[int] = ()) -> None:
    """Wait for a guardian of an earlier attempt, then stop what carries the run's mark, holds its pipe or is on its roster.

    Processes that cannot be stopped are named in `run.supervision.left`: while they live, no call is found not to have happened.
    """
    local = run.journal.store.local
    run.supervision.mark = environment.attempt_mark(run.id, run.journal.lease.epoch)
    _refuse_waiting(run, guardian)
    lock.wait_for_other(local, run.id, mine=guardian)
    roster = Roster(local.roster(run.id))
    pipe = socket_pipe.path_of(local.socket(run.id))
    spared = {*spare, *((guardian,) if guardian else ())}

    def found() -> Iterator[proc.Proc]:
        scripts = [pid for pid in socket_pipe.holders(pipe) if pid not in spared]
        yield from reap.search(run.id, roots=scripts, spare=spared)
        yield from (there for there in roster.alive() if there.pid not in spared)

    above = reap.ancestor_in_run(run.id)
    if above is not None:
        raise RunRefused(
            f"this command runs below {proc.describe(above.pid)} of an earlier attempt, which it would stop",
            hint="start it from another terminal",
        )

    reaped = reap.stop(found, first=signal.SIGTERM, grace_s=Timing.current().reap_grace_s)
    for name in (*reaped.stopped, *reaped.killed):
        person.say(f"stopped {name}, left by an earlier attempt")
    for name in reaped.escaped:
        person.say(f"{name}, left by an earlier attempt, could not be stopped", needed=True)
    run.supervision.left = reaped.escaped
    roster.clear()


def _refuse_waiting(run: RunEngine, guardian: int) -> None:
    """Raise RunRefused while a supervisor waits between two attempts: it has released the run and will claim it again."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.leaving_supervisor_s
    while True:
        watcher = lock.of(run.journal.store.local, run.id)
        if watcher is None or not watcher.supervisor or watcher.guardian == guardian:
            return
        if time.monotonic() > until_s:
            raise RunRefused(
                f"run {run.id} of task {run.task} waits for its next attempt in pid {watcher.supervisor}",
                hint=f"wait for it, or stop it with `outlast kill {run.id}`",
            )
        time.sleep(timing.look_every_s)


def be_guarded(run: RunEngine, signals: StopSignals) -> None:
    """Send the guardian the attempt that it guards, and wait until it holds its lock, unless it is gone."""
    workspace = str(run.folder) if run.terms.workspace else ""
    root, epoch = str(run.journal.store.local.folder), run.journal.lease.epoch
    signals.link.say(
        GuardianMessage(
            what="claimed",
            run=run.id,
            root=root,
            workspace=workspace,
            epoch=epoch,
            task=run.task,
            resume=f"outlast resume {run.id}{stores.option_of(run.journal.store)}",
        )
    )
    timing = Timing.current()
    until_s = lock.monotonic_s() + timing.guarded_s
    while not signals.link.closed and lock.monotonic_s() < until_s:
        signals.wait(timing.guarded_look_s)
        if "guarded" in signals.others():
            return


def name_doubts(run: RunEngine, person: Person) -> None:
    """Before a task starts again, name the effects of its last run that are in doubt: it may do them again."""
    if not run.terms.again or run.state.attempts > 1:
        return
    where = RunFilter(task=run.task, project=run.terms.project, parent="")
    for before in run.journal.store.list(where, limit=2)[1:]:
        for effect in before.state.in_doubt:
            person.say(
                f"effect {effect.id} {effect.name!r} of run {before.run} is in doubt and may be done again here;"
                f" see `outlast effects {before.run}`",
                needed=True,
            )


def take_up_note(run: RunEngine) -> None:
    """Record what the guardian of a killed supervisor did."""
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
