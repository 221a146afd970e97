"""Codex's rollout: what its lines tell, and how one that was cut short is given what it lacks.

A response is written item by item, then its usage with the response's id, then the outputs of its calls, then a count
of tokens: that is where a batch ends.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from outlast.agents import (
    AgentEvent,
    Cut,
    Limit,
    Response,
    Text,
    ToolEnd,
    ToolStart,
    Usage,
    Window,
    reading,
    running,
)
from outlast.core import values

SHELLS = frozenset("exec_command shell shell_command local_shell".split())  # what hooks call Bash
SHELL = "Bash"

_BLOCKED = "Command blocked by PreToolUse hook: "
_EXITED = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,10})")


class Line(msgspec.Struct, frozen=True):
    type: str = ""
    timestamp: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")


_line: "msgspec.json.Decoder[Line]" = msgspec.json.Decoder(Line)
HEAD_BYTES = 200  # its type stands in front, after the time
TELLING = (b'"session_meta"', b'"turn_context"', b'"response_item"', b'"token_usage_record"', b'"event_msg"')
TURNS_MAX = 256
COUNTS_MAX = 40
WINDOWS = {300: "five_hour", 10_080: "seven_day"}  # by their minutes; others are called after those


def read(line: bytes) -> tuple[Line, reading.Record] | None:
    """One line that may tell something, with its payload; None for all others."""
    head = line[:HEAD_BYTES]
    if not any(kind in head for kind in TELLING):
        return None
    found = reading.decode(line, _line)
    payload = reading.record(bytes(found.payload)) if found is not None else None
    return (found, payload) if found is not None and payload is not None else None


def item(payload: reading.Record) -> Iterator[AgentEvent]:
    call = reading.text(payload, "call_id")
    match reading.text(payload, "type"):
        case "message" if reading.text(payload, "role") == "assistant":
            said = [reading.text(part, "text") for part in reading.items(payload, "content")]
            if any(said):
                yield Text("\n".join(said))
        case "function_call" if call:
            name, given = as_hooks_say(reading.text(payload, "name"), reading.text(payload, "arguments"))
            yield ToolStart(call, name, given)
        case "custom_tool_call" if call:
            yield ToolStart(
                call, reading.text(payload, "name"), reading.raw({"input": reading.text(payload, "input")})
            )
        case "local_shell_call" if call:
            command = _line_of(reading.at(payload, "action", "command"))
            yield ToolStart(call, SHELL, reading.raw({"command": command}))
        case "function_call_output" | "custom_tool_call_output" if call:
            output = told(payload.get("output"))
            yield ToolEnd(call, _went_well(payload, output), output, task=running.codex(output))
        case _:
            pass


def as_hooks_say(name: str, arguments: str) -> tuple[str, msgspec.Raw]:
    """A call of the shell by the name and with the input that hooks know it by; any other as it is."""
    given = reading.parsed(arguments)
    if name not in SHELLS:
        return name, given
    read = reading.record(bytes(given))
    command = _line_of(reading.at(read, "cmd") or reading.at(read, "command"))
    return SHELL, reading.raw({"command": command})


def _line_of(command: object) -> str:
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)
    return command if isinstance(command, str) else ""


def told(output: object) -> str:
    if isinstance(output, str):
        return reading.text({"": output}, "")
    if isinstance(output, list):
        return "\n".join(reading.text(part, "text") for part in output)
    return reading.text(output, "content") or (bytes(reading.raw(output)).decode() if output else "")


def _went_well(payload: reading.Record, output: str) -> bool:
    if reading.at(payload, "output", "success") is False or output.startswith(_BLOCKED):
        return False
    codes = _EXITED.findall(output[:400])
    return not (codes and codes[-1] != "0") and not is_aborted(output)


def is_aborted(output: str) -> bool:
    """What Codex writes as the output of a call that it did not see the end of."""
    return output.strip() == "aborted" or re.search(r"(?:^|\n)aborted by user", output[:200]) is not None


class Models:
    """Which model a turn is made with: the turn's first line tells it, the lines with its usage do not."""

    def __init__(self) -> None:
        self._by_turn: dict[str, str] = {}

    def learn(self, context: reading.Record) -> None:
        turn, model = reading.text(context, "turn_id"), reading.text(context, "model")
        if turn and model:
            self._by_turn[turn] = model
            if len(self._by_turn) > TURNS_MAX:
                self._by_turn.pop(next(iter(self._by_turn)))

    def of(self, record: reading.Record) -> str:
        return reading.text(record, "model") or self._by_turn.get(reading.text(record, "turn_id"), "")


