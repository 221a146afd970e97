"""The seam for making and restoring saves: why a save is made, what it is, and what it left out."""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from outlast.core.events import SaveKind

META_VERSION = 1
_ESCAPED = re.compile("\ufffd(\ufffd|[0-9a-f]{2})")
_HIDDEN = re.compile("[\udc80-\udcff]")


def text(path: bytes | Path) -> str:
    """A file name as text for every format: a byte that is not UTF-8 becomes \ufffd and two hex digits."""
    plain = os.fsdecode(path).replace("\ufffd", "\ufffd\ufffd")
    return _HIDDEN.sub(lambda found: f"\ufffd{ord(found[0]) - 0xDC00:02x}", plain)


def raw(shown: str) -> bytes:
    """The file name from what `text` returned."""
    return os.fsencode(
        _ESCAPED.sub(
            lambda found: found[1] if found[1] == "\ufffd" else chr(0xDC00 + int(found[1], 16)), shown
        )
    )


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a save does not hold, and why. A restore never deletes it."""

    path: str
    why: str
    size: int = 0
    digest: str = ""


class Purpose(msgspec.Struct, frozen=True, kw_only=True):
    """Why a save is made, and for whom.

    With `if_dirty` a worktree equal to HEAD is not saved; with `if_changed` an unchanged worktree is not saved again.
    """

    kind: SaveKind
    run: str
    task: str = ""
    reason: str = ""
    beat: int = 0
    seq: int = 0
    if_dirty: bool = False
    if_changed: bool = False


def message_of(purpose: Purpose) -> str:
    """The commit's message: the kind of save, the task, the reason; and trailers for programs."""
    kind = "pre-restore" if purpose.kind == "pre-restore" else purpose.kind
    task = f" [task {purpose.task}]" if purpose.task else ""
    words = f"outlast: {kind} save{task} {purpose.reason}".strip()
    trailers = [
        ("Outlast-Task", purpose.task), ("Outlast-Run", purpose.run), ("Outlast-Beat", str(purpose.beat)),
        ("Outlast-Seq", str(purpose.seq)), ("Outlast-Reason", purpose.reason),
        ("Outlast-Emergency", "true" if purpose.kind == "emergency" else ""),
    ]  # fmt: skip
    lines = [f"{name}: {' '.join(value.split())}" for name, value in trailers if value]
    return f"{' '.join(words.split())}\n\n" + "\n".join(lines) + "\n"


class Save(msgspec.Struct, frozen=True):
    """A durable git commit of a workspace under a private ref."""

    commit: str
    ref: str
    kind: SaveKind
    at: datetime
    reason: str = ""
    hinted: bool = False
    left_out: tuple[LeftOut, ...] = ()
    folder: str = ""
    taken: int = 0
    removed: int = 0
    warning: str = ""


class SavePreview(msgspec.Struct, frozen=True):
    """What a save would hold now. Trees that are in no repository yet are in here."""

    tree: str
    left_out: tuple[LeftOut, ...]
    secrets: frozenset[bytes]
    trees: dict[str, bytes]


class NestedRepo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A nested repository: its path, the entry of M's tree that holds its git folder, its HEAD."""

    path: str
    tree: str = ""
    gitfile: bool = False


class Module(NamedTuple):
    """A submodule whose repository the vault holds as well: its git folder, and objects it needs, with their kinds."""

    path: str
    git_dir: Path
    needs: dict[str, str]


class Secret(msgspec.Struct, frozen=True):
    """An untracked file that is stored separately, in a private repository of the state folder."""

    path: str
    mode: int
    oid: str


class Meta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A save's `meta.json`, for a restore and for a person."""

    version: int = META_VERSION
    kind: SaveKind
    at: datetime
    looked_at: datetime | None = None  # HEAD, its branch and all files were read later than this
    number: int
    run: str
    task: str = ""
    reason: str = ""
    beat: int = 0
    seq: int = 0
    folder: str = ""
    head: str = ""
    branch: str = ""
    index: bool = False
    shadow: bool = False
    boot_id: str = ""
    hinted: bool = False
    left_out: tuple[LeftOut, ...] = ()
    secrets: tuple[Secret, ...] = ()
    inside: tuple[NestedRepo, ...] = ()
    modules: str = ""  # M's last parent: a commit that reaches what submodules need of their repositories
    linked: bool = False  # the folder is a linked worktree
    removed: int = 0
    warning: str = ""
    umask: str = ""  # octal; M's tree `modes` has the bits of files that differ from it


class Workspace(Protocol):
    """Saves a folder and restores it; never touches HEAD, branch, index, hooks or stash."""

    def capture(self, purpose: Purpose, *, deadline_s: float | None = None) -> Save | None:
        """Make a save, durable when it returns; None if there is nothing to save."""

    def restore(self, save: Save, to: Path, force: bool = False) -> None:
        """Restore the files of a save, after saving the current ones."""
