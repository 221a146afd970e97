"""Remove the worktrees of runs that are over: each only when everything in it is on a branch or in a save."""

import contextlib
import filecmp
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast.core.statuses import CLOSED, ENDED
from outlast.errors import OutlastError, SaveError
from outlast.inspect import find, standing
from outlast.operations.saves.find import Saves, purpose, runs_in
from outlast.store.protocol import Summary
from outlast.supervisor.worktree.make import Entry, entries, mark
from outlast.workspace import saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command, objects
from outlast.workspace.restore import restore
from outlast.workspace.restore.worktree import Worktree
from outlast.workspace.types import raw, text
from outlast.workspace.worktree_marker import Marker, read_marker

LISTED_MAX = 200


class UnsavedFile(msgspec.Struct, frozen=True):
    """A file that no save holds as it is now, and why. A folder that git ignores as a whole counts as one file."""

    path: str
    why: str
    size: int


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one worktree, or with `dry_run` the expected one. `save` holds its files, `branch` its commits, and
    `unsaved` are the files that stand in the way."""

    folder: str
    task: str
    run: str
    removed: bool
    why: str = ""
    unsaved: tuple[UnsavedFile, ...] = msgspec.field(default=(), name="kept")
    ignored: tuple[UnsavedFile, ...] = ()
    branch: str = ""
    save: str = ""
    dry_run: bool = False


class Options(msgspec.Struct, frozen=True):
    """`ignored`: also what git ignores and no save holds may go."""

    dry_run: bool = False
    ignored: bool = False


def clear(saves: Saves, common: Path, run: Summary | None, options: Options) -> list[Cleared]:
    """Remove the worktrees that outlast made of a repository: of one run, or of all that are over. Never raises for one of them.

    A save comes first and is noted in the worktree's marker. Then files are removed one by one, each only while it is as
    that save has it; after a kill the next call goes on by the same save. No branch is deleted, and nothing is forced.
    """
    found = []
    for entry in entries(common):
        marker = read_marker(entry.git_dir)
        if marker is None or marker.state == "making":
            continue
        if run is not None and os.path.realpath(run.state.workspace or "/") != str(entry.folder):
            continue
        if not marker.save and not entry.folder.is_dir():
            continue  # only git's entry is left, which git prunes
        try:
            found.append(_Clearing(saves, common, entry, marker, options).done(run))
        except OutlastError as error:
            found.append(_refused(entry, marker, "", f"{error}"))
    return found


def _refused(entry: Entry, marker: Marker, run: str, why: str) -> Cleared:
    return Cleared(
        folder=text(entry.folder), task=marker.task, run=run, removed=False, why=why, branch=marker.branch
    )


class _Clearing:
    """One worktree."""

    def __init__(self, saves: Saves, common: Path, entry: Entry, marker: Marker, options: Options) -> None:
        self._saves, self._common, self._entry, self._marker, self._options = (
            saves,
            common,
            entry,
            marker,
            options,
        )
        self._folder = entry.folder

    def done(self, run: Summary | None) -> Cleared:
        """Remove this worktree, or return why not: look at its runs, save, compare the files with the save, then remove."""
        owner, why = self._owner(run)
        if owner is None or why:
            return _refused(self._entry, self._marker, owner.run if owner else "", why)
        if (self._entry.git_dir / "locked").exists():
            return _refused(self._entry, self._marker, owner.run, "it is locked; see `git worktree unlock`")
        if not self._folder.is_dir():
            return self._finish(owner, self._marker.save, ())
        inside = self._submodules()
        if inside:
            why = f"no save holds the commits of its submodules ({', '.join(inside)}); push what is to be kept, then "
            return _refused(self._entry, self._marker, owner.run, f"{why}{self._by_hand}")
        return self._remove(owner)

    @property
    def _by_hand(self) -> str:
        """The command that a person types after looking."""
        return f"`git worktree remove --force {shlex.quote(str(self._folder))}`"

    def _why(self, unsaved: tuple[UnsavedFile, ...]) -> str:
        if unsaved:
            return f"no save holds all of it; where none of this is needed, {self._by_hand}"
        return "git ignores files there that no save holds; --ignored lets them go"

    def _submodules(self) -> list[str]:
        """Submodules that were initialised here: their repositories lie in the worktree's own git folder, and go with it."""
        modules = self._entry.git_dir / "modules"
        return sorted(
            str(path.parent.relative_to(modules)) for path in modules.glob("**/HEAD") if _is_git(path)
        )

    def _owner(self, run: Summary | None) -> tuple[Summary | None, str]:
        """The newest run of the worktree, and the reason if one of its runs keeps it from being removed."""
        store = self._saves.store
        found = list(runs_in(store, self._folder, open_only=False))
        if store is None or not found:
            return None, "no run in this store works there; see `git worktree remove`"
        for each in found:
            if each.holder is not None and store.holder_lives(each.root):
                return each, f"run {each.run} is working there; stop it with `outlast kill {each.run}`"
        over = CLOSED if run is None else ENDED
        for each in found:
            if each.state.status not in over:
                shown = find.shown_status(store, each.state, each.root)
                stands = standing.of(each.state, shown, datetime.now(UTC), find.children_in(store))
                word = standing.words(stands.word)
                return each, f"run {each.run} is {word} and may go on; `outlast cancel {each.run}` ends it"
        return found[0], ""

    def _remove(self, owner: Summary) -> Cleared:
        saver = self._saves.saver(self._folder)
        if saver.repo().shadow:
            return _refused(
                self._entry,
                self._marker,
                owner.run,
                "its saves do not hold what is staged: save_where = shadow",
            )
        if self._options.dry_run:
            return self._foreseen(owner, saver)
        held = self._save(owner, saver)
        looked = _Look(saver, held, self._common)
        unsaved, ignored = looked.unheld()
        if unsaved or (ignored and not self._options.ignored):
            return msgspec.structs.replace(
                _refused(self._entry, self._marker, owner.run, self._why(unsaved)),
                unsaved=unsaved,
                ignored=ignored,
                save=held.commit,
            )
        mark(self._entry.git_dir, msgspec.structs.replace(self._marker, state="removing", save=held.commit))
        looked.remove()
        return self._finish(owner, held.commit, ignored)

    def _foreseen(self, owner: Summary, saver: Saver) -> Cleared:
        """The expected outcome, judged by the files that a save would take. Writes nothing but our own caches."""
        ignored = tuple(_ignored(self._folder, self._common))
        left = tuple(UnsavedFile(each.path, each.why, each.size) for each in saver.peek().left_out)
        listed = command.run(
            ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self._folder
        )
        known, under = set(command.names(listed)), tuple(raw(each.path) for each in (*ignored, *left))
        unknown = [path for path in _files(self._folder) if path not in known and not _is_under(path, under)]
        left += tuple(UnsavedFile(text(path), "in no save", 0) for path in unknown[:LISTED_MAX])
        removed = not left and (not ignored or self._options.ignored)
        return Cleared(
            folder=text(self._folder), task=self._marker.task, run=owner.run, removed=removed, unsaved=left, ignored=ignored,
            why="" if removed else self._why(left), branch=self._marker.branch, dry_run=True,
        )  # fmt: skip

    def _save(self, owner: Summary, saver: Saver) -> saves.SaveContents:
        """The save that decides: that of a killed removal, else a new save of the present files."""
        commit = self._marker.save
        if self._marker.state != "removing":
            made = saver.capture(purpose("final", owner, "before its worktree is removed"))
            assert made is not None, "a save is made whether the tree is dirty or not"
            commit = made.commit
        return saves.read(saver.reader(), commit, saver.repo().algo)

    def _finish(self, owner: Summary, save: str, ignored: tuple[UnsavedFile, ...]) -> Cleared:
        """Remove the empty folders, then git's own files of the worktree. Its index and HEAD are in the save."""
        if not self._options.dry_run:
            _remove_folders(self._folder)
            with contextlib.suppress(OSError):
                self._folder.parent.rmdir()  # ours as well, when it was the last one
            shutil.rmtree(self._entry.git_dir)
            with contextlib.suppress(OSError):
                self._entry.git_dir.parent.rmdir()
        return Cleared(
            folder=text(self._folder), task=self._marker.task, run=owner.run, removed=True, ignored=ignored,
            branch=self._marker.branch, save=save, dry_run=self._options.dry_run,
        )  # fmt: skip


