"""A sub-agent: its calls are on record as of a lane, and once; and what it costs counts once."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Call, Fault, History, Lane, Script, Step, Usage, bash
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


@pytest.mark.parametrize(
    ("agent", "version", "tool", "kind"),
    [
        ("opencode", "1.18.33", "task", "general"),
        ("claude", "2.1.325", "Agent", "general-purpose"),
        ("kimi-code", "2.1.0", "Agent", "coder"),
    ],
)
def test_what_a_sub_agent_did_before_its_agent_was_killed_is_not_done_again(
    world: AgentWorld, agent: str, version: str, tool: str, kind: str
) -> None:
    """It had posted, and was at its next call. The agent begins another one, which knows of nothing."""
    under, mark = Under(world, agent, version), world.work / "mark"
    given = {"description": "a part", "prompt": "SUBTASK: do the part", "subagent_type": kind}
    given |= {} if tool == "task" else {"run_in_background": False}
    delegate = Step("I delegate.", (Call(tool, given),), USAGE)
    part = (
        Step("I say it.", (world.posting("comment", body="hello", flags="-f"),), USAGE),
        Step("I look.", (bash(f"[ -e {mark} ] || {{ touch {mark}; exec sleep 1000; }}"),), USAGE),
        Step("The part is done.", (), USAGE),
    )
    end = Step("All done.", (), USAGE)
    # Kimi Code finds what its sub-agent did in its own session: a response that its model never gave.
    told = [end] if agent == "kimi-code" else []
    world.model.script = Script([delegate, *told, delegate, end, end], lanes=[Lane("SUBTASK", part)])
    process = under.start()
    wait_for(mark.exists, what="the sub-agent's second call", limit_s=60)
    under.kill_all(process)
    done = under.run()
    assert [act.name for act in world.performed()] == ["comment"], done.stderr
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in under.effects() if each["state"] == "failed"], "it was answered"


@pytest.mark.real_agent
def test_a_sub_agent_that_goes_on_in_a_resumed_session_is_of_its_lane_still(world: AgentWorld) -> None:
    """opencode tells of no session that was made before it was started, and its agent may go on with each."""
    opencode, part = Under(world, "opencode", "1.18.33"), world.work / "part.txt"

    def choose(history: History, _plays: int) -> Step:
        last = history.turns[-1]
        if "SUBTASK" in last.text and last.role == "user":
            return Step("I do it.", (bash(f"echo part >> {part}"),), USAGE)
        if "SUBTASK" in history.prompt:
            return Step("The part is done.", (), USAGE)
        given = {"description": "a part", "prompt": "SUBTASK: do the part", "subagent_type": "general"}
        begun = re.search(r'<task id="(\w+)"', "\n".join(result.text for result in history.results))
        if begun is None:
            return Step("I delegate.", (Call("task", given),), USAGE)
        if history.responses == 1:
            more = Fault(hang_after=1, times=None) if not history.resumed else None
            return Step("Once more.", (Call("task", {**given, "task_id": begun[1]}),), USAGE, more)
        return Step("All done.", (), USAGE)

    world.model.script = Script(choose)
    process = opencode.start()
    wait_for(lambda: (part.exists() and world.model.hanging) or None, what="the hanging response", limit_s=60)
    opencode.kill_all(process)
    done = opencode.run()
    assert done.returncode == 0, done.stderr
    assert part.read_text() == "part\n" * 2
    log = opencode.call("log", "t", "--json").stdout
    events = [json.loads(line)["event"] for line in log.splitlines()]
    intents = [event for event in events if event["t"] == "effect_intended"]
    assert [bool(each["args"]["v"].get("lane")) for each in intents if each["name"] == "bash"] == [
        True,
        True,
    ], log
