"""Saves on their way to another repository: making a self-contained git bundle, and taking its refs in durably.

A bundle is not trusted: it must be whole, name only refs it may name, and contain no path that leads out of a folder."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from outlast import faults
from outlast.errors import SaveDamaged, SaveFailed, WorkspaceRefused
from outlast.workspace.capture.private_index import in_quarantine
from outlast.workspace.compact import repack
from outlast.workspace.git import command, refs
from outlast.workspace.repo import Repo
from outlast.workspace.vault import bring_in

LINE_MAX_BYTES = 4_096
REFS_MAX = 100_000
PLACE = "outlast-importing"
_FIRST = re.compile(rb"# v[23] git bundle\n")
_FORMAT = b"@object-format="
_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (refs/\S+)\n")
_OURS = re.compile(r"refs/outlast/([a-z0-9]+)/([a-z-]+(?:/[A-Za-z0-9-]+)?)")
_NO_REPLACING = {"GIT_NO_REPLACE_OBJECTS": "1"}
# Known harmless flaws of old histories. Names that lead out of a folder, or into .git, stay errors.
_HARMLESS = (
    "badDate", "badDateOverflow", "badEmail", "badFilemode", "badName", "badTagName", "badTimezone", "missingEmail",
    "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "missingTaggerEntry", "multipleAuthors",
    "nulInCommit", "zeroPaddedDate", "zeroPaddedFilemode",
)  # fmt: skip


class Header(NamedTuple):
    """What a bundle says before its pack: the hash format, and its refs."""

    form: str
    refs: dict[str, str]


# -- making --------------------------------------------------------------------------------------------------------


def make(place: Repo, names: Sequence[str], to: Path) -> Header:
    """Write refs and everything they reach into a file, and check it. Raises SaveFailed if objects are missing."""
    if command.run(["rev-parse", "--is-shallow-repository"], git_dir=place.vault) == b"true\n":
        raise SaveFailed(f"{place.folder} is a shallow clone: it lacks objects that its saves need")
    words = ["-c", "pack.packSizeLimit=0", "bundle", "create", "--quiet", str(to), "--stdin"]
    stdin = "".join(f"{name}\n" for name in names).encode()
    command.run(words, git_dir=place.vault, stdin=stdin, variables=_NO_REPLACING)
    command.run(["bundle", "verify", "--quiet", str(to)], git_dir=place.vault)
    with to.open("rb") as file:
        return header(file)


# -- reading -------------------------------------------------------------------------------------------------------


def header(file: IO[bytes]) -> Header:
    """Read a bundle up to its pack. Raises SaveDamaged if it is not a bundle, or needs other commits."""
    if not _FIRST.fullmatch(file.readline(LINE_MAX_BYTES)):
        raise SaveDamaged("cannot read the bundle of the saves")
    form, found = "sha1", dict[str, str]()
    for _ in range(REFS_MAX):
        line = file.readline(LINE_MAX_BYTES)
        if line == b"\n":
            return Header(form, found)
        ref = _REF.fullmatch(line)
        if ref:
            found[os.fsdecode(ref[2])] = ref[1].decode()
        elif line.startswith(_FORMAT):
            form = line.removeprefix(_FORMAT).decode(errors="replace").strip()
        else:
            raise SaveDamaged(f"the bundle of the saves is not self-contained: it says {line[:60]!r}")
    raise SaveDamaged(f"the bundle of the saves has more than {REFS_MAX:,} refs")


# -- taking in -----------------------------------------------------------------------------------------------------


def take_in(place: Repo, chunks: Iterable[bytes], names: Mapping[str, str]) -> dict[str, str]:
    """Take the refs of a bundle into a repository. `names` gives each run's new name. Durable when it returns.

    Changes only objects and refs of ours. Killed anywhere, calling it again completes it. Raises SaveDamaged if the bundle
    is not whole or has other refs; raises WorkspaceRefused, with nothing changed, if a ref exists with another value.
    """
    if not place.shadow:
        bring_in.bring(place, [])  # so that only what is new comes from the bundle
    with _room(place) as room:
        bundle = room / "saves.bundle"
        with bundle.open("wb") as file:
            file.writelines(chunks)
        with bundle.open("rb") as file:
            bundle_header = header(file)
            wanted = _wanted(place, bundle_header, names)
            if _missing(place, wanted):
                _index(place, room, file)
                bundle.unlink()
                _publish(place, room, sorted(set(wanted.values())))
    faults.point("import.packed")
    for ref in _missing(place, wanted):
        refs.write_ref(place.vault, ref, wanted[ref], old=None)
    return wanted


def _wanted(place: Repo, bundle_header: Header, names: Mapping[str, str]) -> dict[str, str]:
    """The refs under their new names here."""
    if bundle_header.form != place.algo.name:
        raise WorkspaceRefused(
            f"{place.folder} is a repository with {place.algo.name}, the saves have {bundle_header.form}",
            hint="bring them into a folder that does not exist yet: --workspace DIR",
        )
    wanted = {}
    for ref, oid in bundle_header.refs.items():
        ours = _OURS.fullmatch(ref)
        if ours is None or ours[1] not in names:
            raise SaveDamaged(f"the bundle of the saves has a ref of another run: {ref[:80]!r}")
        wanted[f"refs/outlast/{names[ours[1]]}/{ours[2]}"] = oid
    if not wanted:
        raise SaveDamaged("the bundle of the saves has no refs")
    return wanted


def _missing(place: Repo, wanted: Mapping[str, str]) -> list[str]:
    """The refs that do not exist yet. A ref with another value is somebody's work, and is never replaced."""
    there = refs.list_refs(place.vault, "refs/outlast/")
    for ref, oid in wanted.items():
        if there.get(ref, oid) != oid:
            raise WorkspaceRefused(
                f"{ref} in {place.folder} is {there[ref][:12]}, the export has {oid[:12]}; nothing was changed",
                hint="the run went on there as well; bring this one into a folder that does not exist yet: --workspace DIR",
            )
    return [ref for ref in wanted if ref not in there]


