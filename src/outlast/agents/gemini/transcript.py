"""Gemini CLI's chat files and its end: where they are, and why the agent stopped. What a line means is in chat.py."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

import msgspec

from outlast.agents.common import endings, json_lines, launch
from outlast.agents.events import AgentEvent, BatchEnd, Final, Response, Text, ToolStart, UsageReport
from outlast.agents.gemini import chat, provider, shell
from outlast.agents.values import Ask, Companions, Cut

NAME = "gemini"
LINES_BACK_MAX = 50
TAIL_LINES_MAX = 40
CHATS_MAX = 10_000
HEAD_BYTES = 4096

# Its exit code for an API's error is the HTTP status as far as it fits into a byte; the others are its own.
STATUSES = {status & 0xFF: status for status in (400, 401, 403, 408, 413, 429, 500, 502, 503, 504)}
ENDINGS: dict[int, Final] = {
    41: Final("auth", "it could not authenticate"),
    53: Final("turns", "it reached its limit of turns"),
    130: Final("crashed", "interrupted"),
}


class GeminiTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        """The oldest chat file of the session: a resume goes on in it, and leaves an empty one beside it."""
        return next(iter(chats_of(session, ask)), None)

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        return Companions()

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = chat.read(line)
        if read is None or not read.id:
            return
        if read.type == "gemini":
            yield from _response_events(read)
        elif read.type == "user" and b'"functionResponse"' in line:
            yield BatchEnd()

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return chat.mend(transcript, cuts)

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = endings.last_words(tail)
        killed = endings.by_signal(exit_code) if exit_code < 0 or exit_code in (137, 143) else None
        if killed is not None:
            return killed
        error = _error(tail)
        if exit_code in STATUSES:
            final = endings.by_status(STATUSES[exit_code], error or words, NAME, self._clock())
            return endings.with_reset(
                final, words, self._clock()
            )  # its log holds more of what its provider said
        matched = endings.match(NAME, error, self._clock()) if error else None
        if matched is not None:
            return matched
        if exit_code in ENDINGS:
            return ENDINGS[exit_code]
        if error and "loop" in error.lower():
            return Final("refused", endings.short(error))
        if exit_code == 0 and not error:
            if _is_unanswered(transcript):  # stopped by a signal it exits 0 as well
                return Final("crashed", "it ended, with exit code 0, before its model had answered")
            return Final("done", endings.short(words))
        matched = endings.match(NAME, words, self._clock())
        return matched or Final("crashed", endings.short(error or words) or f"exit code {exit_code}")


def user_folder(ask: Ask) -> Path | None:
    """Gemini's folder in the user's home."""
    home = launch.home(ask.environment, *provider.HOME)
    return None if home is None else home / ".gemini"


def chats_of(session: str, ask: Ask) -> list[Path]:
    """The chat files of a session, the oldest first."""
    real = user_folder(ask)
    if real is None or not re.fullmatch(r"[\w-]{8,128}", session):
        return []
    found = sorted(real.glob(f"tmp/*/chats/session-*-{session[:8]}.jsonl"))[:CHATS_MAX]
    return [path for path in found if _is_of(path, session)]


def _is_of(path: Path, session: str) -> bool:
    try:
        with path.open("rb") as file:
            return f'"sessionId":"{session}"'.encode() in file.read(HEAD_BYTES)
    except OSError:
        return False


def call_id(name: str, given: msgspec.Raw) -> str:
    """A call's id, made of its content: the same in its hooks and in the chat file.

    Gemini's hooks carry no id of the call, and the chat file has the call only once it has ended.
    """
    try:
        value: object = msgspec.json.decode(given) if given else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        value = bytes(given).decode("utf-8", "replace")
    try:
        data = msgspec.json.encode([name, value], order="deterministic")
    except (UnicodeError, RecursionError, ValueError):
        data = bytes(given)
    return f"gemini-{blake2b(data, digest_size=12).hexdigest()}"


def _response_events(read: chat.ChatLine) -> Iterator[AgentEvent]:
    yield Response(read.id)
    if not read.tool_calls:  # it is written again with each change: only the first time are its words new
        words = chat.text_of(read.content)
        if words:
            yield Text(words)
    for call in read.tool_calls or ():
        known = call_id(call.name, call.args)
        yield ToolStart(known, call.name, call.args)
        if call.status in ("success", "error", "cancelled"):
            output = chat.result_text(call.result)
            yield shell.ended(known, call.name, call.status == "success", output)
    if read.tokens is not None:
        yield UsageReport(chat.spent(read.tokens), "response", read.id, read.model)


def _is_unanswered(transcript: bytes) -> bool:
    """Whether the last word in the chat is not the model's: the results of calls, or calls that were asked for."""
    for line in json_lines.backwards(transcript, LINES_BACK_MAX):
        read = chat.read(line)
        if read is not None and read.type == "gemini":
            return bool(read.tool_calls)
        if read is not None and read.type == "user":
            return b'"functionResponse"' in line
    return False


def _error(tail: bytes) -> str:
    """The error in its result, in either of its formats for programs."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        read = json_lines.record(line) if b'"error"' in line else None
        if read is not None and json_lines.text(read, "type") in ("", "result", "error"):  # not a tool's
            found = json_lines.text(read, "error", "message") or json_lines.text(read, "error")
            if found:
                return found
    start = tail.rfind(b'\n  "error": {')
    found_at = re.search(rb'"message": ("(?:[^"\\]|\\.)*")', tail[start:]) if start >= 0 else None
    return json_lines.text(json_lines.record(b'{"m":' + found_at[1] + b"}") or {}, "m") if found_at else ""
