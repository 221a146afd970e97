"""Which repository a folder lies in, by git's own rule, read without git.

Whose repository it is, and whether git would use it, is judged elsewhere (`workspace/repo.py`)."""

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from outlast.store import durable

_LINK = "gitdir:"
_HEAD_BYTES_MAX = 4_096
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\s*")
_REF = re.compile(rb"ref:\s*refs/")


class Layout(NamedTuple):
    """Where a checkout keeps its own HEAD, and where the clone keeps what all its worktrees share."""

    top: Path
    own: Path
    common: Path


def around(real: Path) -> Layout | None:
    """The repository whose files a folder (a real path) is among; None outside of any.

    git is not asked: which run a program means must not depend on git's settings, its owner rules or its being there.
    """
    for here in (real, *real.parents):
        found = at(here)
        if found is not None:
            return found
    return None


def at(folder: Path) -> Layout | None:
    """The repository whose top level is this folder. An empty folder called `.git` does not count, as for git."""
    marker = folder / ".git"
    if marker.is_dir():
        own = marker.resolve()
        return Layout(folder, own, _common(own)) if is_git_folder(own) else None
    return _linked(folder, marker) if marker.is_file() else None


def is_marked(folder: Path) -> bool:
    """Whether a folder is the top level of a repository, or was: the saves of one that is damaged stay with it."""
    marker = folder / ".git"
    with contextlib.suppress(OSError):  # a file, a link that leads nowhere, or not to be read
        return bool(os.listdir(marker))
    return os.path.lexists(marker)


def is_git_folder(own: Path) -> bool:
    """Whether git takes this for a git folder: a HEAD that can be read, `objects` and `refs`."""
    common = _common(own)
    return _is_head(own / "HEAD") and all(
        os.access(common / name, os.X_OK) and (common / name).is_dir() for name in ("objects", "refs")
    )


def _is_head(head: Path) -> bool:
    with contextlib.suppress(OSError):
        if head.is_symlink():
            return os.readlink(head).startswith("refs/")
        text = durable.read_plain(head)[:_HEAD_BYTES_MAX]
        return bool(_REF.match(text) or _OID.match(text))
    return False


def _linked(folder: Path, marker: Path) -> Layout:
    """Follow the `.git` file of a worktree or submodule. git looks no further up past one that leads nowhere."""
    text = _text(marker)
    if not text.startswith(_LINK):
        return Layout(folder, folder, folder)
    own = (folder / text[len(_LINK) :].strip()).resolve()
    return Layout(folder, own, _common(own))


def _common(own: Path) -> Path:
    pointer = own / "commondir"
    return (own / _text(pointer)).resolve() if pointer.is_file() else own


def _text(file: Path) -> str:
    """What a file says, whatever it holds. A pipe in its place is an OSError, and is not waited for."""
    return durable.read_plain(file).decode(errors="replace").replace("\0", "").strip()
