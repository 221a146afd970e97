"""Writes git packs: no filters, no hooks, no loose objects, two fsyncs and one of the folder.

A pack becomes visible by renames, of which its index is the last. `sweep` removes what a killed writer leaves."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import TYPE_CHECKING, Self

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed
from outlast.store.durable import sync_folder
from outlast.workspace import nowhere
from outlast.workspace.git.objects import SHA1, SHA256, Algo
from outlast.workspace.git.rooms import rooms_in_use
from outlast.workspace.timing import Timing

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK_BYTES = 1 << 20
STREAM_BYTES = (
    1 << 18
)  # chunk of a large file: hashed, summed and written while it is in the processor's cache
STORED_FROM_BYTES = 8 << 20  # stored uncompressed; consolidation compresses them later
PROBE_BYTES = 64 << 10
KEEP_TEXT = b"outlast\n"
CONSOLIDATED = b"outlast consolidated\n"
TEMPORARY = "tmp_outlast_"
YOUNG_NS = 300_000_000

_KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_HEADER = struct.Struct(">4sII")
_LARGE = 1 << 31
_BLOCK = struct.Struct("<BHH")
_BLOCK_MAX = 0xFFFF
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_ATIME = getattr(os, "O_NOATIME", 0)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Moving(Exception):
    """A file changed while it was read, or since its stat. The pack is as it was before."""

    def __init__(self, path: bytes) -> None:
        super().__init__(f"{os.fsdecode(path)} changed while it was read")
        self.path = path


class Refused(Exception):
    """What looks at a file while it is read refuses it. The pack is as it was before."""


class Unreadable(SaveFailed):
    """One file of the workspace cannot be read. The pack is as it was before, and can still be used."""

    def __init__(self, path: bytes, error: OSError) -> None:
        super().__init__(f"cannot read {os.fsdecode(path)} to save it: {error.strerror}")
        self.path = path


# Looks at a chunk of a file, and is told whether it is the last; raises Refused.
Look = Callable[[bytes, bool], None]


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that is durable and visible to git."""

    path: Path
    objects: int
    size_bytes: int

    @property
    def index(self) -> Path:
        return self.path.with_suffix(".idx")


