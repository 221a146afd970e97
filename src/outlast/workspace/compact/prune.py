"""Frees disk space: rewrites our packs without the objects that nothing reaches any more.

Packs of others are never touched, nor young ones of ours, whose save may be about to get its ref."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from outlast import faults
from outlast.errors import SaveDamaged
from outlast.workspace import repo
from outlast.workspace.compact import repack as packed
from outlast.workspace.git import command, refs
from outlast.workspace.git.packs import read_pack_index
from outlast.workspace.git.rooms import room
from outlast.workspace.timing import Timing
from outlast.workspace.vault import bring_in, sources

_OID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_PSEUDO = ("HEAD", "FETCH_HEAD")


def packed_bytes(place: repo.Repo) -> int:
    """The size of our packs on disk."""
    return sum(pack.size_bytes for pack in packed.our_packs(place.packs).values())


def reached_bytes(place: repo.Repo, commits: Sequence[str]) -> int:
    """The disk size of what these commits reach and no branch, tag or remote of the user's does, as git counts it."""
    if not commits:
        return 0
    words = ["rev-list", "--objects", "--disk-usage", "--stdin"]
    others = [f"^{oid}" for oid in _named_by_user(place)]
    return int(command.run(words, git_dir=place.vault, stdin=_lines([*commits, *others])))


def _named_by_user(place: repo.Repo) -> list[str]:
    """What the user's branches, tags and remotes name, of what the vault has: those objects cost nothing."""
    if place.shadow:
        return []
    listed = refs.list_refs(place.common_dir, "refs/")
    oids = {oid for name, oid in listed.items() if not name.startswith("refs/outlast/")}
    for git_dir in sources.of_modules(place.common_dir):
        oids.update(refs.list_refs(git_dir, "refs/").values())
    words = ["cat-file", "--batch-check=%(objectname) %(objecttype)"]
    output = command.run(words, git_dir=place.vault, stdin=_lines(sorted(oids)))
    return [line.split()[0] for line in output.decode().splitlines() if line.endswith((" commit", " tag"))]


def rewrite_packs(place: repo.Repo, *, young_s: float | None = None) -> int:
    """Rewrite our packs without what nothing reaches; return how many bytes that freed.

    It keeps whatever any ref, reflog, index or unfinished merge of the repository reaches, the user's as well as ours:
    git may have dropped its own copy of an object when it saw ours. It does nothing while another process packs. New
    packs are durable before old ones are removed: killed at any point, at worst both exist.
    """
    young_s = Timing.current().young_pack_s if young_s is None else young_s
    with packed.packing_lock(place.packs) as mine:
        if not mine:
            return 0
        before, ours = packed_bytes(place), packed.our_packs(place.packs)
        old = {
            name: set(read_pack_index(place.packs / f"{name}.idx"))
            for name, pack in ours.items()
            if time.time() - pack.written_at_s >= young_s
        }
        reached = _reached(place)
        stale = {name: oids for name, oids in old.items() if not oids <= reached}
        staying = _stay(ours, old, stale, _shared(place, ours))
        if not stale:
            return 0
        wanted = sorted((set().union(*stale.values()) & reached) - staying)
        made = _pack(place, wanted, list(stale)) if wanted else ""
        faults.point("gc.packed")
        bring_in.forget(place.vault)  # what goes now is brought in again if the user comes to need it
        for name in stale:
            if name != made:
                packed.remove(place.packs, name)
        return before - packed_bytes(place)


def _shared(place: repo.Repo, ours: Mapping[str, packed.OurPack]) -> set[str]:
    """The objects in packs that the vault shares with the user's repository."""
    names = packed.brought_packs(place.packs).keys() - ours.keys()
    return set[str]().union(*(read_pack_index(place.packs / f"{name}.idx") for name in names))


def _stay(
    ours: Mapping[str, packed.OurPack],
    old: Mapping[str, set[str]],
    stale: dict[str, set[str]],
    staying: set[str],
) -> set[str]:
    """The objects that stay where they are: `staying`, and those in old packs. An old pack whose objects are all in a bigger one becomes stale as well.

    A pack that a consolidated one replaces does not count: it is removed soon, and what is only there would be lost.
    """
    replaced = {name for pack in ours.values() for name in pack.replaces if name != pack.name}
    left = old.keys() - stale.keys() - replaced
    for name in sorted(left, key=lambda name: (-ours[name].size_bytes, name)):
        if staying.isdisjoint(old[name]):
            staying |= old[name]
        else:
            stale[name] = old[name]
    return staying


def _pack(place: repo.Repo, oids: list[str], stale: list[str]) -> str:
    """Write one durable pack of these objects; return its name."""
    with room(place.vault) as own:
        made = packed.run_git(place, own, oids)
        if not set(oids) <= set(read_pack_index(made.with_suffix(".idx"))):
            raise SaveDamaged(f"git left objects out of {made}")
        packed.publish(place.packs, made, stale)
    return made.stem


def _reached(place: repo.Repo) -> set[str]:
    """Every object that somebody may still ask for."""
    words = ["rev-list", "--objects", "--no-object-names", "--missing=allow-promisor", "--all", "--reflog", "--indexed-objects", "--stdin"]  # fmt: skip
    named = sorted(_named(place))
    there = command.run(
        ["cat-file", "--batch-check=%(objectname) %(objecttype)"],
        git_dir=place.vault,
        stdin=_lines(named),
    )
    tips = [line.split()[0].decode() for line in there.splitlines() if not line.endswith(b" missing")]
    output = command.run(words, git_dir=place.vault, stdin=_lines(tips))
    return set(output.decode().split())


def _named(place: repo.Repo) -> Iterator[str]:
    """Objects that a merge, rebase or fetch of any worktree names in a file that is not a ref."""
    for folder in (place.common_dir, *place.common_dir.glob("worktrees/*/")):
        texts = list(
            repo.in_progress(repo.Repo(folder, folder, place.common_dir, place.algo, place.vault)).values()
        )
        texts += [_text(folder / name) for name in _PSEUDO]
        for text in texts:
            yield from (oid.decode() for oid in _OID.findall(text))


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _lines(words: Sequence[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()
