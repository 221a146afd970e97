"""An agent learns what became of a call that nobody knew the outcome of, and settles it itself where it can look."""

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, Entry, History, Script, Step, bash
from tests.support.processes import wait_for

AGENTS = [("claude", "2.1.325"), ("codex", None), ("opencode", None)]


@pytest.fixture(params=AGENTS, ids=lambda agent: agent[0])
def under(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def cut_off(under: Under, *steps: Entry) -> None:
    """Killed in a call before it reached outside; `steps` is what its model says from then on."""
    call = held(under.world)
    under.world.model.script = Script([Step("Now.", (call,)), *steps])
    process = under.start()
    wait_for((under.world.work / "begun").exists, what="the call", limit_s=60)
    under.kill_all(process)


def held(world: AgentWorld) -> Call:
    posting = world.posting("comment", body="hello").input["command"]
    return bash(f"if [ ! -e begun ]; then touch begun; sleep 300; fi; {posting}")


def test_what_a_person_settled_is_told_and_what_did_not_happen_is_done(under: Under) -> None:
    world = under.world
    cut_off(under, Step("I leave it."))
    assert under.run().returncode == 3
    [doubt] = [effect for effect in under.effects() if effect["state"] == "in_doubt"]
    assert under.call("settle", "t", doubt["id"], "--did-not").returncode == 0

    def goes_on(history: History, plays: int) -> Step:
        said = "\n".join(turn.text for turn in history.turns if turn.role == "user")
        is_told = any(
            "/act/blind/comment" in line and "it did not happen" in line for line in said.splitlines()
        )
        if is_told and history.responses == 1:
            return Step("Then I do it.", (held(world),))
        return Step("Done.")

    world.model.script = Script(goes_on)
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert [act.name for act in world.performed()] == ["comment"]


@pytest.mark.parametrize("under", [("codex", None)], indirect=True, ids=["codex"])
def test_the_command_to_settle_with_works_in_the_agents_own_shell(under: Under) -> None:
    """Also in a login shell, which has a PATH of its own."""
    world = under.world
    cut_off(under, Step("I leave it."))

    def looks(history: History, plays: int) -> Step:
        said = "\n".join(
            [*(turn.text for turn in history.turns), *(result.text for result in history.results)]
        )
        _, _, behind = said.partition("Then say what you found: `")
        words = behind.partition(" --happened`")[0]
        if history.responses == 1 and words:
            return Step("It did not happen.", (bash(f"env -i HOME=$HOME sh -lc '{words} --did-not'"),))
        return Step("Done.")

    world.model.script = Script(looks)
    done = under.run()
    [effect] = [effect for effect in under.effects() if "comment" in effect["name"]]
    assert effect["state"] == "failed", (effect, done.stderr)
    assert done.returncode == 0, done.stderr
    assert world.performed() == []
