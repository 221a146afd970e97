"""The stores that pages are looked at with hold what a night can bring, and are the same for the same seed."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from outlast.core import events as ev
from outlast.core.state import Status
from outlast.inspect import find
from outlast.store import open_store
from outlast.store.protocol import RunFilter
from tests.support.journals.held_runs import held
from tests.support.journals.large_stores import long_run, many_runs
from tests.support.journals.night import make_night

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)


def _statuses(root: Path) -> Counter[Status]:
    store = open_store(root)
    try:
        return Counter(find.shown_status(store, each.state, each.root) for each in store.list(RunFilter()))
    finally:
        store.close()


def _journals(root: Path) -> list[bytes]:
    store = open_store(root)
    try:
        runs = [summary.run for summary in store.list(RunFilter())]
        return [ev.encode(item.event) for run in runs for item in store.read(run, after=0).events]
    finally:
        store.close()


def test_a_night_has_runs_of_every_status(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    with held(root) as alive:
        met = _statuses(root)
        assert set(met) == set(get_args(Status))
        assert met["running"] >= 5
        assert met.total() >= 40
        run = next(iter(alive.leases))
        before = alive.head(run).beats
        alive.beat(run)
        assert alive.head(run).beats == before + 1
    assert _statuses(root)["running"] == 0, "nobody holds them any more"


def test_the_same_seed_makes_the_same_night(tmp_path: Path) -> None:
    one, same, other = (
        _journals(make_night(tmp_path / name, seed=seed, now=NOW))
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same
    assert one != other


def test_many_are_many_and_long_is_long(tmp_path: Path) -> None:
    root = many_runs(tmp_path / "many", 1_200)
    store = open_store(root)
    try:
        found = store.list(RunFilter(), limit=2_000)
        assert len(found) == 1_200
        assert any(summary.parent for summary in found)
        run = long_run(root, beats=400)
        assert store.read(run).state.beats == 400
    finally:
        store.close()
