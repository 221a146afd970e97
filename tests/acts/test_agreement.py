"""Page, API and command refuse the same things with the same words, and do the same: every act, choice and status."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, get_args
from urllib.parse import urlencode

import msgspec
import pytest

from outlast import settings
from outlast.acts.plan import ActName
from outlast.cli.main import main
from outlast.core import events as ev, statuses
from outlast.core.events import Finding
from outlast.core.state import Status
from outlast.core.values import Allowance
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import Wish
from outlast.inspect import find
from outlast.operations import requests
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import Store
from tests.support.environment import Isolated
from tests.support.journals.scribe import Scribe
from tests.web.server import ui

SEED = 20261116


@dataclass(frozen=True)
class Choice:
    """What somebody chooses: the fields of the page, and the words of the command. No words: only a page can say it."""

    act: ActName
    fields: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] | None = ()


OPTIONS = {"happened": "--happened", "did_not": "--did-not", "give_up": "--give-up", "cannot_tell": None}


def _settle(finding: Finding, effect: str = "3.1", result: str = "") -> Choice:
    option, given = OPTIONS[finding], ("--result", result) if result else ()
    words = None if option is None else (effect, option, *given)
    return Choice("settle", {"effect": effect, "finding": finding, "result": result}, words)


def _amounts(act: ActName, option: str, given: str) -> Choice:
    return Choice(act, {"amounts": given}, (option, given))


def _fork(beat: int, task: str = "", amounts: str = "beats=2") -> Choice:
    named = ("--task", task) if task else ()
    moved = tuple(word for each in amounts.split() for word in ("--budget", each))
    return Choice(
        "fork", {"beat": beat, "task": task, "amounts": amounts}, ("--at", str(beat), *named, *moved, "--yes")
    )


CHOICES: tuple[Choice, ...] = (
    Choice("pause"),
    Choice("cancel"),
    Choice("resume"),
    *(_amounts("resume", "--budget", given) for given in ("beats=+3", "beats=20", "usd=+1", "nonsense", "beats=1")),
    Choice("resume", {"amounts": "until=+8h"}, ("--until", "+8h")),
    *(_amounts("budget", "--add", given) for given in ("beats=+3", "beats=3", "usd=+1", "nonsense", "+0")),
    *(_settle(finding) for finding in get_args(Finding)),
    *(_settle(finding, "9.9") for finding in get_args(Finding)),
    *(_settle(finding, result="7") for finding in get_args(Finding)),
    _settle("happened", result='{"url"'),
    *(_fork(beat) for beat in (0, 1, 2, 3)),
    _fork(1, amounts=""),
    _fork(1, amounts="usd=1"),
    _fork(1, amounts="beats=900"),
    _fork(1, task="taken"),
    Choice("approve"),
    Choice("approve", {"question": "a1"}, ("a1",)),
    Choice("approve", {"question": "a9"}, ("a9",)),
    Choice("reject", {"question": "a1", "text": "not now"}, ("a1", "--why", "not now")),
    Choice("answer", {"question": "q2", "text": "v2"}, ("v2", "--id", "q2")),
    Choice("answer", {"question": "q2", "text": "v3"}, ("v3", "--id", "q2")),
    Choice("answer", {"question": "a1", "text": "v2"}, ("v2", "--id", "a1")),
)  # fmt: skip


def test_the_table_has_every_act_and_every_finding() -> None:
    """A restore needs files: tests/dashboard/test_actions.py and tests/cli/test_saves.py have its folders."""
    assert {choice.act for choice in CHOICES} == set(get_args(ActName)) - {"restore"}
    assert set(OPTIONS) == set(get_args(Finding))


# -- runs of every status ----------------------------------------------------------------------------------------------


def written(store: Store, status: Status, number: int) -> Scribe:
    """A run of two beats of a program of somebody's own, with an effect in doubt unless its status forbids that."""
    told = Scribe(
        Random(SEED + number), datetime.now(UTC), f"t{number}", "p", "pay", budget=Allowance(beats=12)
    )
    told.start().beat("one").beat("two")
    if status not in ("interrupted", "done"):
        told.call("pay", "ask", args=480).doubt("no answer")
    if status != "done":
        told.say(
            ev.QuestionAsked(at=told.at, id="a1", kind="approval", text="pay: 480", digest="d"),
            ev.QuestionAsked(
                at=told.at, id="q2", kind="question", text="which?", choices=("v1", "v2"), digest="e"
            ),
        )
    match status:
        case "done":
            told.done()
        case "interrupted" | "in_doubt":
            told.stop("crash", "killed")
        case "parked":
            told.stop("quota", "usage limit").park(None, "quota", "usage limit")
        case "paused" | "failed" | "cancelled" | "handed_off":
            told.stop("operator", "somebody asked", status=status, wanted=True)
        case "running":
            pass
    store.create(*told.journal)
    return told


