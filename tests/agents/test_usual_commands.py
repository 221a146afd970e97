"""The usual command of each agent CLI, what a user's own command trusts it with, and the same command for a person."""

from pathlib import Path

import pytest

from outlast.agents import KnownAgent, registry
from tests.agents.checks import ask, launched, mark

PROMPTS = ["do the task", "-p is a flag\nand 'this' a quote", "--", "resume"]
UNASKED = ("kimi-code", "kimi-cli", "mini-swe-agent")  # headless they never ask, trusted or not


def known(name: str) -> KnownAgent:
    found = registry.by_name(name)
    assert found is not None
    return found


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Where Python's tells two programs of one name apart."""
    path = tmp_path / "program"
    path.write_text("#!/usr/bin/python3\n")
    return str(path)


@pytest.mark.parametrize("name", registry.NAMES)
@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_usual_command_is_its_own_headless_one(
    name: str, trusting: bool, prompt: str, program: str
) -> None:
    it = known(name)
    words = it.cli.headless_words(prompt, trusting=trusting)
    python = program if name in ("kimi-cli", "mini-swe-agent", "aider") else "/usr/bin/it"
    assert registry.recognise(words, python) is it
    assert it.cli.read(words).headless
    assert it.cli.read(words).prompt == prompt
    assert it.cli.read(words).trusting is (trusting or name in UNASKED)


@pytest.mark.parametrize(
    ("line", "trusts"),
    [
        ("claude -p x", False),
        ("claude -p x --permission-mode acceptEdits", False),
        ("claude -p x --permission-mode=bypassPermissions", True),
        ("claude --dangerously-skip-permissions", True),
        ("codex exec x", False),
        ("codex exec --full-auto x", False),
        ("codex --yolo", True),
        ("codex exec -s danger-full-access x", True),
        ("gemini -p x --approval-mode auto_edit", False),
        ("gemini -yp x", True),
        ("kimi", False),
        ("kimi --auto", True),
        ("opencode run x", False),
        ("opencode run --auto x", True),
        ("aider --message x", False),
        ("aider --yes --message x", True),
    ],
)  # fmt: skip
def test_what_a_command_trusts_its_agent_with(line: str, trusts: bool) -> None:
    words = line.split()
    found = registry.recognise(words, f"/usr/bin/{words[0]}")
    assert found is not None
    assert found.cli.read(words).trusting is trusts


@pytest.mark.parametrize(
    ("name", "line", "more", "command"),
    [
        ("claude", "claude -p x --output-format stream-json --verbose --max-turns 3 --model m", {"session": True},
         "claude --resume {id} --verbose --model m"),
        ("codex", "codex exec --json -m m --skip-git-repo-check x", {"session": True}, "codex -m m resume {id}"),
        ("codex", "codex -m m exec --json x", {}, "codex -m m x"),
        ("codex", "codex exec resume --last --json x", {}, "codex resume --last x"),
        ("gemini", "gemini -p x --output-format json --yolo", {"session": True}, "gemini --resume {id} --yolo"),
        ("kimi-code", "kimi -p x --output-format stream-json -m m", {"session": True}, "kimi -m m --session {id}"),
        ("opencode", "opencode run --format json --model m x", {}, "opencode --model m --prompt=x"),
        ("aider", "aider --model m --message x", {}, "aider --model m"),
        ("mini-swe-agent", "mini --yolo --exit-immediately -t x -o o", {}, "mini --yolo -t x -o o"),
    ],
)  # fmt: skip
def test_at_a_terminal_nothing_of_the_headless_form_is_left(
    name: str, line: str, more: dict[str, bool], command: str, tmp_path: Path
) -> None:
    session = mark(name) if more.get("session") else None
    asked = ask(line, tmp_path, interactive=True, **({"session": session} if session else {}))
    found = launched(known(name), asked).command
    assert list(found) == command.format(id=session.session if session else "").split()
