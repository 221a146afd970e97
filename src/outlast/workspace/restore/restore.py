"""Restores a save: saves the current files first, and deletes nothing that is not in that pre-restore save.

Every step is a difference between what is there and what is wanted: killed and called again, it ends right."""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed, WorkspaceMoved, WorkspaceRefused
from outlast.store import durable
from outlast.workspace import leftovers, new_folder, repo, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special import nested_repos, permissions
from outlast.workspace.git import command, objects, refs, trees
from outlast.workspace.git.objects import TREE, Entry
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import recreate, revive, unsaved_files
from outlast.workspace.restore.nested_repos import NestedRepoRestore
from outlast.workspace.restore.worktree import Change, Worktree, write_over
from outlast.workspace.types import Purpose, Save, Secret, raw, text
from outlast.workspace.vault.bring_in import keep_commit
from outlast.workspace.vault.give_back import give_back

_LOCK_TEXT = b"outlast restores\n"
_NAMED_MAX = 5
_MOVED_HEADS = "refs/outlast/hand/moved"


class RestoreReport(msgspec.Struct, frozen=True):
    """What a restore did, or would do."""

    save: str
    folder: str
    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    branch: str = ""
    index: bool = False
    before: Save | None = None
    secrets: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()  # overwritten, and stored separately in the pre-restore save


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a restore."""

    force: bool = False
    dry_run: bool = False
    with_secrets: bool = False
    git_state: bool = True  # also HEAD, index and a merge in progress, not only files
    spared: frozenset[bytes] = frozenset()  # files and secrets to leave as they are


def restore(saver: Saver, held: saves.SaveContents, purpose: Purpose, options: Options) -> RestoreReport:
    """Make the workspace what it was at a save. Raises WorkspaceMoved if a branch has moved on.

    Refuses before anything is touched, except for what happens while the files are written.
    """
    try:
        return _restore(saver, held, purpose, options)
    except OSError as error:
        name = f": {text(os.fsencode(error.filename))}" if error.filename else ""
        raise SaveFailed(
            f"cannot restore the save {held.commit[:12]}{name}: {error.strerror}",
            hint="fix that, then restore again",
        ) from error


def _restore(saver: Saver, held: saves.SaveContents, purpose: Purpose, options: Options) -> RestoreReport:
    place = saver.repo()
    if revive.is_needed(place, held) and options.git_state and not options.dry_run:
        with saver.lock():
            revive.revive(place, held, saver.reader(), saver.folder)
        place = saver.repo()
    if held.meta.shadow and not place.shadow:  # git did not know the repository when it was made
        options = msgspec.structs.replace(options, git_state=False)
    elif place.shadow and not held.meta.shadow and options.git_state and not revive.is_free(saver.folder):
        raise WorkspaceRefused(
            f"git does not know {saver.folder}/.git, and the save {held.commit[:12]} is of a repository",
            hint=f"move {saver.folder}/.git away, then restore: it comes back from the save; or restore with --to DIR",
        )
    head = _Head(place, held)
    if options.git_state:
        head.check(force=options.force)
    if options.git_state and not place.shadow and not options.dry_run:
        with saver.lock():
            revive.revive_modules(place, held, saver.reader(), saver.folder)
    worktree = _worktree(saver, held)
    if options.dry_run:
        return _foreseen(saver, held, worktree)
    if options.git_state and not place.shadow:
        _free_lock(place.index)
    now = saver.peek()
    hidden = unsaved_files.hidden_files(worktree, changes_between(saver, now.tree, held.tree, now.trees))
    covering = (
        unsaved_files.files_over_secrets(saver, worktree, held, now)
        if options.with_secrets
        else frozenset[bytes]()
    )
    also = frozenset(hidden) - now.secrets - covering
    before = saver.capture(purpose, also=also - options.spared, apart=covering - options.spared)
    assert before is not None, "a save without if_dirty is always made"
    with _explaining_interruption(saver, before):
        with saver.lock():
            there = saves.read(saver.reader(), before.commit, place.algo)
            done = _Files(saver, held, there, worktree, hidden, options)
            done.write()
            if options.git_state and not place.shadow:
                give_back(place, tips_of(saver.reader(), held))
                head.put_back(purpose.run, force=options.force)
                put_index(saver, held)
                _put_progress(saver, held)
        _verify(saver, held, options.spared)
    report = _report(saver, held, done.changes, before, done.secrets, left=done.left, unlike=done.unlike)
    return msgspec.structs.replace(report, apart=done.apart)


class _Files:
    """The files to restore, planned and checked before the first is touched."""

    def __init__(
        self,
        saver: Saver,
        held: saves.SaveContents,
        there: saves.SaveContents,
        worktree: Worktree,
        hidden: Mapping[bytes, Entry],
        options: Options,
    ) -> None:
        self._saver, self._held, self._worktree, self._spared = saver, held, worktree, options.spared
        apart = unsaved_files.stored_as_secrets(worktree, there, hidden)
        found = unsaved_files.with_hidden_files(changes_between(saver, there.tree, held.tree), apart)
        changes = _without_left(saver, held, found, hidden)
        self.changes = [change for change in changes if change[0] not in options.spared]
        unsaved_files.check_closed(saver, held, there.meta.left_out)
        unsaved_files.check_unsaved(saver, held, there.meta.left_out, worktree, {*apart, *options.spared})
        self._insides = NestedRepoRestore(
            saver.folder, worktree, saver.reader(), saver.repo().algo, held, there, saver.repo().vault
        )
        self._below = self._insides.plan()
        worktree.check([*self.changes, *self._below])
        self._wanted: list[Secret] = []
        if options.with_secrets:
            self._wanted = unsaved_files.secrets_wanted(saver, held, there, worktree, options.spared)
        over = {*map(text, apart.keys() - options.spared), *(secret.path for secret in self._wanted)}
        gone = [secret for secret in there.meta.secrets if secret not in held.meta.secrets]
        self.apart = tuple(secret.path for secret in gone if secret.path in over)
        self.unlike: list[bytes] = []
        self.secrets: tuple[str, ...] = ()
        self.left: list[str] = []

    def write(self) -> None:
        """Write all of them, durable when it returns. What could not be restored is in `left`."""
        with leftovers.writer_note(self._saver.private):
            self._worktree.apply(self.changes)
            self.unlike = [path for path in self._worktree.unlike() if path not in self._spared]
            refused = self._worktree.put_bits(self.unlike)
            self.secrets = unsaved_files.put_secrets(self._saver, self._held, self._wanted, self._worktree)
            self._worktree.apply(self._below)
            self._insides.finish()
            refs.syncfs(self._saver.folder)
        self.left = [*self._insides.left_alone, *map(text, refused)]


@contextlib.contextmanager
def _explaining_interruption(saver: Saver, before: Save) -> Iterator[None]:
    """If a restore is interrupted, say what state the folder is in, and where the old files are."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(
            f"interrupted: {saver.folder} may be half restored; run the same command again to finish; what was"
            f" there before is save {before.commit[:12]}"
        )
        raise


