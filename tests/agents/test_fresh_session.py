"""A real agent in a fresh session, with a model that starts over: what the run did outside is not done again."""

import shutil

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

ACTS = ["e1", "e2", "e3"]


def careless(world: AgentWorld) -> Script:
    """Its model does one thing after the other, by the calls that its own conversation holds."""
    local = bash("[ -e begun ] || { touch begun; sleep 300; }")
    steps = [Step(f"Now {name}.", (world.posting(name),)) for name in ACTS]
    return Script([*steps, Step("Look.", (local,)), Step("Done.")])


def killed_when_all_is_done(under: Under) -> None:
    world = under.world
    world.model.script = careless(world)
    process = under.start()
    wait_for((world.work / "begun").exists, what="the last call", limit_s=60)
    under.kill_all(process)
    assert performed(under) == ACTS


def performed(under: Under) -> list[str]:
    return [act.name for act in under.world.performed()]


@pytest.mark.parametrize("under", [("gemini", None)], indirect=True, ids=["gemini"])
def test_a_session_that_cannot_be_gone_on_with_is_replaced_and_nothing_confirmed_is_repeated(
    under: Under,
) -> None:
    killed_when_all_is_done(under)
    for path in under.world.home.glob(".gemini/tmp/*/chats"):
        shutil.rmtree(path)
    copies = list(under.world.home.glob(".local/state/outlast/runs/*/agent/*.jsonl"))
    assert copies, "there was a session"
    for path in copies:
        path.unlink()
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert performed(under) == ACTS


@pytest.mark.parametrize("under", [("claude", "2.1.325")], indirect=True, ids=["claude"])
def test_another_agent_that_goes_on_repeats_nothing_confirmed(under: Under) -> None:
    killed_when_all_is_done(under)
    other = Under(under.world, "codex")
    done = other.call("resume", "t", "--agent", "codex", "--", *other.words())
    assert done.returncode == 0, done.stderr
    assert performed(under) == ACTS