class PackWriter:
    """A pack being written. Leaving its block without `close` abandons it. For one thread.

    `known(oid)` says that an object is durable elsewhere, so that it is not written again. A correct `expect_objects`
    saves reading a pack of more than 1 MiB again at the end. With `lazy` the file is created when it is needed.
    """

    def __init__(
        self,
        folder: Path,
        algo: Algo,
        *,
        level: int = 1,
        known: Callable[[str], bool] | None = None,
        expect_objects: int = 0,
        lazy: bool = False,
    ) -> None:
        self._folder = folder
        self._algo = algo
        self._new = algo.new
        self._level = level
        self._known = known
        self._counted = expect_objects  # the count in the header
        self._entries: dict[str, tuple[int, int]] = {}  # oid: crc32, offset
        self._buffer = bytearray(_HEADER.pack(b"PACK", 2, expect_objects))
        self._flushed = 0  # bytes that are in the file and in the hash
        self._hash = algo.new()
        self._temporary = folder / f"{TEMPORARY}{os.getpid()}_{os.urandom(6).hex()}"
        self._made: list[Path] = []
        self._fds: list[int] = []
        self._fd = -1
        self._closed = False
        if not lazy:
            self._open()

    # --- objects ---

    def add(self, kind: str, data: bytes) -> str:
        """Write an object unless it is here already or known; return its oid."""
        oid = self._new(b"%b %d\0%b" % (kind.encode(), len(data), data)).hexdigest()
        self.add_named(oid, kind, data)
        return oid

    def add_named(self, oid: str, kind: str, data: bytes) -> None:
        """Write an object whose oid the caller has computed, unless it is here already or known."""
        if not self._has(oid):
            self._append(oid, _KINDS[kind], data)

    def add_file(
        self,
        path: bytes,
        *,
        expect: os.stat_result,
        dir_fd: int | None = None,
        look: Look | None = None,
    ) -> str:
        """Write a regular file's raw bytes, as they were when `expect` was its stat; return their oid.

        `look` gets the file in chunks while it is read; what it raises leaves the pack without the file.

        Raises Moving if the file is another one or changes meanwhile, and Unreadable if it may not be read; the pack is
        then without it. A rewrite of equal size within one tick of the file system's clock (some 4 ms) leaves the same
        stat: a caller that remembers a stat must look again at files that were written just before.
        """
        fd = _open(path, dir_fd)
        try:
            if not S_ISREG(expect.st_mode) or not _same(os.fstat(fd), expect):
                raise Moving(path)
            if expect.st_size <= CHUNK_BYTES:
                return self._add_small(fd, path, expect, look)
            return self._add_large(fd, path, expect, look)
        finally:
            os.close(fd)

    def _add_small(self, fd: int, path: bytes, expect: os.stat_result, look: Look | None) -> str:
        data = _read(fd, expect.st_size + 1, path)
        if len(data) != expect.st_size or not _same(os.fstat(fd), expect):
            raise Moving(path)
        if look is not None:
            look(data, True)
        return self.add("blob", data)

    def _add_large(self, fd: int, path: bytes, expect: os.stat_result, look: Look | None) -> str:
        """Read in chunks, hash and compress at once, and take it back out if the object was known."""
        self._flush()
        start, before = self._flushed, self._hash.copy()
        try:
            began_ns = time.time_ns()
            oid, crc = self._stream(fd, path, expect.st_size, look)
            if began_ns - expect.st_mtime_ns < YOUNG_NS:
                self._check_again(fd, path, expect.st_size, oid)
            if not _same(os.fstat(fd), expect):
                raise Moving(path)
        except (Moving, Refused, Unreadable):
            self._take_back(start, before)
            raise
        if self._has(oid):
            self._take_back(start, before)
        else:
            self._entries[oid] = crc, start
        return oid

    def _check_again(self, fd: int, path: bytes, size: int, oid: str) -> None:
        """A long write has the time of its beginning: a file changed just before may still be changing, unnoticed."""
        os.lseek(fd, 0, os.SEEK_SET)
        content = self._new(b"blob %d\0" % size)
        while chunk := _read(fd, STREAM_BYTES, path):
            content.update(chunk)
        if content.hexdigest() != oid:
            raise Moving(path)

    def _stream(self, fd: int, path: bytes, size: int, look: Look | None) -> tuple[str, int]:
        content = self._new(b"blob %d\0" % size)
        chunk = _read(fd, STREAM_BYTES, path)
        level = self._level_for(size, chunk)
        squeeze = zlib.compressobj(level) if level else _Stored()
        crc = self._put(_entry_header(_KINDS["blob"], size), 0)
        left = size
        while chunk:
            left -= len(chunk)
            if left < 0:
                break
            if look is not None:
                look(chunk, left == 0)
            content.update(chunk)
            crc = self._put(squeeze.compress(chunk), crc)
            chunk = _read(fd, STREAM_BYTES, path)
        if left:
            raise Moving(path)
        return content.hexdigest(), self._put(squeeze.flush(), crc)

    def _level_for(self, size: int, beginning: bytes) -> int:
        if size >= STORED_FROM_BYTES:
            return 0
        probe = beginning[:PROBE_BYTES]
        return self._level if len(zlib.compress(probe, self._level)) <= 0.9 * len(probe) else 0

    def holds(self, oid: str) -> bool:
        """Whether an object is in this pack."""
        return oid in self._entries

    def _has(self, oid: str) -> bool:
        return oid in self._entries or (self._known is not None and self._known(oid))

    def _append(self, oid: str, kind: int, data: bytes) -> None:
        level = self._level if len(data) <= PROBE_BYTES else self._level_for(len(data), data)
        entry = _entry_header(kind, len(data)) + zlib.compress(data, level)
        self._entries[oid] = zlib.crc32(entry), self._flushed + len(self._buffer)
        self._buffer += entry
        if len(self._buffer) >= CHUNK_BYTES:
            self._flush()

    def _put(self, data: bytes, crc: int) -> int:
        if len(data) >= STREAM_BYTES:  # saves one copy
            self._flush()
            self._write_out(data)
        else:
            self._buffer += data
            if len(self._buffer) >= CHUNK_BYTES:
                self._flush()
        return zlib.crc32(data, crc)

    # --- the file ---

    def _create(self, path: Path) -> int:
        """Create a locked file: a process that can lock it knows that its writer is gone."""
        fd = os.open(path, _CREATE, 0o444)
        self._made.append(path)
        self._fds.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def _open(self) -> None:
        try:
            self._fd = self._create(self._temporary)
        except OSError as error:
            raise self._failed(error) from error

    def _flush(self) -> None:
        assert not self._closed, "the pack is closed"
        if self._fd < 0:
            self._open()
        self._write_out(self._buffer)
        self._buffer = bytearray()

    def _write_out(self, data: bytes | bytearray) -> None:
        if self._counted:  # else the header will change, and the file is hashed at the end
            self._hash.update(data)
        try:
            _write(self._fd, data)
        except OSError as error:
            raise self._failed(error) from error
        self._flushed += len(data)

    def _take_back(self, start: int, before: _Hash) -> None:
        self._buffer = bytearray()
        self._flushed = start
        self._hash = before
        try:
            os.ftruncate(self._fd, start)
            os.lseek(self._fd, start, os.SEEK_SET)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> SaveFailed:
        self.abandon()
        return SaveFailed(f"cannot write the save's pack {self._temporary}: {error.strerror}")

    def close(self) -> Pack | None:
        """Make the pack durable and then visible; it is both when this returns. None if nothing was added."""
        if not self._entries:
            self.abandon()
            return None
        trailer = self._finish()
        try:
            pack = self._publish(trailer)
        except OSError as error:
            raise self._failed(error) from error
        self.abandon()
        faults.point("save.packed")
        return pack

    def _finish(self) -> bytes:
        """Fix the count in the header and write the trailer; return the pack's hash."""
        count = len(self._entries)
        header = _HEADER.pack(b"PACK", 2, count)
        if not self._flushed:
            self._buffer[: len(header)] = header
            self._counted = count
        self._flush()
        try:
            if self._counted != count:
                os.pwrite(self._fd, header, 0)
                self._hash = _hash_of_file(self._fd, self._algo)
            trailer = self._hash.digest()
            _write(self._fd, trailer)
        except OSError as error:
            raise self._failed(error) from error
        self._flushed += len(trailer)
        return trailer

    def _publish(self, trailer: bytes) -> Pack:
        """Make everything durable, then visible. The index comes last: git looks for nothing else.

        A pack of the same name has the same bytes, so replacing one is harmless.
        """
        index, keep = Path(f"{self._temporary}.idx"), Path(f"{self._temporary}.keep")
        index_fd = self._create(index)
        _write(index_fd, index_bytes(self._entries, trailer, self._algo))
        _write(self._create(keep), KEEP_TEXT)
        os.fsync(self._fd)
        os.fsync(index_fd)
        faults.point("save.pack_written")
        name = self._folder / f"pack-{trailer.hex()}"
        try:
            for temporary, suffix in ((keep, ".keep"), (self._temporary, ".pack"), (index, ".idx")):
                os.rename(temporary, f"{name}{suffix}")
                self._made.remove(temporary)
        except OSError:
            if not os.path.exists(f"{name}.idx"):  # else a pack of this name existed, and git reads it
                self._made += [Path(f"{name}.pack"), Path(f"{name}.keep")]
            raise
        sync_folder(self._folder)
        return Pack(Path(f"{name}.pack"), len(self._entries), self._flushed)

    def abandon(self) -> None:
        """Remove temporary files and close open ones. Does nothing after `close`."""
        for path in self._made:
            path.unlink(missing_ok=True)
        for fd in self._fds:
            os.close(fd)
        self._made, self._fds, self._fd, self._closed = [], [], -1, True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()


