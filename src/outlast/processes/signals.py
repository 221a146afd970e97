"""Signals to exactly one process, and waiting until it is gone: never to another process that got its pid."""

import contextlib
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self

from outlast.processes import libc
from outlast.processes.proc import Proc, describe, look, user_name
from outlast.processes.timing import Timing

Sent = Literal["sent", "gone", "refused"]
OnWait = Callable[[], object]
WATCHED_MAX = 256


def send(proc: Proc, number: int) -> Sent:
    """Signal this process; `gone` if it does not exist any more, `refused` if we may not.

    It uses a pidfd that was compared with the process's start time, so the signal cannot hit another process. On a
    kernel without pidfds that is possible for some microseconds between the comparison and the signal.
    """
    assert proc.pid != os.getpid(), "a process must not signal itself here"
    try:
        fd = _opened(proc)
    except OSError:
        return _send_by_pid(proc, number)
    if fd is None:
        return "gone"
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "refused"
    finally:
        os.close(fd)
    return "sent"


def _send_by_pid(proc: Proc, number: int) -> Sent:
    if not is_running(proc):
        return "gone"
    try:
        os.kill(proc.pid, number)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "refused"
    return "sent"


def _opened(proc: Proc) -> int | None:
    """A pidfd of exactly this process; None if it is gone. Raises OSError if there are no pidfds (left)."""
    try:
        fd = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        if not is_running(proc):
            return None
        undo.pop_all()
    return fd


def is_running(proc: Proc) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    now = look(proc.pid)
    return now is not None and now.identity == proc.identity and not now.is_zombie


def wait_gone(procs: Iterable[Proc], limit_s: float, on_wait: OnWait | None = None) -> list[Proc]:
    """Wait until all are gone; return those that are not after `limit_s`.

    `on_wait` is called at every death and at least every 0.1 s; if it returns true, the waiting ends.
    """
    deadline = time.monotonic() + limit_s
    waiting = list(procs)
    left: list[Proc] = []
    for start in range(0, len(waiting), WATCHED_MAX):
        left += _wait_for(waiting[start : start + WATCHED_MAX], deadline, on_wait)
    return left


def _wait_for(procs: Sequence[Proc], deadline: float, on_wait: OnWait | None) -> list[Proc]:
    poller = select.poll()
    watched: dict[int, Proc] = {}
    blind: list[Proc] = []
    try:
        for proc in procs:
            try:
                fd = _opened(proc)
            except OSError:
                blind.append(proc)
                continue
            if fd is not None:
                watched[fd] = proc
                poller.register(fd, select.POLLIN)
        tick_s = Timing.current().signal_tick_s
        while (watched or blind) and (left_s := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(min(left_s, tick_s) * 1000):
                poller.unregister(fd)
                del watched[fd]
                os.close(fd)
            blind = [proc for proc in blind if is_running(proc)]
            if on_wait is not None and on_wait():
                break
        return [*watched.values(), *blind]
    finally:
        for fd in watched:
            os.close(fd)


# -- Who sent a signal. Signals are blocked and read from a descriptor one by one, with their sender, in one thread.

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
class ReceivedSignal:
    """A signal: its number, its sender and why the kernel says so, when we read it.

    `seen` is the sender as found at once: a `kill` is gone a moment later.
    """

    number: int
    pid: int
    uid: int
    code: int
    at: datetime
    seen: str = ""


class Signals:
    """Blocks these signals in this thread until `close`, and makes them readable from `fileno()`.

    Create it before starting threads: another thread would still receive them. None is lost between reads; of several
    with the same number the kernel keeps one until it is read. Programs started other than by `spawn` inherit the block.
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

    def read(self) -> ReceivedSignal | None:
        """The next signal, with its sender looked up at once; None if none waits."""
        try:
            info = os.read(self._fd, _INFO_BYTES)
        except BlockingIOError:
            return None
        number, _, code, pid, uid, _, _ = _INFO.unpack_from(info)
        seen = describe(pid, uid) if pid and code in _FROM_A_PROCESS else ""
        return ReceivedSignal(number, pid, uid, code, datetime.now(UTC), seen)

    def close(self) -> None:
        """Unblock them again; one that still waits then has its normal effect."""
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


def sender(got: ReceivedSignal) -> str:
    """The sender in words: a process with its user and command, the terminal, the kernel, or this process itself."""
    if got.code not in _FROM_A_PROCESS:
        by_kernel = (
            _BY_TERMINAL.get(signal.Signals(got.number), "the kernel") if got.code == SI_KERNEL else ""
        )
        return by_kernel or ("a timer of its own" if got.code == SI_TIMER else "the kernel")
    if got.pid == os.getpid():
        return "itself"
    if not got.pid:
        return f"a process outside this container ({user_name(got.uid)})"
    return got.seen or describe(got.pid, got.uid)
