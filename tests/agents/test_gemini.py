"""Gemini CLI, against recorded lines, tables and the real program."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outlast.agents import registry
from outlast.agents.common import versions
from outlast.agents.events import BatchEnd, Response, Session, Text, ToolEnd, ToolStart, UsageReport
from outlast.agents.gemini.agent import AGENT, agent as gemini
from outlast.agents.gemini.cli import HOOKED, with_hooks, without_retention
from outlast.agents.gemini.transcript import call_id
from outlast.agents.values import Answer, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError
from tests.agents import checks
from tests.agents.agent_world import AgentWorld
from tests.agents.checks import RAW, UUID, ask, launched, lines, mark
from tests.agents.script import Script

ME = gemini(fresh_id=lambda: UUID)
PACKAGE = "/x/node_modules/@google/gemini-cli/bundle/gemini.js"


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("gemini -p x", "/usr/bin/gemini", True),
        ("npx -y @google/gemini-cli@latest -p x", "/usr/bin/npx", True),
        ("npx -p @google/gemini-cli gemini -p x", "/usr/bin/npx", True),
        ("pnpm dlx @google/gemini-cli", "/usr/bin/pnpm", True),
        (f"node --no-warnings {PACKAGE} -p x", "/usr/bin/node", True),
        ("g -p x", PACKAGE, True),
        ("gemini mcp list", "/usr/bin/gemini", False),
        ("gemini --version", "/usr/bin/gemini", False),
        ("gemini --list-sessions", "/usr/bin/gemini", False),
        ("gemini --acp", "/usr/bin/gemini", False),
        ("npx @google/gemini-cli-core", "/usr/bin/npx", False),
        ("npx cowsay gemini", "/usr/bin/npx", False),
        ("gemini-pro -p x", "/usr/bin/gemini-pro", False),
        ("node server.js gemini", "/usr/bin/node", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


@pytest.mark.parametrize(
    ("line", "more", "command"),
    [
        ("gemini -y -p x", {}, f"gemini --session-id {UUID} -y -p x"),
        ("gemini --resume latest -p x", {}, "gemini --resume latest -p x"),
        (f"gemini --session-id {UUID} x", {}, f"gemini --session-id {UUID} x"),
        ("gemini -r 3 -m m -p x y", {"session": mark("gemini"), "prompt": "on"}, f"gemini --resume {UUID} -m m --prompt=on"),
        ("gemini -m m say it", {"session": mark("gemini"), "prompt": "-on"}, f"gemini --resume {UUID} -m m --prompt=-on"),
        ("gemini -o json -p x", {"session": mark("gemini"), "interactive": True}, f"gemini --resume {UUID}"),
        ("gemini --session-id old -p x", {"prompt": "all"}, f"gemini --session-id {UUID} --prompt=all"),
        ("gemini -e a b -p x", {"session": mark("gemini"), "prompt": "on"}, f"gemini --resume {UUID} -e a b --prompt=on"),
    ],
)  # fmt: skip
def test_how_it_is_started_and_resumed(
    line: str, more: dict[str, object], command: str, tmp_path: Path
) -> None:
    launch = launched(ME, ask(line, tmp_path, **more))
    assert list(launch.command) == command.split()
    assert launch.environment == {"GEMINI_CLI_NO_RELAUNCH": "true"}


def test_what_the_user_says_and_whether_anybody_is_there() -> None:
    assert ME.cli.read(["gemini", "-p", "say it"]).prompt == "say it"
    assert ME.cli.read(["gemini", "say", "it"]).prompt == "say it"
    assert ME.cli.read(["gemini", "-yp", "x"]).headless
    assert not ME.cli.read(["gemini", "-i", "x"]).headless
    assert "too old" in versions.problem(ME.release, "0.11.3")
    assert versions.problem(ME.release, "0.61.0") == versions.untested(ME.release, "0.61.0") == ""
    assert "newer" in versions.untested(ME.release, "0.70.0")


def test_the_run_has_a_home_that_is_the_users_but_for_our_hooks(tmp_path: Path) -> None:
    real = tmp_path / ".gemini"
    real.mkdir()
    theirs = {"type": "command", "command": "mine"}
    hooks = json.dumps({"BeforeTool": [{"hooks": [theirs]}]})
    (real / "settings.json").write_text('{// mine\n"ui": {"theme": "http://x"}, "hooks": ' + hooks + ",}")
    (real / "GEMINI.md").write_text("memory")
    folder = tmp_path / "run"
    folder.mkdir()
    launch = launched(ME, ask("gemini -p x", tmp_path, folder=folder, hook=("a b", "c")))
    home = Path(launch.environment["GEMINI_CLI_HOME"]) / ".gemini"
    settings = json.loads((home / "settings.json").read_text())
    assert settings["ui"] == {"theme": "http://x"}
    assert settings["hooks"]["BeforeTool"][0]["hooks"] == [theirs]
    assert settings["hooks"]["BeforeTool"][1]["hooks"][0]["command"] == "'a b' c"
    assert set(settings["hooks"]) == set(HOOKED)
    assert settings["general"]["sessionRetention"] == {"enabled": False}
    assert (home / "settings.json").stat().st_mode & 0o777 == 0o600
    assert (home / "GEMINI.md").read_text() == "memory"
    (home / "tmp" / "made").mkdir()
    assert (real / "tmp" / "made").is_dir()
    (home / "oauth_creds.json").write_text("key")
    assert (real / "oauth_creds.json").read_text() == "key"
    launched(ME, ask("gemini -p x", tmp_path, folder=folder, hook=("other",)))
    assert '"other"' in (home / "settings.json").read_text()


def test_settings_of_the_user_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").write_text("[]")
    with pytest.raises(UsageError):
        ME.cli.launch(ask("gemini -p x", tmp_path, hook=("h",)))


def test_what_the_user_says_of_hooks_and_of_old_sessions_stays(tmp_path: Path) -> None:
    assert without_retention({"general": {"sessionRetention": {"maxAge": "7d"}}}) == {
        "general": {"sessionRetention": {"maxAge": "7d"}}
    }
    assert with_hooks({"hooks": {"Notification": [1]}}, ["h"])["hooks"]["Notification"] == [1]  # type: ignore[index]
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").write_text('{"hooksConfig": {"enabled": false}}')
    assert "hooksConfig" in ME.cli.hooks_off(ask("gemini -p x", tmp_path))


def test_a_chat_file_tells_exactly_what_happened() -> None:
    told = [event for line in lines("gemini-0.61.0-chat.jsonl") for event in ME.transcript.parse(line)]
    first, last = "0dd7fe9e-90eb-457d-bbef-ae71a8884f6d", "0fffcff4-6915-4feb-b0dc-a89f2a1d9a19"
    given = RAW(b'{"file_path":"/home/user/project/hello.txt","content":"hello\\n"}')
    spent = UsageReport(values.Usage(12203 - 22, 33 + 4, 22), "response", first, "gemini-2.5-flash")
    call = call_id("write_file", given)
    written = "Successfully created and wrote to new file: /home/user/project/hello.txt. Here is the updated code:\nhello\n"
    assert told[:8] == [
        Response(first), Text("I will write a file."), spent, Response(first), ToolStart(call, "write_file", given),
        ToolEnd(call, True, written), spent, BatchEnd(),
    ]  # fmt: skip
    assert told[-3:-1] == [Response(last), Text("All done.")]
    used = {event.key: event.values.tokens for event in told if isinstance(event, UsageReport)}
    assert sum(used.values()) == 12203 + 12325 + 12485 + 12610 + 4 * 37
    assert [event.text for event in told if isinstance(event, Text)] == [
        "I will write a file.", "Now bash.", "Slow bash.", "All done.",
    ]  # fmt: skip


def test_a_call_has_one_id_in_its_hooks_and_in_the_chat_file() -> None:
    hooks = [ME.cli.hook(line) for line in lines("gemini-0.61.0-hooks.jsonl")]
    path = "/home/user/.gemini/tmp/project/chats/session-2026-11-15T06-54-37e5e8a9.jsonl"
    assert hooks[0] == Hook("other", (Session("37e5e8a9-2169-42a2-a7ca-8d234967f9c0", path),))
    given = RAW(b'{"file_path": "/home/user/project/hello.txt", "content": "hello\\n"}')
    call = call_id("write_file", RAW(b'{"content":"hello\\n","file_path":"/home/user/project/hello.txt"}'))
    assert hooks[3] == Hook("pre", (ToolStart(call, "write_file", given),))
    assert hooks[4].kind == "post"
    (end,) = hooks[4].events
    assert isinstance(end, ToolEnd)
    assert (end.id, end.ok, end.output.startswith("Successfully")) == (call, True, True)
    told = [event for line in lines("gemini-0.61.0-chat.jsonl") for event in ME.transcript.parse(line)]
    assert call in [event.id for event in told if isinstance(event, ToolStart)]
    assert Hook("other", (BatchEnd(),)) in hooks


def test_answers() -> None:
    before, after = b'{"hook_event_name":"BeforeTool"}', b'{"hook_event_name":"AfterTool"}'
    assert ME.cli.answer(before, Answer()) == (b"", 0)
    assert ME.cli.answer(before, Answer(False, "no")) == (b'{"decision":"deny","reason":"no"}', 0)
    assert ME.cli.answer(b"garbage", Answer(False, "no")) == (b'{"decision":"deny","reason":"no"}', 0)
    assert b'"additionalContext":"look"' in ME.cli.answer(after, Answer(True, "look"))[0]
    assert b'"continue":false' in ME.cli.answer(after, Answer(False, "stop"))[0]


def test_a_cut_call_gets_its_result_and_none_is_there_twice() -> None:
    whole = (checks.SAMPLES / "gemini-0.61.0-chat.jsonl").read_bytes()
    killed = b"".join(whole.splitlines(keepends=True)[:16])
    cut = Cut("gemini-1", "run_shell_command", RAW(b'{"command":"x"}'), "the truth")
    mended = ME.transcript.mend(killed + b'{"id":"torn', [cut])
    assert mended.startswith(killed)
    (line,) = mended[len(killed) :].splitlines()
    messages = json.loads(line)["$set"]["messages"]
    assert [message["type"] for message in messages] == ["user", "user", "gemini", "gemini", "gemini"]
    (call,) = messages[-1]["toolCalls"]
    assert call["result"][0]["functionResponse"]["response"] == {"output": "the truth"}
    assert messages[-1]["content"] == "Slow bash."
    assert ME.transcript.mend(mended, ()) == mended
    assert len(ME.transcript.mend(whole, ())) > len(whole)
    assert ME.transcript.mend(b"", [cut])


def test_endings() -> None:
    assert checks.wrong_endings(AGENT) == []
    assert ME.transcript.ending(0, b"All done.", b"").ending == "done"
    assert ME.transcript.ending(53, b"", b"").ending == "turns"
    assert ME.transcript.ending(41, b"", b"").ending == "auth"
    assert ME.transcript.ending(429 & 0xFF, b"", b"").ending == "rate_limit"
    assert ME.transcript.ending(503 & 0xFF, b"", b"").ending == "network"
    assert ME.transcript.ending(-9, b"", b"").ending == "crashed"
    said = b'{\n  "session_id": "x",\n  "error": {\n    "type": "Error",\n    "message": "API key not valid.",\n    "code": 1\n  }\n}'
    assert ME.transcript.ending(1, said, b"").ending == "auth"


test_no_input_makes_it_fail = checks.hostile(AGENT, "gemini-0.61.0-chat.jsonl", "gemini-0.61.0-hooks.jsonl")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_killed_in_a_call_it_resumes_with_the_truth_once(world: AgentWorld) -> None:
    agent = checks.resumes_with_the_truth(world, "gemini")
    # In another minute a resume leaves a second, empty chat file, for which the next Gemini would delete the first.
    path = agent.transcript()
    stub = path.with_name(path.name.replace("session-", "session-9"))
    stub.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    code, said = agent.resume("and on")
    assert code == 0, said
    assert not stub.exists()
    assert agent.transcript() == path
    told = checks.results(world)
    assert len(told) == len(set(told)) == 2
    assert not os.path.islink(path)
    assert msgspec.json.decode(path.read_bytes().splitlines()[0])["sessionId"] == agent.session


def test_a_denied_call_is_not_made(world: AgentWorld) -> None:
    checks.denies(world, "gemini")


def test_exit_code_0_is_no_end_while_the_model_has_not_answered() -> None:
    """As it leaves when a signal stops it while the model streams."""
    said = b'{"id":"a","type":"gemini","content":"I work.","toolCalls":[{"id":"c","name":"x","status":"success"}]}\n'
    result = b'{"id":"b","type":"user","content":[{"functionResponse":{"id":"c"}}]}\n'
    done = b'{"id":"d","type":"gemini","content":"Done."}\n'
    known = registry.by_name("gemini")
    assert known is not None
    assert [known.transcript.ending(0, b"", chat).ending for chat in (said, said + result, said + result + done, b"")] == [
        "crashed", "crashed", "done", "done",
    ]  # fmt: skip
