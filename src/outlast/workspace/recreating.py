"""A workspace that is gone comes back from its last save, where the repository did not vanish with it."""

import os
from pathlib import Path

from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.workspace import git, objects, refs, repo, saves
from outlast.workspace.capture import Saver
from outlast.workspace.reader import ObjectReader
from outlast.workspace.seam import raw


def make_folder(saver: Saver, commit: str) -> None:
    """Make the folder again, empty: a worktree with its branch, or a plain folder. A restore fills it."""
    place = repo.noted(saver.private)
    if place is None or (not place.shadow and not Path(place.common_dir).is_dir()):
        raise WorkspaceRefused(
            f"the workspace {saver.folder} is gone, and its repository with it",
            hint="put the folder back from a clone or a backup, then start again",
        )
    common = Path(place.common_dir)
    if place.shadow:
        saver.folder.mkdir(parents=True)
    else:
        _add_worktree(saver.folder, common, commit)


def _add_worktree(folder: Path, common: Path, commit: str) -> None:
    with ObjectReader(common, git.environment()) as reader:
        form = git.run(["rev-parse", "--show-object-format"], git_dir=common).decode().strip()
        held = saves.read(reader, commit, objects.algo_named(form))
    if not held.meta.head:
        raise SaveFailed(f"the workspace {folder} is gone, and had no commit to begin from")
    git.run(
        ["worktree", "add", "--quiet", "--force", "--no-checkout", "--detach", str(folder), held.meta.head],
        git_dir=common,
    )
    branch = os.fsdecode(raw(held.meta.branch))
    if branch and refs.read_ref(common, branch) == held.meta.head:
        there = repo.find(folder, folder)
        told = git.run(["worktree", "list", "--porcelain"], git_dir=common)
        if os.fsencode(f"branch {branch}") not in told.splitlines():
            (there.git_dir / "HEAD").write_bytes(b"ref: " + os.fsencode(branch) + b"\n")
