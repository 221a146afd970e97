"""Folders in a vault in which git packs; whoever uses one holds a lock of it."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from outlast.workspace.timing import Timing

ROOMS = "outlast-consolidating"


@contextlib.contextmanager
def room(vault: Path) -> Iterator[Path]:
    """A folder in which git makes packs. It is locked meanwhile, so nobody takes for dead what is in it, or half published."""
    place = vault / f"{ROOMS}-{os.getpid()}-{os.urandom(4).hex()}"
    (place / "pack").mkdir(parents=True)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(fd)


def rooms_in_use(vault: Path) -> bool:
    """Whether somebody packs now. What killed ones left is removed."""
    used = False
    for place in vault.glob(f"{ROOMS}-*"):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                pid = place.name.removeprefix(f"{ROOMS}-").partition("-")[0]
                age_s = abs(time.time() - os.fstat(fd).st_mtime)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if age_s < Timing.current().room_s and os.path.exists(f"/proc/{pid}"):
                    used = True  # it may not be locked yet
                    continue
                shutil.rmtree(place, ignore_errors=True)
            except BlockingIOError:
                used = True
            finally:
                os.close(fd)
    return used
