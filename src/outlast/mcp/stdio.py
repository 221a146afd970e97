"""Lines in, lines out: messages of a client on stdin, ours on stdout, each whole and of a limited length."""

import contextlib
import os
import select
import threading
from collections.abc import Iterator

LINE_MAX_BYTES = 4 << 20
_CHUNK = 1 << 16


class ClientGone(Exception):
    """The client reads no more."""


class TooLong:
    """Stands for a line that was longer than the limit. Nothing of it is kept."""


class Reader:
    """The client's lines, until it ends them. A last line without its end counts as one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def stop(self) -> None:
        """End the lines now. Any thread may call this."""
        os.eventfd_write(self._over, 1)

    def lines(self) -> Iterator[bytes | TooLong]:
        """Each line without its end, as it comes; a line that is too long is skipped and named."""
        held, is_skipping = bytearray(), False
        while chunk := self._read():
            *ended, rest = chunk.split(b"\n")
            for part in ended:
                is_skipped, is_skipping = is_skipping or len(held) + len(part) > LINE_MAX_BYTES, False
                line = TooLong() if is_skipped else bytes(held) + part
                held.clear()
                yield line
            if is_skipping or len(held) + len(rest) > LINE_MAX_BYTES:
                is_skipping = True
                held.clear()
            else:
                held += rest
        if is_skipping:
            yield TooLong()
        elif held:
            yield bytes(held)

    def _read(self) -> bytes:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._over, select.POLLIN)
        if any(fd == self._over for fd, _ in poll.poll()):
            return b""
        with contextlib.suppress(OSError):
            return os.read(self._fd, _CHUNK)
        return b""


class Writer:
    """Our lines. Nothing else of this process may write to its standard output: that is standard error from now on."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        os.set_inheritable(self._fd, False)
        os.dup2(2, fd)
        self._lock = threading.Lock()

    def write(self, message: bytes) -> None:
        """Write a message as one line. Raises ClientGone if nobody reads any more."""
        view = memoryview(message + b"\n")
        with self._lock:
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as error:
                raise ClientGone from error
