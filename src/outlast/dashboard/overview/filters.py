"""Which runs a person asked to see, in what order, and how many there are of each sort. Pure: rows in, a page out."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from outlast.core.statuses import STATUSES
from outlast.dashboard.documents import Ask, Count, Overview, Row, Sort
from outlast.dashboard.overview import rows
from outlast.dashboard.report import KINDS
from outlast.inspect import find
from outlast.inspect.show import Spent
from outlast.store.protocol import Summary

SIZE_MAX = 500
CHILDREN_MAX = 20  # shown under their root; `Row.children` says how many there are
NEEDS_MAX = 12  # shown whole on top, the latest
STRANDED_MAX = 6
NAMES_MAX = 200  # projects and agents to choose from: those that need a person, then those with the most runs
_KIND = {kind: place for place, kind in enumerate(KINDS)}
_NEEDS_YOU, _STOPPED, _RUNNING = _KIND["needs you"], _KIND["stopped"], _KIND["running"]
# What comes first within a heading: of those that stopped, those that will not restart by themselves; of those that run, the stuck.
_STRANDED, _REST = 2 * _STOPPED, 2 * _STOPPED + 1
_LONG_S = 1e11  # longer than any time since 1970
_FILTERED = 4  # what, status, project, agent: in this order in `FilterRow.sort`
_WHAT, _STATUS, _PROJECT, _AGENT = range(_FILTERED)
_AMOUNTS = ("tokens", "input", "output", "cache_read", "cache_write", "cost_microusd", "beats", "time_ms")
_FLAGS = ("estimated", "subscription", "unpriced")
_amounts = attrgetter(*_AMOUNTS, *_FLAGS)
_place, _active_s = attrgetter("place"), attrgetter("active_s")

# By what each order sorts; all but that of the letters have what is greatest on top.
_KEYS: dict[Sort, str] = {
    "needs": "needs", "activity": "active_s", "created": "id", "spent": "spent", "beats": "beats", "task": "task",
    "project": "named",
}  # fmt: skip


class FilterRow:
    """A row with what sifting needs of it, computed once: it is done over ten thousand of them at each look."""

    __slots__ = (
        "active_s", "amounts", "beats", "hay", "id", "kind", "named", "needs", "parent", "place", "project", "root", "row",
        "run", "sort", "spent", "task",
    )  # fmt: skip

    def __init__(self, summary: Summary, row: Row) -> None:
        self.row = row
        self.id = summary.id
        self.run, self.root, self.parent, self.project = row.run, row.root, row.parent, row.project
        self.kind = _KIND[row.what]
        self.sort = (self.kind, row.status, row.project, row.agent)
        self.active_s = row.active_at.timestamp() if row.active_at else 0.0
        self.place = 2 * self.kind + (not row.stranded and row.quiet != "stuck")
        self.needs = _needs(self.place, self.active_s)
        self.named = (row.project_name.casefold(), row.project, -self.needs)
        self.spent = (row.spent.tokens, row.spent.cost_microusd)
        self.beats = row.beats
        self.task = row.task.casefold()
        self.amounts: tuple[int, ...] = _amounts(row.spent)
        self.hay = rows.haystack(row)


class _Family:
    """A root with those of its runs that are shown below it. It stands where the neediest and latest of them would."""

    __slots__ = (
        "active_s", "beats", "id", "lead", "members", "named", "needs", "place", "project", "spent", "task",
    )  # fmt: skip

    def __init__(self, lead: FilterRow) -> None:
        self.lead = lead
        self.members: list[FilterRow] = []
        self.id, self.place, self.active_s, self.needs = lead.id, lead.place, lead.active_s, lead.needs
        self.named = lead.named
        self.project, self.spent, self.beats, self.task = lead.project, lead.spent, lead.beats, lead.task

    def add(self, child: FilterRow) -> None:
        self.members.append(child)
        self.place = min(self.place, child.place)
        self.active_s = max(self.active_s, child.active_s)
        self.needs = _needs(self.place, self.active_s)
        self.named = (*self.named[:2], -self.needs)


def _needs(place: int, active_s: float) -> float:
    """A sort key by heading and then by activity, as one number: that takes a third of the time of a pair."""
    return active_s - place * _LONG_S


def overview(entries: Sequence[FilterRow], ask: Ask, at: datetime, number: int) -> Overview:
    """The page that was asked for, of entries that come newest first: so do those that are alike in all else."""
    sifted = _Sifted(entries, ask)
    found = sifted.found
    if ask.grouped:
        families = _in_projects(_families(entries, found), ask)
        page, pages, cut = _cut_at_families(families, ask)
        shown = list(_flattened(families[cut]))
    else:
        page, pages, cut = _cut(len(found), ask)
        shown = sorted(found, key=attrgetter(_KEYS[ask.sort]), reverse=_falls(ask))[cut]
    return Overview(
        at=at, number=number, total=len(entries), found=len(found), page=page, pages=pages,
        whats=sifted.counts(_WHAT, KINDS), statuses=sifted.counts(_STATUS, STATUSES),
        projects=sifted.names(_PROJECT), agents=sifted.names(_AGENT), spent=(spent := _spent(found)),
        rows=tuple(entry.row for entry in shown), **_at_a_glance(entries),
        all_spent=spent if len(found) == len(entries) else _spent(entries),
    )  # fmt: skip


def _at_a_glance(entries: Sequence[FilterRow]) -> dict[str, Any]:
    """Over all runs: which need a person, which will not restart by themselves, which are quiet, and how many of each."""
    needing = [entry for entry in entries if entry.kind == _NEEDS_YOU]
    stranded = [entry for entry in entries if entry.place == _STRANDED]
    quiet = Counter(entry.row.quiet for entry in entries if entry.kind == _RUNNING)
    counts = Counter(map(attrgetter("kind"), entries))
    return {
        "needs": _latest(NEEDS_MAX, needing, asking_first=True), "needs_total": len(needing), "idle": quiet["idle"],
        "stuck": quiet["stuck"], "stranded": len(stranded), "stranded_rows": _latest(STRANDED_MAX, stranded),
        "all_whats": tuple(
            Count(name=kind, runs=counts[place], needs_you=counts[place] if place == _NEEDS_YOU else 0)
            for place, kind in enumerate(KINDS)
            if counts[place]
        ),
    }  # fmt: skip


def _latest(most: int, entries: Sequence[FilterRow], *, asking_first: bool = False) -> tuple[Row, ...]:
    """The first of them by their last activity; `asking_first`: those that wait for an answer before all others."""

    def order(entry: FilterRow) -> tuple[bool, float]:
        return asking_first and bool(entry.row.waits_for), _active_s(entry)

    return tuple(entry.row for entry in heapq.nlargest(most, entries, key=order))


def _cut_at_families(families: Sequence["FilterRow | _Family"], ask: Ask) -> tuple[int, int, slice]:
    """The page, the number of pages and the slice, as `_cut`. A run and its children stay on one page."""
    size = max(1, min(ask.size, SIZE_MAX))
    begins, rows = [0], 0
    for place, family in enumerate(families):
        height = 1 if isinstance(family, FilterRow) else 1 + min(CHILDREN_MAX, len(family.members))
        if rows and rows + height > size:
            begins.append(place)
            rows = 0
        rows += height
    page = max(1, min(ask.page, len(begins)))
    return page, len(begins), slice(begins[page - 1], begins[page] if page < len(begins) else len(families))


def _cut(length: int, ask: Ask) -> tuple[int, int, slice]:
    """The page's number, the number of pages, and the slice of rows on it."""
    size = max(1, min(ask.size, SIZE_MAX))
    pages = max(1, -(-length // size))
    page = max(1, min(ask.page, pages))
    return page, pages, slice((page - 1) * size, page * size)


# -- what fits, and how many there are of each ---------------------------------------------------------------------------


class _Sifted:
    """The entries that fit. A run that fails one filter alone counts among the choices of that filter."""

    def __init__(self, entries: Sequence[FilterRow], ask: Ask) -> None:
        self.found: list[FilterRow] = []
        self._failing: list[list[FilterRow]] = [[] for _ in range(_FILTERED)]
        searched = _searched(entries, ask.q)
        filters = [(place, fits) for place, fits in enumerate(_filters(ask)) if fits is not None]
        if not filters:
            self.found = list(searched)
        for entry in searched if filters else ():
            failed = [place for place, fits in filters if not fits(entry)]
            if not failed:
                self.found.append(entry)
            elif len(failed) == 1:
                self._failing[failed[0]].append(entry)
        self._sorts = Counter(map(attrgetter("sort"), self.found))

    def counts(self, place: int, order: Iterable[str]) -> tuple[Count, ...]:
        """How many there are of each of these."""
        tally = self._tally(place)
        if place == _WHAT:
            tally = {KINDS[kind]: counted for kind, counted in tally.items()}
        return tuple(
            Count(name=name, runs=sum(tally[name]), needs_you=tally[name][1])
            for name in order
            if name in tally
        )

    def names(self, place: int) -> tuple[Count, ...]:
        """The names there are to choose from, in the order of their letters."""
        tally = self._tally(place)
        first = sorted(filter(None, tally), key=lambda name: (-tally[name][1], -sum(tally[name]), name))
        made = [
            Count(
                name=name,
                runs=sum(tally[name]),
                needs_you=tally[name][1],
                label=find.project_name(name) if place == _PROJECT else "",
            )
            for name in first[:NAMES_MAX]
        ]
        return tuple(sorted(made, key=lambda count: ((count.label or count.name).casefold(), count.name)))

    def _tally(self, place: int) -> dict[Any, list[int]]:
        """For each name: how many runs need nobody, and how many need a person."""
        tally: dict[Any, list[int]] = {}
        for sorts in (self._sorts, Counter(map(attrgetter("sort"), self._failing[place]))):
            for sort, count in sorts.items():
                tally.setdefault(sort[place], [0, 0])[sort[_WHAT] == _NEEDS_YOU] += count
        return tally


def _searched(entries: Sequence[FilterRow], q: str) -> Sequence[FilterRow]:
    """The runs in which every word of the query occurs: in what is shown of them, or as the beginning of their id."""
    for word in q.casefold().split():
        entries = [entry for entry in entries if word in entry.hay or entry.run.startswith(word)]
    return entries


def _filters(ask: Ask) -> list[Callable[[FilterRow], bool] | None]:
    kinds = {_KIND[what] for what in ask.what}
    return [
        (lambda entry: entry.kind in kinds) if ask.what else None,
        (lambda entry: entry.row.status in ask.status) if ask.status else None,
        (lambda entry: ask.project in (entry.project, entry.row.project_name)) if ask.project else None,
        (lambda entry: entry.row.agent == ask.agent) if ask.agent else None,
    ]


def _spent(found: Sequence[FilterRow]) -> Spent:
    """Their spending together. A child's part is in its root's sum already."""
    there = {entry.run for entry in found if not entry.parent}
    counted = [entry.amounts for entry in found if not entry.parent or entry.root not in there]
    sums = [sum(column) for column in zip(*counted, strict=True)] or [0] * len((*_AMOUNTS, *_FLAGS))
    amounts, flags = sums[: len(_AMOUNTS)], sums[len(_AMOUNTS) :]
    return Spent(
        **dict(zip(_AMOUNTS, amounts, strict=True)),
        **{name: bool(flag) for name, flag in zip(_FLAGS, flags, strict=True)},
    )


# -- order -------------------------------------------------------------------------------------------------------------


def _falls(ask: Ask) -> bool:
    """Whether the greatest comes first."""
    return ask.up == (ask.sort in ("task", "project"))


def _families(entries: Sequence[FilterRow], found: Sequence[FilterRow]) -> Sequence["FilterRow | _Family"]:
    """The roots of the matching rows, each with the matching rows below it."""
    below = [entry for entry in found if entry.parent]
    if not below:
        return found
    wanted = {entry.root for entry in below}
    families = {entry.run: _Family(entry) for entry in entries if entry.run in wanted}
    for entry in below:
        # A root that was forgotten leaves no child; one that is missing all the same stands for itself.
        families.setdefault(entry.root, _Family(entry)).add(entry)
    alone = [entry for entry in found if not entry.parent and entry.run not in families]
    return [*alone, *families.values()]


def _in_projects(families: Sequence["FilterRow | _Family"], ask: Ask) -> list["FilterRow | _Family"]:
    """Projects together: those with something that needs a person first, then those with runs that will not restart by themselves."""
    key, falls = attrgetter(_KEYS[ask.sort]), _falls(ask)
    projects: dict[str, list[FilterRow | _Family]] = {}
    for family in sorted(families, key=key, reverse=falls):
        projects.setdefault(family.project, []).append(family)  # the project of the first family is the first
    if ask.sort != "needs":
        return [family for project in projects.values() for family in project]

    def place(of: list[FilterRow | _Family]) -> tuple[int, float]:
        return -min(_REST, *map(_place, of)), max(map(_active_s, of))

    ordered = sorted(projects.values(), key=place, reverse=falls)
    return [family for project in ordered for family in project]


def _flattened(families: Iterable["FilterRow | _Family"]) -> Iterable[FilterRow]:
    for family in families:
        if isinstance(family, FilterRow):
            yield family
        else:
            yield family.lead
            yield from _below(family)[:CHILDREN_MAX]


def _below(family: _Family) -> list[FilterRow]:
    """The members in the order of a tree, each under its parent, the neediest first and then the latest."""
    there = {entry.run for entry in family.members}
    under: dict[str, list[FilterRow]] = {}
    for entry in sorted(family.members, key=attrgetter("needs"), reverse=True):
        under.setdefault(entry.parent if entry.parent in there else "", []).append(entry)
    ordered: list[FilterRow] = []
    waiting = under.pop("", [])[::-1]
    while waiting:
        entry = waiting.pop()
        if entry is not family.lead:
            ordered.append(entry)
        waiting += under.get(entry.run, [])[::-1]
    return ordered
