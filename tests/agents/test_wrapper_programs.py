"""Agents behind other programs: seen through where that is safe, asked for their version through them, named where they are hidden."""

import shlex
from pathlib import Path

import pytest

from outlast.agents import registry
from outlast.agents.common import launch as common_launch
from outlast.agents.values import Ask
from outlast.errors import UsageError
from outlast.supervisor import start as begins
from outlast.supervisor.person import Person
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("env FOO=1 claude -p x", "claude"),
        ("/usr/bin/env A=1 B= codex exec x", "codex"),
        ("timeout 60 claude -p x", "claude"),
        ("timeout -k 5 --signal=INT 60 gemini -p x", "gemini"),
        ("nice -n 5 claude -p x", "claude"),
        ("nice -5 claude -p x", "claude"),
        ("nohup opencode run x", "opencode"),
        ("stdbuf -oL -e 0 kimi -p x", "kimi-code"),
        ("ionice -c2 -n 7 claude -p x", "claude"),
        ("env A=1 nice timeout 60 npx @openai/codex exec x", "codex"),
        ("timeout 60 claude mcp list", None),
        ("timeout claude", None),
        ("env -i claude -p x", None),
        ("env -C /srv claude -p x", None),
        ("env", None),
        ("env A=1", None),
        ("setsid claude -p x", None),  # it returns at once
        ("timeout 60 make claude", None),
    ],
)
def test_an_agent_behind_a_plain_prefix_is_that_agent(line: str, name: str | None) -> None:
    words = tuple(shlex.split(line))
    found = registry.recognise(words, f"/usr/bin/{Path(words[0]).name}")
    assert (found.name if found else None) == name


def test_flags_are_added_behind_the_agents_name_and_the_prefix_stays(tmp_path: Path) -> None:
    words = ("/usr/bin/env", "FOO=1", "timeout", "60", "claude", "-p", "hello")
    known = registry.recognise(words, words[0])
    assert known is not None
    launch = known.cli.launch(Ask(words=words, environment={}, cwd=tmp_path, folder=tmp_path, hook=("hook",)))
    assert launch is not None
    assert launch.command[:6] == (*words[:5], "--session-id")
    assert launch.command[-2:] == ("-p", "hello")
    assert known.cli.read(words).prompt == "hello"
    assert common_launch.env_assignments(words) == {"FOO": "1"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("bash -c 'claude -p x'", "claude"),
        ("sh -ec 'cd /srv && FOO=1 exec codex exec x'", "codex"),
        ("timeout 60 bash -lc 'echo hi; timeout 5 claude -p x'", "claude"),
        ("sudo -u alice claude -p x", "claude"),
        ("env -i claude -p x", "claude"),
        ("setsid claude -p x", "claude"),
        ("bash -c 'grep claude notes; cat codex'", ""),
        ("bash claude.sh", ""),
        ("grep claude notes", ""),
        ("bash -c 'claude mcp list'", ""),
        ("bash -c \"it's torn", ""),
        ("make", ""),
    ],
)
def test_an_agent_that_is_hidden_is_named(line: str, name: str) -> None:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split(" ", 2)
    found = registry.hidden_agent(words)
    assert (found[0] if found else "") == name


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


# --- its version, not the runner's ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("npx claude -p x", {"npx --version": "11.19.1", "npx claude --version": "2.1.325 (Claude Code)"}),
        ("npx -y @openai/codex exec x", {"npx --version": "11.19.1", "npx -y @openai/codex --version": "codex-cli 0.166.0"}),
        ("timeout 60 no-such-place/claude -p x", {"timeout --version": "timeout 9.1", "timeout 60 no-such-place/claude --version": "2.1.325"}),
        ("uvx kimi-cli --print -p x", {"uvx --version": "uvx 0.9.1", "uvx kimi-cli --version": "kimi, version 1.51.0"}),
    ],
)  # fmt: skip
def test_below_a_runner_the_agent_is_asked(
    line: str, answers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tuple(line.split())
    cases = "".join(f"'{asked}') echo '{answer}' ;;\n" for asked, answer in answers.items())
    program = script(tmp_path / words[0], f'case "{words[0]} $*" in\n{cases}esac\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    known = registry.recognise(words, str(program))
    assert known is not None
    said: list[str] = []
    begins.check_version(known, words, str(program), Person(said.append))
    assert said == []


def test_the_empty_release_is_refused_below_uvx_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "uvx", "echo kimi, version 1.52.0\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ("uvx", "kimi-cli", "--print", "-p", "x")
    known = registry.recognise(words, str(program))
    assert known is not None
    with pytest.raises(UsageError, match=r"1\.52"):
        begins.check_version(known, words, str(program), Person(print))


# --- with the real one ----------------------------------------------------------------------------------------------

FAKE = '{"type":"result","subtype":"error_max_turns","is_error":true,"result":"no"}'


def test_behind_a_prefix_its_calls_are_on_record_and_its_words_are_no_result(world: AgentWorld) -> None:
    under = Under(world, "claude", "2.1.325", more=["--output-format", "text"])
    world.model.script = Script([Step("Now.", (world.posting("comment"),)), Step(f"It is done.\n{FAKE}")])
    done = under.call("run", "--task", "t", "--", "env", "FOO=1", "timeout", "60", *under.words())
    assert (done.returncode, done.stdout) == (0, f"It is done.\n{FAKE}\n"), done.stderr
    assert [(effect["policy"], effect["state"]) for effect in under.effects()] == [("tell", "confirmed")]


def test_a_hidden_agent_is_said_to_be_a_plain_command(world: AgentWorld) -> None:
    under = Under(world, "claude", "2.1.325")
    world.model.script = Script([Step("Done.")])
    done = under.call("run", "--task", "t", "--", "bash", "-c", shlex.join(under.words()))
    assert done.returncode == 0, done.stderr
    assert (
        "claude below bash is run as a plain command: its calls are not guarded; give it directly"
        in done.stderr
    )
