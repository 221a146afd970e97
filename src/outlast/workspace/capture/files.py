"""Reads the changed files of a worktree into a pack, and lists what was left out and why."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from outlast.workspace import leftovers, nowhere, rules
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.private_index import Look, PrivateIndex
from outlast.workspace.capture.special.permissions import Modes
from outlast.workspace.capture.special.secret_files import KeyFound, SecretFiles
from outlast.workspace.git import command
from outlast.workspace.git.objects import TREE
from outlast.workspace.git.packs import Moving, PackWriter, Unreadable
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.secret_texts import HEAD_BYTES
from outlast.workspace.timing import Timing
from outlast.workspace.types import LeftOut, Module, text

TRIES = 3
SECRET_BYTES_MAX = 64 << 20  # a larger secret is only listed
CLOSED = "may not be read"
TOO_DEEP = "holds paths that are too long"
_CHUNK = 1 << 20


class Deadline:
    """A point in time after which nothing more is read; never, if there is none."""

    def __init__(self, seconds: float | None, timing: Timing | None = None) -> None:
        self._short_s = (timing or Timing.current()).short_s
        self._at_s = None if seconds is None else time.monotonic() + seconds

    def left_s(self) -> float | None:
        return None if self._at_s is None else max(0.0, self._at_s - time.monotonic())

    def is_short(self) -> bool:
        """Whether there is too little time to look at everything."""
        left_s = self.left_s()
        return left_s is not None and left_s < self._short_s

    def passed(self) -> bool:
        return self._at_s is not None and time.monotonic() >= self._at_s


class FoundKey(NamedTuple):
    """A file that turned out to hold a key when it was read, and whether the private index has it."""

    file_stat: os.stat_result
    kind: str
    in_base: bool | None


class Findings:
    """What one capture found besides the files it read."""

    modes: Modes  # set when the tree that the save begins with is known

    def __init__(self) -> None:
        self.since = stat_cache.now()  # nothing was read before
        self.ages = stat_cache.FileAges(stat_cache.Memo())  # until what was remembered is known
        self.left_out: list[LeftOut] = []
        self.secrets: dict[bytes, os.stat_result] = {}
        self.kinds: dict[bytes, str] = {}  # of those secrets that their content gave away
        self.changed: list[bytes] = []
        self.missed: list[bytes] = []  # changed without a hint
        self.modules: list[Module] | None = None  # submodules, if everything was looked at
        self.room = (0, 0)
        self.digest_bytes = 0
        self.taken = 0
        self.removed = 0

    def leave(self, path: bytes, why: str, size: int = 0, digest: str = "") -> None:
        self.left_out.append(LeftOut(text(path), why, size, digest))


class Reader:
    """Reads what a look found into the tree of a save."""

    def __init__(
        self,
        base: PrivateIndex,
        prefix: bytes,
        area: stat_cache.Area,
        pack: PackWriter,
        editor: TreeEditor,
        findings: Findings,
        limits: rules.Limits,
        deadline: Deadline,
        digests: dict[bytes, stat_cache.BigFileDigest],
        secret_files: SecretFiles,
    ) -> None:
        self._base, self._prefix, self._area = base, prefix, area
        self._root = os.fsencode(base.repo.folder) + b"/"
        self._pack, self._editor, self._findings = pack, editor, findings
        self._limits, self._deadline, self._digests = limits, deadline, digests
        self._secret_files = secret_files
        self._real: dict[bytes, bool] = {}
        self._forced: set[bytes] = set()  # saved whatever they hold
        self._keys: dict[bytes, FoundKey] = {}

    def take(self, look: Look, tracked: Iterable[bytes]) -> None:
        """Read everything that changed since the private index was current, or since it was last read."""
        forced = self._forced = set(tracked)
        others = self._wanted(look.others, forced)
        changed = self._unrefused(look.changed, forced)
        for path in look.gone:
            self._remove(path, in_base=True)
        candidates = {*changed, *others, *forced}
        for path in {*look.others, *look.changed} - candidates:
            self._drop(path)
        closed = self._closed(look)
        known = [path for path in self._area.entries if path not in candidates]
        self._reconsider([path for path in known if not path.startswith(closed)] if closed else known)
        for path in self._area.gone.difference(look.gone, look.changed):
            self._file(path, in_base=True)  # back as it was, so git reports no change
        for path in changed:
            self._file(path, in_base=True)
        for path in others:
            self._file(path, in_base=False)
        for path in forced.difference(changed, others):
            self._file(path, in_base=False)
        self._sort_keys()

    def _closed(self, look: Look) -> tuple[bytes, ...]:
        """Folders that may not be read: list them, and keep what was saved of them before."""
        for folder in look.closed:
            self._findings.leave(self._prefix + folder + b"/", CLOSED)
        for folder in look.too_deep:
            self._findings.leave(self._prefix + folder + b"/", TOO_DEEP)
        return tuple(folder + b"/" for folder in look.closed)

    def take_paths(
        self, there: dict[bytes, os.stat_result], gone: Iterable[bytes], forced: set[bytes]
    ) -> None:
        """Read what hints named: files that no rule ignores, and files that are gone."""
        self._forced = forced
        for path in gone:
            self._remove(path, self._is_in_base(path))
        refused = self._refused(there, forced)
        for path in there:
            if path in refused:
                self._drop(path)
            else:
                self._file(path, self._is_in_base(path))
        self._sort_keys()

    def _is_in_base(self, path: bytes) -> bool:
        """Whether the private index has this path: what the last save holds comes from there or was read since."""
        known = self._area.entries.get(path)
        if known is not None and known.in_base is not None:
            return known.in_base
        return path in self._area.gone or self._editor.get(self._prefix + path) is not None

    def _drop(self, path: bytes) -> None:
        """Remove a file that was saved before and is refused now: the save must not hold an old version of it."""
        if path in self._area.entries or self._is_in_base(path):
            in_base = self._is_in_base(path)
            self._area.entries.pop(path, None)
            if in_base:
                self._area.gone.add(path)
            self._findings.modes.drop(self._prefix + path)
            if self._editor.remove(self._prefix + path):
                self._findings.changed.append(self._prefix + path)

    def _reconsider(self, paths: list[bytes]) -> None:
        """Files that were saved before and are not reported now: gone, newly ignored, or as the private index says."""
        there = [path for path in paths if self._is_there(path)]
        ignored = self._base.ignored(there) if there else set()
        for path in paths:
            entry = self._area.entries[path]
            if path not in there or (entry.in_base is False and path in ignored):
                self._remove(path, in_base=entry.in_base)
            else:
                self._file(path, in_base=entry.in_base)

    def _remove(self, path: bytes, in_base: bool | None) -> None:
        if path in self._area.gone:
            return
        self._area.entries.pop(path, None)
        if in_base is not False:
            self._area.gone.add(path)
        held = self._editor.get(self._prefix + path)
        if held is not None and held.mode != TREE:  # a folder there has files that took its place
            self._editor.remove(self._prefix + path)
            self._findings.modes.drop(self._prefix + path)
            self._findings.changed.append(self._prefix + path)
            self._findings.removed += 1

    def _is_there(self, path: bytes) -> bool:
        """Whether a file exists, but not through a link in place of a folder: that leads out of the worktree."""
        folder = path.rpartition(b"/")[0]
        if folder not in self._real:
            self._real[folder] = os.path.realpath(self._root + folder) == (self._root + folder).rstrip(b"/")
        return self._real[folder] and os.path.lexists(self._root + path)

    # -- what is wanted ------------------------------------------------------------------------------------------

    def _wanted(self, others: list[bytes], forced: set[bytes]) -> list[bytes]:
        """Untracked files, without secrets and without what is too big; those are listed."""
        stats = {path: file_stat for path in others if (file_stat := self._lstat(path)) is not None}
        refused = self._refused(stats, forced)
        sizes = {path: stats[path].st_size for path in stats if path not in refused and path not in forced}
        self._findings.room = self._findings.room if self._prefix else rules.room(sizes, self._limits)
        for folder, (count, size) in rules.over_budget(sizes, self._limits).items():
            inside = [path for path in sizes if path.startswith(folder + b"/")]
            self._findings.leave(
                self._prefix + folder + b"/", f"{count:,} untracked files", size, self._listing(inside, stats)
            )
            refused.update(inside)
        return [path for path in stats if path not in refused]

    def _unrefused(self, paths: Iterable[bytes], forced: set[bytes]) -> list[bytes]:
        """Files that may be untracked, without those that are refused individually."""
        stats = {path: file_stat for path in paths if (file_stat := self._lstat(path)) is not None}
        refused = self._refused(stats, forced)
        return [path for path in paths if path not in refused]

    def _refused(self, stats: dict[bytes, os.stat_result], forced: set[bytes]) -> set[bytes]:
        """Secrets and files that are too big, unless the user's index has them: those are added to `forced`."""
        suspects = [path for path in stats if path not in forced and self._is_suspect(path, stats[path])]
        forced |= self._tracked(suspects) if suspects else set()
        return {path for path in suspects if path not in forced and self._refuse(path, stats[path])}

    def _is_suspect(self, path: bytes, file_stat: os.stat_result) -> bool:
        return (
            file_stat.st_size > self._limits.file_bytes
            or self._secret_files.has_secret_name(self._prefix + path)
            or leftovers.is_temporary_name(path)
        )

    def _tracked(self, paths: list[bytes]) -> set[bytes]:
        """The paths that the user's index has: these are saved in any case."""
        repo = self._base.repo
        git_dir = repo.own if repo.shadow else repo.git_dir
        if git_dir is None:
            return set()
        tracked: set[bytes] = set()
        for start in range(0, len(paths), 500):
            some = [os.fsdecode(path) for path in paths[start : start + 500]]
            output = command.run(
                ["--literal-pathspecs", "ls-files", "-z", "--", *some],
                git_dir=git_dir,
                work_tree=repo.folder,
                ok=(0, 128),
            )
            tracked.update(command.names(output))
        return tracked.intersection(paths)

    def _sort_keys(self) -> None:
        """Files that hold a key: those that the user's index has are saved all the same, the others are kept apart."""
        found, self._keys = self._keys, {}
        tracked = self._tracked(list(found)) if found else set[bytes]()
        self._forced |= tracked
        for path, key in found.items():
            if path in tracked:
                self._file(path, key.in_base)
                continue
            self._drop(path)
            if self._keep_apart(path, key.file_stat):
                self._findings.kinds[self._prefix + path] = key.kind

    def _refuse(self, path: bytes, file_stat: os.stat_result) -> bool:
        place, size = self._prefix + path, file_stat.st_size
        is_big = size > self._limits.file_bytes
        if leftovers.is_temporary_name(path):
            self._findings.leave(place, "unfinished, left by outlast", size)
        elif is_big and self._secret_files.kind_of(self._root + path, place, HEAD_BYTES) is None:
            self._findings.leave(place, "big", size, self._digest(path, file_stat))
        else:
            self._keep_apart(path, file_stat)
        return True

    def _keep_apart(self, path: bytes, file_stat: os.stat_result) -> bool:
        """Whether a secret is stored separately; it may be too big."""
        place, size = self._prefix + path, file_stat.st_size
        if size > max(SECRET_BYTES_MAX, self._limits.file_bytes):
            self._findings.leave(place, "secret, too big to be kept apart", size)
            return False
        self._findings.secrets[place] = file_stat
        self._findings.modes.see(place)
        return True

    def _digest(self, path: bytes, file_stat: os.stat_result) -> str:
        """The digest of a file that is not saved, read once while it does not change; empty if that were too long."""
        known = self._digests.get(self._prefix + path)
        stamp = file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_ctime_ns
        if known is not None and (known.size, known.mtime_ns, known.ctime_ns) == stamp:
            return known.digest
        if self._findings.digest_bytes + file_stat.st_size > self._limits.digest_bytes:
            self._digests[self._prefix + path] = stat_cache.BigFileDigest(*stamp, "")
            return ""
        self._findings.digest_bytes += file_stat.st_size
        digest = hashlib.blake2b(digest_size=16)
        try:
            with open(self._root + path, "rb", buffering=0) as file:
                while chunk := file.read(_CHUNK):
                    if self._deadline.passed():
                        return ""
                    digest.update(chunk)
        except OSError:
            return ""
        found = digest.hexdigest()
        self._digests[self._prefix + path] = stat_cache.BigFileDigest(*stamp, found)
        return found

    def _listing(self, paths: list[bytes], stats: dict[bytes, os.stat_result]) -> str:
        """One digest of the names, sizes and times in a whole folder."""
        found = [(path, stats[path]) for path in sorted(paths)]
        lines = [
            b"%b %d %d %d\n" % (path, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
            for path, each in found
        ]
        return hashlib.blake2b(b"".join(lines), digest_size=16).hexdigest()

    # -- one file ------------------------------------------------------------------------------------------------

    def _lstat(self, path: bytes) -> os.stat_result | None:
        try:
            return nowhere.lstat(self._root + path)
        except OSError as error:
            self._findings.leave(self._prefix + path, error.strerror or "unreadable")
            return None

    def _file(self, path: bytes, in_base: bool | None) -> None:
        file_stat = self._lstat(path)
        if file_stat is None:
            self._remove(path, in_base)
            return
        if stat.S_ISDIR(file_stat.st_mode):  # now a folder: its files are reported by themselves
            self._remove(path, in_base)
            return
        known = self._area.entries.get(path)
        if known is not None and known.fits(file_stat):
            return
        if not stat.S_ISREG(file_stat.st_mode) and not stat.S_ISLNK(file_stat.st_mode):
            self._findings.leave(self._prefix + path, "no regular file")
            return
        if self._deadline.passed():
            self._findings.leave(self._prefix + path, "no time", file_stat.st_size)
            return
        self._read(path, file_stat, in_base)

    def _read(self, path: bytes, file_stat: os.stat_result | None, in_base: bool | None) -> None:
        size = 0
        for _ in range(TRIES):
            if file_stat is None or stat.S_ISDIR(file_stat.st_mode):
                self._remove(path, in_base)
                return
            at, size = stat_cache.moment(), file_stat.st_size
            try:
                oid = self._oid(path, file_stat)
            except (Moving, FileNotFoundError):
                file_stat = self._lstat(path)
                continue
            except KeyFound as key:
                self._keys[path] = FoundKey(file_stat, key.kind, in_base)
                return
            except Unreadable as error:
                self._findings.leave(self._prefix + path, str(error), file_stat.st_size)
                return
            before = self._area.entries.get(path)
            self._put(path, self._findings.ages.known_file(file_stat, oid, at, in_base, before))
            self._findings.modes.note(self._prefix + path, file_stat)
            return
        self._findings.leave(self._prefix + path, "moving", size)

    def _oid(self, path: bytes, file_stat: os.stat_result) -> str:
        if stat.S_ISLNK(file_stat.st_mode):
            return self._pack.add("blob", os.readlink(self._root + path))
        look = self._secret_files.look_at(self._prefix + path) if path not in self._forced else None
        return self._pack.add_file(self._root + path, expect=file_stat, look=look)

    def _put(self, path: bytes, known: stat_cache.KnownFile) -> None:
        self._area.gone.discard(path)
        before = self._editor.get(self._prefix + path)
        if before is None or before != (known.mode, known.oid):
            self._editor.put(self._prefix + path, known.mode, known.oid)
            self._findings.changed.append(self._prefix + path)
            self._findings.taken += 1
        self._area.entries[path] = known


def files_below(root: bytes, folder: bytes, skip: Callable[[bytes], bool]) -> list[bytes]:
    """All files below a folder, relative to `root`, except below nested repositories."""
    found: list[bytes] = []
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = list(os.scandir(root + here))
        except OSError:
            continue
        for entry in entries:
            path = here + b"/" + entry.name
            if skip(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                found.append(path)
    return found
