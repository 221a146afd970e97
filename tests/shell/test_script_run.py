"""A script that was started by itself has a run of its own, kept until the script is gone."""

import os
import signal

import pytest

from tests.shell.project import Project
from tests.support.environment import need_tool
from tests.support.processes import alive, wait_for

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = [pytest.mark.sampled(0.5), pytest.mark.sampled(0.5, of="file")]

LONG = """
outlast step first -- sh -c 'echo once >> ../did'
: > ../begun
outlast step long -- sh -c 'echo $$ > ../pid.tmp; mv ../pid.tmp ../pid; exec sleep 600'
"""


def test_exit_0_finishes_the_run_and_the_next_start_is_a_new_one(work: Project) -> None:
    work.script("outlast step a -- sh -c 'echo x >> ../did'\n")
    assert work.run() == 0, work.said
    assert work.head().status == "done"
    assert work.run() == 0, work.said
    assert len(work.runs()) == 2
    assert (work.folder / "did").read_text() == "x\nx\n"


def test_another_exit_code_ends_the_attempt_as_a_crash_and_the_next_start_goes_on(work: Project) -> None:
    work.script("outlast step a -- sh -c 'echo x >> ../did'\n[ -e ../go ] || exit 7\n")
    assert work.run() == 7, work.said
    (end,) = work.ends()
    assert (end.status, end.cause, end.exit_code) == ("interrupted", "crash", 7)
    assert "7" in end.evidence
    (work.folder / "go").touch()
    assert work.run() == 0, work.said
    assert len(work.runs()) == 1
    assert work.head().status == "done"
    assert (work.folder / "did").read_text() == "x\n", "a recorded step is replayed"


def test_killed_without_a_word_what_it_left_is_stopped_saved_and_named(work: Project) -> None:
    work.timing = "supervisor.left_grace_s=0.3"
    work.script("( trap '' TERM; while :; do sleep 0.2; done ) &\necho $! > ../sub\necho new > file\n" + LONG)
    script = work.start_script()
    left = [int(work.saw(name).read_text()) for name in ("sub", "pid")]
    script.kill()
    script.wait()
    state = work.settled()
    assert not any(map(alive, left)), "also a subshell, which carries no mark"
    assert state.status == "interrupted"
    (end,) = work.ends()
    assert end.cause == "crash"
    assert str(script.pid) in end.evidence
    saved = work.saves("emergency")
    assert work.git("show", f"{saved[-1]}:file") == "new\n"
    assert (work.folder / "did").read_text() == "once\n"


def test_a_second_start_while_the_first_lives_is_refused_with_2_and_one_line(work: Project) -> None:
    work.script(LONG)
    first = work.start_script()
    work.saw("pid")
    before = len(work.said)
    assert work.start_script().wait(60) == 2
    said = work.said[before:].splitlines()
    assert [line.split(":")[0] for line in said] == ["error", "hint"], said
    assert alive(first.pid)


def test_keeper_and_script_killed_together_the_next_start_stops_the_rest_and_goes_on(work: Project) -> None:
    work.script(LONG)
    script = work.start_script()
    left = int(work.saw("pid").read_text())
    (keeper,) = work.keepers()
    os.kill(keeper, signal.SIGKILL)
    script.kill()
    script.wait()
    assert alive(left)
    work.script("outlast step first -- sh -c 'echo once >> ../did'\n")
    assert work.run() == 0, work.said
    assert not alive(left)
    assert [end.cause for end in work.ends()] == ["crash", "done"]
    assert (work.folder / "did").read_text() == "once\n"


def test_keeper_killed_alone_the_script_is_stopped_by_the_next_start(work: Project) -> None:
    """The shell itself carries no mark in its environment: it is found by the pipe that it holds."""
    work.script(LONG)
    script = work.start_script()
    work.saw("pid")
    (keeper,) = work.keepers()
    os.kill(keeper, signal.SIGKILL)
    work.script("outlast step first -- true\n")
    assert work.run() == 0, work.said
    wait_for(lambda: script.poll() is not None, what="the old script to be gone")


def test_a_call_without_a_keeper_fails_and_does_nothing(work: Project) -> None:
    work.script(": > ../begun\nread -r _ < ../gate\noutlast step a -- touch ../did\n")
    os.mkfifo(work.folder / "gate")
    script = work.start_script()
    work.saw("begun")
    (keeper,) = work.keepers()
    os.kill(keeper, signal.SIGKILL)
    (work.folder / "gate").write_text("go\n")
    assert script.wait(60) == 125, work.said
    assert not (work.folder / "did").exists()


def test_sigterm_to_the_keeper_stops_the_script_saves_and_records(work: Project) -> None:
    work.script("echo new > file\n" + LONG)
    script = work.start_script()
    work.saw("pid")
    (keeper,) = work.keepers()
    os.kill(keeper, signal.SIGTERM)
    assert script.wait(60) == 143
    assert work.settled().status == "interrupted"
    assert work.saves("emergency")


