"""Where a body ends: by its length, by its chunks, or with the connection. Bytes are looked at, never changed."""

import re
from typing import Protocol

from outlast.gateway import heads

SIZE_DIGITS_MAX = 12
LINE_BYTES_MAX = 4096  # of a chunk's size with its extensions, and of a trailer
TRAILERS_MAX = 64

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,%d})(?:;[\t\x20-\x7e\x80-\xff]*|[ \t]*)" % SIZE_DIGITS_MAX)
# What says where a message ends or whom it is for has no place after its end.
_NOT_IN_TRAILERS = (b"content-length", b"transfer-encoding", b"host")


class BadFraming(Exception):
    """These are no chunks; where the body ends cannot be known."""


class Framing(Protocol):
    """Follows one body."""

    done: bool

    def feed(self, data: bytes, at: int = 0) -> tuple[int, list[bytes]]:
        """Up to where `data` belongs to the body, and what its content is. Raises BadFraming."""


class LengthBody:
    """A body of a known number of bytes."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes, at: int = 0) -> tuple[int, list[bytes]]:
        end = min(len(data), at + self._left)
        self._left -= end - at
        self.done = self._left == 0
        return end, [data[at:end] if (at, end) != (0, len(data)) else data]


class UntilClosed:
    """All that comes; the end of the connection ends it."""

    done = False

    def feed(self, data: bytes, at: int = 0) -> tuple[int, list[bytes]]:
        return len(data), [data[at:] if at else data]


class ChunkedBody:
    """Chunks, and the trailers after the last one."""

    def __init__(self) -> None:
        self.done = False
        self._left = 0  # of the chunk that is under way
        self._line = b""  # of a size or trailer that is not whole yet
        self._ending = False  # the line end after a chunk is awaited
        self._trailers = -1  # not begun

    def feed(self, data: bytes, at: int = 0) -> tuple[int, list[bytes]]:
        content: list[bytes] = []
        while at < len(data) and not self.done:
            if self._left:
                end = min(len(data), at + self._left)
                content.append(data[at:end])
                self._left -= end - at
                self._ending = self._left == 0
                at = end
                continue
            stop = data.find(b"\n", at)
            if stop < 0:
                self._line += data[at:]
                if len(self._line) > LINE_BYTES_MAX:
                    raise BadFraming("a chunk's line without end")
                return len(data), content
            line, self._line, at = self._line + data[at:stop], b"", stop + 1
            if not line.endswith(b"\r") or len(line) > LINE_BYTES_MAX:
                raise BadFraming("a broken line between chunks")
            self._between(line[:-1])
        return at, content

    def _between(self, line: bytes) -> None:
        if self._ending:
            if line:
                raise BadFraming("a chunk longer than it said")
            self._ending = False
        elif self._trailers >= 0:
            self._trailers += 1
            self.done = not line
            if self._trailers > TRAILERS_MAX:
                raise BadFraming("too many trailers")
            if line:
                _check_trailer(line)
        else:
            found = _SIZE.fullmatch(line)
            if found is None:
                raise BadFraming("no chunk size")
            self._left = int(found[1], 16)
            if self._left == 0:
                self._trailers = 0


def _check_trailer(line: bytes) -> None:
    try:
        name = heads.header(line).name
    except heads.BadHead as error:
        raise BadFraming("a broken trailer") from error
    if name in _NOT_IN_TRAILERS:
        raise BadFraming("a trailer that belongs into the head")


def content_of(data: bytes, *, chunks: bool) -> bytes:
    """The content of a whole body."""
    return b"".join(ChunkedBody().feed(data)[1]) if chunks else data
