"""Who is alive: process identity, boot time, and the lock files that prove a holder's life.

See `RunLock` for the lock file; `sqlite/leases.py` decides who may claim a run."""

import contextlib
import fcntl
import functools
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from outlast.errors import StoreRefused
from outlast.store.protocol import Holder
from outlast.store.timing import Timing

LOCK_TRIES = 3
_FILE_BYTES = 64
_MARK_BYTES = 21
_REQUEST_FLAG_AT = 32
_SESSION_AT, _SESSION_BYTES = 40, 16
_THREADS = 16  # in /proc/PID/stat, counted from the field behind the state


def boottime_s() -> float:
    """Seconds since boot, counting suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@functools.cache
def boot_id() -> str:
    """The id of this boot, unlike every other's."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


def myself() -> Holder:
    """The identity of this process."""
    pid = os.getpid()
    return Holder(os.uname().nodename, pid, start_ticks(pid), boot_id(), pid_ns(), datetime.now(UTC))


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if it is unknown or dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def pid_ns() -> str:
    """The pid namespace; a pid means nothing without it."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_here(holder: Holder) -> bool:
    """Whether the holder's pid is still that very process on this host."""
    me = myself()
    same_place = (holder.host, holder.boot_id, holder.pid_ns) == (me.host, me.boot_id, me.pid_ns)
    return same_place and holder.start_ticks != 0 and start_ticks(holder.pid) == holder.start_ticks


def kill_frozen(holder: Holder) -> bool:
    """SIGKILL exactly that process if it is stopped, and wait until it is gone; False if that is not possible."""
    if not is_here(holder) or holder.pid == os.getpid() or process_state(holder.pid) not in "Tt":
        return False
    try:
        os.kill(holder.pid, signal.SIGKILL)
    except OSError:
        return False
    timing = Timing.current()
    deadline = boottime_s() + timing.frozen_kill_s
    while is_here(holder) and not _has_ended(holder.pid):
        if boottime_s() > deadline:
            return False
        time.sleep(timing.frozen_look_s)
    return True


def _has_ended(pid: int) -> bool:
    """Whether every thread of a process has ended. While one is left its files are open, and its locks held."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return state in "ZX" and int(fields[_THREADS]) <= 1


def process_state(pid: int) -> str:
    """The kernel's letter for a process's state; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class RunLock:
    """The lock file of a run held by this process, mapped into memory: setting its mark and reading its flag are free.

    The kernel drops an flock when its process dies, so a free lock proves death at once. The file also carries the mark
    (the number of the last event acknowledged to this run) and the flag that requests wait.
    """

    def __init__(self, fd: int, act_fd: int, path: Path) -> None:
        """Map a locked file. The map has its own descriptor, which keeps the lock; the caller closes the given one.

        So the lock falls with the map, even if Ctrl-C left nobody to close it.
        """
        _make_room(fd)
        self.path = path
        self._map = mmap.mmap(fd, _FILE_BYTES)
        self._act_fd = act_fd
        self._acting = 0
        self._closing = self._closed = False
        self._mutex = threading.Lock()

    def mark(self, n: int) -> None:
        """Note the highest event number acknowledged to this run. Survives a kill, not a power cut."""
        if not self._closed:
            self._map[:_MARK_BYTES] = b"%020d\n" % n

    @property
    def is_acting(self) -> bool:
        """Whether this process is performing an act."""
        return self._acting > 0

    def request_waits(self) -> bool:
        """Whether somebody put a request since the flag was cleared."""
        return not self._closed and self._map[_REQUEST_FLAG_AT] != 0

    def set_request_flag(self, waits: bool) -> None:
        """Set or clear the flag."""
        if not self._closed:
            self._map[_REQUEST_FLAG_AT] = waits

    def set_session(self, session: bytes) -> None:
        """Note which session of a shared store is about to claim the run under this lock."""
        if not self._closed:
            self._map[_SESSION_AT : _SESSION_AT + _SESSION_BYTES] = session

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Hold the act lock, shared among this process's acts. A process that takes over waits for it, or kills us."""
        counted = False
        try:
            with self._mutex:
                self._require_open()
                if self._acting == 0:
                    fcntl.flock(self._act_fd, fcntl.LOCK_SH)
                self._acting += 1
                counted = True
            yield
        finally:
            if (
                counted
            ):  # no call before the countdown: Ctrl-C could strike there, and the run would stay held
                with self._mutex:
                    self._acting -= 1
                    if self._acting == 0 and not self._closed:
                        fcntl.flock(self._act_fd, fcntl.LOCK_UN)
                        if self._closing:
                            self._close()

    def hold_acts(self) -> bool:
        """Keep others from taking the run over until `free_acts`; False if one is doing so now."""
        return _locked(self._act_fd)

    def free_acts(self) -> None:
        """Release what `hold_acts` took."""
        fcntl.flock(self._act_fd, fcntl.LOCK_UN)

    def _require_open(self) -> None:
        if self._closing:  # its descriptor may belong to another run by now
            raise StoreRefused("the run was released", hint="use it inside its `with` block")

    def close(self) -> None:
        """Release the run, at once or when the last act in progress has ended."""
        with self._mutex:
            self._closing = True
            if self._acting == 0:
                self._close()

    def abandon(self) -> None:
        """In a forked child: release at once, whatever the parent's threads are doing.

        The child keeps the act lock's file open without a lock: it may do an act of the parent, and is found by it.
        """
        self._close()
        with contextlib.suppress(OSError):
            os.open(_act_path(self.path), os.O_RDONLY | os.O_CLOEXEC)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._map.close()
        with contextlib.suppress(OSError):
            os.close(self._act_fd)


