"""How a run was started, as its journal has it, and which agent that command is. Nothing is started here."""

import os

from outlast import decoders
from outlast.agents import KnownAgent, registry
from outlast.core import events as ev
from outlast.store.protocol import Store, Summary
from outlast.supervisor.launch.launch import Launch
from outlast.workspace.types import raw


def launch_of(store: Store, summary: Summary) -> Launch | None:
    """How a run was last started, or was to be at first, if by a supervisor."""
    tags = ("attempt_started",) if summary.state.attempts else ("run_opened",)
    page = store.read(summary.run, after=0, limit=1, tags=tags, newest=True).events
    event = page[0].event if page else None
    if not isinstance(event, ev.AttemptStarted | ev.RunOpened) or event.launch is None:
        return None
    data = store.blobs.get(event.launch.blob) if event.launch.blob else bytes(event.launch.v)
    return decoders.decode(data, Launch)


def account_in(store: Store, summary: Summary) -> str:
    """The account whose limits a run meets, as last recorded; empty if it is unknown."""
    page = store.read(summary.run, after=0, limit=1, tags=("parked", "attempt_started"), newest=True).events
    event = page[0].event if page else None
    if isinstance(event, ev.Parked):
        return event.account
    launch = launch_of(store, summary)
    return launch.account if launch is not None else ""


def known_agent(launch: Launch) -> KnownAgent | None:
    """The agent that a command starts, if outlast knows it; None for any other command."""
    if launch.plain:
        return None
    return registry.recognise(launch.words, os.fsdecode(raw(launch.program)))