@pytest.mark.parametrize(
    ("word", "status"), [("pause", "paused"), ("kill", "interrupted"), ("cancel", "cancelled")]
)
def test_a_request_stops_the_script_and_is_recorded(in_bash: Project, word: str, status: str) -> None:
    in_bash.script("[ ! -e ../begun ] || exit 0\n: > ../begun\nwhile :; do sleep 0.1; done\n")
    script = in_bash.start_script()
    in_bash.saw("begun")
    asked = in_bash(word, "loop.sh")
    assert asked.code == 0, asked.err
    assert script.wait(60) == 143
    assert in_bash.settled().status == status
    assert in_bash.start_script().wait(60) == (2 if word == "pause" else 0), in_bash.said


def test_two_scripts_one_after_the_other_in_one_folder_do_not_meet(in_bash: Project) -> None:
    """The keeper of the first is still at work, with what it left, when the next starts: that one waits."""
    in_bash.timing = "supervisor.left_grace_s=1"
    in_bash.script("( trap '' TERM; exec sleep 600 ) &\n", "one.sh")
    in_bash.script("( trap '' TERM; exec sleep 600 ) &\n", "two.sh")
    words = "bash one.sh && bash two.sh && outlast run --task three -- true"
    assert in_bash.start("sh", "-c", words).wait(60) == 0, in_bash.said


def test_one_workspace_has_one_script_at_a_time(in_bash: Project) -> None:
    in_bash.script(LONG)
    in_bash.script("true\n", "other.sh")
    in_bash.start_script()
    in_bash.saw("pid")
    assert in_bash.start_script("other.sh").wait(60) == 2
    assert "works in" in in_bash.said
    assert not in_bash.runs("other.sh"), "what was refused left a run"
    assert "--share" not in in_bash.said
    assert "git worktree add" in in_bash.said


def test_a_script_without_a_name_needs_a_task(in_bash: Project) -> None:
    begin = 'eval "$(outlast shell-init)"; outlast step a -- true'
    assert in_bash.start("bash", "-c", begin).wait(60) == 2
    assert "OUTLAST_TASK" in in_bash.said
    assert in_bash.start("bash", "-c", begin, OUTLAST_TASK="named").wait(60) == 0
    assert in_bash.settled("named").status == "done"


@pytest.mark.parametrize("shell", [("dash",), ("bash", "--posix")], ids=" ".join)
def test_a_shell_that_cannot_is_told_so(in_bash: Project, shell: tuple[str, ...]) -> None:
    need_tool(shell[0])
    in_bash.script("true\n")
    (in_bash.work / "loop.sh").write_text('eval "$(outlast shell-init)"\n')
    assert in_bash.start(*shell, "loop.sh").wait(60) == 2
    assert in_bash.said.startswith("outlast: "), in_bash.said
    assert in_bash.said.count("\n") == 1, in_bash.said


def test_an_interactive_shell_is_left_alone_and_twice_is_as_good_as_once(work: Project) -> None:
    begin = 'eval "$(outlast shell-init)"; trap -p; echo "${OUTLAST_RUN-none}"'
    assert (
        work.start(work.shell, *(["-f"] if "zsh" in work.shell else ["--norc"]), "-ic", begin).wait(60) == 0
    )
    assert "none" in work.said
    assert not work.keepers()
    work.script('eval "$(outlast shell-init)"\noutlast step a -- true\n')
    assert work.run() == 0, work.said
    assert len(work.ends()) == 1


def test_a_nested_script_uses_the_run_around_it(work: Project) -> None:
    work.script("outlast step inner -- true\n", "inner.sh")
    work.script(f"{work.shell} inner.sh\noutlast step outer -- true\n")
    assert work.run() == 0, work.said
    assert not work.runs("inner.sh")
    assert work.head().beats == 3


def test_what_a_script_leaves_running_is_stopped_when_it_ends_well(in_bash: Project) -> None:
    in_bash.script("sleep 600 &\necho $! > ../left\n")
    assert in_bash.run() == 0, in_bash.said
    assert not alive(int(in_bash.saw("left").read_text()))


def test_stdin_reaches_the_command_of_a_step(work: Project) -> None:
    work.script("outlast step read -- cat > ../got\n")
    assert work.start(work.shell, "loop.sh", stdin="a line\n").wait(60) == 0, work.said
    assert (work.folder / "got").read_text() == "a line\n"


def test_a_keeper_that_was_killed_is_one_line_with_what_to_do_and_the_step_runs_again(work: Project) -> None:
    work.script(
        "outlast step s -- sh -c 'echo x >> ../did; : > ../begun; until [ -e ../go ]; do sleep 0.01; done' || exit 9\n"
    )
    script = work.start_script()
    work.saw("begun")
    (keeper,) = work.keepers()
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not alive(keeper) or None, what="the keeper's end")
    (work.folder / "go").touch()
    assert script.wait(60) == 9
    assert "error: the supervisor of this run is gone" in work.said
    assert "hint: start the script again" in work.said
    assert work.run() == 0, work.said
    assert (work.folder / "did").read_text() == "x\nx\n"
