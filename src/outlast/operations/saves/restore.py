"""Bringing a save back: into its own workspace, after a look at who works there, or into a new folder."""

import os
from pathlib import Path

import msgspec

from outlast.core import events as ev
from outlast.errors import RunRefused, WorkspaceRefused
from outlast.operations import requests
from outlast.operations.saves.find import SHORT_CHARS, Found, Saves, purpose, runs_in
from outlast.runs import files_notes
from outlast.runs.engine.steps import Append
from outlast.runs.files_notes import Recreating
from outlast.store.protocol import Store, Summary
from outlast.workspace.capture.saver import Saver
from outlast.workspace.restore import recreate, restore as workspace_restore, unsaved_files
from outlast.workspace.types import Purpose, raw, text


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did, or would do with `dry_run`.

    `before` is the save of what was there, null for a new folder and for a workspace that was gone (`recreated`);
    `apart` was written over and is among its secrets.
    """

    save: str
    folder: str
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    before: str | None = None
    branch: str = ""
    secrets: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    dry_run: bool = False
    new: bool = False
    recreated: bool = False


def restore(saves: Saves, found: Found, options: workspace_restore.Options) -> Restored:
    """Make the workspace of a save what it was. What is there is saved first, and the answer names that save.

    A workspace that is gone is made again. Raises RunRefused while a living process works there, WorkspaceRefused where the save is of another folder, and
    WorkspaceMoved where a branch has moved on; `force` overrides the first and the last.
    """
    saver = _of_its_own_folder(saves, found)
    if not options.force:
        refuse_held(saves, saver)
    run = saves.owner(saver.folder)
    if not saver.folder.is_dir():
        return _recreate(saver, found, run, options)
    secrets = unsaved_files.secrets_of(saver, found.held) if options.with_secrets else []
    done = _restored(saver, found, run, options)
    if not options.dry_run:
        return done
    return msgspec.structs.replace(done, secrets=tuple(secret.path for secret in secrets))


def _restored(
    saver: Saver, found: Found, run: Summary | None, options: workspace_restore.Options
) -> Restored:
    reason = f"before restoring {found.held.commit[:SHORT_CHARS]}"
    done = workspace_restore.restore(saver, found.held, purpose("pre-restore", run, reason), options)
    if not options.dry_run:
        files_notes.drop(saver.private, Recreating)  # whoever left it unfinished, the folder is whole now
    return _brought(done, dry_run=options.dry_run)


def _recreate(
    saver: Saver, found: Found, run: Summary | None, options: workspace_restore.Options
) -> Restored:
    """Bring back a workspace that is gone: folder, files, branch, index.

    Killed on the way, the same again ends right; so does the run, which would take files that are not there yet for
    deleted by a person if there were no note.
    """
    recreate.check(saver, found.held, force=options.force)
    foreseen = _foreseen(found, saver.folder, with_secrets=options.with_secrets)
    if options.dry_run:
        return msgspec.structs.replace(foreseen, recreated=True)
    if run is not None:
        files_notes.note(saver.private, Recreating(run.run, run.state.save_point))
    recreate.make_folder(saver, found.held.commit)
    saver.close()  # it reads from the folder's own repository from now on
    return msgspec.structs.replace(_restored(saver, found, run, options), before=None, recreated=True)


def restore_to(found: Found, to: Path, *, dry_run: bool = False, with_secrets: bool = False) -> Restored:
    """A save in a new folder, given by its real path. Raises WorkspaceRefused where that holds anything, or is a link."""
    if not dry_run:
        done = workspace_restore.materialise(found.saver, found.held, to, with_secrets=with_secrets)
        return _brought(done, new=True)
    workspace_restore.refuse_full(to)
    return msgspec.structs.replace(_foreseen(found, to, with_secrets=with_secrets), new=True)


def _foreseen(found: Found, folder: Path, *, with_secrets: bool) -> Restored:
    """What filling an empty folder would do."""
    held = found.held
    wanted = workspace_restore.changes_between(found.saver, None, held.tree)
    secrets = unsaved_files.secrets_of(found.saver, held) if with_secrets else []
    return Restored(
        save=held.commit, folder=text(folder), written=tuple(text(path) for path, _, _ in wanted), deleted=(),
        branch=held.meta.branch, secrets=tuple(secret.path for secret in secrets),
        left_out=tuple(left.path for left in held.meta.left_out), dry_run=True,
    )  # fmt: skip


def check_new(saves: Saves, found: Found, to: Path) -> None:
    """Refuse a folder that holds anything, unless the same command was killed while it filled it."""
    if not any(_begun(saves, found, run) for run in runs_in(saves.store, to, open_only=True)):
        workspace_restore.refuse_full(to)


def _begun(saves: Saves, found: Found, run: Summary) -> bool:
    """Whether a run is the fork that this save is for, made and not yet started."""
    assert saves.store is not None, "runs are found in a store"
    assert found.run is not None, "a fork is of a run"
    fork = run.state.fork
    started = saves.store.read(run.run, after=0, limit=1, tags=("attempt_started",)).events
    return fork is not None and (fork.run, fork.beat) == (found.run.run, found.beat) and not started


def give_files(saves: Saves, found: Found, fork: Summary, to: Path) -> None:
    """The files of the beat that a fork begins after, in a folder of its own, and the save that says so in its journal.

    Killed anywhere, the same again ends right. A fork that was started meanwhile is left alone.
    """
    assert saves.store is not None, "a fork is in a store"
    if not _begun(saves, found, fork):
        return
    beat, reason = fork.state.beats, f"forked after beat {fork.state.beats} of run {found.held.meta.run}"
    purpose = Purpose(kind="beat", run=fork.run, task=fork.task, reason=reason, beat=beat, seq=fork.state.seq)
    if os.path.realpath(to) != str(to):
        raise WorkspaceRefused(f"{to} leads elsewhere by a symbolic link", hint="give another folder")
    if to.is_dir() and any(to.iterdir()):
        again = msgspec.structs.replace(purpose, kind="pre-restore")
        workspace_restore.restore(
            saves.saver(to), found.held, again, workspace_restore.Options(git_state=False)
        )
    else:
        workspace_restore.materialise(found.saver, found.held, to)
    save = saves.saver(to).capture(purpose)
    assert save is not None, "a beat's save is made whether the tree is dirty or not"
    with requests.claimed(saves.store, fork.run) as journal:
        if journal.state.seq == fork.state.seq and not _says_so(saves.store, fork):
            made = ev.SaveMade(
                at=journal.now(), kind="beat", commit=save.commit, ref=save.ref, beat=beat, reason=reason
            )
            saves.store.append(journal.batch(Append((made,))))


class ForkFiles:
    """The files of a fork: the save they come from and the new folder, looked up before anything is written.

    The folder is given by its real path: what leads elsewhere by then is refused.
    """

    def __init__(self, store: Store, source: Summary, beat: int, to: Path) -> None:
        self.to = to
        self._saves = Saves(
            store.local, store, source.project, store.local.folder
        )  # wherever this process stands
        try:
            self._found = self._saves.at_beat(source, beat)
            check_new(self._saves, self._found, self.to)
        except BaseException:
            self.close()
            raise

    @property
    def shadow(self) -> bool:
        """Whether they come from no repository of the workspace's own."""
        return self._found.held.meta.shadow

    def give(self, fork: Summary) -> None:
        """Write them; see `give_files`."""
        give_files(self._saves, self._found, fork, self.to)

    def close(self) -> None:
        """Let go of the processes."""
        self._saves.close()


