"""The server: takes connections, a thread for each, within limits that keep one client from shutting out others."""

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from outlast.errors import UsageError
from outlast.web.http import responses
from outlast.web.http.requests import Hung, Malformed, Request, Wire, wants_json
from outlast.web.http.responses import Answer
from outlast.web.timing import Timing

CONNECTIONS_MAX = 128
STRANGERS_SHARE = 4
PORTS_TRIED = 20
LINGER_BYTES_MAX = 256 << 10
_BACKLOG = 256
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Handler = Callable[[Request, "Connection"], Answer]


class Gone(Exception):
    """The client is gone, or reads no more."""


class Connection:
    """A client's connection. `waits`: it is between requests, and may be ended without harm; `lingers`: it has had its answer.

    `stranger`: nobody has found yet that they may look. `uid` is the guard's memory of who is at the other end, once that is known (`uid_known`).
    """

    def __init__(
        self, taken: socket.socket, forget: Callable[["Connection"], None], timing: Timing | None = None
    ) -> None:
        self._timing = timing or Timing.current()
        self.socket = taken
        self.peer: tuple[str, int] = taken.getpeername()[:2]
        self.here: tuple[str, int] = taken.getsockname()[:2]
        self.waits, self.since_s = True, time.monotonic()
        self.streams = self.lingers = self.stranger = False
        self.uid: int | None = None
        self.uid_known = False
        self._forget = forget

    def send(self, *pieces: bytes) -> None:
        """Send all pieces. Raises Gone if the client reads nothing for too long."""
        deadline_s = time.monotonic() + self._timing.send_s
        try:
            self.socket.settimeout(self._timing.stall_s)
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[self.socket.send(left) :]
                    if left and time.monotonic() > deadline_s:
                        raise TimeoutError
        except OSError as error:
            raise Gone from error

    def shut(self) -> None:
        """End it from another thread: a blocked read or write returns."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it."""
        self._forget(self)
        with contextlib.suppress(OSError):
            self.socket.close()

    def linger(self) -> None:
        """Read what still comes, a little: closing at once would take the answer away before it is read."""
        self.waits = self.lingers = True
        deadline_s, left = time.monotonic() + self._timing.linger_s, LINGER_BYTES_MAX
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            while left > 0 and (left_s := deadline_s - time.monotonic()) > 0:
                self.socket.settimeout(left_s)
                came = len(self.socket.recv(64 << 10))
                if not came:
                    return
                left -= came


