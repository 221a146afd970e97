"""The shelf of a SQLite store: small documents in files beside the database, each changed under an flock.

`walls/` has one file each under one lock; `pools.json` has all pools; `pressed/` has files that lock themselves."""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from outlast import decoders
from outlast.errors import StoreBusy, StoreCorrupt, StoreError
from outlast.store import durable, rows
from outlast.store.protocol import SHELF_BYTES_MAX, Document, ShelfKind
from outlast.store.timing import Timing

_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,200}")
_FOLDERS: dict[ShelfKind, tuple[str, str]] = {"walls": ("walls", ".json"), "pressed": ("pressed", ".jsonl")}


def folder_of(root: Path, kind: ShelfKind) -> Path | None:
    """The folder in which documents of a kind have a file each; None if they share one file."""
    return root / _FOLDERS[kind][0] if kind in _FOLDERS else None


class FileShelf:
    """The documents of one store's folder."""

    def __init__(self, root: Path) -> None:
        self._kinds: dict[ShelfKind, _Kind] = {
            "walls": _Files(root, "walls"),
            "pools": _OneFile(root / "pools.json"),
            "pressed": _Lines(root, "pressed"),
        }

    def get(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document, or None."""
        return self._kinds[kind].get(name)

    def get_unheld(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document, or None if it does not exist or somebody holds it."""
        return self._kinds[kind].get_unheld(name)

    def change(
        self, kind: ShelfKind, name: str, change: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        """Replace the document and return the new content. Durable when it returns."""
        with self.hold(kind, name) as held:
            return rows.changed(held, change)

    @contextlib.contextmanager
    def hold(self, kind: ShelfKind, name: str, *, wait_s: float | None = None) -> Iterator[Document]:
        """Hold the document exclusively. Raises StoreBusy if another process holds it for too long."""
        with self._kinds[kind].hold(name, None if wait_s is None else time.monotonic() + wait_s) as held:
            yield held

    def every(self, kind: ShelfKind) -> Iterator[tuple[str, bytes]]:
        """All documents of a kind, by name."""
        yield from self._kinds[kind].every()

    def sweep(self, kind: ShelfKind, *, newest: int, older_than_s: float) -> int:
        """Delete documents that are old or beyond the `newest`, except held ones; return how many."""
        return self._kinds[kind].sweep(newest, older_than_s)


class _Kind(Protocol):
    """How documents of one kind are stored in files."""

    def get(self, name: str) -> bytes | None: ...
    def get_unheld(self, name: str) -> bytes | None: ...
    def hold(self, name: str, until_s: float | None) -> contextlib.AbstractContextManager[Document]: ...
    def every(self) -> Iterator[tuple[str, bytes]]: ...
    def sweep(self, newest: int, older_than_s: float) -> int: ...


class _Files:
    """One file per document, replaced whole. One lock for the kind is beside the folder."""

    def __init__(self, root: Path, kind: ShelfKind) -> None:
        name, self._suffix = _FOLDERS[kind]
        self._folder, self._lock = root / name, root / f"{name}.lock"

    def get(self, name: str) -> bytes | None:
        return _read(self._path(name))

    def get_unheld(self, name: str) -> bytes | None:
        return self.get(name) if _is_free(self._lock) else None

    @contextlib.contextmanager
    def hold(self, name: str, until_s: float | None) -> Iterator[Document]:
        with locked(self._lock, until_s):
            yield _HeldFile(self._path(name))

    def every(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self._folder.glob(f"*{self._suffix}")):
            data = _read(path)
            if data is not None:
                yield path.name.removesuffix(self._suffix), data

    def sweep(self, newest: int, older_than_s: float) -> int:
        with locked(self._lock, None):
            gone = _old(self._folder, newest, older_than_s)
            for path in gone:
                path.unlink(missing_ok=True)
            return len(gone)

    def _path(self, name: str) -> Path:
        return self._folder / f"{_checked(name)}{self._suffix}"


class _HeldFile:
    """A document that is a whole file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self) -> bytes | None:
        return _read(self._path)

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        with _store_errors(self._path):
            if data is not None:
                _make(self._path.parent)
                durable.write_durably(self._path, data)
            elif self._path.exists():
                self._path.unlink()
                durable.sync_folder(self._path.parent)


class _OneFile:
    """All documents of the kind in one file, by name; each is JSON itself."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, path.with_name(f".{path.name}.lock")

    def get(self, name: str) -> bytes | None:
        found = self._all().get(name)
        return None if found is None else bytes(found)

    def get_unheld(self, name: str) -> bytes | None:
        return self.get(name) if _is_free(self._lock) else None

    @contextlib.contextmanager
    def hold(self, name: str, until_s: float | None) -> Iterator[Document]:
        with locked(self._lock, until_s):
            yield _HeldEntry(self, name)

    def every(self) -> Iterator[tuple[str, bytes]]:
        yield from sorted((name, bytes(raw)) for name, raw in self._all().items())

    def sweep(self, newest: int, older_than_s: float) -> int:
        raise AssertionError("documents that share a file have no age")

    def put(self, name: str, data: bytes | None) -> None:
        """Replace one entry. Call it with the lock held."""
        entries = self._all()
        entries.pop(name, None)
        if data is not None:
            entries[name] = msgspec.Raw(data)
        with _store_errors(self._path):
            durable.write_durably(self._path, msgspec.json.encode(entries))

    def _all(self) -> dict[str, msgspec.Raw]:
        data = _read(self._path, limit=SHELF_BYTES_MAX << 6)
        try:
            return {} if data is None else decoders.decode(data, dict[str, msgspec.Raw])
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(
                f"cannot read {self._path}: {error}", hint=f"mv {self._path} {self._path}.bad"
            ) from error


class _HeldEntry:
    """A document that is one entry of a shared file."""

    def __init__(self, file: _OneFile, name: str) -> None:
        self._file, self._name = file, name

    def get(self) -> bytes | None:
        return self._file.get(self._name)

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        self._file.put(self._name, data)


class _Lines:
    """One file of lines per document, only appended to, which is its own lock. Text without a newline is not a line yet."""

    def __init__(self, root: Path, kind: ShelfKind) -> None:
        name, self._suffix = _FOLDERS[kind]
        self._folder = root / name

    def get(self, name: str) -> bytes | None:
        return _whole(_read(self._path(name)))

    def get_unheld(self, name: str) -> bytes | None:
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            _tell(path, error)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _whole(os.pread(fd, SHELF_BYTES_MAX, 0))
        except BlockingIOError:
            return None
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def hold(self, name: str, until_s: float | None) -> Iterator[Document]:
        path = self._path(name)
        with _store_errors(path):
            _make(self._folder)
        with _named(path, until_s) as fd:
            held = _HeldLines(path, fd)
            try:
                yield held
            finally:
                if held.get() is None:  # remove the name: it has no document
                    path.unlink(missing_ok=True)

    def every(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self._folder.glob(f"*{self._suffix}")):
            data = _whole(_read(path))
            if data is not None:
                yield path.name.removesuffix(self._suffix), data

    def sweep(self, newest: int, older_than_s: float) -> int:
        removed = 0
        with _store_errors(self._folder):
            gone = _old(self._folder, newest, older_than_s)
        for path in gone:
            with contextlib.suppress(StoreError), _named(path, 0.0):
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _path(self, name: str) -> Path:
        return self._folder / f"{_checked(name)}{self._suffix}"


class _HeldLines:
    """A document made of a file's lines, written in place: the lock is on the file, and room is reserved in it.

    A kill in the middle leaves fewer lines, each of them whole.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    def get(self) -> bytes | None:
        with _store_errors(self._path):
            return _whole(os.pread(self._fd, SHELF_BYTES_MAX, 0))

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        before = self.get() or b""
        with _store_errors(self._path):
            if data is None:  # `hold` removes the name at its end
                os.ftruncate(self._fd, 0)
                os.fsync(self._fd)
                return
            assert data.endswith(b"\n"), "the document consists of whole lines"
            at = len(before) if data.startswith(before) else 0
            if not at:
                os.ftruncate(self._fd, 0)
            try:
                self._write(data, at, room)  # into the reserved room
            except OSError:
                os.ftruncate(self._fd, at)
                raise
            if not before:
                durable.sync_folder(self._path.parent)

    def _write(self, data: bytes, at: int, room: int) -> None:
        while at < len(data):
            at += os.pwrite(self._fd, data[at:], at)
        os.ftruncate(self._fd, len(data))
        if room:
            os.posix_fallocate(self._fd, len(data), room)
        os.fsync(self._fd)


# -- files and locks ---------------------------------------------------------------------------------------------


def _read(path: Path, *, limit: int = SHELF_BYTES_MAX) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell(path, error)


def _whole(data: bytes | None) -> bytes | None:
    """The whole lines, or None. Reserved room after them does not count."""
    return (data[: data.rfind(b"\n") + 1] if data else b"") or None


def _checked(name: str) -> str:
    assert _NAME.fullmatch(name), f"not a document's name: {name!r:.80}"
    return name


def _make(folder: Path) -> None:
    """Create a folder inside the store only: a store that was deleted meanwhile is not recreated in part."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    durable.sync_folder(folder.parent)


def _old(folder: Path, newest: int, older_than_s: float) -> list[Path]:
    """Files that were not written for so long, or are beyond the `newest` so many."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    found.sort(reverse=True)
    since = time.time() - older_than_s
    recent = [each for each in found[:newest] if each[0] >= since]
    return [Path(path) for _, path in found[len(recent) :]]


@contextlib.contextmanager
def _named(path: Path, until_s: float | None) -> Iterator[int]:
    """Create and lock a file that is its own lock.

    A process removes the name only while it holds the lock: one that waited meanwhile starts over with a new file.
    """
    while True:
        with locked(path, until_s, flags=os.O_NOFOLLOW) as fd:
            if os.fstat(fd).st_nlink:
                yield fd
                return


@contextlib.contextmanager
def locked(path: Path, until_s: float | None, *, flags: int = 0) -> Iterator[int]:
    """Create and lock a file. Raises StoreBusy if another process holds it for too long."""
    with _store_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    try:
        if until_s is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        while until_s is not None and not _try(fd):
            if time.monotonic() >= until_s:
                raise StoreBusy(f"another process holds {path}", hint="ask again in a moment")
            time.sleep(Timing.current().shelf_look_s)
        yield fd
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(path: Path) -> bool:
    """Whether nobody holds a lock. Looking creates nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@contextlib.contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _tell(path, error)


def _tell(path: Path, error: OSError) -> NoReturn:
    why = f"{path}: {error.strerror or error}"
    raise StoreError(why, hint=f"check that you can write {path.parent}") from error
