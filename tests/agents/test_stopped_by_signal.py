"""A real agent that a signal stopped in a local call has not done its task, whatever it exits with: the rest is done too."""

import os
import signal

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

STARTS_MAX = 3
CAMPAIGN = pytest.mark.campaign
each_agent = pytest.mark.parametrize(
    "under",
    [
        pytest.param(("claude", "2.1.325"), id="claude"),
        pytest.param(("gemini", None), id="gemini"),
        pytest.param(("codex", None), marks=CAMPAIGN, id="codex"),
        pytest.param(("kimi-code", None), marks=CAMPAIGN, id="kimi-code"),
        pytest.param(("kimi-cli", "1.51.0"), marks=CAMPAIGN, id="kimi-cli"),
        pytest.param(("opencode", None), marks=CAMPAIGN, id="opencode"),
    ],
    indirect=True,
)


def stopped_in_a_local_call(under: Under, name: str) -> int:
    """The agent gets this signal while its tool runs; the exit code of the run, started again until it has come to an end."""
    world = under.world
    local = bash("[ -e begun ] || { touch begun; sleep 300; }")
    rest = Step("The rest.", (world.posting("rest"),))
    world.model.script = Script([Step("Now.", (local,)), rest, Step("Done."), Step("Done.")])
    process = under.start()
    wait_for((world.work / "begun").exists, what="the call", limit_s=60)
    os.kill(under.agent(process), signal.Signals[f"SIG{name}"])
    process.communicate(timeout=120)
    code = process.returncode
    for _ in range(STARTS_MAX):
        if code == 0:
            break
        code = under.run().returncode
    return code


@each_agent
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_stopped_by_a_signal_in_a_local_call_it_does_the_rest_of_its_task(under: Under, name: str) -> None:
    assert stopped_in_a_local_call(under, name) == 0
    assert [act.name for act in under.world.performed()] == ["rest"]
    assert under.shown()["status"] == "done"
