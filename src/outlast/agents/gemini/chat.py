"""Gemini's chat file: one JSON line per message, written again when it changes; reads and mends it."""

from collections.abc import Sequence

import msgspec

from outlast import decoders
from outlast.agents.common import json_lines, repair
from outlast.agents.values import Cut
from outlast.core import values

MESSAGES_MAX = 100_000


class Tokens(msgspec.Struct, frozen=True):
    """The cost of a response. `input` includes tokens from the cache, `output` excludes thoughts."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0


class ChatCall(msgspec.Struct, frozen=True):
    """A call that has ended, with its result."""

    id: str = ""
    name: str = ""
    args: msgspec.Raw = values.NULL
    status: str = ""
    result: msgspec.Raw = values.NULL


class ChatLine(msgspec.Struct, frozen=True, rename="camel"):
    """A message."""

    id: str = ""
    type: str = ""
    content: msgspec.Raw = values.NULL
    tokens: Tokens | None = None
    model: str = ""
    tool_calls: tuple[ChatCall, ...] | None = None


_line: "msgspec.json.Decoder[ChatLine]" = decoders.of_json(ChatLine)
_any: "msgspec.json.Decoder[object]" = msgspec.json.Decoder()


def read(line: bytes) -> ChatLine | None:
    """A message's line; None for all others."""
    return json_lines.decode(line, _line) if b'"type"' in line and b'"id"' in line else None


def text_of(content: msgspec.Raw) -> str:
    """The words in a content, which is a text, a part or a list of parts."""
    value = _value(content)
    if isinstance(value, str):
        return json_lines.text({"text": value}, "text")
    parts = value if isinstance(value, list) else [value]
    return "".join(json_lines.text(part, "text") for part in parts if not json_lines.flag(part, "thought"))


def result_text(result: msgspec.Raw) -> str:
    """The text of a call's result for the model."""
    value = _value(result)
    if isinstance(value, str):
        return json_lines.text({"text": value}, "text")
    texts = []
    for part in value if isinstance(value, list) else [value]:
        response = json_lines.inner(part, "functionResponse", "response")
        texts.append(json_lines.text(response, "output") or json_lines.text(response, "error"))
    return "\n".join(words for words in texts if words)


def spent(tokens: Tokens) -> values.Usage:
    counts = [
        min(max(each, 0), json_lines.NUMBER_MAX) for each in (tokens.input, tokens.cached, tokens.output)
    ]
    thought = min(max(tokens.thoughts, 0), json_lines.NUMBER_MAX)
    input_tokens = max(counts[0] - counts[1], 0) + min(max(tokens.tool, 0), json_lines.NUMBER_MAX)
    return values.Usage(input=input_tokens, output=counts[2] + thought, cache_read=counts[1])


def is_empty(transcript: bytes) -> bool:
    """Whether the chat has no messages yet."""
    return not any(line.id for line in map(read, json_lines.lines(transcript)) if line is not None)


def _value(raw: msgspec.Raw) -> object:
    try:
        return _any.decode(raw) if raw else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return ""


# --- mending ---------------------------------------------------------------------------------------------------


def mend(transcript: bytes, cuts: Sequence[Cut]) -> bytes:
    """The file with a result for each cut call, and no result twice. One that needs neither is left as it is.

    A resume reads a result from the call's own message and once more from the message that carried it to the model, and
    drops a call that had no result. One more line, which sets all messages again as Gemini itself does, mends both.
    """
    messages = list(_messages(transcript).values())
    answered = _answered(messages)
    single = [message for message in messages if not _is_echo(message, answered)]
    if not cuts and len(single) == len(messages):
        return transcript
    return repair.append(transcript, [{"$set": {"messages": _with_results(single, cuts)}}])


def _messages(transcript: bytes) -> dict[str, dict[str, object]]:
    """The messages as a resume would read them, by their ids."""
    found: dict[str, dict[str, object]] = {}
    for line in json_lines.lines(transcript):
        record = json_lines.record(line)
        if record is None:
            continue
        if "$rewindTo" in record:
            _rewind(found, json_lines.text(record, "$rewindTo"))
        elif json_lines.text(record, "id"):
            found[json_lines.text(record, "id")] = record
        elif "messages" in json_lines.inner(record, "$set"):
            found = {}
            for message in json_lines.items(record, "$set", "messages")[:MESSAGES_MAX]:
                if isinstance(message, dict) and json_lines.text(message, "id"):
                    found[json_lines.text(message, "id")] = message
    return found


def _rewind(found: dict[str, dict[str, object]], to: str) -> None:
    names = list(found)
    for name in names[names.index(to) if to in found else 0 :]:
        del found[name]


def _is_echo(message: dict[str, object], answered: set[str]) -> bool:
    """Whether a message holds nothing but results that their calls hold as well."""
    parts = json_lines.items(message, "content")
    if json_lines.text(message, "type") != "user" or not parts:
        return False
    answers = [json_lines.text(part, "functionResponse", "id") for part in parts]
    return all(answers) and set(answers) <= answered


def _answered(messages: Sequence[dict[str, object]]) -> set[str]:
    return {
        json_lines.text(call, "id")
        for message in messages
        for call in json_lines.items(message, "toolCalls")
        if json_lines.at(call, "result")
    }


def _with_results(messages: list[dict[str, object]], cuts: Sequence[Cut]) -> list[dict[str, object]]:
    """The cut calls belong to the last response, which was written down without them."""
    lost = [cut for cut in cuts if not cut.lane]
    if not lost:
        return messages
    last = messages[-1] if messages else {}
    # Ids of ours are made of the call, which may have been made before; those in a conversation differ.
    calls = [_call(cut, f"{cut.id}_{len(messages)}") for cut in lost]
    if json_lines.text(last, "type") == "gemini":
        answered = [call for call in json_lines.items(last, "toolCalls") if json_lines.at(call, "result")]
        return [*messages[:-1], {**last, "toolCalls": [*answered, *calls]}]
    response = {"id": repair.stable("response", *(cut.id for cut in lost)), "type": "gemini", "content": ""}
    return [
        *messages,
        {**response, "timestamp": json_lines.text(last, "timestamp"), "thoughts": [], "toolCalls": calls},
    ]


def _call(cut: Cut, known: str) -> dict[str, object]:
    response = {"id": known, "name": cut.name, "response": {"output": cut.text}}
    return {
        "id": known,
        "name": cut.name,
        "args": repair.plain(cut.input),
        "status": "success",  # an error would say that it failed, which nobody knows
        "result": [{"functionResponse": response}],
        "resultDisplay": cut.text,
    }
