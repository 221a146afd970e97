"""Recreates a workspace folder that is gone, from a save, if its repository still exists.

The folder is made under another name and renamed at the end: killed at any point, calling it again completes it."""

import contextlib
import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from outlast import faults
from outlast.errors import SaveFailed, WorkspaceMoved, WorkspaceRefused
from outlast.store import durable
from outlast.store.local import place_of
from outlast.workspace import repo, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special import permissions
from outlast.workspace.git import command, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.types import raw
from outlast.workspace.vault import old_saves

_FROM_A_COPY = "put the folder back from a clone or a backup, then try again"


class LostFolder(NamedTuple):
    """A folder that is gone: the repository of its saves, and the git folder that still belongs to this folder."""

    place: repo.Repo
    git_dir: Path | None


def find_lost(folder: Path, private: Path, *, with_repository: bool = False) -> LostFolder:
    """What is left of a folder that is gone. Raises WorkspaceRefused if nothing is known of it.

    And if its repository is gone too, because it may just have moved, unless that is to come back `with_repository`.
    """
    if os.path.lexists(folder):
        raise WorkspaceRefused(f"not a folder: {folder}", hint="move it away, and do this again")
    noted = repo.noted_place(private)
    if noted is None:
        raise WorkspaceRefused(
            f"the workspace {folder} is gone, and its repository is unknown",
            hint=_FROM_A_COPY,
        )
    place = repo.of_lost(folder, private, noted)
    if place.shadow and not noted.shadow and not with_repository:
        raise WorkspaceRefused(
            f"the workspace {folder} is gone, and its repository {noted.common_dir} with it",
            hint="if it moved, put it back; `outlast restore RUN` brings both back from their saves",
        )
    old_saves.adopt(place, private)
    lies_apart = noted.git_dir == noted.common_dir  # the git folder is not in the folder that is gone
    return LostFolder(
        place,
        None
        if place.shadow
        else place.common_dir
        if lies_apart
        else linked_worktree(place.common_dir, place.folder),
    )


def contents_of(left: LostFolder, commit: str) -> saves.SaveContents:
    """A save of a workspace that is gone, read from its repository."""
    with ObjectReader(left.place.vault, command.environment(left.place.seeing())) as reader:
        return saves.read(reader, commit, left.place.algo)


def tip_of(left: LostFolder, held: saves.SaveContents) -> repo.Head:
    """Where the branch of a save is now; without a commit if the branch is gone too."""
    branch = os.fsdecode(raw(held.meta.branch))
    tip = refs.read_ref(left.place.common_dir, branch) if branch and not left.place.shadow else None
    return repo.Head(tip or "", held.meta.branch)


def check(
    saver: Saver,
    held: saves.SaveContents,
    *,
    force: bool,
    hint: str = "--force moves it back (its commits stay in the vault), --to DIR leaves it alone",
) -> None:
    """Raise if recreating would be refused; changes nothing. `force` allows moving a branch back."""
    left = find_lost(saver.folder, saver.private, with_repository=True)
    _check_can_be_made(left, held)
    branch = os.fsdecode(raw(held.meta.branch))
    if left.place.shadow or not branch:
        return
    tip, name = tip_of(left, held).oid, branch.removeprefix("refs/heads/")
    if tip != held.meta.head and not force:
        raise WorkspaceMoved(
            f"the workspace {saver.folder} is gone, and its branch {name} has moved on: it is"
            f" {tip[:12] or 'gone'}, at the save it was {held.meta.head[:12]}",
            hint=hint,
        )
    if branch in _branches_elsewhere(left):
        raise WorkspaceMoved(
            f"the workspace {saver.folder} is gone, and its branch {name} is checked out in another worktree",
            hint="restore with --to DIR instead",
        )


def make_folder(saver: Saver, commit: str) -> None:
    """Make the folder again, empty: the worktree that it was, or a plain folder. A restore fills it.

    Raises WorkspaceRefused, with nothing made, if that is not possible.
    """
    left = find_lost(saver.folder, saver.private, with_repository=True)
    held = contents_of(left, commit)
    _check_can_be_made(left, held)
    folder = saver.folder
    new = folder.with_name(f".outlast-{place_of(folder)}")
    try:
        _clear(left.place, new)
        git_dir = left.git_dir if left.git_dir or left.place.shadow else _added(left, held, new)
        new.mkdir(parents=True, exist_ok=True)
        with ObjectReader(left.place.vault, command.environment(left.place.seeing())) as reader:
            permissions.guard(new, reader, held, left.place.algo)
        if git_dir is not None:
            write_over(os.fsencode(new / ".git"), b"gitdir: " + os.fsencode(git_dir) + b"\n")
        faults.point("restore.before_folder")
        new.rename(folder)
        durable.sync_folder(folder.parent)
    except OSError as error:
        raise SaveFailed(f"cannot recreate the workspace {folder}: {error.strerror}") from error
    faults.point("restore.folder")


