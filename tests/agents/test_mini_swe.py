"""mini-swe-agent, against what it printed, tables and the real program."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.agents.common import versions
from outlast.agents.mini_swe import AGENT, TRAJECTORY_FILE
from outlast.agents.values import Answer, Hook
from tests.agents import checks
from tests.agents.agent_alone import Launched, bash
from tests.agents.agent_world import AgentWorld
from tests.agents.checks import ask, launched, mark
from tests.agents.script import Script, Step

ME = AGENT


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("mini-swe-agent -t x", "/usr/bin/mini-swe-agent", True),
        ("uvx mini-swe-agent -t x", "/usr/bin/uvx", True),
        ("uvx --from mini-swe-agent mini -t x", "/usr/bin/uvx", True),
        ("python -m minisweagent -t x", "/usr/bin/python", True),
        ("mini -t x", "/usr/bin/mini", False),
        ("mini-extra config", "/usr/bin/mini-extra", False),
        ("mini-swe-agent --help", "/usr/bin/mini-swe-agent", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


def test_a_program_called_mini_is_this_one_when_python_runs_it(tmp_path: Path) -> None:
    script = tmp_path / "mini"
    script.write_text("#!/usr/bin/python3\n")
    assert ME.cli.detect(["mini", "-t", "x"], str(script))


def test_how_it_is_started_and_that_it_is_not_resumed(tmp_path: Path) -> None:
    own = str(tmp_path / TRAJECTORY_FILE)
    assert launched(ME, ask("mini -y -t x", tmp_path)).command == ("mini", "-y", "-t", "x", "--output", own)
    assert launched(ME, ask("mini -o t.json -t x", tmp_path)).command == ("mini", "-o", "t.json", "-t", "x")
    fresh = launched(ME, ask("mini -o t -yt x", tmp_path, prompt="-all"))
    assert fresh.command == ("mini", "-o", "t", "-y", "--task=-all")
    assert ME.cli.launch(ask("mini -t x", tmp_path, session=mark("mini-swe-agent"))) is None
    assert ME.transcript.find("", ask("mini -t x", tmp_path)) is None
    assert not ME.release.caps.resume


def test_what_it_is_told_and_whether_anybody_is_there() -> None:
    assert ME.cli.read(["mini", "-t", "say it"]).prompt == "say it"
    assert ME.cli.read(["mini", "-y", "--exit-immediately", "-t", "x"]).headless
    assert not ME.cli.read(["mini", "-t", "x"]).headless
    assert "too old" in versions.problem(ME.release, "1.9.0")
    assert ME.cli.hook(b"{}") == Hook("other")
    assert ME.cli.answer(b"{}", Answer(False, "no")) == (b"", 0)


def test_endings_also_where_it_exits_0_after_a_failure() -> None:
    assert checks.wrong_endings(AGENT) == []
    assert ME.transcript.ending(0, b"Exit:\nLimitsExceeded\nSaved trajectory", b"").ending == "budget"
    trajectory = json.dumps({"info": {"exit_status": "TimeExceeded"}}).encode()
    assert ME.transcript.ending(0, b"", trajectory).ending == "budget"
    assert ME.transcript.ending(1, b"Traceback\nKeyError: 1", b"").ending == "crashed"


test_no_input_makes_it_fail = checks.hostile(AGENT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_started_by_us_it_does_what_it_does_and_leaves_its_trajectory(world: AgentWorld) -> None:
    world.model.script = Script([Step("First.", (bash("echo one >> marks"),)), Step("Done.")])
    agent = Launched(world, "mini-swe-agent")
    asked = agent.ask()
    at = asked.words.index("-o")
    words = asked.words[:at] + asked.words[at + 2 :]
    code, said = agent.run(agent.ask(words=words))
    assert code == 0, said
    assert (world.work / "marks").read_text() == "one\n"
    trajectory = (agent.folder / TRAJECTORY_FILE).read_bytes()
    assert ME.transcript.ending(code, said, trajectory).ending == "done"