class _Look:
    """The files of a worktree against a save."""

    def __init__(self, saver: Saver, held: saves.SaveContents, common: Path) -> None:
        self._folder, self._held, self._common = saver.folder, held, common
        self._algo = saver.repo().algo
        self._worktree = Worktree(saver.folder, saver.reader(), self._algo)
        self._wanted = {path: new for path, _, new in restore.changes_between(saver, None, held.tree) if new}
        self._secrets = {raw(each.path): each.oid for each in held.meta.secrets}
        self._ignored: tuple[UnsavedFile, ...] = ()

    def unheld(self) -> tuple[tuple[UnsavedFile, ...], tuple[UnsavedFile, ...]]:
        """The files that differ from the save: those that must stay, and those that git ignores."""
        self._ignored = tuple(_ignored(self._folder, self._common))
        known = tuple(raw(each.path) for each in self._ignored)
        left = [(raw(each.path).rstrip(b"/"), each.why) for each in self._held.meta.left_out]
        unsaved = []
        for path in _files(self._folder):
            if not self._may_go(path, known):
                status = os.lstat(os.path.join(os.fsencode(self._folder), path))
                plain = "changed since its save" if path in self._wanted else "in no save"
                why = next((why for at, why in left if path == at or path.startswith(at + b"/")), plain)
                unsaved.append(UnsavedFile(text(path), why, status.st_size))
        return tuple(unsaved[:LISTED_MAX]), self._ignored

    def _is_held(self, path: bytes) -> bool:
        wanted = self._wanted.get(path)
        if wanted is not None:
            return self._worktree.entry(path) == wanted
        return path in self._secrets and self._worktree.digest(path, objects.SHA1) == self._secrets[path]

    def remove(self) -> None:
        """Remove every file, each only while it is as `unheld` found it."""
        known = tuple(raw(each.path) for each in self._ignored)
        there = list(_files(self._folder))
        root = os.fsencode(self._folder) + b"/"
        for path in there:  # first what git ignores: it is not known as such any more without .gitignore
            if path not in self._wanted and self._may_go(path, known):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(root + path)
        self._worktree.apply([(path, self._wanted[path], None) for path in there if path in self._wanted])

    def _may_go(self, path: bytes, ignored: tuple[bytes, ...]) -> bool:
        return self._is_held(path) or _is_under(path, ignored) or _is_copy(path, self._folder, self._common)


