"""Checks and invariants of a contract: shell commands in the workspace, each with a time limit."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.core.values import Check

if TYPE_CHECKING:
    import subprocess

OUTPUT_CHARS_MAX = 4_000
TIMED_OUT = 124


def run_checks(commands: Sequence[str], folder: Path, timeout_s: float) -> tuple[Check, ...]:
    """Run each command; stop at the first that fails."""
    done: list[Check] = []
    for command in commands:
        done.append(run_check(command, folder, timeout_s))
        if done[-1].exit_code != 0:
            break
    return tuple(done)


def run_check(command: str, folder: Path, timeout_s: float) -> Check:
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
            start_new_session=True,
        )
        try:
            exit_code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            exit_code = TIMED_OUT
        except BaseException:
            _kill_group(process)
            raise
        return Check(command, exit_code, _tail(output.fileno()))


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
