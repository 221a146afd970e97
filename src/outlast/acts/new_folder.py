"""A new folder for the files of a save: where it may be. How it is made and held is `workspace.new_folder`."""

import os
from pathlib import Path

from outlast.errors import UsageError
from outlast.workspace.restore.restore import refuse_full

_KERNELS = ("/proc", "/sys", "/dev")


def require(path: Path, *, store: Path, workspace: str, full: bool = False) -> None:
    """Refuse a folder, given by its real path, that files must not be written to. It may exist if it is empty, or `full`.

    That is one in a repository's own folder, in the store, in the workspace of the run, where its agent would find the
    files, or in a folder of the kernel's. Raises UsageError, WorkspaceRefused.
    """
    parent = path.parent
    if any(_is_git(each) for each in (path, *path.parents)) or path.name.lower() == ".git":
        raise UsageError(f"{path} is inside a repository's own folder", hint="give a folder outside of it")
    inside = ((str(store), "the store"), (workspace, "the run's own workspace"))
    for closed, what in (*inside, *((kernel, "the kernel's own folder") for kernel in _KERNELS)):
        if closed and path.is_relative_to(os.path.realpath(closed)):
            raise UsageError(f"{path} is inside {what}", hint=f"give a folder outside of {closed}")
    if parent.is_dir() and not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"nothing may be written in {parent}", hint="give another folder")
    if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to another user", hint="give a folder that does not exist yet")
    if not full:
        refuse_full(path)


def _is_git(folder: Path) -> bool:
    """Whether a folder is where git keeps a repository, also a bare one."""
    parts = ("HEAD", "objects", "refs")
    return folder.name.lower() == ".git" or all(os.path.lexists(folder / part) for part in parts)
