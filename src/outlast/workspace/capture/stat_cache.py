"""What the last save found, stored beside the private index, so that the next one reads only what changed since.

It counts only in the boot it was written in, and while its save's ref has the same value. See `Memo`."""

import contextlib
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders
from outlast.workspace.git.objects import EXEC, FILE, LINK
from outlast.workspace.timing import Timing
from outlast.workspace.types import LeftOut, NestedRepo

VERSION = 6  # 6: a file is read again until it is old enough; the vault has what submodules need
_SLOW_DISK = 10_000_000  # bytes per second: what a slow disk, or a system at its limit, lets a writer write
_SECOND = 1_000_000_000  # in the file system's unit
_COARSE_S = 2.0  # file systems whose times are whole seconds may round them down by so much
_STEP_NS = 500_000_000  # a busy system may read two clocks nearly so far apart; a smaller step hides little


Stamp = tuple[int, int, int] | None


class KnownFile(NamedTuple):
    """A file as it was read: its stat data, and what was saved."""

    mode: int
    oid: str
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    in_base: bool | None = None  # whether the private index has this path; None if unknown
    young_ns: int = 0  # since when it is known so, on the steady clock, if it may be in the middle of a write

    def fits(self, file_stat: os.stat_result) -> bool:
        """Whether the file still looks the same, and is too old to have changed without looking changed."""
        return not self.young_ns and self.looks_like(file_stat)

    def looks_like(self, file_stat: os.stat_result) -> bool:
        """Whether the file still looks the same."""
        return (self.mtime_ns, self.ctime_ns, self.size, self.ino, self.mode) == (
            file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_size, file_stat.st_ino, mode_of(file_stat),
        )  # fmt: skip


def mode_of(file_stat: os.stat_result) -> int:
    """Git's mode for a file."""
    if stat.S_ISLNK(file_stat.st_mode):
        return LINK
    return EXEC if file_stat.st_mode & 0o100 else FILE


class Area(msgspec.Struct):
    """Differences from the private index of one worktree: saved files, and removed files."""

    entries: dict[bytes, KnownFile] = {}
    gone: set[bytes] = set()

    def settled(self) -> dict[bytes, KnownFile]:
        """The saved files that are not young. Git compares those once, and then only their stat data."""
        return {path: known for path, known in self.entries.items() if not known.young_ns}

    def exceeds(self, limit: int) -> bool:
        """Whether more than so many differences are ready for the private index."""
        if len(self.entries) + len(self.gone) <= limit:
            return False
        return len(self.settled()) + len(self.gone) > limit

    def young(self) -> list[bytes]:
        """The saved files that the next save must read again."""
        return [path for path, known in self.entries.items() if known.young_ns]


class BigFileDigest(NamedTuple):
    """The digest of a file that is too big to save, and the stat data it belongs to."""

    size: int
    mtime_ns: int
    ctime_ns: int
    digest: str


class Memo(msgspec.Struct):
    """All that is remembered of a workspace.

    Its file is removed before a ref or the private index is written, so that a killed save leaves no outdated one.
    """

    version: int = VERSION
    boot_id: str = ""
    commit: str = ""
    tree: str = ""
    index_stamp: Stamp = None
    index_tree: str = ""
    index_oid: str = ""
    stages: str = ""
    repository: str = ""  # a tree with the settings and refs of the repository: see `vault.record`
    modes: str = ""  # a tree of unusual permission bits: see `permissions`
    umask: int = 0  # what counts as usual: the umask of the process that made the first save
    head: str = ""
    run: str = ""
    ref: str = ""
    number: int = 0
    place: str = ""  # the repository that the workspace was in
    rest: str = ""  # a digest of everything in a save that is not a file of the worktree
    gist: str = ""  # the same without the index's stat data, which git renews when it looks
    named: list[str] = []  # objects that a merge or rebase in progress names, durable by now
    lost: bool = False  # the user's repository names missing objects: see `damage`
    unreadable: bool = False  # the user's index is unreadable: what is staged is unknown
    secrets: dict[bytes, KnownFile] = {}
    inside: str = ""
    modules: str = ""  # the commit that reaches what submodules need: see `modules`
    modules_in: str = ""  # the `inside` that it was made for
    links: list[bytes] = []  # submodule commits that the user's index names
    insides: tuple[NestedRepo, ...] = ()
    left_out: list[LeftOut] = []
    forced: list[bytes] = []  # tracked although a rule ignores them
    forced_stamp: Stamp = None
    areas: dict[bytes, Area] = {}
    digests: dict[bytes, BigFileDigest] = {}
    not_secret: list[str] = []  # what a person said is none
    ahead_ns: int = 0  # how far the clock of the file system's times was ahead of the steady one


