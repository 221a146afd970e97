"""A tool of an MCP server reaches outside, also where its name does not tell whose it is."""

import signal
from pathlib import Path

import pytest

from outlast.agents import registry
from outlast.agents.outward.classify import classify
from tests.agents.agent_world import need
from tests.agents.trial import Trial, described
from tests.agents.trial_plan import Kill, Plan, Task


def outward(agent: str, tool: str) -> list[str]:
    known = registry.by_name(agent)
    assert known is not None
    own = known.release.own_tools
    assert own is not None
    return [each.signature for each in classify(own.full_name(tool), {"name": "x", "body": "hello"}, "/work")]


@pytest.mark.parametrize(
    ("agent", "tool", "signature"),
    [
        ("opencode", "world_post_note", "mcp world post_note name=x"),
        ("kimi-cli", "post_note", "mcp kimi-cli post_note name=x"),
        ("kimi-cli", "mcp__world__post_note", "mcp world post_note name=x"),
    ],
)
def test_a_servers_tool_is_known_for_one(agent: str, tool: str, signature: str) -> None:
    assert outward(agent, tool) == [signature]


@pytest.mark.parametrize(
    ("agent", "tool"),
    [("opencode", "github_get_issue"), ("kimi-cli", "get_issue"), ("opencode", "apply_patch"), ("opencode", "write"),
     ("opencode", "todowrite"), ("kimi-cli", "WriteFile"), ("kimi-cli", "SetTodoList"), ("kimi-cli", "Agent")],
)  # fmt: skip
def test_one_that_only_reads_and_the_agents_own_stay_local(agent: str, tool: str) -> None:
    assert outward(agent, tool) == []


@pytest.mark.real_agent
@pytest.mark.parametrize("agent", [("kimi-cli", "1.51.0"), ("opencode", None)], ids=lambda agent: agent[0])
def test_killed_in_a_servers_tool_its_model_cannot_make_the_call_again(
    tmp_path: Path, agent: tuple[str, str | None]
) -> None:
    need(*agent)
    task = Task("x0n0e", "mcp", "after")
    kill = Kill("hold", task.name, 0.0, ("all",), signal.SIGKILL)
    plan = Plan(0, 0, *agent, ((task,),), (kill,), "verbatim", hasty=False, ways=("run",), parts=("mcp",))
    trial = Trial(plan, tmp_path / "world")
    out = trial.run()
    assert not out.failures, described(out)
    assert any(tool.endswith("post_note") for tool in trial.model.used), described(out)
