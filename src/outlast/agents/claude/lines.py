"""Claude Code's transcript: what its lines mean, and how one that was cut short gets the results it lacks.
Where the file is, and why the agent ended, is in transcript.py.
"""

import re
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime
from uuid import NAMESPACE_OID, uuid5

import msgspec

from outlast import decoders
from outlast.agents.common import endings, exit_codes, json_lines
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Limit,
    Response,
    Session,
    TaskEnd,
    Text,
    ToolAside,
    ToolEnd,
    ToolStart,
    UsageReport,
    Window,
)
from outlast.agents.values import Cut
from outlast.core import values

NAME = "claude"
SYNTHETIC = "<synthetic>"  # the model of a line that the CLI wrote by itself

# What a CLI that was interrupted or killed says of a call whose outcome it does not know.
FALSEHOODS = (
    "The user doesn't want to proceed with this tool use",
    "[Tool call interrupted: the session ended before",
    "[Request interrupted by user",
)
INTERRUPTED = "[Request interrupted by user"


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")
    stop_reason: str | None = None
    usage: _Tokens | None = None


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = values.NULL
    tool_use_id: str = ""
    is_error: bool | None = None
    content: msgspec.Raw = msgspec.Raw(b"")


class _Quota(msgspec.Struct, frozen=True, rename="camel"):
    resets_at: int | None = None


class TranscriptLine(msgspec.Struct, frozen=True, rename="camel"):
    """One line, which holds one block of a response. Lines are a tree: each names its parent, a result hangs on its call.

    Sub-agents have files of their own.
    """

    type: str = ""
    uuid: str = ""
    session_id: str = ""
    agent_id: str | None = None
    is_api_error_message: bool | None = None
    api_error: str | None = None
    api_error_status: int | None = None
    quota_limits: _Quota | None = None
    timestamp: str = ""
    message: _Message | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw(b"")


_line: "msgspec.json.Decoder[TranscriptLine]" = decoders.of_json(TranscriptLine)
_blocks: "msgspec.json.Decoder[list[_Block]]" = decoders.of_json(list[_Block])
_string: "msgspec.json.Decoder[str]" = decoders.of_json(str)


def read(line: bytes) -> TranscriptLine | None:
    """One line of the conversation, or None for all others."""
    if b'"message"' not in line:
        return None
    return json_lines.decode(line, _line) or _unlike(json_lines.record(line))


def _unlike(line: json_lines.Record | None) -> TranscriptLine | None:
    """A line whose shape is not quite the one we know: what can be understood of it."""
    message = json_lines.inner(line, "message")
    if line is None or not message:
        return None
    used = json_lines.inner(message, "usage")
    return TranscriptLine(
        type=json_lines.text(line, "type"),
        uuid=json_lines.text(line, "uuid"),
        session_id=json_lines.text(line, "sessionId"),
        agent_id=json_lines.text(line, "agentId"),
        is_api_error_message=json_lines.flag(line, "isApiErrorMessage"),
        api_error=json_lines.text(line, "apiError"),
        api_error_status=json_lines.number(line, "apiErrorStatus"),
        quota_limits=_Quota(json_lines.number(line, "quotaLimits", "resetsAt")),
        timestamp=json_lines.text(line, "timestamp"),
        tool_use_result=json_lines.raw(line.get("toolUseResult")),
        message=_Message(
            id=json_lines.text(message, "id"),
            model=json_lines.text(message, "model"),
            content=json_lines.raw(message.get("content")),
            stop_reason=json_lines.text(message, "stop_reason") or None,
            usage=_Tokens(*(json_lines.number(used, name) for name in _Tokens.__struct_fields__))
            if used
            else None,
        ),
    )


def events(line: TranscriptLine, written_at: datetime) -> Iterator[AgentEvent]:
    """The events in a line."""
    if line.message is None:
        return
    if line.type == "assistant":
        yield from _response_events(line, line.message, written_at)
    elif line.type == "user":
        yield from _heard(line, line.message)


