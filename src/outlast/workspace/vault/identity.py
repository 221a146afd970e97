"""Which vault belongs to a repository, or to a folder without one; a note in each vault says whose it is.

A repository keeps its vault when it moves, and when it is made anew in the same place. A copy of it gets its own."""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.errors import SaveFailed
from outlast.store import durable
from outlast.workspace import nowhere
from outlast.workspace.git import command
from outlast.workspace.git.git_dir import git_dir_form, make_git_dir
from outlast.workspace.timing import Timing
from outlast.workspace.types import raw, text

NOTE = "owner.json"
FOLDERS_MAX = 1_000
ROOTS_MAX = 16
_FATAL = 128


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose vault it is. `common_dir` is empty while its folder has no repository; `folders` were saved in it."""

    common_dir: str = ""
    device: int = 0
    inode: int = 0
    before: tuple[tuple[int, int], ...] = ()  # devices and inodes of repositories that another one replaced
    roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    adopted: bool = False  # the saves of before, in the repository itself, were brought in

    def is_at(self, place: os.stat_result) -> bool:
        """Whether the repository was last seen with this device and inode."""
        return bool(self.common_dir) and (self.device, self.inode) == (place.st_dev, place.st_ino)


def vaults_of(private: Path) -> Path:
    """The folder of all vaults, from a workspace's private folder."""
    return private.parent.parent / "vaults"


def note_of(vault: Path) -> Owner:
    """Whose vault it is; of a note that cannot be read, nobody's."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.decode((vault / NOTE).read_bytes(), Owner)
    return Owner()


def all_vaults(vaults: Path) -> Iterator[tuple[Path, Owner]]:
    """Every vault of a state folder."""
    for vault in sorted(vaults.glob("*.git")):
        if (vault / "HEAD").exists():
            yield vault, note_of(vault)


def is_gone(owner: Owner) -> bool:
    """Whether neither the repository of a vault nor any of its folders is there."""
    places = [owner.common_dir, *owner.folders] if owner.common_dir else list(owner.folders)
    return not any(os.path.lexists(raw(place)) for place in places)


# -- finding -------------------------------------------------------------------------------------------------------


def of_repository(vaults: Path, common_dir: Path, form: str, folder: Path, known: Path | None = None) -> Path:
    """The vault of a repository, made if it has none. `known` is where the folder's saves went last."""
    place = common_dir.stat()
    name = text(common_dir)
    if known is not None and git_dir_form(known) == form:
        owner = note_of(known)
        if owner.common_dir == name and owner.is_at(place):
            _note_folder(known, owner, folder)
            return known
    with _locked(vaults):
        found = _found(vaults, common_dir, form, folder, place)
        vault, owner = found if found is not None else (_made(vaults, form), Owner())
        roots, before = owner.roots, owner.before
        if found is None or not owner.is_at(place):
            roots = tuple(dict.fromkeys([*roots_of(common_dir), *roots]))[:ROOTS_MAX]
            was = [(owner.device, owner.inode)] if owner.common_dir else []
            before = tuple(dict.fromkeys([*before, *was]))[-ROOTS_MAX:]
        _write(
            vault,
            msgspec.structs.replace(
                owner, common_dir=name, device=place.st_dev, inode=place.st_ino, roots=roots, before=before,
                folders=_with(owner.folders, folder), adopted=owner.adopted and owner.is_at(place),
            ),
        )  # fmt: skip
        return vault


