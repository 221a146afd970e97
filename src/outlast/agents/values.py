"""What passes between the supervisor and an agent's parts: how to start it, and what its hooks ask and get as answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from outlast.agents.events import AgentEvent
from outlast.core import values


class Caps(msgspec.Struct, frozen=True):
    """What can be known of an agent. `intent` says what tells us of a call before it runs; none: after the fact."""

    intent: tuple[Literal["hooks", "shims", "transcript"], ...] = ()
    resume: bool = False
    preassigned_session: bool = False
    headless: bool = True
    mends: bool = False  # whether a transcript can be given results that it lacks
    tells: bool = False  # whether the answer to a hook after a call is read by the model
    response_ids: bool = False  # whether its usage is keyed by its provider's own ids, as a gateway sees them


Payment = Literal["api", "subscription", "unknown"]
Route = Callable[[str], str]  # the base URL of a provider → the address on this machine that stands for it


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a start: the command, its environment and folder, and the session to go on with."""

    words: tuple[str, ...]  # the command as the user typed it; the first word is the program
    environment: Mapping[str, str]
    cwd: Path
    folder: Path  # private to the run, for files of the adapter's own
    hook: tuple[str, ...] = ()  # the command that a hook is to run; it reads the hook's input from stdin
    session: values.SessionMark | None = None  # the session to go on with
    prompt: str = ""  # what to say to it; empty for the user's own first words
    interactive: bool = False
    routes: Mapping[str, str] = {}  # by `Billing.gateway`: base URLs of providers, and what stands for each


class AgentCommand(msgspec.Struct, frozen=True):
    """How an agent is started: its words, what its environment gains, and its session where we chose it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    session: str = ""


class Hook(msgspec.Struct, frozen=True):
    """One hook input, understood: what it tells, and what kind of answer it may be given."""

    kind: Literal["pre", "post", "other"]
    events: tuple[AgentEvent, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """What a hook says to the agent: nothing, words that the model reads, or a denial with its reason."""

    allowed: bool = True
    reason: str = ""


class Cut(msgspec.Struct, frozen=True):
    """A call whose result the agent never got, and the truth about it, in words for the model."""

    id: str
    name: str
    input: msgspec.Raw
    text: str
    lane: str = ""
