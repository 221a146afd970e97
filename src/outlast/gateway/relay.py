"""Two connections side by side: the agent's, and ours to its model. Bytes are passed on as they come, both ways.
Each agent connection has at most one of ours behind it: agents cannot mix, and a cut on one side is a cut on the other.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Protocol

from outlast.gateway import framing, heads, peers, requests
from outlast.gateway.exchange import Answer, Broken, Meterage
from outlast.gateway.timing import Timing
from outlast.gateway.upstream import Unreachable, Upstream, connect
from outlast.gateway.values import Call, CallUsage, Ended, Kind, Refusal

BODY_HELD_MAX = (
    16 * 1024 * 1024
)  # a larger request is passed on as it comes: without our message, its model guessed
CONNECTIONS_MAX = 1024
STRANGERS_MAX = 64  # connections that have not shown the secret yet; every user of this machine can open some
INBOX_MAX = 64 * 1024  # of what an agent may send before its last answer is over
DRAINED_MAX = 64 * 1024 * 1024  # of a request that was refused, so that its sender reads why
# Of those that can compress an answer, what we can read.
_READABLE = (b"gzip", b"x-gzip", b"deflate", b"identity")
_SIGNED = (b"content-digest", b"digest", b"content-md5", b"x-amz-content-sha256", b"content-encoding")
_REASONS = {400: "Bad Request", 404: "Not Found", 414: "URI Too Long", 426: "Upgrade Required", 431: "Request Header Fields Too Large",
            502: "Bad Gateway", 505: "HTTP Version Not Supported"}  # fmt: skip


class Hub(Protocol):
    """The methods of the gateway that its connections call."""

    fronts: "set[Front]"
    held_bytes: int
    held_bytes_max: int

    def lead(self, target: bytes) -> tuple[Upstream, bytes] | None: ...
    def refusal(self) -> Refusal | None: ...
    def admit(
        self, kind: Kind, where: Upstream, summary: requests.RequestSummary, size: int
    ) -> Call | Refusal: ...
    def words_for(self, call: Call) -> str: ...
    def untold(self, words: str) -> None: ...
    def count(self, spent: CallUsage) -> None: ...
    def send_foreign_away(self) -> None: ...


class State(Enum):
    HEAD = auto()  # a request's head is awaited, or coming
    BODY = auto()
    ANSWER = auto()  # it is asked; whatever else the agent sends waits
    DRAIN = auto()  # answered by us; the rest of the request is thrown away
    OVER = auto()


class Asking:
    """The request that is under way."""

    def __init__(self, head: heads.RequestHead, where: Upstream, target: bytes, kind: Kind | None) -> None:
        self.head, self.where, self.target, self.kind = head, where, target, kind
        length = heads.length_of(head.fields)
        self.chunks = heads.chunked(head.fields)
        self.framing: framing.Framing = (
            framing.ChunkedBody() if self.chunks else framing.LengthBody(length or 0)
        )
        self.body = bytearray()  # as it came, held or waiting for the connection
        self.begun = False  # its head is on its way: what comes now is passed on at once
        self.size = length or 0
        self.meterage: Meterage | None = None
        self.answer = Answer(head.method, closes=head.closes)

    def head_bytes(self, body_bytes: int | None = None) -> bytes:
        """The head as it goes out; with another length if words were added."""
        without = [b"host", b"expect"]
        lines = [b"Host: " + self.where.authority, *self.where.lines]
        if body_bytes is not None:
            without += [b"content-length", b"transfer-encoding"]
            lines.append(b"Content-Length: %d" % body_bytes)
        if self.kind is not None and (narrowed := _readable(self.head.fields)) is not None:
            without.append(b"accept-encoding")
            lines.append(b"Accept-Encoding: " + narrowed)
        target = self.where.before_target + self.target
        first = b"%s %s HTTP/1.1" % (self.head.method, target)
        return heads.write(first, [*lines, *self.head.fields.passed_on(without)])

    @property
    def takes_message(self) -> bool:
        return not any(self.head.fields.first(name) for name in _SIGNED)


def _readable(fields: heads.Fields) -> bytes | None:
    """The compressions to ask for, without those whose answers we could not read; None: as the agent asked."""
    accepted = fields.words(b"accept-encoding")
    readable = [word for word in accepted if word.partition(b";")[0].strip() in _READABLE]
    return None if readable == accepted else b", ".join(readable) or b"identity"


class Front(asyncio.Protocol):
    """The agent's side."""

    def __init__(self, hub: Hub, timing: Timing | None = None) -> None:
        self._hub, self._timing = hub, timing or Timing.current()
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray()
        self._state = State.HEAD
        self._asking: Asking | None = None
        self._back: Back | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._scanned = 0  # of the inbox, for the end of a head
        self._drained = 0
        self._choked = False  # the agent does not read as fast as its model speaks
        self.since = self.made = self._loop.time()
        self.known = False  # it has shown the secret

    # -- asyncio's side ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP connection"
        self._transport = transport
        if self._has_room():
            self._hub.fronts.add(self)
        else:
            self._over(abort=True)

    def _has_room(self) -> bool:
        """Whether there is room for this connection, perhaps after closing the one that has been idle for longest.

        A crowd of strangers cannot keep the agent out: their connections are closed first, and other users' at once.
        """
        fronts = self._hub.fronts
        strangers = [each for each in fronts if not each.known]
        if len(strangers) >= STRANGERS_MAX:
            min(strangers, key=lambda each: each.made).leave()
            self._hub.send_foreign_away()
        if len(fronts) < CONNECTIONS_MAX:
            return True
        resting = [each for each in fronts if each.rests]
        if not resting:
            return False
        min(resting, key=lambda each: each.since).leave()
        return True

    @property
    def ends(self) -> tuple[peers.End, peers.End] | None:
        """The two ends of the connection, the other side's first."""
        peer, own = self._transport.get_extra_info("peername"), self._transport.get_extra_info("sockname")
        return None if peer is None or own is None else (peer, own)

    @property
    def rests(self) -> bool:
        """Whether nothing is asked on it just now."""
        return self._state is State.HEAD and not self._inbox

    def leave(self) -> None:
        """Make room for another connection."""
        self._hub.fronts.discard(self)
        self.cut("client", abort=True)

    def connection_lost(self, error: Exception | None) -> None:
        self.cut("client")
        self._hub.fronts.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._state is State.DRAIN:
            self._drained += len(data)
            if self._drained > DRAINED_MAX:
                self._transport.abort()
        elif self._state is not State.OVER:
            if self._state is State.HEAD and not self._inbox:
                self.since = self._loop.time()
            self._inbox += data
            self._advance()

    def eof_received(self) -> None:
        """Treat a closed client as dead, so that its model call stops."""

    def pause_writing(self) -> None:
        self._choked = True
        if self._back is not None:
            self._back.pause()

    def resume_writing(self) -> None:
        self._choked = False
        if self._back is not None:
            self._back.resume()

    # -- the request -------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            while self._inbox and self._state in (State.HEAD, State.BODY):
                if self._state is State.BODY:
                    self._read_body()
                elif not self._read_head():
                    return
        except heads.BadHead as error:
            self._refuse(error.status, f"the request cannot be read: {error}")
        except framing.BadFraming as error:
            self._refuse(400, f"the request cannot be read: {error}")
        if self._state is State.ANSWER and len(self._inbox) > INBOX_MAX:
            self._transport.pause_reading()

    def _read_head(self) -> bool:
        """Whether the head was there."""
        del self._inbox[: heads.skip_empty_lines(self._inbox)]
        if self._inbox == b"\r":
            return False  # the half of one more
        stop = heads.end_of_request_head(self._inbox, scanned=self._scanned)
        self._scanned = len(self._inbox) if stop < 0 else 0
        if stop < 0:
            return False
        head = heads.request_head(bytes(self._inbox[:stop]))
        del self._inbox[: stop + len(heads.END)]
        self._begin(head)
        return True

    def _begin(self, head: heads.RequestHead) -> None:
        led = self._hub.lead(head.target)
        if led is None:
            self._refuse(404, "there is nothing here")
            return
        self.known = True
        where, target = led
        kind = requests.kind_of(head.method, target)
        if head.minor == 0:
            self._refuse(505, "the gateway speaks HTTP/1.1", kind)
        elif head.wants_other_protocol:
            self._refuse(
                426, "outlast gateway: no WebSocket here, its calls could not be counted; use HTTP", kind
            )
        elif requests.crooked(target):
            self._refuse(400, "outlast gateway: a path with dots is not passed on", kind)
        elif kind is None and head.method == b"POST" and (spent := self._hub.refusal()) is not None:
            self._refuse(requests.REFUSED, spent.words, kind)
        else:
            self._asking = Asking(head, where, target, kind)
            self._state = State.BODY
            self.since = self._loop.time()
            if b"100-continue" in head.fields.words(b"expect"):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._asking.framing.done:
                self._end_request(self._asking)
            elif kind is None:
                self._send(self._asking, None)

    def _read_body(self) -> None:
        asking = self._asking
        assert asking is not None, "a body belongs to a request"
        self.since = self._loop.time()
        data = bytes(self._inbox)
        end, _ = asking.framing.feed(data)
        del self._inbox[:end]
        piece = data if end == len(data) else data[:end]
        if asking.begun and self._back is not None and not asking.body:
            self._back.write(piece)
        else:
            asking.body += piece
            self._hub.held_bytes += end
        if asking.framing.done:
            self._end_request(asking)
        elif asking.begun:
            if self._back is None:
                self._transport.pause_reading()  # until we are connected
        elif len(asking.body) > BODY_HELD_MAX or self._hub.held_bytes > self._hub.held_bytes_max:
            self._admit(asking, whole=False)

    def _end_request(self, asking: Asking) -> None:
        self._state = State.ANSWER
        if not asking.begun:
            self._admit(asking, whole=True)
        elif asking.answer.done:  # it was answered before it was asked
            self._finish(asking)

    def _admit(self, asking: Asking, *, whole: bool) -> None:
        """Ask the meter, add the message for the agent, and send the request."""
        if asking.kind is None:
            self._send(asking, None)
            return
        content = framing.content_of(bytes(asking.body), chunks=asking.chunks)
        size = len(content) if whole else max(asking.size, len(content))
        summary = requests.summary(asking.target, content)
        admitted = self._hub.admit(asking.kind, asking.where, summary, size)
        if isinstance(admitted, Refusal):
            self._refuse(requests.REFUSED, admitted.words, asking.kind)
            return
        body, words = None, ""
        if whole and asking.takes_message and (words := self._hub.words_for(admitted)):
            body = requests.with_words(asking.kind, content, words)
            if body is None:
                self._hub.untold(words)
                words = ""
        asking.meterage = Meterage(admitted, words, self._hub.count)
        self._send(asking, body)

    def _send(self, asking: Asking, body: bytes | None) -> None:
        """Put the head before what is held, and let it go; from now on the body follows as it comes."""
        held = len(asking.body)
        asking.begun = True
        head = asking.head_bytes(None if body is None else len(body))
        outgoing = bytearray(head + (bytes(asking.body) if body is None else body))
        self._hub.held_bytes += len(outgoing) - held
        asking.body = outgoing
        if self._back is not None and self._back.where is asking.where and self._back.usable:
            self._flush(asking)
            return
        self._drop_back()
        self._connecting = self._loop.create_task(self._connect(asking))

    async def _connect(self, asking: Asking) -> None:
        try:
            back = await connect(asking.where, lambda: Back(self, asking.where))
        except Unreachable as error:
            self._connecting = None
            if self._asking is not asking:
                return  # its client is gone, and that was settled
            self._settle(asking, "unreached")
            self._refuse(502, f"outlast gateway: {error}", asking.kind)
            return
        self._connecting = None
        if self._asking is not asking or not back.usable:
            back.abort()
            self.cut("upstream")
            return
        self._back = back
        if self._choked:
            back.pause()
        self._flush(asking)
        if self._state is State.BODY:
            self._transport.resume_reading()

    def _flush(self, asking: Asking) -> None:
        assert self._back is not None, "connected"
        if asking.meterage is not None:
            asking.meterage.sent = True
        outgoing, asking.body = asking.body, bytearray()
        self._hub.held_bytes -= len(outgoing)
        self._back.write(bytes(outgoing))

    # -- the answer --------------------------------------------------------------------------------------------

    def answered(self, data: bytes) -> None:
        """Bytes of the answer: first they are passed on, then they are read."""
        asking = self._asking
        if asking is None or asking.answer.done:
            self._drop_back()  # a server that speaks unasked is not spoken to again
            return
        answer, known = asking.answer, asking.answer.head is not None
        try:
            passed, content = answer.feed(data)
        except Broken:
            self.cut("upstream")
            return
        if passed:
            self._transport.write(passed)
        meterage = asking.meterage
        if meterage is not None:
            if not known and answer.head is not None:
                meterage.begin(answer.head)
            if content:
                meterage.feed(content)
        if answer.done:
            self._finish(asking)

    def ended(self, error: Exception | None) -> None:
        """The model's side closed its connection."""
        asking = self._asking
        self._back = None
        if asking is None or self._state not in (State.BODY, State.ANSWER):
            return
        if asking.answer.until_closed and error is None:
            asking.answer.done = True
            self._finish(asking)
        else:
            self.cut("upstream")

    def _finish(self, asking: Asking) -> None:
        """The answer is there to its last byte."""
        self._settle(asking, "complete")
        answer = asking.answer
        closes = answer.until_closed or answer.surplus or (answer.head is not None and answer.head.closes)
        if closes or self._state is State.BODY:
            self._drop_back()
        if self._state is State.BODY:  # answered before all was asked: the rest has nowhere to go
            self._release(asking)
            self._drain()
        elif answer.until_closed or asking.head.closes:
            self._over()
        else:
            self._release(asking)
            self._state = State.HEAD
            self.since = self._loop.time()
            self._transport.resume_reading()
            if self._inbox:
                self._advance()

    # -- endings -----------------------------------------------------------------------------------------------

    def _refuse(self, status: int, words: str, kind: Kind | None = None) -> None:
        """Answer ourselves, in the protocol's own words, and say good-bye."""
        body = requests.error(kind, status, words)
        lines = [b"Content-Type: application/json", b"Content-Length: %d" % len(body), b"Connection: close"]
        if status == 426:
            lines.append(b"Upgrade: HTTP/1.1")
        first = f"HTTP/1.1 {status} {_REASONS[status]}".encode()
        if not self._transport.is_closing():
            self._transport.write(heads.write(first, lines) + body)
        if self._asking is not None:
            self._release(self._asking)
        self._drop_back()
        self._drain()

    def _drain(self) -> None:
        """Read the rest of the request and drop it, so that a reset does not lose our answer."""
        self._state, self.since = State.DRAIN, self._loop.time()
        self._inbox = bytearray()
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._transport.write_eof()

    def cut(self, why: Ended, *, abort: bool = False) -> None:
        """Close the connection on both sides; nothing more will come. `abort`: at once."""
        asking = self._asking
        if asking is not None:
            self._settle(asking, why)
        if abort or self._state is not State.OVER:
            looks_whole = asking is not None and asking.answer.until_closed
            self._over(abort=abort or looks_whole)

    def _over(self, *, abort: bool = False) -> None:
        self._state, self.since = State.OVER, self._loop.time()
        self._inbox = bytearray()
        if self._asking is not None:
            self._release(self._asking)
        self._drop_back()
        if abort:
            self._transport.abort()
        else:
            self._transport.close()

    def _settle(self, asking: Asking, ended: Ended) -> None:
        meterage = asking.meterage
        if meterage is None or meterage.settled:
            return
        if not meterage.settle(ended, datetime.now(UTC)) and meterage.message:
            self._hub.untold(meterage.message)

    def _release(self, asking: Asking) -> None:
        self._hub.held_bytes -= len(asking.body)
        asking.body = bytearray()
        self._asking = None

    def _drop_back(self) -> None:
        if self._connecting is not None:
            task, self._connecting = self._connecting, None
            task.cancel()
        if self._back is not None:
            back, self._back = self._back, None
            back.abort()

    def late(self, now: float) -> bool:
        """Whether this connection has kept us waiting for too long."""
        waited = now - self.since
        if not self.known and self._state is State.HEAD and now - self.made > self._timing.secret_s:
            return True
        match self._state:
            case State.HEAD:
                return waited > (self._timing.head_s if self._inbox else self._timing.idle_s)
            case State.BODY:
                return self._connecting is None and waited > self._timing.body_silent_s
            case State.DRAIN | State.OVER:
                return waited > self._timing.drain_s
            case State.ANSWER:
                return False

    def throttle(self, paused: bool) -> None:
        """The model's side cannot take more of a request, or can again."""
        if self._state is State.BODY:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()


class Back(asyncio.Protocol):
    """The model's side. It belongs to one front, and tells it everything."""

    def __init__(self, front: Front, where: Upstream) -> None:
        self._front: Front | None = front
        self.where = where
        self._transport: asyncio.Transport | None = None

    @property
    def usable(self) -> bool:
        return self._front is not None and self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a TCP connection"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._front is not None:
            self._front.answered(data)

    def connection_lost(self, error: Exception | None) -> None:
        front, self._front = self._front, None
        if front is not None:
            front.ended(error)

    def pause_writing(self) -> None:
        self._tell(lambda front: front.throttle(True))

    def resume_writing(self) -> None:
        self._tell(lambda front: front.throttle(False))

    def _tell(self, what: Callable[[Front], None]) -> None:
        if self._front is not None:
            what(self._front)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Let go of it, without a word to the front."""
        self._front = None
        if self._transport is not None:
            self._transport.abort()
