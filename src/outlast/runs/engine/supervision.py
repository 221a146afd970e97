"""What the supervisor of a command adds to the command's run."""

from collections.abc import Callable
from dataclasses import dataclass

from outlast.core import events as ev


@dataclass(slots=True)
class Supervision:
    """The supervisor's part of a run. The run of a Python program keeps the defaults."""

    launch: object = None  # how the command is started again, as plain data
    typed: bool = False  # a person typed the command line, which allows one more attempt
    mark: str = ""  # of the attempt, for the processes of its checks
    may_stop: bool = True  # False: requests to stop wait in the inbox until the command has been stopped
    while_checking: Callable[[], None] | None = None  # called now and then while checks run; may raise
    # Called between the claim and the first look at the files; returns how a lost attempt ended, if that is known.
    on_claimed: Callable[[], ev.AttemptEnded | None] | None = None
