"""Claude Code, against recorded lines and tables; the real program is in test_claude_real.py."""

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.agents.claude.agent import agent as claude
from outlast.agents.claude.cli import HOOKED, HOOKED_LATER
from outlast.agents.claude.lines import FALSEHOODS
from outlast.agents.claude.transcript import dashed
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Limit,
    ModelCost,
    Response,
    Session,
    Text,
    ToolAside,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.values import AgentCommand, Answer, Ask, Cut, Hook
from outlast.core import values
from outlast.core.values import SessionMark
from outlast.errors import UsageError
from tests.agents.test_json_lines import JSON

SAMPLES = Path(__file__).parent / "samples"
UUID = "11111111-2222-3333-4444-555555555555"
ME = claude(fresh_id=lambda: UUID)
RAW = msgspec.Raw


def events(sample: str) -> list[AgentEvent]:
    return [
        event for line in (SAMPLES / sample).read_bytes().splitlines() for event in ME.transcript.parse(line)
    ]


def spent(tokens: int, key: str, lane: str = "") -> UsageReport:
    return UsageReport(values.Usage(tokens, 33, 22, 11), "response", key, "claude-opus-5-5", lane)


def ask(line: str, folder: Path, **more: Any) -> Ask:
    given = {"environment": {"HOME": str(folder), "PATH": ""}, "cwd": folder, "folder": folder, **more}
    return Ask(words=("claude", *line.split()), **given)


def launched(asked: Ask) -> AgentCommand:
    launch = ME.cli.launch(asked)
    assert launch is not None
    return launch


def test_a_transcript_tells_exactly_what_happened() -> None:
    told = events("claude-2.1.325-transcript.jsonl")
    session = "86f9c317-b060-4ee7-be98-c02a5fa7ce21"
    first, last = "msg_a0713bdda8db4d139fdb", "msg_dfac08ae9ffd4d59a4cd"
    given = RAW(b'{"file_path":"/home/user/project/hello.txt","content":"hello\\n"}')
    assert told[:7] == [
        Session(session),
        Response(first),
        Text("I will write a file."),
        spent(11804, first),
        Response(first),
        ToolStart("toolu_334962dab17d4a129b2d05", "Write", given),
        spent(11804, first),
    ]
    assert isinstance(told[7], ToolEnd)
    assert told[7].ok
    assert told[7].output.startswith("File created successfully")
    assert told[-5:] == [Session(session), Response(last), Text("All done."), spent(12317, last), BatchEnd()]
    calls = [event.id for event in told if isinstance(event, ToolStart)]
    ends = {event.id: event.ok for event in told if isinstance(event, ToolEnd)}
    assert ends == dict(zip(calls, [True, True, True, False], strict=True))


def test_usage_told_on_every_line_of_a_response_counts_once() -> None:
    told = {
        event.key: event.values
        for event in events("claude-2.1.325-transcript.jsonl")
        if isinstance(event, UsageReport)
    }
    assert sum(used.output for used in told.values()) == 33 * 5
    assert sum(used.input for used in told.values()) == 11804 + 11917 + 12011 + 12142 + 12317


def test_a_sub_agent_is_a_lane() -> None:
    told = events("claude-2.1.325-subagent.jsonl")
    assert {event.lane for event in told} == {"a0df2ef69be46c415"}  # type: ignore[union-attr]
    assert sum(isinstance(event, ToolStart) for event in told) == 3
    assert not any(isinstance(event, Session) for event in told)


def test_hooks_tell_calls_before_and_after() -> None:
    lines = (SAMPLES / "claude-2.1.325-hooks.jsonl").read_bytes().splitlines()
    session = "f4f2bb86-e8eb-4d16-a33c-5defaf30d9f1"
    path = f"/home/user/.claude/projects/-home-user-project/{session}.jsonl"
    told = [ME.cli.hook(line) for line in lines]
    assert told[0] == told[1] == Hook("other", (Session(session, path),))
    written = "toolu_58b9a43e71f646ee86c2aa"
    given = RAW(b'{"file_path": "/home/user/project/hello.txt", "content": "hello\\n"}')
    assert told[3] == Hook("pre", (ToolStart(written, "Write", given),))
    assert told[4] == Hook("post", (ToolEnd(written, True, "hello\n"),))
    response = json.loads(lines[5])["tool_calls"][0]["tool_response"]
    batch = (ToolStart(written, "Write", given), ToolEnd(written, True, response, sure=False), BatchEnd())
    assert told[5] == Hook("other", batch, ends_batch=True)
    assert told[12] == Hook(
        "post", (ToolEnd("toolu_f023545e200b4506b47db8", False, "Exit code 3\nbad", code=3),)
    )
    assert told[-2:] == [Hook("other", (BatchEnd(),)), Hook("other")]


