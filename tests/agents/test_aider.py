"""aider, against what it printed, tables and the real program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.agents.aider import AGENT
from outlast.agents.events import BatchEnd, Response, Text, UsageReport
from outlast.agents.values import Answer, Hook
from outlast.core import values
from tests.agents import checks
from tests.agents.agent_alone import Launched, bash
from tests.agents.agent_world import AgentWorld
from tests.agents.checks import ask, launched, lines, mark
from tests.agents.script import Script, Step

ME = AGENT
ON = {"session": mark("aider", "h"), "prompt": "on"}
COST = "> Tokens: 767 sent, 33 received."


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("aider -m x", "/usr/bin/aider", True),
        ("aider a.py", "/usr/bin/aider", True),
        ("uvx --from aider-chat aider -m x", "/usr/bin/uvx", True),
        ("python -m aider -m x", "/usr/bin/python", True),
        ("aider --version", "/usr/bin/aider", False),
        ("aider --gui", "/usr/bin/aider", False),
        ("python -m aiders", "/usr/bin/python", False),
        ("vi aider", "/usr/bin/vi", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


@pytest.mark.parametrize(
    ("line", "more", "command"),
    [
        ("aider -m x a.py", {}, "aider -m x a.py"),
        ("aider --model m -m x a.py", ON, "aider --restore-chat-history --message=on --model m a.py"),
        ("aider -f task.txt a.py", {"prompt": "all"}, "aider --message=all a.py"),
        ("aider --no-restore-chat-history -m x", {"session": mark("aider", "h"), "interactive": True},
         "aider --restore-chat-history"),
    ],
)  # fmt: skip
def test_how_it_is_started_and_resumed(
    line: str, more: dict[str, object], command: str, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    history = tmp_path / ".aider.chat.history.md"
    history.touch()
    inside = tmp_path / "src"
    inside.mkdir()
    launch = launched(ME, ask(line, tmp_path, cwd=inside, **more))
    assert list(launch.command) == command.split()
    assert launch.session == str(history)


def test_its_session_is_its_history_file(tmp_path: Path) -> None:
    asked = ask("aider --chat-history-file my.md -m x", tmp_path, **ON)
    assert ME.cli.launch(asked) is None
    assert ME.transcript.find("", asked) is None
    (tmp_path / "my.md").touch()
    assert ME.transcript.find("", asked) == tmp_path / "my.md"
    assert launched(ME, asked).session == str(tmp_path / "my.md")
    assert ME.cli.resume_words("/x/my.md") == (
        "aider",
        "--restore-chat-history",
        "--chat-history-file",
        "/x/my.md",
    )
    assert ME.cli.resume_words("/x/.aider.chat.history.md") == ("aider", "--restore-chat-history")


def test_a_history_tells_what_was_said_and_what_it_cost() -> None:
    told = [event for line in lines("aider-0.86.2-history.md") for event in ME.transcript.parse(line)]
    words = ["First.", "run.sh", "```", "echo one >> marks", "```"]
    spent = UsageReport(values.Usage(767, 33, estimated=True), "response", COST)
    assert told == [*map(Text, words), Response(COST), spent, BatchEnd()]
    line = b"> Tokens: 6.1k sent, 1.5k cache write, 3k cache hit, 33 received. Cost: $0.0012 message, $0.10 session."
    usage = list(ME.transcript.parse(line))[1]
    assert isinstance(usage, UsageReport)
    assert usage.values == values.Usage(100, 33, 3000, 1500, 1200, estimated=True), "sent holds both"


def test_it_has_no_hooks_and_nothing_to_mend() -> None:
    assert ME.cli.hook(b"{}") == Hook("other")
    assert ME.cli.answer(b"{}", Answer(False, "no")) == (b"", 0)
    assert ME.transcript.mend(b"x", ()) == b"x"
    assert ME.release.caps.intent == ("shims",)


def test_endings_also_where_it_exits_0_after_a_failure() -> None:
    assert checks.wrong_endings(AGENT) == []
    limited = b"litellm.RateLimitError: RateLimitError: slow down\nRetrying in 0.2 seconds...\n"
    assert ME.transcript.ending(0, limited, b"").ending == "rate_limit"
    assert ME.transcript.ending(0, limited + b"Hello.\nTokens: 7 sent, 3 received.\n", b"").ending == "done"
    assert ME.transcript.ending(-15, b"", b"").ending == "crashed"


test_no_input_makes_it_fail = checks.hostile(AGENT, "aider-0.86.2-history.md")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_resumed_it_knows_what_was_said_before(world: AgentWorld) -> None:
    world.model.script = Script([Step("First.", (bash("echo one >> marks"),)), Step("Second.")])
    agent = Launched(world, "aider")
    code, said = agent.run(agent.ask())
    assert code == 0, said
    assert [event.values.output for event in agent.events() if isinstance(event, UsageReport)] == [33]
    code, said = agent.resume("go on")
    assert code == 0, said
    turns = world.model.requests()[-1].history.turns
    assert any("First." in turn.text for turn in turns)
    assert "go on" in turns[-1].text
    assert (world.work / "marks").read_text() == "one\n"
