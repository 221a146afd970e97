"""An agent's hooks by HTTP: requests on kept connections to a port of this machine, each served by a thread of its own.

The agent inherits the listening socket: nobody else can take its port while it lives, and without us its hooks hang."""

import contextlib
import fcntl
import hmac
import os
import secrets
import select
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from outlast.supervisor.socket.connection import TAKEN
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.timing import Timing

SECRET = "X-Outlast-Secret"
TARGET = "/outlast-hook"
HEAD_MAX_BYTES = 16 << 10
INPUT_MAX_BYTES = 20 << 20  # as in `client/hook.py`
CONNECTIONS_MAX = 64
BACKLOG = 64
# Node, which an agent may be started by, keeps from its children what it inherited under low numbers: up to 15, and on as far
# as there are any.
HIGH_FD = 64
_CHUNK = 1 << 16
# A socket of the sixth version reaches us too, by an address in which ours stands last.
_MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"
_TABLES = ((Path("/proc/net/tcp"), ""), (Path("/proc/net/tcp6"), _MAPPED))
_LOCAL, _REMOTE, _UID = 1, 2, 7
_DENIED = 403
_REASONS = {200: "OK", 400: "Bad Request", _DENIED: "Forbidden", 404: "Not Found", 413: "Content Too Large", 500: "Internal Server Error"}  # fmt: skip
# An answer of this kind lets a call pass although nobody has judged it, so it is never given: 204, or 200 with an empty body.
NOTHING_TO_SAY = b"{}"


class AnswersHttp(Protocol):
    """Answers an agent's hooks."""

    def hook(self, data: bytes, delivery: Delivery) -> tuple[bytes, int]: ...
    def look_at_answers(self) -> None: ...
    def try_to_note_begun(self) -> None:
        """Note the calls that were let through at once, if that has to wait for nothing."""


class HttpHooks:
    """Listens for the hooks of one attempt's agent. Who does not show the secret, or is another user, is refused."""

    def __init__(self, agent: AnswersHttp, timing: Timing | None = None) -> None:
        self._agent, self._timing = agent, timing or Timing.current()
        self.secret = secrets.token_urlsafe(32)
        self._listening = _under_a_high_number(socket.create_server(("127.0.0.1", 0), backlog=BACKLOG))
        self._listening.setblocking(False)  # whoever inherits it may take a connection that was ours
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}{TARGET}"
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="outlast-http", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """The listening socket, for the agent to inherit."""
        return self._listening.fileno()

    def close(self) -> None:
        """Serve nobody any more. The socket is not shut down: the agent may hold it, and with it its port."""
        if self._ended < 0:
            return
        os.eventfd_write(self._ended, 1)
        self._thread.join()
        os.close(self._ended)
        self._ended = -1
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        poll = select.poll()
        for fd in (self._listening.fileno(), self._ended):
            poll.register(fd, select.POLLIN)
        while self._ended not in [fd for fd, _ in poll.poll()]:
            try:
                sock, end = self._listening.accept()
                with self._lock:
                    has_room = len(self._open) < CONNECTIONS_MAX
                if has_room and not is_foreign(end, sock.getsockname()):
                    self._begin(sock)
                else:
                    sock.close()
            except (OSError, RuntimeError):  # no descriptors or threads; the caller's hook is denied
                time.sleep(self._timing.accept_retry_s)

    def _begin(self, sock: socket.socket) -> None:
        serving = threading.Thread(target=self._serve, args=(sock,), name="outlast-hook", daemon=True)
        with self._lock:
            self._open.add(sock)
        try:
            serving.start()
        except RuntimeError:
            with self._lock:
                self._open.discard(sock)
            sock.close()
            raise

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock, contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                there = _Requests(sock, self._timing.silent_s)
                while self._answered(there):
                    pass
        finally:
            with self._lock:
                self._open.discard(sock)

    def _answered(self, there: "_Requests") -> bool:
        """Serve one request. Returns whether the connection can have another."""
        try:
            data = there.next(self.secret)
        except _Refused as refused:
            there.answer(refused.status, str(refused).encode())
            return False
        if data is None:
            return False
        there.sent = None
        delivery = Delivery(there, acknowledges=True)
        try:
            out, code = self._agent.hook(data, delivery)
        except Exception as error:  # it has judged nothing
            there.answer(500, f"{type(error).__name__}: {error}".encode(errors="replace"))
            return False
        there.answer(_DENIED if code else 200, out or NOTHING_TO_SAY)
        self._agent.try_to_note_begun()
        if delivery.look() == "lost":
            self._agent.look_at_answers()
            return False
        return True


