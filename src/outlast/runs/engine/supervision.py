"""A supervisor's additions to its command's run, and its hold on that run for one attempt."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.runs.engine.claim import claim
from outlast.runs.engine.drivers import blocking
from outlast.runs.engine.finish import leave

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine
    from outlast.runs.journal import Listener


@dataclass(slots=True)
class Supervision:
    """The supervisor's part of a run. The run of a Python program keeps the defaults."""

    launch: object = None  # how the command is started again, as plain data
    typed: bool = False  # a person typed the command line, which allows one more attempt
    mark: str = ""  # of the attempt, for the processes of its checks
    left: tuple[str, ...] = ()  # processes of earlier attempts that could not be stopped, in words
    finishes: bool = False  # the agent had finished in an earlier attempt
    guarded: bool = False  # the command is a plain one, under guard
    within: str = ""  # the run that the command was started in
    has_finished: bool = (
        False  # the agent has finished: only effects in doubt, and checks, keep the run from being done
    )
    listener: "Listener | None" = None  # hears of what is recorded, as `Journal.listener`
    may_stop: bool = True  # False: requests to stop wait in the inbox until the command has been stopped


@contextlib.contextmanager
def held(run: "RunEngine") -> Iterator[None]:
    """Claim a run and hold it for one attempt. The supervisor takes the other steps of `start.start` itself.

    Leaving the block records how the attempt ended, if its start is on record, and lets the run go in any case.
    """
    run.is_async = False
    blocking(None, claim(run))
    try:
        yield
    except BaseException as error:
        blocking(run.journal, leave(run, error))
        raise
    blocking(run.journal, leave(run, None))
