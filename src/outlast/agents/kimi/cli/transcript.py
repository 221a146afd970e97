"""Finds, reads and mends kimi-cli's two files of a session; says why the agent stopped.
We read `wire.jsonl`, which has all that happened. A resume reads `context.jsonl`.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import md5
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import argv, background, endings, exit_codes, json_lines, launch, repair, versions
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Retry,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.kimi import common, provider
from outlast.agents.kimi.cli.grammar import GRAMMAR
from outlast.agents.kimi.cli.release import NAME, RELEASE
from outlast.agents.values import Ask, Companions, Cut
from outlast.core import values

RETRYABLE = 75
NESTED_MAX = 8
SESSION = re.compile(r"[A-Za-z0-9][\w.-]{0,127}")
_BREAK = re.compile(r"\n(?=\S)")
_STATUS = re.compile(r"Error code: (\d{3})\b")


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str | None = ""


class _Tokens(msgspec.Struct, frozen=True):
    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class _Returned(msgspec.Struct, frozen=True):
    is_error: bool = False
    output: msgspec.Raw = values.NULL
    message: str = ""


class _Payload(msgspec.Struct, frozen=True):
    n: int = 0
    type: str = ""
    text: str = ""
    id: str = ""
    function: _Function | None = None
    token_usage: _Tokens | None = None
    message_id: str | None = ""
    tool_call_id: str = ""
    return_value: _Returned | None = None
    next_attempt: int = 0
    error_type: str = ""
    status_code: int | None = None
    agent_id: str | None = None
    parent_tool_call_id: str | None = None
    event: msgspec.Raw = values.NULL
    payload: msgspec.Raw = values.NULL


class _Task(msgspec.Struct, frozen=True):
    task_id: str = ""
    status: str = ""
    exit_code: int | None = None


class _Message(msgspec.Struct, frozen=True):
    type: str = ""
    payload: _Payload | None = None


class _Line(msgspec.Struct, frozen=True):
    timestamp: float = 0.0
    message: _Message | None = None


_line: "msgspec.json.Decoder[_Line]" = decoders.of_json(_Line)
_message: "msgspec.json.Decoder[_Message]" = decoders.of_json(_Message)
_task: "msgspec.json.Decoder[_Task]" = decoders.of_json(_Task)


class KimiCliTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        return wire_of(session, ask)

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        """Its files: the first sidecar has the messages for its model."""
        return Companions(
            sidecars=(transcript.with_name("context.jsonl"), transcript.with_name("state.json"))
        )

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        return _events_of(line)

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """`context.jsonl` gets the calls with their results; `wire.jsonl` only the results that it lacks."""
        if _is_wire(transcript):
            return repair.append(transcript, _wire_results(transcript, cuts))
        return repair.append(transcript, context_messages(transcript, cuts))

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = endings.last_words(tail)
        unbroken = _BREAK.sub("", words)  # it breaks its last words into lines of 80 characters
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        if exit_code == 0:
            if "kimi-cli is no longer maintained" in words:
                return Final("crashed", versions.problem(RELEASE, "1.52"))
            return Final("done", endings.short(words))
        if "Interrupted by user" in words:
            return Final("crashed", "interrupted")
        for text in (words, unbroken):
            final = endings.match(NAME, text, self._clock())
            if final is not None:
                return final
        status = _STATUS.search(words)
        if status:
            return endings.by_status(int(status[1]), unbroken, NAME, self._clock())
        if exit_code == RETRYABLE:
            return Final("network", endings.short(words))
        return Final("crashed", endings.short(words) or f"exit code {exit_code}")


def wire_of(session: str, ask: Ask) -> Path | None:
    """The session's `wire.jsonl`, if there is one."""
    folder = folder_of(session, ask)
    return folder / "wire.jsonl" if folder is not None and (folder / "wire.jsonl").is_file() else None


def folder_of(session: str, ask: Ask) -> Path | None:
    """The session's folder, which its working directory's path names."""
    home = launch.home(ask.environment, *provider.CLI_HOME)
    if home is None or not SESSION.fullmatch(session):
        return None
    named = argv.value(GRAMMAR.parts(ask.words), "--work-dir")
    work = os.path.normpath(ask.cwd / named) if named else str(ask.cwd)
    for path in (work, os.path.realpath(work)):
        folder = home / "sessions" / hashed(path) / session
        if folder.is_dir():
            return folder
    return next(iter(sorted(home.glob(f"sessions/*/{session}"))), None)


