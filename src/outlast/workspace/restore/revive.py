"""Makes the repository of a workspace again, from the vault, when its git folder is gone; so with those of submodules.

HEAD comes last, and a mark of ours goes after it: killed anywhere, the next restore begins anew. No hook comes back."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import faults
from outlast.errors import WorkspaceRefused
from outlast.store.durable import read_plain
from outlast.workspace import repo, saves
from outlast.workspace.capture.special import modules, nested_repos
from outlast.workspace.git import objects, refs, trees
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.restore import recreate
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.types import raw
from outlast.workspace.vault import identity, record
from outlast.workspace.vault.give_back import give_anew, give_back

_MARK = "outlast-restoring"


class Revived(NamedTuple):
    """What came back, and the names of settings that did not, because they run programs or lead elsewhere."""

    refs: int
    left: tuple[str, ...]


class _Content(NamedTuple):
    """What a git folder is made of: what was noted of it, HEAD, and the objects that it must have."""

    noted: dict[bytes, bytes]
    head: bytes
    tips: Sequence[str]
    refs: dict[str, str]
    settings: str = ""
    bare: bool = False
    shares_packs: bool = True  # the packs that the vault has of the user's are linked back


def is_needed(place: repo.Repo, held: saves.SaveContents) -> bool:
    """Whether a save is of a repository, and the folder has none any more."""
    return place.shadow and not held.meta.shadow and is_free(place.folder)


def is_free(folder: Path) -> bool:
    """Whether a folder has no `.git`, only one that a killed restore left unfinished, or a file that leads nowhere."""
    own = folder / ".git"
    if not os.path.lexists(own):
        return True
    if own.is_symlink():
        return False
    return (own / _MARK).is_file() if own.is_dir() else own.is_file() and _leads_nowhere(folder)


def _leads_nowhere(folder: Path) -> bool:
    pointer = read_plain(folder / ".git")
    return pointer.startswith(b"gitdir: ") and not _is_there(nested_repos.pointed_git_dir(folder, pointer))


def _is_there(git_dir: Path) -> bool:
    return os.path.lexists(git_dir) and not (git_dir / _MARK).is_file()


def revive(place: repo.Repo, held: saves.SaveContents, reader: ObjectReader, folder: Path) -> Revived:
    """Make the git folder of a workspace where it was: objects, the refs that were noted and are whole, settings.

    A worktree is tied to its repository again; if that is gone too, it comes back in its own place. Durable when it returns.
    """
    saves.check_names(held)
    if not is_free(folder):
        raise WorkspaceRefused(f"{folder}/.git is in the way", hint="move it away, and restore again")
    own, noted = folder / ".git", noted_in(held.entries.get(record.ENTRY), reader, place.algo)
    home = _home(place.vault, folder)
    if home == own:
        return _make(place, own, _of_save(held, noted))
    done = Revived(0, ())
    if not _is_there(home):
        if not home.parent.is_dir():
            raise WorkspaceRefused(
                f"the repository of {folder} was in {home}, and {home.parent} is gone",
                hint="put that back; or restore with --to DIR",
            )
        content = _of_save(held, noted)
        if held.meta.linked:
            content = content._replace(
                head=_head_of_main(noted, content.refs), bare=home.name != ".git", noted=_of_main(noted)
            )
        else:
            content = content._replace(settings=_at(folder, home))
        done = _make(place, home, content)
    git_dir = _tied(place, held, noted, home) if held.meta.linked else home
    if own.is_dir():
        shutil.rmtree(own)
    write_over(os.fsencode(own), b"gitdir: " + os.fsencode(git_dir) + b"\n")
    return done


def revive_beside(place: repo.Repo, held: saves.SaveContents, reader: ObjectReader, folder: Path) -> Revived:
    """Make a repository of its own in a new folder, with HEAD detached: that of the save is gone. Durable when it returns."""
    noted = noted_in(held.entries.get(record.ENTRY), reader, place.algo)
    content = _of_save(held, noted)._replace(head=f"{held.meta.head}\n".encode())
    return _make(place, folder / ".git", content)


def _home(vault: Path, folder: Path) -> Path:
    """Where the git folder was that has the objects: as the vault knows it, never as a save says."""
    common = os.fsdecode(raw(identity.note_of(vault).common_dir))
    return Path(common) if common else folder / ".git"


def _of_save(held: saves.SaveContents, noted: dict[bytes, bytes]) -> _Content:
    branch = os.fsdecode(raw(held.meta.branch))
    wanted = record.refs_in(noted.get(b"refs", b""))
    if branch and held.meta.head:
        wanted[branch] = held.meta.head
    head = os.fsencode(f"ref: {branch}\n" if branch else f"{held.meta.head}\n")
    return _Content(noted, head, [held.meta.head], wanted)


def _at(folder: Path, git_dir: Path) -> str:
    return f"[core]\n\tworktree = {record.quoted(os.path.relpath(folder, git_dir))}\n"


# -- a worktree ------------------------------------------------------------------------------------------------------


def _of_main(noted: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What was noted of the repository itself, not of one of its worktrees."""
    return {name: data for name, data in noted.items() if name != record.WORKTREE_CONFIG}


def _head_of_main(noted: dict[bytes, bytes], named: dict[str, str]) -> bytes:
    """HEAD of the repository that a worktree belongs to; a branch without commits where its commit is unknown."""
    recorded = os.fsdecode(noted.get(record.MAIN_HEAD, b"")).strip()
    branch = recorded.removeprefix("ref: ")
    if branch != recorded and refs.is_head("", branch):
        return os.fsencode(f"ref: {branch}\n")
    return os.fsencode(f"{recorded}\n") if recorded in named.values() else b"ref: refs/heads/main\n"


