"""Permission bits that git has no mode for: a tree in the save with the bits, as text, at each file's path.

Only unusual bits are recorded: see `Modes`."""

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from outlast.errors import SaveDamaged
from outlast.workspace import repo, saves
from outlast.workspace.capture import stat_cache
from outlast.workspace.git import objects
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.git.trees import Cache, Read, TreeEditor

BITS = 0o777  # setuid, setgid and sticky are never changed
ENTRY = b"modes"
FOLDER = b".outlast-folder"  # the entry for the folder that it is in
NARROWER_MAX = 10_000  # with more, another umask is the reason


class Modes:
    """The permissions that one save records, on top of the save before.

    It records what a save looks at anyway, and only bits that differ from those of a newly written file. So the tree is
    small and changes only where something changed. A folder that is more private than a new one would be has its bits
    under `FOLDER` in that folder.
    """

    def __init__(self, memory: stat_cache.Memo, read: Read, algo: objects.Algo, cache: Cache) -> None:
        self._tree = TreeEditor(memory.modes or None, read, algo, cache)
        self._before, self._umask, self._algo = memory.modes, memory.umask, algo
        self._doubtful = not memory.commit  # what the save before recorded may be outdated
        self._any = bool(memory.modes)
        self._new: set[int] = set()
        self._folders: set[bytes] = {b""} if self._doubtful else set()
        self._folders_changed = False
        self.changed = False  # of files: a folder alone does not make a save

    def see(self, path: bytes) -> None:
        """Something was looked at, or is gone: its folder's permissions may have changed."""
        self._folders.add(path.rpartition(b"/")[0])

    def note(self, path: bytes, file_stat: os.stat_result) -> None:
        """Record a file's bits. A file that was unusual once stays recorded, so that a save can say it is usual again."""
        self.see(path)
        bits = file_stat.st_mode & BITS
        usual = not stat.S_ISREG(file_stat.st_mode) or bits == usual_bits(
            stat_cache.mode_of(file_stat), self._umask
        )
        if usual and not self._any:
            return
        if not stat.S_ISREG(file_stat.st_mode):
            self.drop(path)
            return
        held = self._tree.get(path)
        known = held is not None and held.mode != objects.TREE
        oid = objects.oid_of("blob", _text(bits), self._algo)
        if (usual and not known) or held == (objects.FILE, oid):
            return
        self._tree.put(path, objects.FILE, oid)
        self._new.add(bits)
        self._any = self.changed = True

    def drop(self, path: bytes) -> None:
        """Remove a file that the save does not hold any more. Files in a folder of this name stay."""
        self.see(path)
        held = self._tree.get(path) if self._any else None
        if held is not None and held.mode != objects.TREE:
            self.drop_all(path)

    def drop_all(self, path: bytes) -> None:
        """Remove a file, or everything in a folder."""
        self.changed |= self._tree.remove(path)

    def write(self, pack: PackWriter, saved: TreeEditor, root: bytes) -> str:
        """Write the tree for the save; empty if every file is usual. `saved` are the files that the save has."""
        if self._doubtful:
            self._look_again(saved, root)
        self._note_folders(root)
        if not (self.changed or self._folders_changed):
            return self._before
        tree = ""
        if next(self._tree.walk(), None) is not None:
            for bits in self._new:
                pack.add("blob", _text(bits))
            tree = self._tree.write(pack.add)
        self.changed = self.changed and tree != self._before
        return tree

    def _note_folders(self, root: bytes) -> None:
        """Record folders that were looked at, and those above, if they are more private than new ones."""
        seen = {above for folder in self._folders for above in _way(folder)}
        for folder in sorted(seen):
            file_stat = None
            with contextlib.suppress(OSError):
                file_stat = os.lstat(root + folder)
            place = _in_folder(folder)
            if file_stat is not None and _lets_in_fewer(file_stat, self._umask):
                bits = file_stat.st_mode & BITS
                oid = objects.oid_of("blob", _text(bits), self._algo)
                if self._tree.get(place) != (objects.FILE, oid):
                    self._tree.put(place, objects.FILE, oid)
                    self._new.add(bits)
                    self._any = self._folders_changed = True
            elif self._any:
                self._folders_changed |= self._tree.remove(place)

    def _look_again(self, saved: TreeEditor, root: bytes) -> None:
        for path in [path for path, _ in self._tree.walk()]:
            if path.rpartition(b"/")[2] == FOLDER:
                self.see(path)
                continue
            file_stat = None
            if saved.get(path) is not None:
                with contextlib.suppress(OSError):
                    file_stat = os.lstat(root + path)
            if file_stat is not None:
                self.note(path, file_stat)
            else:
                self.drop(path)


