"""A script finds its names again after an interruption, from the store and from nowhere else."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.shell.project import Project

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = [pytest.mark.sampled(0.5), pytest.mark.sampled(0.7, of="file")]

SHOW = """
env | grep -E '^(CURRENT_TASK_ID|ISSUE_NUMBER|WORKSPACE_PATH|BRANCH_NAME|PROGRESS_STAGE|RECOVERED_TASK_ID)=' | sort > ../names
"""
WORK = """
CURRENT_TASK_ID="it's 7; \\$(touch pwned)" ISSUE_NUMBER=7 WORKSPACE_PATH=/some/where BRANCH_NAME=fix-7
outlast stage halfway
outlast step a -- true
ISSUE_NUMBER=8
outlast_run sh -c ': > ../held; exec sleep 600'
"""


def names(work: Project) -> dict[str, str]:
    lines = work.saw("names").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("carried", ["by itself", "by outlast run"])
@pytest.mark.parametrize("blow", ["TERM", "KILL"])
def test_after_an_interruption_the_names_are_as_they_were(work: Project, blow: str, carried: str) -> None:
    work.script(SHOW + WORK)
    words = [work.shell, "loop.sh"]
    if carried == "by outlast run":
        words = ["outlast", "run", "--task", "loop.sh", "--restarts", "1", "--", *words]
    started = work.start(*words)
    work.saw("held")
    assert set(names(work).values()) == {""}, "nothing is recovered at the first start"
    last = "8" if blow == "TERM" else "7"  # a trap can still tell what no call did
    if blow == "KILL" and carried == "by outlast run":
        work.end_processes()  # guardian, supervisor and script
    else:
        os.kill(started.pid, signal.Signals[f"SIG{blow}"])
    started.wait(60)
    if carried == "by itself":
        work.settled()
    damage(work, last)
    work.script(SHOW)
    started = work.start(*words)
    assert started.wait(60) == 0, work.said
    assert names(work) == {
        "CURRENT_TASK_ID": "it's 7; $(touch pwned)",
        "RECOVERED_TASK_ID": "it's 7; $(touch pwned)",
        "ISSUE_NUMBER": last,
        "WORKSPACE_PATH": "/some/where",
        "BRANCH_NAME": "fix-7",
        "PROGRESS_STAGE": "halfway",
    }
    assert not (work.work / "pwned").exists()


def damage(work: Project, last: str) -> None:
    """Whatever is in the state file makes no difference."""
    (path,) = work.root.glob("runs/*/active_state.json")
    told = json.loads(path.read_text())
    assert told["issue_number"] == last
    path.write_text(json.dumps(told | {"task_id": "foreign", "issue_number": "666", "seq": told["seq"]}))


def test_a_task_that_was_ended_is_not_recovered_and_one_never_named_is_the_runs(in_bash: Project) -> None:
    in_bash.script(
        SHOW
        + "CURRENT_TASK_ID=7\noutlast step a -- true\nCURRENT_TASK_ID=\noutlast step b -- true\nkill -KILL $$\n"
    )
    assert in_bash.run() == -signal.SIGKILL
    assert in_bash.run() == -signal.SIGKILL
    assert names(in_bash)["RECOVERED_TASK_ID"] == ""
    in_bash.script(SHOW + "exit 9\n", "other.sh")
    assert in_bash.run("other.sh") == 9
    assert names(in_bash)["RECOVERED_TASK_ID"] == ""
    assert in_bash.run("other.sh") == 9
    assert names(in_bash)["RECOVERED_TASK_ID"] == "other.sh"


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b'{"task_id": 3}', None], ids=str)
def test_outlast_state_never_reads_the_file(in_bash: Project, content: bytes | None) -> None:
    in_bash.script("ISSUE_NUMBER=7\noutlast stage two\nexit 9\n")
    assert in_bash.run() == 9
    path = Path(in_bash("state", "--path", "loop.sh").out.strip())
    written = json.loads(path.read_text())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    told = in_bash("state")
    assert told.code == 0, told.err
    assert told.json == written
    assert written["issue_number"] == "7"
    assert written["progress_stage"] == "two"
    assert (path.read_bytes() if path.exists() else None) == content


def test_outlast_state_of_nothing_says_so(in_bash: Project) -> None:
    in_bash.script("true\n")
    assert in_bash.run() == 0
    for words in (("state",), ("state", "nothing")):
        answer = in_bash(*words)
        assert answer.code == 2
        assert answer.err.count("\n") == 2, answer.err
    assert in_bash("state", "loop.sh").json["status"] == "done"


def test_a_stage_that_is_refused_changes_nothing(work: Project) -> None:
    work.script('outlast stage one\noutlast stage a b || echo "$? $PROGRESS_STAGE" > ../stage\n')
    assert work.run() == 0, work.said
    assert (work.folder / "stage").read_text() == "2 one\n"
    assert work.head().stage == "one"
