"""Quota walls as decisions: what is one, how long it is waited for, how often, and who comes back when."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as some

from outlast.core import events as ev, restarts, state as fold
from outlast.core.restarts import Again, Limits, Park, Past, Stop
from outlast.core.state import RunState
from outlast.core.values import Contract
from tests.core.samples import AT, payload

MINUTE = timedelta(minutes=1)


def walled(*, progress: bool = False) -> list[ev.AnyEvent]:
    """One more attempt that ended at a wall."""
    started = ev.AttemptStarted(at=AT, epoch=1, launch=payload('{"argv":["a"]}'))
    end = ev.AttemptEnded(at=AT, epoch=1, status="interrupted", cause="quota", progress=progress)
    return [started, end, ev.Parked(at=AT, until=AT)]


def past(*events: ev.AnyEvent) -> Past:
    opened = ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract())
    return fold.fold(RunState(), [opened, *events]).past


# -- how often -----------------------------------------------------------------------------------------------------


def test_so_many_walls_without_progress_are_waited_for_and_the_next_needs_a_person() -> None:
    limits = Limits(parks_max=3)
    met = walled() * 3
    assert restarts.after("quota", past(*met), limits, jitter=0.0) == Park("quota")
    stop = restarts.after("quota", past(*met, *walled()), limits, jitter=0.0)
    assert stop == Stop("failed", "quota", "a limit was met 4 times without progress in between")
    assert restarts.limit_reached("quota", past(*met, *walled()), limits) == stop, "also for who comes later"
    assert restarts.after("quota", past(*walled()), Limits(parks_max=0), jitter=0.0) == Stop(
        "failed", "quota", "a limit was met"
    )


def test_progress_and_a_persons_word_begin_the_count_anew() -> None:
    assert past(*walled() * 4).parks == 4
    assert past(*walled() * 4, *walled(progress=True)).parks == 1
    worked = ev.AttemptEnded(at=AT, epoch=1, status="interrupted", cause="crash", progress=True)
    assert past(*walled() * 4, walled()[0], worked).parks == 0
    resume = ev.Requested(at=AT, id=0, by="someone", what="resume")
    assert past(*walled() * 4, resume).parks == 0


def test_who_only_waits_at_the_wall_of_another_is_not_counted() -> None:
    assert past(*walled(), ev.Parked(at=AT, until=AT), ev.Parked(at=AT, until=AT)).parks == 1


def test_a_wall_is_no_attempt_that_came_to_nothing() -> None:
    found = past(*walled() * 5)
    assert (found.fruitless, found.attempts) == (0, 5)
    assert isinstance(
        restarts.after("crash", found.after("crash", progress=False), Limits(), jitter=0.5), Again
    )


# -- what is one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset_s", "fruitless", "progress", "cause", "known"),
    [
        (None, 0, False, "network", False),
        (None, 1, False, "network", False),
        (None, 2, False, "quota", False),
        (None, 9, True, "network", False),
        (20, 0, False, "network", True),
        (20, 2, False, "quota", False),
        (119, 0, False, "network", True),
        (120, 0, True, "quota", True),
        (3600, 0, False, "quota", True),
    ],
)
def test_a_rate_limit_is_tried_again_a_few_times_and_one_that_stands_for_minutes_is_a_wall(
    reset_s: int | None, fruitless: int, progress: bool, cause: str, known: bool
) -> None:
    reset = None if reset_s is None else AT + timedelta(seconds=reset_s)
    found = restarts.rate_limited(reset, AT, Past(fruitless=fruitless), progress=progress)
    assert found == (cause, reset if known else None)


# -- how long ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parks", "minutes"), [(0, 30), (1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 480), (10**9, 480)]
)
def test_without_a_reset_the_wait_is_half_an_hour_and_doubles_to_eight(parks: int, minutes: int) -> None:
    assert restarts.reset_time(None, AT, parks) == (AT + minutes * MINUTE, False)
    assert restarts.reset_time(AT - MINUTE, AT, parks) == (AT + minutes * MINUTE, False), (
        "one that has passed"
    )


def test_a_reset_that_was_named_is_taken() -> None:
    assert restarts.reset_time(AT + MINUTE, AT, 5) == (AT + MINUTE, True)


@given(some.text(max_size=40), some.integers(0, 10**6), some.integers(0, 500))
def test_runs_wake_after_the_reset_within_a_minute_and_then_one_after_the_other(
    run: str, seconds: int, place: int
) -> None:
    reset = AT + timedelta(seconds=seconds)
    first = restarts.wake_at(reset, run, 0, 20.0)
    assert timedelta() <= first - reset <= MINUTE
    assert restarts.wake_at(reset, run, 0, 20.0) == first
    assert restarts.wake_at(reset, run, place, 20.0) - first == timedelta(seconds=20 * place)


def test_not_all_the_world_wakes_in_the_same_second() -> None:
    moments = {restarts.wake_at(AT, f"run-{number}", 0, 20.0) for number in range(100)}
    assert len(moments) > 90
