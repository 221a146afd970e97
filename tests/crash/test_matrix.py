"""The crash matrix in docs/design: its rows have tests, by name; those about the core are listed here too."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from outlast import faults

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT = (ROOT / "docs/design/crash-matrix.md").read_text(encoding="utf-8")
POINT = "test_points.py::test_every_named_point_is_met_and_survived"

MATRIX: dict[str, tuple[str, ...]] = {
    "after the claim, before the attempt's event": (f"{POINT}[store.claimed]",),
    "in the plan callable; before the decision is recorded": (
        f"{POINT}[plan.made]",
        f"{POINT}[decide.answered]",
    ),
    "after the decision, before the intent": (f"{POINT}[decide.recorded]", f"{POINT}[act.before_intent]"),
    "after the intent, before, in or after the act, before the outcome; fn raised or timed out": (
        f"{POINT}[act.intended]",
        f"{POINT}[act.performed]",
        f"{POINT}[act.doubted]",
        "test_zombies.py::test_stopped_inside_an_act_a_zombie_is_killed_by_the_taker",
        "test_rules.py::test_a_blind_act_without_an_outcome_is_never_repeated_unasked",
        "test_rules.py::test_a_did_not_does_not_count_while_the_act_may_be_under_way",
    ),
    "after a probe's answer, before it is recorded": (
        f"{POINT}[probe.answered]",
        "test_rules.py::test_a_probe_killed_before_its_answer_is_recorded_is_asked_again",
    ),
    'after "did not", during the reissue': (
        f"{POINT}[settle.recorded]",
        f"{POINT}[reissue.before]",
        "test_rules.py::test_killed_after_a_did_not_while_reissuing_the_effect_is_in_doubt_again_under_the_same_key",
    ),
    "after the outcome, before the beat's end": (f"{POINT}[act.confirmed]", f"{POINT}[beat.before_done]"),
    "blob written, event not": (
        f"{POINT}[blob.written]",
        "test_rules.py::test_an_orphaned_blob_is_swept_when_it_is_old",
    ),
    "child done, parent's beat not": (f"{POINT}[child.finished]", f"{POINT}[child.opened]"),
    "last beat done, before or in the checks": (
        "test_points.py::test_the_checks_run_again_when_killed_in_them",
        "test_points.py::test_the_checks_run_again_when_killed_by_one_of_them",
    ),
    "in migration": (f"{POINT}[migrate.before_commit]",),
    "while resuming, again": (
        "test_points.py::test_killed_again_while_resuming_the_run_ends_like_its_twin",
        "test_points.py::test_killed_at_every_start_it_still_gets_to_its_end",
    ),
    "host, power": (
        "test_powercut.py::test_cut_at_any_operation_every_acknowledged_append_is_there",
        "test_powercut.py::test_cut_after_each_acknowledgement_what_was_acknowledged_is_there",
        "test_powercut.py::test_cut_at_any_crash_point_what_was_acknowledged_is_there",
    ),
}


@pytest.mark.parametrize("row", MATRIX)
def test_the_row_has_its_tests(row: str) -> None:
    for test in MATRIX[row]:
        file, _, name = test.partition("::")
        function, _, point = name.partition("[")
        tree = ast.parse((HERE / file).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
        assert not point or point.removesuffix("]") in faults.POINTS, test


def _rows() -> dict[str, str]:
    """The rows of the document: what was killed where, and the whole line."""
    lines = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


@pytest.mark.parametrize("row", MATRIX)
def test_the_row_is_in_the_document_with_its_tests(row: str) -> None:
    line = _rows()[row]
    for test in MATRIX[row]:
        name = test.partition("::")[2]
        function, _, point = name.partition("[")
        assert (point.removesuffix("]") or function) in line, test


def test_every_test_that_the_document_names_is_there() -> None:
    file, missing = "", []
    for named, function in re.findall(r"`((?:[\w/]+\.py|…))::(\w+)", DOCUMENT):
        file = file if named == "…" else named
        path = ROOT / file if "/" in file else HERE / file
        if not re.search(rf"^(?:async )?def {function}\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            missing.append(f"{file}::{function}")
    assert missing == []


def test_every_point_that_the_document_names_is_there() -> None:
    named = re.findall(r"\bpoints? (`[\w.]+`(?:, `[\w.]+`)*)", DOCUMENT)
    points = [point for names in named for point in re.findall(r"`([\w.]+)`", names)]
    assert points
    assert [point for point in points if point not in faults.POINTS] == []
