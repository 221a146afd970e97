"""Brings what the user's repository has into its vault: packs by hard link, loose objects in the save's own pack.

So a save reaches only what is in the vault, and what git itself never flushed is durable with the save."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from outlast import decoders
from outlast.errors import SaveFailed
from outlast.store.durable import sync_folder
from outlast.workspace.compact import repack
from outlast.workspace.git import command, refs
from outlast.workspace.git.git_dir import seeing, write_config
from outlast.workspace.git.objects import Algo, parse_commit
from outlast.workspace.git.packs import PackWriter, read_pack_index
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.git.rooms import room
from outlast.workspace.repo import YOUNG_NS, Repo
from outlast.workspace.types import raw, text
from outlast.workspace.vault import sources

TRIES = 8
BIG_BYTES = 8 << 20  # a loose object of more is packed by git, outside of our memory
OIDS_FOR_GIT_MAX = 300  # whether the vault has more objects than that, its pack indexes tell sooner than git
INDEXES_BYTES = 8 << 20
_NOTE = "brought"
_UNLINKABLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTSUP}
)
_FIRST_SUFFIXES = (".pack", ".rev", ".promisor")  # the index comes last: git looks for nothing else
_PROMISOR = '[remote "promisor"]\n\tpromisor = true\n'
_QUICK = ("-c", "pack.compression=1", "-c", "pack.packSizeLimit=0", "-c", "pack.indexVersion=2")


class Seen(msgspec.Struct):
    """What was looked at in one folder of objects: when each of its folders had last been changed."""

    packs: int = 0
    loose: dict[str, int] = {}


class Brought(msgspec.Struct):
    """What a vault has of a repository, as far as it was looked at."""

    seen: dict[str, Seen] = {}
    shallow: list[tuple[int, int]] = []


class Tips(NamedTuple):
    """What a save reaches in a repository: objects, and an index. Asked only where packs cannot be linked."""

    git_dir: Path
    common_dir: Path
    named: Sequence[str]
    index_file: Path | None = None
    known: Sequence[str] = ()


class BringIn:
    """One look at a user's repository and those of its submodules. `take` before the save's pack is closed, `done` after that."""

    def __init__(self, vault: Path, algo: Algo, has: ObjectReader, tips: Sequence[Tips]) -> None:
        self._vault, self._algo, self._has, self._tips = vault, algo, has, tips
        self._note = load(vault)
        self._now = Brought()
        self._unlinked: list[Path] = []  # packs
        self.damaged: set[str] = set()

    def take(self, pack: PackWriter) -> None:
        """Link or copy packs, and add loose objects to a pack that is about to be closed.

        It looks until nothing has changed while it looked, because git adds an object's parts before the object.
        """
        for _ in range(TRIES):
            try:
                before = self._look()
                self._link_packs()
                self._take_loose(pack)
                if self._look() == before:
                    break
            except FileNotFoundError:
                continue  # git packed or removed it meanwhile
        if self._unlinked:
            self._copy_needed()

    def done(self) -> None:
        """Note what was looked at. The save's pack is durable by now, so this is true after a power cut as well."""
        self._note_shallow()
        new = self._vault / f"{_NOTE}.{os.getpid()}"
        new.write_bytes(msgspec.msgpack.encode(self._now))
        new.replace(self._vault / _NOTE)

    def _look(self) -> dict[str, Seen]:
        folders = [each for tips in self._tips for each in sources.object_folders(tips.common_dir)]
        found = {
            text(folder): Seen(sources.pack_stamp(folder), sources.loose_folders(folder))
            for folder in folders
        }
        self._now.seen = _without_young(found)
        self._looked = {
            folder: Seen(seen.packs, dict(seen.loose)) for folder, seen in found.items()
        }  # with the young ones
        return self._looked

    # -- packs -----------------------------------------------------------------------------------------------------

    def _link_packs(self) -> None:
        self._unlinked = []
        for folder, seen in self._looked.items():
            known = self._note.seen.get(folder)
            if known is None or not seen.packs or known.packs != seen.packs:
                self._link_new(_path(folder))

    def _link_new(self, objects: Path) -> None:
        there = self._vault / "objects" / "pack"
        for name in sources.packs_in(objects):
            if (there / f"{name}.idx").exists() and (there / f"{name}.pack").exists():
                continue
            try:
                self._link(objects / "pack", there, name)
            except OSError as error:
                if error.errno not in _UNLINKABLE:
                    raise
                self._unlinked.append(objects / "pack" / name)
                self._now.seen[text(objects)].packs = 0  # look at them again next time

    def _link(self, folder: Path, there: Path, name: str) -> None:
        for suffix in (*_FIRST_SUFFIXES, ".idx"):
            if suffix in (".rev", ".promisor") and not (folder / f"{name}{suffix}").exists():
                continue
            _flush(folder / f"{name}{suffix}")
            with contextlib.suppress(FileExistsError):
                os.link(folder / f"{name}{suffix}", there / f"{name}{suffix}", follow_symlinks=True)
        if (there / f"{name}.promisor").exists():
            mark_partial(self._vault, self._algo)

    def _copy_needed(self) -> None:
        """Packs that cannot be linked: copy what HEAD, index and a merge need of them; if git cannot, all of them."""
        with room(self._vault) as own:
            try:
                made = [_pack_reached(self._vault, own, tips) for tips in self._tips]
            except SaveFailed:
                self._copy_all()
                return
            for pack in filter(None, made):
                repack.publish(self._vault / "objects" / "pack", pack, [])

    def _copy_all(self) -> None:
        there = self._vault / "objects" / "pack"
        for pack in self._unlinked:
            for suffix in (*_FIRST_SUFFIXES, ".idx"):
                source = pack.with_name(f"{pack.name}{suffix}")
                if not source.exists():
                    continue
                new = there / f"tmp_copy_{os.getpid()}{suffix}"
                shutil.copyfile(source, new)
                _flush(new)
                new.replace(there / source.name)
            if (there / f"{pack.name}.promisor").exists():
                mark_partial(self._vault, self._algo)

    # -- loose objects -----------------------------------------------------------------------------------------------

    def _take_loose(self, pack: PackWriter) -> None:
        for folder, seen in self._looked.items():
            known = self._note.seen.get(folder, Seen()).loose
            objects, found = _path(folder), list[str]()
            for name, changed_ns in seen.loose.items():
                if known.get(name) != changed_ns:
                    found += sources.loose_in(objects, name)
            new = [oid for oid in found if oid not in self.damaged and not pack.holds(oid)]
            big = [oid for oid in self._lacking(new) if not self._add(objects, oid, pack, BIG_BYTES)]
            if big and not self._pack_big(objects, big):
                for oid in big:
                    self._add(objects, oid, pack, None)

    def _lacking(self, oids: Sequence[str]) -> Iterable[str]:
        """The objects that the vault lacks. For many, its pack indexes are read: git takes 20 times as long."""
        if len(oids) <= OIDS_FOR_GIT_MAX:
            return self._has.lacking(oids) if oids else []
        indexes = list((self._vault / "objects" / "pack").glob("pack-*.idx"))
        if sum(index.stat().st_size for index in indexes) > INDEXES_BYTES:
            return self._has.lacking(oids)
        there = set[str]().union(*(read_pack_index(index) for index in indexes))
        return [oid for oid in oids if oid not in there]

    def _add(self, objects: Path, oid: str, pack: PackWriter, bytes_max: int | None) -> bool:
        """Put a loose object into the save's pack, unless it is damaged; False if it is too big."""
        try:
            kind, data = sources.read_loose(objects, oid, self._algo, bytes_max=bytes_max)
        except sources.Damaged:
            self.damaged.add(oid)
        except sources.Big:
            return False
        else:
            pack.add_named(oid, kind, data)
        return True

    def _pack_big(self, objects: Path, oids: Sequence[str]) -> bool:
        """Let git pack big ones, in a pack of their own; False if git fails at a damaged one."""
        with room(self._vault) as own:
            words = ["pack-objects", "-q", "--window=0", str(own / "pack" / "pack")]
            try:
                output = command.run(
                    [*_QUICK, *words], git_dir=self._vault, stdin="".join(f"{oid}\n" for oid in oids).encode(),
                    variables={"GIT_OBJECT_DIRECTORY": str(own), **seeing(objects)},
                )  # fmt: skip
            except SaveFailed:
                return False
            (name,) = output.decode().split()
            repack.publish(self._vault / "objects" / "pack", own / "pack" / f"pack-{name}.pack", [])
        return True

    # -- a shallow clone -----------------------------------------------------------------------------------------------

    def _note_shallow(self) -> None:
        """Name the commits of the vault whose parents it lacks, as git does in a shallow clone."""
        ours = self._vault / "shallow"
        theirs = [tips.common_dir / "shallow" for tips in self._tips]
        self._now.shallow = [_stamp(each) for each in theirs]
        if self._now.shallow == self._note.shallow and self._note.seen:
            return
        named = set(_lines(ours)).union(*map(_lines, theirs))
        lacking = sorted(oid for oid in named if self._lacks_parents(oid))
        if lacking:
            new = self._vault / f"shallow.{os.getpid()}"
            new.write_text("".join(f"{oid}\n" for oid in lacking))
            _flush(new)
            new.replace(ours)
        else:
            ours.unlink(missing_ok=True)

    def _lacks_parents(self, oid: str) -> bool:
        held = self._has.read_many([oid]).get(oid)
        return held is not None and bool(self._has.lacking(parse_commit(held).parents))


