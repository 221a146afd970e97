"""Git's objects as bytes: trees, commits and their names. Nothing here touches a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from outlast.errors import SaveDamaged

if TYPE_CHECKING:
    from hashlib import _Hash

FILE = 0o100644
EXEC = 0o100755
LINK = 0o120000
TREE = 0o040000
GITLINK = 0o160000

WHO = "outlast <outlast@localhost>"
_NO_NAMES = frozenset((b"", b".", b".."))
_EPOCH = datetime.fromtimestamp(0, UTC)


class _NewHash(Protocol):
    def __call__(self, data: bytes = b"", /) -> _Hash: ...


class Algo(NamedTuple):
    """How a repository names its objects."""

    name: str
    hex_length: int
    raw_length: int

    @property
    def new(self) -> _NewHash:
        """The constructor of the hash."""
        return hashlib.sha256 if self.name == "sha256" else _sha1


def _sha1(data: bytes = b"", /) -> _Hash:
    return hashlib.sha1(data, usedforsecurity=False)


SHA1 = Algo("sha1", 40, 20)
SHA256 = Algo("sha256", 64, 32)


def algo_named(name: str) -> Algo:
    """The algorithm that git's `extensions.objectFormat` names."""
    for algo in (SHA1, SHA256):
        if algo.name == name:
            return algo
    raise ValueError(f"unknown object format: {name!r}")


class Entry(NamedTuple):
    """A tree's entry for one name."""

    mode: int
    oid: str


class Commit(NamedTuple):
    """What we need of a commit; the message as it is stored."""

    tree: str
    parents: tuple[str, ...]
    at: datetime
    message: str


def oid_of(kind: str, data: bytes, algo: Algo) -> str:
    """The name of an object."""
    return algo.new(b"%b %d\0%b" % (kind.encode(), len(data), data)).hexdigest()


def parse_tree(data: bytes, algo: Algo) -> dict[bytes, Entry]:
    """The entries of a tree, in its order. Raises SaveDamaged, also for a name that leads out of the folder.

    Anybody who can write to a repository can make such a tree by hand.
    """
    entries: dict[bytes, Entry] = {}
    start, end, raw_length = 0, len(data), algo.raw_length
    try:
        while start < end:
            zero = data.index(b"\0", start)
            mode, _, name = data[start:zero].partition(b" ")
            start = zero + 1 + raw_length
            entries[name] = Entry(int(mode, 8), data[zero + 1 : start].hex())
    except ValueError:
        raise SaveDamaged("cannot parse a tree") from None
    if start != end:
        raise SaveDamaged("a tree is truncated")
    if not _NO_NAMES.isdisjoint(entries) or b"/" in b"\0".join(entries):
        raise SaveDamaged("a tree has a name that leads out of its folder")
    return entries


def tree_bytes(entries: Mapping[bytes, Entry]) -> bytes:
    """A tree in git's order, which sorts a folder's name as if it ended with a slash."""
    folders = {name for name, entry in entries.items() if entry.mode == TREE}
    names = (
        sorted(entries, key=lambda name: name + b"/" if name in folders else name)
        if folders
        else sorted(entries)
    )
    return b"".join([_entry_bytes(name, *entries[name]) for name in names])


def _entry_bytes(name: bytes, mode: int, oid: str) -> bytes:
    return b"%o %b\0%b" % (mode, name, bytes.fromhex(oid))


def commit_bytes(tree: str, parents: Sequence[str], who: str, at: datetime, message: str) -> bytes:
    """A commit in UTC. The message gets a final newline, and characters that no commit may hold are replaced."""
    assert at.tzinfo is not None, "a commit's time is UTC-aware"
    assert not set(who) & set("\n\0"), "an identity is one line"
    signed = f"{who} {max(0, int(at.timestamp()))} +0000"
    lines = [
        f"tree {tree}",
        *(f"parent {parent}" for parent in parents),
        f"author {signed}",
        f"committer {signed}",
    ]
    text = message if message.endswith("\n") else f"{message}\n"
    return "\n".join([*lines, "", ""]).encode() + _encoded(text.replace("\0", "\N{REPLACEMENT CHARACTER}"))


def _encoded(text: str) -> bytes:
    """File names carry their raw bytes in surrogates; other surrogates mean nothing."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def parse_commit(data: bytes) -> Commit:
    """Parse any commit: skips signatures and unknown headers; an invalid time becomes 1970."""
    head, _, message = data.partition(b"\n\n")
    tree, parents, at = "", [], _EPOCH
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree":
            tree = value.decode("ascii", "replace")
        elif key == b"parent":
            parents.append(value.decode("ascii", "replace"))
        elif key == b"committer":
            at = _time_in(value)
    if not tree:
        raise SaveDamaged("a commit names no tree")
    return Commit(tree, tuple(parents), at, message.decode("utf-8", "surrogateescape"))


def _time_in(signed: bytes) -> datetime:
    try:
        return datetime.fromtimestamp(int(signed.rpartition(b"> ")[2].split()[0]), UTC)
    except (ValueError, IndexError, OverflowError, OSError):
        return _EPOCH