class TwinStores:
    """Two stores with the same runs: what a page does to the one, a command does to the other."""

    def __init__(self, folder: Path, status: Status) -> None:
        self.pages, self.commands = (open_store(folder / name) for name in ("pages", "commands"))
        for store in (self.pages, self.commands):
            taken = (
                Scribe(Random(1), datetime.now(UTC), "taken", "p", "another run")
                .start()
                .stop("crash", "killed")
            )
            store.create(*taken.journal)
            self.runs = [written(store, status, number).run for number in range(len(CHOICES))]
        self.leases = []
        if status == "running":
            self.leases = [
                (store, store.claim(run)) for store in (self.pages, self.commands) for run in self.runs
            ]

    def close(self) -> None:
        for store, lease in self.leases:
            store.release(lease)
        self.pages.close()
        self.commands.close()


@pytest.fixture(params=statuses.STATUSES)
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TwinStores]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TIMING, "acts.sure_after_s=0.01")
    made = TwinStores(tmp_path, request.param)
    for store in (made.pages, made.commands):
        for run in made.runs:
            assert find.shown_status(store, requests.summary_of(store, run).state, run) == request.param
    yield made
    made.close()
    settings.tolerate(None)  # as a process that acts does, and this one is others' too


# -- what they say -----------------------------------------------------------------------------------------------------


def plain(text: str, run: str) -> str:
    """A sentence without what differs between two stores: the option that leads there, and the id of a fork."""
    text = re.sub(r" --store \S+", "", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "THEN", text)
    return re.sub(r"\b[a-z][a-z2-9]{11}\b", lambda found: found[0] if found[0] == run else "FORK", text)


def left_by(store: Store, run: str) -> tuple[Any, ...]:
    """What an act leaves behind, but for times and names."""
    state = requests.summary_of(store, run).state
    asked = [(each.what, re.sub(rb'"run":"\w+"', b"", each.args)) for each in store.inbox.pending(run)]
    until = state.budget is not None and state.budget.until is not None
    limits = None if state.budget is None else (state.budget.beats, state.budget.cost_microusd, until)
    asked = [(what, b"" if b"until" in args else args) for what, args in asked]
    return state.status, limits, [each.id for each in state.in_doubt], asked, state.parked_until


