"""The shipped loops with the real CLIs: a scripted model works on each issue, and the external witness gets the comments."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Fault, Script, Step, write
from tests.shell import standin
from tests.shell.project import need_examples
from tests.support.environment import ROOT
from tests.support.processes import kill_at_once, wait_for

LIMIT_S = 180.0
RECORD = "OUTLAST_TEST_RECORD"
LOOPS = [
    ("claude-loop.sh", "CLAUDE", "claude", "2.1.325"),
    ("kimi-loop.sh", "KIMI", "kimi-code", None),
    ("kimi-loop.sh", "KIMI", "kimi-cli", "1.51.0"),
]


@dataclass
class ShippedLoop:
    """One of examples/*.sh, an agent CLI for it, and a `gh` whose comments are the witness's acts."""

    world: AgentWorld
    script: str
    variable: str
    name: str
    version: str | None

    def start(self, **more: str) -> "subprocess.Popen[bytes]":
        world, tool = self.world, need(self.name, self.version)
        gh = world.folder / "gh"
        gh.write_text(f"#!{sys.executable}\n{Path(standin.__file__).read_text()}")
        gh.chmod(0o755)
        (world.work / "issues.txt").write_text("7\n")
        env = world.environment(tool)
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        env |= {
            self.variable: tool.command[0],
            "GH": str(gh),
            "WITNESS": world.witness.url,
            "WITNESS_LOG": str(world.witness.log),
            "ONCE": str(world.folder / "once"),
        }
        argv = world.namespaced(["bash", need_examples() / self.script, "issues.txt"])
        return world.begin(argv, env=env | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, **more: str) -> tuple[int, str]:
        process = self.start(**more)
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said.decode()

    def record(self, before: str, after: str) -> None:
        """Write docs/recorded/LOOP-AGENT.txt: a kill in the middle of the work, the same line again, and what it came to."""
        world, line = self.world, f"$ {self.variable}={self.name} examples/{self.script} issues.txt"
        ls = world("ls").out
        shown = [
            f"# {self.name} {need(self.name, self.version).version}, a scripted model; {RECORD}=1 ./dev test-agents -k killed_in_its_work",
            "$ cat issues.txt", "7", line, before,
            "# kill -9 of the loop, outlast, the agent and all they started: it has written its fix and asks its model again",
            line, after, "$ outlast ls", ls, "$ git log --oneline --stat -1", world.git("log", "--oneline", "--stat", "-1"),
            f"# comments posted: {len(self.comments())}",
        ]  # fmt: skip
        text = "\n".join(part.rstrip("\n") for part in shown if part.strip()) + "\n"
        folder = ROOT / "docs/recorded"
        folder.mkdir(exist_ok=True)
        name = f"{Path(self.script).stem}-{self.name}.txt"
        here = r"\n?".join(
            re.escape(letter) for letter in f"{world.folder}/"
        )  # also where the agent broke the line
        (folder / name).write_text(re.sub(here, "", text).replace(f" on {os.uname().nodename} ", " "))

    def comments(self) -> list[str]:
        return [act.identity for act in self.world.performed()]


@pytest.fixture(params=LOOPS, ids=lambda loop: f"{loop[0]}-{loop[2]}")
def loop(request: pytest.FixtureRequest, world: AgentWorld) -> ShippedLoop:
    return ShippedLoop(world, *request.param)


def test_the_agent_changes_a_file_which_is_committed_and_commented_once(loop: ShippedLoop) -> None:
    loop.world.model.script = Script([Step(calls=(write("fix-7", "fixed\n"),)), Step("I fixed it.")])
    code, said = loop.run()
    assert code == 0, said
    assert loop.world.git("show", "HEAD:fix-7") == "fixed\n", said
    assert loop.comments() == ["7"], said


def test_an_agent_that_changed_nothing_is_not_said_to_be_done(loop: ShippedLoop) -> None:
    loop.world.model.script = Script([Step("I fixed it.")])
    code, said = loop.run()
    assert code != 0, said
    assert "no file has changed" in said
    assert loop.comments() == []


def test_a_failing_check_stops_the_loop_before_the_comment(loop: ShippedLoop) -> None:
    loop.world.model.script = Script([Step(calls=(write("fix-7", "wrong\n"),)), Step("I fixed it.")])
    code, said = loop.run(CHECK="grep -q fixed fix-7")
    assert code != 0, said
    assert "the check fails: grep -q fixed fix-7" in said
    assert loop.comments() == []
    (loop.world.work / "fix-7").write_text("fixed\n")  # by hand
    code, said = loop.run(CHECK="grep -q fixed fix-7")
    assert code == 0, said
    assert loop.comments() == ["7"]


def test_killed_in_its_work_the_agent_goes_on_in_its_session_and_nothing_is_paid_twice(
    loop: ShippedLoop,
) -> None:
    world = loop.world
    steps = [Step(calls=(write("fix-7", "fixed\n"),)), Step("I fixed it.", fault=Fault(hang_after=0))]
    world.model.script = Script(steps)
    process = loop.start()
    wait_for(lambda: world.model.hanging or None, what="the second response", limit_s=90)
    # What a transcript tells is on record some 50 ms after the model is asked again; until then it is the beat in flight.
    wait_for(lambda: world.summary(f"{loop.script}: work 7").state.beats or None, what="the first beat")
    kill_at_once(list(world.processes()), wait=True)
    before, _ = process.communicate()
    code, said = loop.run()
    if os.environ.get(RECORD):
        loop.record(before.decode(), said)
    assert code == 0, said
    assert loop.comments() == ["7"]
    work = world.summary(f"{loop.script}: work 7").state
    assert (work.status, work.attempts) == ("done", 2), said
    assert [request.step for request in world.model.paid()].count(0) == 1, (
        "the first response is not asked for again"
    )
    assert work.spent.tokens > 0
    around = world.summary(loop.script).state
    assert around.spent_inside.tokens == work.spent.tokens, (
        "what the agent spent is on the script's account too"
    )