def materialise(
    saver: Saver, held: saves.SaveContents, to: Path, *, with_secrets: bool = False
) -> RestoreReport:
    """Put a save into a new folder: a worktree with HEAD detached, or plain files if there is no repository.

    `to` is its real path: links are not followed on the way. Raises SaveFailed, with nothing made, if a secret that is
    asked for is not stored any more.
    """
    refuse_full(to)
    saves.check_names(held)
    secrets = unsaved_files.secrets_of(saver, held) if with_secrets else []
    place = saver.repo()
    plain = not held.meta.head or held.meta.shadow
    wanted = changes_between(saver, None, held.tree)  # first, so that a damaged save makes no folder
    with new_folder.claim_folder(to, 0o700 if plain else 0o777) as claim:
        if place.shadow and not plain:
            claim.check()
            revive.revive_beside(place, held, saver.reader(), to)
            own = msgspec.structs.replace(place, common_dir=to / ".git", shadow=False)
            give_back(own, tips_of(saver.reader(), held))
        elif not plain:
            _keep_head_of_removed(place, to)
            give_back(place, tips_of(saver.reader(), held))
            # By force, in case git's list still has a worktree that somebody removed from there.
            words = [
                "worktree",
                "add",
                "--quiet",
                "--force",
                "--no-checkout",
                "--detach",
                str(to),
                held.meta.head,
            ]
            command.run(words, git_dir=place.common_dir)
        _fill(saver, held, claim, wanted, secrets)
    return _report(saver, held, wanted, None, tuple(secret.path for secret in secrets), folder=to)


def _keep_head_of_removed(place: repo.Repo, folder: Path) -> None:
    """Keep the commits of a worktree of this name, whose folder somebody removed, in the vault."""
    left = recreate.linked_worktree(place.common_dir, folder)
    if left is None:
        return
    with contextlib.suppress(OSError):
        oid = os.fsdecode(durable.read_plain(left / "HEAD")).strip()
        if oid and refs.is_head(oid, ""):
            keep_commit(place, f"{_MOVED_HEADS}/{oid[:16]}", oid)


