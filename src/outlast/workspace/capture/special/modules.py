"""The repositories of submodules that lie in the repository's own git folder, and go with it: what a save needs of them.

Their objects are brought into the vault; a commit beside M reaches those, so they stay as long as the save."""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.store.durable import read_plain
from outlast.workspace.capture.special import nested_repos
from outlast.workspace.git import command, objects
from outlast.workspace.git.git_dir import git_dir_form
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.trees import Read, TreeEditor
from outlast.workspace.repo import Repo
from outlast.workspace.types import Module, NestedRepo, raw

NEEDS = b"/needs"
RECORD = b"/repository"
NAMES_MAX = 64  # per file
DEPTH_MAX = 8
_OID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
_MODES = {"blob": objects.FILE, "tree": objects.TREE}


def is_in(common_dir: Path, git_dir: Path) -> bool:
    """Whether a git folder is a submodule's, in the git folder of the repository around it or of one of its worktrees."""
    parts = Path(os.path.relpath(git_dir, os.path.realpath(common_dir))).parts
    return "modules" in (parts[:1] or ("",)) or (parts[:1] == ("worktrees",) and parts[2:3] == ("modules",))


def holds_objects(place: Repo, git_dir: Path) -> bool:
    """Whether the vault can hold the objects of a submodule's repository."""
    return (
        is_in(place.common_dir, git_dir)
        and not (git_dir / "commondir").exists()
        and git_dir_form(git_dir) == place.algo.name
    )


def needs(git_dir: Path, tip: str) -> bytes:
    """Lines with kind and name of what HEAD, index and a merge under way name. Raises SaveFailed if some are missing."""
    wanted = dict.fromkeys([tip] if tip else [])
    if tip:
        words = ["diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", tip]
        staged = [line.split() for line in command.names(command.run(words, git_dir=git_dir))[::2]]
        found = [(about[1], about[3]) for about in staged]
        words = ["ls-files", "-u", "-z"]
    else:
        found, words = [], ["ls-files", "-s", "-z"]
    listed = [line.split() for line in command.names(command.run(words, git_dir=git_dir))]
    found += [(about[0], about[1]) for about in listed]
    wanted |= {oid.decode(): None for mode, oid in found if mode not in (b"160000", b"000000")}
    perhaps = dict.fromkeys(oid for oid in _named_in_progress(git_dir) if oid not in wanted)
    kinds = _kinds(git_dir, [*wanted, *perhaps])
    lacking = [oid for oid in wanted if oid not in kinds and oid.strip("0")]
    if lacking:
        raise SaveFailed(f"{git_dir} lacks object {lacking[0]}")
    return "".join(f"{kind} {oid}\n" for oid, kind in kinds.items()).encode()


def _named_in_progress(git_dir: Path) -> list[str]:
    files = [name for name in nested_repos.files_of_module(git_dir) if nested_repos.is_progress(name)]
    texts = [read_plain(git_dir / os.fsdecode(name)) for name in files]
    return [oid.decode() for data in texts for oid in _OID.findall(data)[:NAMES_MAX]]


def _kinds(git_dir: Path, oids: Sequence[str]) -> dict[str, str]:
    words = ["cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer"]
    output = command.run(words, git_dir=git_dir, stdin="".join(f"{oid}\n" for oid in oids).encode())
    rows = [line.split() for line in output.decode().splitlines()]
    return {name: kind for name, kind in rows if kind != "missing"}


def in_save(root: Path, inside: Sequence[NestedRepo], tree: TreeEditor, read: Read) -> list[Module]:
    """The submodules of a save whose objects are in the vault."""
    found = []
    for each in inside:
        top = nested_repos.place_in_tree(each.path)
        noted, pointer = tree.get(top + NEEDS), tree.get(top + b"/gitfile")
        if each.gitfile and noted is not None and pointer is not None:
            folder = root / os.fsdecode(raw(each.path))
            git_dir = nested_repos.pointed_git_dir(folder, read(pointer.oid))
            found.append(module(each.path, git_dir, read(noted.oid)))
    return found


def module(path: str, git_dir: Path, noted: bytes) -> Module:
    """A submodule, from what `needs` noted."""
    lines = [line.split() for line in noted.decode().splitlines()]
    return Module(path, git_dir, {oid: kind for kind, oid in lines})


def commit_of(found: Sequence[Module], pack: PackWriter, at: datetime) -> str:
    """A commit from which git reaches all that these need; empty if that is nothing."""
    needed = {oid: kind for module in found for oid, kind in module.needs.items()}
    if not needed:
        return ""
    entries = {
        oid.encode(): objects.Entry(_MODES[kind], oid) for oid, kind in needed.items() if kind in _MODES
    }
    parents = [oid for oid, kind in needed.items() if kind == "commit"]
    tree = pack.add("tree", objects.tree_bytes(entries))
    message = "submodules of a save of outlast\n"
    return pack.add("commit", objects.commit_bytes(tree, parents, objects.WHO, at, message))
