"""Codex, against recorded lines and tables; the real program is in test_codex_real.py."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.agents.codex.agent import agent as codex
from outlast.agents.codex.cli import HOOKED, trust_hash
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Limit,
    Response,
    Session,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.values import AgentCommand, Answer, Ask, Cut, Hook
from outlast.core import values
from outlast.core.values import SessionMark
from tests.agents.test_json_lines import JSON

SAMPLES = Path(__file__).parent / "samples"
ID = "01a1e055-58d5-78a2-98d7-2e3e595e47f2"
ME = codex()
RAW = msgspec.Raw
MARK = SessionMark(agent="codex", session=ID)


def told() -> list[AgentEvent]:
    lines = (SAMPLES / "codex-0.166-rollout.jsonl").read_bytes().splitlines()
    return [event for line in lines for event in ME.transcript.parse(line)]


def spent(fresh: int, key: str) -> UsageReport:
    return UsageReport(values.Usage(fresh, 33, 22), "response", key, "fake-model")


def launched(line: str, folder: Path, **more: Any) -> AgentCommand:
    given = {"environment": {"HOME": str(folder), "PATH": ""}, "cwd": folder, "folder": folder, **more}
    launch = ME.cli.launch(Ask(words=tuple(line.split()), **given))
    assert launch is not None
    return launch


def test_a_rollout_tells_exactly_what_happened() -> None:
    one, two, three = "resp_0c874bce0f9948579772", "resp_9762627df30b4775b268", "resp_3d7d5d03604046cd8f5a"
    hi, bad, good = "call_5f42cd2411ee4dcf9048", "call_fd0b46441ce84d249001", "call_ff31616d953846fa8430"
    seen = told()
    ends = [event for event in seen if isinstance(event, ToolEnd)]
    assert [(end.id, end.ok, end.output.split("Output:\n")[1]) for end in ends] == [
        (hi, True, "hi\n"),
        (bad, False, "bad\n"),
        (good, True, "two\n"),
    ]
    assert [event for event in seen if not isinstance(event, ToolEnd)] == [
        Session(ID),
        Text("Run."),
        ToolStart(hi, "Bash", RAW(b'{"command":"echo hi"}')),
        Response(one),
        spent(9820, one),
        BatchEnd(),
        Text("Two."),
        ToolStart(bad, "Bash", RAW(b'{"command":"echo bad; exit 3"}')),
        ToolStart(good, "Bash", RAW(b'{"command":"echo two"}')),
        Response(two),
        spent(9963, two),
        BatchEnd(),
        Text("All steps are done."),
        Response(three),
        spent(10213, three),
        BatchEnd(),
        BatchEnd(),
    ]


def test_a_hook_of_a_sub_agent_is_of_its_lane_and_names_no_session_of_the_run() -> None:
    lines = (SAMPLES / "codex-0.166-hooks.jsonl").read_bytes().splitlines()
    ours = [ME.cli.hook(json.dumps(json.loads(line) | {"agent_id": "a1"}).encode()) for line in lines]
    events = [event for hook in ours for event in hook.events]
    assert {type(event) for event in events} == {ToolStart, ToolEnd, BatchEnd}
    assert {event.lane for event in events if isinstance(event, ToolStart | ToolEnd | BatchEnd)} == {"a1"}


def test_a_call_is_called_by_the_same_name_in_its_hook_and_in_the_rollout() -> None:
    lines = (SAMPLES / "codex-0.166-hooks.jsonl").read_bytes().splitlines()
    hooks = [ME.cli.hook(line) for line in lines]
    session = "01a1ddf6-86c8-7691-9a50-cae45916f286"
    path = f"/home/user/sessions/2026/11/15/rollout-2026-11-15T06-48-03-{session}.jsonl"
    assert hooks[0] == hooks[1] == Hook("other", (Session(session, path),))
    (start,) = hooks[2].events
    assert isinstance(start, ToolStart)
    assert (hooks[2].kind, start.id, start.name) == ("pre", "call_392336eb45ef4859ba74", "Bash")
    assert json.loads(bytes(start.input))["command"].startswith("echo hello")
    assert hooks[3] == Hook("post", (ToolEnd("call_392336eb45ef4859ba74", True, "hello\n", sure=False),))
    assert hooks[-2:] == [Hook("other", (BatchEnd(),)), Hook("other")]


@pytest.mark.parametrize(
    ("item", "start"),
    [
        ({"type": "function_call", "name": "shell", "arguments": '{"command":["bash","-lc","ls -l"]}'}, ("Bash", {"command": "ls -l"})),
        ({"type": "function_call", "name": "shell", "arguments": '{"command":["ls","a b"]}'}, ("Bash", {"command": "ls 'a b'"})),
        ({"type": "function_call", "name": "other", "arguments": '{"x":1}'}, ("other", {"x": 1})),
        ({"type": "function_call", "name": "other", "arguments": "torn{"}, ("other", "torn{")),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"}, ("apply_patch", {"input": "*** Begin"})),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}}, ("Bash", {"command": "ls"})),
    ],
)  # fmt: skip
def test_every_kind_of_call_is_told(item: dict[str, Any], start: tuple[str, Any]) -> None:
    line = json.dumps({"type": "response_item", "payload": {**item, "call_id": "c"}}).encode()
    (event,) = ME.transcript.parse(line)
    assert isinstance(event, ToolStart)
    assert (event.name, json.loads(bytes(event.input))) == start


def test_a_limit_is_told_with_its_reset() -> None:
    limits = {"rate_limit_reached_type": "primary", "primary": {"resets_at": 1794765600}, "secondary": None}
    line = {"type": "event_msg", "payload": {"type": "token_count", "rate_limits": limits}}
    limit = next(iter(ME.transcript.parse(json.dumps(line).encode())))
    assert isinstance(limit, Limit)
    assert limit.reset_at is not None
    assert limit.reset_at.isoformat() == "2026-11-15T18:00:00+00:00"
    error = {
        "message": "You've hit your usage limit. Try again in 2 hours.",
        "codex_error_info": "usage_limit_exceeded",
    }
    ended = {
        "type": "event_msg",
        "timestamp": "2026-11-15T12:00:00.000Z",
        "payload": {"type": "task_complete", "error": error},
    }
    data = json.dumps(ended).encode()
    final = ME.transcript.ending(1, b"", data)
    assert final.ending == "usage_limit"
    assert final.reset_at is not None
    assert final.reset_at.isoformat() == "2026-11-15T14:00:00+00:00"
    assert any(
        isinstance(event, Limit) and event.reset_at == final.reset_at for event in ME.transcript.parse(data)
    )


# --- the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "session"),
    [
        ("codex exec --json hello", ""),
        ("codex -m o3 exec hello", ""),
        ("codex hello", ""),
        (f"codex exec resume {ID} hello", ID),
        (f"codex resume {ID}", ID),
        (f"codex exec fork {ID} hello", ""),
        ("codex exec resume --last hello", ""),
    ],
)
def test_a_first_start_keeps_every_word(line: str, session: str, tmp_path: Path) -> None:
    launch = launched(line, tmp_path)
    assert launch.command == tuple(line.split())
    assert launch.session == session


@pytest.mark.parametrize(
    ("line", "resumed"),
    [
        ("codex exec --json hello", "codex exec --json resume"),
        (
            "codex -m o3 exec -s read-only --color never hello",
            "codex -m o3 exec -s read-only --color never resume",
        ),
        ("codex exec hello -C /x", "codex exec -C /x resume"),
        ("codex exec --json resume OLD hello", "codex exec --json resume"),
        ("codex exec resume --last hello", "codex exec resume"),
        ("codex exec -- -hello", "codex exec resume"),
        ("codex -m o3 hello", "codex -m o3 resume"),
        ("codex resume OLD", "codex resume"),
    ],
)
def test_a_resume_keeps_all_but_session_and_prompt(line: str, resumed: str, tmp_path: Path) -> None:
    launch = launched(line, tmp_path, session=MARK, prompt="go on")
    assert launch.command == (*resumed.split(), ID, "--", "go on")


def test_a_fresh_session_from_a_rebuilt_context_is_no_session_that_was_named(tmp_path: Path) -> None:
    launch = launched("codex exec --json resume OLD hello", tmp_path, prompt="all that was")
    assert launch.command == ("codex", "exec", "--json", "--", "all that was")


def test_a_session_that_is_not_kept_cannot_be_resumed(tmp_path: Path) -> None:
    asked = Ask(
        words=("codex", "exec", "--ephemeral", "x"),
        environment={},
        cwd=tmp_path,
        folder=tmp_path,
        session=MARK,
    )
    assert ME.cli.launch(asked) is None


def hooked(line: str, folder: Path) -> tuple[str, ...]:
    return launched(line, folder, hook=('/x/hook "client"', "b")).command


def test_hooks_are_flags_of_this_run(tmp_path: Path) -> None:
    command = hooked("codex -m o3 exec --json hello", tmp_path)
    assert command[:4] == ("codex", "-m", "o3", "exec")
    assert command[-3:] == ("--dangerously-bypass-hook-trust", "--json", "hello")
    given = command[4:-3]
    assert [word.partition("=")[0] for word in given[1::2]] == [f"hooks.{event}" for event in HOOKED]
    expected = r'hooks.SessionStart=[{hooks=[{type="command",command="' + r"'/x/hook \"client\"' b"
    assert given[1] == expected + '",timeout=600}]}]'


def test_in_a_version_that_we_know_only_our_own_hooks_are_trusted(tmp_path: Path) -> None:
    program = tmp_path / "codex-linux-x64/vendor/triple/bin/codex"
    program.parent.mkdir(parents=True)
    program.touch()
    program.chmod(0o755)
    package = tmp_path / "codex-linux-x64/package.json"
    package.write_text('{"name": "@openai/codex", "version": "0.166.0-linux-x64"}')
    command = hooked(f"{program} exec hello", tmp_path)
    assert "--dangerously-bypass-hook-trust" not in command
    (state,) = [tomllib.loads(word) for word in command if word.startswith("hooks.state=")]
    keys = [f"/<session-flags>/config.toml:{label}:0:0" for label in HOOKED.values()]
    assert list(state["hooks"]["state"]) == keys
    mine = "-c hooks.state={} -c hooks.PreToolUse=[{hooks=[]}]"
    assert "--dangerously-bypass-hook-trust" in hooked(f"{program} exec {mine} hello", tmp_path)
    package.write_text('{"name": "@openai/codex", "version": "0.167.0-linux-x64"}')
    assert "--dangerously-bypass-hook-trust" in hooked(f"{program} exec hello", tmp_path)


def test_the_hash_by_which_a_hook_is_trusted_is_that_of_the_real_program() -> None:
    # What `hooks/list` of codex 0.166's app-server says of these two.
    assert (
        trust_hash("pre_tool_use", "/x/hook a")
        == "sha256:26614d1fc7eb71c89f3447ed900904ae1f0cf66cdc7cf6d897af2c2ebd39de42"
    )
    assert (
        trust_hash("stop", "/x/hook a")
        == "sha256:643e668551e1fb8210aae10cf8e75fbfed33f50b5c76dceccda107f9e87432de"
    )


def test_hooks_among_the_users_flags_stay(tmp_path: Path) -> None:
    theirs = 'hooks.PreToolUse=[{hooks=[{type="command",command="mine"}]}]'
    command = hooked(f"codex exec -c {theirs} hello", tmp_path)
    (merged,) = [
        tomllib.loads(word)["hooks"]["PreToolUse"] for word in command if word.startswith("hooks.PreToolUse=")
    ]
    assert [group["hooks"][0]["command"] for group in merged] == ["mine", "'/x/hook \"client\"' b"]


def test_the_program_behind_the_npm_package_is_what_is_started(tmp_path: Path) -> None:
    import os

    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, "x64")
    modules = tmp_path / "node_modules/@openai"
    script = modules / "codex/bin/codex.js"
    native = modules / f"codex-linux-{machine}/vendor/any-triple/bin/codex"
    for file in (script, native):
        file.parent.mkdir(parents=True)
        file.touch()
        file.chmod(0o755)
    link = tmp_path / "bin/codex"
    link.parent.mkdir()
    link.symlink_to(script)
    environment = {"PATH": str(link.parent)}
    for line in ("codex exec hello", f"{link} exec hello", f"node {script} exec hello"):
        launch = launched(line, tmp_path, environment=environment)
        assert launch.command == (str(native), "exec", "hello")
        assert launch.environment["CODEX_MANAGED_PACKAGE_ROOT"] == str(modules / "codex")
    native.unlink()
    assert launched("codex exec hello", tmp_path, environment=environment).command == (
        "codex",
        "exec",
        "hello",
    )


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("exec --json hello", "hello"),
        ("exec -", ""),
        ("exec", ""),
        ("hello", "hello"),
        ("exec resume ID hello", "hello"),
        ("exec resume --last hello", "hello"),
        ("resume ID", ""),
    ],
)
def test_the_prompt_is_what_the_command_says(line: str, prompt: str) -> None:
    assert ME.cli.read(("codex", *line.split())).prompt == prompt


def test_headless_is_exec() -> None:
    assert ME.cli.read(("codex", "exec", "x")).headless
    assert ME.cli.read(("codex", "-m", "o3", "e", "x")).headless
    assert not ME.cli.read(("codex", "x")).headless
    assert not ME.cli.read(("codex", "resume", ID)).headless


def test_the_rollout_is_found_in_its_home(tmp_path: Path) -> None:
    asked = Ask(words=("codex",), environment={"CODEX_HOME": str(tmp_path)}, cwd=tmp_path, folder=tmp_path)
    assert ME.transcript.find(ID, asked) is None
    path = tmp_path / f"sessions/2026/11/15/rollout-2026-11-15T06-48-03-{ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    assert ME.transcript.find(ID, asked) == path
    assert ME.transcript.find("*", asked) is None


# --- mending ------------------------------------------------------------------------------------------------------

LINES = (SAMPLES / "codex-0.166-rollout.jsonl").read_bytes().splitlines(keepends=True)
KILLED = b"".join(LINES[:13])  # a call, its response's usage, no output
CALL = "call_5f42cd2411ee4dcf9048"
CUT = Cut(CALL, "Bash", RAW(b'{"command":"echo hi"}'), "It is not known whether it ran.")


def test_a_dangling_call_gets_its_true_output() -> None:
    mended = ME.transcript.mend(KILLED, [CUT])
    assert mended.startswith(KILLED)
    added = json.loads(mended[len(KILLED) :])
    assert added["payload"] == {"type": "function_call_output", "call_id": CALL, "output": CUT.text}
    assert added["ordinal"] == 13
    assert ME.transcript.mend(mended, [CUT]) == mended


@pytest.mark.parametrize("kept", [0, 1, 100, -2])
def test_a_call_whose_line_is_torn_is_made_again(kept: int) -> None:
    mended = ME.transcript.mend(b"".join(LINES[:11]) + LINES[11][:kept], [CUT])
    call, output = (json.loads(line)["payload"] for line in mended.splitlines()[-2:])
    assert (call["name"], json.loads(call["arguments"])) == ("exec_command", {"cmd": "echo hi"})
    assert (call["call_id"], output["output"]) == (CALL, CUT.text)
    assert [type(event) for line in mended.splitlines()[-2:] for event in ME.transcript.parse(line)] == [
        ToolStart,
        ToolEnd,
    ]
    assert ME.transcript.mend(mended, [CUT]) == mended


@pytest.mark.parametrize("made_up", ["aborted", "Wall time: 0.4 seconds\\naborted by user"])
def test_an_output_that_was_made_up_becomes_the_truth_and_a_real_one_stays(made_up: str) -> None:
    mended = ME.transcript.mend(KILLED, [CUT])
    assert ME.transcript.mend(mended.replace(CUT.text.encode(), made_up.encode()), [CUT]) == mended
    real = b"".join(LINES)
    assert ME.transcript.mend(real, [CUT]) == real


# --- garbage ------------------------------------------------------------------------------------------------------

GARBAGE = st.binary(max_size=200) | st.builds(
    lambda kind, name, payload: json.dumps({"type": kind, "timestamp": name, "payload": payload | {"type": name}}).encode(),
    st.sampled_from(["session_meta", "response_item", "event_msg", "token_usage_record", "other"]),
    st.sampled_from("message function_call function_call_output custom_tool_call local_shell_call token_count task_complete".split()),
    st.dictionaries(st.sampled_from("id role content call_id name arguments output action usage response_id rate_limits error".split()), JSON),
)  # fmt: skip


@given(st.lists(GARBAGE, max_size=6))
def test_no_line_makes_it_fail(lines: list[bytes]) -> None:
    for line in lines:
        for event in ME.transcript.parse(line):
            msgspec.json.encode(event)
        msgspec.json.encode(ME.cli.hook(line))
        ME.cli.answer(line, Answer(False, "no"))
    transcript = b"\n".join(lines)
    mended = ME.transcript.mend(transcript, [CUT])
    assert ME.transcript.mend(mended, [CUT]) == mended
    assert ME.transcript.ending(1, transcript, transcript).cause


@given(
    st.lists(st.text(max_size=8) | st.sampled_from(["exec", "resume", "-c", "--json", "--", ID]), max_size=6)
)
def test_no_command_line_makes_a_launch_fail(words: list[str]) -> None:
    asked = Ask(words=("codex", *words), environment={"PATH": ""}, cwd=Path("/"), folder=Path("/"))
    launch = ME.cli.launch(asked)
    assert launch is not None
    assert launch.command == ("codex", *words)
