"""Where a run's budget went, by unit, beat, tool and attempt. Field names are a contract: only added to.

The journal is read once, page by page. The sums in memory have a limit; a caller that asks again keeps them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from outlast.core import budget as budgets, events as ev, forecast as forecasts, state as st
from outlast.core.statuses import ENDED
from outlast.core.values import Allowance, Usage, Window
from outlast.inspect import find, forecast as inspect_forecast, ledger_sums
from outlast.inspect.ledger_sums import AttemptCost, BeatRow, Notice, Saved, ToolRow
from outlast.inspect.show import Spent, spent_of
from outlast.runs import reader
from outlast.store.protocol import RunFilter, Store, Summary

LAST = 50
READ_EVENTS = 1_000
HOUR = timedelta(hours=1)
_CHARTED: tuple[budgets.Unit, ...] = ("tokens", "usd", "time", "beats", "window")


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit. Amounts are whole tokens, micro-dollars, seconds, beats, hundredths of a percent; null: no limit.

    `ending_reserve` (in JSON `kept`) is for the run's own ending, `forecast` what the whole plan will cost at this pace, and `lasts_s`
    how long the rest lasts at this rate. Rates are null where there are none.
    """

    unit: budgets.Unit
    limit: int | None
    spent: int
    left: int | None
    reserved: int
    ending_reserve: int = msgspec.field(name="kept")
    used_pct: float | None
    wraps_up: bool
    per_hour: int | None
    per_hour_now: int | None
    forecast: int | None
    lasts_s: int | None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The spending of the whole run: p50 and p90. `learnt`: not only the default."""

    tokens: forecasts.Range
    time_s: forecasts.Range
    learnt: bool


class Point(msgspec.Struct, frozen=True):
    """The spending up to a time, and the limit at that time."""

    at: datetime
    spent: int
    limit: int | None


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One unit over time, in even steps."""

    unit: budgets.Unit
    warn_at: tuple[int, ...]
    points: tuple[Point, ...]


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `outlast budget RUN` shows."""

    run: str
    task: str
    project: str
    status: st.Status
    cause: ev.Cause | None
    evidence: str
    goal: str
    beats: int
    plan_total: int | None
    attempts: int
    budget: Allowance | None
    units: tuple[Unit, ...]
    spent: Spent
    reserved: Spent | None
    window: Window | None
    expected: Expected | None
    warnings: tuple[Notice, ...]
    changes: tuple[Notice, ...]
    saves: tuple[Saved, ...]
    saves_total: int
    by_attempt: tuple[AttemptCost, ...]
    by_tool: tuple[ToolRow, ...]
    by_beat: tuple[BeatRow, ...]
    chart: Chart
    more: str  # what to type after `outlast resume RUN` if the budget is spent


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """One open run in the list."""

    run: str
    task: str
    project: str
    status: st.Status
    goal: str
    spent: Spent
    units: tuple[Unit, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All open runs, and what they have spent together."""

    runs: tuple[Glance, ...]
    spent: Spent


# -- one run ---------------------------------------------------------------------------------------------------------


def of(
    store: Store, summary: Summary, now: datetime, *, warn_at: tuple[int, ...] = (), last: int = LAST,
    sums: ledger_sums.Sums | None = None,
) -> Ledger:  # fmt: skip
    """The ledger of a root run, with its `last` beats. Pass the `sums` of an earlier call to read only what came since."""
    status = find.shown_status(store, summary.state, summary.run)
    head = _with_children(store, summary.state)
    live = live_of(head, status, now)
    end = now if status == "running" else head.updated_at or now
    sums = ledger_sums.Sums(last=last) if sums is None else sums
    take_in(store, head.run, sums)
    over = ledger_sums.Stretch(sums, head.created_at or now, end, now - HOUR, live.lived_ms)
    lived_ms = head.spent.time_ms + live.lived_ms
    return Ledger(
        run=head.run, task=head.task, project=head.project, status=status, cause=head.cause, evidence=head.evidence,
        goal=head.title, beats=head.beats, plan_total=head.plan_total, attempts=head.attempts, budget=head.budget,
        units=tuple(units(head, live, lived_ms, over, status)),
        spent=spent_of(msgspec.structs.replace(head.spent, time_ms=lived_ms), head.beats), reserved=_reserved(head),
        window=head.window, expected=_expected(store, head, status), warnings=tuple(sums.warnings),
        changes=tuple(sums.changes), saves=tuple(sums.saves), saves_total=sums.saves_total,
        by_attempt=tuple(sums.attempts(live.lived_ms if status == "running" else 0)),
        by_tool=tuple(sums.tools()), by_beat=tuple(sums.beats()), chart=_chart(head, live, over, warn_at),
        more=budgets.increase_hint(head, live) if head.cause == "budget" and budgets.is_spent(head, live) else "",
    )  # fmt: skip


def take_in(store: Store, run: str, sums: ledger_sums.Sums) -> None:
    """Read the events of a run that these sums do not include yet and that concern them."""
    while page := store.read(
        run, after=sums.seq, limit=READ_EVENTS, tags=ledger_sums.NEEDED, ends=True
    ).events:
        for item in page:
            sums.take(item.event)
        sums.seq, sums.n = page[-1].seq, page[-1].n


def is_continued(store: Store, run: str, sums: ledger_sums.Sums) -> bool:
    """Whether the journal still continues from these sums: another journal may have taken its place."""
    if not sums.seq:
        return True
    return [item.n for item in store.read(run, after=sums.seq - 1, limit=1).events] == [sums.n]


def _with_children(store: Store, head: st.RunState) -> st.RunState:
    """The head with what the children of the open beat spent."""
    return msgspec.structs.replace(head, spent=head.spent.plus(reader.spent_below(store, head)))


