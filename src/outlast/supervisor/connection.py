"""One connection on the supervisor's socket: whole messages, in order, with a limit on waiting."""

import socket
from pathlib import Path

from outlast.errors import OutlastError
from outlast.supervisor import wire

_CHUNK = 1 << 16
PATH_BYTES_MAX = 107  # of a socket's name, by the kernel


class Gone(OutlastError):
    """The other side closed the connection or does not answer."""

    exit_code = 125


class Connection:
    """Sends and receives messages. Not for two threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    def send(self, message: wire.AnyMessage) -> None:
        try:
            self._sock.sendall(wire.frame(message))
        except OSError as error:
            raise Gone(f"the connection is gone: {error.strerror}") from error

    def receive(self) -> wire.AnyMessage:
        """The next message. Raises Gone at the end, UsageError for what is none."""
        while True:
            message, self._rest = wire.unframe(self._rest)
            if message is not None:
                return message
            try:
                chunk = self._sock.recv(_CHUNK)
            except OSError as error:
                raise Gone(f"no answer: {error.strerror or 'timed out'}") from error
            if not chunk:
                raise Gone("the other side closed the connection")
            self._rest += chunk

    def close(self) -> None:
        self._sock.close()


def connect(path: str, timeout_s: float | None = None) -> Connection:
    """A connection to the supervisor behind a socket. Raises Gone where none listens."""
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
    return Connection(sock)


def listen(path: Path) -> socket.socket:
    """A socket that only this user can reach."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(64)
    return sock