def test_page_and_command_refuse_the_same_with_the_same_words_and_do_the_same(
    pair: TwinStores, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, choice in zip(pair.runs, CHOICES, strict=True):
        wish = Wish(act=choice.act, run=run, **choice.fields)
        foreseen = perform.foresee(pair.pages, wish)
        if choice.fields.get("amounts") == "" and choice.act == "fork":
            foreseen = None  # the page offers half, which nobody has asked for yet
        done = perform.do(pair.pages, wish, "ada")
        if foreseen is not None:
            assert foreseen.refused == ("" if done.ok else done.says), (choice, done)
            assert bool(foreseen.says) == done.ok, (choice, foreseen)
        if choice.words is None:
            assert not done.ok, (choice, done)
            continue
        code = main([choice.act, run, *choice.words, "--store", pair.commands.url])
        said = [plain(line, run) for line in capsys.readouterr().err.splitlines()]
        if done.ok:
            assert code == 0, (choice, said)
            assert plain(done.says, run) in said, choice
        else:
            assert code not in (0, 70), (choice, done.says, said)
            hint = plain(done.hint, run)
            assert (said[0], len(said)) == (f"error: {plain(done.says, run)}", 2), choice
            assert said[1] == f"hint: {hint}" or "again" in hint, choice
        assert left_by(pair.pages, run) == left_by(pair.commands, run), choice


def test_the_api_answers_every_choice_as_the_page_does(pair: TwinStores) -> None:
    with ui(pair.pages.local.folder) as web:
        for run, choice in zip(pair.runs, CHOICES, strict=True):
            foreseen = perform.foresee(pair.pages, Wish(act=choice.act, run=run, **choice.fields))
            asked = {name: value for name, value in choice.fields.items() if value != ""}
            heard = web.ask(f"/api/runs/{run}/acts/{choice.act}?{urlencode(asked)}")
            assert heard.status == 200, (choice, heard.text)
            assert heard.json["refused"] == foreseen.refused, choice
            assert [plain(each, run) for each in heard.json["says"]] == [
                plain(each, run) for each in foreseen.says
            ], choice
            if foreseen.refused:
                posted = web.post(f"/api/runs/{run}/acts/{choice.act}", asked)
                assert (posted.status, posted.json["error"]) == (409, foreseen.refused), choice


def test_a_dry_run_of_resume_prints_what_the_page_asks(
    pair: TwinStores, capsys: pytest.CaptureFixture[str]
) -> None:
    for run, choice in zip(pair.runs, CHOICES, strict=True):
        if choice.act != "resume" or choice.words is None:
            continue
        foreseen = perform.foresee(pair.pages, Wish(act="resume", run=run, **choice.fields))
        code = main(["resume", run, *choice.words, "--dry-run", "--store", pair.commands.url])
        said = capsys.readouterr()
        asks = any("would stop at once" in sentence for sentence in foreseen.says)
        assert code == (2 if foreseen.refused else 3 if asks else 0), choice
        wanted = [plain(sentence, run) for sentence in foreseen.says]
        assert [plain(line, run) for line in said.out.splitlines()] == wanted, choice


def test_a_running_run_keeps_its_budget_and_says_so_when_a_resume_brings_one(
    tmp_path: Path, state: Isolated
) -> None:
    pair = TwinStores(tmp_path, "running")
    run = pair.runs[0]
    done = perform.do(pair.pages, Wish(act="resume", run=run, amounts="beats=+3"), "ada")
    assert not done.ok
    assert "is running, and its budget was not changed" in done.says
    assert f"budget {run} --add beats=3" in done.hint
    pair.close()


def test_more_budget_beside_a_move_that_a_killed_holder_left_tells_the_sum_of_both(
    tmp_path: Path, state: Isolated, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = TwinStores(tmp_path, "interrupted")
    run = pair.runs[0]
    for store in (pair.pages, pair.commands):
        store.inbox.put(run, by="bob", what="less", args=msgspec.json.encode(Allowance(beats=5)))
    foreseen = perform.foresee(pair.pages, Wish(act="budget", run=run, amounts="beats=+3"))
    assert "becomes 10 beats; it was 7 beats" in foreseen.says[0]
    done = perform.do(pair.pages, Wish(act="budget", run=run, amounts="beats=+3"), "ada")
    assert main(["budget", run, "--add", "beats=3", "--store", pair.commands.url]) == 0
    for said in (done.says, capsys.readouterr().err):
        assert "its budget is 10 beats now" in said
    for store in (pair.pages, pair.commands):
        budget = requests.summary_of(store, run).state.budget
        assert budget is not None
        assert budget.beats == 10
    pair.close()


def test_a_fork_of_the_same_name_with_another_amount_is_refused_and_the_same_amount_is_found_again(
    tmp_path: Path, state: Isolated
) -> None:
    pair = TwinStores(tmp_path, "interrupted")
    wish = Wish(act="fork", run=pair.runs[0], beat=1, task="mine", amounts="beats=2")
    first = perform.do(pair.pages, wish, "ada")
    assert (first.ok, first.changed) == (True, True), first
    again = perform.do(pair.pages, wish, "ada")
    assert (again.ok, again.changed, again.link) == (True, False, first.link), again
    other = perform.do(pair.pages, msgspec.structs.replace(wish, amounts="beats=4"), "ada")
    assert (other.ok, other.changed) == (False, False), other
    assert f"that fork, run {first.link}, was made with a budget of 3 beats, not 5 beats" in other.says
    pair.close()
