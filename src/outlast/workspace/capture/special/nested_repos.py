"""Repositories inside the workspace: their files are saved like any others, and their git folders as well.

Git itself would record only a commit id for them, or nothing."""

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store.durable import read_plain
from outlast.store.local import place_of
from outlast.workspace import rules
from outlast.workspace.capture import stat_cache
from outlast.workspace.capture.files import TRIES, Deadline, Findings, files_below
from outlast.workspace.capture.private_index import Look, PrivateIndex
from outlast.workspace.git import command, objects
from outlast.workspace.git.packs import Moving, PackWriter, Unreadable
from outlast.workspace.git.trees import TreeEditor
from outlast.workspace.repo import IN_PROGRESS, Repo
from outlast.workspace.types import NestedRepo, raw, text

HISTORY_BYTES_MAX = 64 << 20
SETTINGS_BYTES_MAX = 1 << 20
_MODULE_FILES = (b"HEAD", b"index")
_PASSING = (b".lock", b"tmp_", b"/tmp_")

Found = dict[bytes, tuple[PrivateIndex, Look]]


def find(outer: Repo, private: Path, look: Look, deadline: Deadline, prefix: bytes = b"") -> Found:
    """The nested repositories at any depth, by their path with a slash, and the look at each."""
    found: Found = {}
    for name in look.nested:
        path = prefix + name + b"/"
        folder = outer.folder / os.fsdecode(name)
        if folder.is_symlink() or not folder.is_dir():
            continue
        place = private / "inside" / place_of(Path(os.fsdecode(path)))
        own = git_dir_of(folder)
        inner = Repo(folder, outer.git_dir, outer.common_dir, outer.algo, outer.vault, shadow=True, own=own)
        base = PrivateIndex(inner, place)
        looked = base.look(deadline.left_s())
        found[path] = (base, looked)
        found |= find(inner, private, looked, deadline, path)
    return found


def git_dir_of(folder: Path) -> Path | None:
    """The git folder of a nested repository, wherever it is."""
    place = folder / ".git"
    with contextlib.suppress(OSError):
        real = place if place.is_dir() else pointed_git_dir(folder, read_plain(place))
        return real if real.is_dir() else None
    return None


def pointed_git_dir(folder: Path, pointer: bytes) -> Path:
    """The git folder that a `.git` file points to."""
    return Path(os.path.realpath(folder / os.fsdecode(pointer.strip().removeprefix(b"gitdir: "))))


def is_progress(name: bytes) -> bool:
    """Whether a file of a git folder belongs to a merge, rebase or bisect in progress."""
    return any(name == part or name.startswith(part + b"/") for part in IN_PROGRESS)


def is_module_file(name: bytes) -> bool:
    """Whether a file of a git folder elsewhere is saved; nothing else is written there."""
    return name in _MODULE_FILES or is_progress(name)


def tracked_and_ignored(inner: Repo) -> list[bytes]:
    """Files that a nested repository's index has although a rule ignores them: a walk does not find them."""
    if inner.own is None:
        return []
    words = ["ls-files", "-z", "-c", "-i", "--exclude-standard"]
    return command.names(command.run(words, git_dir=inner.own, work_tree=inner.folder, ok=(0, 128)))


def unpushed(git_dir: Path, tip: str) -> bytes:
    """Lines with the objects that a repository's HEAD and index name and its remotes do not, as far as it knows."""
    listed = command.run(["rev-list", "--objects", tip, "--not", "--remotes"], git_dir=git_dir)
    oids = dict.fromkeys(line.partition(b" ")[0] for line in listed.splitlines())
    staged = command.names(
        command.run(
            ["diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", tip], git_dir=git_dir
        )
    )
    for about in [line.split() for line in staged[::2]]:
        if about[1] not in (b"160000", b"000000"):
            oids[about[3]] = None
    for line in command.names(command.run(["ls-files", "-u", "-z"], git_dir=git_dir)):
        oids[line.split()[1]] = None
    return b"".join(oid + b"\n" for oid in oids if oid.strip(b"0"))


def _module_files(real: Path) -> list[bytes]:
    """What is saved of a git folder elsewhere: HEAD, index, and a merge or rebase in progress."""
    names = [name for name in (*_MODULE_FILES, *IN_PROGRESS) if (real / os.fsdecode(name)).is_file()]
    for folder in (name for name in IN_PROGRESS if (real / os.fsdecode(name)).is_dir()):
        names += [found[1:] for found in files_below(os.fsencode(real), b"/" + folder, _is_passing)]
    return names


