"""`outlast run` inside a script is a run inside of the script's: it works in the same folder, and goes on with the script."""

import pytest

from outlast.supervisor.launch.last_launch import launch_of
from tests.shell.project import Project
from tests.support.processes import kill_at_once

pytestmark = pytest.mark.sampled(0.5, of="file")

TWO = """
for n in 1 2; do outlast run --task "issue-$n" -- sh -c "echo $n >> ../did"; done
"""
LONG = """
outlast run --task inner -- sh -c 'echo x >> ../tries; [ -e ../go ] || { : > ../begun; exec sleep 600; }'
"""


def test_it_works_in_the_folder_of_its_script_and_done_is_done(in_bash: Project) -> None:
    work = in_bash
    work.script(TWO)
    assert work.run() == 0, work.said
    assert work.run() == 0, work.said
    assert (work.folder / "did").read_text() == "1\n2\n"
    launch = launch_of(work.store, work.summary("issue-1"))
    assert launch is not None
    assert launch.within in {summary.run for summary in work.runs()}


def test_killed_with_its_script_it_is_not_woken_alone_and_goes_on_with_the_script(in_bash: Project) -> None:
    work = in_bash
    work.script(LONG)
    script = work.start_script()
    work.saw("begun")
    kill_at_once(list(work.processes()), wait=True)
    script.wait()
    (work.folder / "go").touch()
    woken = work("resume", "--all")
    assert f"started inside run {work.head().run}" in woken.out + woken.err
    assert (work.folder / "tries").read_text() == "x\n"
    assert work.run() == 0, work.said
    assert (work.folder / "tries").read_text() == "x\nx\n"
    inner = work.summary("inner").state
    assert (inner.status, inner.attempts) == ("done", 2)


def test_stopped_by_a_signal_to_the_script_it_is_stopped_too(in_bash: Project) -> None:
    work = in_bash
    work.script(LONG)
    script = work.start_script()
    work.saw("begun")
    script.terminate()
    assert script.wait(60) == 143, work.said
    assert work.settled().status == "interrupted"
    assert work.summary("inner").state.attempt is None, "its end is on record"


def test_the_task_of_the_script_itself_is_refused_in_one_line(in_bash: Project) -> None:
    work = in_bash
    work.script("outlast run --task loop.sh -- true || echo code $?\n")
    assert work.run() == 0, work.said
    assert "in which this was started" in work.said
    assert "another --task" in work.said
    assert "code 2" in work.said


def test_another_run_in_the_same_folder_is_refused_as_before(in_bash: Project) -> None:
    work = in_bash
    work.script(LONG)
    work.start_script()
    work.saw("begun")
    refused = work("run", "--task", "other", "--", "true")
    assert refused.code == 2, refused
    assert "works in" in refused.err
