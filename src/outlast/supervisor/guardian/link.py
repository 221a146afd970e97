"""The messages between guardian and supervisor: one JSON document a line, over a pair of sockets."""

import contextlib
import socket

import msgspec

from outlast import decoders


class GuardianMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One message. To the supervisor: signals, and stop and continue of the job. To the guardian: what it guards."""

    what: str
    number: int = 0
    sender: str = ""
    wanted: bool = True
    run: str = ""
    root: str = ""
    workspace: str = ""
    epoch: int = 0
    task: str = ""
    resume: str = ""  # the command that goes on with the run


_decode = decoders.of_json(GuardianMessage).decode


class Link:
    """One end. It never raises: messages to a side that is gone are dropped."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""
        self.closed = False
        sock.setblocking(False)

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: GuardianMessage) -> None:
        """Send one message; `closed` is set when the other side is gone."""
        try:
            self._sock.setblocking(True)
            self._sock.sendall(msgspec.json.encode(message) + b"\n")
        except OSError:
            self.closed = True
        finally:
            with contextlib.suppress(OSError):
                self._sock.setblocking(False)

    def heard(self) -> list[GuardianMessage]:
        """The messages that came since the last call; `closed` is set when the other side is gone."""
        while not self.closed:
            try:
                chunk = self._sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self._rest += chunk
            self.closed = not chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [_decode(line) for line in lines]

    def close(self) -> None:
        self.closed = True
        self._sock.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, neither inherited by programs."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
