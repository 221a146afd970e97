"""Consolidates many small packs of ours into one with deltas, and removes the many later.

Packs of others are never touched. Killed at any point, at worst both exist: the next call goes on."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed
from outlast.store.durable import sync_folder
from outlast.workspace.git import command
from outlast.workspace.git.packs import CONSOLIDATED, KEEP_TEXT, read_pack_index
from outlast.workspace.git.rooms import room, rooms_in_use
from outlast.workspace.repo import Repo
from outlast.workspace.timing import Timing
from outlast.workspace.vault import identity

PACKS_MAX = 50
BYTES_MAX = 128 << 20
GROWTH = 2  # a consolidated pack is packed again only together with at least half as much new data
WINDOW_BYTES = 256 << 20
# In the order of removal: git must never see an index without its pack, nor we a pack without its mark.
_SUFFIXES = (".idx", ".rev", ".bitmap", ".pack", ".promisor", ".keep")
_SETTINGS = (
    "pack.packSizeLimit=0", "pack.threads=1", f"pack.windowMemory={WINDOW_BYTES}", "pack.indexVersion=2", "pack.island=",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OurPack:
    """A pack of ours that git sees; `replaces` names the packs it replaces."""

    name: str
    size_bytes: int
    written_at_s: float
    consolidated: bool = False
    replaces: tuple[str, ...] = ()


def consolidate(
    repo: Repo, *, packs_max: int = PACKS_MAX, bytes_max: int = BYTES_MAX, grace_s: float | None = None
) -> bool:
    """Make one pack of many if there are too many, and remove the packs that an earlier one replaced; whether one was made.

    The `.keep` of a consolidated pack names the packs it replaces. It is durable and visible before any of them is
    removed, and they are removed only in a later call, so that current readers find the same objects in the new pack.
    Takes a lock of the repository, and does nothing while another process holds it. Saves do not wait.
    """
    with packing_lock(repo.packs) as mine:
        if not mine:
            return False
        rooms_in_use(repo.vault)
        _drop_contained(repo.packs)
        packs = our_packs(repo.packs)
        _remove_replaced(repo.packs, packs, Timing.current().replaced_pack_s if grace_s is None else grace_s)
        chosen = _chosen(packs, packs_max, bytes_max)
        if not chosen:
            return False
        _pack(repo, chosen)
        return True


@contextlib.contextmanager
def packing_lock(folder: Path) -> Iterator[bool]:
    """Whether this process is the one that packs, during the block."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def our_packs(folder: Path) -> dict[str, OurPack]:
    """The packs that git sees and that nobody else needs: those we wrote, and in a vault those that only it has by now.

    Removes a consolidated one that never got its index.
    """
    names = set(os.listdir(folder))
    found: dict[str, OurPack] = {}
    for keep in sorted(name for name in names if name.startswith("pack-") and name.endswith(".keep")):
        name = keep.removesuffix(".keep")
        try:
            text = (folder / keep).read_bytes()
            if text.startswith(CONSOLIDATED) and f"{name}.idx" not in names:
                _remove_unfinished(folder, name)
                continue
            if text != KEEP_TEXT and not text.startswith(CONSOLIDATED):
                continue
            pack_stat = os.stat(folder / f"{name}.pack")
            os.stat(folder / f"{name}.idx")
        except FileNotFoundError:
            continue  # a writer or a sweep is working on it
        replaces = tuple(text.decode().splitlines()[1:])
        found[name] = OurPack(name, pack_stat.st_size, pack_stat.st_mtime, text != KEEP_TEXT, replaces)
    for name, pack_stat in brought_packs(folder).items():
        if pack_stat.st_nlink == 1 and f"{name}.promisor" not in names:
            found[name] = OurPack(name, pack_stat.st_size, pack_stat.st_mtime, consolidated=True)
    return found


def _remove_unfinished(folder: Path, name: str) -> None:
    """Remove a pack that never got its index, unless somebody is about to give it one."""
    if not rooms_in_use(folder.parent.parent) and not (folder / f"{name}.idx").exists():
        remove(folder, name)


def brought_packs(folder: Path) -> dict[str, os.stat_result]:
    """The packs of a vault that were the user's. One with a single link is not in the user's repository any more."""
    if not (folder.parent.parent / identity.NOTE).exists():
        return {}
    found = {}
    for index in folder.glob("pack-*.idx"):
        with contextlib.suppress(FileNotFoundError):
            if not index.with_suffix(".keep").exists():
                found[index.stem] = os.stat(index.with_suffix(".pack"))
    return found


