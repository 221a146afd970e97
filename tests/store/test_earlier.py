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
from tests.support.processes import wait_for

TREES = sorted(path.parent.name for path in make_earlier.FIXTURES.glob("*/place.tar.xz"))
IMPORTED = sorted(path.parent.name for path in make_earlier.FIXTURES.glob("*/imported.tar.xz"))


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
    yield from unpacked(request.param, "place")


@pytest.fixture(params=IMPORTED)
def imported(request: pytest.FixtureRequest) -> Iterator[Earlier]:
    yield from unpacked(request.param, "imported")


def unpacked(tree: str, name: str) -> Iterator[Earlier]:
    fd = os.open(PLACE.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)  # its paths are full, so only one test at a time is there
    try:
        make_earlier.unpack(tree, name)
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


# -- what it imported ------------------------------------------------------------------------------------------------


def ran() -> list[str]:
    return (PLACE / "ran").read_text().split()


def test_what_it_imported_and_nobody_started_is_not_woken_and_what_was_started_is(imported: Earlier) -> None:
    before = ran()
    (PLACE / "go").touch()
    woken = {row["task"]: row for row in imported.json("home", "resume", "--all")}
    assert {task: row["started"] for task, row in woken.items()} == {
        "begun": True,
        "taken": True,
        "brought": None,
    }, woken
    assert woken["brought"]["why"] == "not started: imported, and nobody has asked to start it"
    wait_for(lambda: {"begun", "taken"} <= set(ran()[len(before) :]) or None, what="those that are woken")
    assert "brought" not in ran()[len(before) :]


def test_every_look_says_of_what_it_imported_that_it_is_not_started(imported: Earlier) -> None:
    [brought] = [row for row in imported.json("home", "ls", "--all") if row["task"] == "brought"]
    shown = imported.json("home", "show", brought["run"])
    page = json.loads(imported("home", "top", "--once", "--json").stdout)
    [row] = [row for row in page["rows"] if row["task"] == "brought"]
    assert {each["standing"] for each in (brought, shown, row)} == {"not_started"}
    assert not row["stranded"]
    findings = json.loads(imported("home", "doctor", "--all", "--json").stdout)
    assert not [each for each in findings if each["what"] == "head"], "an older head is no damage"


def test_what_it_imported_is_started_by_name_and_woken_from_then_on(imported: Earlier) -> None:
    [brought] = [row["run"] for row in imported.json("home", "ls", "--all") if row["task"] == "brought"]
    (PLACE / "go").touch()
    before = len(ran())
    done = imported("home", "resume", brought)
    assert done.returncode == 0, done.stderr
    assert ran()[before:] == ["brought"]
