"""What the last save found, stored beside the private index, so that the next one reads only what changed since.

It counts only in the boot it was written in, and while its save's ref has the same value. See `Memo`."""

import contextlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders
from outlast.workspace.git.objects import EXEC, FILE, LINK
from outlast.workspace.types import LeftOut, NestedRepo

VERSION = 5  # 5: the content of untracked files was looked at
YOUNG_NS = 50_000_000  # a file changed so shortly before it was read may change again without looking changed


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

    def fits(self, told: os.stat_result) -> bool:
        """Whether the file still looks the same."""
        return (self.mtime_ns, self.ctime_ns, self.size, self.ino, self.mode) == (
            told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino, mode_of(told),
        )  # fmt: skip


def mode_of(told: os.stat_result) -> int:
    """Git's mode for a file."""
    if stat.S_ISLNK(told.st_mode):
        return LINK
    return EXEC if told.st_mode & 0o100 else FILE


def known_file(told: os.stat_result, oid: str, read_at_ns: int, in_base: bool | None) -> KnownFile:
    """What to remember of a file just read. A file that changed very recently is read again next time."""
    young = read_at_ns - max(told.st_mtime_ns, told.st_ctime_ns) < YOUNG_NS
    mtime_ns = -1 if young else told.st_mtime_ns
    return KnownFile(mode_of(told), oid, told.st_size, mtime_ns, told.st_ctime_ns, told.st_ino, in_base)


class Area(msgspec.Struct):
    """Differences from the private index of one worktree: saved files, and removed files."""

    entries: dict[bytes, KnownFile] = {}
    gone: set[bytes] = set()


class BigFileDigest(NamedTuple):
    """The digest of a file that is too big to save, and the stat data it belongs to."""

    size: int
    mtime_ns: int
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
    links: list[bytes] = []  # submodule commits that the user's index names
    insides: tuple[NestedRepo, ...] = ()
    left_out: list[LeftOut] = []
    forced: list[bytes] = []  # tracked although a rule ignores them
    forced_stamp: Stamp = None
    areas: dict[bytes, Area] = {}
    digests: dict[bytes, BigFileDigest] = {}
    not_secret: list[str] = []  # what a person said is none


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
        told = os.stat(path)
        return told.st_mtime_ns, told.st_size, told.st_ino
    return None