def forget(private: Path, key: bytes = b"") -> None:
    """Forget what is remembered of all nested repositories, or of one."""
    place = private / "inside"
    if key:
        place /= place_of(Path(os.fsdecode(key.removesuffix(b".git/"))))
    shutil.rmtree(place, ignore_errors=True)


def links(repo: Repo, index: Path) -> list[bytes]:
    """Where the index names a commit of another repository. Only asked for a repository with submodules."""
    if not (repo.folder / ".gitmodules").exists():
        return []
    listed = command.run(
        ["ls-files", "-s", "-z"], git_dir=repo.git_dir, variables={"GIT_INDEX_FILE": str(index)}
    )
    return [line.partition(b"\t")[2] for line in command.names(listed) if line.startswith(b"160000 ")]


def empty_links(repo: Repo, linked: list[bytes], inside: tuple[NestedRepo, ...]) -> tuple[NestedRepo, ...]:
    """Submodules that are only an empty folder. Without the folder git would call them deleted."""
    found = [NestedRepo(text(path)) for path in linked if (repo.folder / os.fsdecode(path)).is_dir()]
    return tuple(each for each in found if each.path not in {known.path for known in inside})


class GitFolder:
    """Saves the git folder of a nested repository."""

    def __init__(self, root: Path, memory: stat_cache.Memo, pack: PackWriter, findings: Findings) -> None:
        self._root, self._memory, self._pack, self._findings = root, memory, pack, findings

    def take(self, prefix: bytes, editor: TreeEditor) -> NestedRepo | None:
        """Its files as a tree. For a submodule, whose git folder is elsewhere: the pointer, HEAD and index."""
        place = self._root / os.fsdecode(prefix) / ".git"
        try:
            told = place.lstat()
        except OSError:
            return None
        if stat.S_ISDIR(told.st_mode):
            return self._whole(prefix, place, editor)
        return self._pointer(prefix, place, editor)

    def _whole(self, prefix: bytes, place: Path, editor: TreeEditor) -> NestedRepo:
        root = os.fsencode(place)
        names = [name[1:] for name in files_below(root, b"", _is_passing)]
        size = 0
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(root + b"/" + name).st_size
        shown = text(prefix.rstrip(b"/"))
        if size > HISTORY_BYTES_MAX:
            self._findings.leave(prefix + b".git/", "history of a repository inside", size)
            return NestedRepo(shown)
        self._take(prefix + b".git/", root + b"/", names, editor)
        return NestedRepo(shown, tree="git")

    def _pointer(self, prefix: bytes, place: Path, editor: TreeEditor) -> NestedRepo | None:
        try:
            pointer = read_plain(place)
        except OSError as error:  # a link to a git folder, or unreadable
            self._findings.leave(prefix + b".git/", error.strerror or "unreadable")
            return None
        real = pointed_git_dir(place.parent, pointer)
        top, key = _safe(prefix), prefix + b".git/"
        before = self._state(key, editor)
        self._take(key, os.fsencode(real) + b"/", _module_files(real), editor)
        words = ["rev-parse", "--verify", "-q", "HEAD"]
        tip = command.run(words, git_dir=real, ok=(0, 1, 128)) if real.is_dir() else b""
        editor.put(top + b"/tip", objects.FILE, self._pack.add("blob", tip))
        if self._state(key, editor) != before or editor.get(top + b"/lacking") is not None:
            self._take_unpushed(prefix, real, tip.decode().strip(), editor)
        editor.put(_safe(prefix) + b"/gitfile", objects.FILE, self._pack.add("blob", pointer))
        return NestedRepo(text(prefix.rstrip(b"/")), tree="git", gitfile=True)

    def _state(self, key: bytes, editor: TreeEditor) -> object:
        """What a module's own objects depend on, as of the last save."""
        known = self._memory.areas.get(key, stat_cache.Area()).entries
        oids = [known[name].oid if name in known else "" for name in _MODULE_FILES]
        return oids, editor.get(_safe(key.removesuffix(b".git/")) + b"/tip")

    def _take_unpushed(self, prefix: bytes, real: Path, tip: str, editor: TreeEditor) -> None:
        """Save objects of HEAD and index that no known remote has: the module's own gc might remove them."""
        place, lacking = _safe(prefix) + b"/pack", _safe(prefix) + b"/lacking"
        for path in (place, lacking):
            editor.remove(path)
        if not tip or (real / "commondir").exists():  # another repository has a linked worktree's commits
            return
        try:
            oids = unpushed(real, tip)
            words = ["cat-file", "--batch-check=%(objectsize:disk)", "--buffer"]
            size = sum(map(int, command.run(words, git_dir=real, stdin=oids).split())) if oids else 0
            why = "history of a repository inside" if size > HISTORY_BYTES_MAX else ""
            if oids and not why:
                words = ["pack-objects", "--stdout", "-q", "--threads=1"]
                data = command.run(words, git_dir=real, stdin=oids)
                editor.put(place, objects.FILE, self._pack.add("blob", data))
        except (SaveFailed, ValueError):
            why, size = "objects that cannot be read", 0
        if why:
            self._findings.leave(prefix + b".git/objects/", why, size)
            # Remember it, so that the next save, which looks only at what changed, lists it as well.
            editor.put(lacking, objects.FILE, self._pack.add("blob", why.encode()))

    def _take(self, key: bytes, root: bytes, names: list[bytes], editor: TreeEditor) -> None:
        """Read what changed of these files into the tree under this repository's name."""
        area = self._memory.areas.setdefault(key, stat_cache.Area())
        top = _safe(key.removesuffix(b".git/"))
        for name in [name for name in area.entries if name not in set(names)]:
            del area.entries[name]
            editor.remove(top + b"/files/" + name)
        for name in names:
            if rules.may_hold_credentials(name) and self._withhold(key, root, name, editor):
                area.entries.pop(name, None)
                continue
            known = self._read(key, root, name, area)
            if known is not None:
                area.entries[name] = known
                editor.put(top + b"/files/" + name, known.mode, known.oid)

    def _withhold(self, key: bytes, root: bytes, name: bytes, editor: TreeEditor) -> bool:
        """Store a file with credentials separately, as a secret. The save has it without them, so that git can work."""
        try:
            told = os.lstat(root + name)
            if not stat.S_ISREG(told.st_mode) or told.st_size > SETTINGS_BYTES_MAX:
                return False
            with open(root + name, "rb") as file:
                data = file.read(SETTINGS_BYTES_MAX)
        except OSError:
            return False  # the error is reported when it is read
        harmless = rules.without_credentials(name, data)
        if harmless == data:
            return False
        self._findings.secrets[key + name] = told
        place = _safe(key.removesuffix(b".git/")) + b"/files/" + name
        if harmless:
            editor.put(place, objects.FILE, self._pack.add("blob", harmless))
        else:
            editor.remove(place)
        return True

    def _read(
        self, key: bytes, root: bytes, name: bytes, area: stat_cache.Area
    ) -> stat_cache.KnownFile | None:
        """A file as it is now; None if it is gone, or if it cannot be read, which is then listed."""
        for _ in range(TRIES):
            try:
                told, now_ns = os.lstat(root + name), time.time_ns()
                known = area.entries.get(name)
                if known is not None and known.fits(told):
                    return known
                if stat.S_ISLNK(told.st_mode):
                    oid = self._pack.add("blob", os.readlink(root + name))
                elif stat.S_ISREG(told.st_mode):
                    oid = self._pack.add_file(root + name, expect=told)
                else:
                    self._findings.leave(key + name, "no regular file")
                    return None
                return stat_cache.known_file(told, oid, now_ns, in_base=False)
            except Moving:
                continue
            except FileNotFoundError:
                return None  # git itself removed it meanwhile
            except Unreadable as error:
                self._findings.leave(key + name, str(error))
                return None
            except OSError as error:
                self._findings.leave(key + name, error.strerror or "unreadable")
                return None
        self._findings.leave(key + name, "moving")
        return None


def place_in_tree(path: str) -> bytes:
    """The path of a nested repository in M's `inside` tree."""
    return _safe(raw(path) + b"/")


def _safe(prefix: bytes) -> bytes:
    return place_of(Path(os.fsdecode(prefix))).encode()


def _is_passing(path: bytes) -> bool:
    """Locks and half-written files of a running git: not part of the repository."""
    return path.endswith(_PASSING[0]) or path.rpartition(b"/")[2].startswith(_PASSING[1])
