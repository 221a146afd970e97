"""`outlast run --guard` with a real agent CLI that outlast does not know: its shell's calls are held and answered by shims."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step
from tests.support.processes import wait_for


@pytest.fixture
def qwen(tmp_path: Path) -> Iterator[Under]:
    with AgentWorld(tmp_path / "world", Script([])) as world:
        yield Under(world, "qwen")


def killed(qwen: Under, *names: str) -> None:
    """Its model posts these, and everything is killed when the world has the last one and its program has no answer."""
    world = qwen.world
    world.inside(lambda: world.witness.fault("late_reply", match=names[-1]))
    world.model.script = Script(
        [Step(f"I post {name}.", (world.posting(name, body=name),)) for name in names]
    )
    process = qwen.start("--guard")
    wait_for(lambda: len(world.performed()) == len(names) or None, what="the posts", limit_s=90)
    qwen.kill_all(process)


def test_an_unknown_agent_killed_in_a_call_is_told_and_does_not_make_it_twice(qwen: Under) -> None:
    world = qwen.world
    killed(qwen, "one", "two")
    assert [(each["state"], each["name"][:4]) for each in qwen.effects()] == [
        ("confirmed", "POST"),
        ("in_doubt", "POST"),
    ]
    again = [Step("Anew.", (world.posting(name, body=name),)) for name in ("one", "two", "three")]
    world.model.script = Script([*again, Step("That is all.")])
    before = len(world.model.paid())
    done = qwen.run()  # it stays guarded
    assert done.returncode == 3, done.stderr
    assert [act.name for act in world.performed()] == ["one", "two", "three"]
    told = "\n".join(request.history.last_text for request in world.model.paid()[before:])
    assert "`curl` was not run again" in told
    assert "outlast holds this call" in told
    doubt = next(each for each in qwen.effects() if each["state"] == "in_doubt")
    assert qwen.call("settle", "t", doubt["id"], "--happened").returncode == 0
    paid = len(world.model.paid())
    assert qwen.call("resume", "t").returncode == 0
    assert len(world.model.paid()) == paid, "it had finished: it is not started again"
    assert [act.name for act in world.performed()] == ["one", "two", "three"]
