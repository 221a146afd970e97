"""`outlast budget suggest` and `outlast budget share`, as a person types them."""

import json
import re
from collections.abc import Iterator

import pytest

from outlast.core.values import Allowance
from outlast.runs.opening.project import project_of
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.cli.command_line import Cli
from tests.support.journals.past_runs import put

GOAL = "fix the parser"


@pytest.fixture
def store(cli: Cli) -> Iterator[Store]:
    found = open_store(cli.root)
    yield found
    found.close()


def add(cli: Cli, store: Store, n: int, **more: object) -> str:
    return put(store, n, project=project_of(cli.folder), **more)  # type: ignore[arg-type]


def filled(cli: Cli, store: Store, runs: int = 60) -> None:
    for n in range(runs):
        more = n * 37 % 61  # without order
        add(
            cli, store, n, tokens=100_000 + 1_000 * more, time_s=600 + 6 * more, status="done", agent="claude"
        )


def limit(store: Store, task: str) -> Allowance | None:
    return store.list(RunFilter(task=task))[0].state.budget


# -- suggest -----------------------------------------------------------------------------------------------------------


def test_suggest_says_what_it_takes_and_how_sure_it_is(cli: Cli, store: Store) -> None:
    filled(cli, store)
    answer = cli.ok("budget", "suggest", "--goal", GOAL, "--agent", "claude")
    tokens, time, like, use = answer.out.splitlines()
    assert re.fullmatch(
        r"tokens  p50 \d+k +p90 \d+k +sure: from 60 finished runs, 60 of them similar", tokens
    ), tokens
    assert re.fullmatch(
        r"time    p50 \d+ min +p90 \d+ min +sure: from 60 finished runs, 60 of them similar", time
    ), time
    assert like == "most like it: t59, t58, t57"
    assert re.fullmatch(r"--budget auto is --budget \d+k --budget time=\d+m", use), use


def test_suggest_json_is_a_contract(cli: Cli, store: Store) -> None:
    filled(cli, store)
    (cli.folder / "plan.md").write_text("- read\n\n- write\n- check\n")
    words = (
        "--goal",
        GOAL,
        "--plan",
        "plan.md",
        "--agent",
        "claude",
        "--model",
        "large",
        "--file",
        "src/a.py",
    )
    found = cli.ok("budget", "suggest", *words, "--json").json
    assert set(found) == {
        "goal", "plan", "project", "agent", "model", "tokens", "time_s", "nearest", "budget",
    }  # fmt: skip
    assert (found["plan"], found["agent"], found["model"]) == (3, "claude", "large")
    assert set(found["tokens"]) == {"p50", "p90", "runs", "similar", "sure"}
    assert found["tokens"]["p50"] <= found["tokens"]["p90"] <= found["budget"]["tokens"]


def test_with_no_history_the_default_is_stated(cli: Cli) -> None:
    answer = cli.ok("budget", "suggest", "--goal", GOAL)
    assert "p90 2M" in answer.out
    assert "this is the default: 0 finished runs here, 8 are needed to learn from" in answer.out
    assert answer.out.endswith("--budget auto is --budget 2M\n")


@pytest.mark.parametrize(
    ("text", "steps"), [('["a", ["b", ["c", "d"]]]', 3), ("[ ] a\n[x] b\n", 2), ("one\n\ntwo\n", 2)]
)
def test_a_plan_is_a_number_or_a_file(cli: Cli, text: str, steps: int) -> None:
    (cli.folder / "plan").write_text(text)
    found = json.loads(cli.forked("budget", "suggest", "--goal", GOAL, "--plan", "plan", "--json").out)
    assert found["plan"] == steps


def test_measure_says_how_good_the_predictions_were(cli: Cli, store: Store) -> None:
    filled(cli, store)
    add(cli, store, 90, tokens=10, status="cancelled")
    head, tokens, time = cli.ok("budget", "suggest", "--measure").out.splitlines()
    assert head.split()[:3] == ["RUNS", "P90", "COVERS"]
    assert re.fullmatch(r"tokens  52 +\d+\.\d% +\d+\.\d% +0\.\d{3} +0\.\d{3} +1 \(0\)", tokens), tokens
    assert time.startswith("time")
    found = cli.ok("budget", "suggest", "--measure", "--json").json
    assert set(found["tokens"]) == {
        "runs", "p50_covers", "p90_covers", "p50_loss", "p90_loss", "unfinished", "above",
    }  # fmt: skip
    assert 0.8 <= found["tokens"]["p90_covers"] <= 1


