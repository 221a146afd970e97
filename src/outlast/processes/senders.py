"""Who sent a signal. Signals are blocked and read from a descriptor one by one, with their sender, in one thread."""

import contextlib
import os
import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from outlast.processes import libc
from outlast.processes.proc import describe, user_name

_INFO_BYTES = 128
_INFO = struct.Struct("=IiiIIiI")  # struct signalfd_siginfo: signo, errno, code, pid, uid, fd, tid
SI_USER, SI_QUEUE, SI_TIMER, SI_TKILL, SI_KERNEL = 0, -1, -2, -6, 0x80
_FROM_A_PROCESS = (SI_USER, SI_QUEUE, SI_TKILL)
_BY_TERMINAL = {
    signal.SIGINT: "the terminal (Ctrl-C)",
    signal.SIGQUIT: "the terminal (Ctrl-\\)",
    signal.SIGTSTP: "the terminal (Ctrl-Z)",
    signal.SIGHUP: "the terminal (it was closed)",
    signal.SIGWINCH: "the terminal (its size changed)",
}


@dataclass(frozen=True, slots=True)
class Got:
    """A signal as it came: its number, who sent it and why the kernel says so, when we read it.

    `seen` is the sender as it was found at once: a `kill` is gone a moment later.
    """

    number: int
    pid: int
    uid: int
    code: int
    at: datetime
    seen: str = ""


class Signals:
    """These signals, blocked in this thread from now until `close`, and readable from `fileno()`.

    Make it before any other thread, which would else still take them. None is lost between reads; of the same number
    the kernel keeps one until it is read. Programs started meanwhile by other means than `spawning` inherit the block.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = frozenset(numbers)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        try:
            self._fd = libc.signalfd(self._numbers)
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise

    def fileno(self) -> int:
        """Readable while a signal waits."""
        return self._fd

    def read(self) -> Got | None:
        """The next signal, its sender looked up at once; None when none waits."""
        try:
            info = os.read(self._fd, _INFO_BYTES)
        except BlockingIOError:
            return None
        number, _, code, pid, uid, _, _ = _INFO.unpack_from(info)
        seen = describe(pid, uid) if pid and code in _FROM_A_PROCESS else ""
        return Got(number, pid, uid, code, datetime.now(UTC), seen)

    def close(self) -> None:
        """Unblock them again; one that still waits then does what it always did."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sender(got: Got) -> str:
    """Who sent it, in words: a process with its user and command, the terminal, the kernel, or this process itself."""
    if got.code not in _FROM_A_PROCESS:
        by_kernel = (
            _BY_TERMINAL.get(signal.Signals(got.number), "the kernel") if got.code == SI_KERNEL else ""
        )
        return by_kernel or ("a timer of its own" if got.code == SI_TIMER else "the kernel")
    if got.pid == os.getpid():
        return "itself"
    if not got.pid:
        return f"a process outside of this container ({user_name(got.uid)})"
    return got.seen or describe(got.pid, got.uid)
