"""A push that was cut off: what the remote holds decides whether the agent's next one is answered or made."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, bash, repeating
from tests.support.processes import wait_for


@pytest.fixture
def claude(world: AgentWorld) -> Under:
    return Under(world, "claude", "2.1.325")


def remote(world: AgentWorld, hook: str) -> Path:
    """A bare repository whose hook hangs the first time, as long as `hang` is there, and counts what it takes in."""
    path = world.folder / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(path)], env=world.isolated.environ(), check=True)
    place = path / "hooks" / hook
    place.write_text(
        f"#!/bin/sh\ncat >/dev/null\necho x >> {path}/reached\nwhile [ -e {path}/hang ]; do sleep 0.1; done\n"
    )
    place.chmod(0o755)
    counts = path / "hooks" / "update"
    counts.write_text(f"#!/bin/sh\necho $1 >> {path}/updated\n")
    counts.chmod(0o755)
    (path / "hang").touch()
    script = f"git remote add origin {path} && git checkout -q -b work && echo more > more.txt && git add -A && git commit -qm more"
    subprocess.run(["sh", "-c", script], cwd=world.work, env=world.isolated.environ(), check=True)
    return path


@pytest.mark.parametrize(("hook", "said", "effects"), [
    ("post-receive", "happened before", ["confirmed", "failed"]), ("pre-receive", "", ["failed", "confirmed"]),
])  # fmt: skip
def test_a_push_is_made_once(claude: Under, hook: str, said: str, effects: list[str]) -> None:
    world = claude.world
    far = remote(world, hook)
    world.model.script = Script(repeating(bash("git push origin work"), bash("git push -v origin HEAD:work")))
    process = claude.start()
    wait_for((far / "reached").exists, what="the push", limit_s=60)
    claude.kill_all(process)
    (far / "hang").unlink()
    done = claude.run()
    assert done.returncode == 0, [each["evidence"] for each in claude.effects()]
    assert (far / "updated").read_text() == "refs/heads/work\n"
    here, there = (
        subprocess.check_output(["git", "-C", str(place), "rev-parse", "work"], env={**os.environ, **world.isolated.environ()})
        for place in (world.work, far)
    )  # fmt: skip
    assert here == there
    assert [effect["state"] for effect in claude.effects()] == effects
    last = [result.text for request in world.model.requests() for result in request.history.results]
    assert said in "\n".join(last)
