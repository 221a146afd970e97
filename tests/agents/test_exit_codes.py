"""Whether a shell command failed, and with which exit code, as each CLI tells it by its hooks and in its transcript."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from outlast.agents import registry
from outlast.agents.common import exit_codes
from outlast.agents.events import AgentEvent, ToolEnd
from tests.support.environment import ROOT

SAMPLES = ROOT / "tests/agents/samples"
Told = tuple[bool, bool, int | None]  # ok, sure, code


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / name).read_bytes().splitlines()]


def ends(events: "list[AgentEvent] | tuple[AgentEvent, ...]") -> Told:
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    return end.ok, end.sure, end.code


def by_hook(agent: str, told: dict[str, Any]) -> Told:
    known = registry.by_name(agent)
    assert known is not None
    return ends(known.cli.hook(json.dumps(told).encode()).events)


def by_transcript(agent: str, told: dict[str, Any]) -> Told:
    known = registry.by_name(agent)
    assert known is not None
    return ends(list(known.transcript.parse(json.dumps(told).encode())))


def gemini_hook(said: str, tool: str = "run_shell_command") -> Told:
    told = next(
        each for each in lines("gemini-0.61.0-hooks.jsonl")
        if each["hook_event_name"] == "AfterTool" and each["tool_name"] == "run_shell_command"
    )  # fmt: skip
    return by_hook("gemini", told | {"tool_name": tool, "tool_response": {"llmContent": said}})


PUSHED = (
    "<untrusted_context>\nOutput: fatal: no such remote\n{}Process Group PGID: 26456\n</untrusted_context>"
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (PUSHED.format(""), (True, True, 0)),
        (PUSHED.format("Exit Code: 128\n"), (False, True, 128)),
        (PUSHED.format("Error: it failed\nExit Code: 1\nBackground PIDs: 7, 8\n"), (False, True, 1)),
        (PUSHED.format("Signal: 9\n"), (False, True, 137)),
        (PUSHED.format("Signal: SIGKILL\n"), (False, True, 137)),
        ("Output: (empty)\nExit Code: 3", (False, True, 3)),
        ("Command was automatically cancelled because it exceeded the timeout of 5 minutes.", (True, False, None)),
        ("Command was cancelled by user before it could complete.", (True, False, None)),
    ],
)  # fmt: skip
def test_gemini_names_the_code_of_a_failure_in_its_words(said: str, wanted: Told) -> None:
    assert gemini_hook(said) == wanted


def test_what_another_tool_of_gemini_says_is_no_exit_code() -> None:
    assert gemini_hook(PUSHED.format("Exit Code: 128\n"), "read_file") == (True, True, None)


def opencode_line(**metadata: object) -> dict[str, Any]:
    told = next(
        each for each in lines("opencode-1.18.33-run.jsonl") if each.get("part", {}).get("tool") == "bash"
    )
    told["part"]["state"]["metadata"] = metadata
    return told


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        ({"exit": 0}, (True, True, 0)),
        ({"exit": 128}, (False, True, 128)),
        ({"exit": None}, (True, False, None)),
        ({}, (True, False, None)),
        ({"exit": "7"}, (True, False, None)),
        ({"exit": True}, (True, False, None)),
    ],
)
def test_opencode_tells_the_code_beside_its_output(metadata: dict[str, object], wanted: Told) -> None:
    assert by_transcript("opencode", opencode_line(**metadata)) == wanted
    hook = {"hook_event_name": "PostToolUse", "tool_name": "bash", "tool_call_id": "c", "tool_output": "x"}
    hook |= {"exit_code": metadata["exit"]} if "exit" in metadata else {}
    assert by_hook("opencode", hook) == wanted


def test_what_another_tool_of_opencode_did_went_well_without_a_code() -> None:
    hook = {"hook_event_name": "PostToolUse", "tool_name": "write", "tool_call_id": "c", "tool_output": "x"}
    assert by_hook("opencode", hook) == (True, True, None)


def test_claude_names_it_first() -> None:
    failed = next(
        each
        for each in lines("claude-2.1.325-hooks.jsonl")
        if each["hook_event_name"] == "PostToolUseFailure"
    )
    assert by_hook("claude", failed) == (False, True, 3)


def test_codex_tells_it_in_its_transcript_and_its_hooks_do_not() -> None:
    codes = [
        by_transcript("codex", each)[2]
        for each in lines("codex-0.166-rollout.jsonl")
        if each.get("payload", {}).get("type") == "function_call_output"
    ]
    assert codes[:3] == [0, 3, 0]
    hook = next(each for each in lines("codex-0.166-hooks.jsonl") if each["hook_event_name"] == "PostToolUse")
    assert by_hook("codex", hook) == (True, False, None)


def test_kimi_names_it_last() -> None:
    hook = {"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_call_id": "c"}
    hook |= {"error": "fatal: no such remote\nCommand failed with exit code: 128."}
    assert by_hook("kimi-code", hook) == (False, True, 128)
    assert by_hook("kimi-cli", hook) == (False, True, 128)


def kimi_cli_hook(said: str) -> list[AgentEvent]:
    known = registry.by_name("kimi-cli")
    assert known is not None
    hook = {"hook_event_name": "PostToolUse", "tool_name": "Shell", "tool_call_id": "c", "tool_output": said}
    return list(known.cli.hook(json.dumps(hook).encode()).events)


def test_kimi_clis_hook_comes_after_a_failure_as_after_a_success() -> None:
    told = [
        by_hook("kimi-cli", each)
        for each in lines("kimi-cli-1.51.0-hooks.jsonl")
        if each["hook_event_name"] == "PostToolUse"
    ]
    ok = (True, True, None)
    assert told == [ok, ok, (False, True, 3), (False, True, 137), ok, ok]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("is_error=False output='' message='Wrote it.' display=[] extras=None", "Wrote it."),
        ("is_error=False output='it\\'s \"a\"\\n\\x07\\u200b' message='Done.' display=[]", "it's \"a\"\n\x07\u200b"),
        ('is_error=False output="it\'s \\ud800 cut off \\x0', "it's ? cut off x0"),
        ("is_error=False output=[TextPart(type='text', text='hi')] message='m'",
         "is_error=False output=[TextPart(type='text', text='hi')] message='m'"),
        ("is_error=True output='' message='Command failed with exit code: 3.' display=[", "Command failed with exit code: 3."),
        ("is_error=True output='is_error=False output=' message='rejected' display=[", "is_error=False output=\nrejected"),
    ],
)  # fmt: skip
def test_the_words_of_kimi_clis_hook_are_those_of_the_call(said: str, wanted: str) -> None:
    [end] = kimi_cli_hook(said)
    assert isinstance(end, ToolEnd)
    assert (end.ok, end.output) == ("=False" in said[:14], wanted)


@pytest.mark.parametrize(
    "said", ["", "hello", "is_error=True output='aaa", "is_error=True output='' message='Command failed", "is_error=True output=["]
)  # fmt: skip
def test_words_of_kimi_clis_hook_that_do_not_tell_how_its_call_ended_tell_nothing(said: str) -> None:
    assert kimi_cli_hook(said) == []


@pytest.mark.parametrize("said", ["Command failed with exit code: -9.", "Command killed by timeout (60s)"])
def test_what_kimi_says_of_a_command_that_was_killed_is_a_signal(said: str) -> None:
    assert exit_codes.kimi(f"out\n{said}") == 137


@pytest.mark.parametrize("read", [exit_codes.claude, exit_codes.kimi, exit_codes.codex, exit_codes.gemini])
@pytest.mark.parametrize(
    "output", ["", "x", "Exit", "exit code", "\n" * 20_000, "9" * 20_000, "Exit code " * 5_000]
)
def test_no_output_is_too_strange(read: Callable[[str], int | None], output: str) -> None:
    assert read(output) is None
