"""What a merge of a run's result would make of a repository, and what stands in its way. Writes into a room alone."""

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from outlast.errors import SaveFailed, WorkspaceRefused
from outlast.workspace import repo
from outlast.workspace.git import command
from outlast.workspace.git.objects import FILE, GITLINK, Entry
from outlast.workspace.result import tree as result_tree
from outlast.workspace.result.room import Room
from outlast.workspace.types import text

_FATAL = 128
_UNKNOWN_OPTION = 129
_JUDGING_HOOKS = ("pre-merge-commit", "prepare-commit-msg", "commit-msg")
SPARSE = "left out here by the sparse checkout"
_UNDER_WAY = {
    b"MERGE_HEAD": "a merge", b"CHERRY_PICK_HEAD": "a cherry-pick", b"REVERT_HEAD": "a revert",
    b"rebase-merge": "a rebase", b"rebase-apply": "a rebase", b"sequencer": "a sequence of commits",
}  # fmt: skip

How = Literal["nothing", "files", "fast-forward", "merge", "merge-ready"]


class MergeConflict(msgspec.Struct, frozen=True):
    """A file of which git cannot say what it is to be, and why, in git's words."""

    path: str
    why: str


class ResultFile(msgspec.Struct, frozen=True):
    """A file that changes here."""

    path: str
    change: Literal["added", "changed", "deleted"]


class Obstacle(msgspec.Struct, frozen=True):
    """A file that would change, and that somebody changed here."""

    path: str
    why: str


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done here. `files` is the tree of the worktree, `commit` what HEAD names afterwards, `index_tree` what is
    staged then. With "merge-ready" HEAD stays, and `git commit` makes the commit of two parents."""

    how: How
    onto: str
    commit: str = ""
    theirs: str = ""
    index_tree: str = ""
    files: str = ""
    changes: tuple[ResultFile, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    submodules: tuple[str, ...] = ()
    here_already: tuple[str, ...] = ()


class _Tree(NamedTuple):
    oid: str
    conflicts: tuple[MergeConflict, ...]


def planned(room: Room, files: result_tree.RunFiles, whole: str, message: str) -> MergePlan:
    """Work out how a result comes into the repository of a room. `whole` is the commit that `tree.committed` returned.

    The run's own commits come as commits, what it had not committed as changes in the worktree. Raises WorkspaceRefused for
    a repository that is in the middle of something, or shares no commit with the run.
    """
    head = repo.head(room.place)
    _refuse_under_way(room)
    _refuse_strangers(room, head, files)
    both = [_merged(room, head.oid, each) for each in dict.fromkeys((files.head, whole))]
    conflicts = tuple(dict.fromkeys(conflict for each in both for conflict in each.conflicts))
    if conflicts:
        return MergePlan(how="merge", onto=head.oid, conflicts=conflicts)
    staged, there = both[0].oid, both[-1].oid
    how, commit = _way(room, head.oid, files.head, staged, message)
    plan = MergePlan(how=how, onto=head.oid, commit=commit, theirs=files.head, index_tree=staged, files=there)
    return _looked_at(room, plan)


def _refuse_under_way(room: Room) -> None:
    for name in repo.in_progress(room.place):
        word = _UNDER_WAY.get(name.split(b"/")[0])
        if word is not None:
            raise WorkspaceRefused(
                f"{word} is under way in {room.place.folder}",
                hint="end it or take it back (`git status` says how), then type this again",
            )


def _refuse_strangers(room: Room, head: repo.Head, files: result_tree.RunFiles) -> None:
    here = room.place.folder
    if not head.oid:
        raise WorkspaceRefused(
            f"{here} has no commit yet, so there is nothing to merge with",
            hint="commit something first, or take the result to a branch: `--branch NAME`",
        )
    if not files.head or not room.git("merge-base", head.oid, files.head, ok=(0, 1)).strip():
        raise WorkspaceRefused(
            f"{here} and the run have no commit in common",
            hint="stand in a clone of the repository that the run worked in; or bring its files into a new folder: `outlast restore RUN --to DIR`",
        )


def _merged(room: Room, ours: str, theirs: str) -> _Tree:
    """git's own merge of two commits, as a tree."""
    running = room.running(
        "merge-tree", "--write-tree", "-z", "--messages", ours, theirs, ok=(0, 1, _FATAL, _UNKNOWN_OPTION)
    )
    output = running.result()
    if running.exit_code in (_FATAL, _UNKNOWN_OPTION):
        lines = running.messages.decode(errors="replace").strip().splitlines() or ["no message"]
        if running.exit_code == _UNKNOWN_OPTION or "usage" in lines[0]:
            raise WorkspaceRefused(
                "this git cannot merge without files, which takes version 2.38",
                hint="install a newer git, or take the result to a branch: `--branch NAME`",
            )
        raise SaveFailed(f"git cannot merge the result: {lines[-1]}", hint="see `git status`")
    oid, _, rest = output.partition(b"\0")
    if running.exit_code == 0:
        return _Tree(oid.decode(), ())
    return _Tree(oid.decode(), tuple(_conflicts(rest)))


