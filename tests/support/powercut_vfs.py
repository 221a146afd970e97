"""A disk that loses power: what SQLite wrote and did not sync can be dropped, kept in part, or torn.

The VFS keeps, beside the real files, a model of the disk: each file's durable content, its writes since its last
sync, and the folder entries made or removed since the folder's last sync. `cut` lays out another folder as the disk
would be found after a cut at this instant; it changes nothing and can be called at every operation. `arm` cuts at
the N-th operation and kills the process with -9, for programs that touch more of the world than a database.

The real files are never synced (that is only slow here). Shared memory does not survive. Files under the root that
SQLite did not write are copied as they are: for those, `loopdisk` is the judge. One process at a time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

import apsw

How = Literal["drop", "prefix", "torn", "subset", "keep"]
HOWS: tuple[How, ...] = get_args(How)
SECTOR_BYTES = 512

_JOURNAL = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written at an offset."""

    offset: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> Write | None:
        """What a cut in the middle leaves: the sectors on one side of a boundary; a single sector: all or nothing."""
        end = self.offset + len(self.data)
        first = (self.offset // SECTOR_BYTES + 1) * SECTOR_BYTES
        boundaries = range(first, end, SECTOR_BYTES)
        if not boundaries:
            return rng.choice((self, None))
        at = rng.choice(boundaries)
        head = Write(self.offset, self.data[: at - self.offset])
        tail = Write(at, self.data[at - self.offset :])
        return rng.choice((head, head, tail))


@dataclass(frozen=True, slots=True)
class Truncate:
    """A change of length."""

    size: int

    def apply(self, content: bytearray) -> None:
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))

    def torn(self, rng: random.Random) -> Truncate | None:
        return rng.choice((self, None))


@dataclass(eq=False, slots=True)
class _Inode:
    """A file apart from its name."""

    durable: bytearray
    pending: list[Write | Truncate] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.pending:
            op.apply(self.durable)
        self.pending.clear()

    def after_cut(self, how: How, rng: random.Random) -> bytes:
        content = bytearray(self.durable)
        for op in _survivors(self.pending, how, rng):
            op.apply(content)
        return bytes(content)


def _survivors(
    pending: Sequence[Write | Truncate], how: How, rng: random.Random
) -> Sequence[Write | Truncate]:
    match how:
        case "drop":
            return ()
        case "keep":
            return pending
        case "subset":
            return [op for op in pending if rng.random() < 0.5]
        case "prefix":
            return pending[: rng.randint(0, len(pending))]
        case "torn":
            whole = list(pending[: rng.randint(0, len(pending))])
            last = whole.pop().torn(rng) if whole else None
            return whole if last is None else [*whole, last]


class PowerCutVFS(apsw.VFS):
    """SQLite's default VFS over a modelled disk. Unregistered at the end of the block.

    A sync of a file also makes folder entries durable, as ext4's journal does; with `strict` only what POSIX
    promises: SQLite's own folder syncs (new journals, synced deletes) and `sync_folder`.
    """

    def __init__(self, name: str, root: Path, *, strict: bool = False) -> None:
        self.ops = 0
        self.before_op: Callable[[int], None] | None = (
            None  # called with the number of the op about to be done
        )
        self._root = Path(os.path.realpath(root))
        self._strict = strict
        self._lock = threading.RLock()
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._pending_names: list[tuple[str, _Inode | None]] = []
        super().__init__(name, base="")

    def cut(self, into: Path, how: How = "drop", seed: int = 0) -> Path:
        """Lay out in `into` (made here) what the disk holds after a cut now; the same seed, the same disk."""
        rng = random.Random(f"{how}:{seed}")
        with self._lock:
            names = dict(self._durable_names)
            kept = {"drop": 0, "keep": len(self._pending_names)}
            for path, inode in self._pending_names[: kept.get(how, rng.randint(0, len(self._pending_names)))]:
                _set_entry(names, path, inode)
            known = {*self._names, *names}
            shutil.copytree(self._root, into, ignore=lambda at, found: _not_ours(at, found, known))
            for path, inode in sorted(names.items()):
                target = into / os.path.relpath(path, self._root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(inode.after_cut(how, rng))
        return into

    def arm(self, nth: int, into: Path, how: How = "drop", seed: int = 0) -> None:
        """Cut before the n-th operation from the beginning is done, and kill this process with -9."""

        def before(op: int) -> None:
            if op == nth:
                self.cut(into, how, seed)
                os.kill(os.getpid(), signal.SIGKILL)

        self.before_op = before

    def sync_folder(self) -> None:
        """Say that the root was fsynced by other means than SQLite: all folder entries are durable."""
        with self._lock:
            for path, inode in self._pending_names:
                _set_entry(self._durable_names, path, inode)
            self._pending_names.clear()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            return apsw.VFSFile("", name, flags)
        with self._lock:
            there = os.path.exists(path)
            if not there:
                self._step()
            file = _File(self, name, flags)
            file.enter(self._inode(path, there), new=not there)
            return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self._lock:
            self._step()
            super().xDelete(filename, False)
            self._names.pop(filename, None)
            self._pending_names.append((filename, None))
            if syncdir:
                self.sync_folder()

    def write(self, inode: _Inode, op: Write | Truncate, perform: Callable[[], None]) -> None:
        with self._lock:
            self._step()
            perform()
            inode.pending.append(op)

    def sync(self, inode: _Inode, *, new_journal: bool) -> None:
        with self._lock:
            self._step()
            inode.sync()
            if new_journal or not self._strict:
                self.sync_folder()

    def _step(self) -> None:
        self.ops += 1
        if self.before_op is not None:
            self.before_op(self.ops)

    def _inode(self, path: str, there: bool) -> _Inode:
        if path not in self._names:
            inode = _Inode(bytearray(Path(path).read_bytes() if there else b""))
            self._names[path] = inode
            if there:
                self._durable_names[path] = inode
            else:
                self._pending_names.append((path, inode))
        return self._names[path]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()


def _set_entry(names: dict[str, _Inode], path: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(path, None)
    else:
        names[path] = inode


def _not_ours(at: str, found: list[str], known: set[str]) -> list[str]:
    return [name for name in found if name.endswith("-shm") or os.path.join(at, name) in known]


class _File(apsw.VFSFile):
    def __init__(self, vfs: PowerCutVFS, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        self._journal = bool(flags[0] & _JOURNAL)
        super().__init__("", name, flags)

    def enter(self, inode: _Inode, *, new: bool) -> None:
        """Take its place in the model, once it is known to have opened."""
        self._inode = inode
        self._new_journal = self._journal and new

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        data = bytes(data)
        perform = super().xWrite
        self._vfs.write(self._inode, Write(offset, data), lambda: perform(data, offset))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        perform = super().xTruncate
        self._vfs.write(self._inode, Truncate(newsize), lambda: perform(newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.sync(self._inode, new_journal=self._new_journal)
        self._new_journal = False
