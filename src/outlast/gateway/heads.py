"""Heads of HTTP/1.1 messages: read strictly, rewritten as little as possible. No bodies, no sockets.
The gateway and the page share this parser; docs/design/dependencies.md says why it is written by hand.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

HEAD_BYTES_MAX = 128 * 1024
LINES_MAX = 256
EMPTY_LINES_MAX = 8  # before a request: RFC 9112 (2.2) asks to skip at least one
LENGTH_DIGITS_MAX = 15
END = b"\r\n\r\n"

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")  # no control characters but the tab
_BARE_LF = re.compile(rb"(?<!\r)\n")
_REQUEST = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
# What belongs to one connection and not to the message; `transfer-encoding` stays, for the framing is passed on.
_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade")
)


class BadHead(Exception):
    """It cannot be read, or could be read in two ways. The message never quotes it: keys are in there.

    `status` is what a server answers it with.
    """

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a head is read. A longer one is refused before it is whole."""

    line_bytes: int = HEAD_BYTES_MAX
    head_bytes: int = HEAD_BYTES_MAX
    lines: int = LINES_MAX


USUAL = Limits()


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
        words = (word.strip(b" \t") for value in self.all(name) for word in value.split(b","))
        return [word.lower() for word in words if word]

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


def skip_empty_lines(held: bytes | bytearray) -> int:
    """Where a request begins after the empty lines that some clients send behind a body. Raises BadHead for many."""
    at = 0
    while held.startswith(b"\r\n", at):
        at += 2
    if at > 2 * EMPTY_LINES_MAX:
        raise BadHead("too many empty lines before a request")
    return at


def end_of_request_head(held: bytes | bytearray, limits: Limits = USUAL, scanned: int = 0) -> int:
    """Where the empty line after a request's head begins; -1 while it has not come. `scanned` bytes were seen before.

    Raises BadHead as early as the bytes allow: for what cannot become a request, and for one beyond the limits.
    """
    if held and _NAME.match(held) is None:
        raise BadHead("no request line")
    stop = held.find(END, max(0, scanned - len(END)))
    bare = _BARE_LF.search(held, max(0, scanned - 1), stop if stop >= 0 else len(held))
    if bare is not None:
        raise BadHead("a line ends with CR LF")
    line = held.find(b"\r\n", 0, limits.line_bytes)
    if line < 0 and len(held) >= limits.line_bytes:
        raise BadHead(f"the address is longer than {limits.line_bytes:,} bytes", 414)
    if max(stop, len(held) if stop < 0 else 0) > limits.head_bytes:
        raise BadHead(f"the headers are longer than {limits.head_bytes:,} bytes", 431)
    return stop


def request_head(block: bytes, limits: Limits = USUAL) -> RequestHead:
    """The head of a request, without the empty line at its end. Raises BadHead."""
    first, fields = _split(block, limits)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadHead("the first line is not METHOD /path HTTP/1.1")
    if found[3] != b"1" or found[4] not in (b"0", b"1"):
        raise BadHead("this speaks HTTP/1.1", 505)
    head = RequestHead(found[1], found[2], int(found[4]), fields)
    hosts = len(fields.all(b"host"))
    if hosts > 1 or (hosts == 0 and head.minor == 1):
        raise BadHead("Host is there twice" if hosts else "say Host")
    return head


def response_head(block: bytes) -> ResponseHead:
    """The head of an answer. Raises BadHead."""
    first, fields = _split(block, USUAL)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadHead("no status line")
    return ResponseHead(int(found[2]), int(found[1]), first, fields)


def _split(block: bytes, limits: Limits) -> tuple[bytes, Fields]:
    first, *rest = block.split(b"\r\n")
    if len(rest) > limits.lines:
        raise BadHead(f"there are more than {limits.lines} headers", 431)
    return first, Fields(tuple(header(raw) for raw in rest))


def header(raw: bytes) -> Line:
    """One line of a head, or of the trailers after the last chunk. Raises BadHead."""
    name, colon, value = raw.partition(b":")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise BadHead("a header is not `Name: value` on one line")
    return Line(name.lower(), value.strip(b" \t"), raw)


def length_of(fields: Fields) -> int | None:
    """The value of `content-length`; None without one. Raises BadHead if it occurs twice, or is no number."""
    values = set(fields.all(b"content-length"))
    if not values:
        return None
    only = values.pop()
    if values or not only.isdigit() or len(only) > LENGTH_DIGITS_MAX:
        raise BadHead("an unclear content-length")
    return int(only)


def chunked(fields: Fields) -> bool:
    """Whether the body comes in chunks. Raises BadHead for any other coding, and beside a length."""
    codings = fields.all(b"transfer-encoding")
    if not codings:
        return False
    if len(codings) > 1 or codings[0].lower() != b"chunked" or fields.all(b"content-length"):
        raise BadHead("an unclear transfer-encoding")
    return True


def write(first: bytes, lines: Iterable[bytes]) -> bytes:
    """A head as it goes out."""
    return b"\r\n".join([first, *lines, b"", b""])
