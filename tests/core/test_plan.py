"""Plans against a naive list of leaves."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from outlast.core import plan
from outlast.core.plan import Step
from outlast.errors import UsageError

names = st.text("abc", min_size=1, max_size=3)
trees = st.recursive(
    st.builds(Step, names),
    lambda inner: st.builds(
        lambda name, steps: Step(name, tuple(steps)), names, st.lists(inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)
plans = st.lists(trees, max_size=4).map(tuple)


def leaves(steps: tuple[Step, ...], path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], str]]:
    """The naive list: every leaf with its path, in order."""
    found = []
    for index, step in enumerate(steps):
        here = (*path, index)
        found += leaves(step.steps, here) if step.steps else [(here, step.name)]
    return found


@given(steps=plans)
def test_walking_from_leaf_to_leaf_meets_every_leaf_once_in_order(steps: tuple[Step, ...]) -> None:
    met = []
    path = plan.first_leaf(steps)
    while path is not None:
        step = plan.step_at(steps, path)
        assert step is not None
        met.append((path, step.name))
        path = plan.next_leaf(steps, path)
    assert met == leaves(steps)
    assert plan.count(steps) == len(met)


@given(steps=plans)
def test_a_walk_meets_every_step_and_its_names_lead_there(steps: tuple[Step, ...]) -> None:
    walked = list(plan.walk(steps))
    assert [(path, step.name) for path, step in walked if not step.steps] == leaves(steps)
    assert [path for path, _ in walked] == sorted(path for path, _ in walked)
    for path, step in walked:
        assert plan.step_at(steps, path) == step
        assert plan.names_to(steps, path)[-1] == step.name
        assert len(plan.names_to(steps, path)) == len(path)


@given(steps=plans.filter(bool), added=plans.filter(bool), data=st.data())
def test_steps_added_after_a_leaf_come_right_after_it_and_leave_the_cursor_alone(
    steps: tuple[Step, ...], added: tuple[Step, ...], data: st.DataObject
) -> None:
    before = leaves(steps)
    index = data.draw(st.integers(0, len(before) - 1))
    path = before[index][0]
    grown = plan.extend(steps, added, path)
    expected = [name for _, name in before[: index + 1]] + [name for _, name in leaves(added)]
    assert [name for _, name in leaves(grown)] == expected + [name for _, name in before[index + 1 :]]
    assert [place for place, _ in leaves(grown)[: index + 1]] == [place for place, _ in before[: index + 1]]


@given(steps=plans, added=plans)
def test_steps_added_at_the_end_come_last(steps: tuple[Step, ...], added: tuple[Step, ...]) -> None:
    grown = plan.extend(steps, added, None)
    assert [name for _, name in leaves(grown)] == [name for _, name in [*leaves(steps), *leaves(added)]]


@pytest.mark.parametrize("path", [(9,), (0, 9), (0, 0, 0, 0)])
def test_a_path_that_leads_nowhere_finds_nothing(path: tuple[int, ...]) -> None:
    steps = plan.parse([("a", ["b"]), "c"])
    assert plan.step_at(steps, path) is None


def spelled(step: Step, how: int) -> Any:
    """A step as people write it, in one of several ways."""
    inner = [spelled(each, how + 1) for each in step.steps]
    if not inner:
        return [step.name, {"step": step.name}, {step.name: None}, step][how % 4]
    return [(step.name, inner), {"step": step.name, "steps": inner}, {step.name: inner}, [step.name, inner]][
        how % 4
    ]


@given(steps=plans, how=st.integers(0, 3))
def test_every_way_to_write_a_plan_means_the_same(steps: tuple[Step, ...], how: int) -> None:
    assert plan.parse([spelled(step, how) for step in steps]) == steps


def test_a_list_of_two_names_is_two_steps() -> None:
    assert [step.name for step in plan.parse(["a", "b"])] == ["a", "b"]
    assert plan.parse([["a", ["b"]]]) == (Step("a", (Step("b"),)),)


@pytest.mark.parametrize(
    "given_", [b"x", "x", 5, [5], [None], [("a", 5)], [("a", "b")], [""], ["  "], {1: []}, [{"step": 3}]]
)
def test_nonsense_is_refused(given_: Any) -> None:
    with pytest.raises(UsageError):
        plan.parse(given_)


def test_a_plan_is_not_deeper_than_its_limit() -> None:
    deep: Any = ["leaf"]
    for level in range(plan.DEPTH_MAX):
        deep = [(f"level {level}", deep)]
    assert plan.count(plan.parse(deep)) == 1
    with pytest.raises(UsageError, match="levels"):
        plan.parse([("one more", deep)])
