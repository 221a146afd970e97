"""A run's result as git would add it: a save has the bytes of the disk, a tree of git what the user's filters make of them."""

import os
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from outlast.workspace.git import objects, trees
from outlast.workspace.git.objects import GITLINK, LINK, Entry
from outlast.workspace.restore.unsaved_files import is_left
from outlast.workspace.result.room import Room

_ATTRIBUTES = b".gitattributes"


class RunFiles(msgspec.Struct, frozen=True):
    """What a run left: the tree of its files, the commit that was checked out, and paths that the tree lacks by a rule."""

    tree: str
    head: str
    at: datetime
    message: str
    branch: str = ""
    left_out: frozenset[bytes] = frozenset()


def committed(room: Room, files: RunFiles) -> str:
    """The commit that holds the result: the run's own, or one on top of it with what the run had not committed.

    It is the same commit each time. It is in the room alone.
    """
    tree = _as_added(room, files)
    if files.head and tree == room.tree_of(files.head):
        return files.head
    parents = [files.head] if files.head else []
    data = objects.commit_bytes(tree, parents, objects.WHO, files.at, files.message)
    return room.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=data).decode().strip()


def _as_added(room: Room, files: RunFiles) -> str:
    """The tree of the result, with only those files converted that differ from the commit."""
    base = room.tree_of(files.head)
    linked = _as_folders(submodules(room, files))
    changes = {
        path: new
        for path, (_, new) in changed_paths(room, base, files.tree).items()
        if not is_left(path, linked) and (new is not None or not is_left(path, files.left_out))
    }
    index, place = room.hidden("index"), room.hidden("files")
    room.git("read-tree", base, index=index)
    _add(room, changes, index, place)
    return room.git("write-tree", index=index).decode().strip()


def submodules(room: Room, files: RunFiles) -> frozenset[bytes]:
    """Submodules that a save has as files, or not at all. They stay what the commit says: only a commit moves them."""
    found = changed_paths(room, room.tree_of(files.head), files.tree)
    return frozenset(
        path for path, (old, new) in found.items() if new is None and old is not None and old.mode == GITLINK
    )


def _as_folders(paths: Collection[bytes]) -> frozenset[bytes]:
    """The paths, and all that is below them."""
    return frozenset((*paths, *(path + b"/" for path in paths)))


def _add(room: Room, changes: Mapping[bytes, Entry | None], index: Path, place: Path) -> None:
    """Deletions first: git looks at no path below a link, and in the place of a folder there may be one by now."""
    place.mkdir()
    put_entries(room, {path: None for path, entry in changes.items() if entry is None}, index)
    added = {path: entry for path, entry in changes.items() if entry is not None}
    plain = [path for path, entry in added.items() if entry.mode != GITLINK]
    for path in plain:
        _put(os.path.join(os.fsencode(place), path), added[path], room)
    first = [path for path in plain if os.path.basename(path) == _ATTRIBUTES]
    for paths in (first, plain):  # by the attributes that the run left
        room.git(
            "update-index", "--add", "--remove", "--replace", "-z", "--stdin",
            stdin=b"".join(path + b"\0" for path in paths), index=index, files=place,
        )  # fmt: skip
    put_entries(room, {path: entry for path, entry in added.items() if entry.mode == GITLINK}, index)


def _put(path: bytes, entry: Entry, room: Room) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = room.reader().read(entry.oid)[1]
    if entry.mode == LINK:
        os.symlink(data, path)
        return
    fd = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700 if entry.mode & 0o100 else 0o600
    )
    with open(fd, "wb") as file:
        file.write(data)


def put_entries(room: Room, entries: Mapping[bytes, Entry | None], index: Path) -> None:
    """Set entries of an index, or take them out of it."""
    zero = "0" * (room.place.algo.raw_length * 2)
    lines = []
    for path, entry in sorted(entries.items(), key=lambda each: each[1] is not None):  # what goes makes room
        mode, oid = (entry.mode, entry.oid) if entry is not None else (0, zero)
        lines.append(b"%o %s\t%b\0" % (mode, oid.encode(), path))
    room.git("update-index", "-z", "--index-info", stdin=b"".join(lines), index=index)


def entries_at(room: Room, tree: str, paths: Collection[bytes]) -> dict[bytes, Entry | None]:
    """A tree's entries at these paths."""
    editor = trees.TreeEditor(tree, lambda oid: room.reader().read(oid)[1], room.place.algo)
    return {path: editor.get(path) for path in paths}


def changed_paths(room: Room, old: str, new: str) -> dict[bytes, tuple[Entry | None, Entry | None]]:
    """Every path at which two trees differ, with both entries."""
    found = trees.diff(old, new, lambda oid: room.reader().read(oid)[1], room.place.algo)
    return {path: (before, after) for path, before, after in found}
