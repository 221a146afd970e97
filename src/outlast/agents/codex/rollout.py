"""Codex's rollout: what its lines mean, and how one that was cut short gets the results it lacks.
Where the file is, and why the agent ended, is in transcript.py.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from outlast import decoders
from outlast.agents.common import background, exit_codes, json_lines
from outlast.agents.events import AgentEvent, Limit, Response, Text, ToolEnd, ToolStart, UsageReport, Window
from outlast.agents.values import Cut
from outlast.core import values

SHELLS = frozenset("exec_command shell shell_command local_shell".split())  # what hooks call Bash
SHELL = "Bash"

_BLOCKED = "Command blocked by PreToolUse hook: "


class RolloutLine(msgspec.Struct, frozen=True):
    """The head of a line. A response is written item by item, then its usage with the response's id, then the outputs of its
    calls, then a count of tokens, which ends the batch.
    """

    type: str = ""
    timestamp: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")


_line: "msgspec.json.Decoder[RolloutLine]" = decoders.of_json(RolloutLine)
HEAD_BYTES = 200  # its type stands in front, after the time
TELLING = (b'"session_meta"', b'"turn_context"', b'"response_item"', b'"token_usage_record"', b'"event_msg"')
TURNS_MAX = 256
COUNTS_MAX = 40
WINDOWS = {300: "five_hour", 10_080: "seven_day"}  # by their minutes; others are called after those


def read(line: bytes) -> tuple[RolloutLine, json_lines.Record] | None:
    """One line that may hold an event, with its payload; None for all others."""
    head = line[:HEAD_BYTES]
    if not any(kind in head for kind in TELLING):
        return None
    found = json_lines.decode(line, _line)
    payload = json_lines.record(bytes(found.payload)) if found is not None else None
    return (found, payload) if found is not None and payload is not None else None


def item(payload: json_lines.Record) -> Iterator[AgentEvent]:
    call = json_lines.text(payload, "call_id")
    match json_lines.text(payload, "type"):
        case "message" if json_lines.text(payload, "role") == "assistant":
            texts = [json_lines.text(part, "text") for part in json_lines.items(payload, "content")]
            if any(texts):
                yield Text("\n".join(texts))
        case "function_call" if call:
            name, given = as_hooks_say(_full_name(payload), json_lines.text(payload, "arguments"))
            yield ToolStart(call, name, given)
        case "custom_tool_call" if call:
            yield ToolStart(
                call,
                json_lines.text(payload, "name"),
                json_lines.raw({"input": json_lines.text(payload, "input")}),
            )
        case "local_shell_call" if call:
            command = _line_of(json_lines.at(payload, "action", "command"))
            yield ToolStart(call, SHELL, json_lines.raw({"command": command}))
        case "function_call_output" | "custom_tool_call_output" if call:
            output = output_text(payload.get("output"))
            yield ToolEnd(
                call, _went_well(payload, output), output, task=background.codex(output), code=exit_codes.codex(output)
            )  # fmt: skip
        case _:
            pass


def _full_name(payload: json_lines.Record) -> str:
    """A tool's name as hooks have it. One of an MCP server stands apart from its server's in the rollout."""
    space, name = json_lines.text(payload, "namespace"), json_lines.text(payload, "name")
    return f"{space}__{name}" if space.startswith("mcp__") else name


def as_hooks_say(name: str, arguments: str) -> tuple[str, msgspec.Raw]:
    """A call of the shell by the name and with the input that hooks know it by; any other as it is."""
    given = json_lines.raw_from_text(arguments)
    if name not in SHELLS:
        return name, given
    read = json_lines.record(bytes(given))
    command = _line_of(json_lines.at(read, "cmd") or json_lines.at(read, "command"))
    return SHELL, json_lines.raw({"command": command})


def _line_of(command: object) -> str:
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)
    return command if isinstance(command, str) else ""


def output_text(output: object) -> str:
    if isinstance(output, str):
        return json_lines.text({"": output}, "")
    if isinstance(output, list):
        return "\n".join(json_lines.text(part, "text") for part in output)
    return json_lines.text(output, "content") or (bytes(json_lines.raw(output)).decode() if output else "")


def _went_well(payload: json_lines.Record, output: str) -> bool:
    if json_lines.at(payload, "output", "success") is False or output.startswith(_BLOCKED):
        return False
    return exit_codes.codex(output) in (None, 0) and not is_aborted(output)


def is_aborted(output: str) -> bool:
    """Whether this is the output that Codex writes for a call whose end it did not see."""
    return output.strip() == "aborted" or re.search(r"(?:^|\n)aborted by user", output[:200]) is not None


class Models:
    """Which model a turn uses: the turn's first line names it, the lines with its usage do not."""

    def __init__(self) -> None:
        self._by_turn: dict[str, str] = {}

    def learn(self, context: json_lines.Record) -> None:
        turn, model = json_lines.text(context, "turn_id"), json_lines.text(context, "model")
        if turn and model:
            self._by_turn[turn] = model
            if len(self._by_turn) > TURNS_MAX:
                self._by_turn.pop(next(iter(self._by_turn)))

    def of(self, record: json_lines.Record) -> str:
        return json_lines.text(record, "model") or self._by_turn.get(json_lines.text(record, "turn_id"), "")


