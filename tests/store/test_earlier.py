"""What an earlier tree left is opened, shown and gone on with by this tree: runs in several states, as they were killed."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store import make_earlier
from tests.store.make_earlier import PLACE
from tests.support.commands import outlast

TREES = sorted(path.parent.name for path in make_earlier.FIXTURES.glob("*/place.tar.xz"))


class Earlier:
    """The place, and this tree's command in it."""

    def __call__(self, task: str, *words: str) -> "subprocess.CompletedProcess[str]":
        return outlast(words, cwd=PLACE / task, env=make_earlier.environ())

    def json(self, task: str, *words: str) -> Any:
        done = self(task, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def resume(self, task: str) -> None:
        """To its end, without what held it."""
        (PLACE / task / "go").touch()
        done = self(task, "run", "--task", task, "--", *make_earlier.words_of(task))
        assert done.returncode == 0, done.stderr

    def lines(self, task: str, name: str = "steps") -> list[str]:
        return (PLACE / task / name).read_text().split()


@pytest.fixture(params=TREES)
def earlier(request: pytest.FixtureRequest) -> Iterator[Earlier]:
    fd = os.open(PLACE.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)  # its paths are full, so only one test at a time is there
    try:
        make_earlier.unpack(request.param)
        yield Earlier()
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
        os.close(fd)


def test_its_runs_are_shown_as_they_were_left(earlier: Earlier) -> None:
    runs = {run["task"]: run for run in earlier.json("done", "ls", "--all")}
    assert {task: run["status"] for task, run in runs.items()} == {
        "done": "done", "killed": "interrupted", "doubt": "in_doubt", "session": "interrupted"
    }  # fmt: skip
    for task in runs:
        for command in ("show", "log", "effects", "context"):
            done = earlier(task, command, task)
            assert done.returncode == 0, (command, task, done.stderr)
    assert earlier("done", "doctor").returncode == 3, "one of them needs a person"


def test_a_run_that_was_killed_in_a_step_repeats_only_that(earlier: Earlier) -> None:
    assert earlier.lines("killed") == ["one", "two"]
    earlier.resume("killed")
    assert earlier.lines("killed") == ["one", "two", "two", "three"]


def test_an_effect_in_doubt_is_settled_and_not_done_again(earlier: Earlier) -> None:
    refused = earlier("doubt", "run", "--task", "doubt", "--", *make_earlier.words_of("doubt"))
    assert refused.returncode == 3, refused.stderr
    [effect] = [each for each in earlier.json("doubt", "effects", "doubt") if each["name"] == "pay"]
    assert earlier("doubt", "settle", "doubt", effect["id"], "--happened").returncode == 0
    earlier.resume("doubt")
    assert earlier.lines("doubt", "ledger") == ["paid"]
    assert earlier.lines("doubt") == ["after"]


def test_an_agent_goes_on_in_its_session_with_what_is_left_of_its_budget(earlier: Earlier) -> None:
    before = earlier.json("session", "show", "session")
    responses = len((PLACE / "agent" / "asked").read_text().splitlines())
    assert before["budget"]["spent"]["tokens"] > 0
    earlier.resume("session")
    after = earlier.json("session", "show", "session")
    told = (PLACE / "agent" / "told").read_text().splitlines()
    assert "--resume" in told[-1], "in the session that it had"
    assert earlier.lines("session")[:2] == ["one", "two"]
    assert earlier.lines("session")[-1] == "three"
    asked = len((PLACE / "agent" / "asked").read_text().splitlines()) - responses
    spent = after["budget"]["spent"]["tokens"] - before["budget"]["spent"]["tokens"]
    assert 0 < spent <= 110 * (asked + 1)
    assert after["budget"]["tokens"] == before["budget"]["tokens"]


def test_a_save_of_it_is_restored(earlier: Earlier) -> None:
    work = PLACE / "done"
    saves = earlier.json("done", "saves", "done")
    assert saves
    (work / "a.txt").write_text("spoilt\n")
    (work / "b.txt").unlink()
    done = earlier("done", "restore", saves[0]["commit"])
    assert done.returncode == 0, done.stderr
    assert Path(work / "a.txt").read_text() == "two\n"
    assert Path(work / "b.txt").read_text() == "new\n"
