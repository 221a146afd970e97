"""Copy untracked files, such as `.env`, from a repository into a worktree of it."""

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outlast.errors import UsageError
from outlast.supervisor.worktree.make import Made
from outlast.workspace.git import command

_TEMPORARY = ".outlast-copying"


class Copied(msgspec.Struct, frozen=True):
    """The files copied, and the files not copied, each with the reason."""

    files: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def check(patterns: Sequence[str]) -> None:
    """Refuse patterns that lead out of the repository. Raises UsageError."""
    for pattern in patterns:
        parts = pattern.split("/")
        if not pattern or pattern.startswith("/") or ".." in parts or "\0" in pattern:
            raise UsageError(
                f"worktree_copy: {pattern!r:.60} is not a path inside the repository",
                hint="like .env* or config/local.yml",
            )


def copy_into(made: Made, patterns: Sequence[str]) -> Copied:
    """Copy untracked files that the patterns name from the repository into its worktree. Existing files stay.

    Patterns are git's, from the top: `*` stops at a slash, `**` does not. Raises UsageError for one that leads out.
    """
    check(patterns)
    if not patterns:
        return Copied((), ())
    specs = [f":(top,glob){pattern}" for pattern in patterns]
    listed = command.names(command.run(["ls-files", "-z", "--others", "--", *specs], cwd=made.repository))
    copied: list[str] = []
    skipped: list[tuple[str, str]] = []
    for name in (os.fsdecode(path) for path in listed):
        why = _copy(made.repository / name, made.folder / name, made)
        if why is None:
            copied.append(name)
        elif why:
            skipped.append((name, why))
    return Copied(tuple(copied), tuple(skipped))


def _copy(source: Path, place: Path, made: Made) -> str | None:
    """Copy one file. Return the reason if it was not copied, "" if one exists, else None."""
    if os.path.lexists(place):
        return ""
    status = source.lstat()
    for here in place.parents:
        if here == made.folder:
            break
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            return "its folder is something else in the worktree"
    if stat.S_ISLNK(status.st_mode):
        aim = os.path.realpath(source)
        if os.path.isabs(os.readlink(source)) or made.repository not in Path(aim).parents:
            return "a link that leads out of the repository"
    elif not stat.S_ISREG(status.st_mode):
        return "no regular file"
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(_TEMPORARY)
    new.unlink(missing_ok=True)
    shutil.copy2(source, new, follow_symlinks=False)
    new.rename(place)
    return None
