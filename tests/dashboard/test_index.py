"""The index of all runs: it says what the commands say, keeps up with what is written, and asks a constant number of questions."""

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.core.values import NOTHING, Allowance, Contract, Parent, Usage
from outlast.dashboard import report
from outlast.dashboard.documents import Ask, Row
from outlast.dashboard.overview.index import Index
from outlast.dashboard.timing import Timing
from outlast.errors import UnknownRun
from outlast.inspect import find, ledger, show, standing
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.dashboard.pen import AT, HOUR, Pen, beat, ended, intended, runs_of, started

# -- it says what the commands say ------------------------------------------------------------------------------------


def random_events(rng: random.Random, beats: int, at: datetime) -> list[ev.AnyEvent]:
    """Some of what a journal may hold next."""
    choices: list[Callable[[], list[ev.AnyEvent]]] = [
        lambda: [started(at)],
        lambda: [ended(rng.choice(["interrupted", "failed", "paused", "parked"]), rng.choice(["budget", "crash", "signal", "stall"]), at)],
        lambda: [beat(beats + 1, at, rng.randrange(1, 9_000))],
        lambda: [ev.BeatBegun(at=at, beat=beats + 1, step="doing"), intended(beats + 1, rng.randrange(1, 3), rng.choice(["ask", "probe", "tell", "give_up", "reissue"]), at)],
        lambda: [ev.Parked(at=at, cause="quota", until=rng.choice([None, at + HOUR, at + 200 * HOUR]), evidence="limit")],
        lambda: [ev.StageSet(at=at, stage=rng.choice(["reading", "writing"]))],
        lambda: [ev.SpendSettled(at=at, key="k", usage=Usage(output=rng.randrange(5_000), cost_microusd=rng.randrange(10**6)))],
        lambda: [ev.PlanSet(at=at, steps=NOTHING, total=rng.randrange(1, 20))],
        lambda: [ev.Finished(at=at)],
        lambda: [ev.Warned(at=at, level="budget 50%")],
        lambda: [ev.SaveMade(at=at, commit="c" * 40, kind="emergency")],
    ]  # fmt: skip
    return [event for _ in range(rng.randrange(1, 4)) for event in rng.choice(choices)()]


def random_store(pen: Pen, rng: random.Random, count: int) -> None:
    roots: list[str] = []
    for number in range(count):
        at = AT + number * timedelta(minutes=1)
        parent = None
        if roots and rng.random() < 0.3:
            root = rng.choice(roots)
            above = rng.choice(
                pen.store.list(RunFilter(runs=(root,))) + pen.store.list(RunFilter(parent=root))
            )
            parent = Parent(above.run, above.state.beats + rng.randrange(2), root)
        budget = rng.choice(
            [None, Allowance(tokens=20_000), Allowance(beats=5, time_s=3600), Allowance(until=at + HOUR)]
        )
        run = pen.open(
            f"t{number}", *random_events(rng, 0, at), project=f"/src/p{number % 4}/.git", parent=parent, budget=budget, at=at,
            agent=rng.choice(["", "claude", "codex"]),
        )  # fmt: skip
        roots += [] if parent else [run]


def write_on(pen: Pen, rng: random.Random, count: int) -> None:
    for step in range(count):
        summary = rng.choice(pen.store.list(RunFilter()))
        at = AT + HOUR + step * timedelta(minutes=1)
        pen.write(summary.run, *random_events(rng, summary.state.beats, at))
        if rng.random() < 0.5:
            pen.release()


def by_the_commands(store: Store, row: Row, now: datetime) -> None:
    """What `show`, `report` and `budget` would say, each with questions of its own."""
    summary = store.list(RunFilter(runs=(row.run,)))[0]
    state = summary.state
    status = find.shown_status(store, state, summary.root)
    listed = show.listed(store, summary)
    assert (row.status, row.cause, row.in_doubt) == (status, listed.cause, listed.in_doubt)
    if summary.parent:
        assert row.act in (None, "settle")
        return
    children = find.children_in(store)
    stands = standing.of(state, status, now, children)
    assert (row.what, row.why, row.command) == report.judged(children, state, stands, now)
    assert (row.standing, row.needs) == (stands.word, stands.need)
    glance = ledger._glance(store, summary, now)
    assert row.spent == glance.spent
    limited = {unit.unit: (unit.spent, unit.limit, unit.forecast) for unit in glance.units if unit.limit}
    assert {
        meter.unit: (meter.spent, meter.limit, meter.forecast) for meter in row.meters if meter.limit
    } == limited


def test_every_row_says_what_the_commands_say(store: Store, pen: Pen, rng: random.Random) -> None:
    random_store(pen, rng, 40)
    now = AT + 3 * HOUR
    index = Index(store, clock=lambda: now, timing=Timing(look_s=0.0))
    for row in index.rows():
        by_the_commands(store, row, now)
    write_on(pen, rng, 40)
    index.refresh()
    for row in index.rows():
        by_the_commands(store, row, now)


