"""Gives objects of a vault back to the user's repository, before its HEAD, index or branch name them again."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outlast import faults
from outlast.errors import SaveFailed
from outlast.store.durable import sync_folder
from outlast.workspace.git import command, refs
from outlast.workspace.git.git_dir import seeing
from outlast.workspace.git.packs import read_pack_index
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.git.rooms import room
from outlast.workspace.repo import Repo

_PLAIN = {"GIT_NO_REPLACE_OBJECTS": "1"}


def give_back(place: Repo, tips: Sequence[str]) -> bool:
    """Put what these objects reach and the user's repository lacks into a pack there; whether there was any.

    Durable when it returns. Git's own gc may do with the pack what it likes: the objects are the user's again.
    """
    wanted = [tip for tip in dict.fromkeys(tips) if tip]
    if place.shadow or not wanted or _has_all(place, wanted):
        return False
    _give(place, [*wanted, *(f"^{oid}" for oid in _shared(place))])
    if not _has_all(place, wanted):
        _give(place, wanted)  # the repository's own refs lack objects: rely on nothing of it
    faults.point("restore.objects")
    return True


def _has_all(place: Repo, wanted: Sequence[str]) -> bool:
    """Whether the user's repository has all that these reach, if its refs are whole."""
    words = ["rev-list", "--objects", "--quiet", "--missing=allow-promisor", *wanted, "--not", "--all"]
    try:
        command.run(words, git_dir=place.common_dir, variables=_PLAIN)
    except SaveFailed:
        return False
    return True


def _shared(place: Repo) -> list[str]:
    """Commits that the user's refs name, and that both have."""
    named = sorted(set(refs.list_refs(place.common_dir, "refs/").values()))
    stdin = "".join(f"{oid}\n" for oid in named).encode()
    both = []
    for git_dir in (place.common_dir, place.vault):
        words = ["cat-file", "--batch-check=%(objectname) %(objecttype)"]
        output = command.run(words, git_dir=git_dir, stdin=stdin, variables=_PLAIN).decode()
        both.append({line.split()[0] for line in output.splitlines() if line.endswith((" commit", " tag"))})
    return sorted(both[0] & both[1])


def _give(place: Repo, revisions: Sequence[str]) -> None:
    give(place.vault, place.common_dir, revisions)


def give(vault: Path, common_dir: Path, revisions: Sequence[str]) -> None:
    """Put what these reach into a pack of another repository. Durable when it returns."""
    with room(vault) as own:
        words = [
            "pack-objects",
            "-q",
            "--revs",
            "--non-empty",
            "--delta-base-offset",
            "--missing=allow-promisor",
        ]
        output = command.run(
            ["-c", "pack.packSizeLimit=0", "-c", "pack.indexVersion=2", *words, str(own / "pack" / "pack")],
            git_dir=vault, stdin="".join(f"{each}\n" for each in revisions).encode(),
            variables={"GIT_OBJECT_DIRECTORY": str(own), **seeing(vault / "objects"), **_PLAIN},
        )  # fmt: skip
        if output.strip():
            _publish(own / "pack" / f"pack-{output.decode().strip()}", common_dir / "objects" / "pack")


def give_objects(vault: Path, common_dir: Path, oids: Sequence[str]) -> None:
    """Put just these objects of a vault into a pack of another repository. Durable when it returns."""
    with room(vault) as own:
        output = command.run(
            ["-c", "pack.packSizeLimit=0", "-c", "pack.indexVersion=2", "pack-objects", "-q", str(own / "pack" / "pack")],
            git_dir=vault, stdin="".join(f"{oid}\n" for oid in oids).encode(),
            variables={"GIT_OBJECT_DIRECTORY": str(own), **seeing(vault / "objects"), **_PLAIN},
        )  # fmt: skip
        _publish(own / "pack" / f"pack-{output.decode().strip()}", common_dir / "objects" / "pack")


def _publish(made: Path, folder: Path) -> None:
    """Move a pack to the user's, durably; its index last, for git looks for nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in (".pack", ".idx"):
        new = folder / f"tmp_pack_{os.getpid()}_{made.name}{suffix}"
        shutil.copyfile(f"{made}{suffix}", new)
        new.chmod(0o444)
        fd = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        new.replace(folder / f"{made.name}{suffix}")
    sync_folder(folder)


def give_anew(
    place: Repo, git_dir: Path, tips: Sequence[str], named: dict[str, str], *, shares_packs: bool = True
) -> dict[str, str]:
    """Give a git folder that has no objects yet what the vault brought in of the user's; the refs that are whole then.

    The user's own packs are linked back, if it `shares_packs`. Without what `tips` reach nothing could be restored, so
    that is an error.
    """
    folder = git_dir / "objects" / "pack"
    for index in sorted(place.packs.glob("pack-*.idx")):
        if shares_packs and not index.with_suffix(".keep").exists():
            _link_back(index, folder)
    new = msgspec.structs.replace(place, common_dir=git_dir)
    there = [
        oid for oid in dict.fromkeys(named.values()) if oid not in set(_lacking(place, list(named.values())))
    ]
    try:
        _give(new, [tip for tip in dict.fromkeys([*tips, *there]) if tip])
    except SaveFailed:  # a branch that nobody saved is not whole any more
        there = []
        _give(new, [tip for tip in tips if tip])
    _cut_off(place.vault, git_dir)
    whole = {*there, *tips}
    return {name: oid for name, oid in named.items() if oid in whole}


def _cut_off(vault: Path, git_dir: Path) -> None:
    """Name the commits without parents in a shallow clone, of those that were given."""
    if not (vault / "shallow").exists():
        return
    there = set[str]().union(*map(read_pack_index, (git_dir / "objects" / "pack").glob("pack-*.idx")))
    lines = [line for line in (vault / "shallow").read_text().split() if line in there]
    if lines:
        (git_dir / "shallow").write_text("".join(f"{line}\n" for line in lines))


def _lacking(place: Repo, oids: Sequence[str]) -> list[str]:
    with ObjectReader(place.vault, command.environment()) as reader:
        return reader.lacking(list(dict.fromkeys(oids)))


def _link_back(index: Path, folder: Path) -> None:
    for suffix in (".pack", ".rev", ".promisor", ".idx"):
        source, new = index.with_suffix(suffix), folder / f"{index.stem}{suffix}"
        if source.exists() and not new.exists():
            try:
                os.link(source, new)
            except OSError:
                shutil.copyfile(source, new)
