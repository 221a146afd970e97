"""Quota walls with real processes: parked until the reset, one wall for all runs of an account, woken one after the other.

The agent is a script that outlast takes for Claude Code: it says what a file tells it to say, or works.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from outlast.core import events as ev
from outlast.operations import requests
from outlast.processes import reap
from outlast.runs.engine.steps import Append
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.control.wake import alone
from tests.supervisor.host import Host
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

AGENT = """#!/bin/sh
case "$*" in *--version*) echo "2.1.325 (Claude Code)"; exit 0 ;; esac
date +%s.%N >> ../began
if [ -s ../wall ]; then
  setsid sleep 1000 &
  cat ../wall; exit 1
fi
echo work >> work.txt
"""
HELD = """#!/bin/sh
case "$*" in *--version*) echo "2.1.325 (Claude Code)"; exit 0 ;; esac
echo half >> work.txt; exec sleep 1000
"""
APART_S = 0.6
OURS = {"OUTLAST_WAKE_APART_S": str(APART_S), "ANTHROPIC_API_KEY": "scripted-key"}
HOUR = timedelta(hours=1)


class Account:
    """Runs of one account, and the provider that lets them work or not."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.program = host.folder / "claude"
        self.program.write_text(AGENT)
        self.program.chmod(0o755)

    def says(self, text: str) -> None:
        (self.host.folder / "wall").write_text(text and f"{text}\n")

    def run(self, task: str, *options: str) -> int:
        words = (str(self.program), "-p", "do it")
        return self.host.start(task, *words, options=options, **OURS).wait(TIMEOUT_S)

    def __call__(self, *words: str, task: str = "") -> tuple[int, str, str]:
        cwd = self.host.repository(task) if task else None
        answer = self.host(*words, cwd=cwd, **OURS)
        return answer.code, answer.out, answer.err

    def began(self) -> list[float]:
        path = self.host.folder / "began"
        return [float(line) for line in path.read_text().split()] if path.exists() else []

    def parked(self, task: str) -> ev.Parked:
        return [event for event in self.host.events(task) if isinstance(event, ev.Parked)][-1]

    def time_comes(self, *tasks: str) -> None:
        """The reset has passed: as if all that is on record had been written a day before."""
        for task in tasks:
            with requests.claimed(self.host.store, self.host.summary(task).run) as journal:
                told = self.parked(task)
                assert told.until is not None
                earlier = msgspec.structs.replace(
                    told, at=journal.now(), until=told.until - timedelta(days=1)
                )
                journal.store.append(journal.batch(Append((earlier,))))
        for path in (self.host.root / "walls").glob("*.json"):
            wall = msgspec.json.decode(path.read_bytes(), type=quota_walls.Wall)
            assert wall is not None
            fallen = msgspec.structs.replace(wall, until=wall.until - timedelta(days=1))
            path.write_bytes(msgspec.json.encode(fallen))


@pytest.fixture
def account(host: Host) -> Account:
    return Account(host)


def walls_of(host: Host) -> Sequence[quota_walls.Wall]:
    return list(quota_walls.every(host.store.shelf))


# -- one run -------------------------------------------------------------------------------------------------------


def test_at_a_wall_the_run_is_parked_until_the_reset_with_nothing_left_running(account: Account) -> None:
    host, before = account.host, datetime.now(UTC)
    account.says("usage limit reached. Try again in 1 hour")
    assert account.run("t") == 5, host.said("t")
    state, told = host.summary("t").state, account.parked("t")
    assert (state.status, state.cause, state.past.parks) == ("parked", "quota", 1)
    assert told.until is not None
    assert before + HOUR <= told.until <= datetime.now(UTC) + HOUR + timedelta(minutes=1)
    assert told.account
    assert "trying again at" in host.said("t")
    assert "no reset time" not in host.said("t")
    assert list(reap.find(state.run)) == [], "what it left behind was stopped"
    assert state.last_save, "and its files are saved"
    _, listed, _ = account("ls", task="t")
    assert f"parked until {told.until.astimezone():%H:%M}" in listed or "parked until 20" in listed
    assert "(quota)" in listed
    assert "goes on at once" in account("show", "t", task="t")[2]
    code, out, _ = account("resume", "--all")
    assert (code, "not woken" in out, "parked until" in out) == (0, True, True)
    assert len(account.began()) == 1, "nothing asks before the reset"


def test_it_goes_on_when_the_time_has_come_and_the_wall_is_forgotten(account: Account) -> None:
    account.says("usage limit reached. Try again in 1 hour")
    account.run("t")
    account.says("")
    account.time_comes("t")
    code, out, err = account("resume", "--all", "--parked")
    assert code == 0, out + err
    account.host.comes_to("t", "done")
    wait_for(lambda: not account.host.pids() or None, what="its supervisor to leave")
    assert account("resume", "--all", "--parked")[0] == 0
    assert walls_of(account.host) == [], "so that the service's timer starts nothing any more"


