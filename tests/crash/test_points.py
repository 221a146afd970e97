"""SIGKILL at every named crash point: the 1st, the 2nd, … until a run meets none; and again during the resume."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from outlast import faults
from outlast.runs.inbox import SettleArgs
from outlast.store.protocol import RunFilter
from tests.crash.agent import LEFT, Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed
from tests.support.sweeps import Sweep

SHARDS = 4
SECOND_KILLS = 40
SECOND_KILLS_SAMPLED = 8
Twins = Callable[[str], dict[str, Any]]

EFFECTS = """comment-1 receipt-1 ticket-3 mail-4 pay-5 order-5 book-5 label-5 upload-6 part-one-1 part-two-2 rest-1""".split()

# These are met only in commands on a resting run, or with a workspace; tests/cli, test_saves and tests/workspace kill there.
# A person is asked in test_person.py.
_GROUPS = ("ask", "fork", "export", "import", "gc", "save", "restore", "consolidate", "apply", "undo", "rm")
ELSEWHERE = {name for name in faults.POINTS if name.split(".")[0] in _GROUPS}


def check(world: CrashWorld, twins: Twins) -> None:
    world.check_effects(EFFECTS)
    world.check_equal(twins("full"))


def test_the_uninterrupted_run_does_each_effect_once(world: CrashWorld, twins: Twins) -> None:
    assert world.run() == 0, world.story
    check(world, twins)
    assert (world.work / "checks.log").read_text() == "ran\n"
    with world.reading() as store:
        for summary in store.list(RunFilter()):
            state = summary.state
            assert (state.status, state.open_beat, state.effects_open, state.attempt) == (
                "done",
                None,
                (),
                None,
            )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_any_crash_point_the_run_ends_like_its_twin(
    shard: int, make_world: MakeWorld, twins: Twins, sweep: Sweep
) -> None:
    for trial in sweep:
        nth = 1 + shard + SHARDS * (trial - 1)
        with make_world(nth) as world:
            died = killed(world.run(kill_at=nth))
            then = world.recorded()
            if died:
                world.run_to_end()
                world.check_nothing_repeated(then)
            check(world, twins)
        sweep.met(died)


def test_killed_again_while_resuming_the_run_ends_like_its_twin(
    make_world: MakeWorld, twins: Twins, rng: random.Random, whole: bool
) -> None:
    with make_world("count") as world:
        world.run()
        total = len(world.noted("point"))
    for trial in range(SECOND_KILLS if whole else SECOND_KILLS_SAMPLED):
        first, second = rng.randint(1, total), rng.randint(1, 25)
        with make_world(trial) as world:
            assert killed(world.run(kill_at=first)), world.story
            world.run(kill_at=second)
            then = world.recorded()
            world.settle_by_the_truth()
            world.run_to_end()
            world.check_nothing_repeated(then)
            check(world, twins)


def test_killed_at_every_start_it_still_gets_to_its_end(make_world: MakeWorld, twins: Twins) -> None:
    """However often: every attempt is killed a little later than the one before was begun."""
    with make_world() as world:
        for step in itertools.count(12):
            code = world.run(kill_at=step)
            if code == 0:
                break
            if not killed(code):
                assert world.settle_by_the_truth(), world.story
        check(world, twins)


def test_killed_while_leaving_early_it_resumes(make_world: MakeWorld, twins: Twins) -> None:
    with make_world("count") as world:
        assert world.run(leave_at="mail") == LEFT, world.story
        names = [name for (name,) in world.noted("point")]
        assert world.events()[-1].cause == "operator"
        world.run_to_end()
        check(world, twins)
    for nth in range(names.index("attempt.before_end"), len(names) + 1):
        with make_world(nth) as world:
            assert killed(world.run(kill_at=nth, leave_at="mail")), world.story
            then = world.recorded()
            world.run_to_end()
            world.check_nothing_repeated(then)
            check(world, twins)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(set(faults.POINTS) - ELSEWHERE))
def test_every_named_point_is_met_and_survived(name: str, world: CrashWorld, twins: Twins) -> None:
    """Some are met only by a run that leaves, others only by one that resumes with an effect in doubt."""
    before = {
        "attempt.before_end": {"leave_at": "mail"},
        "attempt.ended": {"leave_at": "mail"},
    }.get(name, {})
    code = world.run(blows=(Blow(name=name),), **before)
    assert killed(code), f"{name} was not met\n{world.story}"
    then = world.recorded()
    world.run_to_end()
    world.check_nothing_repeated(then)
    check(world, twins)


def test_the_checks_run_again_when_killed_in_them(make_world: MakeWorld, twins: Twins) -> None:
    children = 2  # which are finished before, without checks
    for name, runs in (("checks.before", 1), ("checks.passed", 2), ("run.finished", 1)):
        with make_world(name) as world:
            assert killed(world.run(blows=(Blow(children + 1, name),)))
            beats = len(world.noted("beat"))
            world.run_to_end()
            assert (world.work / "checks.log").read_text() == "ran\n" * runs
            assert len(world.noted("beat")) == beats
            check(world, twins)


def test_the_checks_run_again_when_killed_by_one_of_them(world: CrashWorld, twins: Twins) -> None:
    check_that_kills = "echo ran >> checks.log; test -e pass || kill -9 $PPID"
    assert killed(world.run(check=check_that_kills))
    beats = len(world.noted("beat"))
    (world.work / "pass").touch()
    world.run_to_end(check=check_that_kills)
    assert (world.work / "checks.log").read_text() == "ran\nran\n"
    assert len(world.noted("beat")) == beats
    check(world, twins)


def test_a_done_run_started_again_has_no_beats(world: CrashWorld, twins: Twins) -> None:
    assert world.run() == 0
    then = len(world.notes)
    assert world.run() == 0
    assert {note.kind for note in world.notes[then:]} <= {"point"}
    check(world, twins)


def test_the_result_given_to_finish_survives_a_kill_before_the_run_is_finished(
    make_world: MakeWorld, twins: Twins, sweep: Sweep
) -> None:
    for nth in sweep:
        with make_world(nth) as world:
            died = killed(world.run(kill_at=nth, script="finish"))
            world.run_to_end(script="finish")
            world.check_equal(twins("finish"))
        sweep.met(died)


def test_a_settlement_put_into_the_inbox_is_taken_in_by_the_next_start(make_world: MakeWorld) -> None:
    for point, finding, performed in (("act.intended", "did_not", 1), ("act.performed", "happened", 0)):
        with make_world(point) as world:
            assert killed(world.run(script="mail", blows=(Blow(name=point),)))
            assert world.run(script="mail") == 3
            with world.reading() as store:
                (summary,) = store.list(RunFilter())
                result = msgspec.Raw(b'{"url": "as found", "n": 1}')
                args = msgspec.json.encode(SettleArgs("1.1", finding, result))
                store.inbox.put(summary.run, by="test", what="settle", args=args)
            then = len(world.notes)
            assert world.run(script="mail") == 0, world.story
            assert len(world.noted("perform", after=then)) == performed
            world.check_effects(["mail-1"])
            with world.reading() as store:
                assert store.inbox.pending(summary.run) == []
