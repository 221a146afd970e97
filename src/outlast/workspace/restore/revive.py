"""Makes the repository of a workspace again, from the vault, when its `.git` is gone.

HEAD comes last, and a mark of ours goes after it: killed anywhere, the next restore begins anew. No hook comes back."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from outlast import faults
from outlast.errors import WorkspaceRefused
from outlast.workspace import repo, saves
from outlast.workspace.git import objects, refs, trees
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.types import raw
from outlast.workspace.vault import record
from outlast.workspace.vault.give_back import give_anew

_MARK = "outlast-restoring"


class Revived(NamedTuple):
    """What came back, and the names of settings that did not, because they run programs or lead elsewhere."""

    refs: int
    left: tuple[str, ...]


def is_needed(place: repo.Repo, held: saves.SaveContents) -> bool:
    """Whether a save is of a repository, and the folder has none any more."""
    return place.shadow and not held.meta.shadow and is_free(place.folder)


def is_free(folder: Path) -> bool:
    """Whether a folder has no `.git`, or only one that a killed restore left unfinished."""
    own = folder / ".git"
    return not os.path.lexists(own) or (not own.is_symlink() and (own / _MARK).is_file())


def revive(place: repo.Repo, held: saves.SaveContents, reader: ObjectReader, folder: Path) -> Revived:
    """Make `.git` in a folder: objects, the refs that were noted and are whole, settings. Durable when it returns."""
    saves.check_names(held)
    if not is_free(folder):
        raise WorkspaceRefused(f"{folder}/.git is in the way", hint="move it away, and restore again")
    own = folder / ".git"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    (own / _MARK).write_bytes(b"outlast restores\n")
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/tags", "info"):
        (own / name).mkdir(parents=True)
    noted = _noted(held, reader, place.algo)
    settings, left = record.harmless_config(noted.get(b"config", b""), own)
    if record.WORKTREE_CONFIG in noted:
        settings += b"[extensions]\n\tworktreeConfig = true\n"
        kept, more = record.harmless_config(noted[record.WORKTREE_CONFIG], own)
        (own / "config.worktree").write_bytes(kept)
        left += more
    (own / "config").write_bytes(_format(place.algo) + settings)
    for part in (b"exclude", b"sparse-checkout"):
        if part in noted:
            (own / "info" / os.fsdecode(part)).write_bytes(noted[part])
    branch = os.fsdecode(raw(held.meta.branch))
    wanted = record.refs_in(noted.get(b"refs", b""))
    if branch and held.meta.head:
        wanted[branch] = held.meta.head
    brought = give_anew(place, own, [held.meta.head], wanted)
    faults.point("restore.revived")
    (own / "HEAD").write_bytes(os.fsencode(f"ref: {branch}\n" if branch else f"{held.meta.head}\n"))
    for name, oid in brought.items():
        refs.write_ref(own, name, oid, old=None)
    refs.syncfs(own)
    (own / _MARK).unlink()
    return Revived(len(brought), tuple(left))


def _noted(held: saves.SaveContents, reader: ObjectReader, algo: objects.Algo) -> dict[bytes, bytes]:
    entry = held.entries.get(record.ENTRY)
    if entry is None:
        return {}
    walk = trees.TreeEditor(entry.oid, lambda oid: reader.read(oid)[1], algo).walk()
    return {path: reader.read(found.oid)[1] for path, found in walk}


def _format(algo: objects.Algo) -> bytes:
    if algo.name == "sha1":
        return b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    return b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
