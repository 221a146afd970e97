"""The result of a run: where it is, and taking it over into the repository around a person. What may be done: `acts.apply`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from outlast import faults
from outlast.errors import SaveFailed, UsageError, WorkspaceRefused
from outlast.operations.saves import diff
from outlast.operations.saves.find import SHORT_CHARS, Saves, purpose, runs_in
from outlast.store.protocol import Summary
from outlast.workspace import repo, saves as workspace_saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command
from outlast.workspace.result import merge, take_over, tree as result_tree
from outlast.workspace.result.merge import MergeConflict, Obstacle, ResultFile
from outlast.workspace.result.room import Room, room
from outlast.workspace.result.take_over import ResultNote
from outlast.workspace.result.tree import RunFiles
from outlast.workspace.types import LeftOut, raw, text
from outlast.workspace.worktree_marker import marker_of

Mode = Literal["merge", "branch", "patch"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How a person wants a result: merged, as a new `branch`, or as a patch into the file `to`, else on stdout."""

    mode: Mode = "merge"
    branch: str = ""
    to: Path | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What taking over a result did, or would do with `dry_run`.

    `source` is the folder that the files came from, `save` the save that has them (null in a dry run that saved nothing). `onto`
    is the commit that was checked out here, `commit` the one that HEAD or the new branch names; `before` the save of what was
    here. With `conflicts` or `in_the_way` nothing is done. `cut_off` is the save of what an earlier try, which was `taken_back`, had left.
    In `submodules_left` the run has, or may have, changes that are in no commit of its own.
    """

    run: str
    task: str
    mode: Mode
    how: merge.How | Literal["branch", "patch"]
    folder: str
    source: str
    source_branch: str = ""
    save: str | None = None
    onto: str = ""
    commit: str = ""
    branch: str = ""
    files: tuple[ResultFile, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    in_the_way: tuple[Obstacle, ...] = ()
    here_already: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    submodules_left: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    secrets: tuple[str, ...] = ()
    before: str | None = None
    taken_back: bool = False
    cut_off: str | None = None
    patch: str | None = None
    dry_run: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether something stands in the way."""
        return bool(self.conflicts or self.in_the_way)


class _Source(NamedTuple):
    """Where a result is: its files, the save that has them, and what opens that."""

    saver: Saver
    files: RunFiles
    save: str | None
    left_out: tuple[LeftOut, ...]
    secrets: tuple[str, ...]
    is_live: bool


def applied(saves: Saves, run: Summary, wish: Wish, *, dry_run: bool) -> tuple[Applied, bytes]:
    """Take over the result of a run into the repository around a person; the second value is the patch, if that was wished.

    What is there is saved first. Raises WorkspaceRefused where there is no repository, or it is the run's own. Killed at any
    instant, the same call ends it.
    """
    here = saves.saver()
    if here.repo().shadow:
        raise WorkspaceRefused(
            f"{here.folder} is not a repository that git can use, so nothing can be merged there",
            hint=f"bring the files of the run into a new folder: `outlast restore {run.run} --to DIR`",
        )
    if wish.mode == "merge" and _is_in(run, here.folder):
        raise WorkspaceRefused(
            f"run {run.run} of task {run.task} worked in {here.folder} itself: its result is there already",
            hint=f"see `outlast diff {run.run} --whole`; or take it to a branch: `outlast apply {run.run} --branch NAME`",
        )
    with take_over.turn(here) as turn_fd:
        cut_off = _taken_back(saves, here, run, dry_run=dry_run) if wish.mode == "merge" else None
        with _opened(saves, run, here, dry_run=dry_run) as (found, place):
            whole = result_tree.committed(place, found.files)
            done = Applied(
                run=run.run, task=run.task, mode=wish.mode, how="nothing", folder=text(here.folder),
                source=text(found.saver.folder), source_branch=found.files.branch, save=found.save,
                left_out=found.left_out, secrets=found.secrets, dry_run=dry_run, taken_back=cut_off is not None,
                cut_off=cut_off, submodules_left=_submodules_left(found, place),
            )  # fmt: skip
            if wish.mode == "merge":
                return _merge(saves, here, place, found, whole, done, turn_fd), b""
            if wish.mode == "branch":
                return _branch(here, place, wish, whole, done), b""
            return _patch(saves, run, place, found, wish, whole, done)


def _is_in(run: Summary, folder: Path) -> bool:
    return bool(run.state.workspace) and os.path.realpath(run.state.workspace) == str(folder)


