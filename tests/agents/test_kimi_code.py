"""Kimi Code, against recorded lines, tables and the real program."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.agents.common import versions
from outlast.agents.events import BatchEnd, Response, Session, Text, ToolEnd, ToolStart, UsageReport
from outlast.agents.kimi.code.agent import AGENT
from outlast.agents.kimi.code.cli import HOOKED, with_hooks
from outlast.agents.values import Answer, Cut, Hook
from outlast.core import values
from outlast.errors import UsageError
from tests.agents import checks
from tests.agents.agent_alone import TRUTH
from tests.agents.agent_world import AgentWorld
from tests.agents.checks import RAW, ask, launched, lines, mark
from tests.agents.script import Script

ME = AGENT
SESSION = "session_814b7e3b-f57c-4682-894e-7542d8c411ed"
MAIN = "/x/node_modules/@moonshot-ai/kimi-code/dist/main.mjs"


@pytest.mark.parametrize(
    ("line", "program", "is_it"),
    [
        ("kimi -p x", "/usr/bin/kimi", True),
        ("kimi", "/usr/bin/kimi", True),
        ("npx @moonshot-ai/kimi-code@2.1.0 -p x", "/usr/bin/npx", True),
        (f"node {MAIN} -p x", "/usr/bin/node", True),
        ("kimi login", "/usr/bin/kimi", False),
        ("kimi --version", "/usr/bin/kimi", False),
        ("kimi acp", "/usr/bin/kimi", False),
        ("kimi-cli -p x", "/usr/bin/kimi-cli", False),
        ("uvx kimi-cli -p x", "/usr/bin/uvx", False),
        ("npx @moonshot-ai/other", "/usr/bin/npx", False),
        ("echo kimi", "/bin/echo", False),
    ],
)
def test_it_is_known_by_its_command_and_nothing_else_is(line: str, program: str, is_it: bool) -> None:
    assert ME.cli.detect(line.split(), program) is is_it


def test_the_older_program_of_the_same_name_is_another(tmp_path: Path) -> None:
    script = tmp_path / "kimi"
    script.write_text("#!/home/me/tools/kimi-cli/bin/python3\nimport sys\n")
    assert not ME.cli.detect(["kimi", "-p", "x"], str(script))
    script.write_text("#!/bin/sh\n'''exec' \"/very/long/bin/python3\" \"$0\" \"$@\"\n' '''\n")
    assert not ME.cli.detect(["kimi", "-p", "x"], str(script))
    script.write_text("#!/usr/bin/env node\n")
    assert ME.cli.detect(["kimi", "-p", "x"], str(script))


@pytest.mark.parametrize(
    ("line", "more", "command", "session"),
    [
        ("kimi -m k2 -p x", {}, "kimi -m k2 -p x", ""),
        ("kimi -S session_1 -p x", {}, "kimi -S session_1 -p x", "session_1"),
        ("kimi -m k2 -p x", {"session": mark("kimi-code", "session_1"), "prompt": "-on"},
         "kimi -m k2 --session session_1 --prompt=-on", "session_1"),
        ("kimi -c --agent a -yp x", {"session": mark("kimi-code", "session_1"), "prompt": "on"},
         "kimi -y --session session_1 --prompt=on", "session_1"),
        ("kimi -p x --output-format stream-json", {"session": mark("kimi-code", "session_1"), "interactive": True},
         "kimi --session session_1", "session_1"),
        ("kimi -S old --agent a -p x", {"prompt": "all"}, "kimi --agent a --prompt=all", ""),
    ],
)  # fmt: skip
def test_how_it_is_started_and_resumed(
    line: str, more: dict[str, object], command: str, session: str, tmp_path: Path
) -> None:
    launch = launched(ME, ask(line, tmp_path, **more))
    assert list(launch.command) == command.split()
    assert launch.environment == {}
    assert launch.session == session


def test_what_it_is_told_and_which_versions_are_carried() -> None:
    assert ME.cli.read(["kimi", "-p", "say it"]).prompt == "say it"
    assert ME.cli.read(["kimi", "--prompt=x"]).headless
    assert not ME.cli.read(["kimi"]).headless
    assert versions.problem(ME.release, "2.1.0") == versions.untested(ME.release, "2.1.0") == ""
    assert "too old" in versions.problem(ME.release, "1.9.0")
    assert "newer" in versions.untested(ME.release, "2.9.0")
    assert ME.cli.resume_words("s") == ("kimi", "--session", "s")


def test_the_run_has_a_home_that_is_the_users_but_for_our_hooks(tmp_path: Path) -> None:
    real = tmp_path / ".kimi-code"
    real.mkdir()
    (real / "config.toml").write_text(
        'default_model = "k"\n[[hooks]]\nevent = "Stop"\ncommand = "mine" # mine'
    )
    (real / "tui.toml").write_text("theme = 1")
    folder = tmp_path / "run"
    folder.mkdir()
    launch = launched(ME, ask("kimi -p x", tmp_path, folder=folder, hook=("a b", 'q"')))
    home = Path(launch.environment["KIMI_CODE_HOME"])
    config = tomllib.loads((home / "config.toml").read_text())
    assert config["default_model"] == "k"
    assert config["hooks"][0] == {"event": "Stop", "command": "mine"}
    assert [hook["event"] for hook in config["hooks"][1:]] == list(HOOKED)
    assert {hook["command"] for hook in config["hooks"][1:]} == {"'a b' 'q\"'"}
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert (home / "tui.toml").read_text() == "theme = 1"
    (home / "session_index.jsonl").write_text("{}\n")
    assert (real / "session_index.jsonl").read_text() == "{}\n"
    assert (home / "sessions").resolve() == (real / "sessions").resolve()


def test_hooks_on_one_line_stop_the_start() -> None:
    with pytest.raises(UsageError):
        with_hooks(b"hooks = []\n", ["h"])
    with pytest.raises(UsageError):
        with_hooks(b"no toml", ["h"])
    assert tomllib.loads(with_hooks(b"", ["h"]).decode())


def test_a_wire_file_tells_exactly_what_happened() -> None:
    told = [event for line in lines("kimi-code-2.1.0-wire.jsonl") for event in ME.transcript.parse(line)]
    step = "14648529-9ac9-4d68-849f-3d02c5ffee7e"
    given = RAW(b'{"path":"/home/user/project/hello.txt","content":"hello\\n"}')
    call = "call_e9acc77efdd842eeb0ed"
    assert told[:6] == [
        Response(step),
        UsageReport(values.Usage(20933, 33, 22, 0), "response", "main@1794725366596", "fake-model"),
        Text("I will write a file."),
        ToolStart(call, "Write", given),
        ToolEnd(call, True, "Wrote 6 bytes to /home/user/project/hello.txt"),
        BatchEnd(),
    ]
    used = {event.key: event.values for event in told if isinstance(event, UsageReport)}
    assert sum(each.input for each in used.values()) == 20933 + 21026 + 21108 + 21208 + 21304
    assert sum(each.output for each in used.values()) == 5 * 33
    assert sum(isinstance(event, Response) for event in told) == 5
    assert told[-2:] == [BatchEnd(), BatchEnd()]


def test_a_sub_agent_is_a_lane(tmp_path: Path) -> None:
    line = {
        "type": "context.append_loop_event",
        "agentId": "agent-1",
        "event": {"type": "step.begin", "uuid": "u"},
    }
    assert list(ME.transcript.parse(json.dumps(line).encode())) == [Response("u", "agent-1")]
    for name in ("main", "agent-1"):
        (tmp_path / "agents" / name).mkdir(parents=True)
        (tmp_path / "agents" / name / "wire.jsonl").touch()
    assert ME.transcript.beside(tmp_path / "agents/main/wire.jsonl").lanes == (
        tmp_path / "agents/agent-1/wire.jsonl",
    )


def test_hooks_tell_calls_before_and_after() -> None:
    hooks = [ME.cli.hook(line) for line in lines("kimi-code-2.1.0-hooks.jsonl")]
    given = RAW(b'{"path": "/home/user/project/hello.txt", "content": "hello\\n"}')
    call = "call_15899f9878f8434288c2"
    assert hooks[0] == Hook("other", (Session(SESSION),))
    assert hooks[1] == Hook("other")
    assert hooks[2] == Hook("pre", (ToolStart(call, "Write", given),))
    assert hooks[3] == Hook("post", (ToolEnd(call, True, "Wrote 6 bytes to /home/user/project/hello.txt"),))
    assert hooks[-1] == Hook("other", (BatchEnd(),))
    failed = {"hook_event_name": "PostToolUseFailure", "tool_call_id": "c", "error": {"message": "bad"}}
    assert ME.cli.hook(json.dumps(failed).encode()) == Hook("post", (ToolEnd("c", False, "bad"),))


def test_answers() -> None:
    assert ME.cli.answer(b"{}", Answer(True, "x")) == (b"", 0)
    out, code = ME.cli.answer(b"{}", Answer(False, "no"))
    assert code == 0
    assert json.loads(out)["hookSpecificOutput"] == {
        "permissionDecision": "deny",
        "permissionDecisionReason": "no",
    }


def test_a_cut_call_gets_its_result_and_a_lost_one_is_written_again() -> None:
    whole = (checks.SAMPLES / "kimi-code-2.1.0-wire.jsonl").read_bytes()
    rows = whole.splitlines(keepends=True)
    at = next(n for n, row in enumerate(rows) if b'"toolCallId":"call_ca7f' in row and b'"tool.call"' in row)
    cut = Cut("call_ca7f247450a2442e9198", "Bash", RAW(b'{"command":"x"}'), "the truth")
    killed = b"".join(rows[: at + 1])
    mended = ME.transcript.mend(killed + b'{"type":"to', [cut])
    assert mended.startswith(killed)
    told = [event for line in mended[len(killed) :].splitlines() for event in ME.transcript.parse(line)]
    assert told == [ToolEnd(cut.id, True, "the truth"), BatchEnd()]
    assert ME.transcript.mend(mended, [cut]) == mended
    before = b"".join(rows[:at])
    lost = ME.transcript.mend(before, [cut])
    told = [event for line in lost[len(before) :].splitlines() for event in ME.transcript.parse(line)]
    assert [type(event) for event in told] == [Response, ToolStart, ToolEnd, BatchEnd]
    assert ME.transcript.mend(whole, ()) == whole


def test_endings() -> None:
    assert checks.wrong_endings(AGENT) == []
    assert ME.transcript.ending(0, b"All done.", b"").ending == "done"
    assert ME.transcript.ending(143, b"", b"").ending == "crashed"
    turn = {
        "type": "turn.ended",
        "reason": "failed",
        "error": {"code": "loop.max_steps_exceeded", "message": "m"},
    }
    assert ME.transcript.ending(0, b"", json.dumps(turn).encode()).ending == "turns"
    cancelled = {"type": "turn.ended", "reason": "cancelled"}
    assert ME.transcript.ending(0, b"", json.dumps(cancelled).encode()).ending == "crashed"
    limited = {"code": "provider.rate_limit", "message": "429 slow down", "details": {"statusCode": 429}}
    turn = {"type": "turn.ended", "reason": "failed", "error": limited}
    assert ME.transcript.ending(1, b"", json.dumps(turn).encode()).ending == "rate_limit"


test_no_input_makes_it_fail = checks.hostile(
    AGENT, "kimi-code-2.1.0-wire.jsonl", "kimi-code-2.1.0-hooks.jsonl"
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


def test_killed_in_a_call_it_resumes_with_the_truth_once(world: AgentWorld) -> None:
    agent = checks.resumes_with_the_truth(world, "kimi-code")
    # As without us, the session lies in the user's own home and can be resumed there by hand.
    done = world.run(world.command("kimi-code", "by hand", session=agent.session))
    assert done.returncode == 0, done.stderr
    assert any(TRUTH in text for text in checks.results(world))


def test_a_call_that_the_file_lost_is_told_as_well(world: AgentWorld) -> None:
    agent = checks.killed_in_a_call(world, "kimi-code")
    cuts = agent.cuts()
    path = agent.transcript()
    rows = path.read_bytes().splitlines(keepends=True)
    begun = max(n for n, row in enumerate(rows) if b'"step.begin"' in row)
    path.write_bytes(b"".join(rows[:begun]) + rows[begun][:40])
    agent.mend(cuts)
    code, said = agent.resume("go on")
    assert code == 0, said
    assert [TRUTH in text for text in checks.results(world)] == [False, True]


def test_a_denied_call_is_not_made(world: AgentWorld) -> None:
    checks.denies(world, "kimi-code")
