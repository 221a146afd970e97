"""An attempt of a test's own: real processes with its mark, and a pipe that tells when the very last is gone."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outlast.processes import reap
from outlast.processes.proc import Proc, look
from tests.support.processes import LIMIT_S, clean_environment, wait_for

PREAMBLE = """
import ctypes, os, signal, sys, time
from pathlib import Path

def ready(name="ready"):
    Path(name + ".new").write_text(str(os.getpid()))
    Path(name + ".new").rename(name)

def forget_mark():
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    for start, end in ((45, 46), (47, 48)):
        ctypes.memset(int(fields[start]), 0, int(fields[end]) - int(fields[start]))
"""


@dataclass
class Attempt:
    """Starts processes that carry the mark, and knows without reading /proc whether any of them lives."""

    folder: Path
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    epoch: int = 3
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hears, self._holds = os.pipe()

    @property
    def mark(self) -> str:
        return f"{self.run}.{self.epoch}"

    @property
    def witness(self) -> int:
        """The descriptor by which a process is known to live; it has the same number in each that is started."""
        return self._holds

    def start(self, script: str, *arguments: str, marked: bool = True) -> int:
        """Start a script in a session of its own; its pid."""
        variables = clean_environment({"OUTLAST_ATTEMPT": self.mark} if marked else None)
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + script, *arguments],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            pass_fds=[self._holds],
            start_new_session=True,
        )
        self.started.append(process)
        return process.pid

    def told(self, name: str = "ready") -> int:
        """The pid that a process wrote when it was ready."""
        path = self.folder / name
        wait_for(path.exists, what=name)
        return int(path.read_text())

    def find(self, **more: object) -> list[Proc]:
        return reap.find(self.run, **more)  # type: ignore[arg-type]

    def pids(self, **more: object) -> set[int]:
        return {proc.pid for proc in self.find(**more)}

    def all_gone(self, limit_s: float = LIMIT_S) -> bool:
        """Whether the last holder of the pipe's other end is dead, within the limit. Nothing can be started after."""
        if self._holds >= 0:
            os.close(self._holds)
            self._holds = -1
        poller = select.poll()
        poller.register(self._hears, select.POLLHUP)
        return bool(poller.poll(limit_s * 1000))

    def close(self) -> None:
        """Kill whatever is left, found by its mark in a way of our own, and wait for our children."""
        for process in self.started:
            process.kill()
            process.wait()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"OUTLAST_ATTEMPT={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
        self.all_gone(0)
        os.close(self._hears)


@contextlib.contextmanager
def attempting(folder: Path) -> Iterator[Attempt]:
    attempt = Attempt(folder)
    try:
        yield attempt
    finally:
        attempt.close()


def looked(pid: int) -> Proc:
    proc = look(pid)
    assert proc is not None, f"pid {pid} is gone"
    return proc
