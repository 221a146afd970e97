"""What a command says a run goes on with, pasted into a shell as it stands, makes it go on."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast.core import budget as budgets
from outlast.core.values import Usage
from outlast.runs.opening import terms
from tests.cli.command_line import Cli, unknown_outcome, work
from tests.cli.test_budget import STEPS, carried
from tests.cli.test_hints import hinted
from tests.core.test_budget import opened
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, need_tool

OUT_OF_BUDGET = 4


def paste(cli: Cli, command: str) -> Answer:
    """What a person does with a hint; `outlast` is on the PATH of what it starts, too."""
    done = subprocess.run(
        [need_tool("bash"), "-c", command],
        cwd=cli.folder,
        env=cli.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OUTLAST_RESTART_WAIT_S": "0.05"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


def spent(cli: Cli, *more: str) -> None:
    """A run whose only beat is done, and which has two more steps to do."""
    done = carried(cli, "run", "--task", "t", "--budget", "beats=1", *more, "--", *STEPS)
    assert done.code == OUT_OF_BUDGET, done.err


def goes_on(cli: Cli, command: str) -> None:
    """One more beat is done, and it does not stop before."""
    before = cli.ok("show", "t", "--json").json["beats"]
    done = paste(cli, command)
    after = cli.ok("show", "t", "--json").json["beats"]
    assert after > before, done.err


# -- a budget that is spent --------------------------------------------------------------------------------------------


def test_a_pause_of_a_spent_run_says_what_lets_it_go_on(cli: Cli) -> None:
    spent(cli)
    (command,) = hinted(cli.ok("pause", "t").err)
    assert command.endswith("--budget beats=+1")
    goes_on(cli, command)


@pytest.mark.parametrize("words", [["report"], ["show", "t"], ["top", "--once"]], ids=lambda words: words[0])
def test_every_list_names_the_same_command_for_a_spent_run_that_is_paused(cli: Cli, words: list[str]) -> None:
    spent(cli)
    (command,) = hinted(cli.ok("pause", "t").err)
    answer = cli(*words)
    assert command.partition(" --budget ")[2] in answer.out + answer.err
    row = cli("report", "--json").json["runs"][0]
    assert row["command"] == command
    goes_on(cli, row["command"])


def test_a_start_of_a_spent_run_that_is_paused_is_refused_with_what_lets_it_go_on(cli: Cli) -> None:
    spent(cli)
    cli.ok("pause", "t")
    refused = carried(cli, "run", "--task", "t", "--budget", "beats=1", "--", *STEPS)
    goes_on(cli, hinted(refused.err)[0])


def test_a_spent_run_that_was_taken_back_is_out_of_budget(cli: Cli) -> None:
    spent(cli)
    cli.ok("handoff", "t")
    cli.ok("handoff", "t", "--take-back")
    told = cli.ok("show", "t")
    assert "out of budget" in told.out.splitlines()[0]
    assert cli.ok("show", "t", "--json").json["standing"] == "out_of_budget"
    goes_on(cli, hinted(told.err)[-1])


@pytest.mark.parametrize("tokens", [9, 10, 14, 15, 40, 19_999, 20_000, 29_500, 31_000, 90_000])
def test_the_hint_names_every_limit_that_is_spent_and_enough_of_each(tokens: int) -> None:
    """Also where more was spent than the limit, and where the amount is rounded."""
    for limit in (10, 20_000):
        head = opened(tokens=limit, beats=1, time_s=7)
        head = msgspec.structs.replace(head, spent=Usage(output=max(tokens, limit), time_ms=9_000), beats=1)
        options = budgets.increase_hint(head, budgets.Live(datetime.now(UTC))).split(" ")
        assert options[::2] == ["--budget"] * 3
        assert terms.raised(head, options[1::2]).beats == 2


@pytest.mark.parametrize("unit", ["200k", "usd=5", "time=1h"])
def test_a_limit_that_the_run_does_not_have_is_set_by_what_the_hint_says(cli: Cli, unit: str) -> None:
    spent(cli)
    refused = cli("budget", "t", "--add", unit)
    assert refused.code == 2
    (command,) = hinted(refused.err)
    goes_on(cli, command)
    limits = cli.ok("show", "t", "--json").json["budget"]
    field = {"200k": "tokens", "usd=5": "cost_microusd", "time=1h": "time_s"}[unit]
    assert limits[field] is not None


def test_too_little_budget_is_refused_with_what_is_enough(cli: Cli) -> None:
    spent(cli, "--budget", "time=1h")
    for words in (["--budget", "400k"], ["--budget", "beats=1"], ["--budget", "time=+1h"]):
        refused = cli("resume", "t", *words)
        assert refused.code == 2, words
        (command,) = hinted(refused.err)
        dry = paste(cli, f"{command} --dry-run")
        assert dry.code == 0, (words, dry.err)
    added = cli("budget", "t", "--add", "time=1h")
    assert added.code == 2
    (command,) = hinted(added.err)
    assert paste(cli, command).code == 0
    limits = cli.ok("show", "t", "--json").json["budget"]
    assert (limits["beats"], limits["time_s"]) == (2, 7_200)
    goes_on(cli, hinted(cli.ok("show", "t").err)[-1])


# -- a doubt -----------------------------------------------------------------------------------------------------------


def in_doubt() -> None:
    with pytest.raises(outlast.EffectInDoubt), outlast.run("i") as run:
        for beat in run.beats():
            beat.act("pay", unknown_outcome, unknown="ask")


@pytest.mark.parametrize("act", ["kill", "pause"])
def test_a_run_in_doubt_is_settled_before_it_is_said_to_go_on(cli: Cli, act: str) -> None:
    in_doubt()
    happened, did_not, _ = hinted(cli.ok(act, "i").err)
    assert (happened.endswith("--happened"), did_not.endswith("--did-not")) == (True, True)
    assert paste(cli, happened).code == 0
    assert cli.ok("show", "i", "--json").json["effects"][0]["state"] == "confirmed"
    if act == "pause":
        assert paste(cli, hinted(cli.ok("show", "i").err)[-1]).code == 0


# -- why, for programs -------------------------------------------------------------------------------------------------


def test_json_says_why_with_the_status_and_people_read_it_without(cli: Cli) -> None:
    work(beats=1)
    cli.ok("kill", "1411")
    cli.ok("pause", "1411")
    for words in (["report"], ["top", "--once"]):
        told = cli(*words, "--json").json
        why = (told.get("runs") or told["rows"])[0]["why"]
        assert why.startswith("paused: operator: "), why
        people = cli(*words).out
        assert why.removeprefix("paused: ") in people
        assert "paused: operator" not in people


# -- a fork ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["beats=2", "beats=9"], ids=["spent", "some left"])
def test_a_restore_says_how_a_fork_of_a_run_with_a_budget_is_made(cli: Cli, budget: str) -> None:
    paste(cli, "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x")
    steps = (
        "sh",
        "-c",
        "outlast step a -- touch a && outlast step b -- touch b && outlast step c -- sh -c 'exit 1'",
    )
    carried(cli, "run", "--task", "t", "--restarts", "1", "--budget", budget, "--budget", "500", "--", *steps)
    told = cli.ok("restore", "t", "--force").err
    commands = hinted(told)
    assert commands, told
    for command in commands:
        done = paste(cli, command.replace("DIR", "../forked"))
        assert done.code == 0, (command, done.err)
    assert (cli.folder.parent / "forked" / "a").exists()


# -- others ------------------------------------------------------------------------------------------------------------


def test_doctor_says_one_thing_once(cli: Cli) -> None:
    work(beats=1)
    store = next(Path(cli.environ["XDG_STATE_HOME"]).rglob("*.db"))
    store.write_bytes(b"no database" * 1000)
    lines = cli("doctor").out.splitlines()
    assert sum(line.startswith("NEEDS A PERSON store:") for line in lines) == 1, lines
