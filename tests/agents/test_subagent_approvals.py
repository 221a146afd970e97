"""Calls of sub-agents that wait for a person: none before the approval, exactly one after, whoever makes it again."""

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Call, History, Script, Step, bash
from tests.agents.test_approvals import WAITS, answers, comment, ends, made, open_ids, told, waits
from tests.support.processes import wait_for

pytestmark = pytest.mark.slow
TOOL = {
    "claude": ("Agent", "general-purpose"),
    "opencode": ("task", "general"),
    "kimi-code": ("Agent", "coder"),
}
AGENTS = [("claude", "2.1.325"), ("opencode", None), ("kimi-code", None)]


def delegate(under: Under, background: bool = False) -> Call:
    tool, kind = TOOL[under.name]
    given: dict[str, object] = {
        "description": "a part",
        "prompt": "SUBTASK: do the part",
        "subagent_type": kind,
    }
    if tool != "task":
        given["run_in_background"] = background
    return Call(tool, given)


def by_its_sub_agent(under: Under, call: Call, then: Call, *beside: Call, background: bool = False) -> Script:
    """A model whose sub-agent makes a call and ends when it waits. Told that it is approved, the agent itself asks for `then`."""

    def says(history: History, plays: int) -> Step:
        if "SUBTASK" in history.prompt:
            return Step("Done.") if history.responses else Step("I do it.", (call,))
        if not history.responses:
            return Step("I delegate.", (delegate(under, background), *beside))
        if "make this call now" in history.last_text and "Once more" not in str(history.turns):
            return Step("Once more.", (then,))
        return Step("Done.")

    return Script(says)


@pytest.mark.parametrize("under", AGENTS, indirect=True, ids=[name for name, _ in AGENTS])
@pytest.mark.parametrize("again", ["itself", "by another sub-agent"])
def test_a_call_of_a_sub_agent_waits_and_is_made_once_when_it_is_approved(under: Under, again: str) -> None:
    call = comment(under.world)
    then = call if again == "itself" else delegate(under)
    under.world.model.script = by_its_sub_agent(under, call, then)
    waits(under, *WAITS)
    assert made(under) == []
    answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]
    assert open_ids(under) == []


@pytest.mark.parametrize("under", AGENTS[:1], indirect=True, ids=["claude"])
def test_a_call_of_a_sub_agent_in_the_background_waits(under: Under) -> None:
    call = comment(under.world)
    under.world.model.script = by_its_sub_agent(under, call, call, background=True)
    waits(under, *WAITS)
    assert made(under) == []
    answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]


@pytest.mark.parametrize("under", AGENTS[:1], indirect=True, ids=["claude"])
def test_rejected_the_agent_hears_why_its_sub_agents_call_was_not_made(under: Under) -> None:
    call = comment(under.world)
    under.world.model.script = by_its_sub_agent(under, call, call)
    waits(under, *WAITS)
    answers(under, "reject", "--why", "not on a Friday")
    ends(under)
    assert made(under) == []
    assert "not on a Friday" in told(under.world.model.requests()[-1].history)


@pytest.mark.parametrize("under", AGENTS[:1], indirect=True, ids=["claude"])
def test_a_call_put_aside_and_one_of_a_sub_agent_beside_it_are_each_made_once(under: Under) -> None:
    """The agent ends with its own call put aside; of its sub-agent's it hears by the prompt, or makes it anew."""
    world = under.world
    second = world.posting("second")

    def says(history: History, plays: int) -> Step:
        if "SUBTASK" in history.prompt:
            return Step("Done.") if history.responses else Step("I do it.", (second,))
        if not history.responses:
            return Step("Both.", (comment(world), delegate(under)))
        is_asked = "make this call now" in history.last_text and "second" not in made(under)
        return Step("And this.", (second,)) if is_asked else Step("Done.")

    world.model.script = Script(says)
    done = under.run(*WAITS)
    assert done.returncode == 3, done.stderr
    assert made(under) == []
    for _ in range(4):
        answers(under, "approve")
        done = under.run()
        if done.returncode != 3:
            break
    assert done.returncode == 0, done.stderr
    assert sorted(made(under)) == ["comment", "second"]


@pytest.mark.parametrize("under", AGENTS[:1], indirect=True, ids=["claude"])
def test_killed_while_a_sub_agents_call_waits_it_goes_on_waiting(under: Under) -> None:
    world = under.world
    held = bash("touch begun; sleep 300")
    call = comment(world)

    def says(history: History, plays: int) -> Step:
        if "SUBTASK" in history.prompt:
            return Step("Else.", (held,)) if history.responses else Step("I do it.", (call,))
        if not history.responses:
            return Step("I delegate.", (delegate(under),))
        return Step("Once more.", (call,)) if "make this call now" in history.last_text else Step("Done.")

    world.model.script = Script(says)
    process = under.start(*WAITS)
    wait_for((world.work / "begun").exists, what="its sub-agent's other work", limit_s=90)
    under.kill_all(process)
    assert made(under) == []
    waits(under)
    answers(under, "approve")
    ends(under)
    assert made(under) == ["comment"]


@pytest.mark.parametrize("under", AGENTS[:1], indirect=True, ids=["claude"])
def test_of_two_sub_agents_that_make_the_same_call_at_once_one_passes_by_one_approval(under: Under) -> None:
    call = comment(under.world)

    def says(history: History, plays: int) -> Step:
        if "SUBTASK" in history.prompt:
            return Step("Done.") if history.responses else Step("I do it.", (call,))
        is_asked = not history.responses or "make this call now" in history.last_text
        return Step("Two.", (delegate(under), delegate(under))) if is_asked else Step("Done.")

    under.world.model.script = Script(says)
    waits(under, *WAITS)
    assert made(under) == []
    assert answers(under, "approve") == ["a1"]
    assert under.run().returncode == 3
    assert made(under) == ["comment"]
    assert open_ids(under) == ["a2"], "the other one asks for itself"
