"""Both ends of a gateway, with real sockets: a model's server that says what a test tells it, and a raw client."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outlast.gateway import Call, CallUsage, Gateway, Meter, Refusal
from tests.support.processes import wait_for

LIMIT_S = 60.0
KEY = "sk-ant-api03-never-to-be-seen"


@dataclass
class Ledger:
    """A meter that writes down what it is told, and says what it was told to say."""

    refusal: Refusal | None = None
    shut: Refusal | None = None  # also for what is no call
    pending: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    spent: list[CallUsage] = field(default_factory=list)

    def before(self, call: Call) -> Refusal | None:
        if self.refusal is None:
            self.calls.append(call)
        return self.refusal

    def closed(self) -> Refusal | None:
        return self.shut

    def after(self, spent: CallUsage) -> None:
        self.spent.append(spent)

    def words(self) -> str:
        return self.pending.pop(0) if self.pending else ""

    def one(self) -> CallUsage:
        """The only call, once it is settled."""
        found = wait_for(lambda: self.spent, LIMIT_S, "a settled call")
        assert len(found) == 1, found
        return found[0]

    def settled(self) -> list[CallUsage]:
        """All of them, once each call that was let pass is settled; never one twice."""
        wait_for(lambda: len(self.spent) >= len(self.calls), LIMIT_S, "every call settled")
        assert sorted(spent.call.id for spent in self.spent) == sorted(call.id for call in self.calls)
        return self.spent


@dataclass(frozen=True)
class ReceivedRequest:
    head: bytes
    body: bytes

    def header(self, name: str) -> list[str]:
        lines = [line.partition(":") for line in self.head.decode("latin-1").split("\r\n")[1:]]
        return [value.strip() for key, _, value in lines if key.lower() == name]


class Connection:
    """A connection, read message by message."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(LIMIT_S)
        self.rest = b""

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.sock.sendall(piece)

    def more(self) -> bool:
        data = self.sock.recv(65536)
        self.rest += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        while mark not in self.rest:
            if not self.more():
                raise EOFError(f"closed after {self.rest!r}")
        taken, _, self.rest = self.rest.partition(mark)
        return taken

    def exactly(self, count: int) -> bytes:
        while len(self.rest) < count:
            if not self.more():
                raise EOFError(f"closed after {self.rest!r}")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def to_the_end(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        taken, self.rest = self.rest, b""
        return taken

    def message(self) -> ReceivedRequest:
        """A head with its body, chunks left as they came."""
        head = self.until(b"\r\n\r\n")
        made = ReceivedRequest(head, b"")
        if made.header("transfer-encoding"):
            body = b""
            while True:
                line = self.until(b"\r\n")
                size = int(line, 16)
                body += line + b"\r\n" + self.exactly(size + 2)
                if size == 0:
                    return ReceivedRequest(head, body)
        length = made.header("content-length")
        return ReceivedRequest(head, self.exactly(int(length[0])) if length else b"")

    def close(self) -> None:
        self.sock.close()


Serve = Callable[[Connection], None]


class Upstream:
    """A server: each connection is given to the test's function, in a thread of its own."""

    def __init__(self, serve: Serve, tls: ssl.SSLContext | None = None) -> None:
        self._serve, self._tls = serve, tls
        self.requests: list[ReceivedRequest] = []
        self.errors: list[BaseException] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._answer, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _answer(self, sock: socket.socket) -> None:
        try:
            secured = self._tls.wrap_socket(sock, server_side=True) if self._tls else sock
            with secured:
                self._serve(Connection(secured))
        except (OSError, EOFError, ValueError):
            pass  # the other end is gone, or not what was expected
        except BaseException as error:
            self.errors.append(error)

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._open):
            sock.close()


def answering(*answers: bytes) -> tuple[Serve, list[ReceivedRequest]]:
    """Serves these answers one after the other, and keeps the requests. One that says close is the connection's last."""
    left, seen = list(answers), list[ReceivedRequest]()

    def serve(connection: Connection) -> None:
        while left:
            seen.append(connection.message())
            connection.send(said := left.pop(0))
            if b"Connection: close" in said:
                return

    return serve, seen


@contextlib.contextmanager
def between(
    serve: Serve,
    ledger: Meter,
    *,
    tls: ssl.SSLContext | None = None,
    environment: dict[str, str] | None = None,
    faults: bool = False,
) -> Iterator[tuple[Gateway, Upstream]]:
    """A gateway before a server. Nothing inside it goes wrong, unless that is what is tested."""
    upstream = Upstream(serve, tls)
    gateway = Gateway(ledger, environment)
    gateway.start()
    try:
        yield gateway, upstream
    finally:
        gateway.close()
        upstream.close()
    assert faults or gateway.faults == ()
    assert upstream.errors == []


def dial(gateway: Gateway, upstream: str) -> tuple[Connection, str]:
    """A connection to the gateway, and the path that leads to the server."""
    route = gateway.route(upstream)
    address, _, path = route.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    return Connection(socket.create_connection((host, int(port)), timeout=LIMIT_S)), f"/{path}"


def post(path: str, body: object, *headers: str) -> bytes:
    """A request as agents send it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"X-Api-Key: {KEY}", "Content-Type: application/json",
        f"Content-Length: {len(data)}", *headers,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + data


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\n"
    b"Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\n\r\n"
)


def sse(*events: object) -> list[bytes]:
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


ASKED = {
    "model": "claude-x",
    "max_tokens": 900,
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
}
STARTED, SAID, ENDED = sse(
    {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x-1", "usage": {
        "input_tokens": 7, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello there"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 11}},
)  # fmt: skip