def _under_a_high_number(listening: socket.socket) -> socket.socket:
    try:
        high = fcntl.fcntl(listening.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    except OSError:  # so many are not allowed
        return listening
    listening.close()
    return socket.socket(fileno=high)


class _Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Requests:
    """The agent's side of one connection. An answer counts as taken when it is sent and the agent still holds the
    connection: who gave up waiting has closed it."""

    def __init__(self, sock: socket.socket, limit_s: float) -> None:
        self._sock, self._limit_s = sock, limit_s
        self._rest = bytearray()
        self._is_known = False
        self.sent: bytes | None = None

    def next(self, secret: str) -> bytes | None:
        """The body of the next request; None at the end. One that is known may be silent between two for as long as it likes."""
        self._sock.settimeout(None if self._is_known and not self._rest else self._limit_s)
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > HEAD_MAX_BYTES:
                raise _Refused(400, "its head is too long")
            if not self._read():
                return None
            self._sock.settimeout(self._limit_s)
        if end > HEAD_MAX_BYTES:
            raise _Refused(400, "its head is too long")
        first, *lines = bytes(self._rest[:end]).split(b"\r\n")
        del self._rest[: end + 4]
        size = _size_of(first, _fields(lines), secret)
        self._is_known = True
        while len(self._rest) < size:
            if not self._read():
                return None
        data = bytes(self._rest[:size])
        del self._rest[:size]
        return data

    def answer(self, status: int, body: bytes) -> None:
        """Answer it. Says afterwards whether the agent is still there to read that."""
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            self._sock.settimeout(self._limit_s)
            self._sock.sendall(head.encode() + body)
        except OSError:
            self.sent = b""
        else:
            self.sent = TAKEN if self.is_there() else b""

    def _read(self) -> bool:
        chunk = self._sock.recv(_CHUNK)
        self._rest += chunk
        return bool(chunk)

    # -- as `Delivery` asks ------------------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether the agent still holds the connection. Any thread may call this."""
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return not poll.poll(0)

    def process(self) -> None:
        """The agent's process is followed elsewhere."""

    def waiting(self) -> bytes | None:
        if self.sent is None and not self.is_there():
            return b""
        return self.sent

    def wait(self) -> None:
        """An answer that is sent is taken or lost."""


def _fields(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        found.setdefault(name.strip().lower(), []).append(value.strip())
    return found


def _size_of(first: bytes, fields: dict[bytes, list[bytes]], secret: str) -> int:
    """The length of the body of a request that may be served."""
    shown = fields.get(SECRET.lower().encode(), [])
    if len(shown) != 1 or not hmac.compare_digest(shown[0], secret.encode()):
        raise _Refused(_DENIED, "it does not show the secret of this run")
    if first.split(b" ")[:2] != [b"POST", TARGET.encode()]:
        raise _Refused(404, "there are only hooks here")
    sizes = fields.get(b"content-length", [])
    if len(sizes) != 1 or not sizes[0].isdigit() or b"transfer-encoding" in fields:
        raise _Refused(400, "its length is not said")
    if len(sizes[0]) > len(str(INPUT_MAX_BYTES)) or int(sizes[0]) > INPUT_MAX_BYTES:
        raise _Refused(413, f"a hook input of more than {INPUT_MAX_BYTES:,} bytes")
    return int(sizes[0])


def is_foreign(end: tuple[str, int], ours: tuple[str, int]) -> bool:
    """Whether the other end of a loopback connection is another user's, as the kernel's tables say. Root's is not."""
    mine = {str(os.getuid()), "0"}
    for table, before in _TABLES:
        local, remote = before + _written(end), before + _written(ours)
        try:
            with table.open() as rows:
                for row in rows:
                    fields = row.split()
                    if len(fields) > _UID and fields[_LOCAL] == local and fields[_REMOTE] == remote:
                        return fields[_UID] not in mine
        except OSError:
            pass
    return False  # nobody can tell: the secret decides


def _written(end: tuple[str, int]) -> str:
    """An address as the kernel writes it: hexadecimal, the bytes in the order of the machine."""
    number = int.from_bytes(socket.inet_aton(end[0]), "little" if socket.htons(1) != 1 else "big")
    return f"{number:08X}:{end[1]:04X}"