def test_a_hook_in_a_sub_agent_names_its_lane() -> None:
    data = {
        "hook_event_name": "PreToolUse",
        "tool_use_id": "t",
        "tool_name": "Bash",
        "agent_id": "a1",
        "tool_input": {},
    }
    assert ME.cli.hook(json.dumps(data).encode()) == Hook("pre", (ToolStart("t", "Bash", RAW(b"{}"), "a1"),))


def test_answers() -> None:
    def said(event: str, answer: Answer) -> Any:
        out, code = ME.cli.answer(json.dumps({"hook_event_name": event}).encode(), answer)
        assert code == 0
        return json.loads(out) if out else None

    assert said("PreToolUse", Answer()) is None
    denial = said("PreToolUse", Answer(False, "no"))["hookSpecificOutput"]
    assert denial == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "no",
    }
    told = said("PostToolUse", Answer(True, "look"))["hookSpecificOutput"]
    assert told == {"hookEventName": "PostToolUse", "additionalContext": "look"}
    assert said("PostToolUse", Answer(False, "stop")) == {"continue": False, "stopReason": "stop"}
    assert said("Stop", Answer(False, "go on")) == {"decision": "block", "reason": "go on"}
    out, code = ME.cli.answer(b"garbage", Answer(False))
    assert (json.loads(out)["hookSpecificOutput"]["permissionDecision"], code) == ("deny", 0)


def test_a_limit_in_the_transcript_is_told_with_its_reset() -> None:
    message = {
        "model": "<synthetic>",
        "content": [{"type": "text", "text": "You've hit your limit · resets 3am (Europe/Berlin)"}],
    }
    line = {"type": "assistant", "isApiErrorMessage": True, "apiErrorStatus": 429, "message": message}
    told = list(ME.transcript.parse(json.dumps({**line, "timestamp": "2026-11-15T12:00:00.000Z"}).encode()))
    limit = told[-1]
    assert isinstance(limit, Limit)
    assert limit.reset_at is not None
    assert limit.reset_at.isoformat() == "2026-11-16T02:00:00+00:00"


# --- the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "started", "session"),
    [
        ("-p hello", f"--session-id {UUID} -p hello", UUID),
        ("-p hello --model opus", f"--session-id {UUID} -p hello --model opus", UUID),
        ("", f"--session-id {UUID}", UUID),
        ("-p --session-id 99999999-2222-3333-4444-555555555555 x", "-p --session-id 99999999-2222-3333-4444-555555555555 x", "99999999-2222-3333-4444-555555555555"),
        ("-c -p x", "-c -p x", ""),
        (f"-p --resume {UUID} x", f"-p --resume {UUID} x", UUID),
        (f"-p --resume {UUID} --fork-session x", f"-p --resume {UUID} --fork-session x", ""),
        ("--resume", "--resume", ""),
        ("-r a-name", "-r a-name", ""),
    ],
)  # fmt: skip
def test_a_first_start_keeps_every_word_and_names_its_session(
    line: str, started: str, session: str, tmp_path: Path
) -> None:
    launch = launched(ask(line, tmp_path))
    assert launch.command == ("claude", *started.split())
    assert launch.session == session


