"""Counting and breaking system calls with strace: the N-th write, fsync or rename under a folder.

Break points come from a dry run: `dry = Traced(command(folder), folder).run()` lists the calls, and
`Traced(command(other), other).kill_at(n, dry)` aims at the n-th of them in a fresh folder.

What there is to know about strace 6.1, all seen:
- `when=N` counts per thread and per call name, over all paths; so the dry run computes it. When another thread
  gets there first, that one is hit; `Trace.hit` tells which call it was, and a hit elsewhere raises `Drifted`.
- With `--seccomp-bpf` an injected signal is silently not delivered (errors are). So signals go without it.
- SIGKILL at a call's entry: the call is not done. SIGSTOP: the call is done, then the process stops.
- `-P` takes single files, no folders, and hides all other calls from the log and from `when`; it is used only
  for faults that stay, which else would reach stderr and sockets too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import processes

WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "copy_file_range", "sendfile")
SYNCS = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync")
RENAMES = ("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat")
REMOVALS = ("unlink", "unlinkat", "rmdir")
SIZES = ("ftruncate", "truncate", "fallocate")
FOLDERS = ("mkdir", "mkdirat")
DISK = WRITES + SYNCS + RENAMES + REMOVALS + SIZES + FOLDERS

_NAMED_BY_PATH = frozenset((*RENAMES, *REMOVALS, "truncate", *FOLDERS))
_LIMIT_S = 120.0

_LINE = re.compile(r"^(\d+) +(\w+)\((.*)$")
_STOPPED = re.compile(r"^(\d+) +--- stopped by SIGSTOP ---", re.MULTILINE)
_RESULT = re.compile(r"\) += (.*)$")
_ARGUMENT = re.compile(r'(?:\d+|AT_FDCWD)<((?:[^>\\]|\\.)*)>|"((?:[^"\\]|\\.)*)"')


class Drifted(AssertionError):
    """The program did other calls than in the dry run, and the aim was not met under the folder."""


@dataclass(frozen=True, slots=True)
class Syscall:
    """One system call under the folder."""

    nth: int  # among all those of the trace, in the order they began, from 1
    thread: int
    name: str
    paths: tuple[str, ...]  # relative to the folder
    when: int  # what strace counts: among all calls of that name of that thread, on any path
    when_here: int  # the same, on paths under the folder only
    result: str  # "" when it did not return

    def __str__(self) -> str:
        return f"call {self.nth}: {self.name} {' '.join(self.paths)}"


@dataclass(frozen=True, slots=True)
class Trace:
    """What a command did under the folder, and where it was broken."""

    calls: tuple[Syscall, ...]
    returncode: int
    output: str
    hit: Syscall | None = None

    def count(self, *names: str) -> int:
        """How many of these calls (no name: of all) there were."""
        return sum(not names or call.name in names for call in self.calls)


@cache
def available() -> str | None:
    """Why strace cannot be used here; None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"strace cannot trace: {tried.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Traced:
    """A command to run under strace, the folder that counts, and the calls that count."""

    command: Sequence[str]
    under: Path
    calls: Sequence[str] = DISK
    cwd: Path | None = None
    env: Mapping[str, str] | None = None

    def run(self) -> Trace:
        """Run to the end and list the calls: the dry run, or a count."""
        return self._finish(None)

    def kill_at(self, nth: int, dry: Trace) -> Trace:
        """SIGKILL just before the n-th call of the dry run is done; `hit` is None when it had fewer."""
        return self._finish(_Aim.at(nth, dry, "signal=KILL"))

    def fail_at(self, nth: int, dry: Trace, error: str = "EIO", *, persistent: bool = False) -> Trace:
        """Let the n-th call fail, undone, with EIO, ENOSPC, …; `persistent`: from then on all of its name.

        Persistent faults reach only the paths that the dry run named; else stderr and the witness would fail too.
        """
        return self._finish(_Aim.at(nth, dry, f"error={error}", onwards=persistent))

    def stop_at(self, nth: int, dry: Trace) -> Stopped:
        """SIGSTOP right after the n-th call is done; the process is stopped when this returns."""
        aim = _Aim.at(nth, dry, "signal=STOP")
        assert aim is not None, f"the dry run had {len(dry.calls)} calls, none to stop at {nth}"
        tracing = _Tracing(self, aim)
        try:
            return Stopped(tracing)
        except BaseException:
            tracing.close()
            raise

    def _finish(self, aim: _Aim | None) -> Trace:
        with _Tracing(self, aim) as tracing:
            return tracing.wait()


class Stopped:
    """A process stopped in the middle; killed at the end of the block if it is still there."""

    def __init__(self, tracing: _Tracing) -> None:
        self._tracing = tracing
        self.pid = processes.thread_group(tracing.wait_stopped())

    def go_on(self) -> None:
        """SIGCONT."""
        processes.go_on(self.pid)

    def wait(self) -> Trace:
        """Its end, after `go_on`."""
        return self._tracing.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tracing.close()


