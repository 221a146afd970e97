"""Untracked secrets: stored in a private repository of the state folder, never in the workspace's own.

Nobody else writes there, and writers hold the workspace's lock: unfinished files were left by a killed writer."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from outlast import faults
from outlast.errors import SaveFailed
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.files import SECRET_BYTES_MAX, TRIES
from outlast.workspace.capture.special.secret_files import SecretFiles
from outlast.workspace.compact import repack
from outlast.workspace.git import command, objects, refs
from outlast.workspace.git.git_dir import make_git_dir
from outlast.workspace.git.packs import TEMPORARY, Moving, Pack, PackWriter, Unreadable, read_pack_index
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.repo import Repo
from outlast.workspace.types import Secret, text

REF = "refs/secrets/last"
_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # fixed, so that the same secrets give the same commit


class RemovedSecrets(NamedTuple):
    """Secrets that were removed, or would be, and their size in bytes."""

    secrets: int
    size_bytes: int


def git_dir(private: Path) -> Path:
    """The git folder of a workspace's secrets."""
    return private / "secrets.git"


class RequestedFiles(NamedTuple):
    """Files that a save must hold whatever the rules say: ordinary ones, and ones to store separately, with the kinds
    of those that their content gave away."""

    plain: frozenset[bytes]
    apart: dict[bytes, os.stat_result]
    kinds: dict[bytes, str]


def sort_requested(
    secret_files: SecretFiles, root: bytes, also: Iterable[bytes], apart: Iterable[bytes]
) -> RequestedFiles:
    """Sort them. `apart` is stored separately, whatever it looks like. What is too big for that is in neither."""
    also = frozenset(also)
    kinds = {path: kind for path in also if (kind := secret_files.kind_of(root + path, path)) is not None}
    plain = also - kinds.keys()
    found: dict[bytes, os.stat_result] = {}
    for path in {*apart, *also} - plain:
        with contextlib.suppress(OSError):
            file_stat = os.lstat(root + path)
            if file_stat.st_size <= SECRET_BYTES_MAX:
                found[path] = file_stat
    return RequestedFiles(plain, found, {path: kind for path, kind in kinds.items() if kind})


def save_secrets(
    private: Path,
    root: bytes,
    found: dict[bytes, os.stat_result],
    memory: stat_cache.Memo,
    ages: stat_cache.FileAges,
) -> tuple[tuple[Secret, ...], dict[bytes, str]]:
    """Save secrets, durable when it returns; return what was saved, and the reason for each that could not be."""
    memory.secrets = {path: memory.secrets[path] for path in found if path in memory.secrets}
    stale = [
        path
        for path, file_stat in found.items()
        if not _is_as_saved(private, root, path, file_stat, memory, ages)
    ]
    for path in stale:
        memory.secrets.pop(path, None)
    failed = _write(private, root, stale, memory, ages) if stale else {}
    saved = tuple(
        Secret(
            text(path), known.mode if known.mode == objects.LINK else found[path].st_mode & 0o777, known.oid
        )
        for path, known in sorted(memory.secrets.items())
    )
    return saved, failed


def _is_as_saved(
    private: Path,
    root: bytes,
    path: bytes,
    file_stat: os.stat_result,
    memory: stat_cache.Memo,
    ages: stat_cache.FileAges,
) -> bool:
    """Whether a secret is what was saved of it. A young one is read again, and nothing is written of it."""
    known = memory.secrets.get(path)
    if known is None or not known.looks_like(file_stat):
        return False
    if not known.young_ns:
        return True
    with contextlib.suppress(Moving, Unreadable, OSError):
        saved = known.oid.__eq__
        with PackWriter(_packs(git_dir(private)), objects.SHA1, known=saved, lazy=True) as pack:
            again = _read(pack, root, path, known, ages)
        if again.oid == known.oid:
            memory.secrets[path] = again
            return True
    return False


def _write(
    private: Path, root: bytes, stale: list[bytes], memory: stat_cache.Memo, ages: stat_cache.FileAges
) -> dict[bytes, str]:
    """Read them into a pack of their own; return those that cannot be read, and why."""
    failed: dict[bytes, str] = {}
    place = git_dir(private)
    if not (place / "HEAD").exists():
        make_git_dir(place, "sha1")
    with PackWriter(place / "objects" / "pack", objects.SHA1) as pack:
        for path in stale:
            try:
                memory.secrets[path] = _read(pack, root, path, None, ages)
            except Moving:
                failed[path] = "moving"
            except Unreadable as error:
                failed[path] = str(error)
            except OSError as error:
                failed[path] = error.strerror or "unreadable"
        held = {
            b"%d" % number: objects.Entry(objects.FILE, known.oid)
            for number, known in enumerate(memory.secrets.values())
        }
        tree = pack.add("tree", objects.tree_bytes(held))
        before = refs.read_ref(place, REF)
        parents = [before] if before else []
        commit = pack.add(
            "commit", objects.commit_bytes(tree, parents, objects.WHO, stat_cache.now(), "secrets\n")
        )
        made = pack.close()
    _hide(made)
    refs.write_ref(place, REF, commit, old=refs.ANY)
    return failed


