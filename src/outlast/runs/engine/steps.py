"""The steps that a beat's logic asks for. The logic is written once, as generators; a driver carries the steps out,
blocking or awaiting."""

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from outlast.core import events as ev


class Append(msgspec.Struct, frozen=True):
    """Append events and go on when they are durable. `target` is a journal other than the one being driven."""

    events: tuple[ev.AnyEvent, ...]
    takes: tuple[int, ...] = ()
    in_beat: bool = False
    target: Any = None


class Call(msgspec.Struct, frozen=True):
    """Call the user's function, or await it. `guarded` calls happen only under a valid lease.

    `started` receives a function that says whether the call may still be under way after nobody waits for it any more.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    timeout_s: float | None = None
    guarded: bool = False
    started: Callable[[Callable[[], bool]], None] | None = None


class Block(msgspec.Struct, frozen=True):
    """Call something of ours that waits for the disk or a process; an event loop gives it to a thread."""

    fn: Callable[[], Any]


class Wait(msgspec.Struct, frozen=True):
    """Let time pass."""

    seconds: float


Op = Append | Call | Block | Wait
Steps = Generator[Op, Any, Any]


def append(*events: ev.AnyEvent, in_beat: bool = False) -> Steps:
    """Append these events together and nothing else, to be driven."""
    yield Append(events, in_beat=in_beat)


class TimedOut(Exception):
    """A call took too long. `running` tells whether it is still under way, as a thread cannot be stopped."""

    def __init__(self, timeout_s: float, running: Callable[[], bool]) -> None:
        super().__init__(f"no answer within {timeout_s:g} s")
        self.running = running
