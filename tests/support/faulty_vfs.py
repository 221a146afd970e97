"""A disk that fails: the N-th write, sync, truncate, open or delete of SQLite's raises, once or from then on.

    with FaultyVFS("faulty", Fault("sync", nth)) as vfs:
        ...                                     # open the database with vfs="faulty"
    if vfs.fired is None: the run met no fault, the loop over nth ends

The counter is one for all files and connections. Temporary files and shared memory are left alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import apsw

Op = Literal["write", "sync", "truncate", "open", "delete"]
Error = Literal["EIO", "ENOSPC"]
Done = Literal["none", "half", "all"]

_EIO_OF: dict[Op, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "open": apsw.SQLITE_CANTOPEN,
    "delete": apsw.SQLITE_IOERR_DELETE,
}


@dataclass(frozen=True, slots=True)
class DiskFault:
    """What goes wrong: the nth op of that kind, having done none, half (of a write) or all of it."""

    op: Op
    nth: int
    error: Error = "EIO"
    done: Done = "none"
    persistent: bool = False
    suffix: str = ""  # only files whose name ends so: "-wal", ".db"


class FaultyVFS(apsw.VFS):
    """SQLite's default VFS with one fault in it. Unregistered at the end of the block."""

    def __init__(self, name: str, fault: DiskFault | None = None) -> None:
        self.fault = fault
        self.met: dict[Op, int] = dict.fromkeys(_EIO_OF, 0)
        self.fired: str | None = None  # the file it struck first
        self._lock = threading.Lock()
        super().__init__(name, base="")

    def strikes(self, op: Op, path: str) -> bool:
        """Count the op; True when it must fail."""
        with self._lock:
            fault = self.fault
            if fault is not None and not path.endswith(fault.suffix):
                return False
            self.met[op] += 1
            if fault is None or fault.op != op:
                return False
            count = self.met[op]
            if count != fault.nth and not (fault.persistent and count > fault.nth):
                return False
            self.fired = self.fired or path
            return True

    def error(self, op: Op, path: str) -> Exception:
        assert self.fault is not None, "only a fault makes errors"
        error = apsw.exception_for(apsw.SQLITE_FULL if self.fault.error == "ENOSPC" else _EIO_OF[op])
        error.args = (f"injected: {self.fault.error} at {op} {self.fault.nth} of {path}",)
        return error

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            return apsw.VFSFile("", name, flags)
        if self.strikes("open", path):
            raise self.error("open", path)
        return _FaultyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        strikes = self.strikes("delete", filename)
        if not strikes or self.done == "all":
            super().xDelete(filename, syncdir)
        if strikes:
            raise self.error("delete", filename)

    def excepthook(self, *_: object) -> bool:
        return True  # apsw would print the error here; SQLite reports it to the caller as well

    @property
    def done(self) -> Done:
        return self.fault.done if self.fault is not None else "all"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, vfs: FaultyVFS, path: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._vfs = vfs
        self._path = path
        super().__init__("", name, flags)

    def excepthook(self, *_: object) -> bool:
        return True

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        strikes = self._vfs.strikes("write", self._path)
        if not strikes or self._vfs.done == "all":
            super().xWrite(data, offset)
        elif self._vfs.done == "half":
            super().xWrite(bytes(data)[: len(data) // 2], offset)
        if strikes:
            raise self._vfs.error("write", self._path)

    def xSync(self, flags: int) -> None:  # noqa: N802
        strikes = self._vfs.strikes("sync", self._path)
        if not strikes or self._vfs.done == "all":
            super().xSync(flags)
        if strikes:
            raise self._vfs.error("sync", self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        strikes = self._vfs.strikes("truncate", self._path)
        if not strikes or self._vfs.done == "all":
            super().xTruncate(newsize)
        if strikes:
            raise self._vfs.error("truncate", self._path)
