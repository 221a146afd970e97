"""Which paths of a workspace may have changed, from inotify: hints that make a save O(changed).

Here: the watched folders, what their events mean, and the thread that empties the queue. It reads and saves no files."""

import enum
import errno
import os
import re
import select
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outlast.store.durable import NETWORK_TYPES, fs_type
from outlast.workspace import nowhere
from outlast.workspace.timing import Timing
from outlast.workspace.watch import inotify
from outlast.workspace.watch.inotify import Inotify

PATHS_MAX = 20_000  # with more, a scan is cheaper than the memory
UNREADABLE_MAX = 1_000  # folders that cannot be watched are hinted at every take
REF_FOLDERS_MAX = 2_000  # with more, the repository counts as changed at every take
GITFILE_BYTES_MAX = 4096
UNSEEN_TYPES = NETWORK_TYPES | {"virtiofs", "vboxsf", "prl_fs", "drvfs"}  # and all of fuse
_OCTAL = re.compile(rb"\\([0-7]{3})")

Skip = Callable[[list[bytes]], set[bytes]]


@dataclass(frozen=True, slots=True)
class Hints:
    """What may have changed since the last take.

    `paths` are relative to the root; a folder stands for everything below it. `repository`: HEAD, index, refs or
    another part of the repository's own state. `scan`: look at everything, because of `why`; `paths` is empty then.
    """

    paths: frozenset[bytes] = frozenset()
    repository: bool = False
    scan: bool = False
    why: str = ""


class Unwatchable(Exception):
    """This tree cannot be watched (any longer); the text says why."""


class _Kind(enum.Enum):
    FILES = enum.auto()  # ordinary content: every folder below that is not ignored
    GIT = enum.auto()  # a git dir: itself, and the few relevant folders below
    REFS = enum.auto()  # its refs: all folders below except our own
    REFS_BELOW = enum.auto()
    LEAF = enum.auto()  # itself only


_GIT_FOLDERS = {b"refs": _Kind.REFS, b"info": _Kind.LEAF, b"reftable": _Kind.LEAF}


@dataclass(eq=False, slots=True)
class _Folder:
    """A watched folder. It never moves: a renamed folder becomes another one."""

    wd: int
    place: bytes  # absolute
    path: bytes  # relative to the root; of a git dir, its repository's
    kind: _Kind
    # Roots of the repositories that this state belongs to, shared by all folders of a git dir; the workspace's is b"".
    owners: set[bytes] = field(default_factory=set)
    children: dict[bytes, "_Folder"] = field(default_factory=dict)

    def below(self, name: bytes) -> bytes:
        return self.path + b"/" + name if self.path else name


_Look = tuple[
    _Folder, bytes, bool
]  # a name in a folder to look at, and whether to look at everything known below, too


