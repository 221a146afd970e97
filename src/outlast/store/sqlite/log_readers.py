"""Foreign programs that read a store for long: while they do, its log (`-wal`) cannot begin anew, and grows."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from outlast.store import locks, notices
from outlast.store.timing import Timing

# SQLite's marks of what readers still need: bytes of `-shm`, locked while a transaction reads.
_MARKS = range(123, 128)
_WORDS_CHARS = 80
LONG_BYTES = 16 << 20  # a log above this is worth a look: usually it is reset at 4 MiB
FLOOR_BYTES = 8 << 20  # a longer log is cut to this when it is reset


class LogReader(NamedTuple):
    """A process in a transaction that reads."""

    pid: int
    age_s: float  # of the process
    words: str


def readers(database: Path) -> list[LogReader]:
    """Other processes that read the store at this moment; empty where the system does not tell of locks."""
    try:
        inode = os.stat(f"{database}-shm").st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    pids = {pid for line in lines if (pid := _reads(line, inode)) and pid != os.getpid()}
    return [_described(pid) for pid in sorted(pids)]


def _reads(line: str, inode: int) -> int:
    """The pid of a lock on one of the marks; 0 for any other line."""
    parts = line.split()
    if len(parts) != 8 or parts[1] != "POSIX" or not parts[5].endswith(f":{inode}") or parts[7] == "EOF":
        return 0
    return int(parts[4]) if int(parts[6]) in _MARKS or int(parts[7]) in _MARKS else 0


def _described(pid: int) -> LogReader:
    ticks = locks.start_ticks(pid)
    age_s = locks.boottime_s() - ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    return LogReader(pid, age_s, words.strip()[:_WORDS_CHARS])


def size(database: Path) -> int:
    """The bytes of the log."""
    try:
        return os.stat(f"{database}-wal").st_size
    except OSError:
        return 0


def in_words(reader: LogReader, log_bytes: int) -> str:
    """What the person should know."""
    return (
        f"pid {reader.pid} ({reader.words}), {reader.age_s / 60:,.0f} min old, is reading the store and keeps its log"
        f" from being reset: {log_bytes / (1 << 20):,.0f} MiB"
    )


class LogWatch:
    """Says once of each reader that it holds up the log: of those that two looks in a row found reading."""

    def __init__(self, database: Path, timing: Timing) -> None:
        self._database, self._timing = database, timing
        self._last_look_s = time.monotonic()
        self._reading = frozenset[int]()
        self._mentioned = set[int]()

    def look(self) -> None:
        """Look, but not too often."""
        now_s = time.monotonic()
        if now_s - self._last_look_s < self._timing.log_look_s:
            return
        self._last_look_s = now_s
        log_bytes = size(self._database)
        found = readers(self._database) if log_bytes > LONG_BYTES else []
        for reader in found:
            if reader.pid in self._reading and reader.pid not in self._mentioned:
                self._mentioned.add(reader.pid)
                notices.say(in_words(reader, log_bytes))
        self._reading = frozenset(reader.pid for reader in found)