# --- reading files ---

_GONE = nowhere.ERRNOS | {errno.ENXIO, errno.ENODEV, errno.ESTALE}


def _open(path: bytes, dir_fd: int | None) -> int:
    """Open without following a link, without waiting for a pipe, and without changing the access time if allowed."""
    try:
        try:
            return os.open(path, _OPEN | _NO_ATIME, dir_fd=dir_fd)
        except PermissionError as error:
            if error.errno != errno.EPERM or not _NO_ATIME:
                raise
            return os.open(path, _OPEN, dir_fd=dir_fd)  # O_NOATIME is allowed only to the owner
    except OSError as error:
        if error.errno in _GONE:
            raise Moving(path) from error
        raise Unreadable(path, error) from error


def _same(now: os.stat_result, then: os.stat_result) -> bool:
    return (
        now.st_ctime_ns == then.st_ctime_ns
        and now.st_mtime_ns == then.st_mtime_ns
        and now.st_size == then.st_size
        and now.st_ino == then.st_ino
        and S_ISREG(now.st_mode)
    )


def _read(fd: int, size: int, path: bytes) -> bytes:
    """Read up to `size` bytes. Some file systems return fewer than asked for before the end."""
    try:
        data = os.read(fd, size)
        while data and len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
    except OSError as error:
        raise Unreadable(path, error) from error
    return data


# --- the format ---


class _Stored:
    """A zlib stream without compression, made several times as fast as zlib does."""

    def __init__(self) -> None:
        self._sum = 1
        self._head = b"\x78\x01"

    def compress(self, data: bytes) -> bytes:
        self._sum = zlib.adler32(data, self._sum)
        view = memoryview(data)
        parts: list[bytes | memoryview] = [self._head]
        for start in range(0, len(data), _BLOCK_MAX):
            block = view[start : start + _BLOCK_MAX]
            parts += [_BLOCK.pack(0, len(block), len(block) ^ 0xFFFF), block]
        self._head = b""
        return b"".join(parts)

    def flush(self) -> bytes:
        return self._head + _BLOCK.pack(1, 0, 0xFFFF) + self._sum.to_bytes(4)


