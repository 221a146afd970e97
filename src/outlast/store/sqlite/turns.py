"""The turns of the processes that write one store: first come, first served, where SQLite lets the luckiest begin.

A turn is a courtesy, not a lock: who waits too long for one goes without, and SQLite's own lock decides."""

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB


class Turns:
    """`take` and `leave` a turn, one thread at a time. Who leaves and comes back at once stands behind those who wait.

    That needs two files: one holds the turn, and who is next holds the other. The kernel serves each in order.
    Ctrl-C may strike anywhere in `take`: `leave` gives back whatever it got.
    """

    def __init__(self, path: Path, wait_s: float, without_s: float) -> None:
        self._wait_s, self._without_s = wait_s, without_s
        self._without_until_s = 0.0
        self._now = _Place(path)
        self._next = _Place(path.with_name(f"{path.name}.next"))

    def take(self) -> None:
        """Wait for our turn, but not for ever: a holder may be stopped. Then go without for a while."""
        if self._without_until_s and time.monotonic() < self._without_until_s:
            return
        until_s = time.monotonic() + self._wait_s
        if self._next.take(until_s) and self._now.take(until_s):
            self._without_until_s = 0.0
        else:
            self._without_until_s = time.monotonic() + self._without_s
        self._next.leave()

    def leave(self) -> None:
        """Let the next one write."""
        self._next.leave()
        self._now.leave()

    def close(self) -> None:
        """Close the files; of no use afterwards."""
        self._next.close()
        self._now.close()


class _Place:
    """One file whose lock one process holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._may_be_ours = False
        self._waiter: _Waiter | None = None
        self._left: _Waiter | None = None  # stands on for a turn that did not come in time; there is only one
        self._fd: int | None = None
        with contextlib.suppress(OSError):  # nobody queues where no file can be made: writing will say why
            self._fd = os.open(path, _OPEN, 0o600)

    def take(self, until_s: float) -> bool:
        if self._fd is None:
            return True
        self._may_be_ours = True
        try:
            fcntl.flock(self._fd, _AT_ONCE)
        except BlockingIOError:
            with contextlib.suppress(OSError):  # too many open files
                is_back = self._left is not None and self._left.come_back()
                self._waiter = self._left if is_back else _Waiter(self._path)
                assert self._waiter is not None, "who is back is there"
                return self._waiter.wait(until_s)
            return False
        except OSError:
            return True
        return True

    def leave(self) -> None:
        if not self._may_be_ours or self._fd is None:
            return
        if self._waiter is not None:
            self._left = None if self._waiter.leave() else self._waiter
            self._waiter = None
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._may_be_ours = False

    def close(self) -> None:
        if self._fd is not None:
            self.leave()
            os.close(self._fd)
            self._fd = None


class _Waiter:
    """A thread that stands in the kernel's queue for a lock, because such a wait cannot end after a time."""

    def __init__(self, path: Path) -> None:
        self._changes = threading.Lock()
        self._turn_came = threading.Event()
        self._stands = self._has_left = False
        self._fd = os.open(path, _OPEN, 0o600)

    def wait(self, until_s: float) -> bool:
        """Whether our turn came in time."""
        if not self._stands:
            thread = threading.Thread(target=self._stand, name="outlast-turn", daemon=True)
            self._stands = True
            try:
                thread.start()
            except RuntimeError:
                self._stands = False
                return False
        return self._turn_came.wait(max(until_s - time.monotonic(), 0))

    def _stand(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._changes:
            if self._has_left:
                self._give_back()
            self._turn_came.set()

    def leave(self) -> bool:
        """Give the lock back, now or when it comes; whether that was now."""
        with self._changes:
            is_over = self._turn_came.is_set() or not self._stands
            if is_over and not self._has_left:
                self._give_back()
            self._has_left = True
            return is_over

    def come_back(self) -> bool:
        """Take the place again that was left; False if its turn has come and gone."""
        with self._changes:
            if self._turn_came.is_set():
                return False
            self._has_left = False
            return True

    def _give_back(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # also for a forked child, which has a copy of the descriptor
        os.close(self._fd)
