"""The real agents call the tools of `outlast mcp`, handed to them for the run: what they say is on record, and nothing is held."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.agents import registry
from outlast.agents.claude.cli import FILE_TOOLS, OWN_TOOLS, TABLE, unhooked_for, with_http_hooks
from outlast.agents.codex.agent import AGENT as CODEX
from outlast.agents.common import argv, own_server
from outlast.agents.events import ToolStart
from outlast.agents.outward.classify import classify
from outlast.agents.values import AgentCommand, Ask, HttpHook, McpServer
from outlast.mcp import tools
from tests.agents import checks
from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Call, History, Script, Step

AGENTS = [("claude", "2.1.325"), ("codex", None), ("gemini", None), ("kimi-code", None), ("opencode", None)]
NAMED = {"gemini": "mcp_outlast_{}", "opencode": "outlast_{}"}  # the others: mcp__outlast__{}


@pytest.fixture(params=AGENTS, ids=lambda agent: agent[0])
def under(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)


def called(under: Under, tool: str, **given: object) -> Call:
    return Call(NAMED.get(under.name, "mcp__outlast__{}").format(tool), given)


def test_the_agents_know_our_tools_by_their_names() -> None:
    assert tuple(each.name for each in tools.TOOLS) == own_server.TOOLS


def test_what_an_agent_says_by_its_tools_is_on_record_and_nothing_of_it_is_held(
    under: Under,
) -> None:
    world = under.world
    (world.work / "new.txt").write_text("new")
    world.model.script = Script(
        [
            Step("First.", (called(under, "stage", name="reviewing"),)),
            Step("Second.", (called(under, "budget"), called(under, "save", message="mine"))),
            Step("Third.", (called(under, "settle", effect="9.9", finding="happened"),)),
            Step("Done."),
        ]
    )
    process = under.start(
        "--budget", "400k", "--budget", "beats=50", env=under.environ(OUTLAST_RUN_MCP="true")
    )
    out, err = (text.decode() for text in process.communicate(timeout=LIMIT_S))
    assert process.returncode == 0, err
    shown = under.shown()
    assert shown["stage"] == "reviewing", err + out
    said = _said(world.model.requests()[-1].history)
    assert "400,000 tokens" in said
    assert "has no effect 9.9" in said
    assert len([each for each in shown["saves"] if each["kind"] == "manual"]) == 1
    outward = [each for each in under.effects() if each["args"].get("outward")]
    assert outward == [], json.dumps(outward)


OURS = McpServer(("/py thon", "-m", "outlast", "mcp"), {"OUTLAST_SOCKET": "/s o", "OUTLAST_ATTEMPT": "r.1"})
ENTRY = {"command": "/py thon", "args": ["-m", "outlast", "mcp"], "env": dict(OURS.variables)}


def given(name: str, words: str, folder: Path, **more: Any) -> AgentCommand:
    """How an agent is started with our server."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    known = registry.by_name(name)
    assert known is not None
    more = {
        "environment": {"HOME": str(home), "PATH": ""},
        "cwd": home,
        "folder": folder,
        "hook": ("/hook",),
        "mcp": OURS,
    } | more
    return checks.launched(known, Ask(words=tuple(words.split()), **more))


def option(command: AgentCommand, name: str) -> str:
    return command.command[command.command.index(name) + 1]


def test_claude_keeps_its_own_servers_and_may_call_ours_unless_its_user_forbids_it(tmp_path: Path) -> None:
    theirs = json.dumps({"permissions": {"allow": ["Read"], "deny": ["mcp__outlast__save"]}})
    words = "claude -p x --mcp-config a.json b.json --strict-mcp-config"
    known = registry.by_name("claude")
    assert known is not None
    ask = Ask(
        words=(*words.split(), "--settings", theirs), environment={"PATH": ""}, cwd=tmp_path, folder=tmp_path, hook=("/hook",), mcp=OURS
    )  # fmt: skip
    launch = checks.launched(known, ask)
    parts = argv.split(launch.command[1:], TABLE)
    lists = [part.values for part in parts if part.names == ("--mcp-config",)]
    assert lists == [(str(tmp_path / "claude-mcp.json"),), ("a.json", "b.json")]
    assert "--strict-mcp-config" in launch.command
    assert "x" in launch.command
    own = tmp_path / "claude-mcp.json"
    assert json.loads(own.read_text()) == {"mcpServers": {"outlast": ENTRY}}
    assert own.stat().st_mode & 0o777 == 0o600
    settings = json.loads(Path(option(launch, "--settings")).read_text())
    assert settings["permissions"]["deny"] == ["mcp__outlast__save"]
    assert settings["permissions"]["allow"] == ["Read", *OWN_TOOLS]


