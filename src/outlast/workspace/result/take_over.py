"""Carries out the merge of a result. A note says what is under way: after a kill the files from before come back first.

Order: save, objects, note, files, HEAD, index, note away. So at each instant there is either nothing, or the note."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast import decoders, faults
from outlast.errors import WorkspaceRefused
from outlast.store import durable
from outlast.workspace import lock, repo, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command, refs
from outlast.workspace.restore import restore
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.result import tree as result_tree
from outlast.workspace.result.merge import MergePlan, own_index
from outlast.workspace.result.room import Room
from outlast.workspace.types import Purpose, raw
from outlast.workspace.vault.give_back import give

_NOTE = "applying"
_LOCK = "applying.lock"


class ResultNote(msgspec.Struct, frozen=True, kw_only=True):
    """A take-over that is under way: of which run, the save from before, HEAD from and to, and the files that change."""

    run: str
    before: str
    onto: str
    commit: str
    paths: tuple[str, ...]


@contextlib.contextmanager
def turn(saver: Saver) -> Iterator[int]:
    """One take-over at a time in a folder. A git that a killed one left behind still holds the turn: it is waited for."""
    fd = os.open(saver.private / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock.take(fd, saver.folder)
        yield fd
    finally:
        os.close(fd)


def under_way(saver: Saver) -> ResultNote | None:
    """The take-over that was cut off in this folder; None if there is none, or somebody has gone on from there since."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        note = decoders.decode((saver.private / _NOTE).read_bytes(), ResultNote)
        if repo.head(saver.repo()).oid in (note.onto, note.commit):
            return note
    return None


def take_back(saver: Saver, note: ResultNote, purpose: Purpose) -> str:
    """Bring back the files, HEAD and index from before a take-over that was cut off. What is there is saved first: by that save.

    Files that it would not have changed stay as they are.
    """
    held = saves.read(saver.reader(), note.before, saver.repo().algo)
    ours = {raw(path) for path in note.paths}
    now = saver.peek()
    others = {path for path, _, _ in restore.changes_between(saver, now.tree, held.tree, now.trees)} - ours
    done = restore.restore(saver, held, purpose, restore.Options(force=True, spared=frozenset(others)))
    forget(saver)
    return done.before.commit if done.before is not None else ""


def forget(saver: Saver) -> None:
    """The take-over is over."""
    (saver.private / _NOTE).unlink(missing_ok=True)
    durable.sync_folder(saver.private)


def carry_out(
    saver: Saver, room: Room, plan: MergePlan, note: ResultNote, message: str, turn_fd: int
) -> None:
    """Make the worktree, HEAD and index what a plan says. `note.before` is the save of what is there.

    Raises SaveFailed where git cannot write the files; then `take_back` brings back what was there.
    """
    place = room.place
    give_objects(room, place, plan.commit if plan.how != "merge-ready" else plan.theirs, [plan.onto])
    if plan.how == "merge-ready":
        give_objects(room, place, plan.index_tree, [plan.onto, plan.theirs])
    faults.point("apply.objects")
    durable.write_durably(saver.private / _NOTE, msgspec.json.encode(note))
    faults.point("apply.noted")
    with saver.lock(), _index_lock(saver, place):
        index = own_index(room)
        _write_files(room, plan, index, turn_fd)
        faults.point("apply.files")
        if plan.commit != plan.onto:
            write_over(os.fsencode(place.git_dir / "ORIG_HEAD"), f"{plan.onto}\n".encode())
            words = [
                "update-ref",
                "-m",
                f"outlast apply: {message.splitlines()[0]}",
                "HEAD",
                plan.commit,
                plan.onto,
            ]
            command.run(words, git_dir=place.git_dir)
        faults.point("apply.head")
        write_over(os.fsencode(place.index), index.read_bytes())
        faults.point("apply.index")
        if plan.how == "merge-ready":
            _leave_ready(place, plan, message)
        refs.syncfs(place.git_dir)
    forget(saver)


