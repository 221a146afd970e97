"""One connection on the supervisor's socket: whole messages, in order, with a limit on waiting."""

import contextlib
import os
import select
import socket
import struct
import time
from pathlib import Path

from outlast import settings
from outlast.errors import OutlastError, UsageError
from outlast.supervisor.socket import wire

_CHUNK = 1 << 16
PATH_BYTES_MAX = 107  # of a socket's name, by the kernel
AGAIN = "start the script again: what is on record is replayed, what was cut off is done again"
TAKEN = b"\x06"  # the acknowledgement, sent last: this side has its answer, and has acted on it
_CREDENTIALS = struct.Struct("3i")
_PEER_PROCESS = 77  # SO_PEERPIDFD, which `socket` does not name yet


class Gone(OutlastError):
    """The other side closed the connection or does not answer."""

    exit_code = 125


class Connection:
    """Sends and receives messages. Not for two threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest: bytes | bytearray = bytearray()

    def fileno(self) -> int:
        """Readable when the other side has sent something, or is gone."""
        return self._sock.fileno()

    @property
    def pid(self) -> int:
        """The process on the other side; 0 if we cannot see it."""
        data = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(data)[0])

    @property
    def uid(self) -> int:
        """The user on the other side."""
        data = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(data)[1])

    def is_there(self) -> bool:
        """Whether the other side still holds the connection. Any thread may call this."""
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return not poll.poll(0)

    def process(self) -> int | None:
        """A descriptor of the process on the other side, for the caller to close; None if the kernel cannot give one."""
        try:
            return self._sock.getsockopt(socket.SOL_SOCKET, _PEER_PROCESS)
        except OSError:
            return None

    def waiting(self) -> bytes | None:
        """The first byte that came and was not received yet; empty when the other side left, None while nothing came.

        Any thread may call this, as long as no other receives.
        """
        if self._rest:
            return bytes(self._rest[:1])
        try:
            return self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def wait(self) -> None:
        """Wait until something comes or the other side leaves. Receives nothing."""
        if self._rest:
            return
        poll = select.poll()
        with contextlib.suppress(ValueError, OSError):  # it was closed meanwhile
            poll.register(self._sock, select.POLLIN | select.POLLRDHUP)
            poll.poll()

    def acknowledge(self) -> None:
        """Send the acknowledgement of the last answer. It does not matter if the other side is gone."""
        with contextlib.suppress(OSError):
            self._sock.sendall(TAKEN)

    def send(self, message: wire.AnyMessage) -> None:
        """Send a message. Raises UsageError for text that no journal can hold."""
        try:
            data = wire.frame(message)
        except UnicodeEncodeError as error:
            wrong = error.object.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            raise UsageError(
                f"not valid UTF-8: {wrong:.60}", hint="give names, words and texts as UTF-8"
            ) from error
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise Gone(f"the supervisor of this run is gone: {error.strerror}", hint=AGAIN) from error

    def answer(self, code: int, out: bytes) -> None:
        """Answer a hook, in plain bytes: hooks do not parse JSON."""
        try:
            self._sock.sendall((1 + len(out)).to_bytes(4, "big") + bytes([code]) + out)
        except OSError as error:
            raise Gone(f"the connection is gone: {error.strerror}") from error

    def receive(self, *, limit_s: float | None = None) -> wire.AnyMessage:
        """The next message, whole within `limit_s`. Raises Gone at the end, UsageError for garbage."""
        usual_s = self._sock.gettimeout()
        until_s = None if limit_s is None else time.monotonic() + limit_s
        try:
            while True:
                message, self._rest = wire.unframe(self._rest)
                if message is not None:
                    return message
                if until_s is not None:
                    self._sock.settimeout(max(0.001, until_s - time.monotonic()))
                self._read()
        finally:
            if until_s is not None:
                self._sock.settimeout(usual_s)

    def _read(self) -> None:
        try:
            chunk = self._sock.recv(_CHUNK)
        except ConnectionResetError:  # it died before it had read all that we sent
            chunk = b""
        except OSError as error:
            raise Gone(f"no answer: {error.strerror or 'timed out'}", hint=AGAIN) from error
        if not chunk:
            raise Gone("the supervisor of this run is gone", hint=AGAIN)
        self._rest = bytearray(self._rest) if isinstance(self._rest, bytes) else self._rest
        self._rest += chunk

    def cut(self) -> None:
        """End the connection: whoever receives from it meets its end. Any thread may call this."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


def connect(path: str, timeout_s: float | None = None) -> Connection:
    """A connection to the supervisor behind a socket. Raises Gone if none listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise Gone(
            f"no supervisor listens on {path}: {error.strerror}",
            hint="start the script again, with `outlast run` or by itself",
        ) from error
    found = Connection(sock)
    mine, other = os.getuid(), found.uid
    if other not in (mine, 0) and not (mine == 0 and settings.variable("SUDO_UID") == str(other)):
        sock.close()
        raise Gone(f"another user (uid {other}) listens on {path}", hint="see who made it, and remove it")
    return found


def listen(path: Path) -> socket.socket:
    """A socket that only this user can reach."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(64)
    return sock