def _conflicts(output: bytes) -> Iterable[MergeConflict]:
    """The conflicts of a merge: each unmerged file, with what git says of it."""
    listed, _, messages = output.partition(b"\0\0")
    paths = dict.fromkeys(line.split(b"\t", 1)[1] for line in listed.split(b"\0") if b"\t" in line)
    why: dict[bytes, list[str]] = {}
    fields = iter(messages.split(b"\0"))
    for count in fields:
        if not count.strip().isdigit():
            continue
        named = [next(fields, b"") for _ in range(int(count))]
        kind, message = next(fields, b""), next(fields, b"")
        if kind.startswith(b"CONFLICT"):
            for path in named:
                why.setdefault(path, []).append(text(message.strip()))
    for path in dict.fromkeys((*paths, *why)):
        yield MergeConflict(text(path), "; ".join(why.get(path, ["both sides changed it"])))


def _way(room: Room, ours: str, theirs: str, staged: str, message: str) -> tuple[How, str]:
    """How HEAD moves, as `merge.ff` says, and the commit that it names then."""
    if _is_ancestor(room, theirs, ours):
        return "files", ours
    ff = room.git("config", "--get", "merge.ff", ok=(0, 1)).decode().strip()
    if _is_ancestor(room, ours, theirs) and ff not in ("false", "no", "off", "0"):
        return "fast-forward", theirs
    if ff == "only":
        raise WorkspaceRefused(
            "the branch here has moved on, and `merge.ff = only` allows no merge",
            hint="rebase the run's branch by hand, or take the result to a branch: `--branch NAME`",
        )
    if _is_judged(room):
        return "merge-ready", ours
    try:
        words = ("commit-tree", staged, "-p", ours, "-p", theirs, "-F", "-")
        return "merge", room.git(*words, stdin=message.encode()).decode().strip()
    except SaveFailed as error:
        raise WorkspaceRefused(
            f"git does not make a merge commit in your name: {error}",
            hint="tell it your name: `git config --global user.name NAME` and `git config --global user.email ADDRESS`",
        ) from error


def _is_ancestor(room: Room, older: str, newer: str) -> bool:
    running = room.running("merge-base", "--is-ancestor", older, newer, ok=(0, 1))
    running.result()
    return running.exit_code == 0


def _is_judged(room: Room) -> bool:
    """Whether a commit of the user's goes through a hook, or is signed: then `git commit` has to make it."""
    signed = room.git("config", "--type=bool", "--get", "commit.gpgSign", ok=(0, 1)).strip() == b"true"
    words = ["rev-parse", "--git-path", "hooks"]
    place = room.place
    found = command.Running(words, git_dir=place.git_dir, work_tree=place.folder, cwd=place.folder, before=())
    folder = place.folder / os.fsdecode(found.result()).removesuffix("\n")
    return signed or any(os.access(folder / name, os.X_OK) for name in _JUDGING_HOOKS)


# -- what stands in the way ----------------------------------------------------------------------------------------


def _looked_at(room: Room, plan: MergePlan) -> MergePlan:
    """The plan, without files that are here already as the result has them, and with those that are in the way."""
    before = room.tree_of(plan.onto)
    wanted = result_tree.changed_paths(room, before, plan.files)
    dirty = _dirty(room, wanted)
    same = _as_wanted(room, wanted, dirty)
    dirty |= dict.fromkeys(_outside_sparse(room, plan), SPARSE)
    going = {path: entries for path, entries in wanted.items() if path not in same}
    files = _with_entries(room, plan.files, {path: wanted[path][0] for path in same})
    changes = tuple(ResultFile(text(path), change_word(*entries)) for path, entries in sorted(going.items()))
    links = [path for path, (old, new) in going.items() if _is_link(old) or _is_link(new)]
    obstacles = tuple(Obstacle(text(path), why) for path, why in sorted(dirty.items()) if path not in same)
    how: How = "nothing" if plan.how == "files" and not changes else plan.how
    return msgspec.structs.replace(
        plan, how=how, files=files, changes=changes, obstacles=obstacles,
        submodules=tuple(map(text, sorted(links))), here_already=tuple(map(text, sorted(same))),
    )  # fmt: skip


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.mode == GITLINK


def change_word(old: Entry | None, new: Entry | None) -> Literal["added", "changed", "deleted"]:
    """What becomes of a file with these entries before and afterwards."""
    return "added" if old is None else "deleted" if new is None else "changed"


def _dirty(room: Room, wanted: Mapping[bytes, object]) -> dict[bytes, str]:
    """Of the files that would change, those that are not here as HEAD has them, and why."""
    index = own_index(room)
    _look_at_all(room, wanted, index)
    room.git("update-index", "-q", "--refresh", index=index, ok=(0, 1))
    staged = room.git("diff-index", "--cached", "--name-only", "-z", "--no-renames", "HEAD", index=index)
    changed = room.git("diff-files", "--name-only", "-z", "--ignore-submodules", index=index)
    found = {path: "changed, and not committed" for path in command.names(changed) if path in wanted}
    found |= {path: "staged, and not committed" for path in command.names(staged) if path in wanted}
    tracked = set(command.names(room.git("ls-files", "-z", index=index)))
    root = os.fsencode(room.place.folder) + b"/"
    for path in wanted:
        if path not in tracked and path not in found and _is_there(root, path, tracked):
            found[path] = "not tracked by git"
    return found