@pytest.mark.parametrize(
    ("line", "resumed"),
    [
        ("-p hello", "-p"),
        ("-p hello --model opus --output-format json", "-p --model opus --output-format json"),
        ("-p --session-id X hello --verbose", "-p --verbose"),
        ("-pc hello", "-p"),
        ("-p --resume OLD --fork-session hello", "-p"),
        ("-p --input-format stream-json --replay-user-messages --output-format stream-json", "-p --output-format stream-json"),
        ("--dangerously-skip-permissions --add-dir a b -p hello", "--dangerously-skip-permissions --add-dir a b -p"),
        ("hello", ""),
    ],
)  # fmt: skip
def test_a_resume_keeps_all_but_session_and_prompt(line: str, resumed: str, tmp_path: Path) -> None:
    mark = SessionMark(agent="claude", session=UUID)
    launch = launched(ask(line, tmp_path, session=mark, prompt="go on"))
    assert launch.command == ("claude", "--resume", UUID, *resumed.split(), "--", "go on")
    assert launch.session == UUID


def test_a_session_that_is_not_kept_cannot_be_resumed(tmp_path: Path) -> None:
    mark = SessionMark(agent="claude", session=UUID)
    assert ME.cli.launch(ask("-p --no-session-persistence x", tmp_path, session=mark, prompt="go on")) is None


def test_a_fresh_session_from_a_rebuilt_context_is_no_session_that_was_named(tmp_path: Path) -> None:
    launch = launched(ask("-p --session-id OLD -c hello", tmp_path, prompt="all that was"))
    assert launch.command == ("claude", "--session-id", UUID, "-p", "--", "all that was")


def test_hooks_are_merged_into_the_settings_of_the_command(tmp_path: Path) -> None:
    theirs = {
        "model": "opus",
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]},
    }
    (tmp_path / "mine.json").write_text(json.dumps(theirs))
    for named in ("mine.json", json.dumps(theirs, separators=(",", ":"))):
        launch = launched(
            ask(
                f"-p --settings first.json --settings {named} hello", tmp_path, hook=("/x/hook client", "a b")
            )
        )
        at = launch.command.index("--settings")
        path = Path(launch.command[at + 1])
        assert launch.command[at + 2 :] == ("-p", "hello")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        merged = json.loads(path.read_text())
        assert merged["model"] == "opus"
        ours = {"type": "command", "command": "'/x/hook client' 'a b'", "timeout": 600}
        assert merged["hooks"]["PreToolUse"] == [
            *theirs["hooks"]["PreToolUse"],
            {"matcher": "*", "hooks": [ours]},
        ]  # type: ignore[index]
        assert set(merged["hooks"]) == set(HOOKED)
    assert json.loads((tmp_path / "mine.json").read_text()) == theirs


def test_events_that_only_later_versions_know_are_hooked_only_there(tmp_path: Path) -> None:
    for version, later in (("2.1.325", True), ("2.1.0", False)):
        program = tmp_path / f"claude/versions/{version}"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        program.chmod(0o755)
        words = (str(program), "-p", "x")
        asked = Ask(words=words, environment={"PATH": ""}, cwd=tmp_path, folder=tmp_path, hook=("/x/hook",))
        launch = launched(asked)
        hooks = json.loads(Path(launch.command[launch.command.index("--settings") + 1]).read_text())["hooks"]
        assert (set(HOOKED_LATER) <= set(hooks)) is later


