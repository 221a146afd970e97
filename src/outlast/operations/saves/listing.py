"""Saves in a list: every save that a ref of ours reaches, with what it says of itself. Damaged ones are passed over."""

import heapq
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from outlast.core.events import SaveKind
from outlast.errors import SaveDamaged
from outlast.workspace import saves
from outlast.workspace.capture.saver import Saver
from outlast.workspace.git import refs, trees
from outlast.workspace.git.objects import parse_commit
from outlast.workspace.saves import SaveContents
from outlast.workspace.types import LeftOut

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
    for held, ref in reached(saver, tips(saver, run)):
        yield point(held, ref, changed(saver, held))


def point(held: SaveContents, ref: str, changed: int | None) -> Point:
    """A save as it is listed."""
    meta = held.meta
    return Point(
        commit=held.commit, at=meta.at, kind=meta.kind, run=meta.run, task=meta.task, beat=meta.beat,
        reason=meta.reason, changed=changed, left_out=meta.left_out, ref=ref,
        folder=meta.folder, hinted=meta.hinted, warning=meta.warning,
    )  # fmt: skip


def tips(saver: Saver, run: str) -> dict[str, str]:
    """The commits that refs of a run (or of all) name, with the refs."""
    prefix = f"{REFS}{run}/" if run else REFS
    listed = refs.list_refs(saver.repo().vault, prefix)
    return {commit: name for name, commit in listed.items() if is_anchor(name)}


def reached(
    saver: Saver,
    tips: Mapping[str, str],
    known: Mapping[str, SaveContents] = MappingProxyType({}),
    *,
    known_only: bool = False,
) -> list[tuple[SaveContents, str]]:
    """Every save below these refs, each with the ref that reaches it, newest first. Those that are known are not read.

    With `known_only` nothing is, so a chain ends at the first that is not known.
    """
    seen: dict[str, tuple[SaveContents, str]] = {}
    for tip, ref in sorted(tips.items(), key=lambda pair: pair[1]):
        for held in _chain(saver, tip, known, known_only=known_only):
            if held.commit in seen:
                break
            ref = tips.get(held.commit, ref)
            seen[held.commit] = held, ref
    return sorted(seen.values(), key=lambda found: (found[0].meta.at, found[0].meta.number), reverse=True)


def read_on(
    saver: Saver, tips: Mapping[str, str], known: dict[str, SaveContents], until_s: float, most: int
) -> bool:
    """Read saves below these refs that are not known yet, the newest first, and add them; whether all are known then.

    No more than `most` are, and none after `until_s` of the monotonic clock.
    """
    open_, heap = set(tips), list[tuple[float, int, str, str]]()
    # The names of most refs end with a time.
    todo = deque(sorted(tips, key=lambda tip: tips[tip].rpartition("/")[2], reverse=True))
    while todo or heap:
        commit = todo.popleft() if todo else heapq.heappop(heap)[3]
        held = known.get(commit)
        if held is None:
            if len(known) >= most or time.monotonic() >= until_s:
                return False
            try:
                held = known[commit] = saves.read(saver.reader(), commit, saver.repo().algo)
            except SaveDamaged:
                continue
        if held.previous and held.previous not in open_:
            open_.add(held.previous)
            heapq.heappush(heap, (-held.meta.at.timestamp(), -held.meta.number, commit, held.previous))
    return True


def is_anchor(ref: str) -> bool:
    """Whether a ref of ours leads to a save; the others keep the commits of a branch that was moved back."""
    return "/moved/" not in ref


def _chain(
    saver: Saver, commit: str, known: Mapping[str, SaveContents], *, known_only: bool
) -> Iterator[SaveContents]:
    """A save and those before it, as far as they can be read."""
    while commit:
        held = known.get(commit)
        if held is None and known_only:
            return
        try:
            held = held or saves.read(saver.reader(), commit, saver.repo().algo)
        except SaveDamaged:
            return
        yield held
        commit = held.previous


def changed(saver: Saver, held: SaveContents) -> int | None:
    """How many files differ from the save before, or from HEAD where there is none of the same folder."""
    reader, algo = saver.reader(), saver.repo().algo
    try:
        before = before_it(saver, held)[1]
        return sum(1 for _ in trees.diff(before, held.tree, lambda oid: reader.read(oid)[1], algo))
    except SaveDamaged:
        return None


def before_it(saver: Saver, held: SaveContents) -> tuple[str, str | None]:
    """What a save is compared with: the one before of the same folder, else HEAD at that time; its commit and tree."""
    reader, algo = saver.reader(), saver.repo().algo
    if held.previous:
        previous = saves.read(reader, held.previous, algo)
        if previous.meta.folder == held.meta.folder:
            return previous.commit, previous.tree
    return held.meta.head, tree_of(saver, held.meta.head)


def tree_of(saver: Saver, commit: str) -> str | None:
    """The tree of a commit; None for no commit."""
    return parse_commit(saver.reader().read(commit)[1]).tree if commit else None
