"""Who takes part in a night: agents, projects and people, and what makes their journals from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from outlast.core import events as ev
from outlast.core.plan import Step
from tests.support.journals.scribe import AgentCli, Scribe

SEED = 7
CLAUDE = AgentCli("claude", "claude", "claude-opus-4-5", 4_200)
CODEX = AgentCli("codex", "codex", "gpt-5-codex", 2_600)
KIMI = AgentCli("kimi-code", "kimi", "kimi-k2", 900)
GEMINI = AgentCli("gemini", "gemini", "gemini-2.5-pro")  # a subscription pays
AGENTS = (CLAUDE, CODEX, KIMI, GEMINI)
PROJECTS = ("shop", "ledger", "handbook")
PEOPLE = ("ada", "grace")


@dataclass
class Cast:
    """Who takes part: it makes the journals, and remembers them in the order in which they are created."""

    rng: random.Random
    now: datetime
    scribes: list[Scribe] = field(default_factory=list)
    working: list[str] = field(default_factory=list)  # runs whose last attempt has no end

    def run(
        self, task: str, project: str, goal: str, agent: AgentCli | None, hours_ago: float, **more: object
    ) -> Scribe:
        """A run that was opened so many hours ago."""
        at = self.now - timedelta(hours=hours_ago)
        place = f"/srv/code/{project}"
        scribe = Scribe(self.rng, at, task, f"{place}/.git", goal, agent, place if agent else "", **more)  # type: ignore[arg-type]
        self.scribes.append(scribe)
        return scribe

    def work(self, scribe: Scribe, beats: int, *, tokens: int = 40_000, seconds: float = 90.0) -> Scribe:
        """So many beats of an ordinary agent."""
        for _ in range(beats):
            calls = self.rng.choice(CALLS)
            spent = max(500, int(self.rng.lognormvariate(0, 0.5) * tokens))
            lasted = max(1.0, self.rng.lognormvariate(0, 0.4) * seconds)
            scribe.beat(self.rng.choice(SAID), calls, tokens=spent, seconds=lasted)
        return scribe

    def until(self, scribe: Scribe, minutes_ago: float) -> Scribe:
        """Let its clock stand so many minutes before now, if it is not there yet."""
        scribe.at = max(scribe.at, self.now - timedelta(minutes=minutes_ago))
        return scribe


CALLS: tuple[tuple[str, ...], ...] = (
    ("Read src/cart.py",), ("Bash pytest -q",), ("Edit src/cart.py", "Bash pytest -q tests/test_cart.py"),
    ("Grep def total", "Read src/total.py"), ("Bash git commit -am wip",), ("Write docs/rounding.md",), (),
)  # fmt: skip
SAID = (
    "The failing test expects half-up rounding; the code uses banker's rounding. Fixing that first.",
    "All tests of this module pass now. Next: the same for refunds.",
    "Read the callers: three of them pass a float. They should pass cents.",
    "The migration works on the sample database; I will run it on the copy of production next.",
    "Nothing else uses this function, so I removed it.",
)  # fmt: skip
STOPS: tuple[tuple[ev.Cause, str], ...] = (
    ("crash", "exited with 1: fetch failed"), ("signal", "SIGHUP from pid 77 (ada: sshd)"),
    ("oom", "killed by the kernel: out of memory in /agents (limit 2000 MB)"),
)  # fmt: skip
PLAN = (
    Step("understand", (Step("read the module"), Step("reproduce the bug"))),
    Step("fix", (Step("change the code"), Step("extend the tests"), Step("run everything"))),
    Step("write it down"),
)