def _entry_header(kind: int, size: int) -> bytes:
    """An entry's kind and size, seven bits at a time after the first four."""
    byte, size = kind << 4 | size & 15, size >> 4
    header = bytearray()
    while size:
        header.append(byte | 128)
        byte, size = size & 127, size >> 7
    header.append(byte)
    return bytes(header)


def _write(fd: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _hash_of_file(fd: int, algo: Algo) -> _Hash:
    found, at = algo.new(), 0
    while chunk := os.pread(fd, CHUNK_BYTES, at):
        found.update(chunk)
        at += len(chunk)
    return found


def index_bytes(entries: Mapping[str, tuple[int, int]], trailer: bytes, algo: Algo) -> bytes:
    """A version 2 index of a pack: `entries` gives crc32 and offset by oid."""
    oids = sorted(entries)
    firsts = Counter(int(oid[:2], 16) for oid in oids)
    fanout = accumulate(firsts[byte] for byte in range(256))
    crcs, offsets, large = [], [], []
    for crc, offset in map(entries.__getitem__, oids):
        crcs.append(crc)
        if offset >= _LARGE:
            large.append(offset)
            offset = _LARGE | (len(large) - 1)
        offsets.append(offset)
    count = len(oids)
    body = b"".join(
        (
            struct.pack(">4sI256I", b"\xfftOc", 2, *fanout),
            bytes.fromhex("".join(oids)),
            struct.pack(f">{count}I{count}I", *crcs, *offsets),
            struct.pack(f">{len(large)}Q", *large),
            trailer,
        )
    )
    return body + algo.new(body).digest()


def read_pack_index(path: Path) -> list[str]:
    """The oids in a pack, sorted, from its index. Raises SaveDamaged if the index is not whole."""
    data = path.read_bytes()
    algo = SHA256 if len(path.stem) == len("pack-") + SHA256.hex_length else SHA1
    length = algo.raw_length
    start = 8 + 256 * 4
    if data[:8] != b"\xfftOc\0\0\0\2" or algo.new(data[:-length]).digest() != data[-length:]:
        raise SaveDamaged(f"the index {path} is not whole")
    (count,) = struct.unpack_from(">I", data, start - 4)
    return [data[at : at + length].hex() for at in range(start, start + count * length, length)]


# --- what killed writers leave ---


def sweep(folder: Path) -> int:
    """Remove what killed writers left: temporary files, and packs of ours without an index; return how many files."""
    removed = 0
    for path in _temporaries(folder):
        if not _writer_lives(path):
            removed += _unlink(path)
    for keep in list(folder.glob("pack-*.keep")):
        removed += _remove_lone(folder, keep)
    return removed


def _temporaries(folder: Path) -> list[Path]:
    return [folder / name for name in os.listdir(folder) if name.startswith(TEMPORARY)]


def _writer_lives(path: Path) -> bool:
    """Whether the writer lives, by its lock. A file younger than a minute may not be locked yet if its writer's pid exists.

    The pid alone is not enough: after a reboot, or in another container, another process has it.
    """
    pid = path.name.removeprefix(TEMPORARY).partition("_")[0]
    try:
        age_s = abs(time.time() - os.lstat(path).st_mtime)
        if os.path.exists(f"/proc/{pid}") and age_s < Timing.current().temporary_s:
            return True
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _remove_lone(folder: Path, keep: Path) -> int:
    """Remove a pack that never got its index.

    A living writer may be between its renames: then its index is still temporary, or already in place. So this lists the
    temporary files first, and looks at the place after that.
    """
    try:
        if keep.with_suffix(".idx").exists() or not _is_ours(keep):
            return 0
    except FileNotFoundError:
        return 0
    if _temporaries(folder) or rooms_in_use(folder.parent.parent) or keep.with_suffix(".idx").exists():
        return 0
    return _unlink(keep.with_suffix(".pack")) + _unlink(keep)  # the mark that it is ours goes last


def _is_ours(keep: Path) -> bool:
    """Whether a pack is ours, by the text of its `.keep`. A power cut may leave that empty, so an old empty one counts."""
    text = keep.read_bytes()
    return (
        text == KEEP_TEXT
        or text.startswith(CONSOLIDATED)
        or (not text and time.time() - keep.stat().st_mtime > Timing.current().empty_keep_s)
    )


def _unlink(path: Path) -> int:
    try:
        path.unlink()
    except FileNotFoundError:
        return 0
    return 1
