"""The agent CLIs we did not write. Here: the seam, what an adapter tells the supervisor about its agent."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from outlast.core import values
from outlast.core.events import Cause

__all__ = [
    "Adapter",
    "AgentEvent",
    "Caps",
    "Final",
    "Launch",
    "Limit",
    "Retry",
    "Session",
    "Text",
    "ToolEnd",
    "ToolStart",
    "Usage",
]


class Session(msgspec.Struct, frozen=True, tag="session"):
    """The agent's own session became known."""

    id: str
    transcript: str = ""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """The agent said something."""

    text: str
    lane: str = ""


class ToolStart(msgspec.Struct, frozen=True, tag="tool_start"):
    """The agent is about to call a tool."""

    id: str
    name: str
    input: msgspec.Raw
    lane: str = ""


class ToolEnd(msgspec.Struct, frozen=True, tag="tool_end"):
    """A tool call ended."""

    id: str
    ok: bool
    output: str = ""
    lane: str = ""


class Usage(msgspec.Struct, frozen=True, tag="usage"):
    """What was spent: by one response, or cumulatively by a session or process. Counted once per key."""

    values: values.Usage
    scope: Literal["response", "session", "process"]
    key: str
    model: str = ""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """The agent tries a call to its model again."""

    attempt: int
    reason: str = ""


class Limit(msgspec.Struct, frozen=True, tag="limit"):
    """A usage or rate limit was met."""

    reset_at: datetime | None
    reason: str = ""


class Final(msgspec.Struct, frozen=True, tag="final"):
    """The agent says that it is finished, or why it gave up."""

    cause: Cause
    text: str = ""


AgentEvent = Session | Text | ToolStart | ToolEnd | Usage | Retry | Limit | Final


class Caps(msgspec.Struct, frozen=True):
    """What can be known of an agent. `intent` says what tells us of a call before it runs; none: after the fact."""

    intent: tuple[Literal["hooks", "shims", "transcript"], ...] = ()
    resume: bool = False
    preassigned_session: bool = False
    headless: bool = True


class Launch(msgspec.Struct, frozen=True):
    """How an agent is started: its words, and what its environment gains."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Adapter(Protocol):
    """One agent CLI. Per-run flags, environment and files only; the user's own are merged, never replaced."""

    name: str
    caps: Caps

    def detect(self, command: Sequence[str]) -> bool:
        """Whether this command starts that agent."""

    def launch(self, command: Sequence[str], run: str) -> Launch:
        """The first start."""

    def resume(self, command: Sequence[str], session: values.SessionMark, prompt: str) -> Launch | None:
        """Go on with a session; None where it cannot be resumed."""

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in one line of its output. Never raises: any line may be garbage."""

    def sidecars(self, session: str) -> Sequence[Path]:
        """Files beside the stream that tell more, such as a transcript."""

    def classify(self, exit_code: int, tail: bytes) -> Final:
        """Why it ended."""

    def in_flight(self, session: values.SessionMark) -> Sequence[ToolStart]:
        """Calls without a result in its transcript."""

    def state_paths(self, session: str) -> Sequence[Path]:
        """Everything that must be carried along to resume elsewhere."""