def _drop_contained(folder: Path) -> None:
    """Remove packs that the user's repository replaced by others, which the vault has as well."""
    brought = brought_packs(folder)
    lone = [
        name
        for name, pack_stat in brought.items()
        if pack_stat.st_nlink == 1 and not (folder / f"{name}.promisor").exists()
    ]
    if not lone:
        return
    shared = set[str]().union(
        *(read_pack_index(folder / f"{name}.idx") for name in brought.keys() - set(lone))
    )
    for name in lone:
        if shared and shared.issuperset(read_pack_index(folder / f"{name}.idx")):
            remove(folder, name)


def _remove_replaced(folder: Path, packs: dict[str, OurPack], grace_s: float) -> None:
    """Remove the packs that were replaced long enough ago, also from `packs`."""
    listed = _in_multi_pack_index(folder)
    for pack in list(packs.values()):
        for name in pack.replaces:
            if packs.pop(name, None) is None or name == pack.name:
                continue
            if time.time() - pack.written_at_s >= grace_s and f"{name}.idx".encode() not in listed:
                remove(folder, name)


def _in_multi_pack_index(folder: Path) -> bytes:
    """Git's list of packs, if the user has one: the packs it names must stay until git rewrites it."""
    try:
        return (folder / "multi-pack-index").read_bytes()
    except FileNotFoundError:
        return b""


def remove(folder: Path, name: str) -> None:
    """Remove a pack of ours."""
    for suffix in _SUFFIXES:
        (folder / f"{name}{suffix}").unlink(missing_ok=True)
        if suffix == ".idx":
            faults.point("consolidate.removed")


def _chosen(packs: dict[str, OurPack], packs_max: int, bytes_max: int) -> list[OurPack]:
    """All single packs if they are too many or too big, with the consolidated ones that are not much bigger."""
    chosen = [pack for pack in packs.values() if not pack.consolidated]
    size = sum(pack.size_bytes for pack in chosen)
    if len(chosen) <= packs_max and size <= bytes_max:
        return []
    for pack in sorted(packs.values(), key=lambda pack: pack.size_bytes):
        if pack.consolidated and pack.size_bytes <= GROWTH * size:
            chosen.append(pack)
            size += pack.size_bytes
    return chosen


def _pack(repo: Repo, chosen: list[OurPack]) -> None:
    oids = dict.fromkeys(oid for pack in chosen for oid in read_pack_index(repo.packs / f"{pack.name}.idx"))
    with room(repo.vault) as place:
        made = _run_git_on_packs(repo, place, chosen) or run_git(repo, place, list(oids))
        if not oids.keys() <= set(read_pack_index(made.with_suffix(".idx"))):
            raise SaveDamaged(f"git left objects out of {made}")
        publish(repo.packs, made, [pack.name for pack in chosen])
    faults.point("consolidate.packed")


def _run_git_on_packs(repo: Repo, place: Path, chosen: list[OurPack]) -> Path | None:
    """Let git pack these packs: it finds the objects' paths, and so better deltas: half the size. None before git 2.32."""
    try:
        return run_git(repo, place, [f"{pack.name}.pack" for pack in chosen], "--stdin-packs")
    except SaveFailed:
        return None


def run_git(repo: Repo, place: Path, names: list[str], *options: str) -> Path:
    """One pack of these objects, made in a folder of its own: what a killed git leaves there is known to be ours."""
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    variables = {
        "GIT_OBJECT_DIRECTORY": str(place),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repo.vault / "objects"),
    }
    output = command.run(
        [*settings, "pack-objects", "-q", "--delta-base-offset", *options, str(place / "pack" / "pack")],
        git_dir=repo.vault, variables=variables, stdin="".join(f"{name}\n" for name in names).encode(),
    )  # fmt: skip
    (name,) = output.decode().split()
    return place / "pack" / f"pack-{name}.pack"


def publish(folder: Path, made: Path, chosen: list[str]) -> None:
    """Publish a pack that replaces others: durable first, then visible; the index comes last."""
    replaced = [name for name in chosen if name != made.stem]
    keep = made.with_suffix(".keep")
    keep.write_bytes(CONSOLIDATED + "".join(f"{name}\n" for name in replaced).encode())
    for path in (made, made.with_suffix(".idx"), keep):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    for path in (keep, made, made.with_suffix(".idx")):
        path.replace(folder / path.name)
    sync_folder(folder)
