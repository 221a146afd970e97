"""From the bytes of an answer to the events in it: compression undone, lines joined. Bounded, and never failing.
It works on a copy. If it cannot follow, the copy is `lost`, and the usage is estimated.
"""

import zlib
from collections.abc import Callable

EVENT_BYTES_MAX = 16 * 1024 * 1024
PLAIN_BYTES_MAX = 256 * 1024 * 1024  # more than any answer has: whoever sends it wants our memory or our time
_PIECE = 256 * 1024


class Inflated:
    """Undoes gzip and deflate as the bytes come."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._begun = False
        self._left = PLAIN_BYTES_MAX
        self._inflate = zlib.decompressobj(47)  # gzip or zlib, by its head
        self.lost = False

    def feed(self, data: bytes, take: Callable[[bytes], None]) -> None:
        while data and not self.lost:
            try:
                plain = self._inflate.decompress(data, _PIECE)
            except zlib.error:
                if self._begun or self._coding != b"deflate":
                    self.lost = True
                    return
                self._begun, self._inflate = True, zlib.decompressobj(-15)  # as some servers mean deflate
                continue
            self._begun = True
            self._left -= len(plain)
            self.lost = self._left < 0
            if plain:
                take(plain)
            data = self._inflate.unconsumed_tail
            if self._inflate.eof and self._inflate.unused_data:
                data, self._inflate = self._inflate.unused_data, zlib.decompressobj(47)


class Events:
    """Server-sent events, each given on as the bytes of its data."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []
        self._size = 0
        self.lost = False

    def feed(self, data: bytes) -> None:
        if self.lost:
            return
        buffer = self._buffer
        buffer += data
        start = 0
        while (stop := buffer.find(b"\n", max(start, self._scanned))) >= 0:
            self._line(bytes(buffer[start : stop - 1 if stop > start and buffer[stop - 1] == 13 else stop]))
            start = stop + 1
            self._scanned = start
        del buffer[:start]
        self._scanned = len(buffer)
        if len(buffer) + self._size > EVENT_BYTES_MAX:
            self.lost = True
            self._buffer, self._data = bytearray(), []

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._size += len(line)

    def _dispatch(self) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data, self._size = [], 0
            if data != b"[DONE]":
                self._take(data)

    def end(self) -> None:
        """No more will come: an event without its empty line is one too."""
        if not self.lost:
            self._line(bytes(self._buffer))
            self._dispatch()


class Whole:
    """A body that is one text; given on when it ends."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._buffer = bytearray()
        self.lost = False

    def feed(self, data: bytes) -> None:
        if not self.lost:
            self._buffer += data
            if len(self._buffer) > EVENT_BYTES_MAX:
                self.lost, self._buffer = True, bytearray()

    def end(self) -> None:
        if not self.lost:
            self._take(bytes(self._buffer))


class Copy:
    """Decodes an answer's content step by step, so that it can be read."""

    def __init__(self, content_type: bytes, coding: bytes, take: Callable[[bytes], None]) -> None:
        streamed = content_type.partition(b";")[0].strip().lower() == b"text/event-stream"
        self._sink: Events | Whole = Events(take) if streamed else Whole(take)
        coding = coding.strip().lower()
        self._inflated = Inflated(coding) if coding in (b"gzip", b"x-gzip", b"deflate") else None
        self._opaque = self._inflated is None and coding not in (b"", b"identity")
        self.content_bytes = 0

    @property
    def lost(self) -> bool:
        """Whether something of it could not be read."""
        return self._opaque or self._sink.lost or (self._inflated is not None and self._inflated.lost)

    @property
    def opaque(self) -> bool:
        """Whether none of it can be read: a compression that we do not know."""
        return self._opaque

    def feed(self, data: bytes) -> None:
        self.content_bytes += len(data)
        if self._opaque:
            return
        if self._inflated is not None:
            self._inflated.feed(data, self._sink.feed)
        else:
            self._sink.feed(data)

    def end(self) -> None:
        if not self._opaque:
            self._sink.end()
