"""A model that makes the same call for ever: it is told, then stopped, and nothing starts it again."""

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import History, Script, Step, bash


@pytest.fixture
def claude(world: AgentWorld) -> Under:
    return Under(world, "claude", "2.1.325")


def test_the_same_call_again_and_again_is_told_and_stopped(claude: Under) -> None:
    def always(history: History, plays: int) -> Step:
        return Step("Again.", (bash("ls"),))

    claude.world.model.script = Script(always)
    done = claude.run()
    assert done.returncode == 3, done.stderr
    assert "Bash was called 10 times with the same result" in done.stderr
    shown = claude.shown()
    assert (shown["status"], shown["cause"]) == ("interrupted", "stall")
    told = [
        request for request in claude.world.model.requests() if "5 times with the same result" in str(request)
    ]
    assert told
    assert "stopped: stall" in claude.call("resume", "--all", "--dry-run").stdout


def test_beats_without_anything_new_are_stopped(claude: Under) -> None:
    """Two calls in turn, each with another result: only that nothing new comes of it is seen."""

    def in_turn(history: History, plays: int) -> Step:
        return Step("Again.", (bash("date +%s%N" if history.responses % 2 else "cat /proc/uptime"),))

    claude.world.model.script = Script(in_turn)
    done = claude.run("--stall", "6")
    assert done.returncode == 3, done.stderr
    assert "6 beats without anything new (--stall)" in done.stderr
