"""Who looks after a run now: its guardian, by the lock that only a living one holds, and the supervisor below it."""

import fcntl
import os
from pathlib import Path

import msgspec

from outlast.processes import proc
from outlast.supervisor import guarding


class Watcher(msgspec.Struct, frozen=True):
    """A living guardian, with its supervisor; 0 where that is dead and the guardian cleans up after it."""

    guardian: int
    supervisor: int


def of(root: Path, run: str) -> Watcher | None:
    """Who looks after a run; None where nobody does."""
    try:
        fd = os.open(guarding.folder_of(root, run) / guarding.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        guardian, supervisor = (_living(*said) for said in (guarding.owner(fd), guarding.guarded(fd)))
        return Watcher(guardian, supervisor) if guardian else None
    finally:
        os.close(fd)


def _living(pid: int, ticks: int) -> int:
    """The pid, if it still means that very process and it has not ended."""
    there = proc.look(pid) if ticks else None
    return pid if there is not None and there.start_ticks == ticks and not there.is_zombie else 0
