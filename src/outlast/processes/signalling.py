"""Signals to exactly one process, and waiting until it is gone: never to a stranger that got its pid."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from outlast.processes.proc import Proc, look

Sent = Literal["sent", "gone", "refused"]
OnWait = Callable[[], object]
WATCHED_MAX = 256
TICK_S = 0.1


def send(proc: Proc, number: int) -> Sent:
    """Signal this process; `gone` if it is not there any more, `refused` if we may not.

    Through a pidfd that was compared with the process's start, so the signal cannot hit another. Where the kernel
    gives no pidfd, between the comparison and the signal lie some microseconds in which it could.
    """
    assert proc.pid != os.getpid(), "a process that stops others does not stop itself"
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
    if not is_there(proc):
        return "gone"
    try:
        os.kill(proc.pid, number)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "refused"
    return "sent"


def _opened(proc: Proc) -> int | None:
    """A pidfd of this very process, None when it is gone. Raises OSError where there are no pidfds (left)."""
    try:
        fd = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        if not is_there(proc):
            return None
        undo.pop_all()
    return fd


def is_there(proc: Proc) -> bool:
    """Whether the very process still runs; a zombie does not."""
    now = look(proc.pid)
    return now is not None and now.identity == proc.identity and not now.is_zombie


def wait_gone(procs: Iterable[Proc], limit_s: float, on_wait: OnWait | None = None) -> list[Proc]:
    """Wait until all are gone; returns those that are not after `limit_s`.

    `on_wait` is called at every death and at least every 0.1 s; a true answer ends the waiting.
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
        while (watched or blind) and (left_s := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(min(left_s, TICK_S) * 1000):
                poller.unregister(fd)
                del watched[fd]
                os.close(fd)
            blind = [proc for proc in blind if is_there(proc)]
            if on_wait is not None and on_wait():
                break
        return [*watched.values(), *blind]
    finally:
        for fd in watched:
            os.close(fd)
