"""The other end of `saving`: a worker that is stopped, killed and listened to, and a judge of what a cut left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.crash.save_worker import STOPS, Job, Question, Told
from tests.support import processes
from tests.support.environment import ROOT
from tests.support.loopdisk import LoopDisk

LIMIT_S = 180.0


def _start(*words: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.save_worker", *words],
        cwd=ROOT,
        env=processes.clean_environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


class Worker:
    """A process that works and saves, in a session of its own; certainly gone at the end of the block."""

    def __init__(self, job: Job) -> None:
        self._process = _start("work", msgspec.json.encode(job).decode())
        self.pid = self._process.pid
        self._said = b""
        self._heard: list[Told] = []
        self._stops = 0

    @property
    def told(self) -> tuple[Told, ...]:
        """The saves that returned, as far as it could say so."""
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            self._listen(0)
        return tuple(self._heard)

    def _listen(self, wait_s: float) -> bool:
        """Take in what it said; False when it can say nothing more."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while select.select([fd], [], [], wait_s)[0]:
            data = os.read(fd, 1 << 16)
            if not data:
                return False
            wait_s = 0
            *lines, self._said = (self._said + data).split(b"\n")
            self._heard += [msgspec.json.decode(line, type=Told) for line in lines if line != STOPS]
            self._stops += lines.count(STOPS)
        return True

    def listen_for(self, seconds: float) -> bool:
        """Let it go on for this long; False when it ended."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._listen(left):
                return False
        return True

    def wait_told(self, number: int) -> None:
        processes.wait_for(lambda: len(self.told) >= number, LIMIT_S, f"save {number}")

    def wait_stopped(self) -> bool:
        """Wait until it stopped itself, for the first time or once more; False when it ended instead."""
        processes.wait_for(lambda: self._ended() or self._stops, LIMIT_S, "the worker to stop")
        self._stops = 0
        processes.wait_for(
            lambda: self._ended() or processes.state(self.pid) == "T", LIMIT_S, "the worker to stop"
        )
        return not self._ended()

    def _ended(self) -> bool:
        self._listen(0)
        return self._process.poll() is not None

    def stop(self) -> bool:
        """Stop it and its gits, wherever they are; False when it has ended."""
        return not self._ended() and processes.stop_group(self.pid)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL to it alone, as from outside; what it started ends by itself."""
        self._process.kill()
        return self.wait()

    def kill_all(self) -> int:
        """SIGKILL to it and its gits at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        while self._listen(LIMIT_S):
            pass
        return self._process.wait(LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes.kill_group(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Judge:
    """Says what a cut lost, in a place where the copy lies where the disk was."""

    def __init__(self, disk: LoopDisk) -> None:
        self._disk = disk
        self._process = _start("judge", stdin=subprocess.PIPE)
        self.cuts = 0

    def lost(self, job: Job, told: tuple[Told, ...], *, whole: bool = False, mended: bool = False) -> str:
        """Cut now; empty when everything told is there, else what is wrong."""
        self.cuts += 1
        cut = self._disk.cut()
        try:
            return self._ask(Question(job, str(cut), told, whole, mended))
        finally:
            self._disk.forget(cut)

    def check(self, job: Job, told: tuple[Told, ...], where: str, *, whole: bool = False) -> None:
        said = self.lost(job, told, whole=whole)
        assert not said, f"cut {where}, {len(told)} saves told:\n{said}"

    def _ask(self, question: Question) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode(question) + b"\n")
        stdin.flush()
        said: str = msgspec.json.decode(stdout.readline())
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes.kill_group(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def neighbour_flushes(place: Path) -> None:
    """Another program flushes a file of its own: the file system's journal is committed, nobody else's data is."""
    path = place / "neighbour"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"x")
        os.fsync(fd)
    finally:
        os.close(fd)
