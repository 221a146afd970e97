"""Collecting what nobody needs: closed runs that rested for long, then payloads that no event names any more."""

import shutil
from datetime import datetime, timedelta

import msgspec

from outlast import faults
from outlast.core.events import blobs_in
from outlast.core.statuses import CLOSED
from outlast.errors import RunHeld, StoreRewound
from outlast.inspect import find
from outlast.operations import requests
from outlast.operations.timing import Timing
from outlast.store.protocol import RunFilter, Store, Summary


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be. `spared` are old enough but were held or rewound."""

    runs: tuple[str, ...]
    tasks: tuple[str, ...]
    spared: tuple[str, ...]
    blobs: int
    dry_run: bool


def collect(store: Store, older_than: timedelta, now: datetime, *, dry_run: bool = False) -> Collected:
    """Forget closed runs not touched since, then sweep. Safe to repeat after a kill at any point."""
    limit = now - older_than
    old = [summary for summary in find.all_runs(store, RunFilter(parent="")) if _is_old(summary, limit)]
    if dry_run:
        return _collected(old, [], 0, dry_run=True)
    forgotten: list[Summary] = []
    spared: list[Summary] = []
    for summary in old:
        (forgotten if _forget(store, summary) else spared).append(summary)
    blobs = store.blobs.sweep(_named(store), older_than_s=Timing.current().young_blob_s)
    store.sweep_locks()
    _sweep_folders(store)
    return _collected(forgotten, spared, blobs, dry_run=False)


def _sweep_folders(store: Store) -> None:
    """Logs and state files go with their run. Looked for before the runs are listed: a new one is not taken for forgotten."""
    folders = [path for path in store.local.runs.glob("*/") if not path.is_symlink()]
    known = {summary.run for summary in find.all_runs(store, RunFilter())}
    for folder in folders:
        if folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)


def _collected(runs: list[Summary], spared: list[Summary], blobs: int, *, dry_run: bool) -> Collected:
    return Collected(
        runs=tuple(each.run for each in runs), tasks=tuple(each.task for each in runs),
        spared=tuple(each.run for each in spared), blobs=blobs, dry_run=dry_run,
    )  # fmt: skip


def _is_old(summary: Summary, limit: datetime) -> bool:
    state = summary.state
    return state.status in CLOSED and state.updated_at is not None and state.updated_at < limit


def _forget(store: Store, summary: Summary) -> bool:
    """Forget a run nobody holds. Claimed first, so that nobody takes it up meanwhile."""
    try:
        with requests.claimed(store, summary.run) as journal:
            if journal.state.status not in CLOSED:
                return False
            faults.point("gc.before_forget")
            store.forget(summary.run)
            return True
    except (RunHeld, StoreRewound):
        return False


def _named(store: Store) -> set[str]:
    """Every blob that some event names."""
    named: set[str] = set()
    for summary in find.all_runs(store, RunFilter()):
        after = 0
        while page := store.read(summary.run, after=after).events:
            named |= {payload.blob for item in page for payload in blobs_in(item.event)}
            after = page[-1].seq
    return named
