"""Reads /proc: which processes exist, who descends from whom, and their names. Changes nothing.

None means gone or not visible to us: processes vanish between two reads. OSError means that /proc cannot be read."""

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from outlast.core import secrets

ENVIRON_MAX_BYTES = 2 << 20
COMMAND_MAX_BYTES = 4096
COMMAND_MAX_CHARS = 200
STAT_MAX_BYTES = 4096
PASSWD_MAX_BYTES = 1 << 20
THREADS_MAX = 64
LINEAGE_LOOKS_MAX = 10_000
CHASES_MAX = 200
CHASED = 3
_VARIABLE = re.compile(rb"[A-Za-z_][^\s=\0]*=")
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD
# Where the fields of `stat` are after the name, which may itself contain spaces, brackets and newlines.
_STATE, _PPID, _PGID, _SID, _FLAGS, _THREADS, _START = 0, 1, 2, 3, 6, 17, 19


@dataclass(frozen=True, slots=True)
class Proc:
    """A process at one moment. `pid` and `start_ticks` together identify it."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    state: str
    uid: int
    threads: int = 1
    is_kernel: bool = False

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and waits for its parent. A first thread that ended before others does not count."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def identity(self) -> tuple[int, int]:
        """The identity that a later process with the same pid does not share."""
        return self.pid, self.start_ticks


def look(pid: int) -> Proc | None:
    """The present process, even a zombie; None if there is none. `uid` is its effective user."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except _GONE:
        return None
    try:
        return _parsed(pid, _read("stat", STAT_MAX_BYTES, folder), os.fstat(folder).st_uid)
    except (*_GONE, ValueError, IndexError):
        return None
    finally:
        os.close(folder)


def _parsed(pid: int, stat: bytes, uid: int) -> Proc:
    fields = stat.rpartition(b")")[2].split()
    return Proc(
        pid=pid,
        ppid=int(fields[_PPID]),
        pgid=int(fields[_PGID]),
        sid=int(fields[_SID]),
        start_ticks=int(fields[_START]),
        state=fields[_STATE].decode("ascii"),
        uid=uid,
        threads=int(fields[_THREADS]),
        is_kernel=bool(int(fields[_FLAGS]) & _KERNEL_THREAD),
    )


def _read(path: str, limit: int, folder: int | None = None) -> bytes:
    """At most `limit` bytes of a file of /proc, which may come in pieces."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        pieces, size = [], 0
        while size < limit and (piece := os.read(fd, limit - size)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def newest_first() -> Iterator[Proc]:
    """Every process except the kernel's own threads, the youngest first, some more than once, each read when asked for.

    A process that only forks and exits has a new pid whenever a listing reaches it. So while new pids appear, this looks
    at the youngest directly, a bounded number of times, before it lists all.
    """
    pids = _youngest()
    listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    last, size = _last_pid(), _pid_max()
    for pid in itertools.chain(pids, sorted(listed, key=lambda pid: (last - pid) % size)):
        proc = look(pid)
        if proc is not None and not proc.is_kernel:
            yield proc


def _youngest() -> Iterator[int]:
    before = -1
    for _ in range(CHASES_MAX):
        last = _last_pid()
        if last == before:
            return
        yield from (pid for pid in range(last, last - CHASED, -1) if _is_process(pid))
        before = last


def _is_process(pid: int) -> bool:
    """Whether it is a process and not a thread: /proc answers for thread ids as well, but does not list them."""
    try:
        os.close(os.pidfd_open(pid))
    except (OSError, ValueError):
        return False
    return True


def _last_pid() -> int:
    """The latest pid; pids wrap around, so the highest is not always the youngest."""
    try:
        return int(_read("/proc/loadavg", 128).split()[4])
    except (OSError, ValueError, IndexError):
        return 0


def _pid_max() -> int:
    try:
        return int(_read("/proc/sys/kernel/pid_max", 32))
    except (OSError, ValueError):
        return 1 << 22


def all_processes() -> dict[int, Proc]:
    """Every process by pid, including zombies, without the kernel's own threads."""
    return {proc.pid: proc for proc in newest_first()}


