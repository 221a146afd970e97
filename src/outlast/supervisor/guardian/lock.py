"""The guardian's lock, and its work when the supervisor is dead: stop what runs, save the files, leave a note."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.processes import proc, reap
from outlast.store import durable, locks
from outlast.store.local import Local
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.supervisor.timing import Timing

_WORDS = 4


class GuardianNote(msgspec.Struct, frozen=True):
    """The guardian's report of what it found and did. The next attempt records it. `wanted`: a person had asked for the stop."""

    run: str
    epoch: int
    why: str
    stopped: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()
    save: str = ""
    wanted: bool = False


def monotonic_s() -> float:
    return time.monotonic()


def take(local: Local, run: str, supervisor: int) -> int:
    """Hold the guardian's lock as long as this process lives. Its file names this process and the supervisor that it guards."""
    path = local.guardian_lock(run)
    durable.make_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, 0)
    words = (str(word) for pid in (os.getpid(), supervisor) for word in (pid, locks.start_ticks(pid)))
    os.pwrite(fd, " ".join(words).encode() + b"\n", 0)
    return fd


def wait_for_other(local: Local, run: str, *, mine: int, timing: Timing | None = None) -> None:
    """Wait until no guardian of an earlier attempt works. Kill one that takes too long, and do its work here."""
    timing = timing or Timing.current()
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(local.guardian_lock(run), os.O_RDWR | os.O_CLOEXEC)
        try:
            until_s = time.monotonic() + timing.guardian_wait_s
            while not _is_free(fd) and owner(fd)[0] != mine:
                if time.monotonic() > until_s:
                    _kill_owner(fd)
                    until_s = time.monotonic() + timing.guardian_wait_s
                time.sleep(timing.look_every_s)
        finally:
            os.close(fd)


def _is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill_owner(fd: int) -> None:
    """SIGKILL exactly the process that wrote the lock."""
    pid, ticks = owner(fd)
    if ticks and locks.start_ticks(pid) == ticks and pid != os.getpid():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def owner(fd: int) -> tuple[int, int]:
    """Pid and start of the process that holds the lock; zeros until it has written them."""
    return _processes(fd)[:2]


def guarded(fd: int) -> tuple[int, int]:
    """Pid and start of the supervisor that the holder of the lock guards."""
    return _processes(fd)[2:]


def _processes(fd: int) -> tuple[int, int, int, int]:
    """Pid and start of the guardian, then pid and start of its supervisor."""
    words = os.pread(fd, 100, 0).split()
    if len(words) != _WORDS or not all(map(bytes.isdigit, words)):
        return 0, 0, 0, 0
    guardian, began, supervisor, its = map(int, words)
    return guardian, began, supervisor, its


# -- the supervisor is dead ----------------------------------------------------------------------------------------


def clean_up(
    charge: GuardianMessage,
    *,
    spare: Collection[int],
    why: str,
    wanted: bool = False,
    grace_s: float | None = None,
    timing: Timing | None = None,
) -> GuardianNote:
    """Stop everything of the attempt, then save its files in a fresh process. Leaves a note before and after."""
    timing = timing or Timing.current()
    leave(GuardianNote(charge.run, charge.epoch, why, wanted=wanted), charge)
    reaped = reap.stop(
        lambda: reap.search(charge.run, roots=[os.getpid()], spare=spare),
        first=signal.SIGTERM,
        grace_s=timing.guardian_grace_s if grace_s is None else grace_s,
    )
    stopped = (*reaped.stopped, *reaped.killed)
    note = GuardianNote(charge.run, charge.epoch, why, stopped, reaped.escaped, wanted=wanted)
    words = [
        sys.executable,
        "-P",
        "-m",
        "outlast.supervisor.guardian.rescue_save",
        msgspec.json.encode(charge).decode(),
        why,
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timing.guardian_save_s,
            check=False,
        )
        note = msgspec.structs.replace(note, save=done.stdout.decode(errors="replace").strip())
    leave(note, charge)
    return note


def leave(note: GuardianNote, charge: GuardianMessage) -> None:
    """Write the note, durable and in one step: a later start, perhaps after a reboot, reads it."""
    path = Local(Path(charge.root)).guardian_note(charge.run)
    with contextlib.suppress(OSError), open(path.with_suffix(".part"), "wb") as file:
        file.write(msgspec.json.encode(note))
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, path)


def noted(local: Local, run: str) -> GuardianNote | None:
    """The note that a guardian left for the next attempt, if any."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode(local.guardian_note(run).read_bytes(), GuardianNote)
    return None


def stop_was_wanted(local: Local, run: str, epoch: int) -> bool:
    """Whether the guardian noted that somebody wanted this attempt to stop before it died."""
    note = noted(local, run)
    return note is not None and note.wanted and note.epoch == epoch


def forget_note(local: Local, run: str) -> None:
    """Remove the note: it is in the journal by now."""
    local.guardian_note(run).unlink(missing_ok=True)


# -- the living guardian of a run, found by its lock, and the supervisor below it


class Watcher(msgspec.Struct, frozen=True):
    """Pids of a living guardian and its supervisor; the latter is 0 if it is dead and the guardian cleans up after it."""

    guardian: int
    supervisor: int


def of(local: Local, run: str) -> Watcher | None:
    """The guardian and supervisor of a run; None if no guardian lives."""
    try:
        fd = os.open(local.guardian_lock(run), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        guardian, supervisor = (_living(*process) for process in (owner(fd), guarded(fd)))
        return Watcher(guardian, supervisor) if guardian else None
    finally:
        os.close(fd)


def _living(pid: int, ticks: int) -> int:
    """The pid if it still belongs to the process with this start and that has not ended, else 0."""
    there = proc.look(pid) if ticks else None
    return pid if there is not None and there.start_ticks == ticks and not there.is_zombie else 0
