"""Submodules: where they are, and whether they are as HEAD says, so that there is nothing in them to save.

Only git folders are read, so no filter runs."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from outlast.workspace.capture.special import nested_repos
from outlast.workspace.git import command, objects
from outlast.workspace.git.trees import Read, TreeEditor
from outlast.workspace.repo import IN_PROGRESS, RESTING, Repo
from outlast.workspace.types import NestedRepo, raw

_LINK_TO_COMMIT = 0o160000
_MODE_IN_INDEX = _LINK_TO_COMMIT.to_bytes(
    4, "big"
)  # an index with other bytes may still be equal: then git is asked in vain


def links(place: Repo, index: Path) -> list[bytes]:
    """Where an index names a commit of another repository, with or without a `.gitmodules`."""
    found = nested_repos.links(place, index)
    if found or _MODE_IN_INDEX not in index.read_bytes():
        return found
    listed = command.run(
        ["ls-files", "-s", "-z"], git_dir=place.git_dir, variables={"GIT_INDEX_FILE": str(index)}
    )
    return [line.partition(b"\t")[2] for line in command.names(listed) if line.startswith(b"160000 ")]


def clean_tree(
    place: Repo,
    head_tree: str,
    links: Sequence[bytes],
    insides: Iterable[NestedRepo],
    read: Read,
) -> str:
    """The tree that a save has if everything is as HEAD says, including submodules' files; empty if something is not."""
    editor = TreeEditor(head_tree, read, place.algo)
    there = {raw(each.path) for each in insides}
    if not there <= set(links):
        return ""  # a repository that HEAD does not have
    for path in links:
        folder, entry = place.folder / os.fsdecode(path), editor.get(path)
        if entry is None or entry.mode != _LINK_TO_COMMIT or not folder.is_dir():
            return ""
        if path not in there:
            editor.remove(path)  # only an empty folder
            continue
        tree = _tree_of_clean(folder, entry.oid)
        if not tree:
            return ""
        editor.put(path, objects.TREE, tree)
    return editor.write(lambda kind, data: objects.oid_of(kind, data, place.algo))


def _tree_of_clean(folder: Path, commit: str) -> str:
    """The tree of a submodule at this commit, with nothing staged and nothing in progress; else empty."""
    own = nested_repos.git_dir_of(folder)
    if own is None or any(
        os.path.lexists(own / os.fsdecode(name)) for name in IN_PROGRESS if name != RESTING
    ):
        return ""
    oids = command.run(["rev-parse", "HEAD", "HEAD^{tree}"], git_dir=own, ok=(0, 128)).decode().split()
    if len(oids) != 2 or oids[0] != commit:
        return ""
    staged = command.run(["diff-index", "--cached", "--name-only", "HEAD"], git_dir=own)
    return "" if staged else oids[1]