def _response_events(line: TranscriptLine, message: _Message, written_at: datetime) -> Iterator[AgentEvent]:
    lane = line.agent_id or ""
    blocks = content(message.content)
    if message.model == SYNTHETIC:  # the CLI's own words, no response of a model
        if line.is_api_error_message:
            words = " ".join(block.text for block in blocks)
            yield Text(words, lane)
            final = error_ending(line, words, written_at)
            if final.ending in ("usage_limit", "rate_limit"):
                yield Limit(final.reset_at, final.text)
        return
    if message.id:
        yield Response(message.id, lane)
    spoke = False
    for block in blocks:
        if block.type == "text":
            spoke = True
            yield Text(block.text, lane)
        elif block.type == "tool_use" and block.id:
            yield ToolStart(block.id, block.name, block.input, lane)
    if message.usage is not None and message.id:
        yield UsageReport(_spent(message.usage), "response", message.id, message.model, lane)
    if spoke and message.stop_reason not in (None, "tool_use", "pause_turn"):
        yield BatchEnd(lane)


def error_ending(line: TranscriptLine, words: str, written_at: datetime) -> Final:
    """The ending that an error means. The error has a limit's reset to the second; its words have it to the minute."""
    final = endings.by_status(line.api_error_status or 0, words, NAME, written_at)
    if line.api_error == "usage_limit_reached":
        final = Final("usage_limit", final.text, final.reset_at or endings.reset_at(words, written_at))
    exact = endings.epoch(line.quota_limits.resets_at if line.quota_limits is not None else None, written_at)
    return Final(final.ending, final.text, exact) if exact and final.ending == "usage_limit" else final


WINDOWS_MAX = 16


def windows(line: bytes) -> Iterator[Window]:
    """The shares of a subscription's windows, in a line of its stream-json output."""
    limits = json_lines.inner(json_lines.record(line), "rate_limit_info")
    each = json_lines.inner(limits, "unifiedWindows") or {json_lines.text(limits, "rateLimitType"): limits}
    for name, window in list(each.items())[:WINDOWS_MAX]:
        used = json_lines.at(window, "utilization")
        if isinstance(used, int | float) and 0 <= used < WINDOWS_MAX:
            resets = json_lines.number(window, "resetsAt")
            at = datetime.fromtimestamp(resets, UTC) if 0 < resets < 1 << 33 else None
            yield Window(round(used * 100, 2), at, name)


def content(raw: msgspec.Raw) -> list[_Block]:
    """A message's content, which is a list of blocks or one text."""
    data = bytes(raw)
    try:
        if data[:1] == b'"':
            return [_Block("text", _string.decode(data))]
        return _blocks.decode(data) if data[:1] == b"[" else []
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return [
            _unlike_block(block) for block in json_lines.items(json_lines.record(b'{"b":' + data + b"}"), "b")
        ]


def _unlike_block(block: object) -> _Block:
    return _Block(
        type=json_lines.text(block, "type"),
        text=json_lines.text(block, "text"),
        id=json_lines.text(block, "id"),
        name=json_lines.text(block, "name"),
        input=json_lines.raw(json_lines.at(block, "input")),
        tool_use_id=json_lines.text(block, "tool_use_id"),
        is_error=json_lines.flag(block, "is_error"),
        content=json_lines.raw(json_lines.at(block, "content")),
    )


def text_of(raw: msgspec.Raw) -> str:
    """The content of a tool result or a message, as text."""
    data = bytes(raw)
    if data[:1] in (b"[", b'"'):
        return "\n".join(block.text for block in content(raw) if block.text)[: json_lines.TEXT_MAX_CHARS]
    found = json_lines.record(data) if data[:1] == b"{" else None
    if found is None:
        return ""
    shown = [json_lines.text(found, key) for key in ("stdout", "stderr", "content", "result")]
    return "\n".join(part for part in shown if part) or data[: json_lines.TEXT_MAX_CHARS].decode(
        "utf-8", "replace"
    )


def _heard(line: TranscriptLine, message: _Message) -> Iterator[AgentEvent]:
    lane, results = line.agent_id or "", False
    if b"tool_result" in bytes(message.content):
        for block in content(message.content):
            if block.type == "tool_result" and block.tool_use_id:
                results, task = True, task_of(line.tool_use_result)
                output = text_of(block.content)
                code = exit_codes.claude(output) if block.is_error else None
                yield ToolEnd(block.tool_use_id, not block.is_error, output, lane, task=task, code=code)
    if not results and not lane and line.session_id:
        yield Session(line.session_id)