def _fill(
    saver: Saver,
    held: saves.SaveContents,
    claim: new_folder.Claim,
    changes: list[Change],
    secrets: Sequence[Secret] = (),
) -> None:
    """Write a save's files (`changes` makes them) and these secrets into an empty folder; for a worktree also its index."""
    place, to = saver.repo(), claim.folder
    worktree = _worktree(saver, held, to, claim.fd)
    claim.check()
    permissions.guard(to, saver.reader(), held, place.algo)
    worktree.apply(changes)
    insides = NestedRepoRestore(to, worktree, saver.reader(), place.algo, held)
    worktree.apply(insides.plan(pointers=False))
    insides.finish()
    unsaved_files.put_secrets(saver, held, secrets, worktree)
    claim.check()
    refs.syncfs(to)
    if held.meta.head and not held.meta.shadow:
        own, common = repo.own(to), to / ".git" if place.shadow else place.common_dir
        # `.git` of the workspace may be a link.
        if own is None or os.path.realpath(own.common_dir) != os.path.realpath(common):
            raise new_folder.replaced_error(to)
        there = repo.Repo(to, own.git_dir, own.common_dir, own.algo, place.vault)
        _put_index_into(there.index, saver.reader(), held)
        _put_progress_into(there, saver.reader(), held, place.algo)


def put_files(saver: Saver, wanted: Sequence[Change], held: saves.SaveContents | None = None) -> None:
    """Write only these files, each only if it is what the change expects; with permissions as in `held`."""
    with saver.lock(), leftovers.writer_note(saver.private):
        _worktree(saver, held).apply(wanted)
        refs.syncfs(saver.folder)


def _worktree(
    saver: Saver, held: saves.SaveContents | None, folder: Path | None = None, fd: int | None = None
) -> Worktree:
    """The files of a folder, by default of the workspace, to be written with the permissions of a save."""
    reader, algo = saver.reader(), saver.repo().algo
    bits = permissions.recorded_bits(reader, held, algo) if held is not None else {}
    umask = permissions.umask_of(held) if held is not None else 0
    return Worktree(folder or saver.folder, reader, algo, bits, umask, fd)


def entries_of(saver: Saver, tree: str, paths: Sequence[bytes]) -> dict[bytes, Entry | None]:
    """A tree's entries at these paths."""
    editor = trees.TreeEditor(tree, lambda oid: saver.reader().read(oid)[1], saver.repo().algo)
    return {path: editor.get(path) for path in paths}


def refuse_full(to: Path) -> None:
    """Raise WorkspaceRefused for a folder that is not empty."""
    if os.path.lexists(to) and (to.is_symlink() or not to.is_dir() or any(to.iterdir())):
        raise WorkspaceRefused(f"{to} exists and is not empty", hint="give a folder that does not exist yet")


def changes_between(
    saver: Saver, now: str | None, wanted: str, held: Mapping[str, bytes] | None = None
) -> list[Change]:
    algo = saver.repo().algo
    known = {objects.oid_of("tree", b"", algo): b"", **(held or {})}

    def read(oid: str) -> bytes:
        data = known.get(oid)
        return data if data is not None else saver.reader().read(oid)[1]

    changes = list(trees.diff(now, wanted, read, algo))
    if any(new is not None and b".git" in path.split(b"/") for path, _, new in changes if b".git" in path):
        raise SaveDamaged("a save has files inside a .git folder, which outlast never writes")
    return changes


def _without_left(
    saver: Saver, held: saves.SaveContents, changes: list[Change], hidden: Container[bytes]
) -> list[Change]:
    """The changes, without deletions of what the save lacks only because it was left out or ignored."""
    going = [path for path, _, new in changes if new is None and path not in hidden]
    if not going:
        return changes
    left = {raw(item.path) for item in held.meta.left_out}
    ignored = _ignored_then(saver, held, going)
    return [
        change
        for change in changes
        if change[0] not in going or not (unsaved_files.is_left(change[0], left) or change[0] in ignored)
    ]


def _ignored_then(saver: Saver, held: saves.SaveContents, paths: list[bytes]) -> set[bytes]:
    """The paths that the save's own ignore files name. Git is asked in an empty folder with these ignore files."""
    tree = trees.TreeEditor(held.tree, lambda oid: saver.reader().read(oid)[1], saver.repo().algo)
    folders = {b"", *(folder for path in paths for folder in unsaved_files.folders(path))}
    with tempfile.TemporaryDirectory(dir=saver.private, prefix="quarantine-") as place:
        rules = Worktree(Path(place), saver.reader(), saver.repo().algo)
        for name in (folder + b".gitignore" for folder in folders):
            entry = tree.get(name)
            if entry is not None and entry.mode != TREE:
                rules.put(name, entry.mode, saver.reader().read(entry.oid)[1])
        return saver.base().ignored(paths, Path(place))