def _check_can_be_made(left: LostFolder, held: saves.SaveContents) -> None:
    """Refuse what can never be filled, and what may be on a disk that is not mounted."""
    saves.check_names(held)
    place = left.place
    elsewhere = f"`outlast restore {held.commit[:12]} --to DIR` brings the files back into a new folder"
    if held.meta.shadow and not place.shadow:
        raise WorkspaceRefused(
            f"{place.folder} and the save {held.commit[:12]} are not of the same repository", hint=elsewhere
        )
    if not place.shadow and not held.meta.head:
        raise WorkspaceRefused(
            f"the workspace {place.folder} is gone, and had no commit to start from", hint=elsewhere
        )
    if left.git_dir is not None and (left.git_dir / "locked").exists():
        unlock = (
            f"--git-dir={shlex.quote(str(place.common_dir))} worktree unlock {shlex.quote(str(place.folder))}"
        )
        raise WorkspaceRefused(
            f"the worktree {place.folder} is gone, but locked: it may be on a disk that is not mounted",
            hint=f"mount it; or, if it is lost, type `git {unlock}` and do this again",
        )


def _branches_elsewhere(left: LostFolder) -> set[str]:
    """Branches checked out in worktrees other than the one that is gone."""
    listing = command.run(["worktree", "list", "--porcelain"], git_dir=left.place.common_dir)
    own = [b"worktree " + os.fsencode(left.place.folder)]
    if left.git_dir == left.place.common_dir:  # it is listed first, under the name of its git folder
        own.append(listing.partition(b"\n")[0])
    return {
        os.fsdecode(line.removeprefix(b"branch "))
        for block in listing.split(b"\n\n")
        for line in block.splitlines()
        if line.startswith(b"branch ") and block.partition(b"\n")[0] not in own
    }


def linked_worktree(common_dir: Path, folder: Path) -> Path | None:
    """The git folder of the linked worktree that git has at exactly this folder."""
    own = os.fsencode(folder / ".git")
    for note in sorted((common_dir / "worktrees").glob("*/gitdir")):
        with contextlib.suppress(OSError):
            path = os.path.join(bytes(note.parent), note.read_bytes().removesuffix(b"\n"))
            if os.path.normpath(path) == own:
                return note.parent
    return None


def _added(left: LostFolder, held: saves.SaveContents, new: Path) -> Path:
    """A new worktree for a folder that git no longer knows; on its branch, if that is unchanged and free."""
    common = left.place.common_dir
    # Twice: a git that was killed may have left it locked.
    words = ["worktree", "add", "--quiet", "--force", "--force", "--no-checkout", "--detach", str(new)]
    command.run([*words, held.meta.head], git_dir=common)
    faults.point("restore.worktree")
    pointer = (new / ".git").read_bytes().removeprefix(b"gitdir: ").removesuffix(b"\n")
    git_dir = Path(os.path.normpath(new / os.fsdecode(pointer)))
    branch = os.fsdecode(raw(held.meta.branch))
    if branch and refs.read_ref(common, branch) == held.meta.head and branch not in _branches_elsewhere(left):
        write_over(os.fsencode(git_dir / "HEAD"), b"ref: " + os.fsencode(branch) + b"\n")
    write_over(os.fsencode(git_dir / "gitdir"), os.fsencode(left.place.folder / ".git") + b"\n")
    return git_dir


def _clear(place: repo.Repo, new: Path) -> None:
    """Remove what a killed call left: a folder of ours without files, and its entry in git's list."""
    if new.exists():
        with contextlib.suppress(SaveFailed):  # it was never added, or git has it under its final name by now
            command.run(["worktree", "remove", "--force", "--force", str(new)], git_dir=place.common_dir)
        shutil.rmtree(new, ignore_errors=True)
