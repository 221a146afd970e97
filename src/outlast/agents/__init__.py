"""The agent CLIs we did not write. Here: the seam, four small parts that together make one agent.
What an agent did is read from its transcript and its hooks; its standard output belongs to the user.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from outlast.agents.events import AgentEvent, Final, UsageReport
from outlast.agents.release import Release
from outlast.agents.values import (
    AgentCommand,
    Answer,
    Ask,
    CommandLine,
    Companions,
    Cut,
    Hook,
    Payment,
    Route,
)

__all__ = ["Billing", "Cli", "KnownAgent", "Release", "Transcript"]


class Cli(Protocol):
    """Its command line and its hooks. Flags, variables and files are the run's own; the user's are merged, never replaced.

    No part of an agent starts a process or appends an event.
    """

    def detect(self, words: Sequence[str], program: str) -> bool:
        """Whether this command starts the agent. `program` is the absolute path behind the first word."""

    def read(self, words: Sequence[str]) -> CommandLine:
        """The user's command, read as its agent would."""

    def launch(self, ask: Ask) -> AgentCommand | None:
        """The first start, or the resume of `ask.session`. None where that session cannot be resumed."""

    def headless_words(self, prompt: str, *, trusting: bool) -> tuple[str, ...]:
        """Its usual headless command for a prompt. Not `trusting`: in its safest mode that can still edit files."""

    def resume_words(self, session: str) -> tuple[str, ...]:
        """The command with which a person goes on by hand, without outlast."""

    def hooks_off(self, ask: Ask) -> str:
        """Why its hooks will not run, empty where they will."""

    def hook(self, data: bytes) -> Hook:
        """One hook input. Never raises."""

    def answer(self, data: bytes, answer: Answer) -> tuple[bytes, int]:
        """The hook's output and exit code for its input."""


class Transcript(Protocol):
    """The file that its session is written to: where it is, what its lines mean, and how one that was cut is mended."""

    def find(self, session: str, ask: Ask) -> Path | None:
        """The file that the session is written to, if it can be found."""

    def place(self, session: str, ask: Ask) -> Path | None:
        """The place where the CLI would look for the file, even if there is none yet. None if only the CLI can make it."""

    def beside(self, transcript: Path) -> Companions:
        """The files that belong to it."""

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in one line. Never raises: any line may be garbage."""

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """The transcript with a true result for each cut call; falsehoods that the CLI wrote are replaced."""

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        """Why the agent ended, from its exit code, the end of its output and the end of its transcript."""


class Billing(Protocol):
    """Its model, who pays for the model's answers, and where the calls to the model go. Nothing here raises."""

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        """The model that the command, the environment or its settings name; empty where none does."""

    def payment(self, ask: Ask) -> Payment:
        """Whether the login that would be used pays by the token or is a subscription."""

    def account(self, ask: Ask) -> str:
        """A short, stable name, no secret, of the account that a usage limit would be met on; empty where unknown."""

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        """A copy of the ask whose launch sends the model's calls to where `route` says; or why that cannot be done."""

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        """All that was spent, by a file other than the transcript: the whole of it each time, each report under its key."""


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """One agent CLI that outlast knows."""

    cli: Cli
    transcript: Transcript
    billing: Billing
    release: Release

    @property
    def name(self) -> str:
        return self.release.name