def test_an_index_that_was_kept_up_to_date_is_one_that_was_made_anew(
    store: Store, pen: Pen, rng: random.Random
) -> None:
    now = AT + 3 * HOUR
    random_store(pen, rng, 20)
    index = Index(store, clock=lambda: now, timing=Timing(look_s=0.0))
    for _ in range(12):
        write_on(pen, rng, 4)
        if rng.random() < 0.3:
            pen.release()
            roots = store.list(RunFilter(parent=""))
            store.forget(rng.choice(roots).run)
        if rng.random() < 0.3:
            pen.open(f"new{rng.random()}", *random_events(rng, 0, AT), project="/src/new/.git")
        fresh = Index(store, clock=lambda: now)
        kept = index.overview(Ask(size=500, grouped=rng.random() < 0.5))
        assert index.number == fresh.number == store.last_number()
        made = {row.run: row for row in fresh.rows()}
        for row in index.rows():
            assert row == made.pop(row.run)
        assert not made
        assert kept.total == len(fresh.rows())


def test_a_run_that_nobody_knows_is_unknown(store: Store) -> None:
    index = Index(store)
    with pytest.raises(UnknownRun):
        index.row("nobody")
    assert index.overview(Ask()).total == 0


def test_a_forgotten_run_is_gone_with_its_children(store: Store, pen: Pen) -> None:
    root, other = pen.open("root"), pen.open("other")
    pen.open("child", parent=Parent(root, 1, root))
    index = Index(store)
    assert index.overview(Ask()).total == 3
    store.forget(root)
    assert runs_of(index.overview(Ask())) == [other]
    with pytest.raises(UnknownRun):
        index.row(root)


# -- questions --------------------------------------------------------------------------------------------------------


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements that the store was asked meanwhile, by any connection."""
    asked: list[str] = []

    def note(_cursor: object, statement: str, _bindings: object) -> bool:
        asked.append(statement)
        return True

    connections = (store._db._reader, store._db.writer)
    for connection in connections:
        connection.exec_trace = note
    try:
        yield asked
    finally:
        for connection in connections:
            connection.exec_trace = None


def questions(folder: Path, runs: int, changed: int) -> tuple[int, int]:
    """How many statements a look costs when nothing and when so many runs changed; some live, some have children."""
    store = open_store(folder)
    pen = Pen(store)
    made = []
    for number in range(runs):
        opened = ev.RunOpened(
            at=AT, run=f"run{number:06}", task=f"t{number}", project=f"/p{number % 7}",
            contract=Contract("g"), budget=Allowance(tokens=10**6),
            parent=Parent("run000000", 1, "run000000") if number % 5 == 4 else None,
        )  # fmt: skip
        made.append((opened, [started(), intended(policy="ask") if number % 3 else beat(1)]))
    first, *others = made
    store.create(*first, children=[each for each in others if each[0].parent])
    for opened, events in (each for each in others if not each[0].parent):
        store.create(opened, events)
    index = Index(store)
    with counted(store) as quiet:
        index.overview(Ask())
    for number in range(changed):
        if number % 5 != 4:
            pen.write(f"run{number:06}", ev.StageSet(at=AT, stage="on"))
    pen.release(*[f"run{number:06}" for number in range(0, changed, 10) if number % 5 != 4])
    with counted(store) as busy:
        overview = index.overview(Ask(q="on"))
    assert overview.found == sum(1 for number in range(changed) if number % 5 != 4)
    pen.release()
    store.close()
    return len(quiet), len(busy)


def test_a_look_costs_the_same_few_questions_whatever_the_number_of_runs(tmp_path: Path) -> None:
    few, many = questions(tmp_path / "few", 50, 3), questions(tmp_path / "many", 2_000, 200)
    assert few == many
    assert few[0] == 2, "what is new, and what was asked of runs"
    assert few[1] <= 5


# -- many at once -----------------------------------------------------------------------------------------------------


def test_threads_look_while_others_write_and_all_is_there_in_the_end(
    store: Store, pen: Pen, tmp_path: Path
) -> None:
    runs = [pen.open(f"t{number}") for number in range(20)]
    index = Index(store)
    stop, failed = threading.Event(), []

    def look() -> None:
        last = 0
        while not stop.is_set():
            try:
                overview = index.overview(Ask(size=7))
                assert overview.number >= last
                last = overview.number
                index.row(random.choice(runs))
            except Exception as error:
                failed.append(error)
                raise

    threads = [threading.Thread(target=look) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        other = Pen(writer := open_store(tmp_path / "store"))
        for number in range(1, 6):
            for run in runs:
                other.write(run, beat(number))
        other.release()
        writer.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    assert not failed
    index.refresh()
    assert {row.beats for row in index.rows()} == {5}
