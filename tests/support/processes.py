"""Starting, watching, stopping and killing processes. Nothing here sleeps for a guessed time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.002
POLL_MAX_S = 0.03  # what takes long is asked for less often: asking costs the very time that it needs
_THREADS = 16  # in /proc/PID/stat, counted from the field behind the state
LIMIT_S = 120.0  # only there to end a hang: machines that run tests are busy


def wait_for(condition: Callable[[], T | None], limit_s: float = LIMIT_S, what: str = "a condition") -> T:
    """Poll until the condition is true, and return its value. Raises TimeoutError, which says what was awaited."""
    deadline, pause_s = time.monotonic() + limit_s, POLL_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s} s for {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_MAX_S)


def python_command(script: str | Path, *arguments: str) -> list[str]:
    """The command that runs a file (a Path) or a text (a str) with this very interpreter."""
    how = [str(script)] if isinstance(script, Path) else ["-c", script]
    return [sys.executable, *how, *arguments]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment, without byte code written on the side: a first and a second run do the same calls."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", **(extra or {})}


def spawn(
    command: Sequence[str],
    *,
    output: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, its output in a file (never a pipe that can fill)."""
    with open(output or os.devnull, "wb") as sink:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=clean_environment(env),
            start_new_session=True,
        )


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    output: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A spawned process that is certainly gone, with all of its group, at the end of the block."""
    process = spawn(command, output=output, cwd=cwd, env=env)
    try:
        yield process
    finally:
        kill_group(process)


def kill(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL and reap; the exit code (-9, unless it had ended before)."""
    process.kill()
    return process.wait()


def kill_group(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL to a spawned process and everything still in its group, and reap it.

    Of one that was reaped before, the number may be another process's by now; that one is let be. While orphans are
    in its group the number is given to nobody.
    """
    if process.returncode is None or not os.path.exists(f"/proc/{process.pid}"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def kill_at_once(pids: Sequence[int], *, wait: bool = False) -> None:
    """All stopped first, so that none acts on the death of another; then killed, all of them."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in dict.fromkeys(pids):
            with contextlib.suppress(ProcessLookupError):  # one left alive was quicker
                os.kill(pid, number)
    if wait:
        gone(pids)


def gone(pids: Sequence[int]) -> None:
    """Wait for the end of processes."""
    wait_for(lambda: not any(alive(pid) for pid in pids) or None, what=f"the end of {pids}")


def stop(pid: int) -> None:
    """SIGSTOP; the process is stopped when this returns."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state(pid) in ("T", "t"), what=f"process {pid} to stop")


def stop_group(leader: int) -> bool:
    """SIGSTOP to a whole group; its leader is stopped when this returns, or has ended: then False.

    A leader whose child is stopped between vfork and exec cannot stop: it waits for the child. That child goes on until
    it has executed its program. To continue and stop the group would leave it no turn on a busy machine.
    """

    def is_still() -> bool:
        letter = state(leader)
        if letter == "D":
            _let_exec(leader)
        return letter in (None, "T", "t", "Z", "X")

    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGSTOP)
        wait_for(is_still, what=f"group {leader} to stop")
        os.killpg(leader, signal.SIGSTOP)  # also a child that went on
    return state(leader) in ("T", "t")


def stands_still(pid: int) -> bool:
    """Whether a process is stopped, or waits for a child of its own that was stopped before it executed its program."""
    letter = state(pid)
    return letter == "T" or (letter == "D" and bool(_stopped_before_exec(pid)))


def _let_exec(parent: int) -> None:
    """Continue the stopped children that have executed nothing yet."""
    for child in _stopped_before_exec(parent):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)


def _stopped_before_exec(parent: int) -> list[int]:
    """The stopped children between vfork and exec: they share their parent's memory."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return [child for child in children if state(child) == "T" and words(child) == words(parent)]


def go_on(pid: int) -> None:
    """SIGCONT; the process is no longer stopped when this returns."""
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: state(pid) not in ("T", "t"), what=f"process {pid} to go on")


def state(pid: int) -> str | None:
    """The state letter of /proc (R, S, D, T, t, Z, …), None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()[0]


def words(pid: int) -> list[str]:
    """The command line of a process; none when it is gone."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [word.decode(errors="replace") for word in line.split(b"\0")]


def alive(pid: int) -> bool:
    """There is such a process and it is not a zombie. Threads of a killed one may still hold its files and locks."""
    try:
        letter, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return letter not in "ZX" or int(fields[_THREADS]) > 1


def thread_group(tid: int) -> int:
    """The process id that a thread id belongs to."""
    for line in Path(f"/proc/{tid}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"no thread {tid}")
