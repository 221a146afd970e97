"""A person in the loop, killed at every crash point between ask, park, answer, restart, intent, act and outcome.

The witness says what was done. Nothing is done before a person approved it, an approval lets one call pass once, and what a
person rejected is never done, whatever is killed and however often."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from outlast.core import events as ev, questions
from outlast.store.protocol import RunFilter
from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed
from tests.support.sweeps import Sweep

SHARDS = 4
ROUNDS_MAX = 40
APPROVED = ["deploy-2", "send-2", "wire-2"]
RANDOM_KILLS = 30
RANDOM_KILLS_SAMPLED = 6


def open_questions(world: CrashWorld) -> questions.Questions:
    return questions.open_among(world.summary().state.questions) if world.runs() else ()


def check_unapproved_is_undone(world: CrashWorld) -> None:
    """What waits for its approval has not been done; neither has what was rejected."""
    done = {item.identity for item in world.performed()}
    waiting = {
        f"{each.text.partition('(')[0]}-2" for each in open_questions(world) if each.kind == "approval"
    }
    assert not done & (waiting | {"wipe-2"}), f"{done} done, {waiting} unanswered\n{world.story}"


def carry(world: CrashWorld, blows: dict[int, tuple[str, int]] | None = None) -> None:
    """Start the program and answer what it asks, in turn, until it is done. `blows`: in which round whom to kill where."""
    for number in range(ROUNDS_MAX):
        who, nth = (blows or {}).get(number, ("", 0))
        code = world.run(script="person", kill_at=nth if who == "program" else None)
        check_unapproved_is_undone(world)
        if code == 0:
            return
        assert killed(code) or code == 3, world.story
        world.settle_by_the_truth()
        if not killed(code) and open_questions(world):
            world.run(script="answer", kill_at=nth if who == "person" else None)
            check_unapproved_is_undone(world)
    raise AssertionError(f"not done after {ROUNDS_MAX} rounds\n{world.story}")


def check(world: CrashWorld) -> None:
    """At its end: each approved act once, the rejected one never, each approval used once and by an intent after it."""
    world.check_effects(APPROVED)
    assert {answer for (answer,) in world.noted("answer")} == {"v2"}
    assert {tuple(words) for words in world.noted("rejected")} == {("too", "dangerous")}, world.story
    approved: set[str] = set()
    used: Counter[str] = Counter()
    with world.reading() as store:
        for summary in store.list(RunFilter()):
            assert not summary.state.questions, "nothing is left that could be used"
            for item in store.read(summary.run, after=0).events:
                match item.event:
                    case ev.QuestionAnswered(answer="approved"):
                        approved.add(item.event.id)
                    case ev.EffectIntended():
                        assert item.event.approved in approved, f"{item.event.name} was intended unapproved"
                        used[item.event.approved] += item.event.attempt == 1
                    case _:
                        pass
    assert set(used.values()) == {1}, used


def test_each_question_is_asked_once_and_each_approved_act_is_done_once(world: CrashWorld) -> None:
    carry(world)
    check(world)
    assert Counter(word for (word,) in world.noted("person")) == dict.fromkeys(
        ("which", "deploy", "wire", "send", "wipe"), 1
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("round_number", range(6))
def test_killed_at_any_crash_point_of_any_start(
    round_number: int, shard: int, make_world: MakeWorld, sweep: Sweep
) -> None:
    """The n-th start asks the n-th question, and begins with the act that was approved before."""
    for trial in sweep:
        nth = 1 + shard + SHARDS * (trial - 1)
        with make_world(nth) as world:
            carry(world, {round_number: ("program", nth)})
            check(world)
            died = bool(world.noted("blow"))
        sweep.met(died)


@pytest.mark.parametrize("round_number", range(5))
def test_a_person_who_is_killed_while_answering_answers_again(
    round_number: int, make_world: MakeWorld, sweep: Sweep
) -> None:
    for nth in sweep:
        with make_world(nth) as world:
            carry(world, {round_number: ("person", nth)})
            check(world)
            died = bool(world.noted("blow"))
        sweep.met(died)


def test_killed_again_and_again(make_world: MakeWorld, rng: random.Random, whole: bool) -> None:
    for trial in range(RANDOM_KILLS if whole else RANDOM_KILLS_SAMPLED):
        with make_world(trial) as world:
            blows = {n: (rng.choice(("program", "person")), rng.randint(1, 25)) for n in range(12)}
            carry(world, blows)
            check(world)


@pytest.mark.parametrize("name", ["ask.before", "ask.recorded", "ask.answered", "ask.used"])
def test_every_named_point_of_asking_is_met_and_survived(name: str, make_world: MakeWorld) -> None:
    with make_world() as world:
        for _ in range(ROUNDS_MAX):
            if killed(world.run(script="person", blows=(Blow(name=name),))):
                break
            world.run(script="answer")
        else:
            raise AssertionError(f"{name} was not met")
        carry(world)
        check(world)