class _Folders:
    """The watched folders, as a tree and by watch. Every method may raise Unwatchable."""

    def __init__(self, root: bytes, skip: Skip, git_dirs: Iterable[bytes], limit: int | None) -> None:
        self.by_wd: dict[int, _Folder] = {}
        self.unreadable: dict[bytes, _Folder] = {}
        self.stale = False  # somebody lost a shared watch: look at everything again
        self.ref_folders = 0
        self.refs_unseen = False  # there are more ref folders than we watch
        self._skip = skip
        self._limit = limit if limit is not None else inotify.quarter()
        self._account = inotify.account()
        self._git_places = frozenset(git_dirs)
        _refuse_unseen(os.fsdecode(root))
        try:
            self.queue = Inotify()
        except OSError as error:
            raise Unwatchable(f"no inotify instance: {error.strerror}") from None
        try:
            self.root = self._top(_Folder(-1, root, b"", _Kind.FILES))
            for place in self._git_places:
                self.grow(self.listed(self._top(_Folder(-1, place, b"", _Kind.GIT, {b""})), deep=False))
            self.grow(self.listed(self.root, deep=False))
            _refuse_mounts(root, {folder.place for folder in self.by_wd.values()})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove all watches."""
        self.queue.close()
        self._account.change(-len(self.by_wd))
        self.by_wd.clear()

    def _top(self, folder: _Folder) -> _Folder:
        try:
            folder.wd = self.queue.add(folder.place)
        except OSError as error:
            raise _unwatchable(error, folder.place) from None
        if folder.wd in self.by_wd:
            raise Unwatchable(f"{os.fsdecode(folder.place)} is both the workspace and its git dir")
        self._own(folder)
        return folder

    def _own(self, folder: _Folder) -> None:
        before = self.by_wd.get(folder.wd)
        self.by_wd[folder.wd] = folder
        if before is not None:
            folder.owners = before.owners
        elif self._account.change(+1) > self._limit:
            raise Unwatchable(f"the workspace needs more watches than the {self._limit:,} we may have")

    def is_live(self, folder: _Folder) -> bool:
        return self.by_wd.get(folder.wd) is folder

    def is_straight(self, folder: _Folder) -> bool:
        """Whether no folder on the way was replaced by a symlink whose event is still unread."""
        if folder.kind is not _Kind.FILES or not folder.path:
            return True
        parts = folder.path.split(b"/")
        ways = (b"/".join((self.root.place, *parts[:length])) for length in range(1, len(parts) + 1))
        return not any(os.path.islink(way) for way in ways)

    def grow(self, looks: list[_Look], *, ask_all: bool = False) -> None:
        """Look at names, and level by level at the folders found there."""
        while looks:
            ignored = self._ignored(looks, ask_all)
            following: list[_Look] = []
            for parent, name, deep in looks:
                if not self.is_live(parent):
                    continue
                kind = self._kind(parent, name)
                if kind is None or (kind is _Kind.FILES and parent.below(name) in ignored):
                    self._forget(parent, name)
                    continue
                folder, fresh = self._attach(parent, name, kind)
                if folder is not None and (fresh or deep):
                    following += self.listed(folder, deep=deep)
            looks = following

    def _ignored(self, looks: list[_Look], ask_all: bool) -> set[bytes]:
        """What the caller ignores. That depends on the path alone, so it is known for watched folders."""
        candidates = [
            parent.below(name)
            for parent, name, _ in looks
            if parent.kind is _Kind.FILES and name != b".git" and (ask_all or name not in parent.children)
        ]
        return self._skip(candidates) if candidates else set()

    def _kind(self, parent: _Folder, name: bytes) -> _Kind | None:
        match parent.kind:
            case _Kind.FILES if name == b".git":
                return _Kind.GIT if parent is not self.root else None
            case _Kind.FILES:
                return _Kind.FILES if parent.place + b"/" + name not in self._git_places else None
            case _Kind.GIT:
                return _GIT_FOLDERS.get(name)
            case _Kind.REFS if name == b"outlast":
                return None  # our own saves must not look like changes
            case _Kind.REFS | _Kind.REFS_BELOW:
                self.refs_unseen |= self.ref_folders >= REF_FOLDERS_MAX
                return _Kind.REFS_BELOW if self.ref_folders < REF_FOLDERS_MAX else None
            case _Kind.LEAF:
                return None

    def listed(self, folder: _Folder, *, deep: bool) -> list[_Look]:
        """The folders (and the `.git`) in a folder now; with `deep`, forget those that are gone."""
        if folder.kind is _Kind.LEAF:
            return []
        files = folder.kind is _Kind.FILES
        try:
            with os.scandir(folder.place) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) or (files and entry.name == b".git")
                ]
        except OSError as error:
            if not nowhere.is_nowhere(error):
                raise _unwatchable(error, folder.place) from None
            return []  # the event of its end or move is still unread
        if deep:
            for name in folder.children.keys() - names:
                self._forget(folder, name)
        return [(folder, name, deep) for name in names]

    def _attach(self, parent: _Folder, name: bytes, kind: _Kind) -> tuple[_Folder | None, bool]:
        """Watch what is at a name now; return the folder, if it is one, and whether it is new here."""
        place = parent.place + b"/" + name
        if parent.kind is _Kind.FILES and kind is _Kind.GIT:
            place = _git_place(parent.place, place)
        try:
            wd = self.queue.add(place)
        except OSError as error:
            self._forget(parent, name)
            if error.errno == errno.EACCES and kind is _Kind.FILES:
                self._add_unreadable(parent, name, place)
            elif not nowhere.is_nowhere(error):
                raise _unwatchable(error, place) from None
            return None, False
        old, known = parent.children.get(name), self.by_wd.get(wd)
        if known is not None and known is old:
            return old, False
        owners = {parent.path} if parent.kind is _Kind.FILES and kind is _Kind.GIT else parent.owners
        if known is not None and kind is not _Kind.FILES:
            known.owners |= owners  # one git dir of two working trees, or one that is content too
            self._forget(parent, name)
            return None, False
        if known is not None and not self.is_straight(parent):
            self._forget(parent, name)  # it is where we knew it, and we came through a symlink
            return None, False
        folder = _Folder(wd, place, parent.path, kind, owners)
        if kind is _Kind.FILES:
            folder.path, folder.owners = parent.below(name), set()
        # Own first, then drop: the new folder may come from below the old one.
        self._own(folder)
        parent.children[name] = folder
        self.ref_folders += kind is _Kind.REFS_BELOW
        if old is not None:
            self._drop(old)
        return folder, True

    def _add_unreadable(self, parent: _Folder, name: bytes, place: bytes) -> None:
        if len(self.unreadable) >= UNREADABLE_MAX:
            raise Unwatchable(f"more than {UNREADABLE_MAX:,} folders may not be read")
        folder = _Folder(-1, place, parent.below(name), _Kind.FILES)
        parent.children[name] = self.unreadable[folder.path] = folder

    def _forget(self, parent: _Folder, name: bytes) -> None:
        folder = parent.children.pop(name, None)
        if folder is not None:
            self._drop(folder)

    def _drop(self, top: _Folder) -> None:
        """Stop watching a folder and everything below, except what is known elsewhere by now."""
        stack = [top]
        while stack:
            folder = stack.pop()
            stack += folder.children.values()
            self.ref_folders -= folder.kind is _Kind.REFS_BELOW
            if self.unreadable.get(folder.path) is folder:
                del self.unreadable[folder.path]
            if self.is_live(folder):
                self.queue.remove(folder.wd)
                self.lost(folder)
                self.stale |= len(folder.owners) > (folder.kind is not _Kind.FILES)

    def lost(self, folder: _Folder) -> None:
        """The kernel has removed a watch, or is about to."""
        if self.is_live(folder):
            del self.by_wd[folder.wd]
            self._account.change(-1)
        folder.wd = -1


class Watcher:
    """Collects hints for one workspace from its creation until `close`. A hint says "look here", never "it is gone".

    How it stays right while the tree changes:
    - A folder is known by its watch (the kernel's number for the inode), a name by what is there when we look. Every
      event about a folder's name makes us look at that name again, after all events that were read with it.
    - First the watch, then the listing, then the hint, all under one lock: what was there before the watch is covered by
      the folder's hint, and what comes later is an event.
    - The queue is in order, and an event is in it when the system call that caused it returns. So `take` itself reads,
      under that lock, what is queued at its call. It is exact for everything before, and creates no file.

    Inotify misses some changes, so full scans remain necessary: writes through a shared mapping (until a writer closes
    the file), writes through another hard link, changes below a network or overlay mount by another host, folders mounted
    later, ignore rules outside the workspace and its repository.

    `skip` returns which folders (relative to the root) are ignored and need no watch; it must not name a folder with
    tracked files. It is called again when a `.gitignore` or `info/exclude` changes, from the watcher's or the taker's
    thread, never from two at once, and must not call the watcher. `git_dirs` are the workspace's git dir and, in a linked
    worktree, the common one. `limit` replaces the quarter of the user's watches as the maximum for this process.

    It does not raise for what the system refuses: `failed` then says why, and every take says `scan`.
    """

    def __init__(
        self,
        root: Path,
        *,
        skip: Skip,
        git_dirs: Sequence[Path] = (),
        limit: int | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._root = os.fsencode(os.path.realpath(root))
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._paths: set[bytes] = set()
        self._repository = True
        self._why = "nothing was watched before"
        self._looks: dict[tuple[_Folder, bytes], bool] = {}
        self._rules_changed: set[_Folder] = set()
        self._overflowed = False
        self._folders: _Folders | None = None
        self._wake = -1
        self._thread: threading.Thread | None = None
        self.failed = ""
        self._start([os.fsencode(os.path.realpath(place)) for place in git_dirs], skip, limit)

    def _start(self, git_dirs: list[bytes], skip: Skip, limit: int | None) -> None:
        try:
            status = os.stat(self._root)
            self._identity = status.st_dev, status.st_ino
            self._folders = _Folders(self._root, skip, git_dirs, limit)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC)
            thread = threading.Thread(target=self._read, name="outlast-watch", daemon=True)
            thread.start()
            self._thread = thread
        except Exception as error:
            self._fail(error)

    @property
    def watches(self) -> int:
        """How many folders are watched."""
        return len(self._folders.by_wd) if self._folders is not None else 0

    def take(self) -> Hints:
        """All that may have changed since the last take, and certainly what changed before this call.

        The first take says `scan`. It never raises, and waits at most two seconds for the watcher's own thread.
        """
        if os.getpid() != self._pid:
            return Hints(repository=True, scan=True, why="watched by the process this one was forked from")
        busy_s = self._timing.watcher_busy_s
        if not self._lock.acquire(timeout=busy_s):
            return Hints(repository=True, scan=True, why=f"the watcher was busy for {busy_s:g} s")
        try:
            self._drain()
            return self._collect()
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Call `skip` for every folder again, after its answers changed for a reason that is not in the files.

        The next take says `scan`.
        """
        if os.getpid() == self._pid:
            with self._lock:
                if self._folders is not None:
                    self._rules_changed.add(self._folders.root)

    def close(self) -> None:
        """Remove the watches and end the thread; every later take says `scan`. Harmless in a forked child."""
        if os.getpid() != self._pid:
            return  # the queue is shared with the parent, and our numbers may mean other files by now
        with self._lock:
            self._fail(Unwatchable("the watcher is closed"))
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._timing.watcher_busy_s)
        with self._lock:
            if self._wake >= 0 and (thread is None or not thread.is_alive()):
                os.close(self._wake)
                self._wake = -1

    def _read(self) -> None:
        """The thread: keep the queue from overflowing between two takes."""
        assert self._folders is not None, "the thread starts after the folders are watched"
        woken = select.poll()
        woken.register(self._wake, select.POLLIN)
        either = select.poll()
        either.register(self._wake, select.POLLIN)
        either.register(self._folders.queue.fd, select.POLLIN)
        while True:
            either.poll()
            if woken.poll(self._timing.coalesce_ms):
                return
            with self._lock:
                self._drain()

    def _drain(self) -> None:
        """Read what is queued now, and no more: a busy writer must not block us. Look at all names in the events."""
        if self._folders is None:
            return
        try:
            self._see_root()
            left = self._folders.queue.waiting_bytes()
            while left > 0 and (data := self._folders.queue.read()):
                for wd, mask, name in inotify.events(data):
                    self._note(self._folders, wd, mask, name)
                left -= len(data)
            self._settle(self._folders)
        except Exception as error:
            self._fail(error)

    def _see_root(self) -> None:
        """Check the root: moving a folder above it raises no event."""
        try:
            status = os.stat(self._root)
        except OSError as error:
            raise _unwatchable(error, self._root) from None
        if (status.st_dev, status.st_ino) != self._identity:
            raise Unwatchable("the workspace is another folder than before")

    def _note(self, folders: _Folders, wd: int, mask: int, name: bytes) -> None:
        if mask & inotify.Q_OVERFLOW:
            self._overflowed = True
        folder = folders.by_wd.get(wd)
        if folder is None:
            return  # a folder we dropped; its replacement was hinted
        for owner in folder.owners:
            if owner:
                self._hint(owner)
            elif not (folder.kind is _Kind.REFS and name == b"outlast"):
                self._repository = True
        if not name:
            self._note_self(folders, folder, mask)
        elif folder.kind is _Kind.FILES:
            self._note_file(folders, folder, mask, name)
        else:
            if mask & inotify.ISDIR:
                self._look(folder, name, mask)
            if folder.kind is _Kind.LEAF and name == b"exclude" and b"" in folder.owners:
                self._rules_changed.add(folders.root)

    def _note_self(self, folders: _Folders, folder: _Folder, mask: int) -> None:
        """The end and the move of a folder are events of its parent, except for the topmost."""
        ended = mask & (inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED)
        if mask & inotify.UNMOUNT:
            raise Unwatchable(f"{os.fsdecode(folder.place)} was unmounted")
        if ended and folder is folders.root:
            raise Unwatchable("the workspace was removed or moved")
        if ended and folder.kind is _Kind.GIT and b"" in folder.owners:
            raise Unwatchable(f"the git dir {os.fsdecode(folder.place)} was removed or moved")
        if mask & inotify.IGNORED:
            folders.lost(folder)

    def _note_file(self, folders: _Folders, folder: _Folder, mask: int, name: bytes) -> None:
        if name == b".git":
            if folder is not folders.root:
                self._hint(folder.path)
                self._look(folder, name, mask)
            elif not mask & inotify.ATTRIB:
                raise Unwatchable("the workspace's .git was replaced")
            return
        self._hint(folder.below(name))
        if name == b".gitignore":
            self._rules_changed.add(folder)
        if mask & inotify.ISDIR:
            self._look(folder, name, mask)

    def _look(self, folder: _Folder, name: bytes, mask: int) -> None:
        """Remember to look at a name. What moved may have been unreachable while names below it were looked at."""
        moved = bool(mask & (inotify.MOVED_FROM | inotify.MOVED_TO))
        self._looks[folder, name] = self._looks.get((folder, name), False) or moved

    def _settle(self, folders: _Folders) -> None:
        """Update the watches to what is there."""
        if self._overflowed:
            self._overflowed = False
            self._repository = True
            self._scan("more events than the kernel's queue holds")
            folders.stale = True
        if self._looks:
            straight = {folder for folder, _ in self._looks if folders.is_straight(folder)}
            looks = [
                (folder, name, deep) for (folder, name), deep in self._looks.items() if folder in straight
            ]
            self._looks.clear()
            folders.grow(looks)
        if folders.stale:
            folders.stale = False
            tops = [folder for folder in folders.by_wd.values() if folder.kind is _Kind.GIT]
            for folder in (*tops, folders.root):
                folders.grow(folders.listed(folder, deep=True), ask_all=True)
        for folder in self._rules_changed:
            if folder is folders.root:
                self._scan("the ignore rules changed")
            else:
                self._hint(folder.path)
            if folders.is_live(folder):
                folders.grow(folders.listed(folder, deep=True), ask_all=True)
        self._rules_changed.clear()

    def _hint(self, path: bytes) -> None:
        if not self._why:
            self._paths.add(path)
            if len(self._paths) > PATHS_MAX:
                self._scan(f"more than {PATHS_MAX:,} paths changed")

    def _scan(self, why: str) -> None:
        self._why = self._why or why
        self._paths.clear()

    def _collect(self) -> Hints:
        if self._folders is None:
            return Hints(repository=True, scan=True, why=self.failed)
        paths = frozenset() if self._why else frozenset((*self._paths, *self._folders.unreadable))
        hints = Hints(paths, self._repository or self._folders.refs_unseen, bool(self._why), self._why)
        self._paths.clear()
        self._repository, self._why = False, ""
        return hints

    def _fail(self, error: Exception) -> None:
        """Stop watching. The first reason stays; an unexpected error is a reason, too."""
        expected = isinstance(error, Unwatchable | OSError)
        self._paths.clear()
        self._looks.clear()
        self._rules_changed.clear()
        if self._folders is not None:
            self._folders.close()
            self._folders = None
        # Last, because it is read without the lock: a reader that sees it finds nothing watched any more.
        self.failed = self.failed or (str(error) if expected else f"the watcher broke: {error!r}")
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)


