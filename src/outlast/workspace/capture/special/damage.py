"""What a power cut leaves of the user's own repository: names of objects that never reached the disk, an empty index.

A plain `git commit` or `git add` flushes nothing. Saves go on without what is lost; nothing is repaired here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from outlast.errors import SaveFailed
from outlast.workspace.git import command, objects
from outlast.workspace.repo import Repo

COMMITS_MAX = 100  # what an agent may have committed since the last save that vouches for the rest


def is_whole(
    place: Repo, tips: Sequence[str], known: str | None, variables: Mapping[str, str] | None = None
) -> bool:
    """Whether all that these commits and trees reach, and the commit `known` does not, can be read."""
    words = ["rev-list", "--objects", "--missing=allow-promisor", f"--max-count={COMMITS_MAX}", *tips]
    words += ["--not", known] if known else []
    try:
        listed = command.run(words, git_dir=place.git_dir, variables=variables)
        oids = [line.partition(b" ")[0] for line in listed.splitlines()]
        return not _missing(place, oids, variables)
    except SaveFailed:
        return False


def _missing(place: Repo, oids: Sequence[bytes], variables: Mapping[str, str] | None = None) -> set[bytes]:
    """Those of which git cannot read so much as a header: not there, or an empty file."""
    stdin = b"".join([oid + b"\n" for oid in oids])
    words = ["cat-file", "--batch-check", "--buffer"]
    said = command.run(words, git_dir=place.git_dir, variables=variables, stdin=stdin)
    return {line.split()[0] for line in said.splitlines() if line.endswith(b" missing")}


def readable(place: Repo, index: Path) -> list[tuple[bytes, bytes, objects.Entry]]:
    """The entries of an index whose objects are there: stage, path, entry. None of an index that cannot be read."""
    try:
        entries = []
        for line in command.names(_listed(place, index)):
            told, _, path = line.partition(b"\t")
            mode, oid, stage = told.split()
            if mode != b"160000":
                entries.append((stage, path, objects.Entry(int(mode, 8), oid.decode())))
        lost = _missing(place, [entry.oid.encode() for _, _, entry in entries])
    except SaveFailed:
        return []
    return [found for found in entries if found[2].oid.encode() not in lost]


def names_only_readable(place: Repo, index: Path) -> bool:
    """Whether git can read an index, and the objects of all its entries are there."""
    try:
        listed = [line.partition(b"\t")[0].split() for line in command.names(_listed(place, index))]
        return not _missing(place, [oid for mode, oid, _ in listed if mode != b"160000"])
    except SaveFailed:
        return False


def can_be_listed(place: Repo, index: Path) -> bool:
    """Whether an index is one at all."""
    try:
        check_index(place, index)
        _listed(place, index)
    except SaveFailed:
        return False
    return True


def check_index(place: Repo, index: Path) -> None:
    """Raise SaveFailed where the end of an index is not there. Git does not look, and reads what is not in the file."""
    if not index.exists():
        return
    length = place.algo.raw_length
    data = index.read_bytes()
    if data[-length:] not in (
        place.algo.new(data[:-length]).digest(),
        bytes(length),
    ):  # zeros: `index.skipHash`
        raise SaveFailed(f"the index of {place.folder} cannot be read", hint="see `git fsck`")


def _listed(place: Repo, index: Path) -> bytes:
    return command.run(
        ["ls-files", "-s", "-z"], git_dir=place.git_dir, variables={"GIT_INDEX_FILE": str(index)}
    )
