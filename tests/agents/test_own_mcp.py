"""The real agents call the tools of `outlast mcp`, handed to them for the run: what they say is on record, and nothing is held."""

import json

import pytest

from outlast.agents.codex.agent import AGENT as CODEX
from outlast.agents.common import own_server
from outlast.agents.events import ToolStart
from outlast.mcp import tools
from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, History, Script, Step

AGENTS = [("claude", "2.1.325"), ("codex", None), ("gemini", None), ("kimi-code", None), ("opencode", None)]
NAMED = {"gemini": "mcp_outlast_{}", "opencode": "outlast_{}"}  # the others: mcp__outlast__{}


@pytest.fixture(params=AGENTS, ids=lambda agent: agent[0])
def under(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def called(under: Under, tool: str, **given: object) -> Call:
    return Call(NAMED.get(under.name, "mcp__outlast__{}").format(tool), given)


def test_the_agents_know_our_tools_by_their_names() -> None:
    assert tuple(each.name for each in tools.TOOLS) == own_server.TOOLS


def test_what_an_agent_says_by_its_tools_is_on_record_and_nothing_of_it_is_held(
    under: Under,
) -> None:
    world = under.world
    (world.work / "new.txt").write_text("new")
    world.model.script = Script(
        [
            Step("First.", (called(under, "stage", name="reviewing"),)),
            Step("Second.", (called(under, "budget"), called(under, "save", message="mine"))),
            Step("Third.", (called(under, "settle", effect="9.9", finding="happened"),)),
            Step("Done."),
        ]
    )
    process = under.start(
        "--budget", "400k", "--budget", "beats=50", env=under.environ(OUTLAST_RUN_MCP="true")
    )
    out, err = (text.decode() for text in process.communicate(timeout=LIMIT_S))
    assert process.returncode == 0, err
    shown = under.shown()
    assert shown["stage"] == "reviewing", err + out
    said = _said(world.model.requests()[-1].history)
    assert "400,000 tokens" in said
    assert "has no effect 9.9" in said
    assert len([each for each in shown["saves"] if each["kind"] == "manual"]) == 1
    outward = [each for each in under.effects() if each["args"].get("outward")]
    assert outward == [], json.dumps(outward)


@pytest.mark.parametrize("under", [("codex", None)], indirect=True, ids=["codex"])
def test_codex_names_the_tools_of_a_server_in_its_rollout_as_in_its_hooks(under: Under) -> None:
    world = under.world
    world.model.script = Script([Step("First.", (called(under, "stage", name="reviewing"),)), Step("Done.")])
    process = under.start(env=under.environ(OUTLAST_RUN_MCP="true"))
    process.communicate(timeout=LIMIT_S)
    [path] = (world.home / ".codex/sessions").rglob("rollout-*.jsonl")
    started = [event for line in path.read_bytes().splitlines() for event in CODEX.transcript.parse(line)]
    assert [event.name for event in started if isinstance(event, ToolStart)] == ["mcp__outlast__stage"]
    assert [each["args"]["tool"] for each in under.effects()] == ["mcp__outlast__stage"]


def _said(history: History) -> str:
    return "\n".join(result.text for result in history.results)
