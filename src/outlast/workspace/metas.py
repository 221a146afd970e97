"""What a save says besides its trees: the entries of M, and warnings for the person who reads it."""

import os
from collections.abc import Sequence

import msgspec

from outlast.workspace import memo, objects, permissions
from outlast.workspace.packs import PackWriter
from outlast.workspace.reading import Findings
from outlast.workspace.repo import Repo
from outlast.workspace.seam import Meta, text
from outlast.workspace.trees import TreeEditor

MASS_DELETION_FILES = 20


def warning(
    memory: memo.Memo, findings: Findings, editor: TreeEditor, missed: Sequence[bytes], place: Repo
) -> str:
    """What a person should know of this save, in one line; mostly nothing."""
    lost = ""
    if memory.unreadable:
        lost = f"the index of {text(place.folder)} cannot be read; the files are saved"
    elif memory.lost:
        lost = "the repository names objects that are not there, as after a power cut; see `git fsck`"
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
    place: Repo, memory: memo.Memo, pack: PackWriter, meta: Meta, progress: dict[bytes, bytes]
) -> dict[bytes, objects.Entry]:
    """The tree of M."""

    def blob(data: bytes) -> objects.Entry:
        return objects.Entry(objects.FILE, pack.add("blob", data))

    held = {b"meta.json": blob(msgspec.json.format(msgspec.json.encode(meta), indent=1))}
    if memory.index_oid:
        held[b"empty"] = blob(b"")  # what an intent to add names, and gc would take away
        held[b"index"] = objects.Entry(objects.FILE, memory.index_oid)
        for shared in place.git_dir.glob("sharedindex.*"):
            held[os.fsencode(shared.name)] = blob(shared.read_bytes())
    for name, tree in (
        (b"stages", memory.stages), (b"inside", memory.inside), (permissions.ENTRY, memory.modes),
    ):  # fmt: skip
        if tree:
            held[name] = objects.Entry(objects.TREE, tree)
    if progress:
        files = TreeEditor(None, lambda oid: b"", place.algo)  # nothing is read: it begins empty
        for path, data in progress.items():
            files.put(path, objects.FILE, pack.add("blob", data))
        held[b"progress"] = objects.Entry(objects.TREE, files.write(pack.add))
    return held
