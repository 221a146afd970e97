"""Damage by a power cut in the user's own repository: missing objects, an empty index. Nothing is repaired here.

A plain `git commit` or `git add` flushes nothing. Saves go on without what is lost."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.workspace.git import command, objects
from outlast.workspace.repo import Repo

COMMITS_MAX = 100  # more than an agent commits between two saves


def is_whole(
    place: Repo, tips: Sequence[str], known: str | None, variables: Mapping[str, str] | None = None
) -> bool:
    """Whether everything is readable that these commits and trees reach and the commit `known` does not."""
    words = ["rev-list", "--objects", "--missing=allow-promisor", f"--max-count={COMMITS_MAX}", *tips]
    words += ["--not", known] if known else []
    try:
        listed = command.run(words, git_dir=place.git_dir, variables=variables or place.seeing())
        oids = [line.partition(b" ")[0] for line in listed.splitlines()]
        return not missing(place, oids, variables)
    except SaveFailed:
        return False


def missing(place: Repo, oids: Sequence[bytes], variables: Mapping[str, str] | None = None) -> set[bytes]:
    """The objects of which git cannot even read a header: missing, or an empty file."""
    stdin = b"".join([oid + b"\n" for oid in oids])
    words = ["cat-file", "--batch-check", "--buffer"]
    output = command.run(words, git_dir=place.git_dir, variables=variables or place.seeing(), stdin=stdin)
    return {line.split()[0] for line in output.splitlines() if line.endswith(b" missing")}


def readable(place: Repo, index: Path) -> list[tuple[bytes, bytes, objects.Entry]]:
    """The entries of an index whose objects exist: stage, path, entry. Empty for an unreadable index."""
    try:
        entries = []
        for line in command.names(_listed(place, index)):
            facts, _, path = line.partition(b"\t")
            mode, oid, stage = facts.split()
            if mode != b"160000":
                entries.append((stage, path, objects.Entry(int(mode, 8), oid.decode())))
        lost = missing(place, [entry.oid.encode() for _, _, entry in entries])
    except SaveFailed:
        return []
    return [found for found in entries if found[2].oid.encode() not in lost]


def names_only_readable(place: Repo, index: Path) -> bool:
    """Whether git can read an index, and the objects of all its entries exist."""
    try:
        listed = [line.partition(b"\t")[0].split() for line in command.names(_listed(place, index))]
        return not missing(place, [oid for mode, oid, _ in listed if mode != b"160000"])
    except SaveFailed:
        return False


def can_be_listed(place: Repo, index: Path) -> bool:
    """Whether a file is an index at all."""
    try:
        check_index(place, index)
        _listed(place, index)
    except SaveFailed:
        return False
    return True


def check_index(place: Repo, index: Path) -> None:
    """Raise SaveFailed for a truncated index. Git does not check this, and reads beyond the end."""
    if not index.exists():
        return
    length = place.algo.raw_length
    data = index.read_bytes()
    if data[-length:] not in (
        place.algo.new(data[:-length]).digest(),
        bytes(length),
    ):  # all zeros: `index.skipHash`
        raise SaveFailed(f"cannot read the index of {place.folder}", hint="see `git fsck`")


def _listed(place: Repo, index: Path) -> bytes:
    return command.run(
        ["ls-files", "-s", "-z"], git_dir=place.git_dir, variables={"GIT_INDEX_FILE": str(index)}
    )
