"""opencode's journal, which our plugin writes: where it is, what its lines mean, and why the agent stopped.
opencode's own sessions lie in a SQLite file that only it may write.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import endings, json_lines, launch, providers, repair
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Session,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.values import Ask, Companions, Cut
from outlast.core import values

NAME = "opencode"
JOURNAL_FILE = "opencode-journal.jsonl"
SHELL = "bash"
TAIL_LINES_MAX = 40


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Cache(msgspec.Struct, frozen=True):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct, frozen=True):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: _Cache = _Cache()


class _State(msgspec.Struct, frozen=True):
    status: str = ""
    input: msgspec.Raw = values.NULL
    output: str | None = ""
    error: str | None = ""
    metadata: msgspec.Raw = values.NULL


class _Part(msgspec.Struct, frozen=True):
    id: str = ""
    message_id: str = msgspec.field(default="", name="messageID")
    type: str = ""
    text: str = ""
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: _State | None = None
    tokens: _Tokens | None = None
    cost: float = 0.0


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    lane: str = ""
    model: str = ""
    part: _Part | None = None


_line: "msgspec.json.Decoder[_Line]" = decoders.of_json(_Line)


class OpencodeTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        path = ask.folder / JOURNAL_FILE
        return path if path.is_file() else None

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        return Companions()

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = json_lines.decode(line, _line) if b'"type"' in line else None
        if read is None:
            return
        if read.type == "session" and read.session_id:
            yield Session(read.session_id)
        elif read.part is not None:
            yield from _part_events(read, read.part)

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """No call is given a result: a resumed opencode reads its SQLite file, and says itself that it was interrupted."""
        return repair.whole(transcript)

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = endings.last_words(tail)
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        error = _last_error(transcript) or _last_error(tail)
        if error is not None:
            return self._by_error(error)
        return endings.by_exit(exit_code, words, NAME, self._clock())

    def _by_error(self, error: json_lines.Record) -> Final:
        """An error is its last word also where it exits 0."""
        name = json_lines.text(error, "name")
        message = json_lines.text(error, "data", "message") or name
        if name == "MessageAbortedError":
            return Final("crashed", "interrupted")
        if name == "ProviderAuthError":
            return Final("auth", endings.short(message))
        if name in ("ContextOverflowError", "MessageOutputLengthError"):
            return Final("context", endings.short(message))
        return endings.by_status(json_lines.number(error, "data", "statusCode"), message, NAME, self._clock())


def ended(call: str, tool: str, output: str, lane: str, exit_code: object) -> ToolEnd:
    """The end of a call that opencode calls completed, as it does every command that ran. One that was killed has no code."""
    code = exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None
    is_known = code is not None or tool != SHELL
    return ToolEnd(call, code in (None, 0), output, lane, sure=is_known, code=code)


def _part_events(line: _Line, part: _Part) -> Iterator[AgentEvent]:
    lane = line.lane
    match line.type:
        case "step_start":
            yield Response(part.message_id, lane)
        case "text":
            yield Text(part.text, lane)
        case "tool_use" if part.call_id and part.state is not None:
            state = part.state
            yield ToolStart(part.call_id, part.tool, state.input, lane)
            if state.status == "completed":
                code = json_lines.at(json_lines.record(bytes(state.metadata)), "exit")
                yield ended(part.call_id, part.tool, state.output or "", lane, code)
            else:
                yield ToolEnd(part.call_id, False, state.error or "", lane)
        case "step_finish":
            if part.tokens is not None:
                model = providers.bare(line.model)
                yield UsageReport(
                    _usage(part.tokens, part.cost), "response", part.id or part.message_id, model, lane
                )
            yield BatchEnd(lane)
        case _:
            return


def _usage(tokens: _Tokens, cost_usd: float) -> values.Usage:
    counts = (tokens.input, tokens.output + tokens.reasoning, tokens.cache.read, tokens.cache.write)
    sent, received, read, write = (json_lines.number(count) for count in counts)
    return values.Usage(sent, received, read, write, json_lines.microusd(cost_usd))


def _last_error(data: bytes) -> json_lines.Record | None:
    """The last error, if nothing was done after it."""
    for line in json_lines.backwards(data, TAIL_LINES_MAX):
        read = json_lines.record(line)
        if read is None:
            continue
        kind = json_lines.text(read, "type")
        if kind == "error":
            return json_lines.inner(read, "error")
        if kind in ("step_finish", "text", "tool_use"):
            return None
    return None
