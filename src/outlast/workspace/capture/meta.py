"""What a save says besides its trees: the entries of M, and warnings for the person who reads it."""

import os
import re
from collections.abc import Sequence

import msgspec

from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.files import Findings
from outlast.workspace.capture.special import permissions
from outlast.workspace.git import objects
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.repo import Head, Repo
from outlast.workspace.types import Meta, raw, text
from outlast.workspace.vault import record

MASS_DELETION_FILES = 20


def warning(
    memory: stat_cache.Memo, findings: Findings, editor: TreeEditor, missed: Sequence[bytes], place: Repo
) -> str:
    """What a person should know about this save, in one line; usually empty."""
    lost = ""
    if memory.unreadable:
        lost = f"cannot read the index of {text(place.folder)}; the files are saved"
    elif memory.lost:
        lost = "the repository names objects that are missing, as after a power cut; see `git fsck`"
    deleted = _deletion(findings.removed, editor) if memory.commit else ""
    return "; ".join(filter(None, [deleted, _missed(missed), lost]))


def _missed(missed: Sequence[bytes]) -> str:
    if not missed:
        return ""
    return f"{len(missed):,} changes raised no event (first {text(missed[0])}): from now on every save looks at all files"


def _deletion(removed: int, editor: TreeEditor) -> str:
    if removed < MASS_DELETION_FILES:
        return ""
    left = sum(1 for _ in zip(range(removed), editor.walk(), strict=False))
    return f"{removed:,} files were deleted since the save before" if left < removed else ""


def entries(
    place: Repo, memory: stat_cache.Memo, pack: PackWriter, meta: Meta, progress: dict[bytes, bytes]
) -> dict[bytes, objects.Entry]:
    """The tree of M."""

    def blob(data: bytes) -> objects.Entry:
        return objects.Entry(objects.FILE, pack.add("blob", data))

    held = {b"meta.json": blob(msgspec.json.format(msgspec.json.encode(meta), indent=1))}
    if memory.index_oid:
        held[b"empty"] = blob(b"")  # an intent to add names it, and gc would remove it
        held[b"index"] = objects.Entry(objects.FILE, memory.index_oid)
        for shared in place.git_dir.glob("sharedindex.*"):
            held[os.fsencode(shared.name)] = blob(shared.read_bytes())
    for name, tree in (
        (b"stages", memory.stages), (b"inside", memory.inside), (permissions.ENTRY, memory.modes),
        (record.ENTRY, memory.repository),
    ):  # fmt: skip
        if tree:
            held[name] = objects.Entry(objects.TREE, tree)
    if progress:
        files = TreeEditor(None, lambda oid: b"", place.algo)  # reads nothing: it begins empty
        for path, data in progress.items():
            files.put(path, objects.FILE, pack.add("blob", data))
        held[b"progress"] = objects.Entry(objects.TREE, files.write(pack.add))
    return held


def repository(place: Repo, head: Head, pack: PackWriter) -> str:
    """The tree of what is noted of the user's repository, so that it can come back; empty for none."""
    if place.shadow:
        return ""
    files = record.files_of(place, os.fsdecode(raw(head.branch)))
    entries = {name: objects.Entry(objects.FILE, pack.add("blob", data)) for name, data in files.items()}
    return pack.add("tree", objects.tree_bytes(entries)) if entries else ""


# -- Objects that a merge, rebase or bisect in progress names, and a save must therefore keep reachable.

NAMES_MAX = 64  # per file
_OID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")


def named_objects(
    reader: ObjectReader, progress: dict[bytes, bytes]
) -> tuple[dict[bytes, objects.Entry], list[str]]:
    """Objects that these files name: trees and blobs as entries for M's tree, commits as its parents."""
    held: dict[bytes, objects.Entry] = {}
    commits: dict[str, None] = {}
    for data in progress.values():
        for oid in [found.decode() for found in _OID.findall(data)[:NAMES_MAX]]:
            if not reader.has(oid):
                continue
            kind = reader.read(oid)[0]
            if kind == "commit":
                commits[oid] = None
            elif kind in ("tree", "blob"):
                mode = objects.TREE if kind == "tree" else objects.FILE
                held[b"held-" + oid.encode()] = objects.Entry(mode, oid)
    return held, list(commits)
