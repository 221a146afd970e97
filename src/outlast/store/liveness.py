"""Who is alive: process identity, boot time, and the lock files that prove a holder is not dead.

The kernel drops an flock when its process dies, so a free lock proves death at once; a held one means waiting for
the lease. The lock file also carries the mark: the number of the last event that was acknowledged to this run.
"""

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from outlast.store.protocol import Holder

KILL_WAIT_S = 5.0


def boottime_s() -> float:
    """Seconds since boot, counting suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def boot_id() -> str:
    """What tells this boot from every other."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


def myself() -> Holder:
    """The identity of this process."""
    pid = os.getpid()
    return Holder(os.uname().nodename, pid, start_ticks(pid), boot_id(), pid_ns(), datetime.now(UTC))


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where unknown or dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def pid_ns() -> str:
    """The pid namespace, without which a pid means nothing."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_here(holder: Holder) -> bool:
    """Whether the holder's pid still means that very process on this host."""
    me = myself()
    same_place = (holder.host, holder.boot_id, holder.pid_ns) == (me.host, me.boot_id, me.pid_ns)
    return same_place and holder.start_ticks != 0 and start_ticks(holder.pid) == holder.start_ticks


def kill(holder: Holder) -> bool:
    """SIGKILL exactly that process and wait until it is gone; False where that cannot be done safely."""
    if not is_here(holder) or holder.pid == os.getpid():
        return False
    try:
        os.kill(holder.pid, signal.SIGKILL)
    except OSError:
        return False
    deadline = boottime_s() + KILL_WAIT_S
    while is_here(holder) and not _is_zombie(holder.pid):
        if boottime_s() > deadline:
            return False
        time.sleep(0.01)
    return True


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class RunLock:
    """The lock file of a run held by this process, and its mark."""

    def __init__(self, fd: int, act_fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path
        self._act_fd = act_fd
        self._acting = 0
        self._mutex = threading.Lock()

    def mark(self, n: int) -> None:
        """Note the highest event number acknowledged to this run; survives a kill, not a power cut."""
        os.pwrite(self.fd, b"%020d\n" % n, 0)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Shared among the acts of this process; a taker waits for it or kills us in it."""
        with self._mutex:
            if self._acting == 0:
                fcntl.flock(self._act_fd, fcntl.LOCK_SH)
            self._acting += 1
        try:
            yield
        finally:
            with self._mutex:
                self._acting -= 1
                if self._acting == 0:
                    fcntl.flock(self._act_fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go: the run is free."""
        for fd in (self.fd, self._act_fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(path: Path) -> RunLock | None:
    """The run's lock if nobody alive holds it."""
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if _is_at(fd, path):
            return RunLock(fd, _open(_act_path(path)), path)
        os.close(fd)


def seize(path: Path) -> RunLock | None:
    """Take the lock's place from a holder whose lease is over, unless it is frozen inside an act.

    The frozen holder keeps its lock on the old file, which no name leads to any more.
    """
    act_fd = _open(_act_path(path))
    try:
        fcntl.flock(act_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(act_fd)
        return None
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fd = _open(fresh)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.pwrite(fd, b"%020d\n" % read_mark(path), 0)
    os.replace(fresh, path)
    fcntl.flock(act_fd, fcntl.LOCK_UN)
    return RunLock(fd, act_fd, path)


def is_locked(path: Path) -> bool:
    """Whether somebody alive holds the run's lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def read_mark(path: Path) -> int:
    """The number in a lock file; 0 where there is none or it was torn."""
    try:
        text = path.read_bytes()[:21].strip(b"\0\n ")
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _act_path(path: Path) -> Path:
    return path.with_suffix(".act")


def _is_at(fd: int, path: Path) -> bool:
    try:
        here, there = os.fstat(fd), os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
