"""Notifications: the user's `notify` command gets one JSON document, once per kind and run, and is not waited for."""

import contextlib
import hashlib
import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import settings
from outlast.core import state as st, verdict
from outlast.inspect import show

KINDS = ("needs a person", "done", "failed", "quarantined", "parked", "budget")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The document that the command reads."""

    what: str
    why: str
    run: str
    task: str
    project: str
    goal: str
    status: str
    cause: str | None
    standing: str
    needs: str
    beats: int
    workspace: str | None
    last_save: str | None
    at: datetime

    @classmethod
    def of(cls, what: str, why: str, state: st.RunState) -> "Notice":
        at = datetime.now(UTC)
        found = verdict.of(state, state.status, at)
        return cls(
            standing=found.word, needs=found.need, what=what, why=why, run=state.run, task=state.task, project=state.project, goal=state.title,
            status=state.status, cause=show.cause_of(state), beats=state.beats, workspace=state.workspace or None,
            last_save=state.last_save or None, at=at,
        )  # fmt: skip


def send(command: str, notice: Notice, folder: Path) -> None:
    """Start the user's command with the notice on its standard input, unless it got the same notice before."""
    if not command or not _is_first(folder, notice):
        return
    with contextlib.suppress(OSError):
        memory_fd = os.memfd_create("outlast-notice", os.MFD_CLOEXEC)
        with open(memory_fd, "wb+", buffering=0) as file:
            file.write(msgspec.json.encode(notice) + b"\n")
            file.seek(0)
            subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, env=settings.environment(without="OUTLAST_"), preexec_fn=_unblock,
            )  # fmt: skip


def _unblock() -> None:
    """Unblock signals in a new process: the supervisor reads them from a file, its children take them as usual."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _is_first(folder: Path, notice: Notice) -> bool:
    """Whether this kind and cause is new. The mark outlives the process."""
    more = notice.why if notice.what == "budget" else ""  # each level has a notice of its own
    what = hashlib.blake2b(f"{notice.what} {notice.cause}{more}".encode(), digest_size=6).hexdigest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(
            os.open(folder / f"noticed-{what}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
