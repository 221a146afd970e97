"""The script behind a keeper: its pidfd shows when it ends, its shell's notes say how, and a file names it to later starts."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.errors import AgentStopped
from outlast.processes import cause_of_death
from outlast.store import locks
from outlast.store.local import Local
from outlast.supervisor.socket.wire import Note
from outlast.supervisor.timing import Timing

SHUTDOWN = "/run/nologin"


class Pair(msgspec.Struct, frozen=True):
    """A keeper and its script, each named by pid and start so that no later process passes for it."""

    keeper: int
    keeper_ticks: int
    script: int
    script_ticks: int

    @property
    def is_leaving(self) -> bool:
        """Whether the script is gone while its keeper still records that."""
        return _lives(self.keeper, self.keeper_ticks) and not _lives(self.script, self.script_ticks)


def _lives(pid: int, ticks: int) -> bool:
    return bool(ticks) and locks.start_ticks(pid) == ticks and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


def pair_of(local: Local, run: str) -> Pair | None:
    """The last keeper of a run and its script; None if it never had a keeper."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode(local.keeper_note(run).read_bytes(), Pair)
    return None


def wait_until_left(local: Local, runs: Iterable[str]) -> bool:
    """Wait while keepers of these runs record the end of their scripts. Returns whether there was such a keeper."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.keeper_leaving_s
    waited = False
    for run in runs:
        while (there := pair_of(local, run)) is not None and there.is_leaving and time.monotonic() < until_s:
            waited = True
            time.sleep(timing.look_every_s)
    return waited


class Script:
    """The process that a keeper watches, with its shell's notes about it."""

    def __init__(self, pid: int, ticks: int, fd: int) -> None:
        self.pid, self.ticks, self._fd = pid, ticks, fd
        self._oom = cause_of_death.OomMark.take(pid)
        self._signal = self._killed = ""
        self._code: int | None = None

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._fd

    @property
    def is_gone(self) -> bool:
        return bool(select.select([self._fd], [], [], 0)[0])

    def record(self, local: Local, run: str) -> None:
        """Write down this keeper and its script, for later starts."""
        pair = Pair(os.getpid(), locks.start_ticks(os.getpid()), self.pid, self.ticks)
        local.keeper_note(run).write_bytes(msgspec.json.encode(pair))

    def take(self, note: Note) -> str:
        """Apply a shell's note. Returns the signal if one interrupted this very script just now, else ""."""
        if note.name != str(self.pid):
            return ""  # a script that this one started
        match note.kind:
            case "interrupted":
                self._signal = note.text
                return note.text
            case "killed":
                self._killed = note.text
            case "left":
                self._code = int(note.text) if note.text.isdigit() else None
            case _:
                pass
        return ""

    def end(self) -> AgentStopped | None:
        """How it ended; None if it ended by itself with 0, without a signal to stop.

        A script that ends with 0 after such a signal may have been cut short or may have shrugged it off. Nobody can
        tell, so the run stays open: the next start replays what is done and finishes.
        """
        if self._killed:
            return AgentStopped(f"killed (SIG{self._killed}), sender unknown", cause="signal")
        if self._signal:
            left = f"; it exited with {self._code}" if self._code is not None else ""
            wanted = self._signal != "HUP" and not os.path.exists(SHUTDOWN)
            evidence = f"SIG{self._signal} to pid {self.pid}, sender unknown{left}"
            return AgentStopped(evidence, cause="signal", wanted=wanted, exit_code=self._code)
        if self._code is None:
            return self._without_a_word()
        if self._code != 0:
            ended = cause_of_death.of_status(self._code << 8, oom=self._oom)
            return AgentStopped(ended.evidence, cause=ended.cause, exit_code=self._code)
        return None

    def _without_a_word(self) -> AgentStopped:
        if self._oom.kills_since():
            ended = cause_of_death.of_status(signal.SIGKILL, oom=self._oom)
            return AgentStopped(ended.evidence, cause=ended.cause)
        return AgentStopped(
            f"pid {self.pid} is gone without warning: killed (SIGKILL), or another program took its place",
            cause="crash",
        )