@pytest.mark.parametrize("given", ["nowhere.json", "{broken", "[]"])
def test_settings_that_cannot_be_read_are_named_before_anything_starts(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--settings"):
        ME.cli.launch(ask(f"-p --settings {given} x", tmp_path, hook=("/x/hook",)))


def test_what_switches_hooks_off_is_said(tmp_path: Path) -> None:
    assert "--bare" in ME.cli.hooks_off(ask("-p --bare x", tmp_path))
    assert "CLAUDE_CODE_SIMPLE" in ME.cli.hooks_off(
        ask("-p x", tmp_path, environment={"CLAUDE_CODE_SIMPLE": "1"})
    )
    assert ME.cli.hooks_off(ask("-p x", tmp_path)) == ""


@pytest.mark.parametrize(
    ("line", "prompt"),
    [("-p hello", "hello"), ("-p", ""), ("--resume id hello", "hello"), ("-p --input-format stream-json", ""), ("-p -- -x", "-x")],
)  # fmt: skip
def test_the_prompt_is_what_the_command_says(line: str, prompt: str) -> None:
    assert ME.cli.read(("claude", *line.split())).prompt == prompt


def test_headless_is_print() -> None:
    assert ME.cli.read(("claude", "-p", "x")).headless
    assert ME.cli.read(("npx", "@anthropic-ai/claude-code", "--print", "x")).headless
    assert not ME.cli.read(("claude", "x")).headless
    assert not ME.cli.read(("claude", "--", "-p")).headless


def test_the_transcript_is_found_by_folder_and_else_by_name(tmp_path: Path) -> None:
    work = tmp_path / "my.project"
    work.mkdir()
    asked = ask("-p x", tmp_path, cwd=work)
    assert ME.transcript.find(UUID, asked) is None
    path = tmp_path / ".claude/projects" / dashed(str(work)) / f"{UUID}.jsonl"
    path.parent.mkdir(parents=True)
    path.touch()
    assert ME.transcript.find(UUID, asked) == path
    other = tmp_path / "config/projects/-elsewhere" / path.name
    other.parent.mkdir(parents=True)
    other.touch()
    configured = ask("-p x", tmp_path, cwd=work, environment={"CLAUDE_CONFIG_DIR": str(tmp_path / "config")})
    assert ME.transcript.find(UUID, configured) == other
    assert ME.transcript.find("../../etc/passwd", asked) is None
    lane = path.with_suffix("") / "subagents/agent-a1.jsonl"
    lane.parent.mkdir(parents=True)
    lane.touch()
    assert ME.transcript.beside(path).lanes == (lane,)


# --- mending ------------------------------------------------------------------------------------------------------

KILLED = b"".join((SAMPLES / "claude-2.1.325-transcript.jsonl").read_bytes().splitlines(keepends=True)[:35])
CALL = "toolu_3cc831372a684f24825925"
CUT = Cut(CALL, "Bash", RAW(b'{"command":"sleep 8"}'), "It is not known whether it ran.")


def parents(transcript: bytes) -> list[str]:
    """The chain from the last line of the conversation upwards."""
    lines = [json.loads(line) for line in transcript.splitlines()]
    known = {line["uuid"]: line for line in lines if line.get("uuid")}
    at, chain = next(line["uuid"] for line in reversed(lines) if line.get("uuid")), []
    while at in known:
        chain.append(at)
        at = known[at]["parentUuid"]
    return chain


def test_a_dangling_call_gets_its_true_result() -> None:
    mended = ME.transcript.mend(KILLED, [CUT])
    assert mended.startswith(KILLED)
    added = json.loads(mended[len(KILLED) :])
    assert added["message"]["content"] == [
        {"type": "tool_result", "content": CUT.text, "is_error": True, "tool_use_id": CALL}
    ]
    assert added["parentUuid"] == added["sourceToolAssistantUUID"] == "1982d3f3-21ae-47a9-9cc4-fa98f3f424db"
    assert added["sessionId"] == "86f9c317-b060-4ee7-be98-c02a5fa7ce21"
    assert list(ME.transcript.parse(mended[len(KILLED) :])) == [ToolEnd(CALL, False, CUT.text)]
    assert ME.transcript.mend(mended, [CUT]) == mended


@pytest.mark.parametrize("kept", [1, 60, 400, -2])
def test_a_call_whose_line_is_torn_is_made_again(kept: int) -> None:
    lines = KILLED.splitlines(keepends=True)
    torn = b"".join(lines[:-1]) + lines[-1][:kept]
    mended = ME.transcript.mend(torn, [CUT])
    told = [event for line in mended.splitlines() for event in ME.transcript.parse(line)]
    assert told[-1] == ToolEnd(CALL, False, CUT.text)
    assert ToolStart(CALL, "Bash", CUT.input) in told
    call, result = (json.loads(line) for line in mended.splitlines()[-2:])
    assert call["message"]["id"] == "msg_db6ac7ac8a224037b810"  # of the response whose text came through
    assert parents(mended)[:3] == [result["uuid"], call["uuid"], "ff0abfa0" + parents(mended)[2][8:]]
    assert ME.transcript.mend(mended, [CUT]) == mended


def test_a_falsehood_becomes_the_truth_and_a_real_result_stays() -> None:
    for falsehood in FALSEHOODS:
        mended = ME.transcript.mend(KILLED, [CUT])
        false = mended.replace(CUT.text.encode(), falsehood.encode() + b" and more")
        assert ME.transcript.mend(false, [CUT]) == mended
    real = ME.transcript.mend(KILLED, [CUT]).replace(CUT.text.encode(), b"done")
    assert ME.transcript.mend(real, [CUT]) == real


def test_several_cut_calls_of_one_response_are_mended_in_their_place() -> None:
    other = Cut("toolu_other", "Bash", RAW(b"{}"), "Nor this.")
    mended = ME.transcript.mend(KILLED, [CUT, other])
    told = [event for line in mended.splitlines() for event in ME.transcript.parse(line)]
    ends = {event.id: event.output for event in told if isinstance(event, ToolEnd)}
    assert (ends[CALL], ends["toolu_other"]) == (CUT.text, "Nor this.")
    ids = [
        json.loads(line)["message"]["id"]
        for line in mended.splitlines()
        if b'"tool_use"' in line and b"msg_" in line
    ]
    assert ids[-1] == ids[-2]
    assert ME.transcript.mend(mended, [CUT, other]) == mended


def test_a_cut_of_a_sub_agent_and_an_empty_transcript_change_nothing() -> None:
    assert ME.transcript.mend(KILLED, [msgspec.structs.replace(CUT, lane="a1")]) == KILLED
    assert ME.transcript.mend(b"", [CUT]) == b""
    assert ME.transcript.mend(b"{torn", []) == b""


# --- garbage ------------------------------------------------------------------------------------------------------

LINES = st.binary(max_size=200) | st.builds(
    lambda kind, message, rest: json.dumps({"type": kind, "uuid": "u", "message": message, **rest}).encode(),
    st.sampled_from(["assistant", "user", "system"]),
    JSON | st.fixed_dictionaries({"id": JSON, "content": JSON | st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_use", "tool_result"]), "id": JSON, "text": JSON, "input": JSON, "tool_use_id": JSON})), "usage": JSON, "model": JSON}),
    st.dictionaries(st.sampled_from(["sessionId", "agentId", "timestamp", "isApiErrorMessage", "apiErrorStatus"]), JSON),
)  # fmt: skip


@given(st.lists(LINES, max_size=6))
def test_no_line_makes_it_fail(lines: list[bytes]) -> None:
    for line in lines:
        for event in ME.transcript.parse(line):
            msgspec.json.encode(event)
        ME.cli.hook(line)
        ME.cli.answer(line, Answer(False, "no"))
    mended = ME.transcript.mend(b"\n".join(lines), [CUT])
    assert ME.transcript.mend(mended, [CUT]) == mended


@given(
    st.dictionaries(
        st.sampled_from(
            "hook_event_name session_id tool_name tool_use_id tool_input tool_response agent_id error".split()
        ),
        JSON | st.sampled_from(["PreToolUse", "PostToolUse", "Stop"]),
    )
)
def test_no_hook_makes_it_fail(data: dict[str, Any]) -> None:
    read = ME.cli.hook(json.dumps(data).encode())
    msgspec.json.encode(read)


@given(
    st.lists(
        st.text(max_size=8)
        | st.sampled_from(["-p", "--resume", "--settings={}", "-c", "--", "--session-id"]),
        max_size=6,
    )
)
def test_no_command_line_makes_a_launch_fail(words: list[str]) -> None:
    asked = Ask(words=("claude", *words), environment={}, cwd=Path("/"), folder=Path("/"))
    launch = launched(asked)
    assert launch.command[-len(words) :] == tuple(words) or not words


def test_a_line_of_another_shape_is_understood_as_far_as_it_goes() -> None:
    message = {
        "id": "m",
        "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}, "text": None}],
        "usage": {"output_tokens": 2.5},
    }
    told = list(
        ME.transcript.parse(json.dumps({"type": "assistant", "agentId": 7, "message": message}).encode())
    )
    assert [type(event) for event in told] == [Response, ToolStart, UsageReport]


def test_what_it_says_that_it_cost_is_read_with_the_tokens_it_says_so_of() -> None:
    used = {"inputTokens": 5, "outputTokens": 6, "cacheReadInputTokens": 7, "cacheCreationInputTokens": 8}
    rows = {
        "claude-opus-5-5": {**used, "costUSD": 0.0123456},
        "odd": {"inputTokens": "x", "costUSD": float("1e400")},
        "none": 3,
    }
    line = json.dumps(
        {"type": "result", "subtype": "success", "result": "Done.", "modelUsage": rows}
    ).encode()
    final = ME.transcript.ending(0, b'{"type":"system"}\n' + line, b"")
    assert final.ending == "done"
    assert final.bill[0] == ModelCost("claude-opus-5-5", values.Usage(5, 6, 7, 8, 12_345))
    assert all(each.usage.tokens == 0 for each in final.bill[1:])
    assert ME.transcript.ending(0, b"Done.", b"").bill == ()


# --- a call that is put aside -----------------------------------------------------------------------------------------

# As 2.1.197 wrote it.
PUT_ASIDE = (
    b'{"parentUuid":"b671","isSidechain":false,"attachment":{"type":"hook_deferred_tool","toolUseID":"toolu_1","toolName":"Bash",'
    b'"toolInput":{"command":"date"},"hookName":"settings","hookEvent":"PreToolUse","permissionMode":"bypassPermissions"},'
    b'"type":"attachment","uuid":"e548","timestamp":"2026-11-19T15:54:48.943Z","sessionId":"5cf0","version":"2.1.197"}\n'
)
ASKED = (
    b'{"parentUuid":null,"type":"assistant","uuid":"b671","sessionId":"5cf0","message":{"id":"msg_1","role":"assistant",'
    b'"content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"date"}}]}}\n'
)


def test_its_transcript_tells_which_call_is_put_aside() -> None:
    assert list(ME.transcript.parse(PUT_ASIDE)) == [ToolAside("toolu_1")]
    spoken = b'{"type":"user","uuid":"u","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"hook_deferred_tool"}]}}'
    assert [type(each) for each in ME.transcript.parse(spoken)] == [ToolEnd]


def test_a_call_that_was_put_aside_and_is_given_a_result_is_put_aside_no_longer() -> None:
    """Where the line stays, both versions ask about the call at a resume and make it, whatever its result says (tried)."""
    cut = Cut("toolu_1", "Bash", RAW(b'{"command":"date"}'), "outlast: it was not made")
    mended = ME.transcript.mend(ASKED + PUT_ASIDE, [cut])
    told = [event for line in mended.splitlines() for event in ME.transcript.parse(line)]
    assert ToolAside("toolu_1") not in told
    assert any(isinstance(each, ToolEnd) and each.output == "outlast: it was not made" for each in told)
    assert len(mended.splitlines()) == 3
    assert ME.transcript.mend(mended, [cut]) == mended
    other = msgspec.structs.replace(cut, id="toolu_2")
    assert PUT_ASIDE in ME.transcript.mend(ASKED + PUT_ASIDE, [other])


def test_only_a_version_that_was_tried_puts_calls_aside_and_only_where_nobody_is_at_the_terminal(
    tmp_path: Path,
) -> None:
    """One that does not know the word might make the call."""
    cases = [
        ("2.1.325", "-p x", False, True), ("2.1.197", "-p x", False, True), ("2.1.0", "-p x", False, False),
        ("2.1.325", "x", True, False), ("2.1.325", "-p --input-format stream-json", False, False),
    ]  # fmt: skip
    for version, line, interactive, defers in cases:
        program = tmp_path / f"claude/versions/{version}"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
        asked = ask(line, tmp_path, hook=("hook",), interactive=interactive)
        asked = msgspec.structs.replace(asked, words=(str(program), *asked.words[1:]))
        assert launched(asked).defers == defers, (version, line)
    assert not launched(msgspec.structs.replace(asked, words=("claude", "-p", "x"))).defers


def test_a_call_is_put_aside_by_an_answer_to_the_hook_before_it_alone() -> None:
    words = Answer(False, "it waits", aside=True)
    before = json.loads(ME.cli.answer(b'{"hook_event_name": "PreToolUse"}', words)[0])
    assert before["hookSpecificOutput"]["permissionDecision"] == "defer"
    after = json.loads(ME.cli.answer(b'{"hook_event_name": "UserPromptSubmit"}', words)[0])
    assert after["decision"] == "block"
