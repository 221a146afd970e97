"""The difference between two saves, or between a save and the files that are there now, in git's own words."""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from outlast.errors import SaveFailed, UsageError
from outlast.operations.saves.find import Found
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command, objects
from outlast.workspace.git.git_dir import make_git_dir
from outlast.workspace.git.objects import LINK, Entry
from outlast.workspace.git.packs import Moving, PackWriter
from outlast.workspace.repo import Repo
from outlast.workspace.restore import restore
from outlast.workspace.types import SavePreview, raw, text

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
    """A file that differs. Lines are null for a file that is not text; `kind`: a file became a link, or the reverse."""

    path: str
    change: str
    lines_added: int | None = None
    lines_deleted: int | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides and what differs; `to` is null for the files that are there now."""

    from_: str = msgspec.field(name="from")
    to: str | None
    folder: str
    files: tuple[FileChange, ...]


class Pair:
    """Two trees that git can see while the block that made it lasts.

    The files that are there now are in no repository. Trees and files that the save does not have are packed into a temporary
    one that sees the user's objects, so both sides are trees and the answer is exact. The user's own repository is not written to,
    and neither its attributes nor its configuration change the answer.
    """

    def __init__(self, git_dir: Path, sides: Sequence[str], variables: dict[str, str]) -> None:
        self._git_dir, self._trees, self._variables = git_dir, sides, variables

    @property
    def packs(self) -> Path:
        """Where objects that only this pair knows of may be put."""
        return self._git_dir / "objects/pack"

    def printed(self, *options: str) -> bytes:
        """What `git diff` prints, with its options."""
        return self._run([*options])

    def files(self) -> tuple[FileChange, ...]:
        """Every file that differs."""
        return _files(self._run(["--name-status", "-z"]), self._run(["--numstat", "-z"]))

    def first_files(self, bytes_max: int, timeout_s: float) -> tuple[tuple[FileChange, ...], bool]:
        """The first files that differ, as many as can be told with so many bytes, and whether they are all."""
        named, all_named = self._first(["--name-status", "-z"], (), bytes_max, timeout_s)
        counted, all_counted = self._first(["--numstat", "-z"], (), bytes_max, timeout_s)
        return _files(named, counted), all_named and all_counted

    def patch(self, paths: Sequence[str], bytes_max: int, timeout_s: float) -> tuple[bytes, bool]:
        """The first bytes of the patch of these files, and whether they are all of it."""
        return self._first((), [os.fsdecode(raw(path)) for path in paths], bytes_max, timeout_s)

    def _first(
        self, options: Sequence[str], paths: Sequence[str], bytes_max: int, timeout_s: float
    ) -> tuple[bytes, bool]:
        words = ["diff", *_PLAIN, *options, *self._trees, "--", *paths]
        variables = {**self._variables, "GIT_LITERAL_PATHSPECS": "1"}
        return command.Running(words, git_dir=self._git_dir, variables=variables).beginning(
            bytes_max, timeout_s
        )

    def _run(self, options: Sequence[str]) -> bytes:
        words = ["diff", *_PLAIN, *options, *self._trees, "--"]
        return command.run(words, git_dir=self._git_dir, variables=self._variables)


def _files(named: bytes, counted: bytes) -> tuple[FileChange, ...]:
    """What git's two lists say of files; of lists that are cut off, the files that are in both."""
    fields = command.names(named)
    words = dict(zip(fields[1::2], fields[::2], strict=False))
    found = []
    for line in command.names(counted):
        added, deleted, path = line.split(b"\t", 2)
        if path in words:
            word = _WORDS.get(words[path].decode()[:1], "changed")
            counts = (None, None) if added == b"-" else (int(added), int(deleted))
            found.append(FileChange(text(path), word, *counts))
    return tuple(found)


@contextmanager
def compared(old: Found, new: Found | None) -> Iterator[Pair]:
    """Two saves of one repository, or a save and what is there now, for git to look at inside the block."""
    place = old.saver.repo()
    if new is not None and new.saver.repo().vault != place.vault:
        raise UsageError(
            f"the saves are of two repositories, {place.folder} and {new.saver.repo().folder}",
            hint="compare saves of one repository",
        )
    now = None if new is not None else old.saver.peek()
    sides = [side.tree for side in (old.held, new and new.held, now) if side is not None]
    with _room(place, sides) as pair:
        if now is not None:
            pack_preview(old.saver, old.held.tree, now, pair.packs)
        yield pair


@contextmanager
def between(saver: Saver, old: str | None, new: str) -> Iterator[Pair]:
    """Two trees of one repository; None is the empty one."""
    place = saver.repo()
    with _room(place, [old or objects.oid_of("tree", b"", place.algo), new]) as pair:
        yield pair


@contextmanager
def _room(place: Repo, sides: Sequence[str]) -> Iterator[Pair]:
    """A repository for the moment that sees the objects of another."""
    with tempfile.TemporaryDirectory(prefix="outlast-diff-") as name:
        room = Path(name)
        make_git_dir(room, place.algo.name)
        (room / "info/attributes").unlink()
        yield Pair(room, sides, place.seeing())


def pack_preview(saver: Saver, old: str, now: SavePreview, folder: Path) -> None:
    """The trees and files of this moment that no save has, in a pack that only we know of."""
    algo, reader = saver.repo().algo, saver.reader()
    changes = restore.changes_between(saver, old, now.tree, now.trees)
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
        file_stat = os.lstat(path)
        linked = stat.S_ISLNK(file_stat.st_mode)
        oid = pack.add("blob", os.readlink(path)) if linked else pack.add_file(path, expect=file_stat)
    except (Moving, FileNotFoundError):
        oid = ""
    if oid != entry.oid or linked != (entry.mode == LINK):
        raise SaveFailed(
            f"{os.fsdecode(path)} changes while it is read", hint="compare again when nothing writes there"
        )
