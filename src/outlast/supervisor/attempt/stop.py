"""What an attempt does when it is to end: save first, let calls come to their end, stop what runs."""

import signal
import time
from collections.abc import Callable

from outlast.errors import AgentStopped, SaveError, StoreGone
from outlast.runs import files as run_files, inbox
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.runs.inbox import WAITING
from outlast.supervisor.guardian.signals import Signalled
from outlast.supervisor.socket.server import Server

GRACE_S = 6.0
LEFT_GRACE_S = 2.0  # for what a command or script that ended left running
FIRST_SAVE_S = 1.5  # of an interrupted attempt, before anything is stopped
CALLS_END_S = 2.0
_LOOK_EVERY_S = 0.01


def save_now(run: RunEngine, reason: str, warn: Callable[[str, str], None]) -> None:
    """A save before anything is stopped, as far as there is time."""
    if run.files is None:
        return
    try:
        save = run.files.save("emergency", run.state, reason, if_dirty=True, deadline_s=FIRST_SAVE_S)
        if save is not None:
            run.drive(append(run_files.made(save, run.journal.now(), run.state)))
    except SaveError as error:
        warn("first save failed", str(error))


def stop(
    run: RunEngine,
    server: Server,
    reason: str,
    reap: Callable[[float], None],
    warn: Callable[[str, str], None],
) -> None:
    """Save, stop with grace, reap; the save after is made where the attempt's end is recorded."""
    save_now(run, reason, warn)
    server.stopping()
    reap(GRACE_S)
    let_calls_end(server)


def take_mail(
    run: RunEngine,
    server: Server,
    reap: Callable[[float], None],
    warn: Callable[[str, str], None],
    rests: Callable[[], bool] | None = None,
) -> None:
    """Requests: what stops the run stops its processes first, and is recorded when nothing of it runs any more.

    `rests`: whether an agent that is known is between two beats.
    """
    if not run.journal.lease.mail_waits():
        return
    asked = inbox.asked_to_stop(run.journal)
    if asked:
        if asked in WAITING and not (rests() if rests is not None else not server.busy):
            return
        stop(run, server, f"operator: {asked}", reap, warn)
        run.supervision.may_stop = True
    run.drive(run.mail())


def stopped_by(why: Signalled, *, progress: bool = False, whom: str = "") -> AgentStopped:
    """The end of an attempt that a signal wants; `whom` it went to, where that is not the supervisor."""
    cause = "signal" if why.wanted or why.number == signal.SIGHUP else "host"
    error = AgentStopped(f"{why.evidence}{whom}", cause=cause, wanted=why.wanted, progress=progress)
    error.exit_code = 128 + why.number
    return error


class LeftByPerson(AgentStopped):
    """A person has left the agent at the terminal: that is neither done nor a failure."""

    def __init__(self, why_not_done: str = "") -> None:
        more = f"; not done: {why_not_done}" if why_not_done else ""
        super().__init__(
            f"left by the person at the terminal{more}", cause="operator", wanted=True, exit_code=0
        )


def check_store(run: RunEngine, reap: Callable[[float], None], say: Callable[[str], None]) -> None:
    """Where the state folder is gone nothing can be recorded any more: stop what runs. Raises StoreGone then."""
    try:
        run.journal.store.check_there()
    except StoreGone as error:
        say(f"{error}: stopping")
        reap(GRACE_S)
        raise


def check_calls(server: Server, reap: Callable[[float], None], say: Callable[[str], None]) -> None:
    """Where a call could not be recorded nothing is written any more: stop what runs. Raises what the call met then."""
    error = server.failure
    if error is not None:
        say(f"{error}: saving and stopping")
        server.stopping()
        reap(GRACE_S)
        let_calls_end(server)
        raise error


def let_calls_end(server: Server) -> None:
    """The calls of scripts that are gone come to an end: what they did is on record as far as it is known."""
    until_s = time.monotonic() + CALLS_END_S
    while server.busy and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
