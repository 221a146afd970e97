"""Thinning the saves of a run: the kept saves become a chain of their own, which no longer reaches the others.

The order makes it safe to kill: new commits durable, refs moved to them, old refs deleted. Calling it again completes it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from outlast import faults
from outlast.workspace import repo, saves
from outlast.workspace.git import objects, refs
from outlast.workspace.git.packs import PackWriter
from outlast.workspace.git.reader import ObjectReader
from outlast.workspace.saves import SaveContents

REFS = "refs/outlast/"


class ThinnedRun(NamedTuple):
    """New commits of the kept saves, by their old ones; and the deleted refs."""

    rewritten: dict[str, str]
    refs: tuple[str, ...]


class Tip(NamedTuple):
    """What a ref leads to: a save and all before it; or, newest first, only those of them that are `chosen`."""

    commit: str
    chosen: tuple[SaveContents, ...] = ()

    def saves(self, place: repo.Repo, reader: ObjectReader) -> Iterator[SaveContents]:
        """Its saves, newest first."""
        yield from self.chosen
        commit = "" if self.chosen else self.commit
        while commit:
            held = saves.read(reader, commit, place.algo)
            yield held
            commit = held.previous

    def reached_from(self, reader: ObjectReader) -> set[str]:
        """Objects from which git finds everything it will reach, except what will be written anew."""
        found = set() if self.chosen else {self.commit}
        for held in self.chosen:
            w, i, m = _parts(reader, held)
            found |= {w.tree, i.tree, m.tree, *w.parents[:-1], *i.parents[:-1], *_others(m, held)}
        return found

    def anew_bytes(self, reader: ObjectReader) -> int:
        """An upper bound for what will be written anew: three commits and a meta.json for each save."""
        size = 0
        for held in self.chosen:
            w, i, _ = _parts(reader, held)
            names = (held.commit, w.parents[-1], i.parents[-1], held.entries[b"meta.json"].oid)
            size += sum(reader.size(oid) for oid in names)
        return size


def tips(place: repo.Repo) -> dict[str, Tip]:
    """What the refs of all runs lead to now."""
    return {ref: Tip(commit) for ref, commit in refs.list_refs(place.vault, REFS).items()}


def is_of_saves(ref: str) -> bool:
    """Whether a ref leads to saves. Refs that keep a moved branch's commits do not: those are the user's."""
    return "/moved/" not in ref


def anchor_ref(run: str) -> str:
    """The single anchor of a finished run."""
    return f"{REFS}{run}/kept"


def refs_of(place: repo.Repo, run: str) -> dict[str, str]:
    """The refs that lead to saves of a run."""
    listed = refs.list_refs(place.vault, f"{REFS}{run}/")
    return {name: oid for name, oid in listed.items() if is_of_saves(name)}


def thin(
    place: repo.Repo, reader: ObjectReader, run: str, keep: Sequence[SaveContents], *, anchor: bool
) -> ThinnedRun:
    """Keep some saves of a run (oldest first) and drop the others. With `anchor` one ref leads to them all.

    A kept save has the same trees, messages and times. Only its link to the save before differs, and so its commit id.
    """
    named = _rewrite(place, reader, keep)
    before = refs_of(place, run)
    if anchor and keep:
        refs.write_ref(place.vault, anchor_ref(run), named[keep[-1].commit], old=refs.ANY)
    removed = []
    for ref, commit in before.items():
        if ref == anchor_ref(run) and anchor and keep:
            continue
        if commit in named and not anchor:
            if named[commit] != commit:
                refs.write_ref(place.vault, ref, named[commit], old=commit)
            continue
        faults.point("gc.before_ref")
        refs.delete_ref(place.vault, ref, commit)
        removed.append(ref)
    return ThinnedRun(named, tuple(removed))


def _rewrite(place: repo.Repo, reader: ObjectReader, keep: Sequence[SaveContents]) -> dict[str, str]:
    named: dict[str, str] = {}
    previous: list[str] = []
    with PackWriter(place.packs, place.algo, known=reader.has) as pack:
        for number, held in enumerate(keep, 1):
            new = _rewritten(reader, pack, held, previous, number)
            named[held.commit], previous = new, [new]
        pack.close()
    reader.close()  # a running git does not see new packs at once
    return named


def _rewritten(
    reader: ObjectReader, pack: PackWriter, held: SaveContents, previous: list[str], number: int
) -> str:
    """Write the save again with another save, or none, before it."""
    w, i, m = _parts(reader, held)
    meta = msgspec.json.decode(reader.read(held.entries[b"meta.json"].oid)[1])
    meta["number"] = number
    blob = pack.add("blob", msgspec.json.format(msgspec.json.encode(meta), indent=1))
    entries = {**held.entries, b"meta.json": objects.Entry(objects.FILE, blob)}
    m_new = _add(
        pack, m._replace(tree=pack.add("tree", objects.tree_bytes(entries))), [*previous, *_others(m, held)]
    )
    i_new = _add(pack, i, [*i.parents[:-1], m_new])
    return _add(pack, w, [*w.parents[:-1], i_new])


def _add(pack: PackWriter, commit: objects.Commit, parents: Sequence[str]) -> str:
    data = objects.commit_bytes(commit.tree, parents, objects.WHO, commit.at, commit.message)
    return pack.add("commit", data)


def _parts(reader: ObjectReader, held: SaveContents) -> tuple[objects.Commit, objects.Commit, objects.Commit]:
    """The three commits of a save: worktree, index, meta."""
    w = _commit(reader, held.commit)
    i = _commit(reader, w.parents[-1])
    return w, i, _commit(reader, i.parents[-1])


def _others(m: objects.Commit, held: SaveContents) -> tuple[str, ...]:
    """The commits that a merge or rebase in progress named: parents of a save's meta besides the save before."""
    return m.parents[1:] if held.previous else m.parents


def _commit(reader: ObjectReader, oid: str) -> objects.Commit:
    return objects.parse_commit(reader.read(oid)[1])


def newest_first(place: repo.Repo, reader: ObjectReader, run: str) -> list[SaveContents]:
    """Every save that the refs of a run reach, newest first."""
    seen: dict[str, SaveContents] = {}
    for tip in set(refs_of(place, run).values()):
        commit = tip
        while commit and commit not in seen:
            seen[commit] = saves.read(reader, commit, place.algo)
            commit = seen[commit].previous
    return sorted(seen.values(), key=lambda held: (held.meta.at, held.meta.number), reverse=True)
