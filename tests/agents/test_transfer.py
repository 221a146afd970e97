"""Killed here and carried to another home and another folder, an agent goes on there in its session, secrets masked."""

import subprocess
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import History, Script, Step, When, bash
from tests.support.processes import wait_for

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture(params=[("claude", "2.1.325"), ("codex", None)], ids=["claude", "codex"])
def here(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def elsewhere(here: Under, folder: Path) -> Under:
    """The same agent with another home, another store and another folder to work in."""
    world = here.world.elsewhere(folder, folder / "another" / "place")
    return Under(world, here.name, here.version)


def killed_in_call(here: Under) -> None:
    """It has read a secret, and is killed in a call that reached outside."""
    world = here.world
    world.inside(lambda: world.witness.fault("late_reply"))
    call = world.posting("comment", body="hello")
    world.model.script = Script(
        [Step("One.", (bash(f"printf 'first-%s {TOKEN}' result"),)), Step("Two.", (call,))]
    )
    process = here.start(prompt="write the greeting")
    wait_for(lambda: bool(world.performed()), what="the comment", limit_s=60)
    here.kill_all(process)


def resumed(under: Under, *words: str) -> "subprocess.CompletedProcess[str]":
    return under.call("resume", *words)


def results(history: History) -> str:
    return "\n".join(result.text for result in history.results)


def carried(here: Under, tmp_path: Path, *flags: str) -> Under:
    """Exported here, imported there into a folder that is made from the saves."""
    file = tmp_path / "t.outlast.tar.gz"
    done = here.call("export", "t", "-o", str(file), *flags)
    assert done.returncode == 0, done.stderr
    there = elsewhere(here, tmp_path / "there")
    words = there.outlast("import", str(file), "--workspace", str(there.world.work))
    done = there.world.finish(words, cwd=tmp_path, env=there.environ(), text=True)
    assert done.returncode == 0, done.stderr
    assert "imported the agent's session, masked" in done.stderr
    return there


def test_the_session_goes_on_in_another_home_and_folder(here: Under, tmp_path: Path) -> None:
    killed_in_call(here)
    session = here.shown()["session"]["session"]
    there = carried(here, tmp_path)
    world = there.world
    again = Step("Again.", (world.posting("comment", body="in other words"),))
    held = Step("Held.", when=When(result="outlast holds this call"))
    world.model.script = Script(
        [Step("One."), [held, again], [held, again], Step("Held.")]
    )  # two responses, or one mended
    before = len(world.model.requests())
    done = resumed(there, "t")
    assert done.returncode == 3, done.stderr
    assert "in doubt" in done.stderr
    assert "was made whole from our copy: it was gone" in done.stderr

    told = results(world.model.requests()[before].history)
    assert "first-result [masked:GitHub token]" in told, "what it had done is told as the result of its call"
    assert TOKEN not in str(world.model.requests()[before].history)
    asked = world.model.requests()[before:]  # the last one may be an aside
    assert any("outlast holds this call" in results(request.history) for request in asked)
    assert [act.name for act in world.performed()] == ["comment"]

    shown = there.shown()["session"]
    assert shown["session"] == session
    assert Path(shown["path"]).is_relative_to(world.home)
    assert there.shown()["by_hand"]["folder"] == str(world.work)
    assert TOKEN not in Path(shown["path"]).read_text()


@pytest.mark.parametrize("here", [("claude", "2.1.325")], indirect=True, ids=["claude"])
def test_a_copy_of_it_begins_a_session_of_its_own(here: Under, tmp_path: Path) -> None:
    killed_in_call(here)
    session = here.shown()["session"]["session"]
    there = carried(here, tmp_path, "--copy")
    world = there.world
    world.model.script = Script([Step("Done.")])
    before = len(world.model.requests())
    done = resumed(there, "t-fork-1")
    assert done.returncode in (0, 3), done.stderr
    history = world.model.requests()[before].history
    assert "You take over a task" in "\n".join(turn.text for turn in history.turns)
    assert not history.results
    projects = {path.stem for path in (world.home / ".claude/projects").glob("*/*.jsonl")}
    assert projects == {there.shown("t-fork-1")["session"]["session"]}
    assert session not in projects, "nothing is written to the session of its source"
