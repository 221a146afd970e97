"""A sub-agent of Claude Code: its calls are on record as of a lane, and what it costs counts once."""

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, Lane, Script, Step, Usage, bash
from tests.support.processes import wait_for

USAGE = Usage(input=1000, cache_read=20, cache_write=0, output=4)
DELEGATE = Call(
    "Agent",
    {
        "description": "a part",
        "prompt": "SUBTASK: do the part",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    },
)


@pytest.fixture
def claude(world: AgentWorld) -> Under:
    return Under(world, "claude", "2.1.325")


def script(command: str) -> Script:
    part = (Step("I do it.", (bash(command),), USAGE), Step("The part is done.", (), USAGE))
    return Script(
        [Step("I delegate.", (DELEGATE,), USAGE), Step("All done.", (), USAGE), Step("All done.", (), USAGE)],
        lanes=[Lane("SUBTASK", part)],
    )


def test_what_a_sub_agent_does_and_costs_is_on_record(claude: Under) -> None:
    claude.world.model.script = script("echo part > part.txt")
    done = claude.run()
    assert done.returncode == 0, done.stderr
    assert (claude.world.work / "part.txt").read_text() == "part\n"
    shown = claude.shown()
    assert [effect["name"] for effect in claude.effects()] == ["Agent", "Bash"]
    assert {effect["state"] for effect in claude.effects()} == {"confirmed"}
    assert shown["beats"] == 2
    assert shown["budget"]["spent"]["input"] == 1000 * len(claude.world.model.paid())


def test_killed_in_a_sub_agents_call_its_cost_counts_once(claude: Under) -> None:
    claude.world.model.script = script("echo part > part.txt; sleep 300")
    process = claude.start()
    wait_for((claude.world.work / "part.txt").exists, what="the sub-agent's call", limit_s=60)
    claude.kill_all(process)
    done = claude.run()
    assert done.returncode == 0, done.stderr
    assert claude.shown()["budget"]["spent"]["input"] == 1000 * len(claude.world.model.paid())
