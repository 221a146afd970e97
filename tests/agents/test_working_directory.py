"""A real agent whose folder is not the one it was started from: it works in its own."""

import subprocess
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

CAMPAIGN = pytest.mark.campaign
each_agent = pytest.mark.parametrize(
    "under",
    [
        pytest.param(("claude", "2.1.325"), id="claude"),
        pytest.param(("opencode", None), id="opencode"),
        pytest.param(("codex", None), marks=CAMPAIGN, id="codex"),
        pytest.param(("kimi-code", None), marks=CAMPAIGN, id="kimi-code"),
        pytest.param(("kimi-cli", "1.51.0"), marks=CAMPAIGN, id="kimi-cli"),
        pytest.param(("gemini", None), marks=CAMPAIGN, id="gemini"),
    ],
    indirect=True,
)


def has_strayed(world: AgentWorld) -> bool:
    """Whether opencode, by its own log, has opened the root folder as its project; then it waits there for ever."""
    log = world.home / ".local/share/opencode/log/opencode.log"
    return log.exists() and any(line.endswith(" directory=/") for line in log.read_text().splitlines())


@each_agent
def test_under_a_worktree_it_works_there_and_not_in_the_main_repository(under: Under) -> None:
    world = under.world
    world.model.script = Script([Step("I write.", (bash("echo made > made.txt"),)), Step("Done.")])
    done = under.run("--worktree")
    assert done.returncode == 0, done.stderr
    worktree = Path(under.shown()["workspace"])
    assert worktree != world.work
    assert not (world.work / "made.txt").exists()
    assert (worktree / "made.txt").exists()


@each_agent
def test_resumed_from_another_folder_it_goes_on_in_its_own(under: Under) -> None:
    world = under.world
    local = bash("[ -e begun ] || { touch begun; sleep 300; }")
    world.model.script = Script([Step("Now.", (local,)), Step("Done."), Step("Done.")])
    process = under.start()
    wait_for((world.work / "begun").exists, what="the call", limit_s=60)
    under.kill_all(process)
    run = under.shown()["run"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    again = world.begin(under.outlast("resume", run), cwd="/", env=under.environ(PWD="/"), **quiet)
    wait_for(lambda: again.poll() is not None or has_strayed(world), what="its end", limit_s=LIMIT_S)
    assert not has_strayed(world)
    assert again.returncode == 0
    assert under.shown(run)["status"] == "done"
