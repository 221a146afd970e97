"""The rescue net: saves worktrees under some roots when they change, for agents that outlast did not start."""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from outlast import settings
from outlast.errors import OutlastError, UsageError
from outlast.operations.saves.find import HAND, open_saver
from outlast.operations.timing import Timing
from outlast.store.local import Local
from outlast.workspace import repo
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import command
from outlast.workspace.repo import workspace_around
from outlast.workspace.types import Purpose, Save
from outlast.workspace.watch.watcher import Watcher

DEPTH_MAX = 4
FOLDERS_MAX = 20_000
WORKTREES_MAX = 200
_STICKY = stat.S_ISVTX | stat.S_IWOTH  # as /tmp: everybody may write there
HEAVY = frozenset(
    {"node_modules", "target", "build", "dist", "venv", "vendor", "__pycache__", "site-packages"}
)


class Event(NamedTuple):
    """A line to print: a save, or the reason why there is none."""

    folder: Path
    save: Save | None = None
    error: OutlastError | None = None
    found: bool = False


class Pace:
    """When something that changes is to be saved. Times are seconds of any clock that does not go back.

    A change is waited out for two seconds. While changes go on there is one save in thirty seconds, and one more when it is quiet.
    A worktree that cannot be watched is looked at every thirty seconds. An unchanged worktree is not saved again.
    """

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing.current()
        self._first_s: float | None = None  # of the changes since the last save
        self._last_s = 0.0
        self._saved_s: float | None = None

    @property
    def is_changed(self) -> bool:
        return self._first_s is not None

    def changed(self, now_s: float) -> None:
        """Something changed."""
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s

    def saved(self, now_s: float) -> None:
        """Count all changes so far as saved, also if the save failed."""
        self._first_s, self._saved_s = None, now_s

    def has_rested(self, now_s: float) -> bool:
        """Whether the last save is long enough ago."""
        return self._saved_s is None or now_s - self._saved_s >= self.timing.save_every_s

    def is_due(self, now_s: float) -> bool:
        """Whether the changes are due to be saved."""
        if self._first_s is None:
            return False
        quiet_s, timing = now_s - self._last_s, self.timing
        waited = quiet_s >= timing.debounce_s or now_s - self._first_s >= timing.save_every_s
        return quiet_s >= timing.quiet_s or (waited and self.has_rested(now_s))


class _Net:
    """One worktree under watch."""

    def __init__(self, folder: Path, local: Local, *, watched: bool, timing: Timing | None = None) -> None:
        self.saver: Saver = open_saver(folder, local)
        self.pace = Pace(timing)
        self._watcher = self._watch() if watched else None

    def _watch(self) -> Watcher:
        place = self.saver.repo()
        git_dirs = dict.fromkeys((place.git_dir, place.common_dir))
        return Watcher(place.folder, skip=lambda paths: _ignored(place, paths), git_dirs=tuple(git_dirs))

    def look(self, now_s: float) -> None:
        """Take in the changes since the last look. A worktree that cannot be watched counts as changed."""
        if self._watcher is None or self._watcher.failed:
            if self.pace.has_rested(now_s):
                self.pace.changed(now_s - self.pace.timing.debounce_s)
            return
        hints = self._watcher.take()
        if hints.paths or hints.repository or hints.scan:
            self.pace.changed(now_s)

    def save(self, now_s: float) -> Iterator[Event]:
        """Save it if it differs from HEAD and from its last save. A failure is printed, and tried again in a while."""
        self.pace.saved(now_s)
        purpose = Purpose(kind="watch", run=HAND, reason="watched", if_dirty=True, if_changed=True)
        try:
            save = self.saver.capture(purpose)
        except OutlastError as error:
            self.pace.changed(now_s + self.pace.timing.save_every_s)
            yield Event(self.saver.folder, error=error)
            return
        if save is not None:
            yield Event(self.saver.folder, save)

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self.saver.close()


def once(roots: Iterable[Path], local: Local) -> Iterator[Event]:
    """Save every worktree under the roots that has something to save, and end."""
    for folder in worktrees(_checked(roots)):
        try:
            net = _Net(folder, local, watched=False)
        except OutlastError as error:
            yield Event(folder, error=error)
            continue
        try:
            yield from net.save(0.0)
        finally:
            net.close()