def usage(payload: reading.Record, model: str) -> Iterator[AgentEvent]:
    key = reading.text(payload, "response_id")
    if not key:
        return
    used = reading.inner(payload, "usage")
    cached, written = (
        reading.number(used, "cached_input_tokens"),
        reading.number(used, "cache_write_input_tokens"),
    )
    fresh = max(reading.number(used, "input_tokens") - cached - written, 0)  # theirs counts all of it
    yield Response(key)
    spent = values.Usage(fresh, reading.number(used, "output_tokens"), cached, written)
    yield Usage(spent, "response", key, model)


def windows(limits: reading.Record, said_at: datetime | None) -> Iterator[Window]:
    """The shares of a subscription's windows."""
    for place in ("primary", "secondary"):
        told = reading.inner(limits, place)
        used, resets = reading.at(told, "used_percent"), reading.number(told, "resets_at")
        if isinstance(used, bool) or not isinstance(used, int | float) or not 0 <= used < 10_000:
            continue
        minutes, later = reading.number(told, "window_minutes"), reading.number(told, "resets_in_seconds")
        at = datetime.fromtimestamp(resets, UTC) if 0 < resets < 1 << 33 else None
        if at is None and said_at is not None and 0 < later < 1 << 25:
            at = said_at + timedelta(seconds=later)
        yield Window(float(used), at, WINDOWS.get(minutes, f"{minutes}_minutes" if minutes else place))


def full_until(transcript: bytes) -> datetime | None:
    """When the windows that are used up reset, by the last count: words tell it to the minute only."""
    for line in reading.backwards(transcript, COUNTS_MAX):
        if b'"rate_limits"' not in line:
            continue
        limits = reading.inner(reading.record(line), "payload", "rate_limits")
        found = [one for one in windows(limits, None) if one.used_pct >= 100]
        return max((one.resets_at for one in found if one.resets_at is not None), default=None)
    return None


def limit(limits: reading.Record) -> Limit | None:
    reached = reading.text(limits, "rate_limit_reached_type")
    if not reached:
        return None
    resets = [reading.number(limits, window, "resets_at") for window in ("primary", "secondary")]
    full = [reset for reset in resets if 0 < reset < 1 << 33]
    return Limit(datetime.fromtimestamp(max(full), UTC) if full else None, reached)


def mended(transcript: bytes, cuts: Sequence[Cut]) -> bytes:
    lines = [line for line in reading.lines(transcript) if line.strip()]
    while lines and reading.record(lines[-1]) is None:
        lines.pop()  # torn
    made: set[str] = set()
    ended: dict[str, int] = {}
    for at, line in enumerate(lines):
        if b'"call_id"' not in line or b'"response_item"' not in line[:HEAD_BYTES]:
            continue
        payload = reading.inner(reading.record(line), "payload")
        call, kind = reading.text(payload, "call_id"), reading.text(payload, "type")
        if kind.endswith("_output"):
            ended[call] = at
        else:
            made.add(call)
    for cut in cuts:
        if cut.id in ended:
            lines[ended[cut.id]] = _corrected(lines[ended[cut.id]], cut)
        elif lines:
            if cut.id not in made:
                lines.append(_next(lines, _call(cut)))
            output: dict[str, object] = {
                "type": "function_call_output",
                "call_id": cut.id,
                "output": cut.text,
            }
            lines.append(_next(lines, output))
    return b"".join(line + b"\n" for line in lines)


def _corrected(line: bytes, cut: Cut) -> bytes:
    """An output that Codex made up becomes the truth; one that the tool gave stays."""
    read = reading.record(line) or {}
    payload = reading.inner(read, "payload")
    if not is_aborted(told(payload.get("output"))):
        return line
    return bytes(reading.raw({**read, "payload": {**payload, "output": cut.text}}))


def _call(cut: Cut) -> dict[str, object]:
    """The call as the model made it, as far as it is known."""
    given = reading.record(bytes(cut.input)) or {}
    name = cut.name
    if name == SHELL:
        name, given = "exec_command", {"cmd": reading.text(given, "command")}
    return {
        "type": "function_call",
        "name": name,
        "arguments": bytes(reading.raw(given)).decode(),
        "call_id": cut.id,
    }


def _next(lines: Sequence[bytes], payload: dict[str, object]) -> bytes:
    """A line that follows the last one, which has its time and is counted like it."""
    last = reading.record(lines[-1]) or {}
    line: dict[str, object] = {"timestamp": reading.text(last, "timestamp")}
    if isinstance(last.get("ordinal"), int):
        line["ordinal"] = reading.number(last, "ordinal") + 1
    return bytes(reading.raw({**line, "type": "response_item", "payload": payload}))
