"""What an earlier attempt left: processes are stopped, the guardian's note is put on record, doubts are named."""

import signal
import time
from collections.abc import Callable, Collection, Iterator

from outlast.core import events as ev
from outlast.errors import RunRefused
from outlast.processes import proc, reap
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.store.protocol import Where
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import environment
from outlast.supervisor.socket import pipe as socket_pipe
from outlast.supervisor.timing import Timing


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

    reaped = reap.stop(found, first=signal.SIGTERM, grace_s=Timing.current().reap_grace_s)
    for name in (*reaped.stopped, *reaped.killed):
        say(f"stopped {name}, left by an earlier attempt")


def _refuse_waiting(run: RunEngine, guardian: int) -> None:
    """A living supervisor that waits between two attempts has let the run go, and will take it up again."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.leaving_supervisor_s
    while True:
        watcher = lock.of(run.journal.store.local, run.id)
        if watcher is None or not watcher.supervisor or watcher.guardian == guardian:
            return
        if time.monotonic() > until_s:
            raise RunRefused(
                f"run {run.id} of task {run.task!r} waits for its next attempt in pid {watcher.supervisor}",
                hint=f"wait for it, or stop it with `outlast kill {run.id}`",
            )
        time.sleep(timing.look_every_s)


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
