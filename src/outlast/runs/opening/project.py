"""Reads a folder's repository without git: which project it is, and which commit is checked out.

All worktrees of a clone are one project: its common git folder."""

import contextlib
from pathlib import Path

from outlast.core.values import scrub
from outlast.store import durable
from outlast.workspace.git import layout
from outlast.workspace.git.layout import Layout

SYMREFS_MAX = 5


def project_of(folder: Path) -> str:
    """The real path of the repository's common git folder, else of the folder itself; as a text that can be written."""
    real = folder.resolve()
    git = layout.around(real)
    return scrub(str(real if git is None else git.common))


def commit_of(folder: Path) -> str:
    """The commit checked out in a folder, or the branch if it has none yet; empty where there is no repository."""
    with contextlib.suppress(OSError):
        git = layout.around(folder.resolve())
        return "" if git is None else _followed(git, _text(git.own / "HEAD"))
    return ""


def _followed(git: Layout, text: str) -> str:
    """The commit of HEAD: a ref has a file of its own, or a line among the packed ones."""
    for _ in range(SYMREFS_MAX):
        if not text.startswith("ref: "):
            break
        ref = git.common / text[5:]
        text = _text(ref) if ref.is_file() else _packed(git.common, text[5:])
    return text[:64]


def _packed(common: Path, ref: str) -> str:
    """The commit of a packed ref; the ref itself where it has none."""
    with contextlib.suppress(FileNotFoundError):
        for line in _text(common / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == ref:
                return commit
    return ref


def _text(path: Path) -> str:
    return durable.read_plain(path).decode(errors="replace").strip()
