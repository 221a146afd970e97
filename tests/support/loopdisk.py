"""A real ext4 file system that loses power: an image on a loop device, copied while it is mounted.

What the file system has not yet handed to its device is not in the copy; mounting the copy replays the journal, as
after a power cut. Needs root. The images lie in memory where there is room, so that a trial takes some 200 ms.
A process that dies leaves its mounts behind; the next `LoopDisk` of any process sweeps them. A lock on the folder says that
its disk is in use: workers of the tests see neither the processes nor the mounts of each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

SIZE_MB = 32
_PREFIX = "outlast-loop-"
# No write-back behind our back: the journal is committed by fsync, or after five minutes.
_OPTIONS = "loop,commit=300,noatime,nodiscard"
_TRIES = 5


class LoopDisk:
    """A mounted image and the mounted copies made of it; all gone after `close`, or at the end of the block."""

    def __init__(self, size_mb: int = SIZE_MB) -> None:
        with _alone():
            _sweep()
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_images()))
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._image = self._folder / "image"
        self._cuts = 0
        try:
            with self._image.open("wb") as image:
                image.truncate(size_mb * 1024 * 1024)
            # Everything is written now: a lazily made inode table would be written while a test runs.
            _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))
            self.mount = _mount(self._image)
        except BaseException:
            self.close()
            raise

    def cut(self) -> Path:
        """Where the disk is mounted as it would be found after a cut now. This disk goes on as if nothing was.

        The copy takes some milliseconds: let nobody write meanwhile (stop the writer, or be it).
        """
        self._cuts += 1
        copy = self._folder / f"cut-{self._cuts}"
        _run("cp", "--sparse=always", str(self._image), str(copy))
        return _mount(copy)

    def forget(self, cut: Path) -> None:
        """Unmount one cut and free its image; `close` does it for all."""
        _unmount(cut)
        (self._folder / cut.name.removesuffix(".mount")).unlink()

    def close(self) -> None:
        _remove(self._folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def available() -> str | None:
    """Why there can be no loop disk here; None when there can. Tries it once."""
    if os.geteuid() != 0:
        return "loop mounts need root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool, path=_path()) is None:
            return f"{tool} is not installed"
    try:
        with LoopDisk() as disk:
            disk.forget(disk.cut())
    except (OSError, subprocess.SubprocessError) as error:
        return f"no loop mounts here: {getattr(error, 'stderr', None) or error}"
    return None


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: nobody sweeps a folder before it is locked."""
    with (_images() / f"{_PREFIX}lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep() -> None:
    """Unmount and remove what processes that are gone have left."""
    with _alone():
        _sweep()


def _sweep() -> None:
    for folder in _images().glob(f"{_PREFIX}*/"):
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(fd)


def _images() -> Path:
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 20 * SIZE_MB * 1024 * 1024
    return memory if roomy else Path(tempfile.gettempdir())


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": _path()})


def _mount(image: Path) -> Path:
    at = image.with_name(f"{image.name}.mount")
    at.mkdir()
    for tries_left in reversed(range(_TRIES)):
        try:
            _run("mount", "-t", "ext4", "-o", _OPTIONS, str(image), str(at))
            return at
        except subprocess.CalledProcessError:
            if not tries_left:  # Two tests may reach for the same free loop device: one is told no.
                raise
    return at


def _unmount(at: Path) -> None:
    """Detach also when a process still has a file open there; the loop device frees itself with the mount."""
    _run("umount", "-l", str(at))
    at.rmdir()


def _remove(folder: Path) -> None:
    for at in _mounts_under(folder):
        subprocess.run(["umount", "-l", str(at)], capture_output=True, env={**os.environ, "PATH": _path()})
    if any(_mounts_under(folder)):
        raise OSError(f"still mounted under {folder}")  # Removing now would empty a live file system.
    shutil.rmtree(folder, ignore_errors=True)


def _mounts_under(folder: Path) -> Iterator[Path]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        at = line.split()[1]
        if at.startswith(f"{folder}/"):
            yield Path(at)