def usage(payload: json_lines.Record, model: str) -> Iterator[AgentEvent]:
    key = json_lines.text(payload, "response_id")
    if not key:
        return
    used = json_lines.inner(payload, "usage")
    cached, written = (
        json_lines.number(used, "cached_input_tokens"),
        json_lines.number(used, "cache_write_input_tokens"),
    )
    fresh = max(json_lines.number(used, "input_tokens") - cached - written, 0)  # theirs counts all of it
    yield Response(key)
    spent = values.Usage(fresh, json_lines.number(used, "output_tokens"), cached, written)
    yield UsageReport(spent, "response", key, model)


def windows(limits: json_lines.Record, written_at: datetime | None) -> Iterator[Window]:
    """The shares of a subscription's windows."""
    for place in ("primary", "secondary"):
        window = json_lines.inner(limits, place)
        used, resets = json_lines.at(window, "used_percent"), json_lines.number(window, "resets_at")
        if isinstance(used, bool) or not isinstance(used, int | float) or not 0 <= used < 10_000:
            continue
        minutes, later = (
            json_lines.number(window, "window_minutes"),
            json_lines.number(window, "resets_in_seconds"),
        )
        at = datetime.fromtimestamp(resets, UTC) if 0 < resets < 1 << 33 else None
        if at is None and written_at is not None and 0 < later < 1 << 25:
            at = written_at + timedelta(seconds=later)
        yield Window(float(used), at, WINDOWS.get(minutes, f"{minutes}_minutes" if minutes else place))


def full_until(transcript: bytes) -> datetime | None:
    """When the windows that are used up reset, by the last count of tokens. Error messages are only exact to the minute."""
    for line in json_lines.backwards(transcript, COUNTS_MAX):
        if b'"rate_limits"' not in line:
            continue
        limits = json_lines.inner(json_lines.record(line), "payload", "rate_limits")
        found = [one for one in windows(limits, None) if one.used_pct >= 100]
        return max((one.resets_at for one in found if one.resets_at is not None), default=None)
    return None


def limit(limits: json_lines.Record) -> Limit | None:
    reached = json_lines.text(limits, "rate_limit_reached_type")
    if not reached:
        return None
    resets = [json_lines.number(limits, window, "resets_at") for window in ("primary", "secondary")]
    full = [reset for reset in resets if 0 < reset < 1 << 33]
    return Limit(datetime.fromtimestamp(max(full), UTC) if full else None, reached)


def mend(transcript: bytes, cuts: Sequence[Cut]) -> bytes:
    lines = [line for line in json_lines.lines(transcript) if line.strip()]
    while lines and json_lines.record(lines[-1]) is None:
        lines.pop()  # torn
    made: set[str] = set()
    ended: dict[str, int] = {}
    for at, line in enumerate(lines):
        if b'"call_id"' not in line or b'"response_item"' not in line[:HEAD_BYTES]:
            continue
        payload = json_lines.inner(json_lines.record(line), "payload")
        call, kind = json_lines.text(payload, "call_id"), json_lines.text(payload, "type")
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
    read = json_lines.record(line) or {}
    payload = json_lines.inner(read, "payload")
    if not is_aborted(output_text(payload.get("output"))):
        return line
    return bytes(json_lines.raw({**read, "payload": {**payload, "output": cut.text}}))


def _call(cut: Cut) -> dict[str, object]:
    """The call as the model made it, as far as it is known."""
    given = json_lines.record(bytes(cut.input)) or {}
    name = cut.name
    if name == SHELL:
        name, given = "exec_command", {"cmd": json_lines.text(given, "command")}
    return {
        "type": "function_call",
        "name": name,
        "arguments": bytes(json_lines.raw(given)).decode(),
        "call_id": cut.id,
    }


def _next(lines: Sequence[bytes], payload: dict[str, object]) -> bytes:
    """A line that follows the last one, which has its time and is counted like it."""
    last = json_lines.record(lines[-1]) or {}
    line: dict[str, object] = {"timestamp": json_lines.text(last, "timestamp")}
    if isinstance(last.get("ordinal"), int):
        line["ordinal"] = json_lines.number(last, "ordinal") + 1
    return bytes(json_lines.raw({**line, "type": "response_item", "payload": payload}))