def begin(place: repo.Repo, reader: ObjectReader, run: str) -> stat_cache.Memo:
    """A fresh memo, as after a reboot: the bits recorded in the run's newest save must be looked at again."""
    memory = stat_cache.Memo(areas={b"": stat_cache.Area()}, umask=process_umask())
    held = saves.newest(place, reader, run)
    if held is not None:
        with contextlib.suppress(SaveDamaged):
            memory.umask = umask_of(held) if held.meta.umask else memory.umask
            memory.modes = held.entries[ENTRY].oid if recorded_bits(reader, held, place.algo) else ""
    return memory


def recorded_bits(reader: ObjectReader, held: saves.SaveContents, algo: objects.Algo) -> dict[bytes, int]:
    """The recorded bits of a save's files. Raises SaveDamaged if they cannot be read."""
    entry = held.entries.get(ENTRY)
    if entry is None:
        return {}
    bits: dict[str, int] = {}
    found: dict[bytes, int] = {}
    for path, leaf in TreeEditor(entry.oid, lambda oid: reader.read(oid)[1], algo).walk():
        if leaf.oid not in bits:
            bits[leaf.oid] = _number(reader.read(leaf.oid)[1], held.commit)
        found[path] = bits[leaf.oid]
    return found


def umask_of(held: saves.SaveContents) -> int:
    """The umask when the save was made; 0, which forbids nothing, if it is not recorded."""
    return _number(held.meta.umask.encode(), held.commit) if held.meta.umask else 0


def usual_bits(mode: int, umask: int) -> int:
    """The bits of a newly written file with this git mode."""
    return (0o777 if mode == objects.EXEC else 0o666) & ~umask


def folder_bits(bits: Mapping[bytes, int], folder: bytes, umask: int) -> int:
    """The bits for a new folder: the recorded ones, else the usual; always such that we can put files into it."""
    return bits.get(_in_folder(folder), 0o777 & ~umask) | 0o700


def guard(folder: Path, reader: ObjectReader, held: saves.SaveContents, algo: objects.Algo) -> None:
    """Give a folder made for a save no wider permissions than the workspace had."""
    noted = recorded_bits(reader, held, algo).get(FOLDER)
    if noted is not None:
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & (~BITS | noted) | 0o700)


def more_private(root: bytes, paths: Iterable[bytes]) -> list[bytes]:
    """The files that fewer people may read than newly written ones, and one file of each folder like that.

    Empty if that is usual here.
    """
    umask, found = process_umask(), []
    folders: dict[bytes, bytes] = {}
    for path in paths:
        folders.setdefault(path.rpartition(b"/")[0], path)
        with contextlib.suppress(OSError):
            file_stat = os.lstat(root + path)
            usual = usual_bits(stat_cache.mode_of(file_stat), umask)
            if stat.S_ISREG(file_stat.st_mode) and usual & ~file_stat.st_mode & BITS:
                found.append(path)
    closed = _in_narrower_folders(root, folders, umask)
    return [path for some in (found, closed) if len(some) <= NARROWER_MAX for path in some]


def _in_narrower_folders(root: bytes, folders: Mapping[bytes, bytes], umask: int) -> list[bytes]:
    """A file for each folder that is more private than a new one: reading the file includes its folder."""
    found: dict[bytes, bytes] = {}
    known: set[bytes] = set()
    for folder, path in folders.items():
        for above in _way(folder):
            if above and above not in known:
                known.add(above)
                with contextlib.suppress(OSError):
                    if _lets_in_fewer(os.lstat(root + above), umask):
                        found[above] = path
    return list(dict.fromkeys(found.values()))


def _lets_in_fewer(file_stat: os.stat_result, umask: int) -> bool:
    return stat.S_ISDIR(file_stat.st_mode) and bool(0o777 & ~umask & ~file_stat.st_mode)


def _way(folder: bytes) -> list[bytes]:
    """A folder and all folders above it; the workspace itself is the empty path."""
    parts = folder.split(b"/") if folder else []
    return [b"/".join(parts[:end]) for end in range(len(parts) + 1)]


def _in_folder(folder: bytes) -> bytes:
    return folder + b"/" + FOLDER if folder else FOLDER


def process_umask() -> int:
    """The umask of this process, read without setting it: setting it would affect every thread."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _text(bits: int) -> bytes:
    return b"%03o\n" % bits


def _number(digits: bytes, commit: str) -> int:
    try:
        return int(digits, 8) & BITS
    except ValueError as error:
        raise SaveDamaged(f"cannot read the permissions in save {commit}: {digits[:20]!r}") from error
