"""An agent learns what became of a call that nobody knew the outcome of, and settles it itself where it can look."""

import re

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


HOOKED = [
    ("claude", "2.1.325"), ("codex", None), ("gemini", None), ("kimi-code", None), ("kimi-cli", None), ("opencode", None),
]  # fmt: skip


@pytest.mark.parametrize("under", HOOKED, indirect=True, ids=[name for name, _ in HOOKED])
def test_another_body_to_one_address_passes_when_the_agent_names_it(under: Under) -> None:
    """Its model makes the call in other words, which are held, says that it is another call, and makes it again."""
    world = under.world
    world.inside(lambda: world.witness.fault("late_reply"))
    other = world.posting("comment", body="something else")

    def goes_on(history: History, plays: int) -> Step:
        said = "\n".join(
            [*(turn.text for turn in history.turns), *(result.text for result in history.results)]
        )
        words = re.search(r"say so with `([^`]+ --another)`", said)
        if not history.responses:
            return Step("Now.", (world.posting("comment", body="hello"),))
        if words is None:
            return Step("And this.", (other,)) if history.responses < 4 else Step("It is held.")
        if "is another one" not in said:
            return Step("It is another one.", (bash(words[1]),))
        if len(world.performed()) < 2:
            return Step("Once more.", (other,))
        settle = words[1].replace("--another", "--happened")
        return Step("Look.", (bash(settle),)) if "1.1 happened" not in said else Step("Done.")

    world.model.script = Script(goes_on)
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="the first comment", limit_s=60)
    under.kill_all(process)
    done = under.run()
    assert [act.body for act in world.performed()] == ["hello", "something else"], done.stderr
    assert done.returncode == 0, done.stderr