@contextlib.contextmanager
def _room(place: Repo) -> Iterator[Path]:
    """A temporary folder beside the repository's own, for one import at a time. Removes what a killed import left."""
    top = place.vault / PLACE
    top.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(fd), top.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise WorkspaceRefused(f"another import is working in {place.folder}", hint="wait for it")
        for left in top.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        room = (
            top / os.urandom(6).hex()
        )  # a git that outlived its killed import may still write to the old folder
        (room / "pack").mkdir(parents=True)
        try:
            yield room
        finally:
            shutil.rmtree(top, ignore_errors=True)
    finally:
        os.close(fd)


def _index(place: Repo, room: Path, file: IO[bytes]) -> None:
    """Index the bundle's pack, inside `room` only: every object must exist, and no path may lead out of a folder."""
    pack = room / "pack" / "incoming.pack"
    with pack.open("wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    strict = "--strict=" + ",".join(f"{name}=ignore" for name in _HARMLESS)
    try:
        command.run(
            ["index-pack", strict, "--check-self-contained-and-connected", str(pack)],
            git_dir=place.vault, variables={"GIT_OBJECT_DIRECTORY": str(room)},
        )  # fmt: skip
    except SaveFailed as error:
        raise SaveDamaged(f"the bundle of the saves is not whole, or not safe: {error}") from error


def _publish(place: Repo, room: Path, tips: list[str]) -> None:
    """Put what the repository lacks into a durable pack of ours there, then check that nothing is missing."""
    try:
        made = _pack(place, room, [*tips, *(f"^{oid}" for oid in _reached(place))])
    except SaveFailed:  # the repository's own refs lack objects: rely on nothing of it
        made = _pack(place, room, tips)
    if made is not None:
        repack.publish(place.packs, made, [])
    stdin = "".join(f"{oid}\n" for oid in tips).encode()
    command.run(["rev-list", "--objects", "--quiet", "--stdin"], git_dir=place.vault, stdin=stdin)


def _reached(place: Repo) -> list[str]:
    """The refs of the vault and of the repository, as far as the vault has their objects."""
    own = {} if place.shadow else refs.list_refs(place.common_dir, "refs/")
    named = {*refs.list_refs(place.vault, "refs/").values(), *own.values()}
    listed = "".join(f"{oid}\n" for oid in sorted(named)).encode()
    words = ["cat-file", "--batch-check=%(objectname) %(objecttype)"]
    lines = command.run(words, git_dir=place.vault, stdin=listed).decode().splitlines()
    return sorted({line.split()[0] for line in lines if line.endswith((" commit", " tag"))})


def _pack(place: Repo, room: Path, revisions: list[str]) -> Path | None:
    """One pack of the objects of these revisions; None if there are none."""
    output = command.run(
        ["-c", "pack.packSizeLimit=0", "pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", str(room / "pack" / "pack")],
        git_dir=place.vault, stdin="".join(f"{each}\n" for each in revisions).encode(),
        variables=_NO_REPLACING | in_quarantine(place, room),
    )  # fmt: skip
    return room / "pack" / f"pack-{output.decode().strip()}.pack" if output.strip() else None
