"""`outlast budget`, the flags that set one, and going on with more: by the real command line."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from tests.cli.command_line import Cli
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S

USAGE = outlast.Usage(input=60, output=20, cache_read=15, cache_write=5, cost_microusd=1_000)


def spend(*, beats: int, task: str = "1411", usage: outlast.Usage = USAGE, **terms: Any) -> str:
    """Some beats, each with a decision, two calls of one tool and one of another; its id."""
    with outlast.run(task, goal="Trap exit signals", **terms) as run:
        run.plan([f"step {number}" for number in range(10)])
        for beat in run.beats():
            if beat.number > beats:
                break
            beat.decide("draft", lambda: outlast.Answer("text", outlast.Usage(output=7)))
            for name in ("read", "read", "write"):
                beat.act(name, lambda: None)
            beat.spend(usage)
            beat.done()
            if "workspace" in terms:
                Path("notes.txt").write_text(f"after beat {beat.number}")
    return run.id


def told_of(cli: Cli, *words: str) -> Any:
    answer = cli.forked("budget", *words, "--json")
    assert answer.code == 0, answer.err
    return answer.json


def unit(told: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (each for each in told["units"] if each["unit"] == name)
    return found  # type: ignore[no-any-return]


# -- what it tells -----------------------------------------------------------------------------------------------------


def test_every_unit_tells_what_is_spent_and_left(cli: Cli) -> None:
    run = spend(beats=3, budget=["2k", "usd=1", "time=2h", "beats=20"])
    told = told_of(cli, "1411")
    assert (told["run"], told["status"], told["beats"], told["plan_total"]) == (run, "interrupted", 3, 10)
    tokens = unit(told, "tokens")
    assert (tokens["limit"], tokens["spent"], tokens["left"]) == (2_000, 321, 1_679)
    assert (tokens["used_pct"], tokens["forecast"]) == (16.1, 1_070)
    assert tokens["kept"] >= 200, "a tenth, or what an ending takes"
    assert tokens["per_hour_now"] == 321
    assert tokens["per_hour"] is None, "a life of less than a minute says nothing about an hour"
    assert (unit(told, "usd")["spent"], unit(told, "usd")["left"]) == (3_000, 997_000)
    assert (unit(told, "beats")["spent"], unit(told, "beats")["left"]) == (3, 17)
    assert unit(told, "time")["limit"] == 7_200
    spent = told["spent"]
    kinds = [spent[kind] for kind in ("input", "output", "cache_read", "cache_write")]
    assert kinds == [180, 81, 45, 15]
    assert told["reserved"] is None, "no attempt is open"
    assert unit(told, "tokens")["reserved"] == 0


def test_the_parts_add_up_to_the_whole_by_beat_by_tool_and_by_attempt(cli: Cli) -> None:
    spend(beats=2)
    spend(beats=5)
    told = told_of(cli, "1411")
    assert sum(row["spent"]["tokens"] for row in told["by_beat"]) == told["spent"]["tokens"] == 5 * 107
    assert sum(row["spent"]["tokens"] for row in told["by_attempt"]) == told["spent"]["tokens"]
    assert [(row["attempt"], row["beats"], row["cause"]) for row in told["by_attempt"]] == [
        (1, 2, "operator"),
        (2, 3, "operator"),
    ]
    tools = {row["name"]: row for row in told["by_tool"]}
    assert {name: row["calls"] for name, row in tools.items()} == {"read": 10, "write": 5, "draft": 5}
    assert {name: row["tokens"] for name, row in tools.items()} == {"read": 335, "write": 165, "draft": 35}
    assert {name: row["share"] for name, row in tools.items()} == {
        "read": True,
        "write": True,
        "draft": False,
    }
    assert sum(row["cost_microusd"] for row in tools.values()) == told["spent"]["cost_microusd"] == 5_000
    assert (
        "a share: the cost of a beat divided by its calls" in cli.forked("budget", "1411", "--by", "tool").out
    )
    last = cli.forked("budget", "1411", "--by", "beat", "--last", "2").out
    assert "step 3" in last
    assert "step 2" not in last


def test_money_reads_subscription_or_unknown_price_and_never_0(cli: Cli) -> None:
    for task, usage, said in (
        ("paid", outlast.Usage(output=5, cost_microusd=2_500_000), "$2.50"),
        ("guessed", outlast.Usage(output=5, cost_microusd=2_500_000, estimated=True), "~$2.50"),
        ("flat", outlast.Usage(output=5, subscription=True), "subscription"),
        ("odd", outlast.Usage(output=5, unpriced=True), "unknown price"),
        ("both", outlast.Usage(output=5, cost_microusd=2_500_000, unpriced=True), "$2.50 + unknown price"),
    ):
        spend(task=task, beats=1, usage=usage)
        (line,) = (line for line in cli.forked("budget", task).out.splitlines() if line.startswith("money"))
        assert re.split(r"\s{2,}", line)[1] == said
    flat = told_of(cli)["runs"]
    assert next(each for each in flat if each["task"] == "flat")["spent"]["subscription"] is True


def test_warnings_limits_and_saves_are_told_with_their_time_and_reason(cli: Cli) -> None:
    with pytest.raises(outlast.BudgetReached):
        spend(beats=9, budget="600", workspace=".", files="keep")
    told = told_of(cli, "1411")
    levels = [each["level"].split(" of ")[0] for each in told["warnings"]]
    assert levels == ["budget forecast", "budget 75%"]
    assert told["changes"][0]["text"] == "600 tokens"
    (save,) = (each for each in told["saves"] if each["kind"] == "emergency")
    assert save["reason"].startswith("budget: ")
    assert (told["cause"], told["status"]) == ("budget", "interrupted")
    said = cli.forked("budget", "1411")
    assert "emergency save" in said.out
    assert "of the budget is spent" in said.out
    assert "outlast resume 1411 --budget +728" in said.err, (
        "what the four beats that are left cost, and the reserve"
    )


def test_the_chart_falls_to_what_is_left_and_marks_the_levels(cli: Cli) -> None:
    spend(beats=9, budget="1000")
    told = told_of(cli, "1411")["chart"]
    assert (told["unit"], told["warn_at"]) == ("tokens", [75, 90])
    points = [point["spent"] for point in told["points"]]
    assert points == sorted(points)
    assert (points[-1], len(points)) == (9 * 107, 60)
    assert {point["limit"] for point in told["points"]} == {1000}
    assert re.search("[▁▂▃▄▅▆▇█]", cli("budget", "1411", PYTHONIOENCODING="utf-8").out)
    for plain in (cli("budget", "1411", "--plain"), cli("budget", "1411", PYTHONIOENCODING="ascii")):
        assert "tokens left, of 1,000" in plain.out
        assert "75 % spent" in plain.out
        assert plain.out.isascii()


def test_a_limit_that_was_raised_is_in_the_chart_from_then_on(cli: Cli) -> None:
    spend(beats=2, budget="1000")
    cli.forked("budget", "1411", "--add", "500")
    points = told_of(cli, "1411")["chart"]["points"]
    assert (points[0]["limit"], points[-1]["limit"]) == (1000, 1500)


def test_a_run_without_a_limit_is_told_too(cli: Cli) -> None:
    spend(beats=2)
    told = told_of(cli, "1411")
    assert (told["budget"], unit(told, "tokens")["limit"], unit(told, "tokens")["left"]) == (None, None, None)
    assert "tokens spent, of 214" in cli.forked("budget", "1411").out


def test_without_a_run_all_open_ones_are_summed_up(cli: Cli) -> None:
    assert cli("budget", "--json").json == {"runs": [], "spent": cli("budget", "--json").json["spent"]}
    spend(beats=2, budget="1000")
    spend(beats=3, task="other")
    with outlast.run("over") as run:
        run.plan(["only"])
        for beat in run.beats():
            beat.spend(USAGE)
            beat.done()
    told = told_of(cli)
    assert [(each["task"], each["spent"]["tokens"]) for each in told["runs"]] == [
        ("other", 321),
        ("1411", 214),
    ]
    assert told["spent"]["tokens"] == 535
    lines = cli.forked("budget").out.splitlines()
    assert "21 % of 1,000 tokens" in lines[2]
    assert lines[-1].split()[:4] == ["total", "2", "open", "535"]


def test_a_command_inside_a_run_sees_its_own_budget(cli: Cli) -> None:
    run = spend(beats=1, budget="1000")
    spend(beats=1, task="other")
    inside = cli("budget", "--json", OUTLAST_RUN=run)
    assert (inside.code, inside.json["run"]) == (0, run)
    assert "runs" in cli("budget", "--json", OUTLAST_RUN="of-another-store").json


def test_a_run_cannot_raise_its_own_budget_it_asks_a_person(cli: Cli) -> None:
    run = spend(beats=1, budget="1000")
    inside = cli("budget", run, "--add", "500", OUTLAST_RUN=run)
    assert (inside.code, inside.out) == (3, "")
    assert f"`outlast budget {run} --add 500`" in inside.err
    assert cli("budget", run, "--json").json["units"][0]["limit"] == 1000
    assert cli("show", run, "--json").json["asks"] == "--add 500"
    assert f"outlast budget {run} --add 500" in cli("show", run).out
    assert "asks for budget" in cli("ls").out
    refused = cli("budget", "share", "--total", "5M", "--yes", OUTLAST_RUN=run)
    assert refused.code == 2
    assert cli("budget", run, "--add", "500").code == 0
    assert cli("budget", run, "--json").json["units"][0]["limit"] == 1500
    assert cli("show", run, "--json").json["asks"] == ""
    other = spend(beats=1, budget="1000", task="other")
    assert cli("budget", other, "--add", "500", OUTLAST_RUN=run).code == 0


def test_a_child_draws_on_its_root(cli: Cli) -> None:
    with outlast.run("1411", budget="1000") as run:
        for beat in run.beats():
            with beat.run("child") as child:
                for inner in child.beats():
                    inner.spend(USAGE)
                    inner.done()
                    break
            told = cli("budget", child.id, "--json")
            break
    assert (told.json["run"], told.json["spent"]["tokens"]) == (run.id, 100)
    assert f"this is the budget of its root, run {run.id}" in told.err


def test_what_is_set_aside_is_shown_while_an_attempt_is_open(cli: Cli) -> None:
    with outlast.run("1411", budget="1000") as run:
        for beat in run.beats():
            if beat.number == 2:
                told = told_of(cli, "1411")
                break
            beat.spend(USAGE)
            beat.done()
    assert (told["status"], told["reserved"]["tokens"]) == ("running", 100)
    assert (unit(told, "tokens")["reserved"], unit(told, "tokens")["left"]) == (100, 900)
    assert unit(told, "tokens")["lasts_s"] is not None
    assert run.id == told["run"]


# -- going on with more ------------------------------------------------------------------------------------------------

STEPS = ("sh", "-c", "outlast step a -- true && outlast step b -- true && outlast step c -- true")


def carried(cli: Cli, *words: str) -> Answer:
    """With `outlast` on the PATH of what is run, and no wait between attempts."""
    folder = cli.folder.parent / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "outlast").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m outlast "$@"\n')
    (folder / "outlast").chmod(0o755)
    return cli(*words, PATH=f"{folder}:{cli.environ['PATH']}", OUTLAST_RESTART_WAIT_S="0.05")


def test_who_was_given_more_is_not_told_to_get_more(cli: Cli) -> None:
    assert carried(cli, "run", "--task", "t", "--budget", "beats=1", "--", *STEPS).code == 4
    cli.ok("budget", "t", "--add", "beats=1")
    row = cli("report", "--json").json["runs"][0]
    assert (row["what"], row["command"]) == ("stopped", f"outlast resume {row['run']}")
    assert row["why"] == "its budget was spent, and there is some again: 1 of 2 beats left"
    assert "there is budget left: `outlast resume t` goes on where it was" in cli.ok("budget", "t").err


def test_a_command_that_met_its_budget_goes_on_where_it_was_with_more(cli: Cli) -> None:
    first = carried(cli, "run", "--task", "t", "--budget", "beats=1", "--budget", "time=1h", "--", *STEPS)
    assert first.code == 4, first.err
    assert cli("report", "--json").json["runs"][0]["command"].endswith("--budget beats=+1")
    assert "`outlast resume t --budget beats=+1` goes on where it was" in cli.ok("budget", "t").err
    short = carried(cli, "resume", "t", "--budget", "beats=1")
    assert "would stop at once: 1 of 1 beats done" in short.complaint
    dry = carried(cli, "resume", "t", "--dry-run", "--budget", "beats=+5")
    assert "Its budget becomes 1:00:00 h, 6 beats; it was 1:00:00 h, 1 beat." in dry.out
    more = carried(cli, "resume", "t", "--budget", "beats=+5")
    assert more.code == 0, more.err
    assert "Its budget is now 1:00:00 h, 6 beats" in more.err
    told = told_of(cli, "t")
    assert (told["status"], told["budget"]["beats"], told["budget"]["time_s"]) == ("done", 6, 3_600)
    again = carried(cli, "run", "--task", "t", "--budget", "beats=1", "--budget", "time=1h", "--", *STEPS)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("+200k", "has no limit of tokens to raise"),
        ("+0", "must be above zero"),
        ("+lots", "cannot be read"),
        ("", "is empty"),
        ("beats=2", "would stop at once: 2 of 2 beats done"),
    ],
)
def test_more_that_makes_no_sense_is_refused_and_changes_nothing(cli: Cli, given: str, said: str) -> None:
    with pytest.raises(outlast.BudgetReached):
        spend(beats=9, budget="beats=2")
    before = cli.rows()
    answer = cli.forked("resume", "1411", "--budget", given)
    assert (answer.code, said in answer.complaint) == (2, True), answer
    assert cli.rows() == before


def test_a_program_of_ones_own_goes_on_with_more_and_with_what_it_says_itself(cli: Cli) -> None:
    with pytest.raises(outlast.BudgetReached):
        spend(beats=9, budget="300")
    told = cli.ok("resume", "1411", "--budget", "+400", "--until", "+1h")
    assert re.search(r"Its budget is now 700 tokens, until \d{4}-", told.err)
    spend(beats=5, budget="300")
    assert told_of(cli, "1411")["spent"]["tokens"] == 5 * 107


def test_a_run_at_work_is_given_more_without_stopping_it(cli: Cli) -> None:
    with outlast.run("1411", budget="300") as run:
        for beat in run.beats():
            if beat.number == 2:
                assert "applies it at its next beat" in cli.forked("budget", "1411", "--add", "+400").err
            beat.spend(USAGE)
            beat.done()
            if beat.number == 6:
                break
        assert run.budget.tokens == 100


# -- refused -----------------------------------------------------------------------------------------------------------

BAD = [
    ("--budget -5", "'-5' cannot be read"),
    ("--budget 0", "must be above zero"),
    ("--budget usd=0", "must be above zero"),
    ("--budget 10%", "'10%' cannot be read"),
    ("--budget frogs=3", "no such unit of a budget: frogs"),
    ("--budget window=120%", "at most 100 %"),
    ("--budget 4k --budget 5k", "names tokens twice"),
    ("--budget auto --budget 5k", "--budget auto chooses all limits"),
    ("--budget ", "--budget is empty"),
    ("--reserve 10%", "--reserve needs --budget"),
    ("--budget 4k --reserve 100%", "reserve must be 0 to 99 %, got 100"),
    ("--budget 4k --reserve 5k", "reserve '5k' cannot be read"),
    ("--until 2020-01-01T07:00", "is past already"),
    ("--until +0h", "is past already"),
    ("--until 25:00", "cannot be read"),
    ("--until 2999-01-01", "cannot be read"),
    ("--until tomorrow", "cannot be read"),
]


def test_a_budget_that_makes_no_sense_is_one_line_a_hint_and_exit_2(cli: Cli) -> None:
    for words, said in BAD:
        answer = cli.forked("run", "--task", "t", *words.split(" "), "--", "true")
        assert said in answer.complaint, words
        assert answer.code == 2, words
    assert cli.rows() == {}


@pytest.mark.parametrize(
    ("words", "variables", "said", "hinted"),
    [
        (
            ["--model", "my-own-model"],
            {"ANTHROPIC_API_KEY": "k"},
            "'my-own-model' has no price",
            "prices.toml",
        ),
        (["--model", "claude-sonnet-4-5"], {"CLAUDE_CODE_OAUTH_TOKEN": "t"}, "subscription", "window=80%"),
    ],
)
def test_a_budget_in_money_that_cannot_be_kept_is_refused(
    cli: Cli, words: list[str], variables: dict[str, str], said: str, hinted: str
) -> None:
    claude = cli.folder.parent / "claude"
    claude.write_text("#!/bin/sh\necho 2.1.0\n")
    claude.chmod(0o755)
    line = ("run", "--task", "t", "--budget", "usd=5", "--", str(claude), "-p", "hello", *words)
    answer = cli(*line, **variables)
    error, hint = answer.err.splitlines()[-2:]
    assert (answer.code, said in error, hinted in hint) == (2, True, True), answer.err
    assert cli.rows() == {}


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (["--model", "claude-opus-5-5"], ["usd=5"]),
        (["--model", "opus"], ["usd=5"]),  # which one that is, its first answer tells
        (["--model", "my-own-model"], ["usd=5", "400k"]),
        (["--model", "my-own-model"], ["usd=5", "beats=50"]),
    ],
)
def test_a_budget_in_money_is_taken_where_it_or_another_limit_can_be_kept(
    cli: Cli, words: list[str], limits: list[str]
) -> None:
    claude = cli.folder.parent / "claude"
    claude.write_text("#!/bin/sh\necho 2.1.0\n")
    claude.chmod(0o755)
    given = [word for limit in limits for word in ("--budget", limit)]
    answer = cli(
        "run", "--task", "t", *given, "--", str(claude), "-p", "hello", *words, ANTHROPIC_API_KEY="k"
    )
    assert answer.code != 2, answer.err
    assert "t" in str(cli.rows())


def test_options_of_suggest_and_share_are_theirs_alone(cli: Cli) -> None:
    spend(beats=1)
    for words, said in (
        ("1411 --goal x", "--goal is only for suggest"),
        ("suggest --goal x --total 5M", "--total is only for share"),
        ("share --total 5M --by tool", "--by is only for one run"),
        ("suggest 1411", "only one RUN is allowed, got 2"),
        ("1411 other", "only one RUN is allowed, got 2"),
        ("1411 --last 5", "--last must be 1 to"),
        ("1411 --by beat --last 0", "--last must be 1 to"),
        ("--by tool", "--by needs a RUN"),
        ("--add 5k", "--add needs a RUN"),
        ("nope", "no such run: nope"),
    ):
        answer = cli.forked("budget", *words.split())
        assert (answer.code, said in answer.complaint) == (2, True), (words, answer)


# -- by experience -----------------------------------------------------------------------------------------------------


def test_auto_says_what_it_chose_and_keeps_it(cli: Cli) -> None:
    line = ("run", "--task", "t", "--budget", "auto", "--reserve", "20%", "--until", "+8h", "--")
    first = cli(*line, "sh", "-c", "kill -TERM $PPID; exec sleep 60")
    assert "the budget is 2,000,000 tokens" in first.err
    assert "the default; no history yet (0 runs of this store finished, 8 are needed)" in first.err
    budget = told_of(cli, "t")["budget"]
    assert (budget["tokens"], budget["reserve_pct"], "until" in budget) == (2_000_000, 20, True)
    assert first.code == 143, first.err
    again = cli(*line, "sh", "-c", "kill -TERM $PPID; exec sleep 60")
    assert "the budget is" not in again.err
    assert "another budget" not in again.err
    kept = told_of(cli, "t")["budget"]
    assert kept["tokens"] == 2_000_000
    assert kept["until"] > budget["until"]


# -- until -------------------------------------------------------------------------------------------------------------


def test_until_is_the_next_such_moment_of_the_persons_own_clock(cli: Cli) -> None:
    now = datetime.now(UTC)
    for zone, ahead in (("UTC", 0), ("Etc/GMT-5", 5), ("Etc/GMT+8", -8)):
        there = now + timedelta(hours=ahead)
        meant = (there - timedelta(minutes=2)).strftime("%H:%M")
        code = f"import outlast; from outlast.runs.run import run_engine; print(run_engine(outlast.run('x', until='{meant}')).terms.budget.until.isoformat())"
        done = subprocess.run(
            [sys.executable, "-c", code], env=cli.environ | {"TZ": zone}, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=True,
        )  # fmt: skip
        until = datetime.fromisoformat(done.stdout.strip())
        assert timedelta(hours=23, minutes=55) < until - now < timedelta(hours=24), zone
