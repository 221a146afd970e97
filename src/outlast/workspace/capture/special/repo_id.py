"""Which repository is which: a mark of ours in each repository whose saves have secrets, noted beside those secrets.

A path is not enough: the repository there now may be another one, and the saves with the secrets may be elsewhere."""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from outlast.workspace.capture import stat_cache
from outlast.workspace.repo import Repo
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.types import Secret, text

_MARK = "outlast-id"
_NOTE = "repositories"
_FORM = re.compile(r"[0-9a-f]{32}")


def mark(common_dir: Path) -> str:
    """What identifies a repository wherever it is moved or copied to; empty if it has no mark yet."""
    with contextlib.suppress(OSError):
        said = (common_dir / _MARK).read_text(encoding="ascii", errors="replace").strip()
        return said if _FORM.fullmatch(said) else ""
    return ""


def note_repository(place: Repo, private: Path, memory: stat_cache.Memo, kept: Sequence[Secret]) -> None:
    """Before a save names secrets, note which repository it will be in. Durable when it returns, and done once."""
    if memory.marked or place.shadow or not kept:
        return
    found, known = _marked(place.common_dir), noted_repositories(private)
    if found not in known:
        lines = {**known, found: text(place.common_dir)}
        write_over(
            _bytes(private / _NOTE), "".join(f"{own} {at}\n" for own, at in lines.items()).encode(), 0o600
        )
    memory.marked = True


def noted_repositories(private: Path) -> dict[str, str]:
    """The repositories that have saves with a workspace's secrets: their marks, and where each was then."""
    with contextlib.suppress(FileNotFoundError):
        lines = (private / _NOTE).read_text(encoding="utf-8", errors="replace").splitlines()
        return {own: at for own, _, at in (line.partition(" ") for line in lines) if _FORM.fullmatch(own)}
    return {}


def _marked(common_dir: Path) -> str:
    """The mark of a repository, created if it has none. Another worktree of it may be doing the same."""
    fd = os.open(common_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks does not keep two apart
            fcntl.flock(fd, fcntl.LOCK_EX)
        found = mark(common_dir)
        if not found:
            found = secrets.token_hex(16)
            write_over(_bytes(common_dir / _MARK), f"{found}\n".encode())
        return found
    finally:
        os.close(fd)


def _bytes(path: Path) -> bytes:
    return os.fsencode(path)