class Moment(NamedTuple):
    """When a file was read: by the clock of the file system's times, and by one that nobody sets."""

    wall_ns: int
    steady_ns: int


def moment() -> Moment:
    return Moment(time.time_ns(), time.monotonic_ns())


class FileAges:
    """Tells which of the files that a save reads may be in the middle of a write.

    One write, or stores into mapped memory, may go on for a while after the file's times were set, and no later stat
    shows it. Such a file is read again by the next saves, until it was the same for as long as a write can take.
    """

    def __init__(self, memory: Memo, timing: Timing | None = None, at: Moment | None = None) -> None:
        """`memory` keeps how far the clocks are apart, so that the next save sees that one was set."""
        self._one_write_s = (timing or Timing.current()).one_write_s
        at = at or moment()
        ahead_ns = at.wall_ns - at.steady_ns
        self._is_set = bool(memory.ahead_ns) and abs(ahead_ns - memory.ahead_ns) > _STEP_NS
        memory.ahead_ns = ahead_ns
        if self._is_set:  # ages may have been wrong as well when these were read
            for known in (*(area.entries for area in memory.areas.values()), memory.secrets):
                known.update({path: file._replace(young_ns=at.steady_ns) for path, file in known.items()})

        self._saved = {
            known.oid for area in memory.areas.values() for known in area.entries.values() if known.young_ns
        }

    def is_saved(self, oid: str) -> bool:
        """Whether this is the content of a file that is read again only because it was young: it is not written again."""
        return oid in self._saved

    def known_file(
        self, file_stat: os.stat_result, oid: str, at: Moment, in_base: bool | None, before: KnownFile | None
    ) -> KnownFile:
        """What to remember of a file whose reading began `at` this moment; `before` is what was remembered of it."""
        since_ns = at.steady_ns
        if before is not None and before.young_ns and before.oid == oid and before.looks_like(file_stat):
            since_ns = before.young_ns
        young_ns = since_ns if self._is_young(file_stat, at, since_ns) else 0
        return KnownFile(
            mode_of(file_stat),
            oid,
            file_stat.st_size,
            file_stat.st_mtime_ns,
            file_stat.st_ctime_ns,
            file_stat.st_ino,
            in_base,
            young_ns,
        )

    def _is_young(self, file_stat: os.stat_result, at: Moment, since_ns: int) -> bool:
        """Whether a write may still be going on that began before the file was read, however old its times look."""
        window_ns = int((self._one_write_s + file_stat.st_size / _SLOW_DISK) * _SECOND)
        if at.steady_ns - since_ns >= window_ns:
            return False
        changed_ns = max(file_stat.st_mtime_ns, file_stat.st_ctime_ns)
        if not changed_ns % _SECOND:
            window_ns += int(_COARSE_S * _SECOND)
        return self._is_set or at.wall_ns - changed_ns < window_ns


def now() -> datetime:
    return datetime.now(UTC)


_decoder = decoders.of_msgpack(Memo)


def load(path: Path) -> Memo:
    """The stored memo; an empty one if it cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        memo = _decoder.decode(path.read_bytes())
        if memo.version == VERSION:
            return memo
    return Memo()


def store(memo: Memo, path: Path) -> Stamp:
    """Store the memo. Not flushed: after a power cut it is from another boot, and the next save looks at everything."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(msgspec.msgpack.encode(memo))
    written = stamp(new)
    new.replace(path)
    return written


def stamp(path: Path) -> Stamp:
    """What distinguishes a file from another that replaces it."""
    with contextlib.suppress(OSError):
        file_stat = os.stat(path)
        return file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino
    return None