def test_claudes_hooks_by_http_are_not_asked_about_our_tools_but_about_those_of_another_server() -> None:
    hook = HttpHook("http://127.0.0.1:1/", "X", "s")
    unhooked = {*FILE_TOOLS, *OWN_TOOLS}
    for tools_apart, ours_are_hooked in ((unhooked, False), (FILE_TOOLS, True)):
        [entry] = with_http_hooks({}, hook, tools_apart)["hooks"]["PreToolUse"]  # type: ignore[index]
        assert bool(re.search(entry["matcher"], "mcp__outlast__save")) == ours_are_hooked
        for other in ("mcp__outlast__saves", "mcp__outlast__push", "mcp__other__save", "Bash"):
            assert re.search(entry["matcher"], other), other


def test_without_our_server_an_agent_is_started_as_ever(tmp_path: Path) -> None:
    for name, words in COMMANDS.items():
        launch = given(name, words, tmp_path, mcp=None)
        assert "mcp" not in json.dumps([launch.command, dict(launch.environment)]), name
    ask = Ask(words=("claude",), environment={}, cwd=tmp_path, folder=tmp_path)
    assert unhooked_for(ask) == frozenset(FILE_TOOLS)
    assert unhooked_for(msgspec.structs.replace(ask, mcp=OURS)) == {*FILE_TOOLS, *OWN_TOOLS}


COMMANDS = {
    "claude": "claude -p x",
    "codex": "codex exec x",
    "gemini": "gemini -p x",
    "kimi-code": "kimi -p x",
    "opencode": "opencode run x",
}


def test_codex_is_told_by_a_setting_of_its_command_line(tmp_path: Path) -> None:
    launch = given("codex", "codex exec -c mcp_servers.mine.command='m' x", tmp_path)
    told = [word for word in launch.command if word.startswith("mcp_servers.outlast=")]
    assert tomllib.loads(told[0])["mcp_servers"]["outlast"] == ENTRY | {
        "default_tools_approval_mode": "approve"
    }
    assert any(word.startswith("mcp_servers.mine") for word in launch.command)


@pytest.mark.parametrize(
    ("name", "folder", "file", "variable"),
    [
        ("gemini", ".gemini", "settings.json", "GEMINI_CLI_HOME"),
        ("kimi-code", ".kimi-code", "mcp.json", "KIMI_CODE_HOME"),
    ],
)
def test_a_home_of_the_runs_own_has_our_server_besides_theirs_and_their_file_stays(
    tmp_path: Path, name: str, folder: str, file: str, variable: str
) -> None:
    real = tmp_path / "home" / folder
    real.mkdir(parents=True)
    theirs = {"mcpServers": {"mine": {"command": "m"}, "outlast": {"command": "another"}}, "other": 1}
    (real / file).write_text(json.dumps(theirs))
    launch = given(name, COMMANDS[name], tmp_path)
    home = Path(launch.environment[variable])
    found = json.loads((home / folder / file if name == "gemini" else home / file).read_text())
    trusted = {"trust": True} if name == "gemini" else {}
    assert found["mcpServers"] == {"mine": {"command": "m"}, "outlast": ENTRY | trusted}
    assert found["other"] == 1
    assert json.loads((real / file).read_text()) == theirs


def test_opencode_is_told_by_its_variable_besides_what_that_says(tmp_path: Path) -> None:
    content = json.dumps({"mcp": {"mine": {"type": "local"}}, "model": "m"})
    environment = {"HOME": str(tmp_path / "home"), "PATH": "", "OPENCODE_CONFIG_CONTENT": content}
    launch = given("opencode", "opencode run x", tmp_path, environment=environment)
    found = json.loads(launch.environment["OPENCODE_CONFIG_CONTENT"])
    assert found["model"] == "m"
    assert found["mcp"]["mine"] == {"type": "local"}
    assert found["mcp"]["outlast"] == {
        "type": "local", "command": list(OURS.command), "environment": dict(OURS.variables), "enabled": True,
    }  # fmt: skip