def _unwatchable(error: OSError, place: bytes) -> Unwatchable:
    if error.errno == errno.ENOSPC:
        return Unwatchable("the user has no inotify watch left (fs.inotify.max_user_watches)")
    return Unwatchable(f"cannot watch {os.fsdecode(place)}: {error.strerror}")


def _git_place(tree: bytes, place: bytes) -> bytes:
    """Where a nested repository's `.git` leads: itself, or the folder that a file names."""
    try:
        if not stat.S_ISREG(os.lstat(place).st_mode):
            return place
        with open(place, "rb") as file:
            text = file.read(GITFILE_BYTES_MAX)
    except OSError:
        return place  # watching it reports what is wrong
    if not text.startswith(b"gitdir:"):
        return place
    return os.path.realpath(os.path.join(tree, text.removeprefix(b"gitdir:").strip()))


def _refuse_unseen(place: str) -> None:
    kind = fs_type(Path(place))
    if _is_unseen(kind):
        raise Unwatchable(f"{place} is on {kind}, where changes by other hosts raise no events")


def _is_unseen(kind: str) -> bool:
    return kind in UNSEEN_TYPES or kind.startswith("fuse")


def _refuse_mounts(root: bytes, watched: set[bytes]) -> None:
    """Refuse watched folders inside that are mounts of such a kind, or that we watch already under another name."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return
    devices = {os.stat(root).st_dev}
    for line in lines:
        left, _, right = line.partition(b" - ")
        mount = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), left.split()[4])
        if mount == root or mount not in watched:
            continue
        kind = os.fsdecode(right.split()[0])
        device = os.stat(mount).st_dev
        if _is_unseen(kind) or device in devices:
            raise Unwatchable(f"{os.fsdecode(mount)} is a mount of {kind} that cannot be watched")
        devices.add(device)