def task_of(result: msgspec.Raw) -> str:
    """The task that a call left running in the background, as its result names it."""
    data = bytes(result)
    return (
        json_lines.text(json_lines.record(data), "backgroundTaskId") if b'"backgroundTaskId"' in data else ""
    )


_ASIDE = "hook_deferred_tool"


def put_aside(line: bytes) -> list[ToolAside]:
    """The call that a hook put aside, in the line that a resume looks for; none in any other line."""
    read = json_lines.record(line)
    call = json_lines.text(read, "attachment", "toolUseID")
    is_aside = json_lines.text(read, "attachment", "type") == _ASIDE
    return [ToolAside(call)] if call and is_aside else []


# How it tells itself, and then its model, that a task has come to an end; one that was killed did not.
_NOTIFIED = re.compile(
    r"<task-notification>\s*<task-id>(?P<task>[\w-]{1,64})</task-id>.{0,2000}?<status>(?P<status>completed|failed)</status>"
    r"(?:\s*<summary>(?P<summary>.{0,2000}?)</summary>)?",
    re.DOTALL,
)
_CODE = re.compile(r"exit code (\d{1,3})\b[^\n]{0,20}\Z")


def task_ends(line: bytes) -> Iterator[AgentEvent]:
    """The end of a background task, in a line that queues a message for the model."""
    read = json_lines.record(line)
    found = (
        _NOTIFIED.match(json_lines.text(read, "content"))
        if json_lines.text(read, "operation") == "enqueue"
        else None
    )
    if found:
        words = found["summary"] or found["status"]
        code = _CODE.search(words)
        yield TaskEnd(
            found["task"], found["status"] == "completed", words, code=int(code[1]) if code else None
        )


def _spent(tokens: _Tokens) -> values.Usage:
    counts = (
        tokens.input_tokens, tokens.output_tokens, tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens,
    )  # fmt: skip
    put, got, cached, written = (min(max(count or 0, 0), json_lines.NUMBER_MAX) for count in counts)
    return values.Usage(input=put, output=got, cache_read=cached, cache_write=written)


