"""Names the cause of a process's death, with the evidence; says so if the cause is unknown."""

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.core.events import Cause
from outlast.processes import cgroups
from outlast.processes.programs import CannotStart, ProgramMissing

LIMIT_MAX_BYTES = 1 << 60  # a larger number means "no limit"
_SHELL_OFFSET = 128
_CRASHES = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Death:
    """Why a process ended, the words that show it, and its exit code or signal."""

    cause: Cause
    evidence: str
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class OomMark:
    """How often the kernel had killed for memory in a process's group when the mark was taken.

    Only the process's own group and those below count: a death beside it is not evidence. `strained` has, from the group
    upwards, how often each limit had been hit, which later shows whose limit it was.
    """

    place: cgroups.Place | None
    kills: int
    strained: tuple[tuple[Path, int], ...]

    @classmethod
    def take(cls, pid: int) -> "OomMark":
        """Remember the current counters. Without a memory group the mark never sees a kill."""
        place = cgroups.memory(pid)
        if place is None:
            return cls(None, 0, ())
        return cls(place, _kills(place), tuple((folder, _strain(folder)) for folder in place.upwards()))

    def kills_since(self) -> int:
        """How many processes the kernel has killed for memory there since the mark was taken."""
        return 0 if self.place is None else max(0, _kills(self.place) - self.kills)

    def where(self) -> str:
        """Whose limit it was: `out of memory in /build (limit 50 MB)`; the whole machine's if no limit was hit."""
        for folder, strain in self.strained:
            limit_bytes = _limit_bytes(folder)
            if limit_bytes is not None and _strain(folder) > strain and self.place is not None:
                name = "/" + str(folder.relative_to(self.place.mount)).strip(".")
                return f"out of memory in {name} (limit {limit_bytes // 1_000_000} MB)"
        return "out of memory on the whole machine"


def _kills(place: cgroups.Place) -> int:
    """v2 counts groups below with their parent; v1 does not."""
    if place.version == 2:
        return _counter(place.folder / "memory.events", "oom_kill")
    return sum(
        _counter(folder / "memory.oom_control", "oom_kill") for folder in cgroups.subtree(place.folder)
    )


def _strain(folder: Path) -> int:
    """How often the limit of this very group was hit: v2 counts kills, v1 every hit."""
    return _counter(folder / "memory.events.local", "oom") + _number(folder / "memory.failcnt")


def _counter(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        word, _, number = line.partition(" ")
        if word == name and number.isdigit():
            return int(number)
    return 0


def _limit_bytes(folder: Path) -> int | None:
    limits = [_number(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return min((limit for limit in limits if 0 < limit < LIMIT_MAX_BYTES), default=None)


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def of_status(
    wait_status: int, *, oom: OomMark | None = None, sent: Mapping[int, str] | None = None
) -> Death:
    """The death behind a wait status.

    `sent` says who is known to have sent which signal, and counts first; `oom` was taken when the process started.
    """
    kills = oom.kills_since() if oom is not None else 0
    memory = f"killed by the kernel: {oom.where()}" if oom is not None and kills else ""
    if os.WIFSIGNALED(wait_status):
        core = ", core dumped" if os.WCOREDUMP(wait_status) else ""
        return _signalled(os.WTERMSIG(wait_status), core, memory, sent or {})
    assert os.WIFEXITED(wait_status), "a process must have ended to have a cause of death"
    return _exited(os.WEXITSTATUS(wait_status), memory, kills)


def _signalled(number: int, core: str, memory: str, sent: Mapping[int, str]) -> Death:
    name = _signal_name(number)
    if number in sent:
        return Death("signal", f"killed ({name}{core}) by {sent[number]}", signal=number)
    if number == signal.SIGKILL and memory:
        return Death("oom", memory, signal=number)
    if number in _CRASHES:
        return Death("crash", f"crashed ({name}{core})", signal=number)
    return Death("signal", f"killed ({name}{core}), sender unknown", signal=number)


def _exited(code: int, memory: str, kills: int) -> Death:
    evidence = f"exited with {code}"
    number = code - _SHELL_OFFSET
    if number == signal.SIGKILL and memory:
        return Death("oom", f"{evidence} (128 + SIGKILL: a child of it was {memory})", exit_code=code)
    if 0 < number < signal.NSIG:
        evidence += f" (128 + {_signal_name(number)}: a child of it may have been killed)"
    if code and memory:
        evidence += f"; {kills} of its group {memory}"
    return Death("crash" if code else "done", evidence, exit_code=code)


def of_error(error: CannotStart) -> Death:
    """The death of a process that could not start."""
    return Death("program_missing" if isinstance(error, ProgramMissing) else "crash", str(error))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
