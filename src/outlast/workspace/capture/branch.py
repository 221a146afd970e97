"""A copy of a save on a branch `outlast/<task>`, for people: a plain commit without our private history."""

from outlast.workspace import repo
from outlast.workspace.git import command, objects, refs
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.types import Save
from outlast.workspace.vault.give_back import give_back


def put(place: repo.Repo, reader: ObjectReader, task: str, save: Save) -> str:
    """Commit a save's files to `outlast/<task>` and return the branch; empty if it is checked out and must not move.

    This, and nothing else of ours, goes into the user's repository: tracked and unignored files, never what is kept apart.
    """
    if place.shadow:
        return ""
    heads = refs.list_refs(place.common_dir, "refs/heads/")
    branch = refs.task_branch(task, {name.removeprefix("refs/heads/") for name in heads})
    ref = f"refs/heads/{branch}"
    tip = heads.get(ref)
    if tip is not None and _is_checked_out(place, ref):
        return ""
    saved = objects.parse_commit(reader.read(save.commit)[1])
    before = [parent for parent in (repo.head(place).oid, tip) if parent]
    data = objects.commit_bytes(saved.tree, list(dict.fromkeys(before)), objects.WHO, saved.at, saved.message)
    give_back(place, [saved.tree])
    words = ["hash-object", "-t", "commit", "-w", "--stdin"]
    commit = command.run(words, git_dir=place.common_dir, stdin=data).decode().strip()
    refs.syncfs(place.common_dir)
    refs.write_ref(place.common_dir, ref, commit, old=tip)
    return branch


def _is_checked_out(place: repo.Repo, ref: str) -> bool:
    listing = command.run(["worktree", "list", "--porcelain", "-z"], git_dir=place.common_dir)
    return f"branch {ref}".encode() in listing.split(b"\0")
