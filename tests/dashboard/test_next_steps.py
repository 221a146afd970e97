"""After an act: the step that comes next, and commands that lead to this very store wherever they are pasted."""

import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from outlast import Run, settings
from outlast.core.text import pasteable
from outlast.dashboard.actions import forms, perform
from outlast.dashboard.documents import Wish
from outlast.errors import BudgetReached
from outlast.store import open_store
from outlast.store.protocol import Store
from tests.dashboard.dashboard import BY, Dashboard, interrupted
from tests.dashboard.test_actions import in_doubt
from tests.dashboard.test_actions_files import work as work, worked
from tests.supervisor.supervised_command import Night
from tests.support.environment import Isolated
from tests.support.journals.scribe import Scribe
from tests.support.processes import wait_for

COMMAND = re.compile(r"`(outlast [^`]*)`")


# -- the next step -----------------------------------------------------------------------------------------------------


def test_a_pause_leads_to_resume_and_a_cancel_to_nothing(
    dashboard: Dashboard, start: Callable[..., Run]
) -> None:
    interrupted(start)
    run = dashboard.summary().run
    for _ in range(2):  # also where it is paused already
        done = dashboard.do("pause")
        assert (done.next, done.next_run) == ("resume", run)
    done = dashboard.do("resume")
    assert (done.next, done.next_run) == (None, ""), "somebody's own program is not started from here"
    done = dashboard.do("cancel")
    assert (done.next, done.next_run, done.hint) == (None, "", "")


def test_more_budget_leads_to_resume(dashboard: Dashboard, night: Night, start: Callable[..., Run]) -> None:
    night.start("--task", "t", "--restarts", "1", "--budget", "beats=5", "--", "sh", "-c", "exit 1").wait()
    done = dashboard.do("budget", amounts="beats=+3")
    assert (done.ok, done.next, done.next_run) == (True, "resume", dashboard.summary().run)
    assert done.hint == f"`outlast resume {dashboard.summary().run}` lets it go on"
    interrupted(start, task="own", budget=["beats=5"])
    own = dashboard.do("budget", of="own", amounts="beats=+3")
    assert (own.ok, own.next, own.hint) == (True, None, "start its program, and it goes on")


