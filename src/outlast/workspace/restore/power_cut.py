"""After a power cut: restores files that the kernel had not written yet and that are empty or full of zeros.

That is also done for the user's repository: git flushes neither the objects of a commit nor its index."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from outlast.core.text import count_of
from outlast.errors import SaveError, SaveFailed
from outlast.store import durable
from outlast.workspace import repo, saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.capture.special import damage
from outlast.workspace.git import command, objects, refs
from outlast.workspace.restore import restore, revive
from outlast.workspace.restore.worktree import write_over
from outlast.workspace.timing import Timing
from outlast.workspace.types import raw, text
from outlast.workspace.vault import give_back, partial, record, sources
from outlast.workspace.vault.bring_in import keep_commit

_CHUNK = 1 << 20


def restore_blank_files(saver: Saver, held: saves.SaveContents) -> list[str]:
    """Restore from a save the files that are empty or full of zeros now and were not then; return which."""
    root = os.fsencode(saver.folder) + b"/"
    now = saver.peek()
    empty = []
    for path, there, wanted in restore.changes_between(saver, now.tree, held.tree, now.trees):
        if there is None or wanted is None or not _is_blank(root + path):
            continue
        if not _is_blank_object(saver, wanted.oid):
            empty.append((path, there, wanted))
    restore.put_files(saver, empty)
    return [text(path) for path, _, _ in empty]


def _is_blank(path: bytes) -> bool:
    """Whether a file holds nothing but zeros, or nothing at all."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            if chunk.count(0) != len(chunk):
                return False
    return True


def _is_blank_object(saver: Saver, oid: str) -> bool:
    data = saver.reader().read(oid)[1]
    return data.count(0) == len(data)


# -- the user's repository ---------------------------------------------------------------------------------------

LOOSE_BYTES_MAX = 8 << 20
NAMED_MAX = 5
MOVED = "refs/outlast/hand/moved"
_OWN = {"GIT_NO_REPLACE_OBJECTS": "1"}  # git sees the user's own objects alone


def mend_repository(saver: Saver, held: saves.SaveContents) -> str:
    """Give the repository back what HEAD and index name and a power cut took; say what that was, empty if nothing.

    A branch without its newest commits goes back to where the save has it, if the cut took them for good. What is moved
    although it is readable is in the vault first. What cannot be mended is said, and keeps nothing else from it.
    """
    place = saver.repo()
    if place.shadow or held.meta.shadow:
        return ""
    saves.check_names(held)
    done = []
    with saver.lock():
        for mend in (_free_empty, _mend_index, _mend_branches, _mend_head, _mend_objects):
            try:
                done.append(mend(saver, place, held))
            except (SaveError, OSError) as error:
                done.append(f"something is not mended, because {error}")
    done = [each for each in done if each]
    return f"after the reboot, in the repository of {place.folder}: {'; '.join(done)}" if done else ""


def _free_empty(_: Saver, place: repo.Repo, held: saves.SaveContents) -> str:
    """Remove empty objects: git takes them for what it has, and writes them no more, or fails on them."""
    folder = place.common_dir / "objects"
    for name in sources.loose_folders(folder):
        for oid in sources.loose_in(folder, name):
            if _is_empty(_loose(folder, oid)):
                _loose(folder, oid).unlink(missing_ok=True)
    return ""