def _look_at_all(room: Room, wanted: Collection[bytes], index: Path) -> None:
    """Take the marks away by which git does not look at a file (`--assume-unchanged`, `--skip-worktree`), where one is there."""
    root = os.fsencode(room.place.folder) + b"/"
    lines = command.names(room.git("ls-files", "-v", "-z", index=index))
    marked = [line[2:] for line in lines if line[:1].islower() or line[:1] == b"S"]
    there = b"".join(path + b"\0" for path in marked if path in wanted and os.path.lexists(root + path))
    for word in ("--no-assume-unchanged", "--no-skip-worktree") if there else ():
        room.git("update-index", word, "-z", "--stdin", stdin=there, index=index)


def _outside_sparse(room: Room, plan: MergePlan) -> list[bytes]:
    """What the run had not committed and a sparse checkout here leaves out: it would come into no file, and into no commit."""
    if room.git("config", "--type=bool", "--get", "core.sparseCheckout", ok=(0, 1)).strip() != b"true":
        return []
    beyond = result_tree.changed_paths(room, plan.index_tree, plan.files)
    going = [path for path, (_, new) in beyond.items() if new is None]
    coming = [path for path, (_, new) in beyond.items() if new is not None]
    return [*_skipped(room, coming, "coming"), *_skipped(room, going, "going")]


def _skipped(room: Room, paths: Collection[bytes], name: str) -> list[bytes]:
    """Which of these paths git leaves out, by the patterns of the checkout here: tried with empty files in an empty folder."""
    index, folder = room.hidden(name), room.hidden(f"{name} files")
    folder.mkdir()
    nothing = room.git("hash-object", "-t", "blob", "-w", "--stdin", stdin=b"").decode().strip()
    result_tree.put_entries(room, dict.fromkeys(paths, Entry(FILE, nothing)), index)
    tree = room.git("write-tree", index=index).decode().strip()
    index.unlink()
    room.git("read-tree", "-m", "-u", tree, index=index, files=folder)
    listed = command.names(room.git("ls-files", "-t", "-z", index=index, files=folder))
    return [line[2:] for line in listed if line.startswith(b"S ")]


def _is_there(root: bytes, path: bytes, tracked: set[bytes]) -> bool:
    """Whether something is at a path, or in place of a folder above it, that git does not know."""
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        here = b"/".join(parts[:end])
        try:
            mode = os.lstat(root + here).st_mode
        except OSError:
            return False
        if not stat.S_ISDIR(mode):
            return here not in tracked
    return not any(each.startswith(path + b"/") for each in tracked)


def own_index(room: Room, name: str = "here") -> Path:
    """A copy of the user's index, for git to work on."""
    copy = room.hidden(name)
    try:
        copy.write_bytes(room.place.index.read_bytes())
    except FileNotFoundError:
        copy.unlink(missing_ok=True)
    return copy


def _as_wanted(
    room: Room, wanted: Mapping[bytes, tuple[Entry | None, Entry | None]], dirty: Mapping[bytes, str]
) -> set[bytes]:
    """Of the changed files, those that are already as the result has them: a take-over that is typed twice."""
    if not dirty:
        return set()
    index = own_index(room, "same")
    kinds = {path: _kind_at(room, path) for path in dirty}
    files = [path for path in dirty if wanted[path][1] is not None and kinds[path] == "file"]
    room.git("update-index", "--add", "--replace", "-z", "--stdin",
             stdin=b"".join(path + b"\0" for path in files), index=index)  # fmt: skip
    now: dict[bytes, Entry] = {}
    for line in command.names(room.git("ls-files", "-s", "-z", index=index)):
        head, _, path = line.partition(b"\t")
        mode, oid, _ = head.split()
        now[path] = Entry(int(mode, 8), oid.decode())
    same = {path for path in files if now.get(path) == wanted[path][1]}
    to_do = {above for path in wanted.keys() - same for above in _above(path) if wanted[path][1] is not None}
    gone = {path for path in dirty if wanted[path][1] is None and kinds[path] in ("nothing", "folder")}
    return same | (gone - to_do)


def _kind_at(room: Room, path: bytes) -> Literal["file", "folder", "nothing", "other"]:
    """What is at a path, as git sees it: below a link there is nothing. A link is a file, a device is something other."""
    here = os.fsencode(room.place.folder)
    parts = path.split(b"/")
    for number, part in enumerate(parts, 1):
        here += b"/" + part
        try:
            mode = os.lstat(here).st_mode
        except OSError:
            return "nothing"
        if number < len(parts) and not stat.S_ISDIR(mode):
            return "nothing"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else "other"


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]


def _with_entries(room: Room, tree: str, entries: Mapping[bytes, Entry | None]) -> str:
    if not entries:
        return tree
    index = room.hidden("target")
    room.git("read-tree", tree, index=index)
    result_tree.put_entries(room, entries, index)
    return room.git("write-tree", index=index).decode().strip()