def test_the_last_word_on_a_doubt_leads_to_resume(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    in_doubt(start)
    dashboard.do("pause")
    run = dashboard.summary().run
    for changed in (True, False):
        done = dashboard.do("settle", effect="1.1", finding="happened")
        assert (done.changed, done.next, done.next_run) == (changed, "resume", run)
        assert done.hint == f"`outlast resume {run}` lets it go on"


def test_with_two_in_doubt_the_other_one_comes_next(dashboard: Dashboard) -> None:
    told = Scribe(Random(1), datetime.now(UTC), "t", "p", "pay")
    told.start().call("pay", "ask", args=480).doubt("no answer").call("pay", "ask", args=12).doubt(
        "no answer"
    )
    dashboard.store.create(*told.stop("crash", "killed").journal)
    first = dashboard.foresee("settle", effect="1.2", finding="did_not")
    assert first.says[0] == "Effect 1.2 is: pay args=12", "two payments differ by what they were called with"
    assert dashboard.foresee("settle", effect="1.1").says[0] == "Effect 1.1 is: pay args=480"
    done = dashboard.do("settle", effect="1.1", finding="give_up")
    assert (done.next, done.next_run, "1 more in doubt" in done.says) == ("settle", told.run, True)
    done = dashboard.do("settle", effect="1.2", finding="give_up")
    assert (done.next, done.hint) == (None, "start its program, and it goes on")


def test_a_fork_leads_to_the_new_run_and_a_restore_to_its_folder(
    dashboard: Dashboard, start: Callable[..., Run], work: Path, tmp_path: Path
) -> None:
    worked(start, work)
    fork = dashboard.do("fork", beat=1, folder=str(tmp_path / "forked"))
    assert (fork.link, fork.next) == (dashboard.summary("t-fork-1").run, None), fork
    assert fork.folder == str(tmp_path / "forked")
    back = dashboard.do("restore", save=dashboard.summary().state.last_save, folder=str(tmp_path / "back"))
    assert (back.ok, back.link, back.folder) == (True, dashboard.summary().run, str(tmp_path / "back")), back


# -- what cannot be added to, or moved -----------------------------------------------------------------------------------


def test_of_a_run_that_has_nothing_left_no_fork_is_made_and_more_is_asked_for(
    dashboard: Dashboard, start: Callable[..., Run], tmp_path: Path
) -> None:
    with pytest.raises(BudgetReached), start(budget=["beats=2"]) as run:
        for beat in run.beats():
            beat.done()
    source = dashboard.summary().run
    says, hint = dashboard.refused("fork", beat=1)
    assert says == f"run {source} has no beats left, and a fork takes its share from there"
    [added] = COMMAND.findall(hint)
    words = [sys.executable, "-P", "-m", "outlast", *shlex.split(added)[1:]]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 0, hint
    said = dashboard.foresee("fork", beat=1, amounts="beats=1")
    assert not said.refused, said
    assert "`--budget beats=1` or less" in dashboard.refused("fork", beat=1, amounts="tokens=1k")[1]


def test_to_no_limit_nothing_is_added(dashboard: Dashboard, start: Callable[..., Run]) -> None:
    interrupted(start)
    run = dashboard.summary().run
    says, hint = dashboard.refused("budget", amounts="+200k")
    assert says == f"run {run} has no limit to raise: it may go on as it is"
    assert hint == f"`outlast resume {run} --budget 400k` sets one"
    assert dashboard.foresee("budget").refused == says
    assert dashboard.foresee("budget").takes == (), "there is nothing that could be put right"
    interrupted(start, task="beats", budget=["beats=5"])
    says, hint = dashboard.refused("budget", of="beats", amounts="+200k")
    assert says.endswith("has no limit of tokens to raise")
    assert hint.startswith("it has limits of beats; `outlast resume")


# -- when a pause takes hold -----------------------------------------------------------------------------------------------


def test_a_pause_says_what_is_true_of_who_works(
    dashboard: Dashboard, start: Callable[..., Run], night: Night
) -> None:
    with start(task="own") as run:
        for beat in run.beats():
            assert (
                dashboard.foresee("pause", of="own")
                .says[0]
                .startswith("The program is asked to stop at its next beat")
            )
            assert "applies it at its next beat or act" in dashboard.do("cancel", of="own").says
            beat.finish()
            break
    night.start("--task", "t", "--", "sh", "-c", "touch ../ready-1; sleep 3000")
    wait_for(lambda: (night.folder / "ready-1").exists() or None, what="the command")
    said = dashboard.foresee("pause")
    assert said.says[0].startswith("Its command is stopped at once, in the middle of what it does")
    assert "started again from its beginning" in said.says[1]
    assert "saves its files and stops the command" in dashboard.do("pause").says
    dashboard.comes_to("paused")


# -- commands that can be pasted ---------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, state: Isolated) -> Store:
    store = open_store(tmp_path / "it's elsewhere")
    told = Scribe(Random(1), datetime.now(UTC), "t", "p", "pay").start().beat("one").stop("crash", "killed")
    store.create(*told.journal)
    return store


def test_commands_in_sentences_lead_to_the_store(elsewhere: Store, tmp_path: Path) -> None:
    run = Dashboard(elsewhere).summary().run
    for text in (
        perform.do(elsewhere, Wish(act="pause", run=run), BY).hint,
        perform.do(elsewhere, Wish(act="settle", run=run), BY).hint,
        perform.foresee(elsewhere, Wish(act="fork", run=run, beat=7)).hint,
        perform.do(elsewhere, Wish(act="fork", run=run, beat=7), BY).hint,
    ):
        [command] = COMMAND.findall(text)
        words = [sys.executable, "-P", "-m", "outlast", *shlex.split(command)[1:]]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, (command, answer.stderr)
    elsewhere.close()


def test_only_the_plain_place_needs_no_name(
    tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = f"sqlite://{state.state_home}/outlast/outlast.db"
    other = f"sqlite://{tmp_path}/other/outlast.db"
    monkeypatch.chdir(tmp_path)
    assert forms.there(plain) == ()
    assert forms.there(other) == ("--store", other)
    monkeypatch.setenv("OUTLAST_STORE", str(tmp_path / "other"))
    assert forms.there(other) == ("--store", other), "another shell has no such variable"
    assert forms.there(plain) == ("--store", plain), "and here it leads away"


def test_an_option_is_put_into_our_commands_only_and_once() -> None:
    text = "see `outlast show x`, `outlast --store y ls`, `outlast.run(…)` or `git log`"
    there = "--store '/a b'"
    once = "see `outlast --store '/a b' show x`, `outlast --store y ls`, `outlast.run(…)` or `git log`"
    assert pasteable(text, there) == pasteable(once, there) == once
    assert pasteable(text, "") == text


def test_who_asks_is_known_by_name_without_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")
    assert settings.user_name() == "ada"
    for name in ("USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    assert settings.user_name() == pwd.getpwuid(os.getuid()).pw_name
    assert settings.name_of(2**31 - 7) == f"uid {2**31 - 7}"
