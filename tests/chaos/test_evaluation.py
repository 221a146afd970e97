"""`outlast chaos eval`: outlast passes its bars, the others fail, and the evaluation has teeth."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from outlast import faults
from outlast.chaos.tasks.catalog import TASKS
from tests.chaos.conftest import LIMIT_S, Run
from tests.support.environment import Isolated
from tests.support.processes import running, wait_for

# Not on the way of a run: other commands pass through these, and have crash tests of their own.
ELSEWHERE = (
    "fork.",
    "export.",
    "import.",
    "gc.",
    "resume.",
    "rewind.",
    "apply.",
    "undo.",
    "rm.",
    "ask.",
    "migrate.",
    "store.",
    "supervisor.",
    "save.",
    "restore.",
    "consolidate.",
)
WITH_EFFECTS = ("incident", "comment-on-issues", "wire-money", "open-tickets", "mail-digest", "release")


@pytest.mark.sampled(0)
@pytest.mark.slow
def test_quick_outlast_passes_every_bar_and_the_designs_by_hand_fail(run: Run, seed: int) -> None:
    done = run("chaos", "eval", "--quick", "--json", "--seed", str(seed))
    assert done.code == 0, done
    report = done.json
    assert (report["seed"], report["passed"], report["failures"]) == (seed, True, [])
    assert len(report["tasks"]) == len(TASKS)
    ours = report["designs"]["outlast"]
    assert ours["trials"] == ours["survived"] >= 300
    counted = ("duplicate_effects", "lost_effects", "beats_lost", "decisions_paid_twice")
    assert {name: ours[name] for name in counted} == dict.fromkeys(counted, 0)
    assert ours["in_doubt"] > 0
    for name in ("prompt", "act-then-save"):
        theirs = report["designs"][name]
        assert theirs["survived"] < theirs["trials"]
        assert theirs["duplicate_effects"] > 0
        assert theirs["decisions_paid_twice"] > 0
    assert all(report["designs"][name]["cold_start_ms_median"] > 0 for name in report["designs"])
    missed = [point for point in report["crash_points_elsewhere"] if not point.startswith(ELSEWHERE)]
    assert missed == [], "crash points on the way of a run that no task passes"
    assert set(report["crash_points_met"]) <= set(faults.POINTS)


@pytest.mark.slow
def test_a_task_is_killed_at_every_instant_and_the_table_names_the_seed(
    run: Run, seed: int, whole: bool
) -> None:
    some = () if whole else ("--quick",)
    done = run("chaos", "eval", "--tasks", "page-on-call", "--seed", str(seed), "--jobs", "3", *some)
    missed = [line for line in done.out.splitlines() if line.startswith("FAIL ")]
    # Four kills may all miss the instants at which a design by hand fails.
    assert all("as in life" in line for line in missed), done
    assert done.code == (1 if missed else 0), done
    assert not (whole and missed), done
    assert f"seed {seed}: 1 tasks, 3 designs" in done.out
    found = re.search(r"^outlast +(\d+) +(\d+) \(100 %\)", done.out, re.MULTILINE)
    assert found, done
    assert found[1] == found[2]
    assert int(found[1]) > (60 if whole else 5)


def test_the_trials_leave_nothing_behind(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "trials"
    folder.mkdir()
    done = run("chaos", "eval", "--quick", "--tasks", "decision-chain", "--in", str(folder), "--seed", "1")
    assert "decision-chain" not in done.err, done
    assert list(folder.iterdir()) == []


def test_asked_to_stop_it_removes_its_folders_and_its_processes(state: Isolated, tmp_path: Path) -> None:
    folder = tmp_path / "trials"
    folder.mkdir()
    command = [sys.executable, "-m", "outlast", "chaos", "eval", "--jobs", "2", "--in", str(folder)]
    with running(command, cwd=tmp_path, env=state.variables) as process:
        logs = wait_for(lambda: len(list(folder.glob("*/job*/witness.log"))) == 2, what="two workers")
        assert logs
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT_S) == 128 + signal.SIGTERM
        assert list(folder.iterdir()) == []
        with pytest.raises(ProcessLookupError):
            wait_for(lambda: os.killpg(process.pid, 0), what="the group to end")


def test_designs_that_do_not_fail_make_the_evaluation_fail(run: Run) -> None:
    """File edits alone are safe to repeat, so here nobody can fail, and nothing is proved."""
    done = run("chaos", "eval", "--quick", "--tasks", "edit-files", "--seed", "1")
    assert done.code == 1, done
    assert "FAIL act-then-save: fails as in life" in done.out


def test_replay_shows_one_trial_again(run: Run) -> None:
    ours = run("chaos", "eval", "--replay", "comment-on-issues:outlast:20", "--seed", "1")
    assert ours.code == 0, ours
    assert "attempt 1: killed at " in ours.out
    assert "attempt 2: done" in ours.out
    theirs = run("chaos", "eval", "--replay", "comment-on-issues:act-then-save:8", "--json")
    assert theirs.code == 1, theirs
    assert theirs.json["at"] == ["act.replied"]
    assert theirs.json["duplicates"] == 1


def test_replay_kills_again_during_the_resume(run: Run) -> None:
    done = run("chaos", "eval", "--replay", "incident:outlast:40+10", "--json")
    assert done.code == 0, done
    assert len(done.json["at"]) == 2
    assert done.json["ends"][:2] == ["killed", "killed"]


@pytest.mark.parametrize(
    "words",
    [
        ("--tasks", "nonsense"),
        ("--designs", "hope"),
        ("--replay", "crawl:outlast"),
        ("--replay", "crawl:outlast:-1"),
        ("--jobs", "0"),
        ("--tasks", "0"),
        ("--in", "nowhere"),
    ],
    ids=" ".join,
)
def test_bad_input_is_two_lines_and_exit_2(run: Run, words: tuple[str, ...]) -> None:
    done = run("chaos", "eval", *words)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"error: .+\nhint: .+\n", done.err), done


# Each takes one protection away. The evaluation must see it: these are its teeth.
ALWAYS_PERFORM = """
from outlast.core import recovery
whole = recovery.decide
def decide(record, facts):
    doubtful = record is not None and record.state in ("intended", "in_doubt")
    return recovery.Perform() if doubtful else whole(record, facts)
