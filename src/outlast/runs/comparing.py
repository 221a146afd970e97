"""The difference between two saves, or between a save and what is there now, in git's own words.

What is there now is in no repository. The trees and files that the save does not have are packed into a temporary one
that sees the user's objects, so both sides are trees and the answer is exact. The user's own is not written to, and
neither its attributes nor its configuration change the answer.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from outlast.errors import SaveFailed, UsageError
from outlast.runs.savepoints import Found
from outlast.workspace import git, objects, restoring
from outlast.workspace.capture import Saver
from outlast.workspace.objects import LINK, Entry
from outlast.workspace.packs import Moving, PackWriter
from outlast.workspace.repo import make_git_dir
from outlast.workspace.seam import Peeked, text

_PLAIN = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--full-index",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_WORDS = {"A": "added", "D": "deleted", "M": "changed", "T": "kind"}


class FileChange(msgspec.Struct, frozen=True):
    """A file that differs. Lines are null for what is no text; `kind`: a file became a link, or the reverse."""

    path: str
    change: str
    lines_added: int | None = None
    lines_deleted: int | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides and what differs; `to` is null where it is what is there now."""

    from_: str = msgspec.field(name="from")
    to: str | None
    folder: str
    files: tuple[FileChange, ...]


class Pair:
    """Two trees that git can see while the block that made it lasts."""

    def __init__(self, git_dir: Path, sides: Sequence[str], variables: dict[str, str]) -> None:
        self._git_dir, self._trees, self._variables = git_dir, sides, variables

    def printed(self, *options: str) -> bytes:
        """What `git diff` prints, with its options."""
        return self._run([*options])

    def files(self) -> tuple[FileChange, ...]:
        """Every file that differs."""
        told = git.names(self._run(["--name-status", "-z"]))
        words = dict(zip(told[1::2], told[::2], strict=True))
        found = []
        for line in git.names(self._run(["--numstat", "-z"])):
            added, deleted, path = line.split(b"\t", 2)
            word = _WORDS.get(words[path].decode()[:1], "changed")
            counts = (None, None) if added == b"-" else (int(added), int(deleted))
            found.append(FileChange(text(path), word, *counts))
        return tuple(found)

    def _run(self, options: Sequence[str]) -> bytes:
        words = ["diff", *_PLAIN, *options, *self._trees, "--"]
        return git.run(words, git_dir=self._git_dir, variables=self._variables)


@contextmanager
def compared(old: Found, new: Found | None) -> Iterator[Pair]:
    """Two saves of one repository, or a save and what is there now, for git to look at inside the block."""
    place = old.saver.repo()
    if new is not None and new.saver.repo().common_dir != place.common_dir:
        raise UsageError(
            f"the saves are of two repositories, {place.folder} and {new.saver.repo().folder}",
            hint="compare saves of one repository",
        )
    now = None if new is not None else old.saver.peek()
    sides = [side.tree for side in (old.held, new and new.held, now) if side is not None]
    with tempfile.TemporaryDirectory(prefix="outlast-diff-") as name:
        room = Path(name)
        make_git_dir(room, place.algo.name)
        (room / "info/attributes").unlink()
        if now is not None:
            _pack(old.saver, old.held.tree, now, room / "objects/pack")
        variables = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(place.common_dir / "objects")}
        yield Pair(room, sides, variables)


def _pack(saver: Saver, old: str, now: Peeked, folder: Path) -> None:
    """The trees and files of this moment that no save has, in a pack that only we know of."""
    algo, reader = saver.repo().algo, saver.reader()
    changes = restoring.changes_between(saver, old, now.tree, now.trees)
    with PackWriter(folder, algo) as pack:
        pack.add("tree", b"")
        for data in now.trees.values():
            pack.add("tree", data)
        for path, _, entry in changes:
            if entry is not None and entry.mode != objects.GITLINK and not reader.has(entry.oid):
                _add(pack, os.fsencode(saver.folder) + b"/" + path, entry)
        pack.close()


def _add(pack: PackWriter, path: bytes, entry: Entry) -> None:
    try:
        told = os.lstat(path)
        linked = stat.S_ISLNK(told.st_mode)
        oid = pack.add("blob", os.readlink(path)) if linked else pack.add_file(path, expect=told)
    except (Moving, FileNotFoundError):
        oid = ""
    if oid != entry.oid or linked != (entry.mode == LINK):
        raise SaveFailed(
            f"{os.fsdecode(path)} changes while it is read", hint="compare again when nothing writes there"
        )
