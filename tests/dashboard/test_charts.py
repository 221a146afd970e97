"""Charts: nothing counted twice, nothing left out, in the days and hours of the reader's zone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

import outlast
from outlast.core import events as ev
from outlast.core.values import Usage
from outlast.dashboard import charts as dashboard_charts, documents
from outlast.dashboard.charts import Counter
from outlast.dashboard.overview.index import Index
from outlast.dashboard.saves import emergencies
from outlast.operations import fork
from outlast.runs.run import run_engine
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.support.environment import Isolated
from tests.support.journals.held_runs import HeldRuns
from tests.support.journals.night import make_night
from tests.support.journals.scribe import AgentCli, Scribe, payload
from tests.support.processes import wait_for

NOW = datetime(2026, 3, 20, 12, 10, tzinfo=UTC)
CLAUDE, CODEX = AgentCli("claude", "claude", "opus", 1_000), AgentCli("codex", "codex", "gpt")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "store")
    yield made
    made.close()


@contextmanager
def counting_all(store: Store, clock: Callable[[], datetime] | None = None) -> Iterator[Counter]:
    """A counter that has counted the past."""
    counter = Counter(store, Index(store), clock)
    counter.start()
    try:
        wait_for(lambda: counter._is_counted or None, what="the past to be counted")
        yield counter
    finally:
        counter.stop()
        assert not any(thread.name == "outlast-counting" for thread in threading.enumerate())


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def by(charts: documents.Charts, grain: documents.Grain) -> dict[str, tuple[int, ...]]:
    return {
        series.name: series.values for each in charts.spending if each.by == grain for series in each.tokens
    }


def total(charts: documents.Charts, grain: documents.Grain = "agent") -> int:
    return sum(sum(values) for values in by(charts, grain).values())


def spends(scribe: Scribe, when: str, tokens: int) -> Scribe:
    """A beat at this time that cost so much."""
    scribe.at = at(when) - timedelta(seconds=10)
    return scribe.beat("x", tokens=tokens, seconds=10)


# -- in time -----------------------------------------------------------------------------------------------------------


def test_a_beat_counts_on_its_day_and_in_its_hour_of_the_readers_zone(store: Store, rng: Random) -> None:
    told = Scribe(rng, at("2026-03-10T00:00"), "t", "/srv/app/.git", "goal", CLAUDE).start()
    for when, tokens in (
        ("2026-03-17T23:50", 100), ("2026-03-18T00:05", 200), ("2026-03-18T18:45", 400), ("2026-03-19T04:10", 800),
        ("2026-03-20T11:59", 1_600), ("2026-03-20T12:05", 3_200),
    ):  # fmt: skip
        spends(told, when, tokens)
    store.create(*told.journal)
    wanted = {
        "UTC": ("03-17 100", "03-18 600", "03-19 800", "03-20 4800"),
        "Asia/Kolkata": ("03-18 300", "03-19 1200", "03-20 4800"),
        "America/New_York": ("03-17 300", "03-18 400", "03-19 800", "03-20 4800"),
        "Asia/Kathmandu": ("03-18 300", "03-19 1200", "03-20 4800"),
    }
    with counting_all(store, lambda: NOW) as counter:
        for zone, days in wanted.items():
            charts = counter.charts(zone, days=5)
            found = zip(charts.days, by(charts, "agent")["claude"], strict=True)
            assert tuple(f"{day[5:]} {tokens}" for day, tokens in found if tokens) == days, zone
            assert charts.zone == zone
            assert len(charts.hours) == len(charts.beats_per_hour) == dashboard_charts.HOURS
            assert sum(charts.beats_per_hour) == 4, "those of the last two days"
            local = NOW.astimezone(ZoneInfo(zone))
            assert charts.hours[-1] == f"{local:%Y-%m-%dT%H}:00"
        utc = counter.charts("UTC")
        assert utc.beats_per_hour[-2:] == (1, 1)
        assert counter.charts("Asia/Kolkata").beats_per_hour[-2:] == (0, 2), (
            "11:59 and 12:05 are 17:29 and 17:35"
        )
        assert len(counter.charts("UTC", days=999).days) == dashboard_charts.DAYS_MAX
        assert len(counter.charts("UTC", days=0).days) == 1


@pytest.mark.parametrize("zone", ["", "Nowhere/Land", "../../etc/passwd", "/etc/localtime", "\0", "UTC"])
def test_a_zone_that_nobody_knows_is_utc(store: Store, zone: str) -> None:
    counter = Counter(store, Index(store))
    assert counter.charts(zone).zone == "UTC"


def test_before_it_is_started_nothing_is_counted_and_that_is_said(store: Store, rng: Random) -> None:
    store.create(*spends(Scribe(rng, NOW, "t", "p", "g").start(), "2026-03-20T12:00", 7).journal)
    charts = Counter(store, Index(store), lambda: NOW).charts("UTC")
    assert (charts.counted_pct, total(charts), sum(charts.beats_per_hour)) == (0, 0, 0)


def test_what_is_older_than_the_charts_is_not_kept(
    store: Store, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_charts, "PAGE_EVENTS", 5)
    told = Scribe(rng, at("2025-01-01T00:00"), "t", "p", "g", CLAUDE).start()
    for day in range(60):
        spends(told, (NOW - timedelta(days=60 - day)).replace(tzinfo=None).isoformat(), 10)
    store.create(*told.journal)
    with counting_all(store, lambda: NOW) as counter:
        assert total(counter.charts("UTC", days=31)) == 300
        assert len(counter._cells) <= dashboard_charts.DAYS_MAX + 1


# -- sums --------------------------------------------------------------------------------------------------------------


def test_the_sums_are_those_of_the_heads(tmp_path: Path) -> None:
    """Of a night with children, forks, doubts and deaths: each token once."""
    store = open_store(make_night(tmp_path / "store"))
    try:
        young = datetime.now(UTC) - timedelta(days=30)
        summaries = store.list(RunFilter())
        heads = {
            each.run: each.state
            for each in summaries
            if each.state.created_at and each.state.created_at > young
        }
        wanted = sum(head.spent.tokens for head in heads.values())
        beats = sum(head.beats for head in heads.values())
        with counting_all(store) as counter:
            charts = counter.charts("UTC", days=31)
            for grain in ("agent", "model", "project"):
                assert total(charts, msgspec_grain(grain)) == wanted
            cost = sum(sum(series.values) for series in charts.spending[0].cost_microusd)
            assert cost == sum(head.spent.cost_microusd for head in heads.values())
            assert 0 < sum(charts.beats_per_hour) <= beats
            causes = {series.name: sum(series.values) for series in charts.saves_by_cause}
            assert causes["signal"] > causes["quota"] > 0
    finally:
        store.close()


def msgspec_grain(name: str) -> documents.Grain:
    return next(grain for grain in dashboard_charts._GRAINS if grain == name)


def test_what_children_spend_counts_once_also_while_they_work(state: Isolated, tmp_path: Path) -> None:
    with outlast.run("root", store=tmp_path / "store", project="p") as run:
        run.plan(["one", "two"])
        store = run_engine(run).journal.store
        with counting_all(store) as counter:
            for beat in run.beats():
                beat.spend(input=100)
                with beat.run("part") as child:
                    for inner in child.beats():
                        inner.spend(input=30)
                        with inner.run("below") as below:
                            for lowest in below.beats():
                                lowest.spend(input=7)
                                lowest.done()
                                below.finish()
                                break
                        inner.done()
                        child.finish()
                        break
                if beat.number == 1:
                    _comes_to(counter, 37)
                beat.done()
            _comes_to(counter, 274)
            assert store.list(RunFilter(parent=""))[0].state.spent.tokens == 274
    store = open_store(tmp_path / "store")
    try:
        with counting_all(store) as anew:
            assert total(anew.charts("UTC")) == 274
    finally:
        store.close()


def _comes_to(counter: Counter, tokens: int) -> None:
    wait_for(lambda: total(counter.charts("UTC")) == tokens or None, what=f"{tokens} tokens")


def test_a_fork_does_not_spend_its_sources_past_again(state: Isolated, tmp_path: Path) -> None:
    with outlast.run("t", store=tmp_path / "store", project="p") as run:
        run.plan(["one", "two"])
        for beat in run.beats():
            beat.spend(input=50)
            beat.done()
            break
    store = open_store(tmp_path / "store")
    try:
        source = store.list(RunFilter(runs=(run.id,)))[0]
        made = fork.make(store, fork.prepare(store, source, at=1))
        assert store.list(RunFilter(runs=(made,)))[0].state.spent.tokens == 50
        with counting_all(store) as counter:
            charts = counter.charts("UTC")
            assert total(charts) == 50
            assert sum(charts.beats_per_hour) == 1
    finally:
        store.close()


def test_every_way_of_spending_counts(store: Store, rng: Random) -> None:
    told = Scribe(rng, at("2026-03-20T10:00"), "t", "/srv/app/.git", "goal").start()
    told.say(ev.SpendReserved(at=told.at, key="k", usage=Usage(input=99)))
    told.say(ev.SpendSettled(at=told.at, key="k", usage=Usage(input=1)))
    told.say(ev.Decided(at=told.at, beat=1, name="d", occurrence=1, value=payload(1), usage=Usage(output=20)))
    told.beat("x", tokens=300)
    told.say(
        ev.AttemptEnded(at=told.at, epoch=1, status="interrupted", cause="crash", spent=Usage(input=4_000))
    )
    store.create(*told.journal)
    with counting_all(store, lambda: NOW) as counter:
        assert by(counter.charts("UTC", days=1), "project") == {"app": (4_321,)}


def test_what_comes_later_is_counted_too(store: Store, rng: Random) -> None:
    told = Scribe(rng, datetime.now(UTC), "t", "/srv/app/.git", "goal", CODEX).start()
    run = store.create(*told.journal)
    alive = HeldRuns(store)
    alive.hold(run)
    with counting_all(store) as counter:
        before = sum(counter.charts("UTC").beats_per_hour)
        for number in range(1, 4):
            spent = Usage(input=number)
            alive.append(run, ev.BeatDone(at=datetime.now(UTC), beat=number, spent=spent))
        fresh = (
            Scribe(rng, datetime.now(UTC), "new", "/srv/new/.git", "goal", CLAUDE)
            .start()
            .beat("x", tokens=500)
        )
        store.create(*fresh.journal)
        wait_for(
            lambda: sum(counter.charts("UTC").beats_per_hour) == before + 4 or None, what="four more beats"
        )
        assert {name: sum(values) for name, values in by(counter.charts("UTC"), "agent").items()} == {
            "claude": 500,
            "codex": 6,
        }


def test_what_comes_while_the_past_is_counted_counts_once(store: Store, rng: Random) -> None:
    run = store.create(*Scribe(rng, at("2026-03-20T10:00"), "t", "p", "g", CODEX).start().journal)
    alive = HeldRuns(store)
    alive.hold(run)
    beats: list[int] = []

    def clock() -> datetime:
        """Asked first when the counter knows where the past ends, and then there is more of it."""
        if not beats:
            beats.append(1)
            alive.append(run, ev.BeatDone(at=NOW, beat=1, spent=Usage(input=9)))
        return NOW

    with counting_all(store, clock) as counter:
        assert total(counter.charts("UTC", days=1)) == 9


def test_the_largest_eight_are_named_and_the_rest_are_others(store: Store, rng: Random) -> None:
    for number in range(1, 12):
        told = Scribe(rng, at("2026-03-20T10:00"), "t", f"/srv/app{number:02}/.git", "goal").start()
        store.create(*spends(told, "2026-03-20T11:00", number * 1_000).journal)
    with counting_all(store, lambda: NOW) as counter:
        found = by(counter.charts("UTC", days=2), "project")
    assert list(found) == [*(f"app{number:02}" for number in range(11, 3, -1)), dashboard_charts.OTHERS]
    assert found[dashboard_charts.OTHERS] == (0, 6_000)
    assert found["app11"] == (0, 11_000)


def test_runs_without_an_agent_have_a_name_and_children_that_of_their_root(store: Store, rng: Random) -> None:
    root = Scribe(rng, at("2026-03-20T10:00"), "root", "/srv/app/.git", "goal", CLAUDE).start()
    child = Scribe(rng, root.at, "part", root.project, "goal", parent=root.child_of()).start()
    alone = Scribe(rng, root.at, "alone", root.project, "goal").start()
    journals = [
        root.journal,
        spends(child, "2026-03-20T10:30", 40).journal,
        spends(alone, "2026-03-20T10:40", 2).journal,
    ]
    store.create(*journals[0], children=journals[1:])
    with counting_all(store, lambda: NOW) as counter:
        charts = counter.charts("UTC", days=1)
    assert by(charts, "agent") == {"claude": (40,), dashboard_charts.NONE: (2,)}
    assert by(charts, "model") == {"opus": (40,), dashboard_charts.NONE: (2,)}


def test_very_many_runs_are_told_together_and_nothing_is_lost(
    store: Store, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_charts, "CELLS_MAX", 20)
    for number in range(60):
        told = Scribe(rng, at("2026-03-20T01:00"), f"t{number}", f"/srv/app{number % 3}/.git", "goal").start()
        store.create(*spends(told, f"2026-03-20T{rng.randrange(2, 12):02}:00", 10).journal)
    with counting_all(store, lambda: NOW) as counter:
        charts = counter.charts("UTC", days=1)
        assert counter._count == sum(map(len, counter._cells.values())) <= 20
    assert total(charts, "project") == 600
    assert sum(charts.beats_per_hour) == 60
    assert dashboard_charts.OTHERS in by(charts, "project")


def test_a_run_that_is_forgotten_while_it_is_counted_does_no_harm(store: Store, rng: Random) -> None:
    kept, gone = (
        store.create(
            *spends(
                Scribe(rng, at("2026-03-20T10:00"), name, "p", "g").start(), "2026-03-20T11:00", 5
            ).journal
        )
        for name in ("kept", "gone")
    )
    index = Index(store)
    counter = Counter(store, index, lambda: NOW)
    store.forget(gone)
    counter.start()
    try:
        wait_for(lambda: counter._is_counted or None)
        assert total(counter.charts("UTC")) == 5
    finally:
        counter.stop()
    assert [row.run for row in index.rows()] == [kept]


def test_emergency_saves_are_read_before_the_past_is_counted(store: Store, rng: Random) -> None:
    store.create(*Scribe(rng, at("2026-03-20T10:00"), "t", "p", "g").start().stop("budget", "spent").journal)
    known = list[int]()

    def clock() -> datetime:
        known.append(emergencies.book(store)._number)
        return NOW

    with counting_all(store, clock):
        assert known[0] == store.last_number()
