"""Making a worktree for a task, beside the repository and on a branch of its own. Nothing is ever reset or deleted."""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from outlast.errors import SaveFailed, UsageError, WorkspaceRefused
from outlast.store import durable
from outlast.workspace import repo
from outlast.workspace.git import command, refs
from outlast.workspace.worktree_marker import MARKER, Marker as Marker, read_marker as read_marker

_ELSEWHERE = "take another folder: --worktree=DIR"


class Made(msgspec.Struct, frozen=True):
    """A worktree that is there: its folder, its branch, the repository it belongs to, and whether this call made it."""

    folder: Path
    branch: str
    repository: Path
    new: bool


class Entry(msgspec.Struct, frozen=True):
    """A worktree that the repository knows: its own git folder, where its files are, and the ref that HEAD names."""

    git_dir: Path
    folder: Path
    head: str


def make(repository: Path, task: str, *, to: Path | None = None, base: str | None = None) -> Made:
    """Make the worktree of a task, or take the one that is there. After a kill at any instant, the same call makes it whole.

    Raises UsageError or WorkspaceRefused, nothing made, where it cannot be: an unknown base, a bare repository or one
    without a commit, a folder that is something else, a branch that is checked out elsewhere.
    """
    top, common = _repository(repository)
    taken = refs.list_refs(common, "refs/heads/")
    branch = refs.task_branch(task, {name.removeprefix("refs/heads/") for name in taken})
    folder = _folder(top, common, branch, to)
    with _lock(common):
        known = entries(common)
        mine = next((each for each in known if each.folder == folder), None)
        if os.path.lexists(folder) and not _is_empty(folder):
            if mine is None or not _leads_to(folder, mine.git_dir):
                raise WorkspaceRefused(f"{folder} exists and is not a worktree of {top}", hint=_ELSEWHERE)
            return _found(top, task, mine, branch)
        start = _start(top, common, branch, base)
        _refuse_elsewhere([*known, *_main(top, common)], branch, folder)
        if mine is not None and mine.head:
            _link(mine)  # it was there, and its folder is gone
        else:
            _add(top, common, folder, branch, start)
            mine = next(each for each in entries(common) if each.folder == folder)
        return _fill(top, task, mine, branch)


def entries(common: Path) -> list[Entry]:
    """The linked worktrees of a repository, also those whose folder is gone."""
    found = []
    for git_dir in sorted(common.glob("worktrees/*")):
        with contextlib.suppress(OSError):
            link = os.fsdecode((git_dir / "gitdir").read_bytes()).removesuffix("\n")
            head = ""
            with contextlib.suppress(OSError):
                head = os.fsdecode((git_dir / "HEAD").read_bytes()).removesuffix("\n")
            folder = Path(os.path.realpath(os.path.join(git_dir, os.path.dirname(link))))
            found.append(Entry(git_dir, folder, head.removeprefix("ref: ")))
    return found


def mark(git_dir: Path, state: Marker) -> None:
    """Set the marker, durable and whole."""
    new = git_dir / f"{MARKER}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, msgspec.json.encode(state) + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    new.replace(git_dir / MARKER)
    durable.sync_folder(git_dir)


# -- before anything is made -------------------------------------------------------------------------------------------


def _repository(folder: Path) -> tuple[Path, Path]:
    """The top level of the worktree around a folder, and the git folder that all its worktrees share."""
    try:
        bare_and_inside = command.run(
            ["rev-parse", "--is-bare-repository", "--is-inside-work-tree"], cwd=folder
        )
        if bare_and_inside.split() != [b"false", b"true"]:
            raise WorkspaceRefused(
                f"{folder} is a repository without files",
                hint="name a clone that has files, with --project DIR",
            )
        top, common = (_rev_parse(folder, word) for word in ("--show-toplevel", "--git-common-dir"))
    except SaveFailed as error:
        raise WorkspaceRefused(
            f"{folder} is not in a repository, so it cannot have a worktree: {error}",
            hint="`git init` and a first commit make one; or leave --worktree out",
        ) from error
    real = Path(os.path.realpath(top))
    if why := repo.distrusted(real):
        raise WorkspaceRefused(why, hint="work in a repository of your own")
    return real, Path(os.path.realpath(os.path.join(folder, common)))


def _rev_parse(folder: Path, word: str) -> str:
    return os.fsdecode(command.run(["rev-parse", word], cwd=folder)).removesuffix("\n")


def _folder(top: Path, common: Path, branch: str, to: Path | None) -> Path:
    """The worktree's folder: as given, else beside the main worktree, and never inside a repository."""
    main = common.parent if common.name == ".git" else top
    # or "outlast-", and then the task's own name, which may begin with a sign
    name = branch[len("outlast/") :]
    beside = main.parent / f"{main.name}.outlast"
    folder = Path(os.path.realpath(to if to is not None else beside / name))
    for place in (beside, folder.parent, folder) if to is None else (folder,):
        _refuse_foreign(place, main)
    for inside in (top, main, common):
        if folder == inside or inside in folder.parents:
            raise WorkspaceRefused(f"{folder} is inside the repository {inside}", hint=_ELSEWHERE)
    return folder


