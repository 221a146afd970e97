"""The notes of an attempt beside its workspace: one when it ends, one while it starts.

They are not events: only this folder on this host needs them. Without a note the next attempt judges by file times."""

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec

from outlast import decoders
from outlast.workspace.restore import worktree

T = TypeVar("T")


class Left(msgspec.Struct, frozen=True):
    """How the workspace was when an attempt ended: HEAD, the tree of its files, and what its secrets looked like."""

    run: str
    attempts: int
    head: str
    branch: str
    tree: str
    secrets: dict[str, str] | None = None  # None where nobody looked


class Arriving(msgspec.Struct, frozen=True):
    """A rewind under way: from which found save, and which files are a person's.

    `theirs` come back after it, `spared` are not touched: no tree holds them. `unsure` says what may have been theirs.
    """

    run: str
    attempts: int
    point: str
    found: str
    theirs: tuple[bytes, ...]
    spared: tuple[bytes, ...] = ()
    unsure: str = ""


class Recreating(msgspec.Struct, frozen=True):
    """A workspace that was gone is being filled again from a save. Its branch may be moved back from `tip`."""

    run: str
    point: str
    tip: str = ""


def note(private: Path, what: Left | Arriving | Recreating) -> None:
    """Keep a note, durably."""
    data = msgspec.msgpack.encode(what)
    worktree.write_over(bytes(private / type(what).__name__.lower()), data, 0o600)


def noted(private: Path, kind: type[T]) -> T | None:
    """The note of this kind, if there is one that can be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.unpack((private / kind.__name__.lower()).read_bytes(), kind)
    return None


def noted_at_s(private: Path, kind: type) -> float:
    """When a note was written, by the wall clock; never if there is none."""
    with contextlib.suppress(OSError):
        return (private / kind.__name__.lower()).stat().st_mtime
    return 0.0


def drop(private: Path, kind: type) -> None:
    """The note is not true any more."""
    (private / kind.__name__.lower()).unlink(missing_ok=True)