class Mending:
    """A transcript in parts: its lines as they are, and where its calls and their results stand."""

    def __init__(self, transcript: bytes) -> None:
        self.calls: dict[str, int] = {}  # tool-call id → the line that makes the call
        self.results: dict[str, int] = {}
        self.messages: dict[str, int] = {}  # message id → its last line
        self.leaf = -1  # the last line of the conversation itself
        self.lines = [line for line in json_lines.lines(transcript) if line.strip()]
        while self.lines and json_lines.record(self.lines[-1]) is None:
            self.lines.pop()  # torn
        self._find()

    def _find(self) -> None:
        self.calls, self.results, self.messages, self.leaf = {}, {}, {}, -1
        for index in range(len(self.lines)):
            self._index(index)

    def _index(self, at: int) -> None:
        line = self.lines[at]
        known = read(line) or (json_lines.decode(line, _line) if b'"uuid"' in line else None)
        if known is None or not known.uuid or known.agent_id:
            return
        self.leaf = at
        if known.message is None:
            return
        if known.type == "assistant" and known.message.id:
            self.messages[known.message.id] = at
        for block in content(known.message.content):
            if block.type == "tool_use":
                self.calls[block.id] = at
            elif block.type == "tool_result":
                self.results[block.tool_use_id] = at

    def call(self, cut: Cut) -> None:
        """Make the call again, where the line that made it is lost."""
        if cut.id not in self.calls and cut.id not in self.results and self.leaf >= 0:
            self._insert(self.leaf + 1, self._call_line(cut))

    def result(self, cut: Cut) -> None:
        """Give the call its true result."""
        if cut.id in self.results:
            self._correct(cut, self.results[cut.id])
        elif cut.id in self.calls:
            made = self.calls[cut.id]
            call = json_lines.record(self.lines[made]) or {}
            last = self.messages.get(json_lines.text(call, "message", "id"), made)
            self._insert(last + 1, _result_line(cut, call))

    def forget_aside(self, calls: Container[str]) -> None:
        """A call that has a result now is not put aside any more: at a resume it would be asked about and made all the same. The
        line stays, for others hang on it."""
        for at, line in enumerate(self.lines):
            if _ASIDE.encode() in line and any(each.id in calls for each in put_aside(line)):
                read = json_lines.record(line) or {}
                attachment = json_lines.inner(read, "attachment")
                self.lines[at] = _encoded({**read, "attachment": {**attachment, "type": "hook_cancelled"}})

    def _insert(self, at: int, line: dict[str, object]) -> None:
        self.lines.insert(at, _encoded(line))
        self._find()

    def _correct(self, cut: Cut, at: int) -> None:
        """A result that the CLI made up becomes the truth; one that the tool gave stays."""
        line = json_lines.record(self.lines[at]) or {}
        blocks = json_lines.items(line, "message", "content")
        for block in blocks:
            if (
                isinstance(block, dict)
                and block.get("tool_use_id") == cut.id
                and _is_false(block.get("content"))
            ):
                block["content"], block["is_error"] = cut.text, True
                line["toolUseResult"] = cut.text
                line.pop("toolDenialKind", None)
                self.lines[at] = _encoded(line)

    def _call_line(self, cut: Cut) -> dict[str, object]:
        """The line that made a call, as far as it is known; of the response that was being written, if it was."""
        leaf = json_lines.record(self.lines[self.leaf]) or {}
        response = json_lines.inner(leaf, "message") if json_lines.text(leaf, "type") == "assistant" else {}
        if json_lines.at(response, "stop_reason") not in (None, "tool_use"):
            response = {}  # that response was over
        name = str(uuid5(NAMESPACE_OID, f"outlast call {cut.id}"))
        content = [{"type": "tool_use", "id": cut.id, "name": cut.name, "input": cut.input}]
        message = {
            "id": json_lines.text(response, "id") or f"msg_{name.replace('-', '')[:24]}",
            "type": "message",
            "role": "assistant",
            "model": json_lines.text(response, "model") or "unknown",
            "content": content,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return _framed(leaf, "assistant", name) | {"message": message}

    def written(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)


def _result_line(cut: Cut, call: json_lines.Record) -> dict[str, object]:
    block = {"type": "tool_result", "content": cut.text, "is_error": True, "tool_use_id": cut.id}
    name = str(uuid5(NAMESPACE_OID, f"outlast result {cut.id}"))
    rest = {"toolUseResult": cut.text, "sourceToolAssistantUUID": json_lines.text(call, "uuid")}
    return _framed(call, "user", name) | {"message": {"role": "user", "content": [block]}} | rest


def _framed(parent: json_lines.Record, kind: str, name: str) -> dict[str, object]:
    """A line of the conversation that follows another."""
    frame: dict[str, object] = {
        "parentUuid": json_lines.text(parent, "uuid") or None,
        "isSidechain": False,
        "type": kind,
        "uuid": name,
    }
    copied = ("timestamp", "userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch")
    return frame | {
        key: json_lines.at(parent, key) for key in copied if isinstance(json_lines.at(parent, key), str)
    }


def _is_false(content: object) -> bool:
    if isinstance(content, list):
        return any(_is_false(json_lines.at(block, "text")) for block in content)
    return isinstance(content, str) and content.lstrip().startswith(FALSEHOODS)


def _encoded(line: object) -> bytes:
    return bytes(json_lines.raw(line))


def mend(transcript: bytes, cuts: Sequence[Cut]) -> bytes:
    """A transcript with a true result for each cut call. A last line that is torn goes; to mend twice changes no more."""
    mending = Mending(transcript)
    main = [
        cut for cut in cuts if not cut.lane
    ]  # a sub-agent's own transcript is not what a resumed session reads
    for cut in main:
        mending.call(cut)
    for cut in main:
        mending.result(cut)
    mending.forget_aside({cut.id for cut in main})
    return mending.written()
