"""Killed as soon as it is started, before its session came to be, an agent begins anew and does its work once."""

import pytest

from outlast.processes import proc
from outlast.supervisor.launch import environment
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step
from tests.agents.trial_plan import AGENTS
from tests.support.processes import wait_for


@pytest.fixture(params=AGENTS, ids=lambda agent: "-".join(filter(None, agent)))
def under(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def is_agent(pid: int) -> bool:
    return proc.environ_value(pid, environment.ATTEMPT.encode()) is not None


def test_one_killed_before_its_session_came_to_be_begins_anew(under: Under) -> None:
    world = under.world
    world.model.script = Script([Step("Now.", (world.posting("comment", body="hello"),)), Step("Done.")])
    process = under.start()
    wait_for(lambda: any(map(is_agent, under.pids(process))), what="the agent's process", limit_s=60)
    under.kill_all(process)
    assert world.performed() == [], "it had no time for anything"
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert [act.name for act in world.performed()] == ["comment"]
    assert "again in" not in done.stderr, "at the first try"
