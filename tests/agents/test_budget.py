"""A real agent whose budget runs out: it is told inside its session, wraps up from the reserve, and goes on with more."""

import json
import subprocess

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import History, Script, Step, Usage, bash
from tests.support.processes import wait_for

USAGE = Usage(input=900, cache_read=20, cache_write=0, output=80)
WORKS = 30
NEAR = "nearly spent"


def working(history: History, plays: int, *, heeds: bool) -> Step:
    """Works step after step; told that its budget is nearly spent, it writes down how far it is and stops."""
    told = any(
        NEAR in turn.text or any(NEAR in result.text for result in turn.results) for turn in history.turns
    )
    wrapped = any(turn.role == "assistant" and "I wrap up." in turn.text for turn in history.turns)
    done = history.responses
    if done >= WORKS or (heeds and wrapped):
        return Step("I stop here.", (), USAGE)
    if heeds and told:
        return Step(
            "I wrap up.",
            (
                bash(
                    "echo how far > NOTES.md; git add -A; git -c user.name=a -c user.email=a@b commit -qm wrapped"
                ),
            ),
            USAGE,
        )
    return Step("I work.", (bash(f"echo {done} > work-{done}.txt"),), USAGE)


def heeding(history: History, plays: int) -> Step:
    return working(history, plays, heeds=True)


def stubborn(history: History, plays: int) -> Step:
    return working(history, plays, heeds=False)


def test_it_is_warned_wraps_up_from_the_reserve_and_is_saved(under: Under) -> None:
    world = under.world
    world.model.script = Script(heeding)
    done = under.run("--budget", "12k")
    shown = under.shown()
    assert (done.returncode, shown["status"], shown["cause"]) == (4, "interrupted", "budget"), done.stderr
    assert (world.work / "NOTES.md").read_text() == "how far\n"
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=world.work, capture_output=True, text=True, check=True
    )
    assert "wrapped" in log.stdout
    assert "--budget +" in done.stderr
    spent = shown["budget"]["spent"]["tokens"]
    assert 8_000 <= spent <= 12_000, "it stopped within its budget, and not long before"
    log = under.call("log", "t", "--json").stdout.splitlines()
    events = [json.loads(line)["event"] for line in log]
    levels = [event["level"].split(" of ")[0] for event in events if event["t"] == "warned"]
    assert levels.count("wrap-up") == 1
    assert levels.count("budget 75%") <= 1


def test_one_that_does_not_stop_is_stopped_and_goes_on_with_more(under: Under) -> None:
    world = under.world
    world.model.script = Script(stubborn)
    done = under.run("--budget", "12k")
    shown = under.shown()
    assert (done.returncode, shown["cause"]) == (4, "budget"), done.stderr
    # Kimi Code's hooks run ahead of its transcript: on a busy machine one more response begins before it is stopped.
    assert shown["budget"]["spent"]["tokens"] <= (14_000 if under.name == "kimi-code" else 13_000)
    beats, paid = shown["beats"], len(world.model.paid())
    assert under.call("resume", "t").returncode == 4, "without more nothing starts"
    assert len(world.model.paid()) == paid

    def ending(history: History, plays: int) -> Step:
        return Step("All is done.", (), USAGE)

    world.model.script = Script(ending)
    again = under.call("resume", "t", "--budget", "+20k")
    shown = under.shown()
    assert (again.returncode, shown["status"]) == (0, "done"), again.stderr
    assert shown["beats"] > beats
    assert shown["budget"]["tokens"] == 32_000


@pytest.mark.parametrize(
    "under", [("claude", "2.1.325"), ("codex", None)], indirect=True, ids=["claude", "codex"]
)
def test_killed_while_it_wraps_up_it_only_wraps_up(under: Under) -> None:
    world = under.world

    def slow(history: History, plays: int) -> Step:
        step = heeding(history, plays)
        if step.text == "I wrap up." and not (world.work / "told").exists():
            return Step("I begin to.", (bash("touch told; sleep 300"),), USAGE)
        return step

    world.model.script = Script(slow)
    process = under.start("--budget", "12k", "--reserve", "50%")
    wait_for((world.work / "told").exists, what="the wrap-up", limit_s=90)
    under.kill_all(process)
    before = len(world.model.paid())
    done = under.run("--budget", "12k", "--reserve", "50%")
    assert done.returncode == 4, done.stderr
    assert (world.work / "NOTES.md").exists()
    assert len(world.model.paid()) - before <= 4
    told = json.loads(next((world.home / ".local/state/outlast/runs").glob("*/budget.json")).read_text())
    assert told["wraps_up"] is True
