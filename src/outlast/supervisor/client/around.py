"""The run around this process: `outlast run` in a script, or below an agent, starts a run inside of that one's run."""

import contextlib

import msgspec

from outlast import settings
from outlast.core.values import Usage
from outlast.errors import OutlastError
from outlast.supervisor.client import script
from outlast.supervisor.launch import environment
from outlast.supervisor.socket.wire import Note
from outlast.supervisor.timing import Timing


def run_around() -> str:
    """The run whose live attempt this process belongs to; empty if there is none, or the attempt is over."""
    run = settings.variable(environment.RUN)
    if not run or not settings.variable(environment.SOCKET):
        return ""
    try:
        script.ask(Note(kind="hello", text=""), Timing.current().hello_s)
    except OutlastError:
        return ""
    return run


def tell_spent(around: str, run: str, spent: Usage) -> None:
    """Report to the run around what this one has spent in it so far, unless that run is over."""
    if settings.variable(environment.RUN) != around:
        return
    with contextlib.suppress(OutlastError):
        text = msgspec.json.encode(msgspec.structs.replace(spent, time_ms=0)).decode()
        script.tell(Note(kind="spent", name=run, text=text), Timing.current().hello_s)
