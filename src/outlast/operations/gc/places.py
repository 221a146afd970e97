"""Where the saves of a state folder are: the repositories of its workspaces, and the locks that keep others out."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store.local import Local
from outlast.workspace import lock, repo
from outlast.workspace.capture.special import repo_id
from outlast.workspace.git import command, objects


def folder_of(private: Path) -> Path:
    """The workspace that a private folder belongs to."""
    try:
        return Path(os.fsdecode((private / "folder").read_bytes().removesuffix(b"\n")))
    except OSError:
        return private


def repositories(local: Local) -> Iterator[tuple[repo.Repo, list[Path]]]:
    """Every repository that a workspace of this host's folder saved to, with the private folders of those."""
    found: dict[Path, tuple[repo.Repo, list[Path]]] = {}
    for private in local.privates():
        for place in _noted(private):
            found.setdefault(place.common_dir, (place, []))[1].append(private)
    yield from found.values()


def _noted(private: Path) -> Iterator[repo.Repo]:
    noted = repo.noted_place(private)
    shadow = private / "shadow.git"
    if (shadow / "HEAD").exists():
        folder = Path(noted.folder) if noted else private
        yield repo.Repo(folder, shadow, shadow, objects.SHA1, shadow=True)
    if noted is None or noted.shadow or not os.path.isdir(noted.common_dir):
        return
    with contextlib.suppress(SaveFailed):  # no repository any more: nothing of ours is there
        yield _at(Path(noted.folder), Path(noted.common_dir))


def _at(folder: Path, common: Path) -> repo.Repo:
    form = command.run(["rev-parse", "--show-object-format"], git_dir=common).decode().strip()
    return repo.Repo(folder, common, common, objects.algo_named(form))


def every(private: Path) -> list[repo.Repo]:
    """All repositories that may hold a save of a workspace. Raises SaveError where one of them cannot be looked at."""
    found = {place.common_dir: place for place in _noted(private)}
    noted = repo.noted_place(private)
    if noted is None:
        raise SaveFailed(f"it is not known which repository {folder_of(private)} saved to")
    if not noted.shadow and Path(noted.common_dir) not in found:
        raise SaveFailed(f"{noted.common_dir} is gone, and the saves that were in it may still be somewhere")
    folder = folder_of(private)
    if noted.shadow and not folder.is_dir():
        raise SaveFailed(f"{folder} is gone, and it may have been a repository with saves")
    if os.path.lexists(folder / ".git"):
        said = command.run(["rev-parse", "--git-common-dir"], git_dir=folder / ".git", cwd=folder)
        common = Path(os.path.normpath(folder / os.fsdecode(said.removesuffix(b"\n"))))
        if common not in found:
            found[common] = _at(folder, common)
    return [*found.values(), *_elsewhere(private, list(found))]


def _elsewhere(private: Path, found: Sequence[Path]) -> list[repo.Repo]:
    """Repositories with saves of a workspace that are not where they were. Raises SaveFailed where one cannot be found."""
    missing = repo_id.noted_repositories(private)
    for common in found:
        missing.pop(repo_id.mark(common), None)
    moved: list[repo.Repo] = []
    for place, _ in repositories(Local(private.parent.parent)) if missing else ():
        if missing.pop(repo_id.mark(place.common_dir), None) is not None:
            moved.append(place)
    if missing:
        raise SaveFailed(
            f"the repository that was at {' and at '.join(sorted(set(missing.values())))} is not there any more,"
            " and the saves in it may still be somewhere"
        )
    return moved


@contextlib.contextmanager
def locked(private_folders: Sequence[Path]) -> Iterator[None]:
    """Nobody saves or restores in these workspaces meanwhile. Raises SaveFailed where one does not come to an end."""
    with contextlib.ExitStack() as stack:
        for private in private_folders:
            fd = os.open(private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            lock.take(fd, folder_of(private))
        yield