@dataclass(frozen=True, slots=True)
class _Aim:
    """What strace is told to break."""

    name: str
    when: int
    fault: str
    only: tuple[str, ...] = ()  # of a fault that stays: the paths it reaches

    @classmethod
    def at(cls, nth: int, dry: Trace, fault: str, *, onwards: bool = False) -> _Aim | None:
        if nth > len(dry.calls):
            return None
        call = dry.calls[nth - 1]
        if not onwards:
            return cls(call.name, call.when, fault)
        paths = {path for each in dry.calls for path in each.paths}
        return cls(call.name, call.when_here, fault, tuple(sorted(paths)))

    def __str__(self) -> str:
        return f"inject={self.name}:{self.fault}:when={self.when}{'+' if self.only else ''}"

    @property
    def is_signal(self) -> bool:
        return self.fault.startswith("signal=")


class _Tracing:
    """One strace process; its log and the command's output are in a folder of their own until `close`."""

    def __init__(self, traced: Traced, aim: _Aim | None) -> None:
        self._under = os.path.realpath(traced.under)
        self._cwd = os.path.realpath(traced.cwd or Path.cwd())
        self._aim = aim
        self._folder = Path(tempfile.mkdtemp(prefix="outlast-strace-"))
        self._log = self._folder / "log"
        options = ["-f", "-y", "-s", "0", "-o", str(self._log), "-e", "trace=?" + ",?".join(traced.calls)]
        options += ["-e", str(aim)] if aim else []
        for path in aim.only if aim else ():
            options += ["-P", os.path.join(self._under, path)]
        # An injected signal is lost with --seccomp-bpf; without it a trial takes four times as long.
        options += [] if aim and aim.is_signal else ["--seccomp-bpf"]
        command = ["strace", *options, *traced.command]
        self._process = processes.spawn(
            command, output=self._folder / "output", cwd=traced.cwd, env=traced.env
        )

    def wait(self) -> Trace:
        try:
            returncode = self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the traced command ran for {_LIMIT_S} s: {self._output()}") from error
        lines = self._log.read_text(errors="surrogateescape").splitlines()
        calls = _parse(lines, self._under, self._cwd)
        hit = self._hit(calls)
        return Trace(tuple(call for call in calls if call.paths), returncode, self._output(), hit)

    def _hit(self, calls: Sequence[Syscall]) -> Syscall | None:
        """The first call that fits the aim, in whichever thread: strace broke that one."""
        if self._aim is None:
            return None
        for call in calls:
            if (call.name, call.when) == (self._aim.name, self._aim.when):
                if call.paths:
                    return call
                break
        raise Drifted(f"{self._aim} was not met under {self._under}:\n{self._output()}")

    def wait_stopped(self) -> int:
        """The thread that was stopped."""

        def stopped() -> re.Match[str] | None:
            if self._process.poll() is not None:
                raise Drifted(f"{self._aim} was not met: the command ended:\n{self._output()}")
            return _STOPPED.search(
                self._log.read_text(errors="surrogateescape") if self._log.exists() else ""
            )

        return int(processes.wait_for(stopped, what=f"{self._aim}")[1])

    def _output(self) -> str:
        return (self._folder / "output").read_text(errors="replace")

    def close(self) -> None:
        processes.kill_group(self._process)
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse(lines: Sequence[str], under: str, cwd: str) -> list[Syscall]:
    """All calls in the order they began; those elsewhere have no paths, and the number of the next one that has."""
    anywhere: Counter[tuple[int, str]] = Counter()
    here: Counter[tuple[int, str]] = Counter()
    calls: list[Syscall] = []
    nth = 1
    for started in filter(None, map(_LINE.match, lines)):
        thread, name, rest = int(started[1]), started[2], started[3]
        paths = _paths_under(name, rest, under, cwd)
        anywhere[thread, name] += 1
        here[thread, name] += bool(paths)
        result = _RESULT.search(rest)
        counts = anywhere[thread, name], here[thread, name]
        calls.append(Syscall(nth, thread, name, paths, *counts, result[1] if result else ""))
        nth += bool(paths)
    return calls


def _paths_under(name: str, arguments: str, under: str, cwd: str) -> tuple[str, ...]:
    """The paths in a call's arguments that lie under the folder, relative to it."""
    folder, found = cwd, []
    for match in _ARGUMENT.finditer(arguments):
        descriptor, text = match[1], match[2]
        if text is None and name in _NAMED_BY_PATH:
            folder = descriptor  # of renameat and the like: the next name is relative to it
        elif text is None:
            found.append(descriptor)
        elif name in _NAMED_BY_PATH:
            found.append(os.path.normpath(os.path.join(folder, text)))
    inside = (os.path.relpath(path, under) for path in found if path == under or path.startswith(under + "/"))
    return tuple(inside)
