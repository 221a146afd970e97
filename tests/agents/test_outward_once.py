"""Killed in a call that reaches outside, an agent does it once under outlast, by the external witness.

The model of these tests makes the lost call again: verbatim, with other flags, or with other words in the body.
"""

import os
import signal

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, Script, Step, Usage, repeating
from tests.support.processes import wait_for


def hanging(world: AgentWorld) -> Call:
    """A call that is done to the world at once, and whose program gets no answer: nobody can know that it happened."""
    world.inside(lambda: world.witness.fault("late_reply"))
    return world.posting("comment", body="hello")


def again(world: AgentWorld, how: str) -> Call:
    match how:
        case "verbatim":
            return world.posting("comment", body="hello")
        case "flags":
            return world.posting("comment", body="hello", flags="--retry 2 -v")
        case _:
            return world.posting("comment", body="the same in other words")


def test_an_agent_ends_well_and_every_call_is_on_record(under: Under) -> None:
    world = under.world
    world.model.script = Script(
        [Step("I say it.", (world.posting("comment", body="hello"),)), Step("It is said.")]
    )
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert [act.name for act in world.performed()] == ["comment"]
    shown = under.shown()
    assert shown["status"] == "done"
    assert shown["beats"] == 2, shown
    effects = under.effects()
    assert [(each["state"], each["name"].split(":")[0]) for each in effects] == [
        ("confirmed", "POST 127.0.0.1")
    ]


@pytest.mark.parametrize("how", ["verbatim", "flags", "words"])
def test_killed_in_a_call_it_does_not_do_it_again(under: Under, how: str) -> None:
    world = under.world
    call = hanging(world)
    world.model.script = Script(repeating(call, again(world, how)))
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="the first comment", limit_s=60)
    under.kill_all(process)
    done = under.run()
    assert [act.name for act in world.performed()] == ["comment"], done.stderr
    assert done.returncode == 3, done.stderr
    assert "in doubt" in done.stderr
    assert under.shown()["status"] == "in_doubt"


def test_killed_after_a_call_and_before_its_model_was_told_it_does_not_do_it_again(
    under: Under,
) -> None:
    killed_before_it_was_told(under)


@pytest.mark.real_agent
def test_killed_when_its_beat_has_ended_and_it_was_not_told_it_does_not_do_it_again(
    world: AgentWorld,
) -> None:
    """aider says nothing of its calls, and its beat ends with the answer that made the call."""
    killed_before_it_was_told(Under(world, "aider"), beats=1)


def killed_before_it_was_told(under: Under, beats: int = 0) -> None:
    world = under.world
    call = world.posting("comment", body="hello", flags="-f", then="sleep 1000")
    world.model.script = Script(repeating(call, again(world, "flags")))
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="the comment", limit_s=60)

    def is_on_record() -> bool:
        shown = [each["state"] for each in under.effects()]
        return shown == ["confirmed"] and under.shown()["beats"] >= beats

    wait_for(is_on_record, what="that it happened is on record", limit_s=60)
    under.kill_all(process)
    done = under.run()
    assert [act.name for act in world.performed()] == ["comment"], done.stderr


@pytest.mark.parametrize("whom", ["agent INT", "agent TERM", "outlast TERM"])
def test_stopped_in_a_call_its_dying_words_are_not_believed(under: Under, whom: str) -> None:
    """Some agents say of the call that they were stopped in that it was rejected, or failed. It was not."""
    world = under.world
    call = hanging(world)
    world.model.script = Script(repeating(call, again(world, "words")))
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="the first comment", limit_s=60)
    who, name = whom.split()
    pid = process.pid if who == "outlast" else under.agent(process)
    os.kill(pid, signal.Signals[f"SIG{name}"])
    process.wait(timeout=120)
    if who == "outlast":
        under.run()
    assert [act.name for act in world.performed()] == ["comment"], under.effects()
    assert under.shown()["status"] == "in_doubt", [
        (each["settled_by"], each["result"]) for each in under.effects()
    ]


def test_what_a_response_cost_is_counted_once_also_when_it_was_cut_off(under: Under) -> None:
    """The model's own log says what was answered; every answer that reached the agent is in the sum once."""
    world = under.world
    call = world.posting("comment", body="hello", then="sleep 300")
    usage = Usage(input=1000, cache_read=20, cache_write=300, output=4)
    world.model.script = Script(
        [Step("Now.", (call,), usage), Step("Done.", (), usage), Step("Done.", (), usage)]
    )
    process = under.start()
    wait_for(lambda: bool(world.performed()), what="the first comment", limit_s=60)
    under.kill_all(process)
    under.run()
    spent, paid = under.shown()["budget"]["spent"], len(world.model.paid())
    if (
        under.name == "opencode"
    ):  # it has no transcript that can be followed: of a response that was cut off nobody tells
        paid -= 1
    cached = (
        spent["cache_read"] if under.name != "claude" else 0
    )  # elsewhere it is part of the input that is reported
    assert spent["input"] + cached == 1000 * paid
