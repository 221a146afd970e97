"""Stands between a program and its PostgreSQL, and cuts connections so that nobody knows what became of a statement."""

import contextlib
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

NAME = ".s.PGSQL.5432"
CHUNK = 1 << 16
# What becomes of the next message: it never arrives; it arrives when its sender has given up; its answer never arrives.
WAYS = ("lost", "late", "unanswered")
HELD = "held"  # it arrives when the test says so
TERMINATE = b"X\0\0\0\4"  # a client's last message
LIMIT_S = 60.0


class CutProxy:
    """A socket in a folder of its own that leads to the server's socket."""

    def __init__(self, server: Path, rng: random.Random, *, late_s: float = 0.08) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="o-cut-", dir="/tmp"))
        self.cuts: list[str] = []
        self.connections = 0
        self._server = server / NAME
        self._rng = rng
        self._late_s = late_s
        self._armed, self._before = "", 0
        self._silent = threading.Event()
        self._deliver, self._delivered = threading.Event(), threading.Event()
        self._closing = threading.Event()
        self._ends = threading.Event()
        self._ends.set()
        self._links: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / NAME))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, way: str = "", *, after: int = 0) -> None:
        """Cut the connection that speaks next, or `after` so many messages of all connections."""
        self._before = after
        self._armed = way or self._rng.choice(WAYS)

    def disarm(self) -> bool:
        """Cut nothing any more. Whether something would have been."""
        way, self._armed = self._armed, ""
        return bool(way)

    def deliver(self) -> None:
        """Let the message that is held arrive, and wait until the server has answered it."""
        self._deliver.set()
        assert self._delivered.wait(LIMIT_S), "the server answers"

    def silence(self, is_silent: bool) -> None:
        """Pass nothing on, in either direction, and close nothing; or pass on again, without what was held."""
        if is_silent:
            self._silent.set()
        else:
            self._silent.clear()
            for link in self._links:
                _close(link)

    @contextlib.contextmanager
    def late_ends(self) -> Iterator[None]:
        """The server sees only after this block which connections were closed in it."""
        self._ends.clear()
        try:
            yield
        finally:
            self._ends.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server))
            except OSError:
                client.close()
                continue
            self._links += [client, server]
            threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK):
                if self._silent.is_set():
                    continue
                if self._armed and self._before:
                    self._before -= 1
                elif self._armed:
                    way, self._armed = self._armed, ""
                    self.cuts.append(way)
                    self._cut(way, client, server, data)
                    return
                if data == TERMINATE:
                    break
                server.sendall(data)
        self._ends.wait(LIMIT_S)
        _close(client)
        _close(server)

    def _cut(self, way: str, client: socket.socket, server: socket.socket, data: bytes) -> None:
        if way == "unanswered":
            server.sendall(data)
        _close(client)
        if way == HELD:
            self._deliver.wait(LIMIT_S)
            server.sendall(data)
            self._delivered.wait(LIMIT_S)
        if way == "late":
            self._closing.wait(self._rng.uniform(0, self._late_s))
            server.sendall(data)
        self._closing.wait(self._late_s)  # an ended connection would end its statement
        _close(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                if self._deliver.is_set():
                    self._delivered.set()
                if not self._silent.is_set():
                    with contextlib.suppress(OSError):
                        client.sendall(data)
        if not self._silent.is_set():
            _close(client)

    def close(self) -> None:
        self._closing.set()
        _close(self._listener)
        self._listener.close()
        for link in self._links:
            _close(link)
            link.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _close(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cut_proxy(server: Path, rng: random.Random) -> Iterator[CutProxy]:
    """A proxy, gone at the end of the block."""
    made = CutProxy(server, rng)
    try:
        yield made
    finally:
        made.close()
