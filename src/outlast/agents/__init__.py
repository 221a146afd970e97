"""The agent CLIs we did not write. Here: the seam, what an adapter tells the supervisor about its agent.

What an agent did is read from its transcript and its hooks, never from its standard output: that belongs to the user.
An adapter is pure but for finding its agent's files; nothing in it starts a process or appends an event.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from outlast.core import values
from outlast.core.events import Cause

__all__ = [
    "OWN_LIMITS",
    "Adapter",
    "AgentCommand",
    "AgentEvent",
    "Answer",
    "Ask",
    "BatchEnd",
    "Billing",
    "ByLogin",
    "Caps",
    "Common",
    "Cut",
    "Ending",
    "Final",
    "Hook",
    "Limit",
    "Login",
    "Response",
    "Retry",
    "Route",
    "Session",
    "TaskEnd",
    "Text",
    "ToolEnd",
    "ToolStart",
    "UsageReport",
    "Window",
]

# What a window's share is told as is what is recorded of it.
Window = values.Window


class Session(msgspec.Struct, frozen=True, tag="session"):
    """The agent's own session became known."""

    id: str
    transcript: str = ""


class Response(msgspec.Struct, frozen=True, tag="response"):
    """The model answers, or goes on to: one response, with its batch of calls, is one beat."""

    key: str
    lane: str = ""


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
    """A tool call ended. Not `sure`: who tells does not know how, only that it did. With a `task`: what it began goes on."""

    id: str
    ok: bool
    output: str = ""
    lane: str = ""
    sure: bool = True
    task: str = ""


class TaskEnd(msgspec.Struct, frozen=True, tag="task_end"):
    """What a call left running in the background came to its own end."""

    task: str
    ok: bool
    output: str = ""


class BatchEnd(msgspec.Struct, frozen=True, tag="batch_end"):
    """Every call of a response has ended, or the agent's turn has."""

    lane: str = ""


class UsageReport(msgspec.Struct, frozen=True, tag="usage"):
    """What was spent: by one response, or cumulatively by a session or process. Counted once per key.

    Told more than once for one key, the last word counts. `input` is what no cache held. No model: it is the one that
    the command or the settings name (`Adapter.model`).
    """

    values: values.Usage
    scope: Literal["response", "session", "process"]
    key: str
    model: str = ""
    lane: str = ""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """The agent tries a call to its model again."""

    attempt: int
    reason: str = ""


class Limit(msgspec.Struct, frozen=True, tag="limit"):
    """A usage or rate limit was met."""

    reset_at: datetime | None
    reason: str = ""


Ending = Literal[
    "done", "turns", "budget", "context", "rate_limit", "usage_limit", "auth", "network", "refused", "crashed",
    "hook_stopped", "unusable",
]  # fmt: skip


class ModelCost(msgspec.Struct, frozen=True):
    """A line of the agent's own bill: what it says that a model cost, with the tokens that it says so of."""

    model: str
    usage: values.Usage


class Final(msgspec.Struct, frozen=True, tag="final"):
    """The agent says that it is finished, or why it gave up. `bill`: what it says that it cost, where it does."""

    ending: Ending
    text: str = ""
    reset_at: datetime | None = None
    bill: tuple[ModelCost, ...] = ()

    @property
    def cause(self) -> Cause:
        return CAUSES[self.ending]


# What a supervisor does about an ending is decided by its cause (`core.restarts`).
CAUSES: dict[Ending, Cause] = {
    "done": "done",
    "turns": "budget",
    "budget": "budget",
    "context": "context",
    "rate_limit": "network",
    "usage_limit": "quota",
    "auth": "auth",
    "network": "network",
    "refused": "stall",
    "crashed": "crash",
    "hook_stopped": "operator",
    "unusable": "crash",
}

# Limits that the user gave the agent itself, not the run: told apart from a spent budget of ours wherever it is shown.
OWN_LIMITS: dict[Ending, str] = {
    "turns": "turn limit of the agent's own",
    "budget": "budget of the agent's own",
}


def is_own_limit(evidence: str) -> bool:
    """Whether an attempt was ended by a limit of the agent's own, by what is on record."""
    return evidence.startswith(tuple(OWN_LIMITS.values()))


AgentEvent = (
    Session | Response | Text | ToolStart | ToolEnd | TaskEnd | BatchEnd | UsageReport | Window | Retry | Limit | Final
)  # fmt: skip


class Caps(msgspec.Struct, frozen=True):
    """What can be known of an agent. `intent` says what tells us of a call before it runs; none: after the fact."""

    intent: tuple[Literal["hooks", "shims", "transcript"], ...] = ()
    resume: bool = False
    preassigned_session: bool = False
    headless: bool = True
    mends: bool = False  # whether a transcript can be given results that it lacks
    tells: bool = False  # whether the answer to a hook after a call is read by the model
    response_ids: bool = False  # whether its usage is keyed by its provider's own ids, as a gateway sees them


