"""Waits for another process that saves or restores the same workspace, as long as that one makes progress."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store import locks
from outlast.workspace.capture.files import Deadline
from outlast.workspace.timing import Timing


def take(fd: int, folder: Path, deadline: Deadline | None = None, timing: Timing | None = None) -> None:
    """Lock a file that names the process which holds it. Raises SaveFailed after a while."""
    timing = timing or Timing.current()
    began_s = time.monotonic()
    while not _try(fd):
        owner = _owner(fd)
        limit_s = timing.stopped_wait_s if locks.process_state(owner) in "Tt" else timing.lock_wait_s
        if (deadline is not None and deadline.passed()) or time.monotonic() - began_s > limit_s:
            who = f"process {owner}" if owner else "another process"
            raise SaveFailed(
                f"cannot save {folder}: {who} saves or restores it and does not finish",
                hint=f"see what it does (`ps -fp {owner}`); save again when it has finished or is gone"
                if owner
                else "",
            )
        time.sleep(timing.lock_look_s)
    with contextlib.suppress(OSError):  # without it, a waiting process cannot name the holder
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(fd: int) -> int:
    digits = os.pread(fd, 20, 0).strip()
    return int(digits) if digits.isdigit() else 0