def _taken_back(saves: Saves, here: Saver, run: Summary, *, dry_run: bool) -> str | None:
    """Bring back what was here before a take-over that was cut off, if there was one; the save of what that had left."""
    note = take_over.under_way(here)
    if note is None:
        return None
    if note.run != run.run:
        raise WorkspaceRefused(
            f"taking over the result of run {note.run} was cut off in {here.folder}",
            hint=f"end it with `outlast apply {note.run}`, or take it back with `outlast restore {note.before[:SHORT_CHARS]} --force`",
        )
    if dry_run:
        raise WorkspaceRefused(
            f"taking over the result of run {note.run} was cut off in {here.folder}",
            hint=f"`outlast apply {note.run}` ends it; before that, there is nothing to foresee",
        )
    reason = "before a cut-off apply is taken back"
    return take_over.take_back(here, note, purpose("pre-restore", saves.owner(here.folder), reason))


# -- where the result is -----------------------------------------------------------------------------------------------


@contextmanager
def _opened(saves: Saves, run: Summary, here: Saver, *, dry_run: bool) -> Iterator[tuple[_Source, Room]]:
    """The result of a run, and a room that sees it together with the repository here."""
    saver = saves.saver_of(run)
    live = _is_its_own(saves, run, saver)
    held = None if live and dry_run else _save(saves, run, saver, live=live)
    there = saver.repo()
    if there.shadow or there.algo != here.repo().algo:
        raise WorkspaceRefused(
            f"run {run.run} of task {run.task} worked in {saver.folder}, which is not in a repository of this kind",
            hint=f"bring its files into a new folder: `outlast restore {run.run} --to DIR`",
        )
    with room(here.repo(), there.object_folders) as place:
        if held is not None:
            yield _of_save(run, saver, held, is_live=live), place
            return
        now = saver.peek()
        head = repo.head(there)
        base = place.tree_of(head.oid)
        diff.pack_preview(saver, base, now, place.git_dir / "objects/pack")
        files = _files(run, now.tree, head.oid, head.branch, now.left_out, saver)
        secrets = tuple(sorted(map(text, now.secrets)))
        yield _Source(saver, files, None, _without(now.left_out, secrets), secrets, live), place


def _is_its_own(saves: Saves, run: Summary, saver: Saver) -> bool:
    """Whether the folder still has the run's work alone: a worktree that was made for its task, and it is the last run there."""
    marker = marker_of(saver.folder)
    newest = next(runs_in(saves.store, saver.folder, open_only=False), None)
    is_there = marker is not None and marker.state == "made" and marker.task == run.task
    return is_there and newest is not None and newest.run == run.run


def _save(saves: Saves, run: Summary, saver: Saver, *, live: bool) -> workspace_saves.SaveContents:
    """The save that has the result: a new one of the run's own folder, else its newest."""
    if live:
        made = saver.capture(purpose("manual", run, "its result is taken over"))
        assert made is not None, "a save without if_dirty is always made"
        return workspace_saves.read(saver.reader(), made.commit, saver.repo().algo)
    return saves.newest(run).held


def _of_save(run: Summary, saver: Saver, held: workspace_saves.SaveContents, *, is_live: bool) -> _Source:
    meta = held.meta
    files = _files(run, held.tree, meta.head, meta.branch, meta.left_out, saver)
    secrets = tuple(secret.path for secret in meta.secrets)
    return _Source(saver, files, held.commit, _without(meta.left_out, secrets), secrets, is_live)


def _without(left: tuple[LeftOut, ...], secrets: tuple[str, ...]) -> tuple[LeftOut, ...]:
    return tuple(each for each in left if each.path not in secrets)


def _files(
    run: Summary, tree: str, head: str, branch: str, left: tuple[LeftOut, ...], saver: Saver
) -> RunFiles:
    message = f"What run {run.run} of task {run.task} had not committed\n\nOutlast-Run: {run.run}\n"
    closed = {raw(each.path) for each in left} | _skipped(saver)
    at = run.state.updated_at or datetime.fromtimestamp(0, UTC)  # so that the same result is the same commit
    return RunFiles(tree, head, at, message, branch.removeprefix("refs/heads/"), frozenset(closed))


def _skipped(saver: Saver) -> set[bytes]:
    """Files that a sparse checkout leaves out: that they are not there does not mean that the run deleted them."""
    if not saver.folder.is_dir() or saver.repo().shadow:
        return set()
    listed = command.names(command.run(["ls-files", "-t", "-z"], cwd=saver.folder))
    return {line[2:] for line in listed if line.startswith(b"S ")}


