"""The evaluation is worth as much as its tasks are different."""

from collections import Counter
from pathlib import Path

import pytest

from outlast.chaos.eval.trial import Bench
from outlast.chaos.tasks.catalog import TASKS
from outlast.chaos.tasks.plain import LONG_PLAN_BEATS


def test_there_are_thirty_different_tasks_and_a_long_one() -> None:
    assert len(TASKS) >= 30
    assert LONG_PLAN_BEATS >= 40
    assert len({(task.script.body, str(task.faults)) for task in TASKS.values()}) == len(TASKS)
    assert len({task.about for task in TASKS.values()}) == len(TASKS)


def test_a_quarter_of_the_tasks_is_driven_and_some_are_async() -> None:
    styles = Counter(task.style for task in TASKS.values())
    assert styles["drive"] + styles["async drive"] >= len(TASKS) / 4
    assert styles["async"] >= 3
    assert styles["async drive"] >= 2


@pytest.mark.slow
def test_a_third_of_the_effects_dedupes_a_third_is_probed_a_third_is_neither(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        twins = [bench.reference(task) for task in TASKS]
    finally:
        bench.close()
    classes = Counter(effect[0] for twin in twins for effect in twin.state["effects"].values())
    assert classes.keys() == {"keyed", "probed", "blind"}
    assert all(0.3 <= count / classes.total() <= 0.37 for count in classes.values()), classes