def test_measuring_a_young_store_says_that_there_is_nothing_to_measure(cli: Cli, store: Store) -> None:
    filled(cli, store, runs=3)
    answer = cli.ok("budget", "suggest", "--measure")
    assert "nothing to measure yet" in answer.err


# -- share -------------------------------------------------------------------------------------------------------------


def test_share_shows_the_split_and_sets_it_only_with_yes(cli: Cli, store: Store) -> None:
    filled(cli, store)
    add(cli, store, 70, goal=GOAL)
    add(cli, store, 71, goal=GOAL, tokens=50_000, status="interrupted")
    answer = cli.ok("budget", "share", "--total", "5M")
    assert "nothing was changed; add --yes" in answer.err
    assert answer.out.splitlines()[-1] == "total 5M: 5M to 2 runs"
    assert limit(store, "t70") is None
    found = cli.ok("budget", "share", "--total", "5M", "--yes", "--json").json
    assert found["applied"] is True
    assert sum(each["limit"] for each in found["shares"]) == 5_000_000
    assert limit(store, "t70") == Allowance(tokens=found["shares"][0]["limit"])
    cli.ok("cancel", "t71")
    last = cli.ok("budget", "share", "--yes").out.splitlines()
    assert last[-2] == "total 5M: 4.95M to 1 run, 50k used by runs that are over"
    assert last[-1].endswith("came back from runs that did not need it")
    assert limit(store, "t70") == Allowance(tokens=4_950_000)


def test_share_among_named_runs_and_of_time(cli: Cli, store: Store) -> None:
    for n in (70, 71, 72):
        add(cli, store, n)
    found = cli.ok("budget", "share", "--total", "time=8h", "--yes", "--json", "t70", "t72").json
    assert [each["task"] for each in found["shares"]] == ["t70", "t72"]
    assert found["unit"] == "time_s"
    assert limit(store, "t70") == Allowance(time_s=14_400)
    assert limit(store, "t71") is None


BAD = {
    "no goal": ("suggest",),
    "empty goal": ("suggest", "--goal", "  "),
    "empty agent": ("suggest", "--goal", GOAL, "--agent", ""),
    "a plan of nothing": ("suggest", "--goal", GOAL, "--plan", "0"),
    "a plan below nothing": ("suggest", "--goal", GOAL, "--plan=-3"),
    "a plan that is not there": ("suggest", "--goal", GOAL, "--plan", "no-such-file"),
    "a plan that is a folder": ("suggest", "--goal", GOAL, "--plan", "."),
    "a plan of broken steps": ("suggest", "--goal", GOAL, "--plan", "broken.json"),
    "zero": ("share", "--total", "0"),
    "negative": ("share", "--total=-5M"),
    "no number": ("share", "--total", "much"),
    "empty": ("share", "--total", " "),
    "unknown unit": ("share", "--total", "bananas=5"),
    "a unit nobody predicts": ("share", "--total", "usd=5"),
    "too little": ("share", "--total", "10"),
    "no total": ("share",),
    "unknown run": ("share", "--total", "5M", "nobody"),
    "a run that is over": ("share", "--total", "5M", "t1"),
}


def test_bad_input_is_one_line_and_exit_code_2(cli: Cli, store: Store) -> None:
    add(cli, store, 0)
    add(cli, store, 1, tokens=5, status="done")
    (cli.folder / "broken.json").write_text('[{"step": 5}]')
    for name, words in BAD.items():
        answer = cli.forked("budget", *words)
        assert answer.code == 2, (name, answer)
        assert answer.complaint, name
    assert not (store.local.folder / "pools.json").exists()


def test_with_nobody_waiting_there_is_nothing_to_share(cli: Cli, store: Store) -> None:
    add(cli, store, 1, tokens=5, status="done")
    answer = cli("budget", "share", "--total", "5M")
    assert (answer.code, answer.complaint) == (2, "no run of this project waits for a budget")
