"""The agent CLIs we did not write. Here: the seam between an agent and the supervisor.

What an agent did is read from its transcript and its hooks; its standard output belongs to the user.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from outlast.agents.events import AgentEvent, Final, UsageReport
from outlast.agents.values import AgentCommand, Answer, Ask, Caps, Cut, Hook, Payment, Route


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

    def billing(self, ask: Ask) -> Payment:
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

    def billing(self, ask: Ask) -> Payment:
        return "api"

    def account(self, ask: Ask) -> str:
        return ""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return "nobody knows where its calls go"


class Login(Protocol):
    """The login that an agent would use, as its files and environment show it."""

    def billing(self) -> Payment: ...

    def account(self) -> str: ...

    def gateway(self, ask: Ask, route: Route) -> Ask | str: ...


class ByLogin(Common):
    """An agent whose login tells who is paid, whose limits count and where its calls go."""

    def login(self, ask: Ask) -> Login:
        raise NotImplementedError

    def billing(self, ask: Ask) -> Payment:
        return self.login(ask).billing()

    def account(self, ask: Ask) -> str:
        return self.login(ask).account()

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return self.login(ask).gateway(ask, route)
