"""Real agents behind the metering gateway: counted once whatever saw it, told, refused when nothing is left, walls known."""

import json

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Fault, Script, Step, bash
from tests.agents.test_budget import USAGE, heeding, stubborn
from tests.support.processes import wait_for


def counted(under: Under) -> int:
    return int(under.shown()["budget"]["spent"]["tokens"])


def test_every_response_is_counted_once(under: Under) -> None:
    world = under.world
    world.model.script = Script(
        [Step("One.", (bash("echo one > one.txt"),), USAGE), Step("Two.", (bash("echo two > two.txt"),), USAGE),
         Step("Done.", (), USAGE)]
    )  # fmt: skip
    done = under.run("--gateway")
    assert done.returncode == 0, done.stderr
    assert (world.work / "two.txt").exists()
    each = USAGE.input or 0
    spent = under.shown()["budget"]["spent"]
    assert spent["input"] + spent["cache_read"] + spent["cache_write"] >= each * len(world.model.paid())
    asides = sum(len(json.dumps(request.body)) for request in world.model.requests() if request.step < 0)
    assert counted(under) <= 1_030 * len(world.model.paid()) + asides // 3 + 500 * bool(asides)


def test_a_response_that_is_cut_off_is_counted_too(under: Under) -> None:
    """Of it no transcript tells."""
    world = under.world
    world.model.script = Script(
        [Step("One.", (bash("touch one"),), USAGE), Step("Two. " * 50, (), USAGE, Fault(hang_after=3))]
    )
    process = under.start("--gateway", "--budget", "100k")
    wait_for((world.work / "one").exists, what="the first call", limit_s=60)
    wait_for(lambda: len(world.model.paid()) >= 2 or None, what="the second response", limit_s=60)
    process.terminate()
    process.wait(60)
    assert counted(under) >= 1_800, "both"
    assert under.shown()["budget"]["spent"]["estimated"]


def test_told_by_the_gateway_it_wraps_up(under: Under) -> None:
    world = under.world
    world.model.script = Script(heeding)
    done = under.run("--gateway", "--budget", "12k")
    shown = under.shown()
    assert (done.returncode, shown["cause"]) == (4, "budget"), done.stderr
    assert (world.work / "NOTES.md").exists()
    assert counted(under) <= 13_500


@pytest.mark.parametrize(
    "under", [("claude", "2.1.325"), ("codex", None)], indirect=True, ids=["claude", "codex"]
)
def test_when_nothing_is_left_the_next_call_is_refused(under: Under) -> None:
    world = under.world
    world.model.script = Script(stubborn)
    done = under.run("--gateway", "--budget", "3k", "--reserve", "0")
    assert done.returncode == 4, done.stderr
    assert len(world.model.paid()) <= 4


@pytest.mark.parametrize(
    "under", [("claude", "2.1.325"), ("claude", "2.1.197")], indirect=True, ids=["2.1.325", "2.1.197"]
)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-nobody-knows-9"])
def test_what_claude_says_that_it_cost_is_what_counts(under: Under, model: str) -> None:
    """Also of a model without a price, and of a session that goes on, whose bill one version sums and the other does not."""
    world = under.world
    under.more = ("--output-format", "json", "--model", model)
    world.model.script = Script([Step("One.", (bash("echo one"),), USAGE), Step("Done.", (), USAGE)])
    check = f"test -e {world.folder}/once || {{ touch {world.folder}/once; false; }}"
    done = under.run("--budget", "900k", "--budget", "usd=50", "--done", check)
    assert done.returncode == 0, done.stderr
    bills = [json.loads(line)["total_cost_usd"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(bills) == 2, "its session went on once"
    whole = bills[-1] if under.version == "2.1.325" else sum(bills)
    spent = under.shown()["budget"]["spent"]
    assert abs(spent["cost_microusd"] - whole * 1e6) <= 4
    assert spent["unpriced"] == (model != "claude-opus-4-8")