@pytest.mark.parametrize("tool", own_server.TOOLS)
def test_a_call_of_ours_stays_inside_and_one_of_a_server_with_a_like_name_does_not(tool: str) -> None:
    for name in (f"mcp__outlast__{tool}", f"mcp_outlast_{tool}"):
        assert classify(name, {"effect": "1.1", "name": "x"}, "/") == []
    for name in (f"mcp__outlast2__post_{tool}", "mcp__outlast__push_it"):
        assert classify(name, {"name": "x"}, "/")


@pytest.mark.parametrize("under", AGENTS[:2], indirect=True, ids=[name for name, _ in AGENTS[:2]])
def test_another_server_by_our_name_steps_aside_for_the_run(under: Under) -> None:
    """Also one that came with a repository: it would be called in our place, without a hook."""
    world = under.world
    words = ["sh", "-c", f"touch {world.folder / 'started'}; sleep 60"]
    listed = {"outlast": {"command": words[0], "args": words[1:]}}
    (world.work / ".mcp.json").write_text(json.dumps({"mcpServers": listed}))
    (world.work / ".claude").mkdir(exist_ok=True)
    (world.work / ".claude/settings.json").write_text('{"enableAllProjectMcpServers": true}')
    env, command = under.environ(OUTLAST_RUN_MCP="true"), under.words()
    if under.name == "codex":
        with (world.home / ".codex/config.toml").open("a") as file:
            file.write(f"\n[mcp_servers.outlast]\ncommand = 'sh'\nargs = {json.dumps(words[1:])}\n")
    world.model.script = Script([Step("First.", (called(under, "stage", name="reviewing"),)), Step("Done.")])
    process = world.begin(under.outlast("run", "--task", "t", "--", *command), env=env, stdout=-1, stderr=-1)
    out, err = process.communicate(timeout=LIMIT_S)
    assert under.shown()["stage"] == "reviewing", err + out
    assert not (world.folder / "started").exists()


@pytest.mark.parametrize("under", AGENTS[:2], indirect=True, ids=[name for name, _ in AGENTS[:2]])
def test_an_agent_that_asks_is_stopped_and_has_the_answer_when_it_goes_on(under: Under) -> None:
    world = under.world
    question = called(under, "ask", text="which API?", choices=["v1", "v2"])

    def asks(history: History, plays: int) -> Step:
        is_answered = any('"answer":"v2"' in each.text.replace(" ", "") for each in history.results)
        return Step("Done.") if is_answered else Step("I ask.", (question,))

    world.model.script = Script(asks)
    process = under.start(env=under.environ(OUTLAST_RUN_MCP="true"))
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3, err
    assert [each["text"] for each in under.shown()["waits_for"]] == ["which API?"]
    assert under.call("answer", "t", "v2", "--no-start").returncode == 0
    process = under.start(env=under.environ(OUTLAST_RUN_MCP="true"))
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert b"Done." in out


@pytest.mark.parametrize("under", [("codex", None)], indirect=True, ids=["codex"])
def test_codex_names_the_tools_of_a_server_in_its_rollout_as_in_its_hooks(under: Under) -> None:
    world = under.world
    world.model.script = Script([Step("First.", (called(under, "stage", name="reviewing"),)), Step("Done.")])
    process = under.start(env=under.environ(OUTLAST_RUN_MCP="true"))
    process.communicate(timeout=LIMIT_S)
    [path] = (world.home / ".codex/sessions").rglob("rollout-*.jsonl")
    started = [event for line in path.read_bytes().splitlines() for event in CODEX.transcript.parse(line)]
    assert [event.name for event in started if isinstance(event, ToolStart)] == ["mcp__outlast__stage"]
    assert [each["args"]["tool"] for each in under.effects()] == ["mcp__outlast__stage"]


def _said(history: History) -> str:
    return "\n".join(result.text for result in history.results)
