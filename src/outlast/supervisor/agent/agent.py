"""The data that all parts of one agent attempt share."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.agents import KnownAgent
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.agent.calls.shims import SHIMS
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.budget.pricing import Pricing
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

if TYPE_CHECKING:
    from outlast.supervisor.budget.gateway import Gate


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent CLI in one attempt of a run. `folder` is the agent's own in the run's."""

    run: RunEngine
    launch: Launch
    known: KnownAgent
    folder: Path
    person: Person
    budget: BudgetWatch
    pricing: Pricing
    gate: "Gate | None" = None  # what goes through it is counted there, and not once more from the transcript

    @property
    def cwd(self) -> str:
        """Where the agent works."""
        return os.fsdecode(raw(self.launch.cwd))

    @property
    def settle_words(self) -> str:
        """The command with which the agent settles a call, without the id of the effect."""
        return f"{shlex.quote(str(self.folder / SHIMS / 'outlast'))} settle {self.run.id}"
