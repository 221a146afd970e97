"""Gemini's chat file: one JSON line per message, written again when it changes; and the file mended.

A resume reads a result from the call's own message and once more from the message that carried it to the model. It
drops a call that had no result. Both are mended by one line more, which sets all messages anew, as Gemini itself does.
"""

from collections.abc import Sequence

import msgspec

from outlast.agents import Cut, mending, reading
from outlast.core import values

MESSAGES_MAX = 100_000


class Tokens(msgspec.Struct, frozen=True):
    """What a response cost. `input` holds what was read from the cache as well, `output` not what was thought."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0


class Call(msgspec.Struct, frozen=True):
    """A call that has ended, with its result."""

    id: str = ""
    name: str = ""
    args: msgspec.Raw = values.NULL
    status: str = ""
    result: msgspec.Raw = values.NULL


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """A message."""

    id: str = ""
    type: str = ""
    content: msgspec.Raw = values.NULL
    tokens: Tokens | None = None
    model: str = ""
    tool_calls: tuple[Call, ...] | None = None


_line: "msgspec.json.Decoder[Line]" = msgspec.json.Decoder(Line)
_any: "msgspec.json.Decoder[object]" = msgspec.json.Decoder()


def read(line: bytes) -> Line | None:
    """A message's line; None for all others."""
    return reading.decode(line, _line) if b'"type"' in line and b'"id"' in line else None


def spoken(content: msgspec.Raw) -> str:
    """The words in a content, which is a text, a part or a list of parts."""
    value = _value(content)
    if isinstance(value, str):
        return reading.text({"text": value}, "text")
    parts = value if isinstance(value, list) else [value]
    return "".join(reading.text(part, "text") for part in parts if not reading.flag(part, "thought"))


def answered(result: msgspec.Raw) -> str:
    """What a call's result says to the model."""
    value = _value(result)
    if isinstance(value, str):
        return reading.text({"text": value}, "text")
    said = []
    for part in value if isinstance(value, list) else [value]:
        response = reading.inner(part, "functionResponse", "response")
        said.append(reading.text(response, "output") or reading.text(response, "error"))
    return "\n".join(words for words in said if words)


def spent(tokens: Tokens) -> values.Usage:
    counts = [min(max(each, 0), reading.NUMBER_MAX) for each in (tokens.input, tokens.cached, tokens.output)]
    thought = min(max(tokens.thoughts, 0), reading.NUMBER_MAX)
    asked = max(counts[0] - counts[1], 0) + min(max(tokens.tool, 0), reading.NUMBER_MAX)
    return values.Usage(input=asked, output=counts[2] + thought, cache_read=counts[1])


def is_empty(transcript: bytes) -> bool:
    """Whether nothing was said in it."""
    return not any(line.id for line in map(read, reading.lines(transcript)) if line is not None)


def _value(raw: msgspec.Raw) -> object:
    try:
        return _any.decode(raw) if raw else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return ""


# --- mending ---------------------------------------------------------------------------------------------------


def mended(transcript: bytes, cuts: Sequence[Cut]) -> bytes:
    """The file with a result for each cut call, and no result twice. One that needs neither is left as it is."""
    messages = list(_messages(transcript).values())
    answered = _answered(messages)
    single = [message for message in messages if not _is_echo(message, answered)]
    if not cuts and len(single) == len(messages):
        return transcript
    return mending.added(transcript, [{"$set": {"messages": _with_results(single, cuts)}}])


def _messages(transcript: bytes) -> dict[str, dict[str, object]]:
    """The messages as a resume would read them, by their ids."""
    found: dict[str, dict[str, object]] = {}
    for line in reading.lines(transcript):
        record = reading.record(line)
        if record is None:
            continue
        if "$rewindTo" in record:
            _rewind(found, reading.text(record, "$rewindTo"))
        elif reading.text(record, "id"):
            found[reading.text(record, "id")] = record
        elif "messages" in reading.inner(record, "$set"):
            found = {}
            for message in reading.items(record, "$set", "messages")[:MESSAGES_MAX]:
                if isinstance(message, dict) and reading.text(message, "id"):
                    found[reading.text(message, "id")] = message
    return found


def _rewind(found: dict[str, dict[str, object]], to: str) -> None:
    names = list(found)
    for name in names[names.index(to) if to in found else 0 :]:
        del found[name]


def _is_echo(message: dict[str, object], answered: set[str]) -> bool:
    """Whether a message holds nothing but results that their calls hold as well."""
    parts = reading.items(message, "content")
    if reading.text(message, "type") != "user" or not parts:
        return False
    answers = [reading.text(part, "functionResponse", "id") for part in parts]
    return all(answers) and set(answers) <= answered


def _answered(messages: Sequence[dict[str, object]]) -> set[str]:
    return {
        reading.text(call, "id")
        for message in messages
        for call in reading.items(message, "toolCalls")
        if reading.at(call, "result")
    }


def _with_results(messages: list[dict[str, object]], cuts: Sequence[Cut]) -> list[dict[str, object]]:
    """The cut calls belong to the last response, which was written down without them."""
    lost = [cut for cut in cuts if not cut.lane]
    if not lost:
        return messages
    last = messages[-1] if messages else {}
    # Ids of ours are made of the call, which may have been made before; those in a conversation differ.
    calls = [_call(cut, f"{cut.id}_{len(messages)}") for cut in lost]
    if reading.text(last, "type") == "gemini":
        kept = [call for call in reading.items(last, "toolCalls") if reading.at(call, "result")]
        return [*messages[:-1], {**last, "toolCalls": [*kept, *calls]}]
    said = {"id": mending.stable("response", *(cut.id for cut in lost)), "type": "gemini", "content": ""}
    return [
        *messages,
        {**said, "timestamp": reading.text(last, "timestamp"), "thoughts": [], "toolCalls": calls},
    ]


def _call(cut: Cut, known: str) -> dict[str, object]:
    response = {"id": known, "name": cut.name, "response": {"output": cut.text}}
    return {
        "id": known,
        "name": cut.name,
        "args": mending.plain(cut.input),
        "status": "success",  # an error would say that it failed, which nobody knows
        "result": [{"functionResponse": response}],
        "resultDisplay": cut.text,
    }
