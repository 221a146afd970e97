"""What a person reads names the thing: the command of a call, what changed, what was left out, how many, since when."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import outlast
from outlast.cli.terminal import messages
from outlast.core import budget as budgets, events as ev, state as st
from outlast.core.forecast import Estimate, Forecast
from outlast.core.text import act_words, call_words
from outlast.core.values import Allowance, Contract, SessionMark, Usage
from outlast.inspect import forecast
from outlast.runs.opening.project import project_of
from outlast.store import open_store
from tests.cli.command_line import Cli, work
from tests.support.journals.scribe import payload

NOW = datetime.now(UTC)
KEY = "sk-ant-" + "api03-" + "Zq7" * 12
COMMAND = f"npm test -- --token {KEY}"


def agent_run(cli: Cli, *events: ev.AnyEvent) -> str:
    """A killed run of an agent with one call of Bash that ended, and one that did not; its id."""
    run = "runofanagent"
    opened = ev.RunOpened(
        at=NOW,
        run=run,
        task="a",
        project=project_of(cli.folder),
        contract=Contract("mend it"),
        launch=payload({}),
    )
    began = ev.AttemptStarted(at=NOW, epoch=1)
    store = open_store(cli.root)
    store.create(opened, [began, ev.BeatBegun(at=NOW, beat=1), *call(1, COMMAND), *events])
    store.close()
    return run


def call(n: int, command: str, *, ends: bool = True) -> list[ev.AnyEvent]:
    args = payload({"tool": "Bash", "input": {"command": command, "timeout": 9}})
    intent = ev.EffectIntended(
        at=NOW,
        beat=1,
        n=n,
        name="Bash",
        occurrence=1,
        key=f"toolu_{n}",
        own_key=True,
        args=args,
        policy="tell",
    )
    return (
        [intent, ev.EffectConfirmed(at=NOW, beat=1, n=n, result=payload({"ok": True}))] if ends else [intent]
    )


# --- the command of a call ----------------------------------------------------------------------------------------------


def test_effects_show_and_context_name_the_command_of_a_call_with_its_secrets_masked(cli: Cli) -> None:
    agent_run(cli, *call(2, "make deploy-staging", ends=False))
    for words in (["effects", "a"], ["show", "a"], ["context", "a"]):
        text = cli.ok(*words).out
        assert "npm test -- --token" in text, words
        assert "make deploy-staging" in text, words
        assert KEY not in text, words


@pytest.mark.parametrize(
    ("tool", "given", "told"),
    [
        ("Bash", {"command": "git push", "timeout": 9}, "Bash git push"),
        ("shell", {"command": ["bash", "-lc", "ls"]}, "shell bash -lc ls"),
        ("Read", {"file_path": "/a b"}, "Read /a b"),
        ("Task", {}, "Task"),
        ("Odd", {"n": 3}, 'Odd {"n":3}'),
        ("Odd", None, "Odd"),
    ],
)
def test_a_call_is_told_by_its_tool_and_what_it_was_asked_to_do(tool: str, given: object, told: str) -> None:
    assert call_words(tool, given) == told
    assert act_words(tool, json.dumps({"tool": tool, "input": given}).encode()) == told


# --- what was spent -----------------------------------------------------------------------------------------------------


def test_show_and_report_have_one_sum_with_what_a_killed_attempt_was_charged_marked_as_an_estimate(
    cli: Cli,
) -> None:
    done = ev.BeatDone(at=NOW, beat=1, spent=Usage(input=60_000, output=964))
    lost = ev.AttemptEnded(
        at=NOW, epoch=1, status="interrupted", cause="crash", spent=Usage(output=12_038, estimated=True)
    )
    agent_run(cli, done, lost)
    shown, [row] = cli.ok("show", "a", "--json").json, cli("report", "--json").json["runs"]
    assert shown["budget"]["spent"]["tokens"] == row["tokens"] == 73_002
    assert "~73,002 tokens" in cli.ok("show", "a").out
    assert cli("report").out.count("~73,002 tokens") == 2, "of the run, and of all"


# --- small words --------------------------------------------------------------------------------------------------------


def test_show_names_the_project_by_its_folder(cli: Cli) -> None:
    run = agent_run(cli)
    store = open_store(cli.root)
    opened = store.read(run, after=0, limit=1).events[0].event
    assert isinstance(opened, ev.RunOpened)
    store.create(
        ev.RunOpened(at=NOW, run="runelsewhere", task="b", project="/src/app/.git", contract=Contract())
    )
    store.close()
    assert "project /src/app\n" in cli.ok("show", "runelsewhere").out


def test_ls_says_why_a_run_stopped(cli: Cli) -> None:
    work(beats=1)
    cli.ok("kill", "1411")
    assert cli.ok("ls", "--json").json[0]["why"].startswith("interrupted: operator: ")
    first, row = cli.ok("ls").out.splitlines()
    assert first.endswith("WHY")
    assert "operator: " in row


def test_one_beat_is_one_beat(cli: Cli) -> None:
    work(beats=1)
    assert "1 beat," in cli("report").out
    assert "1 beats" not in cli("report").out + cli.ok("context", "1411").out


def test_a_check_that_fails_in_silence_is_said_to_have_printed_nothing(cli: Cli) -> None:
    with pytest.raises(outlast.ChecksFailed) as failed, outlast.run("t", done=["exit 7"]) as run:
        for beat in run.beats():
            beat.finish()
            beat.done()
    assert "failed with 7, and printed nothing" in str(failed.value)


def test_no_option_is_guessed_from_its_beginning(cli: Cli) -> None:
    refused = cli("ls", "--al")
    assert refused.code == 2
    assert "--all" in refused.err, "the nearest is named"


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"goal": "other"}, "goal 'first', not 'other'"),
        ({"done": ["true", "false"]}, "checks 'true', not 'true' and 'false'"),
        ({"budget": "9k"}, "tokens 8,000, not 9,000"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_changed_contract_says_what_changed(cli: Cli, terms: dict[str, object], told: str) -> None:
    first: dict[str, object] = {"goal": "first", "done": ["true"], "budget": "8k"}
    with outlast.run("t", **first) as run:  # type: ignore[arg-type]
        assert run.id
    with pytest.raises(outlast.ContractChanged) as refused, outlast.run("t", **first | terms):  # type: ignore[arg-type]
        pass
    assert told in str(refused.value)


def test_a_save_names_what_it_left_out(cli: Cli) -> None:
    (cli.folder / ".env").write_text("API_KEY=abc\n")
    (cli.folder / "a.txt").write_text("one\n")
    cli.ok("save")
    assert "1: .env" in cli.ok("saves").out


def test_a_pause_is_shown_while_it_lasts(cli: Cli) -> None:
    with pytest.raises(outlast.RunPaused), outlast.run("t") as run:
        for beat in run.beats():
            cli.forked("pause", "t")
            assert "to pause by " in cli.forked("show", "t").out
            assert cli.forked("ls", "--json").json[0]["why"].startswith("asked to pause by ")
            beat.done()


def test_a_moment_is_told_by_the_readers_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert (
            messages.local("parked until 2026-11-16 18:30 UTC: a wall")
            == "parked until 2026-11-17 03:30: a wall"
        )
    finally:
        monkeypatch.undo()
        time.tzset()


# --- budgets ------------------------------------------------------------------------------------------------------------


def estimate(sure: str) -> Estimate:
    return Estimate(p50=30, p90=60, runs=9, similar=0, sure=sure)  # type: ignore[arg-type]


@pytest.mark.parametrize(("sure", "limits"), [("default", False), ("guess", False), ("rough", True)])
def test_a_guess_never_limits_the_time(sure: str, limits: bool) -> None:
    found = forecast.allowance(Forecast(tokens=estimate("good"), time_s=estimate(sure)))
    assert (found.time_s is not None) == limits


def test_a_hint_of_more_budget_lasts_for_twenty_turns_as_the_turns_so_far_went() -> None:
    head = st.RunState(
        run="r", beats=10, spent=Usage(output=100_000), budget=Allowance(tokens=100_000, reserve_pct=0),
        session=SessionMark("claude", "s"),
    )  # fmt: skip
    assert budgets.increase_hint(head) == "--budget +200k"
    assert (
        budgets.increase_hint(st.RunState(run="r", spent=Usage(output=9), budget=Allowance(tokens=9)))
        == "--budget +4"
    )


def test_no_rate_is_told_of_a_life_of_two_seconds(cli: Cli) -> None:
    for lived_ms, told in ((2_000, False), (61_000, True)):
        run = f"lived{lived_ms}abc"
        opened = ev.RunOpened(at=NOW, run=run, task=run, project=project_of(cli.folder), contract=Contract())
        began = ev.AttemptStarted(at=NOW, epoch=1)
        done = ev.BeatDone(at=NOW, beat=1, spent=Usage(output=20_000))
        end = ev.AttemptEnded(
            at=NOW, epoch=1, status="interrupted", cause="crash", spent=Usage(time_ms=lived_ms)
        )
        store = open_store(cli.root)
        store.create(opened, [began, done, end])
        store.close()
        units = cli.ok("budget", run, "--json").json["units"]
        [tokens] = [unit for unit in units if unit["unit"] == "tokens"]
        assert (tokens["per_hour"] is not None) == told


def test_the_name_of_a_task_stands_in_every_message_as_it_is() -> None:
    """Not in Python's quotes, as nowhere else."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in Path(outlast.__file__).parent.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\btask \{[^}]*!r\}", line)
    ]
    assert found == []
