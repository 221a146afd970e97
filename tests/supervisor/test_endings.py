"""The ending of `outlast run`: what it took, what it changed and where, and a command that works as it stands."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_hints import hinted
from tests.supervisor.supervised_command import Night, outlast
from tests.supervisor.test_beat_lines import said
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

LONG = "touch begun; sleep 1000"
MAIL = "outlast effect mail -- false"
ONE = "outlast step one -- touch one; outlast step two -- touch two"
MORE = ("--budget", "beats=1")


class Ended:
    """The end of a run: its exit code, its lines on standard error, and its last line of JSON."""

    def __init__(self, night: Night, code: int, err: str) -> None:
        self.night, self.code, self.err = night, code, err
        self.lines = [
            line.removeprefix("outlast: ") for line in err.splitlines() if line.startswith("outlast: ")
        ]
        told = [json.loads(line) for line in (night.folder / "feed").read_text().splitlines()]
        self.told: dict[str, Any] = told[-1]
        assert (self.told["event"], self.told["exit_code"]) == ("ended", code), told

    @property
    def took(self) -> str:
        """The line that sums up."""
        [line] = [line for line in self.lines if line.startswith("t: ")]
        return line

    @property
    def command(self) -> str:
        """The last command to type that the lines name."""
        return hinted("\n".join(self.lines))[-1]

    def paste(self, command: str) -> subprocess.CompletedProcess[str]:
        """What a person does with it, in the folder where they typed the run."""
        return subprocess.run(
            ["bash", "-c", command], cwd=self.night.work, env=self.night.environ(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip


def ended(night: Night, *words: str) -> Ended:
    done = said(night, "run", "--task", "t", "--json-lines", str(night.folder / "feed"), *words)
    return Ended(night, done.returncode, done.stderr)


def stopped(night: Night, number: signal.Signals | None, *act: str) -> Ended:
    """A run that a signal or a command stops while it is at work."""
    process = night.start("--task", "t", "--json-lines", str(night.folder / "feed"), "--", "sh", "-c", LONG)
    wait_for(lambda: (night.work / "begun").exists() or None, what="the command")
    if number is not None:
        process.send_signal(number)
    else:
        assert said(night, *act).returncode == 0
    _, err = process.communicate(timeout=TIMEOUT_S)
    return Ended(night, process.returncode, err.decode())


def test_done(night: Night) -> None:
    end = ended(night, "--", "sh", "-c", ONE)
    assert (end.code, end.lines[-2], end.told["standing"], end.told["needs"]) == (
        0,
        "done",
        "done",
        "nothing",
    )
    assert re.fullmatch(r"t: 1 attempt, 3 beats, \d+ s, 2 files changed; next: `outlast show t`", end.took), (
        end.lines
    )
    assert (end.told["files_changed"], end.told["beats"]) == (2, 3)
    assert (end.command, end.told["next"]) == ("outlast show t", "outlast show t")
    assert end.paste(end.command).returncode == 0


def test_done_in_a_worktree_names_its_folder_and_branch(night: Night) -> None:
    end = ended(night, "--worktree", "--", "touch", "new")
    folder = night.work.parent / f"{night.work.name}.outlast" / "t"
    assert end.took.endswith(f", 1 file changed in {folder} on branch outlast/t; next: `outlast show t`"), (
        end.lines
    )
    assert (end.told["worktree"], end.told["folder"], end.told["branch"]) == (True, str(folder), "outlast/t")
    assert end.paste(end.command).returncode == 0


def test_failed(night: Night) -> None:
    end = ended(night, "--rounds", "1", "--done", "false", "--", "true")
    assert (end.code, end.told["standing"], end.told["needs"]) == (1, "failed", "person")
    assert (end.command, end.told["next"]) == ("outlast resume t", "outlast resume t")
    assert "1 attempt, 1 beat" in end.took
    assert "resumes t: attempt 2" in end.paste(end.command).stderr


def test_quarantined(night: Night) -> None:
    end = ended(night, "--", "false")
    assert (end.code, end.told["standing"], end.told["needs"]) == (3, "quarantined", "person")
    assert "resumes t: attempt" in end.paste(end.command).stderr
    assert (end.told["next"], end.command) == ("outlast resume t", "outlast resume t")


def test_budget(night: Night) -> None:
    end = ended(night, *MORE, "--", "sh", "-c", ONE)
    assert (end.code, end.told["standing"], end.told["needs"]) == (4, "out_of_budget", "budget"), end.err
    assert end.command == end.told["next"] == "outlast resume t --budget beats=+1"
    assert end.paste(end.command).returncode in (0, 4)
    assert night.ask("show", "t")["beats"] > 1, "it went on"


def test_in_doubt(night: Night) -> None:
    end = ended(night, "--", "sh", "-c", MAIL)
    assert (end.code, end.told["standing"], end.told["needs"]) == (3, "in_doubt", "person")
    happened = hinted(end.lines[0])[0]
    assert happened.endswith("--happened")
    assert end.paste(happened).returncode == 0
    assert ended(night, "--", "sh", "-c", MAIL).code == 0


def test_parked_until_a_person_mends_it(night: Night) -> None:
    agent = night.folder / "claude"
    agent.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "2.1.325 (Claude Code)" && exit\necho "Invalid API key · Please run /login"; exit 1\n'
    )
    agent.chmod(0o755)
    end = ended(night, "--", str(agent), "-p", "x")
    assert (end.code, end.told["status"], end.told["standing"]) == (5, "parked", "blocked"), end.err
    assert (end.told["needs"], end.told["next"], end.command) == (
        "person",
        "outlast resume t",
        "outlast resume t",
    )
    assert end.paste(end.command).returncode == 5


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_stopped_by_a_signal(night: Night, number: signal.Signals, code: int) -> None:
    end = stopped(night, number)
    assert (end.code, end.told["exit_code"], end.told["status"]) == (code, code, "interrupted"), end.err
    assert end.told["next"] == end.command == "outlast resume t"
    assert "t: 1 attempt, 0 beats" in end.took
    (night.work / "begun").unlink()
    night.begin(["bash", "-c", end.command], env=night.environ())
    wait_for(lambda: (night.work / "begun").exists() or None, what="the command, gone on with")


@pytest.mark.parametrize("act", ["cancel", "pause", "kill"])
def test_stopped_by_a_person(night: Night, act: str) -> None:
    end = stopped(night, None, act, "t")
    standing = {"cancel": "cancelled", "pause": "paused", "kill": "stopped"}[act]
    assert (end.told["standing"], end.code == 0) == (standing, False), end.err
    assert "t: 1 attempt, 0 beats" in end.took
    assert end.told["next"] == ("outlast show t" if act == "cancel" else "outlast resume t")
    if act == "cancel":
        assert end.paste(end.told["next"]).returncode == 0


def test_one_that_is_done_already_is_not_summed_up_again(night: Night) -> None:
    ended(night, "--", "true")
    end = ended(night, "--", "true")
    assert end.lines == [f"task t is done already: {night.ask('show', 't')['run']}"]
    assert end.told["standing"] == "done"


def test_the_next_command_works_on_another_store_too(night: Night) -> None:
    store = night.folder / "a store"
    line = shlex.join(outlast("run", "--store", str(store), "--task", "t", "--", "true"))
    done = subprocess.run(
        ["bash", "-c", line], cwd=night.work, env=night.environ(), capture_output=True, text=True, timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    command = hinted(done.stderr)[-1]
    assert command == f"outlast --store {shlex.quote(str(store))} show t"
    assert (
        subprocess.run(
            ["bash", "-c", command], cwd=night.work, env=night.environ(), check=False, capture_output=True
        ).returncode
        == 0
    )
    assert Path(store).is_dir()