class Mark:
    """The number of the last event that the whole store acknowledged, in its own file. Not set when `reading`."""

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        if reading:
            return
        fd = _open(path)
        try:
            _make_room(fd)
            self._map = mmap.mmap(fd, _FILE_BYTES)
        finally:
            os.close(fd)

    def set(self, n: int) -> None:
        """Note a number, never a lower one. Survives a kill, not a power cut."""
        assert self._map is not None, "a store open for reading acknowledges nothing"
        noted = b"%020d\n" % n
        if self._map[:_MARK_BYTES] < noted:
            self._map[:_MARK_BYTES] = noted

    def close(self) -> None:
        """Close the file."""
        if self._map is not None:
            self._map.close()


def _make_room(fd: int) -> None:
    """Allocate a file's blocks now: writing through a map to a full disk would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, _FILE_BYTES)
    else:
        os.ftruncate(fd, _FILE_BYTES)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(path: Path) -> RunLock | None:
    """The run's lock, or None if somebody alive holds it. Tries several times: readers look by locking for an instant."""
    tries = 0
    while tries < LOCK_TRIES:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                return RunLock(fd, _open(_act_path(path)), path)
        except BlockingIOError:
            tries += 1
            time.sleep(Timing.current().lock_retry_s)
        finally:
            os.close(fd)
    return None


def hold_acts(path: Path) -> int | None:
    """Keep a run's holder from beginning an act while it is overtaken; None if it is inside one."""
    act_fd = _open(_act_path(path))
    if _locked(act_fd):
        return act_fd
    os.close(act_fd)
    return None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def seize(path: Path, act_fd: int) -> RunLock:
    """Replace the lock of an overtaken holder by our own, then let acts begin again.

    The overtaken holder keeps its lock on the old file, which has no name any more. The caller holds the act lock and is
    therefore alone here, so the fresh file has one name; an existing one was left by a process killed during a takeover.
    """
    sweep(path)
    fresh = path.with_suffix(".new")
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, b"%020d\n" % read_mark(path), 0)
        os.replace(fresh, path)
        fcntl.flock(act_fd, fcntl.LOCK_UN)
        return RunLock(fd, act_fd, path)
    finally:
        os.close(fd)


def sweep(path: Path) -> None:
    """Remove what a takeover left that was killed. Only with the act lock held, or after a gc."""
    path.with_suffix(".new").unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove all lock files of a forgotten run."""
    path.unlink(missing_ok=True)
    _act_path(path).unlink(missing_ok=True)
    sweep(path)


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


def ring(path: Path) -> None:
    """Tell the holder, if there is one, that a request waits. Only a hint: the heartbeat reads the inbox too."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(fd, b"\1", _REQUEST_FLAG_AT)
        finally:
            os.close(fd)


def read_mark(path: Path) -> int:
    """The number in a lock file; 0 if there is none or it is torn."""
    try:
        text = path.read_bytes()[:_MARK_BYTES].strip(b"\0\n ")
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def read_session(path: Path) -> bytes:
    """The session that claimed under this lock last; empty if there is none."""
    try:
        found = path.read_bytes()[_SESSION_AT : _SESSION_AT + _SESSION_BYTES]
    except OSError:
        return b""
    return found if any(found) else b""


def _act_path(path: Path) -> Path:
    return path.with_suffix(".act")


def _is_at(fd: int, path: Path) -> bool:
    try:
        here, there = os.fstat(fd), os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