Billing = Literal["api", "subscription", "unknown"]
Route = Callable[[str], str]  # the base URL of a provider → the address on this machine that stands for it


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter is given to start its agent with."""

    words: tuple[str, ...]  # the command as the user typed it; the first word is the program
    environment: Mapping[str, str]
    cwd: Path
    folder: Path  # private to the run, for files of the adapter's own
    hook: tuple[str, ...] = ()  # the command that a hook is to run; it reads the hook's input from stdin
    session: values.SessionMark | None = None  # the session to go on with
    prompt: str = ""  # what to say to it; empty for the user's own first words
    interactive: bool = False
    routes: Mapping[str, str] = {}  # by `Adapter.gateway`: base URLs of providers, and what stands for each


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


class Adapter(Protocol):
    """One agent CLI. Per-run flags, environment and files only; the user's own are merged, never replaced."""

    name: str
    caps: Caps

    def detect(self, words: Sequence[str], program: str) -> bool:
        """Whether this command starts that agent; `program` is the absolute path behind the first word."""

    def is_headless(self, words: Sequence[str]) -> bool:
        """Whether the command works without a person at the terminal."""

    def prompt(self, words: Sequence[str]) -> str:
        """What the user's command says to the agent, empty where it says nothing or reads it from stdin."""

    def version(self, program: str, run: Callable[[Sequence[str], float], str] | None = None) -> str:
        """Which version that program is, empty where nothing tells; `run` asks it, where that is needed."""

    def problem(self, version: str) -> str:
        """Why this version cannot be carried, empty when it can."""

    def untested(self, version: str) -> str:
        """What is to be said of a version that nobody tried, empty for those that were."""

    def launch(self, ask: Ask) -> AgentCommand | None:
        """The first start, or the resume of `ask.session`; None where that cannot be resumed."""

    def transcript(self, session: str, ask: Ask) -> Path | None:
        """The file that the session is written to, if it can be found."""

    def place(self, session: str, ask: Ask) -> Path | None:
        """The file that its CLI would look for here, also where it is not yet; None where only the CLI makes such."""

    def lanes(self, transcript: Path) -> tuple[Path, ...]:
        """The transcripts of its sub-agents, where they are files of their own."""

    def sidecars(self, transcript: Path) -> tuple[Path, ...]:
        """The small files that a resume needs besides: kept at each save point, and brought back where they are gone."""

    def blind(self, ask: Ask) -> str:
        """Why its hooks will not run, empty where they will."""

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in one line of its transcript. Never raises: any line may be garbage."""

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        """What a file that is no transcript tells of all that was spent; whole each time, each by its key. Never raises."""

    def hook(self, data: bytes) -> Hook:
        """One hook input. Never raises."""

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """What the hook prints, and its exit code, for the input that it was given."""

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """The transcript with a true result for each cut call; falsehoods that the CLI wrote are replaced."""

    def structured(self, words: Sequence[str]) -> bool:
        """Whether the command asks for output in a format for programs; only there its output tells how it ended."""

    def unkept(self, ask: Ask) -> str:
        """Why its session will not be written anywhere, empty where it will."""

    def classify(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """Why it ended, from its exit code, the end of its output and the end of its transcript."""

    def resume_words(self, session: str) -> tuple[str, ...]:
        """What a person types to go on by hand, without outlast."""

    def words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Its usual headless command for a prompt; not `trusting`: in its safest mode that can still edit files."""

    def trusting(self, words: Sequence[str]) -> bool:
        """Whether the user's command lets the agent do everything without asking."""

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        """The model that the command, the environment or its settings name; empty where none does. Never raises."""

    def billing(self, ask: Ask) -> Billing:
        """Whether the login that would be used pays by the token or is a subscription. Never raises."""

    def account(self, ask: Ask) -> str:
        """A short, stable name, no secret, of the account that a usage limit would be met on; empty where unknown."""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        """The same ask, whose launch sends the model's calls to where `route` says; or why that cannot be done."""


class Common:
    """What holds of an agent unless its adapter knows better."""

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def lanes(self, transcript: Path) -> tuple[Path, ...]:
        return ()

    def sidecars(self, transcript: Path) -> tuple[Path, ...]:
        return ()

    def blind(self, ask: Ask) -> str:
        return ""

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        return ()

    def structured(self, words: Sequence[str]) -> bool:
        return False

    def unkept(self, ask: Ask) -> str:
        return ""

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return ""

    def billing(self, ask: Ask) -> Billing:
        return "api"

    def account(self, ask: Ask) -> str:
        return ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return "nobody knows where its calls go"


class Login(Protocol):
    """The login that an agent would use, as its files and environment show it."""

    def billing(self) -> Billing: ...

    def account(self) -> str: ...

    def gateway(self, ask: Ask, route: Route) -> Ask | str: ...


class ByLogin(Common):
    """An agent whose login tells who is paid, whose limits count and where its calls go."""

    def login(self, ask: Ask) -> Login:
        raise NotImplementedError

    def billing(self, ask: Ask) -> Billing:
        return self.login(ask).billing()

    def account(self, ask: Ask) -> str:
        return self.login(ask).account()

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return self.login(ask).gateway(ask, route)
