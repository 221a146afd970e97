"""The vaults of a state folder: a list of them, old saves moved into them, and removing those whose repository is gone."""

import contextlib
import os
import shutil
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from outlast.errors import SaveDamaged, SaveError, UsageError
from outlast.inspect import find
from outlast.operations.gc import anchors, places
from outlast.store.local import Local
from outlast.store.protocol import RunFilter, Store
from outlast.workspace import repo
from outlast.workspace.capture.special import repo_id
from outlast.workspace.compact import chain, prune, repack
from outlast.workspace.git import command, refs
from outlast.workspace.types import raw
from outlast.workspace.vault import identity, old_saves


class Vault(msgspec.Struct, frozen=True, kw_only=True):
    """One vault. `gone`: neither its repository nor a folder that was saved in it is there. Linked bytes cost no room."""

    vault: str
    repository: str
    folders: tuple[str, ...]
    gone: bool
    runs: int
    bytes: int
    linked_bytes: int


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Saves of before that were moved out of a repository, or would be; `failed` says why they stay.

    `left` are those of runs that this store does not know: of another store, whose vault may not have them yet.
    """

    repository: str
    vault: str
    refs: int = 0
    left: int = 0
    freed_bytes: int = 0
    failed: str = ""


def listed(local: Local) -> tuple[Vault, ...]:
    """Every vault."""
    return tuple(_shown(vault, owner) for vault, owner in identity.all_vaults(local.vaults))


def _shown(vault: Path, owner: identity.Owner) -> Vault:
    place = repo.of_vault(vault)
    ours = prune.packed_bytes(place)
    linked = sum(
        pack_stat.st_size
        for pack_stat in repack.brought_packs(place.packs).values()
        if pack_stat.st_nlink > 1
    )
    return Vault(
        vault=str(vault), repository=owner.common_dir, folders=owner.folders, gone=identity.is_gone(owner),
        runs=len({name.split("/")[2] for name in refs.list_refs(vault, chain.REFS)}), bytes=ours, linked_bytes=linked,
    )  # fmt: skip


def remove(local: Local, name: str, *, dry_run: bool = False) -> Vault:
    """Remove a vault whose repository and folders are gone. Raises UsageError for any other one."""
    found = [each for each in listed(local) if name in (each.vault, Path(each.vault).stem)]
    if len(found) != 1:
        raise UsageError(f"no such vault: {name}", hint="`outlast gc --vaults` lists them")
    (vault,) = found
    if not vault.gone:
        raise UsageError(
            f"the vault {Path(vault.vault).stem} is not alone: {vault.repository or vault.folders[-1]} is still there",
            hint="remove that first, or keep both",
        )
    privates = [local.private_of(Path(os.fsdecode(raw(folder)))) for folder in vault.folders]
    if not dry_run:
        with places.locked([private for private in privates if private.is_dir()]):
            doomed = Path(vault.vault).with_suffix(".removed")
            Path(vault.vault).rename(doomed)  # at once: half a vault would pass for a damaged one
            shutil.rmtree(doomed)
    return vault


# -- saves of before ---------------------------------------------------------------------------------------------------


def move_saves(local: Local, known: Container[str], *, dry_run: bool = False) -> tuple[Moved, ...]:
    """Move the saves of `known` runs of before from repositories and shadows into the vaults. Safe to repeat after a kill.

    A ref goes only when all it reaches is in the vault. Objects of ours that the user's own refs, reflogs or indexes
    reach stay in the repository.
    """
    found = []
    for place, privates in places.repositories(local):
        sources = [] if place.shadow else [place.common_dir]
        sources += [
            private / "shadow.git" for private in privates if (private / "shadow.git" / "HEAD").exists()
        ]
        for source in sources:
            there = refs.list_refs(source, old_saves.REFS)
            if not there and source.name != "shadow.git":
                continue
            names = {
                name: oid
                for name, oid in there.items()
                if source.name == "shadow.git" or _run_of(name) in known
            }
            left = len(there) - len(names)
            moved = Moved(repository=str(source), vault=str(place.vault), refs=len(names), left=left)
            try:
                with places.locked(privates):
                    goes = (names or source.name == "shadow.git") and not dry_run
                    found.append(_moved(place, source, moved, names) if goes else moved)
            except (SaveError, OSError) as error:
                found.append(msgspec.structs.replace(moved, failed=str(error)))
    return tuple(found)


def known_runs(store: Store) -> frozenset[str]:
    """The runs whose saves are a store's: its own, those that it forgot, and what was saved by hand."""
    runs = [summary.run for summary in find.all_runs(store, RunFilter())]
    return frozenset({*runs, *anchors.Anchored(store.local).runs, "hand"})


def _run_of(ref: str) -> str:
    return ref.split("/")[2]


def _moved(place: repo.Repo, source: Path, moved: Moved, names: Mapping[str, str]) -> Moved:
    old_saves.bring(place, source)
    there = refs.list_refs(place.vault, old_saves.REFS)
    _check_whole(place, sorted({*names.values()}))
    for name, oid in names.items():
        if name not in there:
            raise SaveDamaged(f"{name} of {source} is not in the vault")
        if there[name] != oid:  # a run went on in the vault: what the old ref has stays reachable there
            refs.write_ref(place.vault, f"{old_saves.REFS}hand/moved/{oid[:16]}", oid, old=refs.ANY)
        if source.name != "shadow.git":
            refs.delete_ref(source, name, oid)
    if source.name == "shadow.git":
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        shutil.rmtree(source)
        return msgspec.structs.replace(moved, freed_bytes=size)
    own = msgspec.structs.replace(
        place, vault=source
    )  # as if it were a vault: its packs of ours, and its own refs
    freed = prune.rewrite_packs(own, young_s=0.0)
    _leave_to_git(own.packs)
    if not moved.left:
        (source / repo_id.MARK).unlink(missing_ok=True)
    return msgspec.structs.replace(moved, freed_bytes=freed)


def _check_whole(place: repo.Repo, commits: list[str]) -> None:
    words = ["rev-list", "--objects", "--quiet", "--missing=allow-promisor", "--stdin"]
    stdin = "".join(f"{oid}\n" for oid in commits).encode()
    command.run(words, git_dir=place.vault, stdin=stdin)


def _leave_to_git(packs: Path) -> None:
    """Remove our marks from packs that now hold only the user's objects, so that git may repack them."""
    for name in repack.our_packs(packs):
        with contextlib.suppress(FileNotFoundError):
            (packs / f"{name}.keep").unlink()
