"""Saves in a list: every save that a ref of ours reaches, with what it says of itself. Damaged ones are passed over."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from outlast.core.events import SaveKind
from outlast.errors import SaveDamaged
from outlast.workspace import refs, saves, trees
from outlast.workspace.capture import Saver
from outlast.workspace.objects import parse_commit
from outlast.workspace.saves import Held
from outlast.workspace.seam import LeftOut

REFS = "refs/outlast/"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A save in a list. `ref` is its own, or the nearest later one of its run through which it can be reached.

    `changed` is null where what it is compared with cannot be read.
    """

    commit: str
    at: datetime
    kind: SaveKind
    run: str
    task: str
    beat: int
    reason: str
    changed: int | None
    left_out: tuple[LeftOut, ...]
    ref: str
    folder: str
    hinted: bool = False
    warning: str = ""


def points(saver: Saver, run: str = "") -> Iterator[Point]:
    """The saves of a run, or of all in a repository, newest first."""
    for held, ref in _with_refs(saver, run):
        meta = held.meta
        yield Point(
            commit=held.commit, at=meta.at, kind=meta.kind, run=meta.run, task=meta.task, beat=meta.beat,
            reason=meta.reason, changed=_changed(saver, held), left_out=meta.left_out, ref=ref,
            folder=meta.folder, hinted=meta.hinted, warning=meta.warning,
        )  # fmt: skip


def _with_refs(saver: Saver, run: str) -> list[tuple[Held, str]]:
    """Every save below the refs of a run (or of all), each with the ref that reaches it, newest first."""
    place = saver.repo()
    prefix = f"{REFS}{run}/" if run else REFS
    listed = refs.list_refs(place.common_dir, prefix)
    tips = {commit: name for name, commit in listed.items() if is_anchor(name)}
    seen: dict[str, tuple[Held, str]] = {}
    for tip, ref in sorted(tips.items(), key=lambda pair: pair[1]):
        for held in _chain(saver, tip):
            if held.commit in seen:
                break
            ref = tips.get(held.commit, ref)
            seen[held.commit] = held, ref
    return sorted(seen.values(), key=lambda found: (found[0].meta.at, found[0].meta.number), reverse=True)


def is_anchor(ref: str) -> bool:
    """Whether a ref of ours leads to a save; the others keep the commits of a branch that was moved back."""
    return "/moved/" not in ref


def _chain(saver: Saver, commit: str) -> Iterator[Held]:
    """A save and those before it, as far as they can be read."""
    while commit:
        try:
            held = saves.read(saver.reader(), commit, saver.repo().algo)
        except SaveDamaged:
            return
        yield held
        commit = held.previous


def _changed(saver: Saver, held: Held) -> int | None:
    """How many files differ from the save before, or from HEAD where there is none of the same folder."""
    reader, algo = saver.reader(), saver.repo().algo
    try:
        before = _tree_before(saver, held)
        return sum(1 for _ in trees.diff(before, held.tree, lambda oid: reader.read(oid)[1], algo))
    except SaveDamaged:
        return None


def _tree_before(saver: Saver, held: Held) -> str | None:
    reader, algo = saver.reader(), saver.repo().algo
    if held.previous:
        previous = saves.read(reader, held.previous, algo)
        if previous.meta.folder == held.meta.folder:
            return previous.tree
    return parse_commit(reader.read(held.meta.head)[1]).tree if held.meta.head else None
