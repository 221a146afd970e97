"""The files half of a save point. Here: the seam that saves are made and restored through."""

from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from outlast.core.events import SaveKind

__all__ = ["LeftOut", "Save", "Workspace"]


class LeftOut(msgspec.Struct, frozen=True):
    """A file that a save does not hold, and why: it is never deleted by a restore."""

    path: str
    why: str
    size: int = 0
    digest: str = ""


class Save(msgspec.Struct, frozen=True):
    """A durable git commit of a workspace under a private ref."""

    commit: str
    ref: str
    kind: SaveKind
    at: datetime
    reason: str = ""
    hinted: bool = False
    left_out: tuple[LeftOut, ...] = ()


class Workspace(Protocol):
    """Saves a folder and brings it back; never touches HEAD, branch, index, hooks or stash."""

    def capture(self, path: Path, *, reason: str, deadline_s: float | None = None) -> Save | None:
        """A save that is durable when this returns, or None where there is nothing to save."""

    def restore(self, save: Save, to: Path, force: bool = False) -> None:
        """Bring the files of a save back, after saving what is there."""