def _is_git(head: Path) -> bool:
    return (head.parent / "objects").is_dir()


def _files(folder: Path) -> Iterator[bytes]:
    """Every file and link of a worktree, but for the file that leads to its git folder."""
    root = os.fsencode(folder)
    for here, folders, names in os.walk(root, onerror=_raise):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        for name in (*names, *links):
            path = os.path.relpath(os.path.join(here, name), root)
            if path != b".git":
                yield path


def _raise(error: OSError) -> None:
    raise SaveError(
        f"{os.fsdecode(error.filename)} may not be read", hint="look at its permissions"
    ) from error


def _ignored(folder: Path, common: Path) -> Iterator[UnsavedFile]:
    """Ignored files and folders with their sizes, except those that the main worktree has in the same form."""
    words = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]
    root = os.fsencode(folder) + b"/"
    for path in command.names(command.run(words, cwd=folder)):
        size = _size(root + path.rstrip(b"/"))
        if size is not None and not _is_copy(path, folder, common):
            yield UnsavedFile(text(path), "ignored by git", size)


def _size(path: bytes) -> int | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    sizes = (os.lstat(os.path.join(here, name)).st_size for here, _, names in os.walk(path) for name in names)
    return sum(sizes)


def _is_under(path: bytes, known: tuple[bytes, ...]) -> bool:
    return any(path == each or (each.endswith(b"/") and path.startswith(each)) for each in known)


def _is_copy(path: bytes, folder: Path, common: Path) -> bool:
    """Whether the main worktree has the same file, as after a copy from there."""
    if common.name != ".git" or path.endswith(b"/"):
        return False
    here, there = (os.path.join(os.fsencode(each), path) for each in (folder, common.parent))
    with contextlib.suppress(OSError):
        regular = all(stat.S_ISREG(os.lstat(each).st_mode) for each in (here, there))
        return regular and filecmp.cmp(here, there, shallow=False)
    return False


def _remove_folders(folder: Path) -> None:
    """Remove the folders, which are empty by now, and the file that leads to the git folder. Any other file is an error."""
    if not folder.is_dir():
        return
    for here, _, _ in os.walk(os.fsencode(folder), topdown=False):
        if here != os.fsencode(folder):
            os.rmdir(here)
    (folder / ".git").unlink(missing_ok=True)
    folder.rmdir()
