"""Checks and invariants of a contract: shell commands in the workspace, each with a time limit."""

import os
import signal
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlast import settings
from outlast.core.values import Check
from outlast.runs.timing import Timing

if TYPE_CHECKING:
    import subprocess

MARK = "OUTLAST_ATTEMPT"  # as `processes.reap` looks for it
OUTPUT_CHARS_MAX = 4_000
TIMED_OUT = 124


def run_checks(commands: Sequence[str], folder: Path, timeout_s: float, mark: str = "") -> tuple[Check, ...]:
    """Run each command; stop at the first that fails. With the `mark` of an attempt they are stopped like everything of it."""
    return tuple(filter(None, check_one_by_one(commands, folder, timeout_s, mark)))


def check_one_by_one(
    commands: Sequence[str], folder: Path, timeout_s: float, mark: str = ""
) -> Generator[Check | None, None, None]:
    """Each command's check as it ends, up to the first that fails, and None now and then while one runs.

    Closing this kills the command under way.
    """
    for command in commands:
        check = yield from _check(command, folder, timeout_s, mark)
        yield check
        if check.exit_code != 0:
            break


def _check(command: str, folder: Path, timeout_s: float, mark: str) -> Generator[None, None, Check]:
    """One command in its own process group, so that a time-out takes all of it."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=settings.went_to(settings.inherited(**({MARK: mark} if mark else {})), str(folder)),
            start_new_session=True,
            preexec_fn=_unblock,
        )
        try:
            exit_code = yield from _wait(process, timeout_s)
        except BaseException:
            _kill_group(process)
            raise
        return Check(command, exit_code, _tail(output.fileno()))


def _wait(process: "subprocess.Popen[bytes]", timeout_s: float) -> Generator[None, None, int]:
    import subprocess

    until_s, look_s = time.monotonic() + timeout_s, Timing.current().check_look_s
    while True:
        try:
            return process.wait(min(look_s, max(0.0, until_s - time.monotonic())))
        except subprocess.TimeoutExpired:
            yield
        if time.monotonic() >= until_s:
            _kill_group(process)
            return TIMED_OUT


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _tail(fd: int) -> str:
    size = os.fstat(fd).st_size
    data = os.pread(fd, OUTPUT_CHARS_MAX, max(0, size - OUTPUT_CHARS_MAX))
    return data.decode(errors="replace").strip()
