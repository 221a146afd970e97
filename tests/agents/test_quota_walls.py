"""Real agents at a quota wall: the scripted model refuses them as their providers do, and what each says of it parks the run."""

from datetime import UTC, datetime, timedelta

import pytest

from outlast.processes import reap
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Fault, Script, Step, write

HOURS_3 = timedelta(hours=3)


@pytest.fixture(params=[("claude", "2.1.325"), ("codex", None)], ids=["claude", "codex"])
def agent(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def refusing(agent: Under, fault: Fault) -> None:
    """One file is written, then the provider has had enough."""
    first = Step("First.", (write(agent.world.work / "first.txt", "first\n"),))
    agent.world.model.script = Script([first, Step("Done.", fault=fault)])


def test_a_usage_limit_parks_the_run_until_the_reset_that_the_agent_names(agent: Under) -> None:
    now = datetime.now(UTC)
    reset = now + HOURS_3
    refusing(
        agent, Fault(error="usage", resets_at=int(reset.timestamp()), message=words(agent, reset), times=None)
    )
    done = agent.run()
    assert done.returncode == 5, done.stdout + done.stderr
    shown = agent.shown()
    assert (shown["status"], shown["cause"]) == ("parked", "quota")
    until = datetime.fromisoformat(shown["parked_until"])
    assert timedelta(minutes=-1) <= until - reset <= timedelta(minutes=2), done.stderr
    assert "no reset time" not in done.stderr
    assert list(reap.find(shown["run"])) == []
    assert (agent.world.work / "first.txt").exists()
    assert shown["saves"]
    asked = len(agent.world.model.requests())
    assert "parked until" in agent.call("resume", "--all").stdout
    assert len(agent.world.model.requests()) == asked, "nothing is asked before the reset"
    agent.world.model.script = Script([Step("Done.")])
    resumed = agent.call("resume", "t")
    assert resumed.returncode == 0, resumed.stderr
    assert "The usage limit may not be over" in resumed.stderr
    assert agent.shown()["status"] == "done"


def words(agent: Under, reset: datetime) -> str | None:
    """What stands in the answer: of Claude's own only the words tell."""
    return f"Claude AI usage limit reached|{int(reset.timestamp())}" if agent.name == "claude" else None
