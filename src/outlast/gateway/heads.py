"""Heads of HTTP/1.1 messages: read strictly, rewritten as little as possible. No bodies, no sockets.

Written by hand, not with a library: what is passed on must be the bytes that came, and a proxy that only has to find
where a head ends needs less than one that models the protocol. Whatever two readers could understand differently
(folded lines, bare line feeds, two lengths) is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

HEAD_BYTES_MAX = 128 * 1024
LINES_MAX = 256
LENGTH_DIGITS_MAX = 15
END = b"\r\n\r\n"

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BROKEN = re.compile(rb"[\x00\r\n]")
_REQUEST = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([\x21-\xff]+) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\x00]*)?")
# What belongs to one connection and not to the message; `transfer-encoding` stays, for the framing is passed on.
_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade")
)


class BadHead(Exception):
    """It cannot be read, or could be read in two ways. The message never quotes it: keys are in there."""


@dataclass(frozen=True, slots=True)
class Line:
    """One header: its name in small letters, its value, and the line as it came."""

    name: bytes
    value: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class Fields:
    """The headers of a message, in order."""

    lines: tuple[Line, ...]

    def all(self, name: bytes) -> list[bytes]:
        return [line.value for line in self.lines if line.name == name]

    def first(self, name: bytes) -> bytes:
        return next((line.value for line in self.lines if line.name == name), b"")

    def words(self, name: bytes) -> list[bytes]:
        """A list header, in small letters."""
        return [
            word.strip().lower() for value in self.all(name) for word in value.split(b",") if word.strip()
        ]

    def passed_on(self, without: Iterable[bytes] = ()) -> list[bytes]:
        """The lines that go to the other side as they came."""
        named = {*_HOP, *without, *self.words(b"connection")} - {
            b"transfer-encoding",
            b"content-length",
            b"host",
        }
        named.update(without)
        return [line.raw for line in self.lines if line.name not in named]


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    target: bytes
    minor: int
    fields: Fields

    @property
    def closes(self) -> bool:
        return self.minor == 0 or b"close" in self.fields.words(b"connection")

    @property
    def wants_other_protocol(self) -> bool:
        """An upgrade that cannot just be ignored: HTTP/2 in plain text can."""
        wanted = self.fields.words(b"upgrade")
        return b"upgrade" in self.fields.words(b"connection") and bool(wanted) and wanted != [b"h2c"]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    minor: int
    start: bytes
    fields: Fields

    @property
    def closes(self) -> bool:
        words = self.fields.words(b"connection")
        return b"close" in words or (self.minor == 0 and b"keep-alive" not in words)


def request_head(block: bytes) -> RequestHead:
    """The head of a request, without the empty line at its end. Raises BadHead."""
    first, fields = _split(block)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadHead("no request line")
    return RequestHead(found[1], found[2], int(found[3]), fields)


def response_head(block: bytes) -> ResponseHead:
    """The head of an answer. Raises BadHead."""
    first, fields = _split(block)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadHead("no status line")
    return ResponseHead(int(found[2]), int(found[1]), first, fields)


def _split(block: bytes) -> tuple[bytes, Fields]:
    first, *rest = block.split(b"\r\n")
    if len(rest) > LINES_MAX:
        raise BadHead("too many headers")
    if _BROKEN.search(first):
        raise BadHead("a broken first line")
    return first, Fields(tuple(_line(raw) for raw in rest))


def _line(raw: bytes) -> Line:
    name, colon, value = raw.partition(b":")
    if not colon or not _NAME.fullmatch(name) or _BROKEN.search(value):
        raise BadHead("a broken header")
    return Line(name.lower(), value.strip(b" \t"), raw)


def length_of(fields: Fields) -> int | None:
    """What `content-length` says; None without one. Raises BadHead where it is said twice, or is no number."""
    told = set(fields.all(b"content-length"))
    if not told:
        return None
    only = told.pop()
    if told or not only.isdigit() or len(only) > LENGTH_DIGITS_MAX:
        raise BadHead("an unclear content-length")
    return int(only)


def chunked(fields: Fields) -> bool:
    """Whether the body comes in chunks. Raises BadHead for any other coding, and beside a length."""
    codings = fields.words(b"transfer-encoding")
    if not codings:
        return False
    if codings != [b"chunked"] or fields.all(b"content-length"):
        raise BadHead("an unclear transfer-encoding")
    return True


def write(first: bytes, lines: Iterable[bytes]) -> bytes:
    """A head as it goes out."""
    return b"\r\n".join([first, *lines, b"", b""])
