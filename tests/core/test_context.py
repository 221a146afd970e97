"""The rebuilt context: deterministic, within its limit for any input, and what is never cut."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from outlast.core import context
from outlast.core.context import Parts, Result
from outlast.core.values import Contract
from tests.support import sweeps

text = st.text(max_size=60) | st.builds(
    lambda char, count: char * count, st.sampled_from("x\nä🧪"), st.integers(0, 3000)
)
lines = st.lists(text, max_size=30).map(tuple)
PARTS = st.builds(
    Parts,
    contract=st.builds(Contract, text, lines, lines),
    run=st.just("r"),
    task=text,
    beats=st.integers(0, 10**6),
    plan=st.lists(st.tuples(text, st.booleans(), st.booleans()), max_size=30).map(tuple),
    plan_total=st.none() | st.integers(0, 10**6),
    results=st.lists(st.builds(Result, st.integers(0, 99), text, text, text), max_size=20).map(tuple),
    effects_done=lines,
    effects_in_doubt=lines,
    memory=lines,
    files=lines,
    commits=lines,
    failing=lines,
    budget=text,
    stage=text,
)


@settings(max_examples=sweeps.examples(150))
@given(parts=PARTS, tokens_max=st.integers(0, 3000))
def test_it_is_within_its_limit_and_the_same_twice_for_any_input(parts: Parts, tokens_max: int) -> None:
    made = context.render(parts, tokens_max)
    assert context.tokens(made) <= tokens_max
    assert made == context.render(parts, tokens_max)


@settings(max_examples=sweeps.examples(100))
@given(parts=PARTS)
def test_with_room_enough_nothing_is_left_out(parts: Parts) -> None:
    made = context.render(parts, 10**7)
    assert "left out)" not in made or "left out)" in str(parts)
    for line in (
        *parts.contract.checks,
        *parts.effects_in_doubt,
        *parts.memory,
        *parts.failing,
        *parts.effects_done,
    ):
        assert line in made
    assert parts.contract.goal in made


def crowded(**more: Any) -> Parts:
    many = tuple(f"line {number} of something long that fills the room" for number in range(2000))
    fields: dict[str, Any] = {
        "contract": Contract("the goal", ("make test",), ("make lint",)), "run": "r", "task": "1411", "beats": 500,
        "plan": tuple((f"step {number}", number < 500, number == 500) for number in range(1000)), "plan_total": 1000,
        "results": tuple(Result(number, "s", "found it " * 20, "file") for number in range(500)),
        "effects_done": many, "memory": many, "files": many, "commits": many, "budget": "400 tokens left",
        "effects_in_doubt": ("500.1 push: look first",), "failing": ("make test failed with 2",), "stage": "testing",
    }  # fmt: skip
    return Parts(**fields | more)


@pytest.mark.parametrize("tokens_max", [300, 500, 1000, 8000])
@pytest.mark.parametrize(
    "needed",
    [
        "the goal", "make test", "make lint", "500.1 push: look first", "make test failed with 2", "400 tokens left",
        "500 of 1000 beats are done", "[>] step 500",
    ],
)  # fmt: skip
def test_contract_doubts_and_cursor_are_never_cut(tokens_max: int, needed: str) -> None:
    assert needed in context.render(crowded(), tokens_max)


def test_old_results_go_first_and_what_is_left_out_is_said() -> None:
    made = context.render(crowded(), 1500)
    assert "left out)" in made
    results = crowded(memory=(), effects_done=(), files=(), commits=(), plan=())
    made = context.render(results, 2000)
    assert "beat 499" in made
    assert "beat 3 " not in made


def test_one_endless_failing_check_does_not_hide_that_it_failed() -> None:
    made = context.render(crowded(failing=("FAILED " + "x" * 100_000,)), 2000)
    assert "# Failing checks" in made


def test_an_endless_goal_leaves_the_checks_in() -> None:
    made = context.render(crowded(contract=Contract("goal " * 100_000, ("make test",), ("make lint",))), 2000)
    assert "goal goal" in made
    assert "make test" in made
    assert "make lint" in made
