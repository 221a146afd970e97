"""Writes and deletes files of a workspace, each only if it is in the state that the pre-restore save has.

Every step uses descriptors of folders and never follows a link: nothing outside the workspace is touched."""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed
from outlast.store import durable as store_durable
from outlast.workspace import leftovers, nowhere
from outlast.workspace.capture.special.permissions import BITS, folder_bits, usual_bits
from outlast.workspace.capture.stat_cache import mode_of
from outlast.workspace.git import objects
from outlast.workspace.git.objects import EXEC, LINK, Entry
from outlast.workspace.git.reader import ObjectReader

Change = tuple[bytes, Entry | None, Entry | None]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NAMELESS = hasattr(os, "O_TMPFILE")  # whether this system has files without a name
_NOT_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
_CHUNK = 1 << 20
_NO_NAMES = frozenset((b"", b".", b".."))


class Worktree:
    """The files of one folder. Those in `bits` get these permissions, the others what `umask` and ours allow.

    A folder that somebody replaces by a link meanwhile leads nowhere outside: every step starts from a descriptor.
    """

    def __init__(
        self,
        folder: Path,
        reader: ObjectReader,
        algo: objects.Algo,
        bits: Mapping[bytes, int] | None = None,
        umask: int = 0,
        root_fd: int | None = None,
    ) -> None:
        self._root, self._root_fd = os.fsencode(folder), root_fd
        self._reader = reader
        self._algo = algo
        self._bits = bits or {}
        self._umask = umask

    def check(self, changes: Sequence[Change]) -> None:
        """Raise SaveFailed, with nothing touched, if a change meets a file that it does not expect."""
        going = {path for path, old, new in changes if old is not None and new is None}
        for path, old, new in changes:
            with self._folder(path) as folder:
                if folder is not None and not (new is not None and self._will_be_free(folder, path, going)):
                    self._check_same(folder, path, old, new)
            if new is not None and folder is None:
                self._check_way(path, going)

    def apply(self, changes: Sequence[Change]) -> None:
        """Delete first, then write: a file may become a folder and the reverse."""
        for path, old, new in changes:
            if old is not None and new is None:
                self._delete(path, old)
                faults.point("restore.deleted")
        for path, old, new in changes:
            if new is not None:
                self._write(path, old, new)
                faults.point("restore.written")

    def unlike(self) -> list[bytes]:
        """Existing files whose permission bits differ from what they should have."""
        found = ((path, bits, self.lstat(path)) for path, bits in self._bits.items())
        return [
            path for path, bits, file_stat in found if file_stat is not None and _differs(file_stat, bits)
        ]

    def put_bits(self, paths: Sequence[bytes]) -> list[bytes]:
        """Set the permission bits of files whose content is right; return those that are not ours to change."""
        refused = []
        for path in paths:
            with self._folder(path) as folder:
                if folder is not None and not _put_bits(folder, _name(path), self._bits[path]):
                    refused.append(path)
            faults.point("restore.written")
        return refused

    def lstat(self, path: bytes) -> os.stat_result | None:
        """The stat of a path itself, not of a link's target; None if it does not exist, or only through a link."""
        with self._folder(path) as folder:
            return _lstat(folder, _name(path)) if folder is not None else None

    def entry(self, path: bytes) -> Entry | None:
        """A file or link as a tree's entry."""
        file_stat = self.lstat(path)
        return Entry(mode_of(file_stat), self.digest(path, self._algo)) if file_stat is not None else None

    def digest(self, path: bytes, algo: objects.Algo) -> str:
        """The object name of a file or link; empty if there is none."""
        with self._folder(path) as folder:
            return self._digest(folder, _name(path), algo) if folder is not None else ""

    def put(self, path: bytes, mode: int, data: bytes) -> None:
        """Write a file of ours over the existing one."""
        with self._folder(path, make=True) as folder:
            assert folder is not None, "a missing folder is made"
            if mode == LINK:
                self._replace(folder, path, lambda name: os.symlink(data, name, dir_fd=folder))
            else:
                self._put_file(folder, path, 0o600, mode & 0o777, lambda fd: _write_all(fd, data))

    def make_folder(self, path: bytes) -> None:
        """Make a folder in the worktree itself, not behind a link."""
        with self._folder(path + b"/x", make=True):
            pass

    # -- folders ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _folder(self, path: bytes, *, make: bool = False) -> Iterator[int | None]:
        """A descriptor of the folder that contains a path; None if there is none, unless `make`."""
        parts = path.split(b"/")
        if not _NO_NAMES.isdisjoint(parts[:-1]) or parts[-1] in (b".", b".."):
            raise SaveDamaged(f"{path.decode(errors='backslashreplace')} leads out of the folder")
        fd: int | None = self._open_root()
        try:
            for level, part in enumerate(parts[:-1], 1):
                assert fd is not None, "the loop ends where a folder is missing"
                below = self._below(fd, part, path, level, make=make)
                os.close(fd)
                fd = below
                if fd is None:
                    break
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _open_root(self) -> int:
        """A descriptor of the folder itself: the one that was passed in, wherever its name leads by now."""
        if self._root_fd is not None:
            return os.open(b".", _FOLDER, dir_fd=self._root_fd)
        return os.open(self._root, _FOLDER)

    def _below(self, fd: int, part: bytes, path: bytes, level: int, *, make: bool) -> int | None:
        try:
            below = os.open(part, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                return None
            folder = b"/".join(path.split(b"/")[:level])
            os.mkdir(part, folder_bits(self._bits, folder, self._umask), dir_fd=fd)
            below = os.open(part, _FOLDER, dir_fd=fd)
        except OSError as error:
            if not nowhere.is_nowhere(error):
                raise
            if not make:
                return None
            raise in_the_way(path) from error
        if part.lower() == b".git" != part and _is_git(fd, below):
            os.close(below)
            raise SaveDamaged(f"{path.decode(errors='backslashreplace')} is inside a .git folder")
        return below

    def _prune(self, folder: bytes) -> None:
        """Remove the folders that a deletion left empty."""
        while folder:
            with self._folder(folder) as above:
                if above is None:
                    return
                try:
                    os.rmdir(_name(folder), dir_fd=above)
                except OSError:
                    return
            folder = folder.rpartition(b"/")[0]

    # -- what is there ---------------------------------------------------------------------------------------------

    def _check_same(self, folder: int, path: bytes, old: Entry | None, new: Entry | None) -> bool:
        """Refuse to touch a file that changed since the pre-restore save; True if it is already as wanted."""
        file_stat = _lstat(folder, _name(path))
        if file_stat is None or (stat.S_ISDIR(file_stat.st_mode) and _is_hollow(folder, _name(path))):
            return False
        found = Entry(mode_of(file_stat), self._digest(folder, _name(path), self._algo))
        if found not in (old, new):
            raise in_the_way(path)
        return found == new

    def _will_be_free(self, folder: int, path: bytes, going: set[bytes]) -> bool:
        """Whether this is a folder in which every file is about to be deleted."""
        file_stat = _lstat(folder, _name(path))
        if file_stat is None or not stat.S_ISDIR(file_stat.st_mode):
            return False
        start = len(_name(path))
        for here, folders, names, fd in os.fwalk(_name(path), dir_fd=folder):
            names += _links(folders, fd)
            if any(path + here[start:] + b"/" + name not in going for name in names):
                return False
        return True

    def _check_way(self, path: bytes, going: set[bytes]) -> None:
        """No folder leads there: fine if its place is empty, or has a file that is about to be deleted."""
        parts = path.split(b"/")[:-1]
        for end in range(1, len(parts) + 1):
            above = b"/".join(parts[:end])
            with self._folder(above) as folder:
                file_stat = _lstat(folder, _name(above)) if folder is not None else None
            if file_stat is None:
                return
            if not stat.S_ISDIR(file_stat.st_mode):
                if above not in going:
                    raise in_the_way(above)
                return

    def _digest(self, folder: int, name: bytes, algo: objects.Algo) -> str:
        file_stat = _lstat(folder, name)
        if file_stat is None:
            return ""
        if stat.S_ISLNK(file_stat.st_mode):
            return objects.oid_of("blob", os.readlink(name, dir_fd=folder), algo)
        if not stat.S_ISREG(file_stat.st_mode):
            return "no regular file"
        digest = algo.new(b"blob %d\0" % file_stat.st_size)
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            while chunk := os.read(fd, _CHUNK):
                digest.update(chunk)
        finally:
            os.close(fd)
        return digest.hexdigest()

    # -- changing it -----------------------------------------------------------------------------------------------

    def _delete(self, path: bytes, old: Entry) -> None:
        with self._folder(path) as folder:
            if folder is None:
                return
            file_stat = _lstat(folder, _name(path))
            if file_stat is None or stat.S_ISDIR(file_stat.st_mode):
                return  # it is gone already, and what is in a folder belongs to somebody else
            self._check_same(folder, path, old, None)
            os.unlink(_name(path), dir_fd=folder)
        self._prune(path.rpartition(b"/")[0])

    def _write(self, path: bytes, old: Entry | None, new: Entry) -> None:
        with self._folder(path, make=True) as folder:
            assert folder is not None, "a missing folder is made"
            if self._check_same(folder, path, old, new):
                return
            if new.mode == LINK:
                target = self._reader.read(new.oid)[1]
                self._replace(folder, path, lambda name: os.symlink(target, name, dir_fd=folder))
            else:
                bits = self._bits.get(path)
                if bits is None:
                    bits = _permissions(_lstat(folder, _name(path)), new, path)
                usual = usual_bits(new.mode, self._umask)
                self._put_file(folder, path, usual, bits, lambda fd: self._reader.copy_to(new.oid, fd))

    def _put_file(
        self, folder: int, path: bytes, usual: int, bits: int | None, fill: Callable[[int], object]
    ) -> None:
        """Make a file with these permissions, else with the usual ones that the umask allows.

        It gets its name when it is whole. If the file system requires a name earlier, only we may read it until then.
        """
        try:
            fd = _open_nameless(folder, usual)
            if fd is None:
                self._replace(folder, path, lambda name: _write_named(folder, name, usual, bits, fill))
                return
            try:
                fill(fd)
                if bits is not None:
                    os.fchmod(fd, bits)
                self._name(folder, path, f"/proc/self/fd/{fd}")
            finally:
                os.close(fd)
        except OSError as error:
            error.filename, error.filename2 = path, None  # our temporary name would say nothing
            raise

    def _name(self, folder: int, path: bytes, own: str) -> None:
        try:
            os.link(own, _name(path), dst_dir_fd=folder)
        except FileExistsError:
            self._replace(folder, path, lambda name: os.link(own, name, dst_dir_fd=folder))

    def _replace(self, folder: int, path: bytes, make: Callable[[bytes], None]) -> None:
        """Make a file under a temporary name, and rename it. Empty folders in its place are removed."""
        temporary = leftovers.own_name()
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            make(temporary)
            faults.point("restore.named")
            try:
                os.rename(temporary, _name(path), src_dir_fd=folder, dst_dir_fd=folder)
            except IsADirectoryError:
                if not _is_hollow(folder, _name(path)):
                    raise in_the_way(path) from None
                _remove_hollow(folder, _name(path))
                os.rename(temporary, _name(path), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def write_over(
    path: bytes, data: bytes, mode: int = 0o644, *, durable: bool = True, at_s: int | None = None
) -> None:
    """Replace a file of git's or ours atomically; `at_s` is its new time."""
    folder = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(dir=folder, prefix=b".outlast-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if at_s is not None:
                os.utime(file.fileno(), (at_s, at_s))
            if durable:
                os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        store_durable.sync_folder(Path(os.fsdecode(folder)))


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _lstat(folder: int, name: bytes) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _is_git(folder: int, below: int) -> bool:
    """Whether a folder is `.git` too, because this file system does not distinguish it from `.GIT`."""
    file_stat = _lstat(folder, b".git")
    return file_stat is not None and os.path.samestat(file_stat, os.fstat(below))


def _permissions(file_stat: os.stat_result | None, new: Entry, path: bytes) -> int | None:
    """The permissions of the replaced file, except the right to execute; None if they are usual."""
    if file_stat is None or not stat.S_ISREG(file_stat.st_mode):
        return 0o444 if b"/.git/objects/" in path else None
    bits = file_stat.st_mode & 0o777
    return bits | (bits & 0o444) >> 2 if new.mode == EXEC else bits & ~0o111


def _differs(file_stat: os.stat_result, bits: int) -> bool:
    return stat.S_ISREG(file_stat.st_mode) and file_stat.st_mode & BITS != bits


def _put_bits(folder: int, name: bytes, bits: int) -> bool:
    """Set the bits through a descriptor that needs no read permission: the file cannot be swapped meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            file_stat = os.fstat(fd)
            if _differs(file_stat, bits):
                os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(file_stat.st_mode) & ~BITS | bits)
        except PermissionError:
            return False
        finally:
            os.close(fd)
    return True


def _is_hollow(folder: int, name: bytes) -> bool:
    """Whether a folder contains nothing but folders."""
    return not any(names or _links(folders, fd) for _, folders, names, fd in os.fwalk(name, dir_fd=folder))


def _links(folders: list[bytes], fd: int) -> list[bytes]:
    """Links to folders, which a walk reports as folders."""
    return [name for name in folders if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)]


def _remove_hollow(folder: int, name: bytes) -> None:
    for _, folders, _, fd in os.fwalk(name, topdown=False, dir_fd=folder):
        for below in folders:
            os.rmdir(below, dir_fd=fd)
    os.rmdir(name, dir_fd=folder)


def _open_nameless(folder: int, bits: int) -> int | None:
    """A new file that gets a name when it is whole; None if the system does not support that."""
    if not NAMELESS or not os.path.exists("/proc/self/fd"):
        return None
    try:
        return os.open(b".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, bits, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_NAMELESS:
            return None
        raise


def _write_named(
    folder: int, name: bytes, usual: int, wanted_bits: int | None, fill: Callable[[int], object]
) -> None:
    """A new file that only we may read until it is whole."""
    fd = os.open(name, _CREATE, usual, dir_fd=folder)
    try:
        bits = stat.S_IMODE(os.fstat(fd).st_mode) if wanted_bits is None else wanted_bits
        os.fchmod(fd, 0o600)
        fill(fd)
        os.fchmod(fd, bits)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(data)


def in_the_way(path: bytes) -> SaveFailed:
    """The error for a file that must not be touched."""
    return SaveFailed(
        f"{path.decode(errors='backslashreplace')} is in the way, and not in the save made just before",
        hint="stop the program that writes there, or move the file away, and restore again",
    )
