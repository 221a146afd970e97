"""`outlast run -- CMD`: its streams pass byte for byte, its end is judged, its restarts are bounded."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands
from tests.support.environment import TIMEOUT_S, need_root
from tests.support.processes import wait_for


def run(night: Night, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    process = night.start(*words, **more)
    out, err = process.communicate(more.pop("input", None), TIMEOUT_S)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


# -- streams -----------------------------------------------------------------------------------------------------


def test_what_it_prints_passes_byte_for_byte(night: Night) -> None:
    script = "import os; os.write(1, bytes(range(256)) * 500); os.write(2, b'\\x00\\xff no newline')"
    done = run(night, "--task", "t", "--", sys.executable, "-c", script)
    assert done.returncode == 0
    assert done.stdout == bytes(range(256)) * 500
    assert done.stderr.startswith(b"\x00\xff no newline")


def test_the_users_pipe_goes_to_the_first_attempt_and_a_terminalless_one_gets_nothing(night: Night) -> None:
    script = "cat >> got; echo end >> got; [ -e again ] || { touch again; exit 1; }"
    process = night.start("--task", "t", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    process.communicate(b"piped\n", TIMEOUT_S)
    assert process.returncode == 0
    assert (night.work / "got").read_text() == "piped\nend\nend\n"


def test_its_code_is_not_passed_through_but_recorded(night: Night) -> None:
    done = run(night, "--task", "t", "--restarts", "1", "--", "sh", "-c", "exit 7")
    assert done.returncode == 3
    codes = [event.get("exit_code") for event in night.attempts()]
    assert 7 in codes


def test_the_log_is_private_and_harmless(night: Night) -> None:
    printed = "\\033]0;title\\007 sk-ant-api03-" + "a1B2" * 24
    run(night, "--task", "t", "--", "printf", f"{printed}\\n")
    [log] = night.isolated.state_home.glob("outlast/runs/*/attempt-1.log")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_bytes()
    assert b"\x1b" not in text
    assert b"a1B2a1B2" not in text


# -- how it ends -------------------------------------------------------------------------------------------------


def test_a_run_that_is_done_says_so_and_does_nothing(night: Night) -> None:
    for _ in range(2):
        assert run(night, "--task", "t", "--", "sh", "-c", "echo x >> ran").returncode == 0
    assert (night.work / "ran").read_text() == "x\n"


def test_failing_checks_start_it_again_with_what_failed(night: Night) -> None:
    script = 'echo x >> ran; grep -q "failed with 1: that" "$OUTLAST_CONTEXT_FILE" && echo 3 > level || true'
    check = 'test "$(cat level 2>/dev/null)" = 3 || { echo "that is not enough"; false; }'
    done = run(night, "--task", "t", "--goal", "g", "--done", check, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert (night.work / "ran").read_text() == "x\nx\n"


def test_checks_that_never_pass_end_after_their_rounds(night: Night) -> None:
    done = run(night, "--task", "t", "--done", "false", "--rounds", "3", "--", "sh", "-c", "echo x >> ran")
    assert done.returncode == 1
    assert (night.work / "ran").read_text() == "x\n" * 3
    assert night.ask("show", "t")["status"] == "failed"
    refused = run(night, "--task", "t", "--done", "false", "--", "true")
    assert refused.returncode == 2
    assert b"outlast resume" in refused.stderr


@pytest.mark.parametrize("rounds", ["0", "1"])
def test_with_no_rounds_the_first_failing_check_fails_it(night: Night, rounds: str) -> None:
    done = run(night, "--task", "t", "--done", "false", "--rounds", rounds, "--", "sh", "-c", "echo x >> ran")
    assert done.returncode == 1
    assert (night.work / "ran").read_text() == "x\n"
    assert b"rounds" not in done.stderr


def test_three_attempts_without_progress_are_quarantined(night: Night) -> None:
    done = run(night, "--task", "t", "--", "sh", "-c", f"echo x >> {night.folder}/ran; exit 1")
    assert done.returncode == 3
    assert (night.folder / "ran").read_text() == "x\n" * 3
    shown = night.ask("show", "t")
    assert (shown["status"], shown["cause"]) == ("failed", "quarantine")


def test_progress_in_the_files_earns_more_attempts(night: Night) -> None:
    script = f"echo x >> {night.folder}/ran; echo more >> work.txt; [ $(wc -l < work.txt) -ge 6 ]"
    assert run(night, "--task", "t", "--", "sh", "-c", script).returncode == 0
    assert (night.folder / "ran").read_text() == "x\n" * 6


def test_attempts_in_all_are_bounded(night: Night) -> None:
    done = run(
        night,
        "--task",
        "t",
        "--restarts",
        "4",
        "--",
        "sh",
        "-c",
        f"echo x >> {night.folder}/ran; date +%N > w; exit 1",
    )
    assert done.returncode == 3
    assert (night.folder / "ran").read_text() == "x\n" * 4


def test_a_program_that_vanished_parks_the_run(night: Night, tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text(f"#!/bin/sh\nrm {program}\nexit 1\n")
    program.chmod(0o755)
    done = run(night, "--task", "t", "--", str(program))
    assert done.returncode == 5
    shown = night.ask("show", "t")
    assert (shown["status"], shown["cause"]) == ("parked", "program_missing")


def test_out_of_memory_is_named_as_such(night: Night) -> None:
    need_root()
    group = Path("/sys/fs/cgroup/memory") / f"outlast-test-{os.getpid()}"
    if not group.parent.is_dir():
        pytest.skip("no memory cgroup of version 1")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
        eats = "x = bytearray(500 << 20); print(len(x))"
        into = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        words = outlast("run", "--task", "t", "--restarts", "1", "--", sys.executable, "-c", eats)
        subprocess.run(
            ["sh", "-c", into, "sh", *words], cwd=night.work, env=night.environ(), capture_output=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        [ended, *_] = night.attempts()
        assert ended["cause"] == "oom"
        assert "limit 209 MB" in ended["evidence"]
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text() or None, what="an empty group")
        group.rmdir()


# -- what is refused ---------------------------------------------------------------------------------------------

BAD = {
    "no command": (["--task", "t"], "no command"),
    "missing program": (["--task", "t", "--", "no-such-program"], "no-such-program"),
    "not executable": (["--task", "t", "--", "./a.txt"], "a.txt"),
    "a folder": (["--task", "t", "--", "./"], "/"),
    "the whole disk": (["--task", "t", "--workspace", "/", "--", "true"], "/"),
    "a vanished workspace": (["--task", "t", "--workspace", "gone", "--", "true"], "gone"),
    "a bad task": (["--task", "a\nb", "--", "true"], "task"),
    "a bad budget": (["--task", "t", "--budget", "many", "--", "true"], "many"),
    "no rounds": (["--task", "t", "--rounds", "-1", "--", "true"], "rounds"),
    "an empty task": (["--task", "", "--", "true"], "--task"),
    "a blank goal": (["--task", "t", "--goal", " ", "--", "true"], "--goal"),
    "an empty check": (["--task", "t", "--done", "", "--", "true"], "--done"),
    "an empty budget": (["--task", "t", "--budget", "", "--", "true"], "--budget"),
    "an empty workspace": (["--task", "t", "--workspace", "", "--", "true"], "--workspace"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_a_hint_and_nothing_is_started(night: Night, what: str) -> None:
    words, named = BAD[what]
    done = run(night, *words)
    error, hint = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert re.match(r"error: ", error)
    assert named in error
    assert hint.startswith("hint: ")
    assert not list(night.isolated.state_home.glob("outlast/runs/*/attempt-1.log"))


def test_a_workspace_has_one_live_run_unless_it_is_shared(night: Night) -> None:
    night.start_agent()
    night.ready(1)
    refused = run(night, "--task", "other", "--", "true")
    assert refused.returncode == 2
    assert b"works in" in refused.stderr
    assert run(night, "--task", "other", "--share", "--", "true").returncode == 0
    held = run(night, "--task", "t", "--share", "--", "true")
    assert held.returncode == 2
    assert b"held by pid" in held.stderr
    night.let_go()


def test_another_contract_is_refused(night: Night) -> None:
    run(night, "--task", "t", "--goal", "one", "--restarts", "1", "--", "false")
    done = run(night, "--task", "t", "--goal", "two", "--", "true")
    assert done.returncode == 2


def test_detached_it_goes_on_and_says_how_to_look(night: Night) -> None:
    agent = [sys.executable, "-P", str(night.folder / "agent.py"), str(night.folder)]
    done = run(night, "--task", "t", "--detach", "--", *agent)
    assert done.returncode == 0
    assert b"outlast output t -f" in done.stdout
    assert b"outlast kill t" in done.stdout
    night.ready(1)
    night.let_go()
    wait_for(lambda: night.ask("show", "t")["status"] == "done" or None, what="the run's end")


def test_what_is_refused_is_told_also_when_it_was_to_be_detached(night: Night) -> None:
    done = run(night, "--task", "t", "--detach", "--", "no-such-program")
    assert done.returncode == 2
    assert b"no-such-program" in done.stderr


def test_a_command_that_prints_nothing_for_long_is_named(night: Night) -> None:
    script = f"while [ ! -e {night.folder}/go ]; do sleep 0.05; done"
    night.isolated.config_home.joinpath("outlast").mkdir()
    (night.isolated.config_home / "outlast/config.toml").write_text("idle_s = 0.2\n")
    process = night.start("--task", "t", "--", "sh", "-c", script)
    wait_for(lambda: "warned" in [entry["event"]["t"] for entry in log(night)] or None, what="a warning")
    night.let_go()
    assert process.wait(TIMEOUT_S) == 0
    [warned] = [entry["event"] for entry in log(night) if entry["event"]["t"] == "warned"]
    assert warned["text"].startswith("nothing was printed for")


def log(night: Night) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = night.ask("log", "t") if night.ask("ls") else []
    return listed


# -- worktrees ---------------------------------------------------------------------------------------------------


def test_in_a_worktree_of_its_own_set_up_once(night: Night) -> None:
    config = night.isolated.config_home / "outlast"
    config.mkdir()
    (config / "config.toml").write_text('[worktree]\ncopy = ".env"\nsetup = "echo set up >> setup.txt"\n')
    (night.work / ".env").write_text("SECRET=1\n")
    script = "test -f .env && test -f setup.txt && echo x >> ran.txt && [ $(wc -l < ran.txt) = 2 ]"
    done = run(night, "--task", "t", "--worktree", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    [folder] = [
        Path(line.split(" ", 1)[1])
        for line in night.git("worktree", "list", "--porcelain").splitlines()
        if line.startswith("worktree ")
    ][1:]
    assert (folder / "setup.txt").read_text() == "set up\n"
    assert (folder / "ran.txt").read_text() == "x\nx\n"
    assert night.git("-C", str(folder), "branch", "--show-current").strip() == "outlast/t"
    assert not (night.work / "ran.txt").exists()


def test_a_worktree_that_is_gone_comes_back_from_its_save(night: Night) -> None:
    script = "echo x >> ran.txt; [ $(wc -l < ran.txt) = 2 ]"
    words = ("--task", "t", "--worktree", "--restarts", "1", "--", "sh", "-c", script)
    assert run(night, *words).returncode == 3
    [folder] = [
        Path(line[9:])
        for line in night.git("worktree", "list", "--porcelain").splitlines()
        if line.startswith("worktree ")
    ][1:]
    shutil.rmtree(folder)
    resumed = commands.run(
        outlast("resume", "t"), cwd=night.work, env=night.environ(), capture_output=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    assert (folder / "ran.txt").read_text() == "x\nx\n"


def test_gc_removes_the_logs_of_runs_that_it_forgets(night: Night) -> None:
    run(night, "--task", "t", "--", "true")
    [folder] = [path for path in night.isolated.state_home.glob("outlast/runs/*") if path.is_dir()]
    words = outlast("gc", "--older-than", "0s")
    commands.run(
        words, cwd=night.work, env=night.environ(), check=True, capture_output=True, timeout=TIMEOUT_S
    )
    assert not folder.exists()


def test_a_slow_reader_gets_all_of_it(night: Night) -> None:
    process = night.start("--task", "t", "--", "head", "-c", "3000000", "/dev/zero")
    wait_for(
        lambda: list(night.isolated.state_home.glob("outlast/runs/*/attempt-1.log")) or None,
        what="the command",
    )
    assert process.stdout is not None
    assert len(process.stdout.read()) == 3_000_000
    assert process.wait(TIMEOUT_S) == 0


def test_a_second_start_while_the_first_waits_between_attempts_is_refused(night: Night) -> None:
    (night.isolated.config_home / "outlast").mkdir()
    script = f"echo x >> {night.folder}/ran; exit 1"
    environ = night.environ() | {"OUTLAST_RESTART_WAIT_S": "600"}
    first = night.start("--task", "t", "--share", "--", "sh", "-c", script, env=environ)
    wait_for(
        lambda: (night.folder.joinpath("ran").exists() and night.attempts()) or None,
        what="the first attempt's end",
    )
    night.timing = "supervisor.leaving_supervisor_s=0.2"
    second = run(night, "--task", "t", "--share", "--", "sh", "-c", script)
    assert second.returncode == 2
    assert b"waits for its next attempt" in second.stderr
    assert first.poll() is None
    assert (night.folder / "ran").read_text() == "x\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_trouble(night: Night, closed: str) -> None:
    words = shlex.join(outlast("run", "--task", "t", "--", "sh", "-c", "echo said; echo x >> ran"))
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"], cwd=night.work, env=night.environ(), capture_output=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"" if ">&-" in closed.split() else b"said\n")
    assert (night.work / "ran").read_text() == "x\n"


def test_a_reader_that_goes_away_ends_it_once(night: Night) -> None:
    words = shlex.join(outlast("run", "--task", "t", "--", "sh", "-c", f"echo x >> {night.folder}/ran; yes"))
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -1; echo ${{PIPESTATUS[0]}}"], cwd=night.work, env=night.environ(),
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout == b"y\n141\n", done.stderr
    assert (night.folder / "ran").read_text() == "x\n"


def test_what_a_check_prints_is_told_without_secrets_and_harmless(night: Night) -> None:
    key = "sk-ant-api03-" + "a1B2" * 24
    (night.folder / "check.sh").write_text(f"printf '\\033]0;title\\007 {key}'; exit 1\n")
    done = run(night, "--task", "t", "--done", f"sh {night.folder}/check.sh", "--rounds", "1", "--", "true")
    assert b"\x1b" not in done.stderr
    assert key.encode() not in done.stderr
    assert key not in json.dumps(night.ask("log", "t"))


def test_from_a_folder_that_is_gone_it_says_so(night: Night) -> None:
    words = shlex.join(outlast("run", "--task", "t", "--", "true"))
    done = subprocess.run(
        ["sh", "-c", f"mkdir gone && cd gone && rmdir ../gone && {words}"], cwd=night.work, env=night.environ(),
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"is gone" in done.stderr
