"""Each real agent CLI, bare, with no network: one call that does something outside, and an end."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import tools
from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Script, Step, bash, repeating
from tests.support.environment import TIMEOUT_S, skip_or_fail
from tests.support.processes import wait_for

AGENTS = [recipe for recipe in tools.RECIPES if recipe.key != "kimi-cli-1.52.0"]
STEPS = 2
# aider's model has no tools: what it writes is run and found good, and that is the end.
RESPONSES = {"aider": 1}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        made.model.script = Script(
            [Step("I say it.", (made.posting("comment", body="hello"),)), Step("It is said.")]
        )
        yield made


@pytest.mark.parametrize("recipe", AGENTS, ids=lambda recipe: recipe.key)
def test_a_bare_agent_does_what_its_model_says_once_and_ends_well(
    world: AgentWorld, recipe: tools.Recipe
) -> None:
    tool = need(recipe.name, recipe.version)
    assert tool.version == recipe.version
    done = world.run(world.command(recipe.name, "say hello", version=recipe.version))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [(act.name, act.body) for act in world.performed()] == [("comment", "hello")], said
    paid = world.model.paid()
    assert [request.step for request in paid] == list(range(RESPONSES.get(recipe.name, STEPS))), said
    assert all(request.ended == "sent" for request in paid)
    assert any("say hello" in turn.text for turn in paid[0].history.turns)
    if len(paid) == STEPS:
        assert "world.example/comment/1" in paid[1].history.last_text


RESUMABLE = [recipe for recipe in AGENTS if recipe.name not in ("mini-swe-agent", "aider", "qwen")]


@pytest.mark.parametrize("recipe", RESUMABLE, ids=lambda recipe: recipe.key)
def test_a_bare_agent_killed_in_a_call_does_it_twice_if_its_model_repeats_it(
    world: AgentWorld, recipe: tools.Recipe, tmp_path: Path
) -> None:
    """What outlast is for, and the proof that these tests would see it: no CLI stops its own model."""
    first, again = world.posting("comment", body="hello"), world.posting("comment", body="hello again")
    world.model.script = Script(repeating(first, again, before=[Step("First.", (bash("echo one"),))]))
    world.inside(lambda: world.witness.fault("late_reply", match="comment"))
    started, output = world.command(recipe.name, "say hello", version=recipe.version), tmp_path / "output"
    with world.running(started, output) as agent:
        wait_for(lambda: world.performed() or agent.poll() is not None, TIMEOUT_S, what="the call to be made")
    session = world.session_of(started, output.read_text())
    done = world.run(world.command(recipe.name, "go on", version=recipe.version, session=session))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [act.body for act in world.performed()] == ["hello", "hello again"]
    paid = world.model.paid()
    resumed = paid[2].history
    assert resumed.resumed
    assert [request.step for request in paid[:2]] == [0, 1]
    # What a CLI has not yet written of its session is gone with it: this call, and on a quick machine the one before.
    assert resumed.lost or paid[2].step < 2, "it sees the call as lost, or not at all"


def test_the_farewell_release_of_kimi_cli_ends_well_and_does_nothing(world: AgentWorld) -> None:
    done = world.run(world.command("kimi-cli", "say hello", version="1.52.0"))
    assert done.returncode == 0
    assert "no longer maintained" in done.stdout + done.stderr
    assert world.performed() == []
    assert world.model.requests() == []


def test_an_agent_in_the_namespace_reaches_loopback_and_nothing_else(world: AgentWorld) -> None:
    if world.network is None or not world.network.isolated:
        skip_or_fail("needs the right to make a network namespace")
    listed = world.namespaced(["cat", "/proc/net/dev"])
    names = [line.split(":")[0].strip() for line in _stdout(listed).splitlines() if ":" in line]
    assert names == ["lo"]
    assert _stdout(world.namespaced(["cat", "/proc/net/route"])).count("\n") == 1


def _stdout(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
