"""The roster of a run: on file, which processes were started for its calls, so that a later look finds what is left of them.

A line outlives every kill. It need not outlive a reboot: the processes do not."""

import contextlib
import os
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.processes import reap
from outlast.processes.proc import Proc
from outlast.store.locks import boot_id, pid_ns


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A call's mark with the key of its effect, or with the first process that it was given to."""

    boot: str
    pid_ns: str
    mark: str
    key: str = ""
    pid: int = 0
    start_ticks: int = 0


class Roster:
    """The processes of one run. Several may write to it and look at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def name(self, mark: str, key: str) -> None:
        """The call with this mark belongs to the effect with this key. Raises OSError where that cannot be written."""
        self._add(Entry(boot_id(), pid_ns(), mark, key))

    def enter(self, mark: str, first: Proc) -> None:
        """Put the process of a call on file before it begins. Raises OSError where it cannot be written."""
        self._add(Entry(boot_id(), pid_ns(), mark, "", *first.identity))

    def _add(self, entry: Entry) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            line = msgspec.json.encode(entry) + b"\n"
            if os.write(fd, line) != len(line):
                raise OSError(f"{self._path} could not be written whole")
        finally:
            os.close(fd)

    def alive(self, key: str = "") -> list[Proc]:
        """The living processes of the calls of this effect, of all calls without one: by descent, or by their mark."""
        entries = self._entries()
        return self._living(entries, {entry.mark for entry in entries if key in ("", entry.key)})

    def alive_of(self, mark: str) -> list[Proc]:
        """The living processes of the call with this mark."""
        return self._living(self._entries(), {mark})

    def _living(self, entries: list[Entry], marks: set[str]) -> list[Proc]:
        if not marks:
            return []
        firsts = {(entry.pid, entry.start_ticks) for entry in entries if entry.pid and entry.mark in marks}
        return list(reap.search_started(marks, firsts))

    def clear(self) -> None:
        """Forget all of them, once none lives."""
        if not self.alive():
            self._path.unlink(missing_ok=True)

    def _entries(self) -> list[Entry]:
        """The entries of this boot and this pid namespace. A line that was cut off is skipped: its process never began."""
        found, here = [], (boot_id(), pid_ns())
        with contextlib.suppress(FileNotFoundError):
            for line in self._path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    found.append(decoders.decode(line, Entry))
        return [entry for entry in found if (entry.boot, entry.pid_ns) == here]
