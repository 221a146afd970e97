"""The marker of a worktree that outlast made for a task, and what a list says of that worktree. Making one: `supervisor.worktree`."""

import contextlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from outlast import decoders
from outlast.store import durable
from outlast.workspace import repo
from outlast.workspace.git import layout
from outlast.workspace.types import text

MARKER = "outlast"


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Says that outlast made a worktree: for which task, and how far it is made or removed. A removal goes by `save`.

    It lies in the worktree's git folder, so no commit can hold it, and it goes when git removes the worktree.
    """

    task: str
    state: Literal["making", "made", "removing"]
    branch: str = ""
    save: str = ""


class WorktreePlace(msgspec.Struct, frozen=True):
    """Where a worktree that outlast made is, and the branch that is checked out there, else the one it was made for."""

    folder: str
    branch: str


def read_marker(git_dir: Path) -> Marker | None:
    """The marker of a worktree that outlast made; None if outlast did not make it, or the marker cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode(durable.read_plain(git_dir / MARKER), Marker)
    return None


def marker_of(folder: Path) -> Marker | None:
    """The marker of the worktree in a folder; None also where no worktree of ours is."""
    with contextlib.suppress(OSError, ValueError):
        if not (folder / ".git").is_file():
            return None
        found = layout.at(Path(os.path.realpath(folder)))
        return read_marker(found.own) if found is not None else None
    return None


def place_of(folder: str) -> WorktreePlace | None:
    """The worktree of a run's workspace; None if that is no worktree that outlast made, or is gone."""
    marker = marker_of(Path(folder)) if folder else None
    if marker is None:
        return None
    branch = repo.branch_in(Path(folder)) or marker.branch
    return WorktreePlace(text(os.fsencode(folder)), branch)
