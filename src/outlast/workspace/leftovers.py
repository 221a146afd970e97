"""Names of ours in a workspace: the last step of a write may need one, and whoever is killed there leaves a file.

Such a file is never saved. Who writes is noted beside the workspace, so the next save or restore knows which are ours.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(rb"(?:^|/)\.outlast-[0-9]+$")


def own_name() -> bytes:
    """What a file of this process is called until it gets its own name."""
    return b".outlast-%d" % os.getpid()


def is_one(path: bytes) -> bool:
    """Whether a file is called like one that is not finished."""
    return b".outlast-" in path and _NAME.search(path) is not None


@contextlib.contextmanager
def noted(private: Path) -> Iterator[None]:
    """While files are written: that this process does. The workspace's lock is the caller's."""
    with _note(private).open("ab") as file:
        file.write(own_name() + b"\n")
    yield  # after an error the note stays: it costs the next one a look
    _note(private).unlink(missing_ok=True)


def sweep(folder: Path, private: Path) -> None:
    """Remove what a killed writer left, wherever it is below. The workspace's lock is ours: nobody writes now."""
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