def _read(
    pack: PackWriter,
    root: bytes,
    path: bytes,
    before: stat_cache.KnownFile | None,
    ages: stat_cache.FileAges,
) -> stat_cache.KnownFile:
    for left in reversed(range(TRIES)):
        file_stat, at = os.lstat(root + path), stat_cache.moment()
        try:
            if stat.S_ISLNK(file_stat.st_mode):
                oid = pack.add("blob", os.readlink(root + path))
            else:
                oid = pack.add_file(root + path, expect=file_stat)
        except Moving:
            if not left:
                raise
        else:
            return ages.known_file(file_stat, oid, at, in_base=False, before=before)
    raise AssertionError("the last try raises")


# -- less room ---------------------------------------------------------------------------------------------------------


def consolidate(private: Path, *, grace_s: float | None = None) -> bool:
    """Store many versions of secrets against each other, as saves are; whether that was due. Saves do not wait for it."""
    place = git_dir(private)
    if not (place / "HEAD").exists():
        return False
    done = repack.consolidate(Repo(private, place, place, objects.SHA1, place, shadow=True), grace_s=grace_s)
    if done:
        _make_private(place)
    return done


def _make_private(place: Path) -> None:
    for path in [*_packs(place).glob("pack-*.pack"), *_packs(place).glob("pack-*.idx")]:
        with contextlib.suppress(FileNotFoundError):
            path.chmod(0o600)


# -- removing ------------------------------------------------------------------------------------------------------


def remove_unnamed(
    private: Path, named: Callable[[], set[str]], *, before_s: float, dry_run: bool = False
) -> RemovedSecrets:
    """Remove the secrets that are not `named` and were written before a time. The caller holds the workspace's lock.

    What stays is durable in a new pack, and the ref leads to it, before an old pack is removed: killed at any point,
    calling it again completes it. `named` is called only if something may be removed; if it raises, nothing changes.
    """
    place = git_dir(private)
    if not (place / "HEAD").exists():
        return RemovedSecrets(0, 0)
    try:
        with repack.packing_lock(_packs(place)) as mine:
            if not mine:  # they are being consolidated
                return RemovedSecrets(0, 0)
            if not dry_run:
                _tidy(place)
            return _let_go(place, named, before_s, dry_run=dry_run)
    except OSError as error:
        raise SaveFailed(f"cannot thin the secrets in {place}: {error.strerror}") from error


def _let_go(place: Path, named: Callable[[], set[str]], before_s: float, *, dry_run: bool) -> RemovedSecrets:
    old, young = _packed(place, before_s)
    sizes = _sizes(place)
    passing = (set().union(*old.values()) - young) & sizes.keys()
    gone = passing - named() if passing else set()
    if gone and not dry_run:
        made = _write_anew(place, sizes.keys() - gone, passing - gone, young)
        faults.point("gc.packed")
        for name in old.keys() - {made}:  # a killed call may have left the very pack that is now made again
            repack.remove(_packs(place), name)
    return RemovedSecrets(len(gone), sum(sizes[oid] for oid in gone))


def _packs(place: Path) -> Path:
    return place / "objects" / "pack"


def _tidy(place: Path) -> None:
    """Remove what a killed writer or remover left, and make what is there private."""
    refs.sweep_locks(place, "refs/secrets/")
    folder = _packs(place)
    for path in list(folder.iterdir()):
        lone = path.name.startswith("pack-") and not path.with_suffix(".idx").exists()
        if lone or path.name.startswith(TEMPORARY):
            path.unlink()
    _make_private(place)


def _packed(place: Path, before_s: float) -> tuple[dict[str, set[str]], set[str]]:
    """The objects in the packs written before a time, by pack; and the objects in the other packs."""
    old: dict[str, set[str]] = {}
    young: set[str] = set()
    for index in _packs(place).glob("pack-*.idx"):
        oids = set(read_pack_index(index))
        if index.with_suffix(".pack").stat().st_mtime < before_s:
            old[index.stem] = oids
        else:
            young |= oids
    return old, young


def _sizes(place: Path) -> dict[str, int]:
    """Every secret that is stored, and its size in bytes."""
    words = ["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname) %(objectsize)"]
    lines = [line.split() for line in command.run(words, git_dir=place).decode().splitlines()]
    return {oid: int(size) for kind, oid, size in lines if kind == "blob"}


def _write_anew(place: Path, stay: set[str], copied: set[str], there: set[str]) -> str:
    """Write one commit without parents that holds all that stays; return the pack of what is not `there` in a young one."""
    with (
        ObjectReader(place, command.environment()) as reader,
        PackWriter(_packs(place), objects.SHA1, known=there.__contains__) as pack,
    ):
        for oid in sorted(copied):
            pack.add("blob", reader.read(oid)[1])
        held = {b"%d" % number: objects.Entry(objects.FILE, oid) for number, oid in enumerate(sorted(stay))}
        tree = pack.add("tree", objects.tree_bytes(held))
        commit = pack.add("commit", objects.commit_bytes(tree, [], objects.WHO, _ANY_TIME, "secrets\n"))
        made = pack.close()
    _hide(made)
    refs.write_ref(place, REF, commit, old=refs.ANY)
    return made.path.stem if made is not None else ""


def _hide(made: Pack | None) -> None:
    if made is not None:
        for file in (made.path, made.index):
            file.chmod(0o600)