def hashed(path: str) -> str:
    """How a working directory's path names the folder of its sessions."""
    return md5(path.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _events_of(line: bytes) -> Iterator[AgentEvent]:
    if b'"message"' not in line:
        return
    read = json_lines.decode(line, _line)
    if read is None or read.message is None:
        return
    yield from _message_events(read.message, f"{read.timestamp:.6f}", "", 0)


def _message_events(message: _Message, key: str, lane: str, depth: int) -> Iterator[AgentEvent]:
    payload = message.payload or _Payload()
    match message.type:
        case "StepBegin":
            if payload.n > 1:
                yield BatchEnd(lane)
            yield Response(key, lane)
        case "ContentPart" if payload.type == "text":
            yield Text(payload.text, lane)
        case "ToolCall" if payload.id and payload.function is not None:
            called = payload.function
            yield ToolStart(payload.id, called.name, json_lines.raw_from_text(called.arguments or "{}"), lane)
        case "ToolResult" if payload.tool_call_id:
            result = payload.return_value or _Returned(is_error=True)
            output = common.output_text(result.output) or result.message
            code = exit_codes.kimi(f"{output}\n{result.message}") if result.is_error else None
            task = background.kimi(output)
            yield ToolEnd(payload.tool_call_id, not result.is_error, output, lane, task=task, code=code)
        case "Notification" if payload.type in ("task.completed", "task.failed"):
            ended = json_lines.decode(bytes(payload.payload), _task)
            if ended is not None and ended.exit_code is not None:
                yield background.kimi_end(ended.task_id, ended.status, ended.exit_code)
        case "StatusUpdate" if payload.token_usage is not None:
            yield UsageReport(_usage(payload.token_usage), "response", payload.message_id or key, "", lane)
        case "StepRetry":
            reason = f"{payload.error_type} {payload.status_code or ''}".strip()
            yield Retry(json_lines.number(payload.next_attempt - 1), reason)
        case "TurnEnd":
            yield BatchEnd(lane)
        case "SubagentEvent" if depth < NESTED_MAX:
            inner = json_lines.decode(bytes(payload.event), _message)
            if inner is not None:
                yield from _message_events(
                    inner, key, payload.agent_id or payload.parent_tool_call_id or "subagent", depth + 1
                )
        case _:
            return


def _usage(tokens: _Tokens) -> values.Usage:
    return common.usage(
        tokens.input_other, tokens.output, tokens.input_cache_read, tokens.input_cache_creation
    )


# --- mending ---------------------------------------------------------------------------------------------------


def _is_wire(transcript: bytes) -> bool:
    first = json_lines.record(next(json_lines.lines(transcript), b"")) or {}
    return "message" in first or "protocol_version" in first


def _wire_results(transcript: bytes, cuts: Sequence[Cut]) -> Iterator[object]:
    started: set[str] = set()
    ended: set[str] = set()
    time = 0.0
    for line in json_lines.lines(transcript):
        read = json_lines.decode(line, _line) if b'"Tool' in line else None
        if read is None or read.message is None or read.message.payload is None:
            continue
        time = max(time, read.timestamp)
        if read.message.type == "ToolCall":
            started.add(read.message.payload.id)
        elif read.message.type == "ToolResult":
            ended.add(read.message.payload.tool_call_id)
    for cut in cuts:
        if cut.id in started - ended:
            value = {"is_error": False, "output": cut.text, "message": "", "display": [], "extras": None}
            payload = {"tool_call_id": cut.id, "return_value": value}
            yield {"timestamp": time, "message": {"type": "ToolResult", "payload": payload}}


def last_step(wire: bytes) -> tuple[str, list[Cut]]:
    """The words of the last step, and its calls with their results."""
    words = ""
    started: dict[str, ToolStart] = {}
    ended: dict[str, ToolEnd] = {}
    for line in json_lines.lines(wire):
        for event in _events_of(line):
            match event:
                case Response(lane=""):
                    words, started, ended = "", {}, {}
                case Text(lane=""):
                    words += event.text
                case ToolStart(lane=""):
                    started[event.id] = event
                case ToolEnd(lane=""):
                    ended[event.id] = event
                case _:
                    pass
    calls = [(start, ended[call]) for call, start in started.items() if call in ended]
    return words, [Cut(start.id, start.name, start.input, end.output) for start, end in calls]


def context_messages(transcript: bytes, cuts: Sequence[Cut], words: str = "") -> Iterator[object]:
    """The messages that the step would have written at its end."""
    called: set[str] = set()
    ended: set[str] = set()
    for line in json_lines.lines(transcript):
        read = json_lines.record(line) if b'"tool_call' in line else None
        if read is None:
            continue
        called |= {json_lines.text(call, "id") for call in json_lines.items(read, "tool_calls")}
        ended.add(json_lines.text(read, "tool_call_id"))
    lost = [cut for cut in cuts if cut.id not in called and cut.id not in ended]
    if lost:
        calls = [
            {
                "type": "function",
                "id": cut.id,
                "function": {"name": cut.name, "arguments": json.dumps(repair.plain(cut.input))},
            }
            for cut in lost
        ]
        yield {"role": "assistant", "content": words, "tool_calls": calls}
    for cut in cuts:
        if cut.id not in ended:
            yield {"role": "tool", "content": cut.text, "tool_call_id": cut.id}