def _tied(place: repo.Repo, held: saves.SaveContents, noted: dict[bytes, bytes], common: Path) -> Path:
    """The git folder of a linked worktree; made again if it is gone."""
    give_back(msgspec.structs.replace(place, common_dir=common, shadow=False), [held.meta.head])
    found = recreate.linked_worktree(common, place.folder)
    if found is None:
        found = _free_name(common / "worktrees" / place.folder.name)
        found.mkdir(parents=True)
        (found / "commondir").write_bytes(b"../..\n")
        (found / "gitdir").write_bytes(os.fsencode(place.folder / ".git") + b"\n")
    if not (found / "HEAD").exists():
        if record.WORKTREE_CONFIG in noted:
            settings, _ = record.harmless_config(noted[record.WORKTREE_CONFIG], found, place.vault)
            (found / "config.worktree").write_bytes(settings)
        branch = os.fsdecode(raw(held.meta.branch))
        content = f"{held.meta.head}\n" if held.meta.head else f"ref: {branch}\n"
        write_over(os.fsencode(found / "HEAD"), os.fsencode(content))
    refs.syncfs(common)
    return found


def _free_name(place: Path) -> Path:
    names = (place.with_name(f"{place.name}{number or ''}") for number in range(1_000))
    return next(each for each in names if not os.path.lexists(each))


# -- submodules ------------------------------------------------------------------------------------------------------


def revive_modules(place: repo.Repo, held: saves.SaveContents, reader: ObjectReader, folder: Path) -> None:
    """Make the git folders of submodules that are gone from the repository's own; a restore then fills in their state."""
    entry = held.entries.get(b"inside")
    if entry is None:
        return
    tree = trees.TreeEditor(entry.oid, lambda oid: reader.read(oid)[1], place.algo)
    found = modules.in_save(folder, held.meta.inside, tree, lambda oid: reader.read(oid)[1])
    for module in sorted(
        found, key=lambda each: len(each.git_dir.parts)
    ):  # those of submodules in submodules last
        if modules.is_in(place.common_dir, module.git_dir) and not _is_there(module.git_dir):
            top = nested_repos.place_in_tree(module.path)
            noted = _files(tree, top + modules.RECORD, reader)
            head = _files(tree, top + b"/files", reader).get(b"HEAD", b"")
            branch = os.fsdecode(head.strip()).removeprefix("ref: ")
            if not refs.is_head(
                "" if head.startswith(b"ref: ") else branch, branch if head.startswith(b"ref: ") else ""
            ):
                continue
            inner = folder / os.fsdecode(raw(module.path))
            wanted = record.refs_in(noted.get(b"refs", b""))
            content = _Content(
                noted, head, list(module.needs), wanted, _at(inner, module.git_dir), shares_packs=False
            )
            _make(place, module.git_dir, content)


# -- a git folder ----------------------------------------------------------------------------------------------------


def _make(place: repo.Repo, own: Path, content: _Content) -> Revived:
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    (own / _MARK).write_bytes(b"outlast restores\n")
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/tags", "info"):
        (own / name).mkdir(parents=True)
    noted = content.noted
    settings, left = record.harmless_config(noted.get(b"config", b""), own, place.vault)
    if record.WORKTREE_CONFIG in noted:
        settings += b"[extensions]\n\tworktreeConfig = true\n"
        config, more = record.harmless_config(noted[record.WORKTREE_CONFIG], own, place.vault)
        (own / "config.worktree").write_bytes(config)
        left += more
    begin = _format(place.algo, bare=content.bare) + os.fsencode(content.settings)
    (own / "config").write_bytes(begin + settings)
    for part in (b"exclude", b"sparse-checkout"):
        if part in noted:
            (own / "info" / os.fsdecode(part)).write_bytes(noted[part])
    brought = give_anew(place, own, content.tips, content.refs, shares_packs=content.shares_packs)
    faults.point("restore.revived")
    (own / "HEAD").write_bytes(content.head)
    for name, oid in brought.items():
        refs.write_ref(own, name, oid, old=None)
    refs.syncfs(own)
    (own / _MARK).unlink()
    return Revived(len(brought), tuple(left))


def settings_of(
    noted: dict[bytes, bytes], folder: Path, common: Path, vault: Path, algo: objects.Algo, *, linked: bool
) -> bytes:
    """The settings of the repository of a folder, as they were noted; without those that run something."""
    begin = _format(algo, bare=linked and common.name != ".git")
    if not linked and common != folder / ".git":
        begin += os.fsencode(_at(folder, common))
    if record.WORKTREE_CONFIG in noted:
        begin += b"[extensions]\n\tworktreeConfig = true\n"
    return begin + record.harmless_config(noted.get(b"config", b""), common, vault)[0]


def noted_in(entry: objects.Entry | None, reader: ObjectReader, algo: objects.Algo) -> dict[bytes, bytes]:
    if entry is None:
        return {}
    tree = trees.TreeEditor(entry.oid, lambda oid: reader.read(oid)[1], algo)
    return _files(tree, b"", reader)


def _files(tree: trees.TreeEditor, top: bytes, reader: ObjectReader) -> dict[bytes, bytes]:
    start = len(top) + 1 if top else 0
    return {path[start:]: reader.read(found.oid)[1] for path, found in tree.walk(top)}


def _format(algo: objects.Algo, *, bare: bool) -> bytes:
    is_bare = f"\tbare = {'true' if bare else 'false'}\n".encode()
    if algo.name == "sha1":
        return b"[core]\n\trepositoryformatversion = 0\n" + is_bare
    return b"[core]\n\trepositoryformatversion = 1\n" + is_bare + b"[extensions]\n\tobjectformat = sha256\n"
