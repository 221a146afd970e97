"""A folder made for files of ours, held by its descriptor: whoever puts a link in its place meanwhile gains nothing."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.store import durable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_THE_WAY = _FOLDER | getattr(os, "O_PATH", 0)  # which needs no right to list what is there


def place(given: Path) -> Path:
    """Where a new folder is meant: links on the way to it are followed, one in its own place is not."""
    above = Path(os.path.realpath(given.parent))
    return Path(os.path.realpath(given)) if given.name in ("", ".", "..") else above / given.name


class Claim(NamedTuple):
    """A folder that is ours and was empty when we got hold of it."""

    folder: Path
    fd: int

    def check(self) -> None:
        """Raise SaveFailed where its name stands for something else by now."""
        try:
            with _opened(self.folder) as now:
                same = os.path.samestat(os.fstat(now), os.fstat(self.fd))
        except OSError:
            same = False
        if not same:
            raise swapped(self.folder)


def swapped(folder: Path) -> SaveFailed:
    """The error that says why nothing more is written."""
    return SaveFailed(
        f"{folder} is not the folder any more that was made there",
        hint="give one where nobody else may write",
    )


@contextlib.contextmanager
def claimed(folder: Path, mode: int) -> Iterator[Claim]:
    """Make a folder, or take an empty one of ours. Raises WorkspaceRefused, nothing made, for a link or somebody else's.

    No link is followed on the way either, so it is to be given by its real path. Where the block fails, and nothing came
    into it, a folder that was made goes.
    """
    durable.make_folder(folder.parent)
    try:
        with contextlib.ExitStack() as stack:
            above = stack.enter_context(_opened(folder.parent))
            made = _make(folder.name, mode, above)
            fd = os.open(folder.name, _FOLDER, dir_fd=above)
            stack.callback(os.close, fd)
            if os.fstat(fd).st_uid != os.geteuid() or os.listdir(fd):
                raise _refused(folder)
            try:
                yield Claim(folder, fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    if made and os.path.samestat(os.fstat(fd), os.lstat(folder)):
                        os.rmdir(folder.name, dir_fd=above)
                raise
        with contextlib.suppress(PermissionError):
            durable.sync_folder(folder.parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(folder) from error
        raise


def _make(name: str, mode: int, above: int) -> bool:
    try:
        os.mkdir(name, mode, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _refused(folder: Path) -> WorkspaceRefused:
    return WorkspaceRefused(
        f"{folder} is a link, not empty, or somebody else's", hint="give a folder that does not exist yet"
    )


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, reached without following any link."""
    fd = os.open(folder.anchor, _ON_THE_WAY)
    try:
        for part in folder.parts[1:]:
            below = os.open(part, _ON_THE_WAY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)