def _found(
    vaults: Path, common_dir: Path, form: str, folder: Path, place: os.stat_result
) -> tuple[Path, Owner] | None:
    """By its path; else, because it moved, by inode and root commits, or, as its inode is another on another file system,
    by root commits alone; else the folder's, whose repository is gone.
    """
    there = [(vault, owner) for vault, owner in all_vaults(vaults) if git_dir_form(vault) == form]
    name = text(common_dir)
    at_path = [each for each in there if each[1].common_dir == name]
    if at_path:
        return next((each for each in at_path if each[1].is_at(place)), at_path[0])
    was = (place.st_dev, place.st_ino)
    moved = [
        each for each in there if was in each[1].before or (each[1].is_at(place) and not _is_there(each[1]))
    ]
    free = [each for each in there if _is_unclaimed(each[1])]
    roots = set(roots_of(common_dir)) if moved or free else set()
    for each in moved:
        if roots.intersection(each[1].roots):
            return each
    elsewhere = [each for each in free if roots.intersection(each[1].roots)]
    if len(elsewhere) == 1:  # of two clones of one repository, nobody could say which it was
        return elsewhere[0]
    shown = text(folder)
    before = [each for each in there if shown in each[1].folders]
    return next(
        (each for each in before if not each[1].common_dir or not os.path.lexists(raw(each[1].common_dir))),
        None,
    )


def _is_there(owner: Owner) -> bool:
    """Whether the repository is still where it was last seen."""
    with contextlib.suppress(OSError):
        return owner.is_at(os.stat(raw(owner.common_dir)))
    return False


def _is_unclaimed(owner: Owner) -> bool:
    """Whether the repository of a vault is gone, and so are its folders: one without `.git` may get it back.

    A linked worktree stays where it was when its repository moves.
    """
    if not owner.common_dir or not _is_absent(raw(owner.common_dir)):
        return False
    return all(
        _is_absent(raw(folder)) or os.path.isfile(os.path.join(raw(folder), b".git"))
        for folder in owner.folders
    )


def _is_absent(path: bytes) -> bool:
    """Whether there is certainly nothing. What we may not look at could be there."""
    try:
        return nowhere.lstat(path) is None
    except OSError:
        return False


def of_folder(vaults: Path, folder: Path, known: Path | None = None) -> Path:
    """The vault of a folder whose repository git does not know now: that of before, else one of the folder's own."""
    if known is not None and git_dir_form(known):
        _note_folder(known, note_of(known), folder)
        return known
    shown = text(folder)
    with _locked(vaults):
        for vault, owner in all_vaults(vaults):
            if shown in owner.folders:
                return vault
        vault = _made(vaults, "sha1")
        _write(vault, Owner(folders=(shown,)))
        return vault


def roots_of(common_dir: Path) -> tuple[str, ...]:
    """The commits that the history of HEAD begins with, as far as git tells them soon."""
    words = ["rev-list", "--max-parents=0", f"--max-count={ROOTS_MAX}", "HEAD", "--"]
    with contextlib.suppress(SaveFailed):
        output = command.run(words, git_dir=common_dir, ok=(0, _FATAL), timeout_s=Timing.current().roots_s)
        return tuple(output.decode().split())
    return ()


def adopted(vault: Path) -> None:
    """Note that the saves made before there were vaults have been moved in."""
    _write(vault, msgspec.structs.replace(note_of(vault), adopted=True))


# -- making --------------------------------------------------------------------------------------------------------


def _made(vaults: Path, form: str) -> Path:
    vault = vaults / f"{secrets.token_hex(8)}.git"
    make_git_dir(vault, form)
    (vault / "info" / "attributes").unlink()  # it has no worktree, and people compare files in it
    return vault


def _with(folders: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The newest last."""
    shown = text(folder)
    return folders if shown in folders else (*folders, shown)[-FOLDERS_MAX:]


def _note_folder(vault: Path, owner: Owner, folder: Path) -> None:
    if text(folder) not in owner.folders:
        _write(vault, msgspec.structs.replace(owner, folders=_with(owner.folders, folder)))


def _write(vault: Path, owner: Owner) -> None:
    if note_of(vault) != owner:  # a reader writes nothing, and so works on a full disk
        durable.write_durably(vault / NOTE, msgspec.json.encode(owner))


@contextlib.contextmanager
def _locked(vaults: Path) -> Iterator[None]:
    """One process at a time finds or makes a vault, so that a repository never gets two."""
    durable.make_folder(vaults)
    folder_stat = vaults.stat()
    if stat.S_IMODE(folder_stat.st_mode) & 0o077 and folder_stat.st_uid == os.geteuid():
        vaults.chmod(0o700)
    fd = os.open(vaults, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
