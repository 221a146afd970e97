"""The values between the supervisor and an agent's parts: a start, a hook's input and its answer."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from outlast.agents.events import AgentEvent
from outlast.core import values

# Who pays for the model's answers: by the token, a subscription, or nobody knows.
Payment = Literal["api", "subscription", "unknown"]
Route = Callable[[str], str]  # the base URL of a provider → the address on this machine that stands for it


class HttpHook(msgspec.Struct, frozen=True):
    """Where hooks are answered by HTTP. The agent shows the secret in a header; nobody else may read it."""

    url: str
    header: str
    secret: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a start: the command, its environment and folder, and the session to go on with."""

    words: tuple[str, ...]  # the command as the user typed it; the first word is the program
    environment: Mapping[str, str]
    cwd: Path
    folder: Path  # the agent's own folder in the run's, for files that outlast writes for it
    hook: tuple[str, ...] = ()  # the command that a hook is to run; it reads the hook's input from stdin
    by_http: HttpHook | None = None  # the same by HTTP, for an agent that takes hooks so
    session: values.SessionMark | None = None  # the session to go on with
    prompt: str = ""  # what the agent is asked; empty for the user's own first words
    interactive: bool = False
    routes: Mapping[str, str] = {}  # by `Billing.gateway`: base URLs of providers, and what stands for each


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """The user's command, read as its agent would."""

    prompt: str = ""  # empty where it says nothing, or reads it from stdin
    headless: bool = False  # it works without a person at the terminal
    trusting: bool = False  # the agent may do everything without asking
    structured: bool = (
        False  # its output is in a format for programs: only such output tells how the agent ended
    )
    unrecorded: str = ""  # why a headless session is not written to a transcript; empty where it is


class Companions(msgspec.Struct, frozen=True):
    """The files beside a transcript that belong to it."""

    lanes: tuple[Path, ...] = ()  # the transcripts of its sub-agents, where they are files of their own
    # The small files that a resume needs besides: kept at each save point, and brought back where they are gone.
    sidecars: tuple[Path, ...] = ()


class AgentCommand(msgspec.Struct, frozen=True):
    """How an agent is started: its words, what its environment gains, and its session where we chose it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    session: str = ""
    by_http: bool = False  # its hooks come by HTTP, and it inherits the socket that listens for them
    defers: bool = False  # it can put a call aside, end, and ask about it again when it is resumed


class Hook(msgspec.Struct, frozen=True):
    """One hook input: the events in it, and what kind of answer it may get."""

    kind: Literal["pre", "post", "other"]
    events: tuple[AgentEvent, ...] = ()
    ends_batch: bool = False  # all calls of a response have ended, and its model is asked next


class Answer(msgspec.Struct, frozen=True):
    """A hook's answer to the agent: nothing, words that the model reads, or a denial with its reason.

    `aside`: the call is neither made nor denied. Its agent ends, and asks about the same call again when it is resumed. Only
    an agent that was started as one that defers (`AgentCommand.defers`) gets such an answer.
    """

    allowed: bool = True
    reason: str = ""
    aside: bool = False


class Cut(msgspec.Struct, frozen=True):
    """A call whose result the agent never got, and the truth about it, in words for the model."""

    id: str
    name: str
    input: msgspec.Raw
    text: str
    lane: str = ""
