"""Raw inotify through libc, and how many watches this process may hold: one kernel queue and its events.

What the events mean for a folder is in `watcher`."""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import struct
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, Q_OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ISDIR = 0x4000_0000
_ONLYDIR, _DONT_FOLLOW = 0x0100_0000, 0x0200_0000
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC

MASK = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
READ_BYTES = 1 << 16
QUARTER = 4
WATCHES_DEFAULT = 8192  # the kernel's default before it depended on the memory
_HEADER = struct.Struct("iIII")
_COUNT = struct.Struct("i")


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
    except AttributeError:
        raise OSError(errno.ENOSYS, "this system has no inotify") from None
    return libc


class Inotify:
    """One kernel queue of events. Closing it removes its watches."""

    def __init__(self) -> None:
        """Raises OSError: EMFILE if the user has no instance left."""
        self.fd: int = _libc().inotify_init1(_NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise _error()
        self._add = _libc().inotify_add_watch

    def add(self, place: bytes) -> int:
        """Watch a folder, without following a symlink as its last part; return the number of the watch.

        The number belongs to the folder, not to the name: a folder that is watched already has its old number.
        """
        wd: int = self._add(self.fd, place, MASK | _ONLYDIR | _DONT_FOLLOW)
        if wd < 0:
            raise _error(place)
        return wd

    def remove(self, wd: int) -> None:
        """Stop watching. An unknown number is fine: a folder that is gone has taken its watch with it."""
        _libc().inotify_rm_watch(self.fd, wd)

    def waiting_bytes(self) -> int:
        """How many bytes are queued now."""
        return int(_COUNT.unpack(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(_COUNT.size)))[0])

    def read(self) -> bytes:
        """Some whole events; empty if none is queued."""
        try:
            return os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Close the queue, once."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def events(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The events in the data: watch, mask, name in the watched folder (empty for the folder itself)."""
    at = 0
    while at < len(data):
        wd, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield wd, mask, data[at : at + length].rstrip(b"\0")
        at += length


def _error(place: bytes = b"") -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), os.fsdecode(place))


def quarter() -> int:
    """A quarter of the watches that the user may have: editors and build tools need the rest."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_bytes()) // QUARTER
    return WATCHES_DEFAULT // QUARTER


class Account:
    """How many watches all watchers of one process hold together."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.used = 0
        self._lock = threading.Lock()

    def change(self, by: int) -> int:
        """Count watches that were added or removed; return the new count."""
        with self._lock:
            self.used += by
            return self.used


_account = Account()


def account() -> Account:
    """This process's account. A forked child starts at zero: its parent's watches are not its own."""
    global _account
    if _account.pid != os.getpid():
        _account = Account()
    return _account
