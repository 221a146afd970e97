"""Temporary files of ours in a workspace: the last step of a write may need one, and a killed writer leaves it.

They are never saved. A note beside the workspace says who writes, so that the next save or restore finds them."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(rb"(?:^|/)\.outlast-[0-9]+$")


def own_name() -> bytes:
    """The temporary name of a file of this process."""
    return b".outlast-%d" % os.getpid()


def is_temporary_name(path: bytes) -> bool:
    """Whether a file has the name of an unfinished one."""
    return b".outlast-" in path and _NAME.search(path) is not None


@contextlib.contextmanager
def writer_note(private: Path) -> Iterator[None]:
    """Note that this process writes files, during the block. The caller holds the workspace's lock."""
    with _note(private).open("ab") as file:
        file.write(own_name() + b"\n")
    yield  # after an error the note stays: the next save or restore then looks for such files
    _note(private).unlink(missing_ok=True)


def sweep(folder: Path, private: Path) -> None:
    """Remove what a killed writer left anywhere below. The caller holds the workspace's lock: nobody writes now."""
    try:
        names = set(_note(private).read_bytes().split())
    except FileNotFoundError:
        return
    for here, folders, files, fd in os.fwalk(os.fsencode(folder)):
        if here == os.fsencode(folder) and b".git" in folders:
            folders.remove(b".git")
        for name in names.intersection(files):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=fd)
    _note(private).unlink(missing_ok=True)


def _note(private: Path) -> Path:
    return private / "writing"
