"""A sub-agent: its calls are on record as of a lane, and once; and what it costs counts once."""

import signal
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Call, Lane, Script, Step, Usage, bash
from tests.agents.trial import Trial, described
from tests.agents.trial_plan import Kill, Plan, Task
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


@pytest.mark.real_agent
def test_a_call_of_a_sub_agent_that_was_cut_off_is_on_record_once_however_often_it_is_resumed(
    tmp_path: Path,
) -> None:
    """kimi-cli's transcript lacks that call's result for good: nobody goes on with the sub-agent."""
    need("kimi-cli", "1.51.0")
    first, second = Task("x0n0e", "sub", "after"), Task("x0n1e", "post", "before")
    kills = tuple(Kill("hold", task.name, 0.0, ("all",), signal.SIGKILL) for task in (first, second))
    plan = Plan(0, 0, "kimi-cli", "1.51.0", ((first,), (second,)), kills, "never", hasty=False, ways=("run",))
    out = Trial(plan, tmp_path / "world").run()
    assert not out.failures, described(out)
    assert out.settled == 1, "the second one, once"
