"""A wall clock that jumps: it is for display, so nothing is lost or repeated; only the age of a key is asked of it."""

from __future__ import annotations

import signal

import pytest

from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed
from tests.support import processes

DAY_S = 24 * 3600
HELD = 2
EFFECTS = ["plain-1", "plain-2", "plain-3"]


@pytest.mark.parametrize("jump_s", [-2 * DAY_S, -3600, 3600, DAY_S - 60])
def test_a_clock_that_jumps_between_two_beats_changes_nothing(jump_s: int, world: CrashWorld) -> None:
    assert killed(world.run(script="plain", blows=(Blow(1, "beat.done"),)))
    then = world.recorded()
    world.run_to_end(script="plain", clock_s=jump_s)
    world.check_nothing_repeated(then)
    world.check_effects(EFFECTS)


def test_a_key_younger_than_a_day_is_reissued(make_world: MakeWorld) -> None:
    for point in ("act.intended", "act.performed"):
        with make_world(point) as world:
            assert killed(world.run(script="plain", blows=(Blow(1, point),)))
            assert world.run(script="plain", clock_s=DAY_S - 600) == 0, world.story
            world.check_effects(EFFECTS)


@pytest.mark.parametrize("jump_s", [DAY_S + 60, -3600], ids=["a day later", "an hour before it was made"])
def test_a_key_that_may_be_too_old_is_asked_about_and_not_reissued(
    jump_s: int, make_world: MakeWorld
) -> None:
    """The far side may have forgotten it. Of a clock that went backwards nobody knows how old the key is."""
    for point in ("act.intended", "act.performed"):
        with make_world(point) as world:
            assert killed(world.run(script="plain", blows=(Blow(1, point),)))
            then = len(world.notes)
            assert world.run(script="plain", clock_s=jump_s) == 3, world.story
            assert world.noted("error")[-1][0] == "EffectInDoubt"
            assert "its key is too old to be reissued" in " ".join(world.noted("error")[-1])
            assert world.noted("perform", after=then) == []
            assert world.settle_by_the_truth() == 1
            world.run_to_end(script="plain", clock_s=jump_s)
            world.check_effects(EFFECTS)


@pytest.mark.parametrize("jump_s", [-2 * DAY_S, 2 * DAY_S])
def test_a_lease_does_not_look_at_the_wall_clock(jump_s: int, world: CrashWorld) -> None:
    holder = world.start(script="plain", hold="two")
    processes.wait_for(lambda: ("2", "two") in world.noted("beat"), what="the holder to work")
    assert world.run(script="plain", clock_s=jump_s) == HELD, world.story
    holder.signal(signal.SIGTERM)
    assert holder.wait() == 0, world.story
    world.check_effects(EFFECTS)


@pytest.mark.parametrize("jump_s", [-2 * DAY_S, 2 * DAY_S])
def test_a_killed_holder_with_a_wrong_clock_is_claimed_from_at_once(jump_s: int, world: CrashWorld) -> None:
    assert killed(world.run(script="plain", blows=(Blow(1, "beat.done"),), clock_s=jump_s))
    assert world.run(script="plain") == 0, world.story
    world.check_effects(EFFECTS)
