"""Durable folders, files and blobs: written to disk before anything relies on them."""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from outlast import faults
from outlast.errors import StoreCorrupt, StoreGone, StoreRefused

NETWORK_TYPES = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs lustre ncpfs gfs2 ocfs2 fuse.sshfs fuse.s3fs fuse.rclone".split()
)
BALLAST_BYTES = 1 << 20
WRITABLE = "point --store or OUTLAST_STORE to a folder you may write"
ONLY_READ = "make it writable, or show it read-only with `outlast ui --read-only`"
_OCTAL = re.compile(r"\\([0-7]{3})")


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_plain(path: Path | bytes) -> bytes:
    """The bytes of a regular file or of a link to one. Anything else, such as a pipe, is refused instead of waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        file_stat = os.fstat(fd)
        if stat.S_ISDIR(file_stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
        if not stat.S_ISREG(file_stat.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(path))
        return file.read()


def sync_upwards(path: Path) -> None:
    """Make a folder's own name durable, and the names of all folders above it that we may open."""
    for folder in (path, *path.parents):
        with contextlib.suppress(PermissionError):
            sync_folder(folder)


def make_folder(path: Path) -> None:
    """Create a private folder and fsync every new name, up to the first folder that existed."""
    missing = []
    here = path
    while not here.exists():
        missing.append(here)
        here = here.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def fs_type(path: Path) -> str:
    """The file system type of a path, from the mount table; empty if unknown."""
    try:
        lines = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, found = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = _OCTAL.sub(lambda found: chr(int(found[1], 8)), left.split()[4])
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, found = mount, right.split()[0]
    return found


def refuse_network(path: Path) -> None:
    """Raise StoreRefused for a network file system: its locks and flushes are not reliable."""
    kind = fs_type(path)
    if kind in NETWORK_TYPES:
        raise StoreRefused(
            f"the store {path} is on {kind}, whose locks and flushes are not reliable",
            hint="put it on a local disk with --store or OUTLAST_STORE",
        )


def store_refused(path: Path, error: OSError) -> StoreRefused:
    """The error for a part of a store that cannot be created or opened."""
    hint = ONLY_READ if error.errno == errno.EROFS else WRITABLE
    return StoreRefused(f"cannot use the store {path}: {error.strerror or error}", hint=hint)


def require_file(path: Path) -> None:
    """Raise StoreRefused where something else lies in the place of a file: a pipe would be waited for without end."""
    mode = path.stat().st_mode if path.exists() else stat.S_IFREG
    if not stat.S_ISREG(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise StoreRefused(
            f"cannot use the store {path}: it is {what}, not a database file", hint="move it away, or name another --store"
        )  # fmt: skip


_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def write_durably(path: Path, data: bytes) -> None:
    """Write a private file durably and atomically: after a kill or a power cut there is the old content or the new."""
    _replace(path, data, flushed=True)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Write a private file atomically: after a kill there is the old content or the new. Waits for no disk."""
    _replace(path, data, flushed=False)


def _replace(path: Path, data: bytes, *, flushed: bool) -> None:
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _write_all(fd, data)
        if flushed:
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def append(path: Path, data: bytes, *, at: int) -> None:
    """Append to a private file whose good content ends at `at`: what a failed append left after that is cut off.

    It survives a kill, and a power cut after `flush`.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.ftruncate(fd, at)
        os.lseek(fd, at, os.SEEK_SET)
        _write_all(fd, data)
    finally:
        os.close(fd)


def flush(path: Path) -> None:
    """Make the content of a file durable, not its name."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _name(data: bytes) -> str:
    import hashlib

    return hashlib.blake2b(data, digest_size=32).hexdigest()


class Ballast(Protocol):
    """Room on the disk that can be released once."""

    def make_room(self) -> None:
        """The disk is full: release the room."""


class FolderBlobs:
    """Content-addressed payloads, one file each, in a folder."""

    def __init__(self, root: Path, ballast: Ballast) -> None:
        self._root = root
        self._ballast = ballast
        self._durable: dict[str, int] | None = None  # folders whose names are durable, with their inodes

    def put(self, data: bytes) -> str:
        """Store a payload and return its digest. Durable when it returns."""
        digest = _name(data)
        path = self._path(digest)
        try:
            self._put(path, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._ballast.make_room()
            self._put(path, data)
        faults.point("blob.written")
        return digest

    def _put(self, path: Path, data: bytes) -> None:
        self._make_folder(path.parent)
        with self._lock(fcntl.LOCK_SH):
            if path.exists():
                os.utime(path)
                sync_folder(path.parent)  # its writer may have been killed before this
                return
        temporary = path.parent / f".{os.urandom(8).hex()}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, data)
            os.fsync(fd)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        faults.point("blob.before_rename")
        os.replace(temporary, path)
        sync_folder(path.parent)

    def _make_folder(self, folder: Path) -> None:
        """Create a folder inside the store only: a store that was deleted meanwhile is not recreated in part.

        The names of all folders are flushed once in a process, for a killed creator may not have done it; after that, new ones.
        """
        with contextlib.suppress(FileExistsError):
            try:
                folder.mkdir(mode=0o700)
            except FileNotFoundError:
                raise StoreGone(self._root.parent) from None
        known = self._durable
        if known is None or known.get(folder.name) != folder.stat().st_ino:
            there = {entry.name: entry.inode() for entry in os.scandir(self._root)}  # before the flush
            sync_folder(self._root)
            self._durable = there

    def get(self, digest: str) -> bytes:
        """The payload, verified against its name."""
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise StoreCorrupt(
                f"blob {digest[:16]} is missing from {self._root}", hint="see `outlast doctor`"
            ) from None
        if _name(data) != digest:
            raise StoreCorrupt(f"blob {digest[:16]} in {self._root} is damaged", hint="see `outlast doctor`")
        return data

    def sweep(self, keep: set[str], *, older_than_s: float) -> int:
        """Remove old blobs and torn temporary files that are not in `keep`; return how many."""
        removed = 0
        limit = time.time() - older_than_s
        for path in list(self._files()):
            with self._lock(fcntl.LOCK_EX), contextlib.suppress(FileNotFoundError):
                if path.name not in keep and path.stat().st_mtime <= limit:
                    path.unlink()
                    removed += 1
        return removed

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Lock writers out of a sweep: it must not remove a blob that a writer has just found."""
        fd = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, kind)
            yield
        finally:
            os.close(fd)

    def _files(self) -> Iterator[Path]:
        if self._root.exists():
            yield from (path for path in self._root.glob("??/*") if path.is_file())

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise StoreCorrupt(f"not a blob's name: {digest!r:.80}", hint="see `outlast doctor`")
        return self._root / digest[:2] / digest


def make_ballast(path: Path) -> bool:
    """Reserve some room to release when the disk is full. False if it is full already."""
    if path.exists() or not hasattr(os, "posix_fallocate"):
        return True
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, BALLAST_BYTES)
    except OSError as error:
        path.unlink(missing_ok=True)
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    finally:
        os.close(fd)
    return True


# -- Files that only their owner may read.


def opener(path: str, flags: int) -> int:
    """For `open(…, opener=…)`: creates with 0600, follows no link, is not inherited."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