def _submodules_left(found: _Source, room: Room) -> tuple[str, ...]:
    """Submodules in which the run has changes that it did not commit here. Where its folder is not at hand: may have."""
    known = result_tree.submodules(room, found.files)
    if known and found.is_live:
        words = [
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--ignore-submodules=none",
            "--untracked-files=no",
        ]
        known &= {line[3:] for line in command.names(command.run(words, cwd=found.saver.folder))}
    return tuple(map(text, sorted(known)))


# -- merge, branch, patch ----------------------------------------------------------------------------------------------


def _merge(
    saves: Saves, here: Saver, place: Room, found: _Source, whole: str, done: Applied, turn_fd: int
) -> Applied:
    branch = found.files.branch
    message = f"Merge {f'branch {branch!r}' if branch else 'the result'} of task {done.task}\n\nOutlast-Run: {done.run}\n"
    plan = merge.planned(place, found.files, whole, message)
    done = msgspec.structs.replace(
        done, how=plan.how, onto=plan.onto, commit=plan.commit, files=plan.changes, conflicts=plan.conflicts,
        in_the_way=plan.obstacles, here_already=plan.here_already, submodules=plan.submodules,
        branch=repo.head(here.repo()).branch.removeprefix("refs/heads/"),
    )  # fmt: skip
    if done.dry_run or done.is_refused or plan.how == "nothing":
        return done
    before = here.capture(purpose("pre-restore", saves.owner(here.folder), f"before applying run {done.run}"))
    assert before is not None, "a save without if_dirty is always made"
    faults.point("apply.saved")
    paths = tuple(each.path for each in plan.changes)
    note = ResultNote(run=done.run, before=before.commit, onto=plan.onto, commit=plan.commit, paths=paths)
    try:
        take_over.carry_out(here, place, plan, note, message, turn_fd)
    except SaveFailed as error:
        _give_up(saves, here, error)
    return msgspec.structs.replace(done, before=before.commit)


def _give_up(saves: Saves, here: Saver, error: SaveFailed) -> None:
    """git could not write all files: bring back what was there, then say so."""
    note = take_over.under_way(here)
    if note is not None:
        reason = "before a failed apply is taken back"
        take_over.take_back(here, note, purpose("pre-restore", saves.owner(here.folder), reason))
    raise WorkspaceRefused(
        f"git could not write the result into {here.folder}, and all is as it was: {error}",
        hint="put right what git says, then type this again",
    ) from error


def _branch(here: Saver, place: Room, wish: Wish, whole: str, done: Applied) -> Applied:
    words = ("check-ref-format", "--branch", wish.branch)  # of `@{-1}` it says the branch that is meant
    if wish.branch.startswith("-") or place.git(*words, ok=(0, 1, 128)).rstrip(b"\n") != os.fsencode(
        wish.branch
    ):
        raise UsageError(f"{wish.branch!r:.80} is not a name for a branch", hint="like --branch fix-1411")
    done = msgspec.structs.replace(done, how="branch", commit=whole, branch=wish.branch)
    if done.dry_run:
        take_over.refuse_other(here.repo(), wish.branch, whole)
        return done
    made = take_over.put_branch(place, here.repo(), wish.branch, whole)
    return done if made else msgspec.structs.replace(done, how="nothing")


def _patch(
    saves: Saves, run: Summary, place: Room, found: _Source, wish: Wish, whole: str, done: Applied
) -> tuple[Applied, bytes]:
    base = _base(saves, place, run, found.files.head)
    to = None if done.dry_run else wish.to
    if wish.to is not None:
        take_over.refuse_full(wish.to)
    patch = take_over.put_patch(place, base or place.tree_of(""), whole, to)
    changed = result_tree.changed_paths(place, place.tree_of(base), place.tree_of(whole))
    files = tuple(ResultFile(text(path), merge.change_word(*both)) for path, both in sorted(changed.items()))
    name = None if wish.to is None else text(os.fsencode(wish.to))
    return msgspec.structs.replace(done, how="patch", onto=base, commit=whole, files=files, patch=name), patch


def _base(saves: Saves, place: Room, run: Summary, head: str) -> str:
    """The commit that a run began at; where nothing says so, the last one that it shares with the branch here."""
    began = saves.began(run)
    first = began.held.meta.head if began is not None else ""
    if first and head and place.git("merge-base", "--all", first, head, ok=(0, 1)).decode().strip() == first:
        return first
    here = repo.head(place.place).oid
    return place.git("merge-base", here, head, ok=(0, 1)).decode().strip() if here and head else ""
