"""What an attempt does before anything of its own runs: nothing of an earlier one may run on, nor what it did be lost."""

import signal
import time
from collections.abc import Callable, Collection, Iterator

from outlast.core import events as ev
from outlast.effects.ops import Append, Steps
from outlast.errors import RunRefused
from outlast.processes import proc, reaping
from outlast.supervisor import environment, guarding, telling, watchers
from outlast.supervisor.supervised import SupervisedRun

REAP_GRACE_S = 1.0
LEAVING_S = 2.0  # for one that has ended and is on its way out
_LOOK_EVERY_S = 0.05


def stop_earlier(
    run: SupervisedRun, say: Callable[[str], None], *, guardian: int = 0, spare: Collection[int] = ()
) -> None:
    """Wait for a guardian of an earlier attempt, then stop what carries the run's mark or holds its pipe."""
    root = run.journal.store.root
    _refuse_waiting(run, guardian)
    guarding.wait_for_other(root, run.id, mine=guardian)
    pipe = telling.path_of(environment.socket_path(guarding.folder_of(root, run.id)))
    spared = {*spare, *((guardian,) if guardian else ())}

    def found() -> Iterator[proc.Proc]:
        scripts = [pid for pid in telling.holders(pipe) if pid not in spared]
        return reaping.search(run.id, roots=scripts, spare=spared)

    above = reaping.inside(run.id)
    if above is not None:
        raise RunRefused(
            f"this was started by what it would stop: {proc.describe(above.pid)} belongs to an earlier attempt",
            hint="start it from another terminal",
        )

    reaped = reaping.stop(found, first=signal.SIGTERM, grace_s=REAP_GRACE_S)
    for name in (*reaped.stopped, *reaped.killed):
        say(f"stopped {name}, left by an earlier attempt")


def _refuse_waiting(run: SupervisedRun, guardian: int) -> None:
    """A living supervisor that waits between two attempts has let the run go, and will take it up again."""
    until_s = time.monotonic() + LEAVING_S
    while True:
        watcher = watchers.of(run.journal.store.root, run.id)
        if watcher is None or not watcher.supervisor or watcher.guardian == guardian:
            return
        if time.monotonic() > until_s:
            raise RunRefused(
                f"run {run.id} of task {run.task!r} waits for its next attempt in pid {watcher.supervisor}",
                hint=f"wait for it, or stop it with `outlast kill {run.id}`",
            )
        time.sleep(_LOOK_EVERY_S)


def take_up_note(run: SupervisedRun) -> None:
    """What the guardian of a killed supervisor did, on record."""
    note = guarding.noted(run.journal.store.root, run.id)
    if note is None:
        return
    at, events = run.journal.now(), list[ev.AnyEvent]()
    if note.save:
        events.append(
            ev.SaveMade(at=at, kind="emergency", commit=note.save, beat=run.state.beats, reason=note.why)
        )
    stopped = f"; stopped {', '.join(note.stopped)}" if note.stopped else ""
    events.append(ev.Warned(at=at, level=f"guardian {note.epoch}", text=f"{note.why}{stopped}"))
    run.drive(_append(*events))


def _append(*events: ev.AnyEvent) -> Steps:
    yield Append(events)
