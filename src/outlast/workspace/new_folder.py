"""A new folder for files of ours, held by a descriptor: replacing it by a link meanwhile has no effect."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.store import durable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_THE_WAY = _FOLDER | getattr(os, "O_PATH", 0)  # needs no permission to list the folder


def place(given: Path) -> Path:
    """The path of a new folder: links on the way are followed, a link in its own place is not."""
    above = Path(os.path.realpath(given.parent))
    return Path(os.path.realpath(given)) if given.name in ("", ".", "..") else above / given.name


class Claim(NamedTuple):
    """A folder of ours that was empty when we opened it."""

    folder: Path
    fd: int

    def check(self) -> None:
        """Raise SaveFailed if its name leads to something else by now."""
        try:
            with _opened(self.folder) as now:
                same = os.path.samestat(os.fstat(now), os.fstat(self.fd))
        except OSError:
            same = False
        if not same:
            raise replaced_error(self.folder)


def replaced_error(folder: Path) -> SaveFailed:
    """The error for a folder that was replaced: nothing more is written."""
    return SaveFailed(
        f"{folder} was replaced by something else while it was filled",
        hint="give a folder where only you may write",
    )


@contextlib.contextmanager
def claim_folder(folder: Path, mode: int) -> Iterator[Claim]:
    """Make a folder, or take an empty one of ours. Raises WorkspaceRefused, with nothing made, for other folders.

    Links are not followed on the way either, so pass the real path. If the block fails and the folder is still empty, a
    new folder is removed.
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
        f"{folder} is a link, not empty, or another user's", hint="give a folder that does not exist yet"
    )


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, reached without following links."""
    fd = os.open(folder.anchor, _ON_THE_WAY)
    try:
        for part in folder.parts[1:]:
            below = os.open(part, _ON_THE_WAY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)
