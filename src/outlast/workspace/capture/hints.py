"""Turns a watcher's hints into the files that a save must read, and decides when hints are not enough.

Hints are trusted between two looks at everything. A look that finds a change without a hint ends that: `HintTracker.judge`."""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from outlast.workspace import nowhere, rules
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.private_index import PrivateIndex
from outlast.workspace.git.objects import TREE
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.timing import Timing
from outlast.workspace.types import LeftOut, raw
from outlast.workspace.watch.watcher import Watcher

FILES_MAX = 20_000  # with more, looking at everything is cheaper
_LASTING = ("big", "no regular file")
_SAVED = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
_RULES = (b".gitignore", b".gitattributes", b".git")


class NotEnough(Exception):
    """Hints do not suffice for this save; the text says why."""


class HintTracker:
    """The hints of one workspace since the last remembered save. For one thread."""

    def __init__(
        self,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        timing: Timing | None = None,
    ) -> None:
        self._reconcile_s = (timing or Timing.current()).reconcile_s
        self.watcher = watcher
        self.distrusted = ""  # set for good when a look finds a change without a hint
        self._clock = clock
        self._paths: set[bytes] = set()
        # Hinted since a look began; None if the hints are incomplete.
        self._after: frozenset[bytes] | None = None
        self._why = "nothing was looked at yet"
        self._looked_at_s = self._began_at_s = 0.0

    def take(self) -> frozenset[bytes]:
        """All paths hinted since the last save. Raises NotEnough if the save must look at everything."""
        self._note()
        why = self.distrusted or self._why
        if not why and self._clock() - self._looked_at_s > self._reconcile_s:
            why = f"the last look is over {self._reconcile_s:g} s ago"
        if why:
            raise NotEnough(why)
        return frozenset(self._paths)

    def look(self) -> None:
        """A look at everything is about to begin."""
        self._note()
        self._began_at_s = self._clock()

    def judge(self, changed: Iterable[bytes], excused: Collection[bytes]) -> list[bytes]:
        """The changes that a look found without a hint. If there are any, hints are never trusted again."""
        sure = not self._why
        self._after = self._note()
        if not sure or self._after is None or self.distrusted:
            return []
        missed = [path for path in changed if path not in excused and not self._covers(path)]
        if missed:
            self.distrusted = f"{os.fsdecode(missed[0])} changed without a hint"
        return missed

    def done(self, *, looked: bool) -> None:
        """The paths that were taken are now saved and remembered."""
        if not looked:
            self._paths.clear()
            return
        self._paths = set(self._after or ())
        self._why = "" if self._after is not None else self._why
        self._looked_at_s = self._began_at_s

    def forget(self, why: str) -> None:
        """Make the next save look at everything."""
        self._why = self._why or why

    def _note(self) -> frozenset[bytes] | None:
        hints = self.watcher.take()
        if hints.scan:
            self._why = hints.why or "the watcher says so"
            self._paths.clear()
            return None
        self._paths |= hints.paths
        return hints.paths

    def _covers(self, path: bytes) -> bool:
        return path in self._paths or any(folder in self._paths for folder in folders_of(path))


@dataclass(slots=True)
class HintedFiles:
    """Files that hints name: existing ones that no rule ignores, missing ones, and all that were looked at."""

    there: dict[bytes, os.stat_result]
    gone: list[bytes]
    seen: set[bytes]


def find(
    paths: Collection[bytes], root: bytes, base: PrivateIndex, editor: TreeEditor, memory: stat_cache.Memo
) -> HintedFiles:
    """All files at and below these paths. Raises NotEnough if the save must look at everything."""
    inside = [key.rstrip(b"/") for key in memory.areas if key and not key.endswith(b".git/")]
    heaps = [raw(left.path.rstrip("/")) for left in memory.left_out if left.path.endswith("/")]
    for path in paths:
        if not path or path.rpartition(b"/")[2] in _RULES or b"/.git/" in path:
            raise NotEnough("the rules changed, or a repository")
        for place in (*inside, *heaps):
            if path == place or path.startswith(place + b"/") or place.startswith(path + b"/"):
                raise NotEnough(f"{os.fsdecode(place)} must be looked at as a whole")
    return _Finder(root, base, editor, frozenset(memory.forced)).find(paths)


def young_files(memory: stat_cache.Memo) -> list[bytes]:
    """The files that are read again although nothing hints at them. NotEnough if one is in a nested repository."""
    for key, area in memory.areas.items():
        if key and area.young():
            raise NotEnough(f"{os.fsdecode(key)} changed just before the last save")
    return memory.areas[b""].young()


