"""A process that has imported everything and forks the agent on demand: an attempt costs a fork, not a start of Python.

Run as a program it is the zygote: one JSON line in per start, `started PID` and later `ended PID STATUS` lines out.
Imported it is `Zygote`, the other end. Each child is a real process with its own session, killed with real signals.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from tests.crash import agent
from tests.support import processes
from tests.support.environment import ROOT

LIMIT_S = 180.0


class Child:
    """A started attempt."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Its exit code, or the negative number of the signal that killed it."""
        return self._zygote.wait(self.pid, limit_s)

    def wait_stopped(self, story: Callable[[], str] = str) -> None:
        """Wait until it has stopped itself."""
        processes.wait_for(lambda: self.ended or processes.state(self.pid) == "T", what=f"{self.pid} to stop")
        assert not self.ended, f"the agent ended with {self.wait()} instead of stopping: {story()}"

    @property
    def ended(self) -> bool:
        return self._zygote.ended(self.pid)

    def signal(self, number: int) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):  # it may be gone and reaped before we hear of it
                os.kill(self.pid, number)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)


class Zygote:
    """The other end of the pipe. Children left at the end of the block are killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.crash.zygote"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.clean_environment(),
        )
        self._statuses: dict[int, int] = {}
        self._alive: set[int] = set()
        self._started = 0
        self._buffer = b""

    def start(self, spec: agent.Spec) -> Child:
        assert self._process.stdin is not None, "stdin is a pipe"
        self._process.stdin.write(msgspec.json.encode(spec) + b"\n")
        self._process.stdin.flush()
        self._started = 0
        while not self._started:
            if not self._read(LIMIT_S):
                raise TimeoutError("the zygote does not answer")
        return Child(self, self._started)

    def ended(self, pid: int) -> bool:
        while self._read(0):
            pass
        return pid in self._statuses

    def wait(self, pid: int, limit_s: float) -> int:
        while pid not in self._statuses:
            if not self._read(limit_s):
                raise TimeoutError(f"agent {pid} ran for {limit_s} s; it is {processes.state(pid)}")
        return self._statuses[pid]

    def _read(self, limit_s: float) -> bool:
        assert self._process.stdout is not None, "stdout is a pipe"
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
            if not ready:
                return False
            got = os.read(self._process.stdout.fileno(), 65536)
            assert got, f"the zygote died with {self._process.wait()}"
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\n")
        kind, *numbers = line.decode().split()
        if kind == "started":
            self._started = int(numbers[0])
            self._alive.add(self._started)
            self._statuses.pop(self._started, None)
        else:
            self._alive.discard(int(numbers[0]))
            self._statuses[int(numbers[0])] = int(numbers[1])
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in list(self._alive):
            if not self.ended(pid):
                os.kill(pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def serve(lines: IO[bytes]) -> None:
    """Fork for every line; tell of every end. Ends with its input, and never leaves a child behind."""
    poll = select.poll()
    poll.register(lines, select.POLLIN)
    children: dict[int, int] = {}  # by pidfd
    buffer = b""
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                _, status = os.waitpid(children[fd], 0)
                print("ended", children.pop(fd), os.waitstatus_to_exitcode(status), flush=True)
                poll.unregister(fd)
                os.close(fd)
                continue
            got = os.read(fd, 65536)
            if not got:
                for pid in children.values():
                    os.kill(pid, signal.SIGKILL)
                return
            *whole, buffer = (buffer + got).split(b"\n")
            for line in whole:
                pid = _fork(line)
                pidfd = os.pidfd_open(pid)
                children[pidfd] = pid
                poll.register(pidfd, select.POLLIN)
                print("started", pid, flush=True)


def _fork(line: bytes) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.setsid()
        spec = msgspec.json.decode(line, type=agent.Spec)
        output = os.open(
            Path(spec.notes).with_suffix(".output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        for fd in (1, 2):
            os.dup2(output, fd)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        code = agent.main(spec)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with contextlib.suppress(ImportError):  # once, and not in every child
        importlib.import_module("outlast.store.postgres.store")
    serve(sys.stdin.buffer.raw)  # type: ignore[attr-defined]
