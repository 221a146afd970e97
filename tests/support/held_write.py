"""A write() that has begun and does not end: its bytes lie in memory that is there only when the test says so.

The kernel reports where it waits for them (userfaultfd), so nobody guesses whether the write has begun. Needs root."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import select
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.environment import TIMEOUT_S

_NUMBER = {"x86_64": 323, "aarch64": 282}
_API, _REGISTER, _COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03
_MODE_MISSING = 1


def available() -> str | None:
    """None if a write can be held here; else why not."""
    try:
        os.close(_userfaultfd())
    except OSError as error:
        return f"userfaultfd: {error.strerror}"
    return None


def _userfaultfd() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _NUMBER.get(platform.machine())
    if number is None:
        raise OSError(0, f"its number on {platform.machine()} is unknown")
    fd: int = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


class HeldWrite:
    """One write of `data` over the beginning of a file. In the block it has begun and waits for its second half."""

    def __init__(self, path: Path, data: bytes) -> None:
        assert len(data) % (2 * mmap.PAGESIZE) == 0, "whole pages"
        self._path, self._half = path, len(data) // 2
        self._memory = mmap.mmap(-1, len(data))
        self._memory[: self._half] = data[: self._half]
        self._rest = (ctypes.c_char * self._half).from_buffer_copy(data, self._half)
        self._uffd = _userfaultfd()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, self._memory)
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        here = ctypes.c_char.from_buffer(self._memory)
        self._held = ctypes.addressof(here) + self._half
        del here
        fcntl.ioctl(self._uffd, _API, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
        fcntl.ioctl(
            self._uffd, _REGISTER, bytearray(struct.pack("QQQQ", self._held, self._half, _MODE_MISSING, 0))
        )
        self._writer.start()
        if not select.select([self._uffd], [], [], TIMEOUT_S)[0]:
            raise TimeoutError("the write does not begin")
        return self

    def finish(self) -> None:
        """Let it have the rest; it is over when this returns."""
        if self._uffd < 0:
            return
        copy = struct.pack("QQQQq", self._held, ctypes.addressof(self._rest), self._half, 0, 0)
        fcntl.ioctl(self._uffd, _COPY, bytearray(copy))
        self._writer.join(TIMEOUT_S)
        os.close(self._uffd)
        self._uffd = -1
        assert not self._writer.is_alive(), "the write does not end"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
