"""How a run stands, with facts that only this host knows: whether its supervisor lives, and its guardian's note."""

from datetime import UTC, datetime

import msgspec

from outlast.core.state import Status
from outlast.inspect import find, show, standing
from outlast.inspect.standing import Standing
from outlast.operations import requests
from outlast.store.protocol import Store, Summary
from outlast.supervisor.guardian import lock


def of(store: Store, summary: Summary, status: Status | None = None, now: datetime | None = None) -> Standing:
    """How a run stands now. `status` is its status as shown, where the caller knows it."""
    state = summary.state
    shown = find.shown_status(store, state, summary.root) if status is None else status
    waits = stop_was_wanted = False
    if shown in ("interrupted", "in_doubt") and state.supervised and not summary.parent:
        waits = supervisor_of(store, summary.run) != 0
        stop_was_wanted = state.attempt is not None and lock.stop_was_wanted(
            store.local, summary.run, state.attempt.epoch
        )
    at = now or datetime.now(UTC)
    return standing.of(state, shown, at, find.children_in(store), waits=waits, was_signalled=stop_was_wanted)


def with_children(store: Store, shown: show.Shown) -> show.Shown:
    """The run with how each of its children stands, and each run inside of it."""

    def word(run: str, status: Status) -> str:
        return of(store, requests.summary_of(store, run), status).word

    replace = msgspec.structs.replace
    children = tuple(replace(child, standing=word(child.run, child.status)) for child in shown.children)
    inside = tuple(replace(each, standing=word(each.run, each.status)) for each in shown.inside)
    return replace(shown, children=children, inside=inside)


def supervisor_of(store: Store, run: str) -> int:
    """The pid of a run's supervisor, also between two attempts; 0 if it has no supervisor."""
    watcher = lock.of(store.local, run)
    return watcher.supervisor if watcher is not None else 0
