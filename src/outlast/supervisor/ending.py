"""What an attempt does when it is to end: save first, let calls come to their end, stop what runs."""

import time
from collections.abc import Callable

from outlast.core import events as ev
from outlast.effects.ops import Append, Steps
from outlast.errors import SaveError
from outlast.runs import files as run_files
from outlast.supervisor.serving import Server
from outlast.supervisor.supervised import SupervisedRun

FIRST_SAVE_S = 1.5  # of an interrupted attempt, before anything is stopped
CALLS_END_S = 2.0
_LOOK_EVERY_S = 0.01


def save_now(run: SupervisedRun, reason: str, warn: Callable[[str, str], None]) -> None:
    """A save before anything is stopped, as far as there is time."""
    if run.files is None:
        return
    try:
        save = run.files.save("emergency", run.state, reason, if_dirty=True, deadline_s=FIRST_SAVE_S)
        if save is not None:
            run.drive(one(run_files.made(save, run.journal.now(), run.state)))
    except SaveError as error:
        warn("first save failed", str(error))


def let_calls_end(server: Server) -> None:
    """The calls of scripts that are gone come to an end: what they did is on record as far as it is known."""
    until_s = time.monotonic() + CALLS_END_S
    while server.busy and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)


def one(event: ev.AnyEvent) -> Steps:
    """One event, to be driven."""
    yield Append((event,))