def keep_commit(place: Repo, ref: str, oid: str) -> None:
    """Put a commit of the user's under a ref of the vault, with all it reaches. Durable when it returns."""
    with ObjectReader(place.vault, command.environment()) as has:
        lacking = has.lacking([oid])
    if lacking:
        bring(place, [oid])
    refs.write_ref(place.vault, ref, oid, old=refs.ANY)


def bring(place: Repo, commits: Sequence[str]) -> None:
    """Bring in what the user's repository has, or at least what these commits reach. Durable when it returns."""
    with (
        ObjectReader(place.vault, command.environment()) as has,
        PackWriter(place.packs, place.algo, lazy=True) as pack,
    ):
        brought = BringIn(place.vault, place.algo, has, [Tips(place.git_dir, place.common_dir, commits)])
        brought.take(pack)
        pack.close()
        sync_folder(place.packs)  # for packs that were linked
        brought.done()


def load(vault: Path) -> Brought:
    """What was looked at before; nothing if that cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decoders.of_msgpack(Brought).decode((vault / _NOTE).read_bytes())
    return Brought()


def forget(vault: Path) -> None:
    """Look at everything next time: something was removed from the vault."""
    (vault / _NOTE).unlink(missing_ok=True)


def mark_partial(vault: Path, algo: Algo) -> None:
    """Tell git that objects may be missing, because the user's repository is a partial clone. Nothing is fetched."""
    with contextlib.suppress(OSError):
        if _PROMISOR in (vault / "config").read_text():
            return
    write_config(vault, algo.name, _PROMISOR)


