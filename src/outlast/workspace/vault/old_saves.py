"""Saves of before there were vaults: under refs/outlast in the user's repository, or in a shadow beside the workspace."""

from collections.abc import Sequence
from pathlib import Path

from outlast.store.durable import sync_folder
from outlast.workspace.git import command, refs
from outlast.workspace.git.git_dir import git_dir_form
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.repo import Repo
from outlast.workspace.vault import identity
from outlast.workspace.vault.bring_in import BringIn, Tips

REFS = "refs/outlast/"


def places(place: Repo, private: Path) -> list[Path]:
    """The git folders that may have old saves of a workspace."""
    shadow = private / "shadow.git"
    found = [] if place.common_dir == place.vault else [place.common_dir]
    return [*found, *([shadow] if git_dir_form(shadow) == place.algo.name else [])]


def adopt(place: Repo, private: Path) -> int:
    """Bring them into the vault, once for each repository; how many refs. What is there stays as it is."""
    if identity.note_of(place.vault).adopted:
        return 0
    count = sum(bring(place, git_dir) for git_dir in places(place, private))
    identity.adopted(place.vault)
    return count


def bring(place: Repo, git_dir: Path) -> int:
    """Bring all saves of a git folder into the vault. Durable when it returns."""
    old = refs.list_refs(git_dir, REFS)
    new = {name: oid for name, oid in old.items() if refs.list_refs(place.vault, name).get(name) is None}
    if not new:
        return 0
    with (
        ObjectReader(place.vault, command.environment()) as reader,
        PackWriter(place.packs, place.algo, lazy=True) as pack,
    ):
        _take(place, git_dir, list(new.values()), reader, pack)
        pack.close()
        sync_folder(place.packs)  # for packs that were linked
    for name, oid in new.items():
        refs.write_ref(place.vault, name, oid, old=refs.ANY)
    return len(new)


def _take(place: Repo, git_dir: Path, commits: Sequence[str], reader: ObjectReader, pack: PackWriter) -> None:
    tips = Tips(git_dir, git_dir, list(dict.fromkeys(commits)))
    BringIn(place.vault, place.algo, reader, [tips]).take(pack)
