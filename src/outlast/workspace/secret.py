"""Untracked secrets: kept apart in a private repository of the state folder, never in the workspace's own."""

import os
import stat
import time
from pathlib import Path

from outlast.workspace import memo, objects, refs
from outlast.workspace.packs import Moving, PackWriter, Unreadable
from outlast.workspace.reading import TRIES
from outlast.workspace.repo import make_git_dir
from outlast.workspace.seam import Secret, text

REF = "refs/secrets/last"


def git_dir(private: Path) -> Path:
    """Where a workspace's secrets are kept."""
    return private / "secrets.git"


def keep(
    private: Path, root: bytes, found: dict[bytes, os.stat_result], memory: memo.Memo
) -> tuple[tuple[Secret, ...], dict[bytes, str]]:
    """Save what is secret, durable when this returns; what was kept, and of what could not be, why."""
    memory.secrets = {path: memory.secrets[path] for path in found if path in memory.secrets}
    stale = [
        path
        for path, told in found.items()
        if path not in memory.secrets or not memory.secrets[path].fits(told)
    ]
    for path in stale:
        memory.secrets.pop(path, None)
    failed = _write(private, root, stale, memory) if stale else {}
    kept = tuple(
        Secret(
            text(path), known.mode if known.mode == objects.LINK else found[path].st_mode & 0o777, known.oid
        )
        for path, known in sorted(memory.secrets.items())
    )
    return kept, failed


def _write(private: Path, root: bytes, stale: list[bytes], memory: memo.Memo) -> dict[bytes, str]:
    """Read them into a pack of their own; those that cannot be read, and why."""
    failed: dict[bytes, str] = {}
    place = git_dir(private)
    if not (place / "HEAD").exists():
        make_git_dir(place, "sha1")
    with PackWriter(place / "objects" / "pack", objects.SHA1) as pack:
        for path in stale:
            try:
                memory.secrets[path] = _read(pack, root, path)
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
        commit = pack.add("commit", objects.commit_bytes(tree, parents, objects.WHO, memo.now(), "secrets\n"))
        made = pack.close()
    if made is not None:
        for file in (made.path, made.index):
            file.chmod(0o600)
    refs.write_ref(place, REF, commit, old=refs.ANY)
    return failed


def _read(pack: PackWriter, root: bytes, path: bytes) -> memo.Known:
    for left in reversed(range(TRIES)):
        told, now_ns = os.lstat(root + path), time.time_ns()
        try:
            if stat.S_ISLNK(told.st_mode):
                oid = pack.add("blob", os.readlink(root + path))
            else:
                oid = pack.add_file(root + path, expect=told)
        except Moving:
            if not left:
                raise
        else:
            return memo.known(told, oid, now_ns, in_base=False)
    raise AssertionError("the last try raises")
