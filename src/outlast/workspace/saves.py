"""Reads saves: one ref reaches every save of a run, each through the M of the next one."""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime

import msgspec

from outlast import decoders
from outlast.core.events import SaveKind
from outlast.errors import SaveDamaged
from outlast.workspace import repo
from outlast.workspace.git import objects, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.types import Meta, raw


class SaveContents(msgspec.Struct, frozen=True):
    """A save, taken apart: the trees of worktree and index, and the contents of M."""

    commit: str
    tree: str
    index_tree: str
    previous: str
    meta: Meta
    entries: dict[bytes, objects.Entry]


def read(reader: ObjectReader, commit: str, algo: objects.Algo) -> SaveContents:
    """The save of a commit. Raises SaveDamaged if it is not a save, or not whole."""
    w = _commit(reader, commit)
    i = _commit(reader, _last(w, commit))
    m = _commit(reader, _last(i, commit))
    entries = objects.parse_tree(_expect(reader, m.tree, "tree"), algo)
    if b"meta.json" not in entries:
        raise SaveDamaged(f"not a save of outlast: {commit}")
    data = _expect(reader, entries[b"meta.json"].oid, "blob")
    try:
        meta = decoders.decode(data, Meta)
    except msgspec.MsgspecError as error:
        raise SaveDamaged(f"cannot read meta.json of save {commit}: {error}") from error
    previous = m.parents[0] if meta.number > 1 and m.parents else ""
    return SaveContents(commit, w.tree, i.tree, previous, meta, entries)


def _is_inside(path: bytes) -> bool:
    """Whether a path that a save names leads to something inside of the folder."""
    return b"\0" not in path and {b"", b".", b".."}.isdisjoint(path.split(b"/"))


def check_names(held: SaveContents) -> None:
    """Raise SaveDamaged for a save with an invalid HEAD, which git would read, or with a file outside of the folder."""
    if not refs.is_head(held.meta.head, os.fsdecode(raw(held.meta.branch))):
        raise SaveDamaged(f"save {held.commit} has an invalid HEAD")
    paths = [secret.path for secret in held.meta.secrets] + [inside.path for inside in held.meta.inside]
    for path in paths:
        if not _is_inside(raw(path)):
            raise SaveDamaged(f"save {held.commit[:12]} names {path!r}, which is not inside of its folder")


def _last(commit: objects.Commit, save: str) -> str:
    if not commit.parents:
        raise SaveDamaged(f"not a save of outlast: {save}")
    return commit.parents[-1]


def _commit(reader: ObjectReader, oid: str) -> objects.Commit:
    return objects.parse_commit(_expect(reader, oid, "commit"))


def _expect(reader: ObjectReader, oid: str, kind: str) -> bytes:
    found, data = reader.read(oid)
    if found != kind:
        raise SaveDamaged(f"{oid} is a {found}, not a {kind}")
    return data


def ref_of(run: str, kind: SaveKind, at: datetime) -> str:
    """The ref of a save. Each beat's save replaces the one before, which it reaches."""
    place = f"refs/outlast/{run}/{kind}"
    return place if kind == "beat" else f"{place}/{at:%Y%m%dT%H%M%SZ}"


def newest(place: repo.Repo, reader: ObjectReader, run: str) -> SaveContents | None:
    """The newest save of a run in a repository."""
    listed = refs.list_refs(place.vault, f"refs/outlast/{run}/")
    tips = {
        oid for name, oid in listed.items() if "/moved/" not in name
    }  # those keep a branch's commits, not saves
    found = []
    for tip in tips:
        with contextlib.suppress(
            SaveDamaged
        ):  # a save that a power cut left unreadable must not block new ones
            found.append(read(reader, tip, place.algo))
    return max(found, key=lambda held: held.meta.number, default=None)


def chain(place: repo.Repo, reader: ObjectReader, run: str) -> Iterator[SaveContents]:
    """All saves of a run, newest first."""
    held = newest(place, reader, run)
    while held is not None:
        yield held
        held = read(reader, held.previous, place.algo) if held.previous else None
