"""Where the saves of a state folder are: the vaults of its workspaces, and the locks that keep others out."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlast.errors import SaveError, SaveFailed
from outlast.store.local import Local
from outlast.workspace import lock, repo
from outlast.workspace.capture.special import repo_id
from outlast.workspace.git.git_dir import git_dir_form
from outlast.workspace.types import raw, text
from outlast.workspace.vault import identity, old_saves


def folder_of(private: Path) -> Path:
    """The workspace that a private folder belongs to."""
    try:
        return Path(os.fsdecode((private / "folder").read_bytes().removesuffix(b"\n")))
    except OSError:
        return private


def repositories(local: Local) -> Iterator[tuple[repo.Repo, list[Path]]]:
    """The vault of every repository and folder that was saved here, with the private folders of its workspaces."""
    for private in local.privates():
        with contextlib.suppress(SaveError, OSError):
            _adopt(private)
    for vault, owner in identity.all_vaults(local.vaults):
        folders = [Path(os.fsdecode(raw(folder))) for folder in owner.folders]
        privates = [local.private_of(folder) for folder in folders]
        yield repo.of_vault(vault), [private for private in privates if private.is_dir()]


def _adopt(private: Path) -> None:
    """Bring in the saves of a workspace that no version with vaults has looked at yet."""
    noted = repo.noted_place(private)
    if noted is None or noted.vault:
        return
    if noted.shadow and not git_dir_form(private / "shadow.git"):
        return
    if noted.shadow or os.path.isdir(noted.common_dir):
        old_saves.adopt(repo.of_lost(folder_of(private), private, noted), private)


def every(private: Path) -> list[repo.Repo]:
    """The vaults that may hold a save of a workspace. Raises SaveError where one of them cannot be looked at."""
    vaults, shown = identity.vaults_of(private), text(folder_of(private))
    there = list(identity.all_vaults(vaults))
    found = [repo.of_vault(vault) for vault, owner in there if shown in owner.folders]
    if not found:
        raise SaveFailed(f"it is not known where the saves of {folder_of(private)} are")
    brought = [raw(owner.common_dir) for _, owner in there if owner.adopted and owner.common_dir]
    marks = {repo_id.mark(Path(os.fsdecode(common))) for common in brought}
    for mark, place in repo_id.noted_repositories(private).items():
        if mark not in marks and os.path.realpath(raw(place)) not in brought:
            raise SaveFailed(
                f"the repository that was at {place} is not there any more, and the saves in it may still be somewhere"
            )
    return found


@contextlib.contextmanager
def locked(private_folders: Sequence[Path]) -> Iterator[None]:
    """Nobody saves or restores in these workspaces meanwhile. Raises SaveFailed where one does not come to an end."""
    with contextlib.ExitStack() as stack:
        for private in private_folders:
            fd = os.open(private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            lock.take(fd, folder_of(private))
        yield
