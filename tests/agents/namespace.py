"""A network that holds nothing but loopback: a namespace of its own where we may make one (as root on Linux).

It lives in one thread of this process. Others enter it by that thread's entry in /proc, and every process that
they start is in it too; when the process ends, so does the network.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


class Namespace:
    """Where tests start agents. Without the right to make one, the network that is there."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="namespace")
        self._entry = self._thread.submit(_enter_new).result()

    @property
    def isolated(self) -> bool:
        """True when nothing outside this machine can be reached."""
        return self._entry is not None

    def namespaced(self, argv: Sequence[str | Path]) -> list[str]:
        """The command, started inside; it keeps the process id, for `nsenter` becomes it."""
        words = [str(word) for word in argv]
        if self._entry is None:
            return words
        nsenter = shutil.which("nsenter")
        assert nsenter is not None, "checked when the namespace was made"
        return [nsenter, f"--net={self._entry}", "--", *words]

    def call(self, function: Callable[[], T]) -> T:
        """Call it inside: sockets that it opens, and processes that it starts, belong there for ever."""
        return self._thread.submit(function).result()

    def listen(self, port: int) -> socket.socket:
        return self.call(lambda: socket.create_server(("127.0.0.1", port), backlog=128))

    def close(self) -> None:
        self._thread.shutdown()


def _enter_new() -> Path | None:
    if os.geteuid() != 0 or shutil.which("nsenter") is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(channel, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(channel, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
    return Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")