def test_without_a_reset_it_is_tried_again_after_half_an_hour_then_an_hour_then_a_person_must_look(
    account: Account,
) -> None:
    host = account.host
    account.says("insufficient_quota")
    for parks, wait in ((1, HOUR / 2), (2, HOUR)):
        before = datetime.now(UTC)
        if parks == 1:
            assert account.run("t", "--parks", "2") == 5
        else:
            account.time_comes("t")
            assert account("resume", "--all", "--parked")[0] == 0
            wait_for(lambda: host.summary("t").state.past.parks == 2 or None, what="the second wall")
            host.comes_to("t", "parked")
        told = account.parked("t")
        assert "no reset time was given" in told.evidence
        assert told.until is not None
        assert wait <= told.until - before <= wait + timedelta(minutes=2)
        wait_for(lambda: not host.pids() or None, what="nobody to look after it")
    assert "no reset time was given; trying again at" in host.said("t")
    account.time_comes("t")
    account("resume", "--all", "--parked")
    host.comes_to("t", "failed")
    state = host.summary("t").state
    assert (state.cause, state.wanted) == ("quota", True)
    assert "a limit was met 3 times without progress in between" in state.evidence
    wait_for(lambda: not host.pids() or None, what="its supervisor to leave")
    assert "needs a person" in host.log("t")
    assert account("resume", "--all")[1].count("failed") == 1
    account.says("")
    assert account("resume", "t", task="t")[0] == 0, "a person's word allows another try"


def test_a_rate_limit_is_tried_again_a_few_times_then_it_is_a_wall(account: Account) -> None:
    account.says("429 Too Many Requests")
    assert account.run("t") == 5, account.host.said("t")
    assert len(account.began()) == 3
    ends = [event.cause for event in account.host.events("t") if isinstance(event, ev.AttemptEnded)]
    assert ends == ["network", "network", "quota"]


def test_a_rate_limit_that_stands_for_minutes_is_a_wall_at_once(account: Account) -> None:
    account.says("429 Too Many Requests, try again in 10 minutes")
    assert account.run("t") == 5, account.host.said("t")
    assert len(account.began()) == 1


# -- all runs of an account ----------------------------------------------------------------------------------------


def test_one_wall_parks_all_runs_of_the_account_and_they_come_back_one_after_the_other(
    account: Account,
) -> None:
    host, tasks = account.host, ("a", "b", "c", "d")
    account.says("usage limit reached. Try again in 1 hour")
    assert account.run("a") == 5
    account.says("")
    for task in tasks[1:]:
        assert account.run(task) == 5, "although the provider would answer, it is not asked before the reset"
        assert "has met a limit" in host.said(task)
    assert len(account.began()) == 1
    untils = [until for task in tasks if (until := account.parked(task).until) is not None]
    assert [(later - one).total_seconds() for one, later in pairwise(untils)] == [APART_S] * 3
    assert [host.summary(task).state.past.parks for task in tasks] == [1, 0, 0, 0], "only a met it"
    account.time_comes(*tasks)
    code, out, err = account("resume", "--all", "--parked")
    assert code == 0, out + err
    for task in tasks:
        host.comes_to(task, "done")
    began = account.began()[1:]
    assert len(began) == 4
    assert max(began) - min(began) >= APART_S * 1.5, f"a storm: {began}"


def test_who_died_with_its_supervisor_waits_at_the_wall_that_another_met_and_keeps_its_work(
    account: Account,
) -> None:
    """At boot: one run was killed in mid-work, another of the account has met a wall."""
    host = account.host
    held = host.folder / "held" / "claude"
    held.parent.mkdir()
    held.write_text(HELD)
    held.chmod(0o755)
    host.start("killed", str(held), "-p", "x", **OURS)
    wait_for(lambda: (host.repository("killed") / "work.txt").exists() or None, what="some work")
    host.kill_everything()
    account.says("usage limit reached. Try again in 1 hour")
    assert account.run("a") == 5
    code, out, err = account("resume", "--all", "--json")
    assert code == 0, out + err
    told = {each["task"]: each for each in json.loads(out)}["killed"]
    assert (told["status"], told["wake"], told["started"]) == ("parked", False, None)
    state = host.summary("killed").state
    assert (state.status, state.attempts, state.attempt) == ("parked", 1, None)
    kinds = [event.kind for event in host.events("killed") if isinstance(event, ev.SaveMade)]
    assert "emergency" in kinds, "what it left is saved before it waits"