def _mend_index(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> str:
    """An index that nobody can read, or that names what nobody has: as the save has it."""
    index = place.index
    is_whole = damage.can_be_listed(place, index) and (
        partial.is_partial(place) or damage.names_only_readable(place, index)
    )
    if is_whole or not held.meta.index:
        return ""
    restore.put_index(saver, held)
    return f"the index was damaged, and is as in save {held.commit[:12]}"


def _mend_branches(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> str:
    """Refs that the save noted, and that are empty or name a commit nobody has any more: to where they were."""
    noted = _noted(saver, place, held)
    listed = refs.list_refs(place.common_dir, "refs/")
    there = {name: listed.get(name, "") for name in noted}
    lost = _lost(saver, place, {oid for name, oid in there.items() if oid and oid != noted[name]})
    wrong = [name for name, oid in there.items() if (oid in lost if oid else _is_gone(place, name, held))]
    lacking = set(saver.vault_reader().lacking([noted[name] for name in wrong])) if wrong else set()
    mended = [name for name in wrong if noted[name] not in lacking]
    for name in mended:
        refs.write_ref(place.common_dir, name, noted[name], old=there[name] or refs.ANY)
    names = ", ".join(f"{name} at {noted[name][:12]}" for name in mended[:NAMED_MAX])
    return f"refs without their commits are where save {held.commit[:12]} has them: {names}" if mended else ""


def _noted(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> dict[str, str]:
    """The refs that the save noted, with the branch that was checked out."""
    noted = record.refs_in(
        revive.noted_in(held.entries.get(record.ENTRY), saver.reader(), place.algo).get(b"refs", b"")
    )
    if held.meta.branch and held.meta.head:
        noted[os.fsdecode(raw(held.meta.branch))] = held.meta.head
    return noted


def _lost(saver: Saver, place: repo.Repo, oids: set[str]) -> set[str]:
    """Those that nobody has whole any more: the object itself, or the tree of a commit."""
    lost = _unreadable(saver, place, oids)
    if partial.is_partial(place):
        return lost  # a tree may be promised
    trees = {}
    for oid in oids - lost:
        with contextlib.suppress(SaveError):
            kind, data = saver.reader().read(oid)
            trees[oid] = objects.parse_commit(data).tree if kind == "commit" else oid
    gone = _unreadable(saver, place, set(trees.values()))
    return lost | {oid for oid, tree in trees.items() if tree in gone}


def _unreadable(saver: Saver, place: repo.Repo, oids: set[str]) -> set[str]:
    """Those of these objects that are missing or torn, and not in the vault."""
    missing = {oid.decode() for oid in damage.missing(place, [oid.encode() for oid in oids])}
    torn = _torn(place, oids - missing)
    return missing | ({*saver.vault_reader().lacking(torn)} if torn else set())


def _is_gone(place: repo.Repo, ref: str, held: saves.SaveContents) -> bool:
    """Whether a cut took a ref that is not there: all that are packed, or the branch that is checked out.

    A person may remove that too, or make the repository anew; then its folder was written since the save.
    """
    loose, packed = place.common_dir / ref, place.common_dir / "packed-refs"
    with contextlib.suppress(OSError):
        if os.path.lexists(loose):
            return _is_blank(os.fsencode(loose))
        if packed.exists() and _is_blank(os.fsencode(packed)):
            return True
        head = os.fsdecode(durable.read_plain(place.git_dir / "HEAD")).strip()
        folder = next(each for each in loose.parents if each.exists())
        return head == f"ref: {ref}" and _is_older(folder, held)
    return False


def _mend_head(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> str:
    """HEAD where the save has it, if its file is older than the save, or names a commit that nobody has any more."""
    now, wanted = repo.head(place), repo.Head(held.meta.head, held.meta.branch)
    if now == wanted or not wanted.oid:
        return ""
    file = place.git_dir / "HEAD"
    is_lost = not now.branch and bool(_lost(saver, place, {now.oid}))
    if (now.branch, wanted.branch) == ("", "") or now.branch != wanted.branch:
        if not (is_lost or _is_older(file, held)):
            return ""
        if not (is_lost or now.branch):
            keep_commit(place, f"{MOVED}/{now.oid[:16]}", now.oid)
        write_over(
            os.fsencode(file),
            b"ref: %b\n" % raw(wanted.branch) if wanted.branch else f"{wanted.oid}\n".encode(),
        )
        return f"HEAD is back at {wanted.branch or wanted.oid[:12]}, and was at {now.branch or now.oid[:12]}"
    branch = os.fsdecode(raw(wanted.branch))
    if not _is_older(place.common_dir / branch, held):
        return ""
    if now.oid:
        keep_commit(place, f"{MOVED}/{now.oid[:16]}", now.oid)
    refs.write_ref(place.common_dir, branch, wanted.oid, old=now.oid or None)
    return f"{branch} is back at {wanted.oid[:12]}, and was at {now.oid[:12] or 'none'}"


def _mend_objects(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> str:
    """The objects that the newest commits and the index reach, and that only the vault has whole."""
    folder = place.common_dir / "objects"
    oids, broken = _reached(saver, place, held)
    with contextlib.suppress(SaveFailed):
        oids |= {entry.oid.encode() for _, _, entry in damage.readable(place, place.index)}
    torn = {oid.encode() for oid in _torn(place, [oid.decode() for oid in oids])}
    lost = sorted(oid.decode() for oid in damage.missing(place, sorted(oids), _OWN) | torn)
    lacking = set(saver.vault_reader().lacking(lost)) if lost else set()
    found = [oid for oid in lost if oid not in lacking]
    if found:
        give_back.give_objects(place.vault, place.common_dir, found)
    for oid in found:
        _loose(folder, oid).unlink(missing_ok=True)
    parts = []
    if found:
        parts.append(
            f"{count_of(len(found), 'object')} that its commits or its index name came back from the vault"
        )
    if broken or lacking:
        names = ", ".join(broken[:NAMED_MAX]) or "its commits"
        parts.append(f"objects of {names} are gone for good: see `git fsck`")
    return "; ".join(parts)


def _reached(saver: Saver, place: repo.Repo, held: saves.SaveContents) -> tuple[set[bytes], list[str]]:
    """What HEAD and the branches reach; of one that lacks objects what the save has of it, and its name."""
    listed = refs.list_refs(place.common_dir, "refs/heads/")
    tips = {**listed, "HEAD": repo.head(place).oid}
    missing = damage.missing(place, [oid.encode() for oid in tips.values() if oid])
    tips = {name: oid for name, oid in tips.items() if oid and oid.encode() not in missing}
    with contextlib.suppress(SaveFailed):
        return _walked(place, tips.values()), []
    found, broken = set[bytes](), []
    noted = {*_noted(saver, place, held).values()}
    noted -= {*saver.vault_reader().lacking(sorted(noted))}
    with contextlib.suppress(SaveFailed):
        found |= _walked(place, noted)
    for name, oid in list(tips.items())[-damage.COMMITS_MAX :]:
        try:
            found |= _walked(place, [oid]) if oid not in noted else set()
        except SaveFailed:
            broken.append(name)
    return found, broken


def _walked(place: repo.Repo, tips: Iterable[str]) -> set[bytes]:
    words = ["rev-list", "--objects", "--missing=allow-promisor", f"--max-count={damage.COMMITS_MAX}", "--stdin"]  # fmt: skip
    stdin = "".join(f"{tip}\n" for tip in tips).encode()
    listed = command.run(words, git_dir=place.git_dir, variables=place.seeing(), stdin=stdin)
    return {line.partition(b" ")[0] for line in listed.splitlines()}


def _loose(folder: Path, oid: str) -> Path:
    return Path(sources.loose_path(folder, oid))


def _torn(place: repo.Repo, oids: Iterable[str]) -> list[str]:
    """Those of these objects that are loose ones, and not what their names say."""
    folder, torn = place.common_dir / "objects", []
    for oid in oids:
        try:
            sources.read_loose(folder, oid, place.algo, bytes_max=LOOSE_BYTES_MAX)
        except sources.Damaged:
            torn.append(oid)
        except (sources.Big, OSError):
            pass  # too big to be read here, or in a pack
    return torn


def _is_older(path: Path, held: saves.SaveContents) -> bool:
    """Whether nobody wrote a file since the save looked: then what the save found there is lost.

    Files that were copied or unpacked have old times; when that happened, their inodes say.
    """
    if held.meta.looked_at is None:
        return False
    with contextlib.suppress(OSError):
        found = path.stat()
        return (
            max(found.st_mtime, found.st_ctime)
            < held.meta.looked_at.timestamp() - Timing.current().file_tick_s
        )
    return False


def _is_empty(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == 0
    return False
