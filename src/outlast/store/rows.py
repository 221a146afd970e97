"""What every backend makes of its rows: heads, summaries and glimpses, and what to do about damaged ones. No database here."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from outlast import decoders
from outlast.core import events as ev, state
from outlast.core.statuses import CLOSED
from outlast.errors import OutlastError, StoreCorrupt, StoreTooNew
from outlast.store import checksums
from outlast.store.protocol import Document, EventGlimpse, Holder, RunFilter, Summary

TRACE_BYTES = 66  # the end of a stored event, which holds its time and its checksum


class _Glance(msgspec.Struct):
    """The fields that every event has in every version."""

    t: str = ""
    at: datetime | None = None


_glance = decoders.of_json(_Glance).decode


def glimpse(n: int, run: str, seq: int, data: bytes) -> EventGlimpse:
    """See `Store.glimpses`."""
    try:
        event = ev.decode(data)
    except StoreTooNew:
        try:
            seen = _glance(data)
        except msgspec.MsgspecError:
            seen = _Glance()
        return EventGlimpse(n, run, seq, seen.t, seen.at, None)
    return EventGlimpse(n, run, seq, ev.tag_of(event), event.at, event)


def head(run: str, stored: object) -> state.RunState:
    """A stored head, or the empty one if it is damaged or from a newer outlast: the caller then folds the journal."""
    if not isinstance(stored, bytes):
        return state.RunState()
    try:
        found = state.restore(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return state.RunState()
    is_whole = found.run == run and checksums.verdict(stored, run, found.seq) != "damaged"
    return found if is_whole else state.RunState()


def fold_tails(
    rows: Iterable[tuple[int, bytes]], found: dict[int, state.RunState], problems: dict[int, OutlastError]
) -> None:
    """Fold events into the heads of their rows. Where one cannot be decoded: the head before it, and the error."""
    tails: dict[int, list[ev.AnyEvent]] = {}
    for row, data in rows:
        if row in problems:
            continue
        try:
            tails.setdefault(row, []).append(ev.decode(data))
        except StoreTooNew as error:
            problems[row] = error
    for row, events in tails.items():
        try:
            found[row] = state.fold(found[row], events)
        except Exception as error:  # damaged values: the other runs can still be read
            problems[row] = StoreCorrupt(
                f"its events do not follow from each other: {error}",
                hint="it is damaged: see `outlast doctor --all`",
            )


def summary(
    fields: dict[str, Any], holder: Holder | None, found: state.RunState, problem: OutlastError | None
) -> Summary:
    """A run for a list, from its columns and its head."""
    if not found.run:
        problem = problem or StoreCorrupt(
            "it has no events", hint="it is damaged: see `outlast doctor --all`"
        )
        found = msgspec.structs.replace(found, **{name: fields[name] for name in ("run", "task", "project")})
    words = "" if problem is None else f"cannot be read here: {problem.hint or problem}"
    return Summary(holder=holder, state=found, problem=words, **fields)


def fits(found: Summary, where: RunFilter) -> bool:
    """Whether a run's state is one of those asked for."""
    if where.open_only and found.state.status in CLOSED:
        return False
    if where.within and found.state.within != where.within:
        return False  # it was started elsewhere since
    return not where.statuses or found.state.status in where.statuses


def whole_page(
    page: Callable[[int], Sequence[Summary]], where: RunFilter, after: int, limit: int
) -> list[Summary]:
    """So many runs that fit, from pages of runs that may: the last checks are made on heads. `page(after)` has at most `limit`."""
    found: list[Summary] = []
    while len(found) < limit:
        got = page(after)
        found += [summary for summary in got if fits(summary, where)]
        if len(got) < limit:
            break
        after = got[-1].id
    return found[:limit]


def identity(opened: ev.RunOpened) -> tuple[str, str, str, str, int, str]:
    """What a run's row must say, by its first event: run, project, task, parent, the parent's beat, root."""
    parent = opened.parent
    above = (parent.run, parent.beat, parent.root) if parent else ("", 0, opened.run)
    return (opened.run, opened.project, opened.task, *above)


def changed(held: Document, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Replace a document of the shelf that is held by `change(document)`, and return that."""
    before = held.get()
    after = change(before)
    if after != before:
        held.put(after)
    return after
