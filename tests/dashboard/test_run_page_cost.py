"""The pages of a run cost the same however long it is."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import pages as run_pages
from outlast.dashboard.saves import cache
from outlast.store import open_store
from outlast.store.protocol import Store
from tests.support.journals.large_stores import long_run

CALLS_RATIO_MAX, STEPS_RATIO_MAX = 10, 50  # of a run that is 200 times as long


@contextlib.contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Every statement that the store's readers run inside the block."""
    found: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        found.append(sql)
        return True

    reader = store._db._reader
    reader.exec_trace = trace
    try:
        yield found
    finally:
        reader.exec_trace = None


@pytest.fixture(scope="module")
def short_and_long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Store, str]]]:
    """A run of 50 beats and one of 10,000, each in a store of its own."""
    made = []
    for beats in (50, 10_000):
        root = tmp_path_factory.mktemp("long") / "store"
        run = long_run(root, beats)
        made.append((open_store(root), run))
    yield made
    for store, _ in made:
        store.close()


@pytest.mark.parametrize(
    "what", ["page", "timeline", "beats", "effects", "older effects", "journal", "context"]
)
def test_a_long_run_costs_no_more_queries_than_a_short_one(
    short_and_long: list[tuple[Store, str]], what: str
) -> None:
    counts = []
    for store, run in short_and_long:
        index = Index(store)
        asked = {
            "page": lambda store=store, index=index, run=run: run_pages.page(store, index, run),
            "timeline": lambda store=store, run=run: run_pages.timeline(store, run),
            "beats": lambda store=store, run=run: run_pages.beats(store, run),
            "effects": lambda store=store, run=run: run_pages.effects(store, run, size=20),
            "older effects": lambda store=store, run=run: run_pages.effects(store, run, before=150, size=20),
            "journal": lambda store=store, run=run: run_pages.journal(store, run),
            "context": lambda store=store, run=run: run_pages.context(store, run),
        }[what]
        asked()
        with statements(store) as told:
            asked()
        counts.append(len(told))
    assert 0 < counts[0] == counts[1] <= 20


def work_of(store: Store, make: Callable[[], object]) -> tuple[int, int]:
    """How many calls Python makes, and how many tens of steps SQLite's readers take: the same on a busy machine."""
    calls = steps = 0

    def called(*_: object) -> None:
        nonlocal calls
        calls += 1

    def stepped() -> bool:
        nonlocal steps
        steps += 1
        return False

    reader = store._db._reader
    reader.set_progress_handler(stepped, 10)
    sys.setprofile(called)
    try:
        make()
    finally:
        sys.setprofile(None)
        reader.set_progress_handler(None)
    return calls, steps


def test_the_page_of_a_long_run_is_made_in_a_moment(short_and_long: list[tuple[Store, str]]) -> None:
    work = []
    for store, run in short_and_long:
        index = Index(store)
        page = run_pages.page(store, index, run)  # it sums the budget up from the whole journal, once
        work.append(
            work_of(store, lambda store=store, index=index, run=run: run_pages.page(store, index, run))
        )
    (short_calls, short_steps), (calls, steps) = work
    assert calls < CALLS_RATIO_MAX * short_calls, f"{calls} calls, of a short run {short_calls}"
    assert steps < STEPS_RATIO_MAX * short_steps, (
        f"{steps * 10} steps of SQLite, of a short run {short_steps * 10}"
    )
    assert len(msgspec.json.encode(page)) < 100_000
    assert page.row.beats == page.shown.beats == 10_000


def test_the_budget_of_a_long_run_is_summed_up_once(short_and_long: list[tuple[Store, str]]) -> None:
    store, run = short_and_long[1]
    first = run_pages.budget(store, run)
    with cache.sums(store, run) as sums:
        place = sums.seq
    with statements(store) as found:
        again = run_pages.budget(store, run)
    with cache.sums(store, run) as kept:
        assert (kept, kept.seq) == (sums, place)
    assert place > 40_000
    assert len(found) < 20
    assert (again.by_beat, again.by_tool, again.spent) == (first.by_beat, first.by_tool, first.spent)