def _foreseen(saver: Saver, held: saves.SaveContents, worktree: Worktree) -> RestoreReport:
    """What a restore would do. Raises SaveFailed if it would be refused."""
    now = saver.peek()
    found = changes_between(saver, now.tree, held.tree, now.trees)
    hidden = unsaved_files.hidden_files(worktree, found)
    changes = _without_left(saver, held, unsaved_files.with_hidden_files(found, hidden), hidden)
    unsaved_files.check_closed(saver, held, now.left_out)
    worktree.check(changes)
    return _report(saver, held, changes, None, unlike=worktree.unlike())


def _report(
    saver: Saver,
    held: saves.SaveContents,
    changes: list[Change],
    before: Save | None,
    secrets: tuple[str, ...] = (),
    folder: Path | None = None,
    left: Sequence[str] = (),
    unlike: Sequence[bytes] = (),
) -> RestoreReport:
    written = dict.fromkeys([*(path for path, _, new in changes if new is not None), *unlike])
    return RestoreReport(
        held.commit,
        text(folder or saver.folder),
        tuple(map(text, written)),
        tuple(text(path) for path, _, new in changes if new is None),
        held.meta.branch,
        held.meta.index,
        before,
        secrets,
        (*(item.path for item in held.meta.left_out), *left),
    )


# -- HEAD, index, merge state ------------------------------------------------------------------------------------


class _Head:
    """HEAD and its branch, as they are and as the save has them."""

    def __init__(self, place: repo.Repo, held: saves.SaveContents) -> None:
        saves.check_names(held)
        self._place = place
        self._wanted = repo.Head(held.meta.head, held.meta.branch)
        self._now = repo.head(place)
        branch = self._ref = os.fsdecode(raw(self._wanted.branch))
        self._tip = (refs.read_ref(place.common_dir, branch) or "") if branch and not place.shadow else ""

    @property
    def moved(self) -> bool:
        return bool(self._wanted.branch) and self._tip != self._wanted.oid

    def check(self, *, force: bool) -> None:
        if self._place.shadow:
            return
        branch = self._wanted.branch.removeprefix("refs/heads/")
        if self.moved and not force:
            tip = self._tip[:12] or "gone"
            raise WorkspaceMoved(
                f"branch {branch} has moved on: it is {tip}, at the save it was {self._wanted.oid[:12] or 'unborn'}",
                hint="--force moves it back (its commits stay in the vault), --to DIR leaves it alone",
            )
        if branch and self._now.branch != self._wanted.branch and self._is_elsewhere():
            raise WorkspaceMoved(
                f"branch {branch} is checked out in another worktree", hint="restore with --to DIR instead"
            )

    def _is_elsewhere(self) -> bool:
        listing = command.run(["worktree", "list", "--porcelain"], git_dir=self._place.common_dir)
        return os.fsencode(f"branch {self._ref}") in listing.splitlines()

    def put_back(self, run: str, *, force: bool) -> None:
        """Move the branch first, if allowed, then HEAD."""
        self.check(force=force)
        common = self._place.common_dir
        if self.moved:
            if self._tip:
                keep_commit(self._place, f"refs/outlast/{run}/moved/{self._tip[:16]}", self._tip)
            if self._wanted.oid:
                refs.write_ref(common, self._ref, self._wanted.oid, old=self._tip or None)
            else:
                refs.delete_ref(common, self._ref, self._tip)
        if self._now != self._wanted:
            content = f"ref: {self._ref}\n" if self._wanted.branch else f"{self._wanted.oid}\n"
            write_over(os.fsencode(self._place.git_dir / "HEAD"), os.fsencode(content))
            faults.point("restore.head")


def put_index(saver: Saver, held: saves.SaveContents) -> None:
    """Write a save's index into the repository, which has what it names."""
    _put_index_into(saver.repo().index, saver.reader(), held)


def _put_index_into(index: Path, reader: ObjectReader, held: saves.SaveContents) -> None:
    """Write the raw index, under git's own lock."""
    entry = held.entries.get(b"index")
    data = reader.read(entry.oid)[1] if entry is not None else None
    with contextlib.suppress(OSError):
        if data == index.read_bytes():
            return
    with index_lock(index):
        for name, shared in held.entries.items():
            if name.startswith(b"sharedindex.") and not (index.parent / os.fsdecode(name)).exists():
                write_over(os.fsencode(index.parent) + b"/" + name, reader.read(shared.oid)[1])
        if data is None:
            index.unlink(missing_ok=True)
        else:
            # Git compares whole seconds, and trusts an entry that is older than the index file. With the current time,
            # a file changed in the second in which it was added would pass for unchanged; so make git look at all files.
            write_over(os.fsencode(index), data, at_s=1)
    faults.point("restore.index")


