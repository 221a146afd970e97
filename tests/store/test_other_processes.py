"""What other processes do to a store while this one has it open: forget and bring back, put back, write what is not known here."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from outlast.core import events as ev
from outlast.core.values import Contract, Parent
from outlast.dashboard import report
from outlast.errors import StoreTooNew
from outlast.store import open_store
from outlast.store.protocol import Batch, RunFilter, Store
from outlast.supervisor.control import wake

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
UNKNOWN = b'{"t":"brand_new_kind","at":"2026-11-16T04:00:00Z","more":1}'
DAMAGED = b"\x00\xffno json"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(open_store(tmp_path / "store")) as opened:
        yield opened


@pytest.fixture
def other(store: Store) -> Iterator[Store]:
    with contextlib.closing(open_store(store.local.folder)) as opened:
        yield opened


def opened(run: str, parent: Parent | None = None) -> ev.RunOpened:
    return ev.RunOpened(
        at=NOW, run=run, task=f"t-{run}", project="p", contract=Contract("goal"), parent=parent
    )


def stages(count: int, at: datetime = NOW) -> list[ev.AnyEvent]:
    return [ev.StageSet(at=at, stage=f"{'of many words ' * 9}{number}") for number in range(count)]


def beat(number: int) -> ev.BeatDone:
    return ev.BeatDone(at=NOW, beat=number)


def inject(store: Store, run: str, data: bytes, kind: str | None = "brand_new_kind") -> None:
    """An event as a newer outlast, or a fault of the disk, leaves it."""
    with contextlib.closing(apsw.Connection(str(store.local.folder / "outlast.db"))) as connection:
        connection.execute(
            "INSERT INTO events(run, seq, kind, data) SELECT r.id, (SELECT max(seq) + 1 FROM events WHERE run = r.id), ?, ?"
            " FROM runs r WHERE r.run = ?",
            (kind, data, run),
        )


def spoil_head(store: Store, run: str, data: bytes) -> None:
    with contextlib.closing(apsw.Connection(str(store.local.folder / "outlast.db"))) as connection:
        sql = "UPDATE heads SET state = ? WHERE id = (SELECT id FROM runs WHERE run = ?)"
        connection.execute(sql, (data, run))


# -- forgotten and brought back ----------------------------------------------------------------------------------------


def test_a_run_that_was_forgotten_and_brought_back_is_read_as_it_is_now(store: Store, other: Store) -> None:
    child = opened("child1", Parent(run="run1", beat=1, root="run1"))
    journal = [beat(1), *stages(3)]
    store.create(opened("run1"), journal, children=[(child, stages(2))])
    looks = [
        lambda: [item.event for item in store.read("run1", after=0).events],
        lambda: [item.event for item in store.read("child1", after=0).events],
        lambda: store.read("run1").state,
        lambda: store.event_counts("run1"),
        lambda: [item.event for item in store.beat_ends("run1")],
        lambda: [item.event for item in store.beat_end_sample("run1", 5)],
    ]
    before = [look() for look in looks]
    other.forget("run1")
    other.create(opened("run1"), journal, children=[(child, stages(2))])
    assert [look() for look in looks] == before
    other.inbox.put("run1", by="me", what="pause")
    assert [request.what for request in store.inbox.pending("run1")] == ["pause"]


def test_a_run_that_was_forgotten_and_brought_back_is_written_again(store: Store, other: Store) -> None:
    child = opened("child1", Parent(run="run1", beat=1, root="run1"))
    for turn in range(2):
        store.create(opened("run1"), children=[(child, [])])
        lease = store.claim("run1")
        store.append(Batch(lease, "run1", 1, (*stages(1),)))
        store.append(Batch(lease, "child1", 1, (*stages(2),)))
        store.release(lease)
        assert len(store.read("child1", after=0).events) == 3, turn
        other.forget("run1")


# -- put back ----------------------------------------------------------------------------------------------------------


def put_back(store: Store, copy: Path) -> None:
    """As a restore into the open file does it."""
    with (
        contextlib.closing(apsw.Connection(str(copy))) as source,
        contextlib.closing(apsw.Connection(str(store.local.folder / "outlast.db"))) as target,
        target.backup("main", source, "main") as backup,
    ):
        backup.step(-1)


def copied(store: Store, to: Path) -> Path:
    with (
        contextlib.closing(apsw.Connection(str(store.local.folder / "outlast.db"))) as source,
        contextlib.closing(apsw.Connection(str(to))) as target,
        target.backup("main", source, "main") as backup,
    ):
        backup.step(-1)
    return to


@pytest.mark.parametrize("grown", [3, 4, 40], ids=["as far", "further", "much further"])
def test_a_store_that_was_put_back_and_has_grown_since_is_read_anew(
    store: Store, other: Store, tmp_path: Path, grown: int
) -> None:
    store.create(opened("run1"))
    copy = copied(store, tmp_path / "copy.db")
    lease = other.claim("run1")
    other.append(Batch(lease, "run1", 1, (*stages(3),)))
    seen = store.changes(0)
    assert not seen.anew
    assert store.changes(seen.number, seen.trace) == type(seen)(seen.number, (), False, seen.trace)
    put_back(store, copy)
    other.release(lease)
    other.accept_rewind("run1")
    lease = other.claim("run1")
    other.append(Batch(lease, "run1", 1, (*stages(grown, NOW + timedelta(hours=1)),)))
    found = store.changes(seen.number, seen.trace)
    assert found.anew
    assert found.number == grown + 1
    assert not store.changes(found.number, found.trace).anew


def test_what_comes_after_an_event_that_is_still_there_is_no_reason_to_read_anew(store: Store) -> None:
    store.create(opened("run1"))
    seen = store.changes(0)
    store.create(opened("run2"))
    found = store.changes(seen.number, seen.trace)
    assert (found.runs, found.anew) == (("run2",), False)


# -- what cannot be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [UNKNOWN, DAMAGED], ids=["newer", "damaged"])
def test_a_run_that_cannot_be_read_stands_apart_for_those_who_look(store: Store, data: bytes) -> None:
    store.create(opened("run1"), stages(2))
    store.create(opened("run2"), stages(2))
    inject(store, "run1", data)
    good, bad = store.list(RunFilter(), unreadable=True)
    assert (good.run, good.problem) == ("run2", "")
    assert bad.run == bad.state.run == "run1"
    assert bad.state.seq == 3, "as of the last event that can be read"
    assert "upgrade" in bad.problem
    with pytest.raises(StoreTooNew):
        store.list(RunFilter())  # who acts on what is found must not be told half of it
    assert [summary.run for summary in store.list(RunFilter(runs=("run2",)))] == ["run2"]


def test_a_run_of_which_nothing_can_be_read_is_named(store: Store) -> None:
    store.create(opened("run1"))
    spoil_head(store, "run1", b'{"garbage":')
    with contextlib.closing(apsw.Connection(str(store.local.folder / "outlast.db"))) as connection:
        connection.execute("UPDATE events SET data = ?", (DAMAGED,))
    (found,) = store.list(RunFilter(), unreadable=True)
    assert (found.state.run, found.state.task, found.state.project) == ("run1", "t-run1", "p")
    assert found.problem


@pytest.mark.parametrize("head", [b'{"garbage":', b'{"status":"never heard of"}'], ids=["damaged", "newer"])
def test_a_head_that_cannot_be_read_is_made_anew_from_the_journal(store: Store, head: bytes) -> None:
    store.create(opened("run1"), [beat(1), *stages(3)])
    before = store.list(RunFilter())
    spoil_head(store, "run1", head)
    assert store.list(RunFilter()) == before
    history = store.read("run1")
    assert (history.state.seq, [item.seq for item in history.events]) == (0, [1, 2, 3, 4, 5])


def test_events_that_cannot_be_read_are_heard_of(store: Store) -> None:
    store.create(opened("run1"))
    inject(store, "run1", UNKNOWN)
    inject(store, "run1", DAMAGED, kind=None)
    store.create(opened("run2"))
    first, newer, damaged, last = store.glimpses(0, wait_s=0)
    assert (newer.n, newer.run, newer.seq, newer.tag, newer.event) == (2, "run1", 2, "brand_new_kind", None)
    assert newer.at == datetime(2026, 11, 16, 4, tzinfo=UTC)
    assert (damaged.n, damaged.seq, damaged.tag, damaged.at, damaged.event) == (3, 3, "", None, None)
    assert (first.tag, last.tag, last.event) == ("run_opened", "run_opened", opened("run2"))


def test_of_events_across_all_runs_those_that_cannot_be_read_are_left_out(store: Store) -> None:
    for number in range(3):
        store.create(opened(f"run{number}"), [ev.Warned(at=NOW, level=f"{number}")])
    inject(store, "run2", b'{"t":"warned","at":"yesterday"}', kind="warned")
    inject(store, "run1", b'{"t":"warned","at":"yesterday"}', kind="warned")
    protocol: Store = store
    for limit in (1, 2, 10):
        found = protocol.events_of_kinds(("warned",), limit=limit)
        assert [item.run for item in found] == ["run2", "run1", "run0"][:limit]


def test_a_run_of_a_newer_outlast_keeps_no_other_from_being_woken_or_told(store: Store) -> None:
    for name in ("run1", "run2"):
        store.create(opened(name), stages(2))
    inject(store, "run1", UNKNOWN)
    told = {each.run: (each.wake, each.why) for each in wake.sleepers(store)}
    assert told["run1"][0] is False
    assert "cannot be read here" in told["run1"][1]
    assert set(told) == {"run1", "run2"}
    assert wake.sleepers(store, parked_only=True) == []
    page = report.page(store, NOW - timedelta(days=1), NOW + timedelta(days=1))
    whats = {row.run: (row.what, row.why) for row in page.runs}
    assert whats["run1"][0] == "needs you"
    assert "cannot be read here" in whats["run1"][1]
    assert set(whats) == {"run1", "run2"}