def watch(roots: Iterable[Path], local: Local, wait: Callable[[float], bool]) -> Iterator[Event]:
    """Save worktrees as they change, until `wait(seconds)` says True; then once more what changed since."""
    tops = _checked(roots)
    nets: dict[Path, _Net] = {}
    timing = Timing.current()
    searched_s = float("-inf")
    try:
        while True:
            now_s = time.monotonic()
            if now_s - searched_s >= timing.search_every_s:
                yield from _search(tops, nets, local)
                searched_s = now_s
            for net in nets.values():
                net.look(now_s)
                if net.pace.is_due(now_s):
                    yield from net.save(now_s)
            if wait(timing.watch_poll_s):
                break
        for net in nets.values():
            net.look(time.monotonic())
            if net.pace.is_changed:
                yield from net.save(time.monotonic())
    finally:
        for net in nets.values():
            net.close()


def _search(tops: list[Path], nets: dict[Path, _Net], local: Local) -> Iterator[Event]:
    """Take up worktrees that are new, and let go of those that are gone."""
    there = set(worktrees(tops))
    for folder in [folder for folder in nets if not (folder / ".git").exists()]:
        nets.pop(folder).close()
    for folder in sorted(there - nets.keys()):
        try:
            nets[folder] = _Net(folder, local, watched=True)
        except OutlastError as error:
            yield Event(folder, error=error)
            continue
        yield Event(folder, found=True)


def _checked(roots: Iterable[Path]) -> list[Path]:
    found = []
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", hint="give folders with worktrees in them")
        found.append(Path(os.path.realpath(root)))
        refuse(found[-1])
    if not worktrees(found):
        names = ", ".join(map(str, found))
        raise UsageError(
            f"there is no git worktree in or under {names}",
            hint="give folders with worktrees in them, or make one with `git init`; another user's must be named itself",
        )
    return found


def refuse(root: Path) -> None:
    """Raise UsageError for a folder with everybody's worktrees in it: watching writes into each of them."""
    home = settings.home()
    real = Path(os.path.realpath(home)) if home is not None else Path("/")
    root_stat = root.stat()
    everybodys = os.geteuid() == 0 and (root_stat.st_mode & _STICKY == _STICKY or root == Path("/home"))
    if root == Path("/") or root in real.parents or everybodys:
        raise UsageError(
            f"{root} is too much to watch: it holds what belongs to others",
            hint="give the folder that your own worktrees are in",
        )


def worktrees(roots: Iterable[Path]) -> list[Path]:
    """Worktrees that a root is in, is, or holds at most four folders deep. What is inside one is saved with it.

    Below a root only those on the same file system that belong to this user; a root itself may belong to anybody.
    """
    found: dict[Path, None] = {}
    for root in roots:
        around = workspace_around(root)
        if os.path.lexists(around / ".git"):
            found[around] = None
        else:
            found.update(dict.fromkeys(_below(root)))
    return list(found)[:WORKTREES_MAX]


def _below(root: Path) -> Iterator[Path]:
    todo = [(root, 0)]
    looked, device, user = 0, None, os.geteuid()
    while todo and looked < FOLDERS_MAX:
        folder, depth = todo.pop(0)
        looked += 1
        try:
            folder_stat = folder.lstat()
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        device = folder_stat.st_dev if device is None else device
        if folder_stat.st_dev != device:
            continue
        if any(entry.name == ".git" for entry in entries):
            if folder_stat.st_uid == user:
                yield folder
        elif depth < DEPTH_MAX:
            todo += [(Path(entry.path), depth + 1) for entry in entries if _is_looked_into(entry)]


def _is_looked_into(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir(follow_symlinks=False) and entry.name not in HEAVY and not entry.name.startswith(".")


def _ignored(place: repo.Repo, paths: list[bytes]) -> set[bytes]:
    """Folders that git ignores and that hold nothing tracked: no change there is saved."""
    words = ["check-ignore", "-z", "--stdin"]
    try:
        output = command.run(
            words, git_dir=place.git_dir, work_tree=place.folder, stdin=command.listed(paths), ok=(0, 1)
        )
        ignored = {name.rstrip(b"/") for name in command.names(output)}
        if not ignored:
            return ignored
        tracked = command.run(
            ["ls-files", "-z", "-c", "-i", "--exclude-standard"],
            git_dir=place.git_dir,
            work_tree=place.folder,
        )
    except OutlastError:
        return set()
    needed = {folder for path in command.names(tracked) for folder in _folders(path)}
    return ignored - needed


def _folders(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]
