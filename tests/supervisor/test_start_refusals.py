"""What is refused is refused before anything is made, in the words of the command line, with what to type instead."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for


def said(night: Night, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return commands.run(
        outlast(*words), cwd=more.get("cwd", night.work), env=night.environ(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def refused(night: Night, *words: str, **more: Any) -> tuple[str, str]:
    """The error and the hint of a command that must be refused."""
    done = said(night, *words, **more)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 2), done
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("hint: ")


def world(night: Night) -> tuple[str, str, list[str]]:
    """Branches, worktrees and runs: what a refusal leaves as it was."""
    runs = [each["run"] for each in night.ask("ls", "--all")]
    return night.git("for-each-ref"), night.git("worktree", "list", "--porcelain"), runs


# -- before anything is made -------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--", "no-such-program"], "no-such-program"),
        (["--", "/no/such/program"], "/no/such/program"),
        (["--budget", "many", "--", "true"], "many"),
        (["--base", "nowhere", "--", "true"], "nowhere"),
        (["--"], "no command"),
    ],
)
def test_a_refused_worktree_is_not_made(night: Night, words: list[str], named: str) -> None:
    before = world(night)
    error, _ = refused(night, "run", "--task", "t", "--worktree", *words)
    assert named in error
    assert world(night) == before
    assert not (night.folder / "work.outlast").exists()


def test_a_copy_that_leads_out_is_refused_before_the_worktree_is_made(night: Night) -> None:
    (night.work / "outlast.toml").write_text('[worktree]\ncopy = ["../../../etc/passwd"]\n')
    before = world(night)
    error, _ = refused(night, "run", "--task", "t", "--worktree", "--", "true")
    assert "../../../etc/passwd" in error
    assert world(night) == before
    assert not (night.folder / "work.outlast").exists()


@pytest.mark.parametrize("on_path", [False, True])
def test_a_script_without_its_interpreter_is_refused_and_no_run_is_opened(
    night: Night, on_path: bool
) -> None:
    script = night.work / "agent"
    script.write_text("#!/no/such/interpreter -x\n")
    script.chmod(0o755)
    words = ["env", f"PATH={night.work}:/usr/bin:/bin"] if on_path else []
    done = subprocess.run(
        [*words, *outlast("run", "--task", "t", "--", "agent" if on_path else "./agent")], cwd=night.work,
        env=night.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "its interpreter /no/such/interpreter is missing" in done.stderr
    assert "hint: install it" in done.stderr
    assert night.ask("ls", "--all") == []


def test_how_a_program_becomes_executable_can_be_pasted(night: Night) -> None:
    folder = night.work / "sp ace"
    folder.mkdir()
    (folder / "no exec").write_text("#!/bin/sh\n")
    _, hint = refused(night, "run", "--task", "t", "--", "./sp ace/no exec")
    subprocess.run(["sh", "-c", hint.strip("`")], check=True)
    assert said(night, "run", "--task", "t", "--", "./sp ace/no exec").returncode == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "--task", "t", "--project", "/nope", "--", "true"], "no such project: '/nope'"),
        (["ls", "--project", "/nope"], "no such project: '/nope'"),
        (["show", "t", "--project", ""], "no such project: ''"),
        (["run", "--task", "t", "--base", "main", "--", "true"], "--base needs --worktree"),
        (["run", "--task", "t", "--issue", "", "--", "true"], "--issue is empty"),
        (["run", "--task", "t", "--workspace", "", "--", "true"], "--workspace is empty"),
        (["effect", "e", "--key", "", "--", "true"], "--key is empty"),
        (["effect", "e", "--probe", " ", "--", "true"], "--probe is empty"),
    ],
)
def test_what_says_nothing_is_not_taken_for_something(night: Night, words: list[str], named: str) -> None:
    said(night, "run", "--task", "there", "--", "true")
    before = world(night)
    assert named in refused(night, *words)[0]
    assert world(night) == before


def test_a_run_in_another_project_is_found_there(night: Night) -> None:
    other = night.folder / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    assert said(night, "run", "--task", "t", "--project", str(other), "--", "true").returncode == 0
    assert "done" in said(night, "show", "t", cwd=other).stdout
    assert "done" in said(night, "show", "t", "--project", str(other)).stdout


# -- in the words of the command line ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "line"), [("run", ["run", "true"]), ("step", ["step", "build", "make"])])
def test_a_command_without_its_dashes_is_told_where_they_go(night: Night, word: str, line: list[str]) -> None:
    error, hint = refused(night, *line)
    assert error == f"unexpected argument: {line[-1]}"
    assert (
        hint
        == f"put `--` before the command: outlast {word} … -- {line[-1]}; `outlast {word} --help` explains it"
    )


def test_another_goal_is_refused_in_words_that_can_be_typed(night: Night) -> None:
    said(night, "run", "--task", "t", "--goal", "one", "--", "sh", "-c", "kill -9 $PPID")
    _, hint = refused(night, "run", "--task", "t", "--goal", "two", "--", "true")
    assert hint == "give the same as at first, or --amend to change it on purpose"
    _, hint = refused(night, "run", "--task", "v", "--workspace", "gone", "--", "true")
    assert hint == "make it, or give another --workspace"


def test_a_failed_task_with_other_terms_is_told_of_both_ways(night: Night) -> None:
    said(night, "run", "--task", "t", "--done", "false", "--rounds", "1", "--", "true")
    error, hint = refused(night, "run", "--task", "t", "--done", "true", "--amend", "--", "true")
    assert "has failed" in error
    assert "--amend" in error
    assert "outlast resume" in hint
    assert "--again" in hint
    assert said(night, "run", "--task", "t", "--done", "true", "--again", "--", "true").returncode == 0


def test_a_task_that_was_done_otherwise_says_so_and_how_it_is_begun_anew(night: Night) -> None:
    assert said(night, "run", "--task", "t", "--goal", "one", "--", "true").returncode == 0
    same = said(night, "run", "--task", "t", "--goal", "one", "--", "true")
    assert "another" not in same.stderr
    for words, other in ((["--goal", "two", "--", "true"], "goal"), (["--", "touch", "x"], "command")):
        done = said(night, "run", "--task", "t", *words)
        assert done.returncode == 0
        assert f"it was done with another {other}; to run it again with this one, say --again" in done.stderr
    assert not (night.work / "x").exists()


def test_a_task_that_runs_already_is_told_how_to_look(night: Night) -> None:
    night.start_agent()
    night.ready(1)
    for more in ([], ["--share"]):
        _, hint = refused(night, "run", "--task", "t", *more, "--", "true")
        assert "outlast output" in hint
        assert " -f`" in hint
        assert "outlast kill" in hint
        assert "--worktree" not in hint
    _, hint = refused(night, "run", "--task", "other", "--", "true")
    assert "--worktree" in hint
    night.let_go()


# -- a worktree that is gone -------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("word", ["sh", "./agent.sh"])
def test_the_same_line_again_brings_a_worktree_back_that_is_gone(night: Night, word: str) -> None:
    (night.work / "agent.sh").write_text('#!/bin/sh\nshift 2>/dev/null\nexec sh -c "$1"\n')
    (night.work / "agent.sh").chmod(0o755)
    night.git("add", "agent.sh")
    night.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "agent")
    there = night.folder / "there"
    script = f"echo x >> ran.txt; [ $(wc -l < ran.txt) = 2 ] || {{ touch {there}; exec sleep 600; }}"
    words = ("run", "--task", "t", "--worktree", "--", word, "-c", script)
    night.start(*words[1:])
    wait_for(lambda: there.exists() or None, what="its first attempt")
    assert said(night, "kill", "t").returncode == 0
    folder = night.folder / "work.outlast" / "t"
    assert (folder / "ran.txt").read_text() == "x\n"
    assert night.ask("show", "t")["status"] == "interrupted"
    shutil.rmtree(folder)
    again = said(night, *words)
    assert again.returncode == 0, again.stderr
    assert (folder / "ran.txt").read_text() == "x\nx\n"
    assert Path(folder / ".git").is_file()