def live_of(head: st.RunState, status: st.Status, now: datetime) -> budgets.Live:
    """The clock, and how long the open attempt has lived: until now, or as far as is known."""
    if head.attempt is None:
        return budgets.Live(now)
    until = now if status == "running" else head.updated_at or now
    return budgets.Live(now, max(0, int((until - head.attempt.started_at) / timedelta(milliseconds=1))))


def _reserved(head: st.RunState) -> Spent | None:
    """The amount set aside; the part for the next beat only while an attempt is open."""
    parts = [usage for key, usage in head.reserved if key != st.BEAT or head.attempt is not None]
    total = Usage()
    for usage in parts:
        total = total.plus(usage)
    return spent_of(total, 0) if parts else None


def _expected(store: Store, head: st.RunState, status: st.Status) -> Expected | None:
    if status in ENDED:
        return None
    first = inspect_forecast.first_forecast(store, head)
    repriced = inspect_forecast.repriced(first, head)
    default = forecasts.DEFAULT
    learnt = (first.tokens, first.time_s) != (default["tokens"], default["time_s"])
    return Expected(tokens=repriced.tokens, time_s=repriced.time_s, learnt=learnt)


# -- units -----------------------------------------------------------------------------------------------------------


def units(
    head: st.RunState, live: budgets.Live, lived_ms: int, over: ledger_sums.Stretch | None, status: st.Status
) -> Iterator[Unit]:
    """Every unit of a run, with or without a limit; with `over`, the rates too."""
    known = {line.unit: line for line in budgets.lines(head, live)}
    amounts: dict[budgets.Unit, int] = {
        "tokens": head.spent.tokens,
        "usd": head.spent.cost_microusd,
        "time": lived_ms // 1000,
        "beats": head.beats,
    }
    for unit in (*amounts, *(each for each in ("window", "until") if each in known)):
        line = known.get(unit)
        spent = line.spent if line is not None else amounts[unit]
        all_h = now_h = None
        if over is not None and unit in amounts:
            all_h, now_h = over.per_hour(unit, spent, lived_ms)
        yield _unit(head, unit, line, spent, all_h, now_h, runs=status == "running")


def _unit(
    head: st.RunState,
    unit: budgets.Unit,
    line: budgets.Line | None,
    spent: int,
    all_h: int | None,
    now_h: int | None,
    *,
    runs: bool,
) -> Unit:
    expected = budgets.forecast(head, line or budgets.Line(unit, max(1, spent), spent)) or None
    if line is None:
        return Unit(
            unit=unit, limit=None, spent=spent, left=None, reserved=0, ending_reserve=0, used_pct=None, wraps_up=False,
            per_hour=all_h, per_hour_now=now_h, forecast=expected, lasts_s=None,
        )  # fmt: skip
    rate = now_h or all_h
    lasts = line.left if unit in ("time", "until") else line.left * 3600 // rate if rate else None
    return Unit(
        unit=unit, limit=line.limit, spent=spent, left=line.left, ending_reserve=line.ending_reserve,
        reserved=line.reserved if head.attempt is not None else 0, used_pct=round(line.share * 100, 1),
        wraps_up=line.wraps_up, per_hour=all_h, per_hour_now=now_h, forecast=expected, lasts_s=lasts if runs else None,
    )  # fmt: skip


def _chart(
    head: st.RunState, live: budgets.Live, over: ledger_sums.Stretch, warn_at: tuple[int, ...]
) -> Chart:
    """The unit nearest to its limit; without limits, tokens or beats."""
    near = [line for line in budgets.lines(head, live) if line.unit in _CHARTED]
    unit: budgets.Unit = "tokens" if head.spent.tokens else "beats"
    if near:
        unit = max(near, key=lambda line: line.share).unit
    points = tuple(Point(*each) for each in over.series(unit))
    return Chart(unit=unit, warn_at=warn_at, points=points)


# -- all open runs ---------------------------------------------------------------------------------------------------


def overview(store: Store, now: datetime, project: str = "") -> Overview:
    """The open runs, newest first, from their heads alone."""
    runs = [
        _glance(store, summary, now)
        for summary in find.all_runs(store, RunFilter(project=project, parent="", open_only=True))
    ]
    return total(runs)


def total(runs: Iterable[Glance]) -> Overview:
    """These runs, and what they have spent together."""
    found = tuple(runs)
    numbers = ("input", "output", "cache_read", "cache_write", "cost_microusd", "time_ms")
    flags = ("estimated", "subscription", "unpriced")
    total = Usage(
        **{name: sum(getattr(each.spent, name) for each in found) for name in numbers},
        **{name: any(getattr(each.spent, name) for each in found) for name in flags},
    )
    return Overview(runs=found, spent=spent_of(total, sum(each.spent.beats for each in found)))


def _glance(store: Store, summary: Summary, now: datetime) -> Glance:
    status = find.shown_status(store, summary.state, summary.run)
    head = _with_children(store, summary.state)
    live = live_of(head, status, now)
    lived_ms = head.spent.time_ms + live.lived_ms
    spent = spent_of(msgspec.structs.replace(head.spent, time_ms=lived_ms), head.beats)
    return Glance(
        run=head.run, task=head.task, project=head.project, status=status, goal=head.title, spent=spent,
        units=tuple(units(head, live, lived_ms, None, status)),
    )  # fmt: skip


Money = Literal["paid", "subscription", "unknown price"]


def money(spent: Spent) -> Money:
    """How to show the money: a subscription costs nothing per call, and an unknown price is not 0."""
    if spent.unpriced:
        return "unknown price"
    return "subscription" if spent.subscription else "paid"


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)