def _without_young(found: dict[str, Seen]) -> dict[str, Seen]:
    """Without the times of folders that may change again and keep their time."""
    limit = time.time_ns() - YOUNG_NS
    return {
        folder: Seen(
            seen.packs if seen.packs < limit else 0,
            {name: at_ns for name, at_ns in seen.loose.items() if at_ns < limit},
        )
        for folder, seen in found.items()
    }


def _pack_reached(vault: Path, own: Path, tips: Tips) -> Path | None:
    """One pack of what these tips and this index reach, and what the vault has not; None if that is nothing."""
    wanted = "".join([f"{oid}\n" for oid in tips.named] + [f"^{oid}\n" for oid in tips.known])
    words = ["pack-objects", "-q", "--revs", "--non-empty", "--delta-base-offset", "--window=0"]
    variables = {
        "GIT_OBJECT_DIRECTORY": str(own), "GIT_NO_REPLACE_OBJECTS": "1",
        **seeing(tips.common_dir / "objects", vault / "objects"),
    }  # fmt: skip
    if tips.index_file is not None:
        words.append("--indexed-objects")
        variables["GIT_INDEX_FILE"] = str(tips.index_file)
    output = command.run(
        [*_QUICK, *words, str(own / "pack" / "pack")], git_dir=tips.git_dir, variables=variables,
        stdin=wanted.encode(),
    )  # fmt: skip
    return own / "pack" / f"pack-{output.decode().strip()}.pack" if output.strip() else None


def _path(shown: str) -> Path:
    return Path(os.fsdecode(raw(shown)))


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _stamp(path: Path) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        file_stat = path.stat()
        return file_stat.st_mtime_ns, file_stat.st_size
    return 0, 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split()
    except OSError:
        return []
