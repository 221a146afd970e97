"""Reads one line of JSON out of a file that may be garbage, huge, hostile or cut. Nothing here raises.
What the lines mean is each agent's own matter.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from outlast import decoders
from outlast.core.values import scrub

LINE_MAX_BYTES = 16 << 20  # a longer line is no agent's; what is read of a file is cut there
NUMBER_MAX = 1 << 53
TEXT_MAX_CHARS = 1 << 20
LINES_MAX = 10_000_000

_EMPTY = msgspec.Raw(b"null")
_HALF = re.compile("[\ud800-\udfff]")
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, OverflowError, MemoryError)

T = TypeVar("T")
Record = Mapping[str, object]

_any: "msgspec.json.Decoder[dict[str, object]]" = decoders.of_json(dict[str, object])


def record(line: bytes) -> dict[str, object] | None:
    """One line as the JSON object that it holds, or None: not JSON, no object, too long or too deep."""
    return decode(line, _any)


def decode(line: bytes, decoder: "msgspec.json.Decoder[T]") -> T | None:
    """The same, into a struct: it skips unnamed fields unread, which is fast.

    Half characters, such as agents write that cut a text between two surrogates, and bytes that are not UTF-8 are
    replaced; the line counts nevertheless.
    """
    if len(line) > LINE_MAX_BYTES:
        return None
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        return None  # it is JSON, only not of that shape
    except _UNREADABLE:
        repaired = _repaired(line)
    try:
        return decoder.decode(repaired) if repaired else None
    except _UNREADABLE:
        return None


def _repaired(line: bytes) -> bytes:
    if not line.lstrip().startswith(b"{"):
        return b""
    try:
        return msgspec.json.encode(whole_characters(json.loads(line.decode("utf-8", "replace"))))
    except _UNREADABLE:
        return b""


def whole_characters(value: object) -> object:
    """A value as JSON gives it, its half characters replaced."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF.sub("�", value)
    if isinstance(value, list):
        return [whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_HALF.sub("�", str(key)): whole_characters(item) for key, item in value.items()}
    return value


def lines(data: bytes) -> Iterator[bytes]:
    """The lines of a transcript, without their ends; the last may be torn."""
    at = 0
    for _ in range(LINES_MAX):
        if at >= len(data):
            return
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield data[at:end]
        at = end + 1


def backwards(data: bytes, count_max: int) -> Iterator[bytes]:
    """The last lines, newest first."""
    end = len(data.rstrip(b"\n"))
    for _ in range(count_max):
        if end <= 0:
            return
        start = data.rfind(b"\n", 0, end) + 1
        yield data[start:end]
        end = start - 1


def at(value: object, *path: str) -> object:
    """The value at a path of keys, or None."""
    for key in path:
        if type(value) is not dict and not isinstance(value, Mapping):  # the first is a tenth of the second
            return None
        value = value.get(key)
    return value


def text(value: object, *path: str) -> str:
    """The text at a path, or an empty one; at most a mebi of characters of it."""
    found = at(value, *path)
    return scrub(found[:TEXT_MAX_CHARS]) if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """The whole number at a path, or 0; never below it, and never absurd."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return 0
    return int(min(max(found, 0), NUMBER_MAX))


def microusd(dollars: object) -> int:
    """Dollars in micro-dollars; 0 for anything but a number."""
    return number(dollars * 1e6) if isinstance(dollars, int | float) else 0


def moment(text: str) -> datetime | None:
    """The instant that a text names with its time zone; None where it names none."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def flag(value: object, *path: str) -> bool:
    """Whether there is a `true` at a path."""
    return at(value, *path) is True


def inner(value: object, *path: str) -> Record:
    """The object at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else {}


def items(value: object, *path: str) -> list[object]:
    """The list at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def raw(value: object) -> msgspec.Raw:
    """A value as JSON of our own; `null` for what cannot be written."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except UnicodeError:
        return msgspec.Raw(msgspec.json.encode(whole_characters(value)))
    except (TypeError, RecursionError, ValueError, OverflowError):
        return _EMPTY


def raw_from_text(source: str) -> msgspec.Raw:
    """JSON inside a text, as some agents write a call's input; else the text itself."""
    found = decode(source.encode("utf-8", "replace"), _any) if len(source) <= LINE_MAX_BYTES else None
    return raw(found if found is not None else source)
