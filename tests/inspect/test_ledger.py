"""The ledger of a run, read from its journal: whole whatever its length, in bounded memory."""

import contextlib
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as some

from outlast.core import events as ev
from outlast.core.values import Allowance, Contract, Payload, Usage, Window
from outlast.errors import UsageError
from outlast.inspect import ledger, ledger_sums
from outlast.runs.opening import terms
from outlast.store import open_store
from outlast.store.protocol import Batch, RunFilter, Store, Summary

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PEAK_MAX_BYTES = 4 << 20


def long_run(store: Store, run: str, beats: int) -> Summary:
    """A run of many beats, a second each, with a call of an agent in every one."""
    args = Payload(v=msgspec.Raw(b'{"tool":"Bash","input":{"command":"' + b"x" * 300 + b'"}}'))
    journal: list[ev.AnyEvent] = [ev.AttemptStarted(at=AT, epoch=1)]
    for beat in range(1, beats + 1):
        at = AT + timedelta(seconds=beat)
        journal += [
            ev.EffectIntended(
                at=at, beat=beat, n=1, name="Bash", occurrence=0, key=f"{run}{beat}", args=args
            ),
            ev.EffectConfirmed(at=at, beat=beat, n=1),
            ev.BeatDone(at=at, beat=beat, spent=Usage(input=10, output=2)),
        ]
    opened = ev.RunOpened(
        at=AT, run=run, task=run, project="p", contract=Contract(), budget=Allowance(tokens=beats * 20)
    )
    store.create(opened, journal)
    return store.list(RunFilter(task=run), limit=1)[0]


def test_a_long_run_is_read_whole_in_bounded_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        summary = long_run(store, "many", 8_000)
        now = AT + timedelta(seconds=8_000)
        ledger.of(store, summary, now)
        tracemalloc.start()
        try:
            found = ledger.of(store, summary, now)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    finally:
        store.close()
    assert peak < PEAK_MAX_BYTES
    assert found.spent.tokens == 96_000
    assert [(row.name, row.calls, row.tokens) for row in found.by_tool] == [("Bash", 8_000, 96_000)]
    assert [row.beat for row in found.by_beat] == list(range(7_951, 8_001))
    tokens = next(each for each in found.units if each.unit == "tokens")
    assert tokens.per_hour_now == 3_601 * 12, "of the last hour, both ends counted"
    assert [point.spent for point in found.chart.points][-1] == 96_000


usages = some.builds(
    Usage,
    input=some.integers(0, 10_000),
    output=some.integers(0, 10_000),
    cost_microusd=some.integers(0, 10_000),
)


@given(some.lists(some.tuples(some.integers(0, 4), usages), max_size=30), some.booleans())
def test_tools_steps_and_beats_each_add_up_to_the_whole(beats: list[tuple[int, Usage]], cut: bool) -> None:
    sums = ledger_sums.Sums(last=1_000)
    sums.take(ev.AttemptStarted(at=AT, epoch=1))
    whole = Usage()
    for number, (calls, usage) in enumerate(beats, 1):
        at = AT + timedelta(minutes=number)
        for n in range(calls):
            name = f"tool {n % 2}"
            sums.take(ev.EffectIntended(at=at, beat=number, n=n, name=name, occurrence=0, key="k"))
        if cut and number % 3 == 0:  # the attempt was charged for the beat in flight, and another goes on
            sums.take(ev.AttemptEnded(at=at, epoch=1, status="interrupted", cause="crash", spent=usage))
            sums.take(ev.AttemptStarted(at=at, epoch=2))
            sums.take(ev.BeatDone(at=at, beat=number))
        else:
            sums.take(ev.BeatDone(at=at, beat=number, spent=usage))
        whole = whole.plus(usage)
    assert sum(row.tokens for row in sums.tools()) == whole.tokens
    assert sum(row.cost_microusd for row in sums.tools()) == whole.cost_microusd
    assert sum(row.spent.tokens for row in sums.beats()) == whole.tokens
    over = ledger_sums.Stretch(sums, AT, AT + timedelta(hours=1), AT)
    assert [spent for _, spent, _ in over.series("tokens")][-1] == whole.tokens
    assert sum(row.spent.tokens for row in sums.attempts(0)) == whole.tokens