class Server:
    """Serves a listening socket until `stop`. `limit` and `timing` are arguments so that tests need not wait.

    `is_stranger` is asked of each new connection: it gets one of few places until `handle` finds that it may look.

    When all places are taken, a connection that waits for its next request gives way to a new one, the longest waiting first.
    Clients that have not shown yet that they may look share a quarter of the places, and make nobody else give way. A stream of
    events leaves its thread: `live` carries it on, and it counts as a connection until it ends.
    """

    def __init__(
        self, listening: socket.socket, handle: Handler, *, limit: int = CONNECTIONS_MAX,
        timing: Timing | None = None, is_stranger: Callable[[Connection], bool] = lambda connection: False,
    ) -> None:  # fmt: skip
        self._is_stranger, self._strangers_max = is_stranger, max(1, limit // STRANGERS_SHARE)
        self._listening, self._handle, self._limit = listening, handle, limit
        self._timing = timing or Timing.current()
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self._stopping = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._accept, name="outlast-ui", daemon=True)
        self._workers: set[threading.Thread] = set()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._open)

    def start(self) -> None:
        """Take connections."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more, and end those that are open; answers under way get a moment to go out."""
        if self._stopping:
            return
        self._stopping = True
        os.eventfd_write(self._bell, 1)
        self._thread.join()
        self._listening.close()
        deadline_s = time.monotonic() + self._timing.stop_s
        with self._lock:
            for connection in self._open:
                if connection.waits or connection.streams:
                    connection.shut()
            workers = list(self._workers)
        for worker in workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        with self._lock:
            left = list(self._open)
        for connection in left:
            connection.shut()
        os.close(self._bell)

    # -- taking connections --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._listening.setblocking(False)
        waiting = select.poll()
        for descriptor in (self._listening.fileno(), self._bell):
            waiting.register(descriptor, select.POLLIN)
        while not self._stopping:
            waiting.poll()
            try:
                taken, _ = self._listening.accept()
            except OSError as error:
                if error.errno in _NO_ROOM and not self._make_room():
                    select.poll().poll(self._timing.no_room_ms)
                continue
            self._take(taken)

    def _take(self, taken: socket.socket) -> None:
        try:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(taken, self._forget, self._timing)
            connection.stranger = self._is_stranger(connection)
        except OSError:  # gone already
            taken.close()
            return
        with self._lock:
            full = len(self._open) >= self._limit
            if connection.stranger:
                full |= sum(each.stranger for each in self._open) >= self._strangers_max
        if full and not self._make_room(connection):
            self._turn_away(taken)
            return
        worker = threading.Thread(
            target=self._serve, args=(connection,), name="outlast-ui-client", daemon=True
        )
        with self._lock:
            self._open.add(connection)
            self._workers.add(worker)
        try:
            worker.start()
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                self._workers.discard(worker)
            connection.close()

    def _make_room(self, coming: Connection | None = None) -> bool:
        """End a connection that waits: one that has had its answer, else a stranger's, else the one that waits longest.

        False if all of them are at work, or if a stranger comes and those who wait are none.
        """
        strangers_only = coming is not None and coming.stranger
        with self._lock:
            waiting = [each for each in self._open if each.waits and (each.stranger or not strangers_only)]
            if not waiting:
                return False
            first = min(waiting, key=lambda each: (not each.lingers, not each.stranger, each.since_s))
            self._open.discard(first)
        first.shut()
        return True

    def _turn_away(self, taken: socket.socket) -> None:
        head, body = responses.line("all places are taken; try again in a moment", 503).parts()
        with contextlib.suppress(OSError):
            taken.setblocking(False)
            taken.send(head + body)
        taken.close()

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._open.discard(connection)

    # -- a connection --------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection) -> None:
        try:
            self._converse(connection)
        except (Gone, Hung):
            pass
        finally:
            if not connection.streams:
                connection.close()
            with self._lock:
                self._workers.discard(threading.current_thread())

    def _converse(self, connection: Connection) -> None:
        wire, idle_s, lasts = Wire(connection.socket), self._timing.receive_s, True
        while lasts and not self._stopping:
            connection.waits, connection.since_s = True, time.monotonic()
            try:
                request = wire.next(idle_s, self._timing.receive_s)
            except Malformed as problem:
                connection.waits = False
                connection.send(*_problem_answer(problem).parts())
                connection.linger()
                return
            connection.waits = False
            lasts, idle_s = self._answer(connection, request), self._timing.idle_s

    def _answer(self, connection: Connection, request: Request) -> bool:
        """Whether the connection goes on."""
        answer = self._handle(request, connection)
        if answer.stream is not None:
            answer.stream(connection, answer.parts()[0])
            return False
        lasts = request.lasts and not self._stopping
        accepts, head_only = request.header("accept-encoding"), request.method == "HEAD"
        head, body = answer.parts(accepts=accepts, head_only=head_only, lasts=lasts)
        connection.send(head + body)
        return lasts


def _problem_answer(problem: Malformed) -> Answer:
    if wants_json(problem.target):
        document = responses.Problem(error=str(problem), hint="see /api/openapi.json")
        return responses.document(document, problem.status)
    return responses.line(f"error: {problem}", problem.status)


def listen(host: str, port: int, *, tries: int = PORTS_TRIED) -> tuple[socket.socket, list[int]]:
    """A listening socket at the first free port from this one on, and the ports that are taken. Raises UsageError."""
    taken: list[int] = []
    family, place = _resolved(host)
    for candidate in range(port, min(port + (tries if port else 1), 65536)):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((place, candidate))
            made.listen(_BACKLOG)
            return made, taken
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                reason = error.strerror or str(error)
                raise UsageError(
                    f"cannot listen on {host} port {candidate}: {reason.lower()}",
                    hint="`outlast ui --port 8477` needs no privilege; --host takes an address of this machine",
                ) from error
            taken.append(candidate)
    raise UsageError(
        f"the ports {port} to {taken[-1]} are all taken", hint="`outlast ui --port 0` takes any that is free"
    )


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    """An address that the name leads to, an IPv4 one where there is one."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"no such host: {host!r:.100}", hint="give an address of this machine, as 127.0.0.1 or 0.0.0.0"
        ) from error
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    family, _, _, _, place = found[0]
    return family, str(place[0])