def _says_so(store: Store, fork: Summary) -> bool:
    """Whether the journal of a fork names a save of its own folder."""
    made = store.read(fork.run, after=0, limit=1, tags=("save_made",), newest=True).events
    return any(isinstance(each.event, ev.SaveMade) and f"/{fork.run}/" in each.event.ref for each in made)


def refuse_held(saves: Saves, saver: Saver) -> None:
    """While an agent writes there, what is brought back would be mixed with what it does."""
    for run in runs_in(saves.store, saver.folder, open_only=True):
        assert saves.store is not None, "runs are found in a store"
        if run.holder is not None and saves.store.holder_lives(run.root):
            raise RunRefused(
                f"run {run.run} of task {run.task} is held by pid {run.holder.pid} on {run.holder.host},"
                f" which works in {saver.folder}",
                hint=f"stop it first: `outlast pause {run.run}`; or restore with --to DIR",
            )


def _of_its_own_folder(saves: Saves, found: Found) -> Saver:
    """What saves the folder to be restored: that of the run, or around the person if the save was made there.

    A save of a worktree that is gone goes there, not into another of its repository.
    """
    made_of = found.held.meta.folder
    if saves.given:
        if saves.saver().repo().vault != found.saver.repo().vault:
            raise WorkspaceRefused(
                f"save {found.held.commit[:SHORT_CHARS]} is not of {saves.folder} or its repository",
                hint="bring it back into a new folder with --to DIR",
            )
        return saves.saver()
    if found.run is not None or not made_of or made_of == text(found.saver.folder):
        return found.saver
    if os.path.isdir(raw(made_of)):
        raise WorkspaceRefused(
            f"save {found.held.commit[:SHORT_CHARS]} was made of {made_of}, not of {found.saver.folder}",
            hint="name the folder to be restored with --workspace DIR, or a new one with --to DIR",
        )
    return saves.lost(Path(os.fsdecode(raw(made_of))), found.saver.repo().vault) or found.saver


def _brought(done: workspace_restore.RestoreReport, *, dry_run: bool = False, new: bool = False) -> Restored:
    return Restored(
        save=done.save, folder=done.folder, written=done.written, deleted=done.deleted,
        before=done.before.commit if done.before is not None else None, branch=done.branch, secrets=done.secrets,
        apart=done.apart, left_out=done.left_alone, dry_run=dry_run, new=new,
    )  # fmt: skip