@given(some.integers(0, 7_200_000), some.integers(0, 7_200_000))
def test_the_time_that_an_agent_lived_is_spread_and_not_lost(end_ms: int, lived_ms: int) -> None:
    since, until = AT, AT + timedelta(milliseconds=end_ms)
    lived_ms = min(lived_ms, end_ms)
    over = ledger_sums.Stretch(ledger_sums.Sums(last=0), since, until, AT + timedelta(hours=9), lived_ms)
    (*_, (_, spent, _)) = over.series("time")
    assert abs(spent - lived_ms // 1000) <= 1


def test_the_window_is_a_gauge_and_a_raised_limit_holds_from_then_on() -> None:
    sums = ledger_sums.Sums(last=10)
    opened = ev.RunOpened(
        at=AT, run="r", task="t", project="p", contract=Contract(), budget=Allowance(window_pct=50)
    )
    sums.take(opened)
    for minute, used in ((10, 20.0), (20, 45.5), (40, 3.0)):
        at = AT + timedelta(minutes=minute)
        sums.take(ev.BeatDone(at=at, beat=minute, window=Window(used)))
    args = Payload(v=msgspec.Raw(b'{"window_pct":80}'))
    sums.take(ev.Requested(at=AT + timedelta(minutes=30), id=0, by="me", what="budget", args=args))
    points = [
        (spent, limit)
        for _, spent, limit in ledger_sums.Stretch(sums, AT, AT + timedelta(minutes=60), AT).series("window")
    ]
    assert [points[at] for at in (0, 10, 20, 30, 59)] == [
        (0, 5_000), (2_000, 5_000), (4_550, 5_000), (4_550, 8_000), (300, 8_000),
    ]  # fmt: skip
    assert [change.text for change in sums.changes] == ["50 % of the window", "80 % of the window by me"]


@pytest.mark.parametrize(
    ("text", "ahead"),
    [("+8h", timedelta(hours=8)), ("+90m", timedelta(minutes=90)), ("+2d", timedelta(days=2))],
)
def test_a_moment_ahead_can_be_an_age(text: str, ahead: timedelta) -> None:
    assert terms.until_of(text, AT) == AT + ahead


def test_a_moment_with_its_own_zone_is_that_moment() -> None:
    assert terms.until_of("2026-11-16T07:00+02:00", AT) == datetime(2026, 11, 16, 5, 0, tzinfo=UTC)
    for past in ("2026-11-15T13:59+02:00", "+0s", AT):
        with pytest.raises(UsageError, match="is past already"):
            terms.until_of(past, AT)


@given(some.text(max_size=20))
def test_any_text_is_a_moment_ahead_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert terms.until_of(text, AT) > AT


def test_two_marks_become_one_and_nothing_of_them_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_sums, "MARKS_MAX", 8)
    sums = ledger_sums.Sums(last=10)
    for beat in range(1, 101):
        at, window = AT + timedelta(minutes=beat), Window(beat / 2)
        sums.take(ev.BeatDone(at=at, beat=beat, spent=Usage(input=beat, time_ms=1_000), window=window))
    over = ledger_sums.Stretch(sums, AT, AT + timedelta(minutes=100), AT)
    assert len(sums.marks) <= 8 >= len(sums.windows)
    last = {unit: list(over.series(unit))[-1][1] for unit in ("tokens", "beats", "time", "window")}
    assert last == {"tokens": 5_050, "beats": 100, "time": 100, "window": 5_000}


def test_kept_sums_go_on_and_say_what_new_ones_do(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    try:
        sums, now = ledger_sums.Sums(last=50), AT + timedelta(hours=2)
        run = long_run(store, "many", 1_500)
        first = ledger.of(store, run, now, sums=sums)
        place = sums.seq
        more = (
            ev.AttemptStarted(at=now, epoch=2),
            ev.BeatDone(at=now, beat=1_501, spent=Usage(input=7)),
        )
        lease = store.claim(run.run)
        store.append(Batch(lease, run.run, run.state.seq, more))
        store.release(lease)
        run = store.list(RunFilter(task="many"), limit=1)[0]
        assert ledger.is_continued(store, run.run, sums)
        later = ledger.of(store, run, now, sums=sums)
        assert sums.seq == place + 2, "only what came since was read"
        assert later == ledger.of(store, run, now) != first
        sums.n += 1
        assert not ledger.is_continued(store, run.run, sums), "another journal came in the place of this one"
    finally:
        store.close()