def descendants(root: int, among: Mapping[int, Proc]) -> set[int]:
    """The pids of all children of `root`, their children, and so on; without `root` itself."""
    children: dict[int, list[int]] = {}
    for proc in among.values():
        children.setdefault(proc.ppid, []).append(proc.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        fresh = [pid for pid in children.get(waiting.pop(), ()) if pid not in found and pid != root]
        found.update(fresh)
        waiting += fresh
    return found


def ancestors(pid: int) -> list[Proc]:
    """The parent of a process, its parent, and so on up to the first process."""
    return lineage(pid)[1:]


def lineage(pid: int, look: Callable[[int], Proc | None] = look) -> list[Proc]:
    """A process, its parent, and so on up to the first process. Where one dies meanwhile, whoever adopted its child follows."""
    proc = look(pid)
    found = [proc] if proc is not None else []
    for _ in range(LINEAGE_LOOKS_MAX):
        if not found or not found[-1].ppid or found[-1].ppid in {known.pid for known in found}:
            break
        oldest = found[-1]
        if (parent := look(oldest.ppid)) is not None:
            found.append(parent)
            continue
        again = look(oldest.pid)
        if again is None or again.identity != oldest.identity or again.ppid == oldest.ppid:
            break
        found[-1] = again
    return found


def environ_value(pid: int, name: bytes) -> bytes | None:
    """A variable of a process as of its exec, unless it overwrote it; None if unset or not permitted."""
    for path in _environs(pid):
        try:
            data = _read(path, ENVIRON_MAX_BYTES)
        except _GONE:
            continue
        if data:
            return _value(data, name)
    return None


def hides_environ(pid: int) -> bool:
    """Whether nobody can tell with what environment a process was started: we may not read it, or a title was written over it."""
    try:
        data = _read(f"/proc/{pid}/environ", STAT_MAX_BYTES)
    except PermissionError:
        return True
    except _GONE:
        return False
    return bool(data) and _VARIABLE.match(data) is None


def _environs(pid: int) -> Iterator[str]:
    """Where its environment can be read: after the first thread has ended, only at the others."""
    yield f"/proc/{pid}/environ"
    proc = look(pid)
    if proc is not None and proc.state == "Z" and not proc.is_zombie:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except _GONE:
            return
        yield from (f"/proc/{pid}/task/{thread}/environ" for thread in threads[:THREADS_MAX])


def _value(environ: bytes, name: bytes) -> bytes | None:
    before = b"\0" + name + b"="
    start = (b"\0" + environ).find(before)
    if start < 0:
        return None
    return environ[start + len(before) - 1 :].partition(b"\0")[0]


def command(pid: int) -> str:
    """The command line on one short safe line, secrets masked; `[name]` if it has none; "" if the process is gone."""
    try:
        line = _read(f"/proc/{pid}/cmdline", COMMAND_MAX_BYTES)
        if not line.strip(b"\0"):
            return _one_line(b"[" + _read(f"/proc/{pid}/comm", COMMAND_MAX_BYTES).rstrip(b"\n") + b"]")
    except OSError:
        return ""
    if len(line) == COMMAND_MAX_BYTES:  # the last word is cut, and half a secret would not be recognised
        line = line.rpartition(b"\0")[0]
    return _one_line(line.rstrip(b"\0").replace(b"\0", b" "))


def _one_line(text: bytes) -> str:
    masked, _ = secrets.mask(text.decode("utf-8", errors="replace"))
    line = "".join(char if char.isprintable() else " " for char in masked)
    return line if len(line) <= COMMAND_MAX_CHARS else line[: COMMAND_MAX_CHARS - 1] + "…"


def describe(pid: int, uid: int | None = None) -> str:
    """The process in words: `pid 812 (root: kill -TERM 99)`, or `pid 812 (uid 1000), gone`.

    Pass `uid` if it is known from elsewhere; it overrides what is found.
    """
    try:
        proc, words = look(pid), command(pid)
    except OSError:
        proc, words = None, ""
    if uid is None and proc is not None:
        uid = proc.uid
    who = "" if uid is None else user_name(uid)
    if proc is None or proc.is_zombie or not words:
        return f"pid {pid} ({who}), gone" if who else f"pid {pid}, gone"
    return f"pid {pid} ({who}: {words})"


def user_name(uid: int) -> str:
    """The name in /etc/passwd, else `uid 1000`. Directory services are not asked: they may hang."""
    try:
        lines = _read("/etc/passwd", PASSWD_MAX_BYTES).split(b"\n")
    except OSError:
        lines = []
    for line in lines:
        fields = line.split(b":")
        if len(fields) > 2 and fields[2] == str(uid).encode():
            return _one_line(fields[0])
    return f"uid {uid}"