@contextlib.contextmanager
def index_lock(index: Path) -> Iterator[None]:
    """Hold git's own lock of an index. Raises WorkspaceRefused while a git has it."""
    lock = index.with_name("index.lock")
    _free_lock(index)
    try:
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise _is_locked(lock) from error
    try:
        os.write(fd, _LOCK_TEXT)
        os.close(fd)
        yield
    finally:
        lock.unlink(missing_ok=True)


def _free_lock(index: Path) -> None:
    """Remove a lock that a killed restore left: restores run one at a time, so its owner is gone."""
    lock = index.with_name("index.lock")
    with contextlib.suppress(FileNotFoundError):
        if lock.read_bytes() != _LOCK_TEXT:
            raise _is_locked(lock)
        lock.unlink()


def _is_locked(lock: Path) -> WorkspaceRefused:
    return WorkspaceRefused(
        f"{lock} exists: another git is running, or one was killed",
        hint=f"if none is running, remove it: `rm {shlex.quote(str(lock))}`; then do this again",
    )


def _put_progress(saver: Saver, held: saves.SaveContents) -> None:
    _put_progress_into(saver.repo(), saver.reader(), held, saver.repo().algo)


def _put_progress_into(
    place: repo.Repo, reader: ObjectReader, held: saves.SaveContents, algo: objects.Algo
) -> None:
    """Write the files of a merge or rebase in progress, and no others."""
    found = _files_of(reader, held.entries.get(b"progress"), algo)
    wanted = {
        path: data for path, data in found.items() if nested_repos.is_progress(path)
    }  # no hook, no setting
    for path in repo.in_progress(place):
        if path not in wanted:
            target = place.git_dir / os.fsdecode(path)
            target.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                target.parent.rmdir()
    for path, data in wanted.items():
        target = place.git_dir / os.fsdecode(path)
        with contextlib.suppress(OSError):
            if target.read_bytes() == data:
                continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_over(os.fsencode(target), data)


def _files_of(reader: ObjectReader, entry: Entry | None, algo: objects.Algo) -> dict[bytes, bytes]:
    if entry is None:
        return {}
    walk = trees.TreeEditor(entry.oid, lambda oid: reader.read(oid)[1], algo).walk()
    return {path: reader.read(held.oid)[1] for path, held in walk}


def tips_of(reader: ObjectReader, held: saves.SaveContents) -> list[str]:
    """The objects that HEAD, index and a merge in progress name once a save is restored."""
    m = objects.parse_commit(reader.read(_parents(reader, _parents(reader, held.commit)[-1])[-1])[1])
    named = list(m.parents[1:] if held.previous else m.parents)
    beside = [
        entry.oid
        for name, entry in held.entries.items()
        if name in (b"stages", b"empty") or name.startswith(b"held-")
    ]
    named = [oid for oid in named if oid != held.meta.modules]
    return [held.meta.head, held.index_tree, *named, *beside]


def _parents(reader: ObjectReader, commit: str) -> tuple[str, ...]:
    return objects.parse_commit(reader.read(commit)[1]).parents


# -- afterwards --------------------------------------------------------------------------------------------------


def _verify(saver: Saver, held: saves.SaveContents, spared: Container[bytes]) -> None:
    """Check that the files are now as they were saved; raise SaveFailed that names those which are not."""
    now = saver.peek()
    left = {raw(item.path) for item in held.meta.left_out}
    worktree = Worktree(saver.folder, saver.reader(), saver.repo().algo)
    changes = changes_between(saver, now.tree, held.tree, now.trees)
    doubtful = [(path, new) for path, _, new in changes if not unsaved_files.is_left(path, left)]
    wrong = [
        path
        for path, new in dict(
            [*doubtful, *unsaved_files.files_now_left_out(saver, held, now.left_out)]
        ).items()
        if path not in spared and (new is None or not unsaved_files.is_as(worktree, path, new))
    ]
    if wrong:
        names = ", ".join(text(path) for path in wrong[:_NAMED_MAX])
        raise SaveFailed(
            f"{len(wrong):,} files are not as the save {held.commit[:12]} has them: {names}",
            hint="stop the program that writes there, and restore again",
        )
