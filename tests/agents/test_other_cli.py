"""Killed in one agent CLI, a run goes on in another: the second one's model is told everything, and the world sees one call."""

import json
import subprocess
from dataclasses import dataclass

import pytest

from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Script, Step, Usage, bash
from tests.support.processes import wait_for

SPENT = Usage(input=1000, cache_read=0, cache_write=0, output=4)


@dataclass
class Several(Under):
    """An agent with others installed beside it."""

    others: tuple[str, ...] = ()

    def environ(self, **more: str) -> dict[str, str]:
        found = [self.world.environment(need(name)) for name in self.others]
        paths = [each["PATH"] for each in found]
        merged = {name: value for each in found for name, value in each.items()}
        ours = super().environ(**more)
        return {**merged, **ours, "PATH": ":".join((*paths, ours["PATH"]))}

    def resume(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """`outlast resume t …`, to its end."""
        return subprocess.run(
            self.outlast("resume", "t", *words), cwd=self.world.work, env=self.environ(), capture_output=True, text=True,
            timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def last_command(self) -> list[str]:
        """The words of the command that the last attempt was to start."""
        lines = [json.loads(line) for line in self.call("log", "t", "--json").stdout.splitlines()]
        [*_, started] = [line["event"] for line in lines if line["event"]["t"] == "attempt_started"]
        launch = started["launch"]
        assert "v" in launch, "short enough to stand in the event"
        words: list[str] = launch["v"]["argv"]
        return words


@pytest.fixture
def several(request: pytest.FixtureRequest, world: AgentWorld) -> Several:
    return Several(world, "claude", "2.1.325", others=request.param)


def beside(*others: str) -> pytest.MarkDecorator:
    """Once for each of these, installed beside claude."""
    given = [(name,) if name else () for name in others]
    return pytest.mark.parametrize("several", given, indirect=True, ids=[name or "none" for name in others])


def killed_in_call(several: Several) -> None:
    """Claude has done one thing, and is killed in a call that reached outside."""
    world = several.world
    world.inside(lambda: world.witness.fault("late_reply"))
    call = world.posting("comment", body="hello")
    world.model.script = Script(
        [Step("One.", (bash("echo first-result > one.txt"),), SPENT), Step("Two.", (call,), SPENT)]
    )
    process = several.start("--goal", "say hello", prompt="write the greeting")
    wait_for(lambda: bool(world.performed()), what="the comment", limit_s=60)
    several.kill_all(process)


@beside("codex", "kimi-code", "gemini")
def test_killed_in_claude_it_goes_on_in_another(several: Several) -> None:
    world, [other] = several.world, several.others
    killed_in_call(several)
    world.model.script = Script(
        [Step("Again.", (world.posting("comment", body="in other words"),), SPENT), Step("Held.", (), SPENT)]
    )
    before, paid = len(world.model.requests()), len(world.model.paid())
    done = several.resume("--agent", other)
    assert done.returncode == 3, done.stderr
    assert "in doubt" in done.stderr

    history = world.model.requests()[before].history
    said = json.dumps([turn.text for turn in history.turns])
    for told in ("write the greeting", "say hello", "You take over a task", "not known whether it happened"):
        assert told in said, said
    answered = json.dumps([result.text for result in world.model.requests()[-1].history.results])
    assert "outlast holds this call" in answered
    assert [act.name for act in world.performed()] == ["comment"]

    shown = several.shown()
    assert shown["session"]["agent"] == other
    assert shown["by_hand"]["agent"] == other
    assert len(world.model.paid()) == paid + 2
    assert shown["budget"]["spent"]["input"] == 1000 * len(world.model.paid()), (
        "what claude spent last counts too"
    )
    assert "write the greeting" in " ".join(several.last_command()), "later resumes stay with it"


@beside("codex")
def test_it_stays_with_the_other_one(several: Several) -> None:
    world = several.world
    world.model.script = Script([Step("One.", (bash("echo begun > begun.txt; sleep 300"),)), Step("Two.")])
    process = several.start()
    wait_for((world.work / "begun.txt").exists, what="the call", limit_s=60)
    several.kill_all(process)
    (world.work / "begun.txt").unlink()
    world.model.script = Script([Step("One.", (bash("echo begun > begun.txt; sleep 300"),)), Step("Two.")])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = world.begin(several.outlast("resume", "t", "--agent", "codex"), env=several.environ(), **quiet)
    wait_for((world.work / "begun.txt").exists, what="the call", limit_s=60)
    several.kill_all(process)
    assert several.last_command()[:2] == ["codex", "exec"]
    assert "--dangerously-bypass-approvals-and-sandbox" in several.last_command(), "trusted as claude was"
    done = several.resume()
    assert done.returncode == 0, done.stderr
    assert several.shown()["session"]["agent"] == "codex"


@beside("")
def test_what_cannot_be_started_is_refused_and_nothing_is_changed(several: Several) -> None:
    world = several.world
    world.model.script = Script([Step("One.", (bash("echo begun > begun.txt; sleep 300"),)), Step("Two.")])
    process = several.start()
    wait_for((world.work / "begun.txt").exists, what="the call", limit_s=60)
    several.kill_all(process)
    before = several.call("log", "t", "--json").stdout
    for words, told in (
        (("--agent", "nobody"), "no such agent: nobody"),
        (("--agent", "codex"), "codex"),
        (("--agent", "codex", "--", "true"), "does not start an agent's session, not codex"),
        (("--", "true"), "a command after `--` needs --agent"),
    ):
        done = several.resume(*words)
        assert done.returncode == 2, done.stderr
        error, _ = done.stderr.splitlines()
        assert error.startswith("error: "), done.stderr
        assert told in error
    assert several.call("log", "t", "--json").stdout == before