def _refuse_foreign(place: Path, main: Path) -> None:
    """Raise WorkspaceRefused for a folder, or a link to one, that another user made or may write to.

    In a folder that users share, anybody can make the one beside the repository first, and change our files there.
    """
    try:
        status = os.lstat(place)
    except OSError:
        return  # it will be made
    mine = os.getuid()
    ours = {mine, 0} if mine else {0, os.stat(main).st_uid}  # root works in the repositories of others
    group = status.st_mode & stat.S_IWGRP and status.st_gid not in (os.getgid(), 0)
    open_to_others = not stat.S_ISLNK(status.st_mode) and (status.st_mode & stat.S_IWOTH or group)
    if status.st_uid not in ours or open_to_others:
        whose = (
            f"belongs to another user (uid {status.st_uid})"
            if status.st_uid not in ours
            else "can be written by others"
        )
        raise WorkspaceRefused(f"{place} {whose}, so a worktree in it is not safe", hint=_ELSEWHERE)


def _start(top: Path, common: Path, branch: str, base: str | None) -> str:
    """The commit that the branch begins at; empty if the branch exists and work goes on there."""
    if refs.read_ref(common, f"refs/heads/{branch}") is not None and base is None:
        return ""
    wanted = base or "HEAD"
    words = ["rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}"]
    commit = b"" if wanted.startswith("-") else command.run(words, cwd=top, ok=(0, 1, 128)).strip()
    if not commit and base is None:
        raise WorkspaceRefused(
            f"{top} has no commit yet to begin from", hint="commit something first, or name a --base"
        )
    if not commit:
        raise UsageError(
            f"--base {base!r:.80} is not a commit of {top}", hint="see `git branch --all`, `git tag`"
        )
    return commit.decode() if refs.read_ref(common, f"refs/heads/{branch}") is None else ""


def _refuse_elsewhere(known: Sequence[Entry], branch: str, folder: Path) -> None:
    for each in known:
        if each.head == f"refs/heads/{branch}" and each.folder != folder:
            raise WorkspaceRefused(
                f"branch {branch} is checked out in {each.folder}",
                hint=f"work there with --workspace DIR, or take it away with `git worktree remove {each.folder}`",
            )


def _main(top: Path, common: Path) -> Iterator[Entry]:
    """The worktree that the repository was made with."""
    head = os.fsdecode((common / "HEAD").read_bytes()).strip().removeprefix("ref: ")
    yield Entry(common, common.parent if common.name == ".git" else top, head)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _leads_to(folder: Path, git_dir: Path) -> bool:
    with contextlib.suppress(OSError):
        path = os.fsdecode((folder / ".git").read_bytes()).removeprefix("gitdir: ").removesuffix("\n")
        return os.path.realpath(folder / path) == str(git_dir)
    return False


@contextlib.contextmanager
def _lock(common: Path) -> Iterator[None]:
    """One process at a time makes worktrees of a repository, so an unfinished one has no live maker."""
    fd = os.open(common / "outlast-worktrees.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# -- making ------------------------------------------------------------------------------------------------------------


def _found(top: Path, task: str, mine: Entry, branch: str) -> Made:
    """Take an existing worktree that outlast made for this task, or that is on its branch. Fill it if it never was."""
    marker = read_marker(mine.git_dir)
    bare = [path.name for path in mine.folder.iterdir()] == [".git"] and not (mine.git_dir / "index").exists()
    ours = marker.task == task if marker is not None else mine.head == f"refs/heads/{branch}"
    if not ours:
        raise WorkspaceRefused(
            f"{mine.folder} is a worktree of something else, on {mine.head.removeprefix('refs/heads/')}",
            hint=_ELSEWHERE,
        )
    if (marker is not None and marker.state == "making") or (marker is None and bare):
        return _fill(top, task, mine, branch)
    return Made(mine.folder, mine.head.removeprefix("refs/heads/"), top, new=False)


def _add(top: Path, common: Path, folder: Path, branch: str, start: str) -> None:
    if start:
        command.run(["branch", "--no-track", branch, start], cwd=top)
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    words = ["worktree", "add", "--quiet", "--no-checkout", "--force", "--force", str(folder), branch]
    command.run(
        words, git_dir=common, cwd=top
    )  # forced past an entry without a HEAD only: the rest was looked at above


def _link(mine: Entry) -> None:
    """Give a worktree whose folder is gone a folder again; its index and HEAD are as they were."""
    mine.folder.mkdir(parents=True, exist_ok=True)
    marker = read_marker(mine.git_dir)
    mark(
        mine.git_dir,
        Marker(task=marker.task if marker else "", state="making", branch=marker.branch if marker else ""),
    )
    (mine.folder / ".git").write_bytes(b"gitdir: " + os.fsencode(mine.git_dir) + b"\n")


def _fill(top: Path, task: str, mine: Entry, branch: str) -> Made:
    """Check the files out. Nobody knows this folder yet, so everything in it was written by an earlier call of ours."""
    mark(mine.git_dir, Marker(task=task, state="making", branch=branch))
    index, own = mine.git_dir / "index", mine.git_dir / "index.outlast"
    for path in (own, mine.git_dir / "index.outlast.lock"):
        path.unlink(missing_ok=True)
    if index.exists():
        shutil.copyfile(index, own)
    variables = {"GIT_INDEX_FILE": str(own)}
    if not own.exists():
        command.run(["read-tree", "HEAD"], cwd=mine.folder, variables=variables)
    command.run(
        ["checkout-index", "--all", "--force", "--index", "--quiet"], cwd=mine.folder, variables=variables
    )
    own.replace(index)
    (mine.git_dir / "locked").unlink(missing_ok=True)
    mark(mine.git_dir, Marker(task=task, state="made", branch=branch))
    head = os.fsdecode((mine.git_dir / "HEAD").read_bytes()).strip()
    return Made(mine.folder, head.removeprefix("ref: ").removeprefix("refs/heads/"), top, new=True)
