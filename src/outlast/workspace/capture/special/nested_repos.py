"""Repositories inside the workspace: their files are saved like any others, and their git folders as well.

Git itself would record only a commit id for them, or nothing."""

import contextlib
import os
import shutil
from pathlib import Path

from outlast.store.durable import read_plain
from outlast.store.local import place_of
from outlast.workspace.capture.files import Deadline, files_below
from outlast.workspace.capture.private_index import Look, PrivateIndex
from outlast.workspace.git import command
from outlast.workspace.repo import IN_PROGRESS, Repo
from outlast.workspace.types import NestedRepo, raw, text

HISTORY_BYTES_MAX = 64 << 20
SETTINGS_BYTES_MAX = 1 << 20
MODULE_FILES = (b"HEAD", b"index")
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
    return name in MODULE_FILES or is_progress(name)


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


def files_of_module(real: Path) -> list[bytes]:
    """What is saved of a git folder elsewhere: HEAD, index, and a merge or rebase in progress."""
    names = [name for name in (*MODULE_FILES, *IN_PROGRESS) if (real / os.fsdecode(name)).is_file()]
    for folder in (name for name in IN_PROGRESS if (real / os.fsdecode(name)).is_dir()):
        names += [found[1:] for found in files_below(os.fsencode(real), b"/" + folder, is_passing)]
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


def place_in_tree(path: str) -> bytes:
    """The path of a nested repository in M's `inside` tree."""
    return place_of_prefix(raw(path) + b"/")


def place_of_prefix(prefix: bytes) -> bytes:
    """The same of a path with a slash."""
    return place_of(Path(os.fsdecode(prefix))).encode()


def is_passing(path: bytes) -> bool:
    """Locks and half-written files of a running git: not part of the repository."""
    return path.endswith(_PASSING[0]) or path.rpartition(b"/")[2].startswith(_PASSING[1])
