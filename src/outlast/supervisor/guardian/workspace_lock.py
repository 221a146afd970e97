"""One live run per workspace: a lock beside the workspace's private files says who works there."""

import contextlib
import fcntl
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from outlast.errors import RunRefused

NAME = "occupied"
Kind = Literal["command", "script", "resumed"]
# What else there is to do than to wait, by what was to be started.
_INSTEAD: dict[Kind, str] = {
    "command": ", give this one a `--worktree`, or say `--share`",
    "script": ", or start the script in another worktree (`git worktree add`)",
    "resumed": "",
}


@contextlib.contextmanager
def occupied(
    private: Path, folder: Path, run: str, task: str, kind: Kind = "command"
) -> Iterator["Occupied"]:
    """Work in a folder alone. The lock names the run once it has an id. Raises RunRefused, which names the other run."""
    fd = os.open(private / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            content = os.pread(fd, 1000, 0).decode(errors="replace")
            raise _refusal(content, folder, (run, task), kind) from None
        ours = Occupied(fd, task)
        ours.name(run)
        yield ours
    finally:
        os.close(fd)


class Occupied:
    """A folder that this process works in, by its lock."""

    def __init__(self, fd: int, task: str) -> None:
        self._fd, self._task = fd, task

    def name(self, run: str) -> None:
        """Write into the lock which run works here."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{run} {os.getpid()} {self._task}".encode("utf-8", "backslashreplace"), 0)


def occupant(private: Path) -> str:
    """The run that works in a folder, or was the last one there; empty if there was none."""
    with contextlib.suppress(OSError):
        return (private / NAME).read_text(errors="replace").partition(" ")[0]
    return ""


def _refusal(content: str, folder: Path, mine: tuple[str, str], kind: Kind) -> RunRefused:
    other, _, rest = content.partition(" ")
    pid, _, task = rest.partition(" ")
    # A new run has no id yet when it begins to work there.
    is_new = other.startswith("(")
    name = shlex.quote(task) if is_new else other
    stop = f"wait for it or stop it (`outlast kill {name}`)"
    if task == mine[1] and (other == mine[0] or is_new):
        look = "" if kind == "script" else f"`outlast output {name} -f` shows what it prints; "
        return RunRefused(
            f"task {task} is running already, {'just started' if is_new else f'in run {other}'} (pid {pid}); it works in {folder}",
            hint=f"{look}{stop}",
        )
    return RunRefused(
        f"{'a new run' if is_new else f'run {other}'} of task {task} (pid {pid}) works in {folder} already",
        hint=f"{stop}{_INSTEAD[kind]}",
    )
