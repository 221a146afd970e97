"""One request and its answer: following the answer's bytes, reading their cost, and settling it once. No sockets."""

import time
from collections.abc import Callable
from datetime import datetime

from outlast.core.values import Usage, Window
from outlast.gateway import framing, heads, walls
from outlast.gateway.answers import Reading, fault_in
from outlast.gateway.streams import Copy
from outlast.gateway.values import Call, CallUsage, Ended


class Broken(Exception):
    """The answer cannot be followed any further."""


class Answer:
    """Follows one answer: which bytes to pass on, and their content."""

    def __init__(self, method: bytes, *, closes: bool) -> None:
        self._method = method
        self._closes = closes  # the client asked for the connection's end
        self._partial = b""
        self._framing: framing.Framing | None = None
        self.head: heads.ResponseHead | None = None
        self.done = False
        self.until_closed = False
        self.surplus = False  # whether more came than the answer has

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """The bytes to pass on now, and their content. Raises Broken."""
        if self._framing is not None:
            return self._body(data, 0)
        self._partial += data
        passed = b""
        while self.head is None:
            stop = self._partial.find(heads.END)
            if stop < 0:
                if len(self._partial) > heads.HEAD_BYTES_MAX:
                    raise Broken("a head without end")
                return passed, []
            block, self._partial = self._partial[:stop], self._partial[stop + len(heads.END) :]
            passed += self._head(block)
        rest, self._partial = self._partial, b""
        if self.done:
            self.surplus = bool(rest)
            return passed, []
        body, content = self._body(rest, 0)
        return passed + body, content

    def _head(self, block: bytes) -> bytes:
        try:
            head = heads.response_head(block)
            if head.status < 200:
                return self._interim(head, block)
            self._framing = self._frame(head)
        except heads.BadHead as error:
            raise Broken(str(error)) from error
        self.head = head
        self.done = self._framing.done
        lines = head.fields.passed_on()
        if self.until_closed or self._closes:
            lines.append(b"Connection: close")
        return heads.write(b"HTTP/1.1" + head.start[8:], lines)

    def _interim(self, head: heads.ResponseHead, block: bytes) -> bytes:
        if head.status == 101:
            raise Broken("a change of protocol that was not asked for")
        return b"" if head.status == 100 else block + heads.END

    def _frame(self, head: heads.ResponseHead) -> framing.Framing:
        length = heads.length_of(head.fields)
        chunks = heads.chunked(head.fields)
        if self._method == b"HEAD" or head.status in (204, 304):
            return framing.LengthBody(0)
        if chunks:
            return framing.ChunkedBody()
        if length is not None:
            return framing.LengthBody(length)
        self.until_closed = True
        return framing.UntilClosed()

    def _body(self, data: bytes, at: int) -> tuple[bytes, list[bytes]]:
        assert self._framing is not None, "a body has a head before it"
        try:
            end, content = self._framing.feed(data, at)
        except framing.BadFraming as error:
            raise Broken(str(error)) from error
        self.done = self._framing.done
        self.surplus = end < len(data)
        return (data if end == len(data) else data[:end]), content


class Meterage:
    """Reads what one call costs as its answer passes, and hands it to the meter exactly once."""

    def __init__(self, call: Call, message: str, take: Callable[[CallUsage], None]) -> None:
        self.call = call
        self.message = message
        self._take = take
        self._reading = Reading(call.kind)
        self._copy: Copy | None = None
        self._head: heads.ResponseHead | None = None
        self._since_s = time.monotonic()
        self.sent = False  # whether anything of it can have reached the model
        self.settled = False

    def begin(self, head: heads.ResponseHead) -> None:
        """The answer's head is there."""
        self._head = head
        fields = head.fields
        take = self._reading.event if head.status < 400 else self._failed
        self._copy = Copy(fields.first(b"content-type"), fields.first(b"content-encoding"), take)

    def feed(self, content: list[bytes]) -> None:
        """Content that was passed on."""
        if self._copy is not None:
            for piece in content:
                self._copy.feed(piece)

    def _failed(self, data: bytes) -> None:
        self._reading.fault = fault_in(data) or self._reading.fault

    def settle(self, ended: Ended, now: datetime) -> bool:
        """End the call; the meter learns of it once. Returns whether the model got its message."""
        if self.settled:
            return False
        self.settled = True
        if self._copy is not None:
            self._copy.end()
        head, reading = self._head, self._reading
        status = head.status if head is not None else 0
        limit, windows = None, tuple[Window, ...]()
        if head is not None:
            limit = walls.wall(status, head.fields, reading.fault, now)
            windows = walls.windows(head.fields, now)
        delivered = 200 <= status < 300
        key, model = reading.key or self.call.id, reading.model or self.call.model
        message = self.message if delivered else ""
        usage = self._usage(ended, status)
        self._take(CallUsage(self.call, key, model, usage, status, ended, limit, windows, message))
        return delivered

    def _usage(self, ended: Ended, status: int) -> Usage:
        if not self.sent or status >= 300:  # nobody is paid for an error
            return Usage()
        reading, copy, limit = self._reading, self._copy, self.call.output_max
        complete = ended == "complete" and copy is not None and not copy.lost
        if copy is not None and copy.opaque:
            # Squeezed text has more bytes than tokens.
            reading.seen_bytes = 2 * copy.content_bytes
        waited_s = time.monotonic() - self._since_s
        return reading.usage(
            request_bytes=self.call.request_bytes, output_max=limit, complete=complete, waited_s=waited_s
        )