def room_taken(
    named: HintedFiles, room: tuple[int, int], editor: TreeEditor, memory: stat_cache.Memo
) -> tuple[int, int]:
    """How much of the room for untracked files these files use, as negative numbers. NotEnough if they use too much."""
    entries = memory.areas[b""].entries
    new = [file_stat.st_size for path, file_stat in named.there.items() if editor.get(path) is None]
    grown = [
        file_stat.st_size - known.size
        for path, file_stat in named.there.items()
        if (known := entries.get(path)) is not None and not known.in_base
    ]
    files, size = len(new), sum(new) + sum(more for more in grown if more > 0)
    if files > room[0] or size > room[1]:
        raise NotEnough("an untracked folder may be over budget")
    return -files, -size


def is_lasting(why: str) -> bool:
    """Whether a file left out for this reason is left out again unless a hint names it."""
    return why in _LASTING or rules.apart_kind(why) is not None


def left_out_again(
    memory: stat_cache.Memo, seen: set[bytes], root: bytes
) -> tuple[list[LeftOut], dict[bytes, tuple[os.stat_result, str]]]:
    """What was left out before and not looked at now is left out again. Secrets that still exist come separately, with
    their kinds."""
    lasting: list[LeftOut] = []
    secrets: dict[bytes, tuple[os.stat_result, str]] = {}
    for left in memory.left_out:
        path = raw(left.path)
        if path in seen:
            continue
        if path not in memory.secrets:
            lasting.append(left)
            continue
        with contextlib.suppress(OSError):
            secrets[path] = os.lstat(root + path), rules.apart_kind(left.why) or ""
    return lasting, secrets


class _Finder:
    """Goes down from hinted paths level by level, and asks git once per level what it ignores."""

    def __init__(self, root: bytes, base: PrivateIndex, editor: TreeEditor, forced: frozenset[bytes]) -> None:
        self._root, self._base, self._editor, self._forced = root, base, editor, forced
        self._folders: dict[bytes, bool] = {b"": True}
        self._found = HintedFiles({}, [], set())

    def find(self, paths: Iterable[bytes]) -> HintedFiles:
        level = list(paths)
        while level:
            following: list[bytes] = []
            unknown: dict[bytes, os.stat_result] = {}
            for path in level:
                if path not in self._found.seen:
                    self._found.seen.add(path)
                    following += self._sort(path, unknown)
            if len(self._found.seen) > FILES_MAX:
                raise NotEnough(f"hints name more than {FILES_MAX:,} files")
            unforced = [path for path in unknown if path not in self._forced]
            ignored = self._base.ignored(unforced) if unforced else set()
            for path, file_stat in unknown.items():
                if path in ignored:
                    continue
                if stat.S_ISDIR(file_stat.st_mode):
                    following += self._children(path)
                else:
                    self._found.there[path] = file_stat
            level = following
        return self._found

    def _sort(self, path: bytes, unknown: dict[bytes, os.stat_result]) -> list[bytes]:
        """Sort a path into the result; return what must be looked at because of it."""
        file_stat, entry = self._lstat(path), self._editor.get(path)
        is_folder = file_stat is not None and stat.S_ISDIR(file_stat.st_mode)
        if entry is not None and entry.mode == TREE:
            below = [file for file, _ in self._editor.walk(path)]
            if is_folder:
                return [*below, *self._children(path)]
            self._found.gone += below
            entry = None
        elif entry is not None and (file_stat is None or is_folder):
            self._found.gone.append(path)
            entry = None
        if file_stat is not None and entry is not None:
            self._found.there[path] = file_stat
        elif file_stat is not None and stat.S_IFMT(file_stat.st_mode) in _SAVED:
            unknown[path] = file_stat  # the others are pipes and sockets, which a look does not see either
        return []

    def _children(self, folder: bytes) -> list[bytes]:
        try:
            names = os.listdir(self._root + folder)
        except OSError:
            return []  # gone since, for which a hint will come; or not readable
        if b".git" in names:
            raise NotEnough(f"{os.fsdecode(folder)} is a repository")
        return [folder + b"/" + name for name in names]

    def _lstat(self, path: bytes) -> os.stat_result | None:
        """None if nothing is there, or if a link replaced a folder on the way."""
        if not self._is_folder(path.rpartition(b"/")[0]):
            return None
        try:
            return nowhere.lstat(self._root + path)
        except OSError as error:
            raise NotEnough(f"{os.fsdecode(path)}: {error.strerror}") from error

    def _is_folder(self, folder: bytes) -> bool:
        for place in [*folders_of(folder), folder]:
            if place not in self._folders:
                try:
                    self._folders[place] = stat.S_ISDIR(os.lstat(self._root + place).st_mode)
                except OSError:
                    self._folders[place] = False
            if not self._folders[place]:
                return False
        return True


def folders_of(path: bytes) -> list[bytes]:
    """The folders above a path, topmost first, without the root."""
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]