recovery.decide = decide
"""
TAKE_DOUBT_FOR_DONE = """
from outlast.core import recovery
whole = recovery.decide
def decide(record, facts):
    doubtful = record is not None and record.state in ("intended", "in_doubt")
    return recovery.Replay(record.result) if doubtful else whole(record, facts)
recovery.decide = decide
"""
FORGET_DECISIONS = """
from outlast.core import events, replay
whole = replay.BeatRecord.take
def take(self, event):
    if not isinstance(event, events.Decided):
        whole(self, event)
replay.BeatRecord.take = take
"""


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (ALWAYS_PERFORM, "FAIL outlast: no effect is done twice"),
        (TAKE_DOUBT_FOR_DONE, "FAIL outlast: an act that can be neither reissued nor probed stops in doubt"),
        (FORGET_DECISIONS, "FAIL outlast: no recorded answer is asked for again"),
    ],
    ids=["always perform", "take doubt for done", "forget decisions"],
)
def test_without_a_protection_the_evaluation_fails_and_says_what_to_replay(
    run: Run, missing: str, says: str
) -> None:
    words = ("chaos", "eval", "--quick", "--designs", "outlast", "--seed", "5", "--tasks", *WITH_EFFECTS)
    done = run(*words, before=missing)
    assert done.code == 1, done
    assert says in done.out
    replay = re.search(r"outlast chaos eval --replay (\S+) --seed 5", done.err)
    assert replay, done
    again = run("chaos", "eval", "--replay", replay[1], before=missing)
    assert again.code == 1, again