def give_objects(room: Room, place: repo.Repo, tip: str, known: list[str]) -> None:
    """Put what a commit or tree reaches into the repository; durable when it returns."""
    give(room.git_dir, place.common_dir, [tip, *(f"^{each}" for each in known if each)])


@contextlib.contextmanager
def _index_lock(saver: Saver, place: repo.Repo) -> Iterator[None]:
    """Nobody stages anything meanwhile. If a git has the lock, nothing was begun."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(restore.index_lock(place.index))
        except WorkspaceRefused:
            forget(saver)
            raise
        yield


def _write_files(room: Room, plan: MergePlan, index: Path, turn_fd: int) -> None:
    """git writes the files, as it does in a merge: it converts them by the user's filters, and looks at all before it writes one."""
    place = room.place
    room.git("update-index", "-q", "--refresh", index=index, ok=(0, 1))
    room.running("read-tree", "-m", "-u", plan.onto, plan.files, index=index, pass_fds=(turn_fd,)).result()
    refs.syncfs(place.folder)
    beyond = result_tree.changed_paths(room, plan.index_tree, plan.files)
    result_tree.put_entries(room, {path: staged for path, (staged, _) in beyond.items()}, index)
    room.git("update-index", "-q", "--refresh", index=index, ok=(0, 1))


def _leave_ready(place: repo.Repo, plan: MergePlan, message: str) -> None:
    """Leave a merge that only has to be committed, as `git merge --no-commit` does."""
    for name, data in (("MERGE_MSG", message), ("MERGE_MODE", ""), ("MERGE_HEAD", f"{plan.theirs}\n")):
        write_over(os.fsencode(place.git_dir / name), data.encode())


def refuse_other(place: repo.Repo, name: str, commit: str) -> bool:
    """Whether a branch is there already with this commit. Raises WorkspaceRefused if it has something else."""
    now = refs.read_ref(place.common_dir, f"refs/heads/{name}")
    if now is not None and now != commit:
        raise WorkspaceRefused(
            f"branch {name} exists, and is at {now[:12]}", hint="give a name that no branch has"
        )
    others = refs.list_refs(place.common_dir, "refs/heads/")
    for other in (each.removeprefix("refs/heads/") for each in others):
        if name.startswith(f"{other}/") or other.startswith(f"{name}/"):
            raise WorkspaceRefused(
                f"branch {other} exists, so there can be no branch {name}",
                hint="give a name that no branch has",
            )
    return now is not None


def put_branch(room: Room, place: repo.Repo, name: str, commit: str) -> bool:
    """A new branch with the result; False if it is there already. Raises WorkspaceRefused if it has something else."""
    if refuse_other(place, name, commit):
        return False
    known = [
        head for head in refs.list_refs(place.common_dir, "refs/heads/").values() if room.reader().has(head)
    ]
    give_objects(room, place, commit, known)
    faults.point("apply.objects")
    refs.write_ref(place.common_dir, f"refs/heads/{name}", commit, old=None)
    return True


def put_patch(room: Room, base: str, whole: str, to: Path | None) -> bytes:
    """What the run changed, as a patch for `git apply`; into a new file, durably, if one is given."""
    words = (
        "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
        "--submodule=short", "--ignore-submodules=none", "-O/dev/null",
    )  # fmt: skip
    patch = room.git("diff", *words, "--src-prefix=a/", "--dst-prefix=b/", base, whole, "--")
    if to is not None:
        refuse_full(to)
        write_over(os.fsencode(to), patch)
    return patch


def refuse_full(to: Path) -> None:
    """Raise WorkspaceRefused for a file that exists."""
    if os.path.lexists(to):
        raise WorkspaceRefused(f"{to} exists", hint="give a file that does not exist yet")
    if not to.parent.is_dir():
        raise WorkspaceRefused(f"{to.parent} is not a folder", hint="give a file in a folder that exists")
