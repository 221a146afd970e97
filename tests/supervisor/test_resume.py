"""`outlast resume` and `outlast output -f`: what is asked for is done, and nothing else."""

import re
import subprocess
import sys

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for


def said(night: Night, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return commands.run(
        outlast(*words), cwd=night.work, env=night.environ() | more, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_a_dry_run_of_one_task_says_what_would_happen_and_does_nothing(night: Night) -> None:
    script = f"echo x >> {night.folder}/ran; exit 1"
    said(night, "run", "--task", "t", "--restarts", "1", "--", "sh", "-c", script)
    before = night.ask("log", "t")
    done = said(night, "resume", "t", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "goes on at beat 1 with `sh -c" in done.stdout
    assert "exit 1" in done.stdout
    assert str(night.work) in done.stdout
    assert night.ask("log", "t") == before
    assert (night.folder / "ran").read_text() == "x\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["t", "--jobs", "2"], "--jobs needs --all"),
        (["t", "--json"], "--json needs --all"),
        (["t", "--dry-run", "--json"], "--json needs --all"),
        (["--all", "--detach"], "--detach and --all cannot be used together"),
        (["--all", "--accept-rewind"], "--accept-rewind and --all cannot be used together"),
        (["--all", "t"], "RUN and --all cannot be used together"),
        ([], "RUN is missing"),
    ],
)
def test_options_that_mean_nothing_together_are_one_line_and_nothing_is_started(
    night: Night, words: list[str], named: str
) -> None:
    said(
        night,
        "run",
        "--task",
        "t",
        "--restarts",
        "1",
        "--",
        "sh",
        "-c",
        f"echo x >> {night.folder}/ran; exit 1",
    )
    refused = said(night, "resume", *words)
    error, hint = refused.stderr.splitlines()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert error.startswith(f"error: {named}")
    assert hint.startswith("hint: ")
    assert (night.folder / "ran").read_text() == "x\n"


def test_one_who_follows_the_output_sees_the_next_attempt_too(night: Night) -> None:
    script = f"echo attempt; echo x >> {night.folder}/ran; [ -e {night.folder}/go ]"
    waits = {"env": night.environ() | {"OUTLAST_RESTART_WAIT_S": "2"}}
    process = night.start("--task", "t", "--", "sh", "-c", script, **waits)
    wait_for(lambda: ((night.folder / "ran").exists() and night.attempts()) or None, what="the first end")
    shown = said(night, "show", "t")
    assert "waits    for its next attempt: its supervisor, pid" in shown.stdout
    assert "`outlast output t -f` shows what comes; `outlast kill t`" in shown.stderr
    assert "restarting" in said(night, "ls").stdout
    with commands.start(
        outlast("output", "t", "-f"), cwd=night.work, env=night.environ(), stdout=subprocess.PIPE, text=True
    ) as follower:
        night.let_go()
        out, _ = follower.communicate(timeout=TIMEOUT_S)
    assert process.wait(TIMEOUT_S) == 0
    assert follower.returncode == 0
    first = re.search(r"attempt (\d+), begun", out)  # the one that was there when it began to look
    assert first is not None, out
    assert out.count("out| attempt") == len((night.folder / "ran").read_text().split()) - int(first[1]) + 1


def test_a_follower_misses_no_line_that_came_just_before_the_next_attempt(night: Night) -> None:
    script = f"echo x >> {night.folder}/ran; echo last of $(wc -l < {night.folder}/ran); [ $(wc -l < {night.folder}/ran) = 3 ]"
    words = f"date +%N > w; {script}"
    process = night.start(
        "--task", "t", "--", "sh", "-c", f"while [ ! -e {night.folder}/go ]; do sleep 0.02; done; {words}"
    )
    wait_for(lambda: night.ask("ls") or None, what="a run")
    with commands.start(
        outlast("output", "t", "-f"), cwd=night.work, env=night.environ(), stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert "attempt 1" in follower.stdout.readline()
        night.let_go()
        out, _ = follower.communicate(timeout=TIMEOUT_S)
    assert process.wait(TIMEOUT_S) == 0
    assert [line.split("| ")[1] for line in out.splitlines() if "last of" in line] == [
        f"last of {n}" for n in (1, 2, 3)
    ]
    assert out.count("bytes of output") == 3


@pytest.mark.parametrize("chars", [1, 3])
def test_a_few_signs_of_a_run_id_reach_no_run(night: Night, chars: int) -> None:
    said(night, "run", "--task", "t", "--", sys.executable, "-c", "")
    run = night.ask("show", "t")["run"]
    for command in ("kill", "cancel", "show", "output", "resume"):
        refused = said(night, command, run[:chars])
        assert refused.returncode == 2
        assert "no such run" in refused.stderr
        assert "at least 4 characters" in refused.stderr
    assert said(night, "show", run[:6]).returncode == 0


def test_a_run_that_rests_says_how_it_goes_on(night: Night) -> None:
    program = night.folder / "agent"
    program.write_text(f"#!/bin/sh\nrm {program}\nexit 1\n")
    program.chmod(0o755)
    said(night, "run", "--task", "parked", "--", str(program))
    said(night, "run", "--task", "failed", "--restarts", "1", "--", "false")
    said(night, "run", "--task", "stopped", "--", "sh", "-c", "kill -9 $PPID")
    for task, way in (("parked", "goes on"), ("failed", "allows another try"), ("stopped", "goes on")):
        assert said(night, "show", task).stderr == f"`outlast resume {task}` {way}\n"
