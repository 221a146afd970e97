"""What counts as going round in circles, and what begins the count anew."""

import pytest

from outlast.supervisor.agent.stall import BEATS_MAX, STOPPED_AT, Stall


def test_the_same_call_with_the_same_result_is_counted_until_the_files_change() -> None:
    stall = Stall()
    stall.beat("tree 1")
    assert [stall.call("make", "error") for _ in range(3)] == [1, 2, 3]
    stall.beat("tree 1")
    assert stall.call("make", "error") == 4
    assert stall.call("make", "another error") == 1
    stall.beat("tree 2")
    assert stall.call("make", "error") == 1
    stall.beat("tree 1")  # was there before: no progress
    assert stall.call("make", "error") == 2


def test_beats_without_a_new_state_or_a_new_call_are_too_many() -> None:
    stall = Stall()
    stall.call("read a", "x")
    assert not stall.beat("tree")
    told = [stall.beat("tree") for _ in range(BEATS_MAX)]
    assert told == [False] * (BEATS_MAX - 1) + [True]


@pytest.mark.parametrize("new", ["call", "tree"])
def test_reading_what_was_not_read_yet_is_no_standstill(new: str) -> None:
    stall = Stall()
    for n in range(3 * BEATS_MAX):
        stall.call(f"read {n if new == 'call' else 0}", "x")
        assert not stall.beat(f"tree {n if new == 'tree' else 0}")


def test_without_a_workspace_only_repeated_calls_count() -> None:
    stall = Stall()
    assert not any(stall.beat("") for _ in range(3 * BEATS_MAX))
    assert [stall.call("a", "b") for _ in range(STOPPED_AT)][-1] == STOPPED_AT


def test_it_can_be_switched_off() -> None:
    stall = Stall(0)
    assert not any(stall.beat("tree") for _ in range(3 * BEATS_MAX))
    assert {stall.call("a", "b") for _ in range(3 * STOPPED_AT)} == {0}


def test_what_is_remembered_is_bounded() -> None:
    stall = Stall()
    for n in range(25_000):
        stall.call(n, n)
    assert len(stall._calls) + len(stall._same) < 25_000