def test_a_persons_resume_goes_on_at_once_and_says_that_the_wall_may_stand(account: Account) -> None:
    host = account.host
    account.says("usage limit reached. Try again in 1 hour")
    assert [account.run(task) for task in ("a", "b")] == [5, 5]
    account.says("")
    assert account.run("b") == 5, "typed again it still waits, and says how it goes on"
    assert "`outlast resume b` goes on at once" in host.said("b")
    code, _, err = account("resume", "b", task="b")
    assert (code, host.status("b"), host.status("a")) == (0, "done", "parked"), err
    assert "The usage limit may not be over" in err


def test_two_that_wake_at_the_same_time_do_it_once(account: Account) -> None:
    account.says("usage limit reached. Try again in 1 hour")
    account.run("t")
    account.says("")
    account.time_comes("t")
    with alone(account.host.store) as first:
        assert first
        code, _, err = account("resume", "--all", "--parked")
        assert (code, "another `outlast resume --all` is running" in err) == (0, True)
    assert len(account.began()) == 1


def test_a_wall_that_cannot_be_read_keeps_nobody_from_working(account: Account) -> None:
    account.says("usage limit reached. Try again in 1 hour")
    account.run("a")
    for path in (account.host.root / "walls").iterdir():
        path.write_bytes(b'{"half')
    account.says("")
    assert account.run("b") == 0


# -- programs in Python --------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
import outlast
known = timedelta(minutes=5) if "known" in sys.argv else None
with outlast.run("py", workspace=".") as run:
    for beat in run.beats():
        Path("work.txt").write_text("half of the work")
        raise outlast.QuotaReached("429 from the provider", reset_at=known and datetime.now(UTC) + known, account="me")
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("more", "minutes"), [((), 30), (("known",), 5)])
def test_a_program_that_meets_a_wall_is_saved_and_parked(
    host: Host, more: tuple[str, ...], minutes: int
) -> None:
    program, before = host.folder / "program.py", datetime.now(UTC)
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), *more], cwd=host.repository("py"), env=host.environ(), capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "QuotaReached: 429 from the provider" in done.stderr
    state = host.summary("py").state
    assert (state.status, state.cause) == ("parked", "quota")
    assert state.parked_until is not None
    waits = state.parked_until - before
    assert timedelta(minutes=minutes) <= waits <= timedelta(minutes=minutes + 2)
    assert ("no reset time was given" in state.evidence) == (not more)
    saved = host("saves", "py", "--json", cwd=host.repository("py")).json
    assert saved, "the files of the beat in flight"
    assert "start its program then" in host("resume", "--all", "--dry-run").out


# -- lifted --------------------------------------------------------------------------------------------------------

TRIED_AT = re.compile(r"(?:tr(?:ying|ied) again at|next try was) ([0-9: -]{19})")


def test_a_run_that_works_again_lifts_the_wall_for_all_of_its_account(account: Account) -> None:
    host = account.host
    account.says("usage limit reached. Try again in 1 hour")
    assert (account.run("t"), account.run("u")) == (5, 5)
    account.says("")
    assert account("resume", "t", task="t")[0] == 0, host.said("t")
    assert account.run("v") == 0, host.said("v")
    stands = account("show", "u", "--json", task="u")[1]
    assert json.loads(stands)["standing"] == "due", "the one that waited may go on"
    assert account("resume", "--all", "--parked")[0] == 0
    host.comes_to("u", "done")


def test_an_attempt_that_began_before_the_wall_was_met_does_not_lift_it(host: Host) -> None:
    shelf, now = host.store.shelf, datetime.now(UTC)
    quota_walls.meet(shelf, "a", "one", reset_at=now + HOUR, parks=1, evidence="limit", apart_s=0)
    assert quota_walls.lift(shelf, "a", begun_at=now - timedelta(seconds=9)) == ()
    assert quota_walls.standing(shelf, "a", now) is not None
    assert quota_walls.lift(shelf, "a", begun_at=now + timedelta(seconds=9)) == ("one",)
    assert quota_walls.standing(shelf, "a", datetime.now(UTC)) is None


def test_resume_all_now_does_not_wait_for_the_reset(account: Account) -> None:
    account.says("usage limit reached. Try again in 1 hour")
    assert (account.run("t"), account.run("u")) == (5, 5)
    account.says("")
    assert account("resume", "--all", "--now", "--dry-run")[1].count("would wake") == 2
    assert len(account.began()) == 1, "nothing was started"
    code, out, err = account("resume", "--all", "--now")
    assert code == 0, out + err
    account.host.comes_to("t", "done")
    account.host.comes_to("u", "done")
    assert account.run("v") == 0, account.host.said("v")


def test_every_message_names_the_same_time(account: Account) -> None:
    account.says("usage limit reached. Try again in 1 hour")
    account.run("t")
    [parked] = TRIED_AT.findall(account.host.said("t"))
    _, said, _ = account("resume", "t", "--dry-run", task="t")
    assert TRIED_AT.findall(said) == [parked]
    until = account.parked("t").until
    assert until is not None
    assert parked == f"{until.astimezone():%Y-%m-%d %H:%M:%S}"
