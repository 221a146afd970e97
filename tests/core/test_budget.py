"""The ledger as it is computed: what is spent, set aside and left; when to warn, when to wrap up, what a crash costs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.core import budget as budgets, events as ev, state as fold
from outlast.core.state import RunState
from outlast.core.values import Allowance, Contract, Usage, Window
from outlast.errors import BadSetting
from outlast.runs.opening import terms

AT = datetime(2026, 11, 15, 2, 14, tzinfo=UTC)
amounts = st.integers(0, 10**6)
usages = st.builds(Usage, amounts, amounts, amounts, amounts, amounts)


def opened(**limits: Any) -> RunState:
    contract = Contract(goal="g")
    run = ev.RunOpened(at=AT, run="r", task="t", project="p", contract=contract, budget=Allowance(**limits))
    return fold.apply(RunState(), run)


def started(state: RunState, epoch: int = 1, **more: Any) -> RunState:
    return fold.apply(state, ev.AttemptStarted(at=AT, epoch=epoch, **more))


def beat(state: RunState, spent: Usage | None, **more: Any) -> RunState:
    before = dict(state.reserved).get(fold.BEAT, Usage())
    reserved = budgets.next_reserved(before, spent or Usage())
    done = ev.BeatDone(at=AT, beat=state.beats + 1, spent=spent, reserved=reserved, **more)
    return fold.apply(state, done)


def line(state: RunState, unit: str, live: budgets.Live | None = None) -> budgets.Line:
    return next(each for each in budgets.lines(state, live) if each.unit == unit)


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "share"), [("10%", 10), ("0", 0), (" 99 % ", 99)])
def test_a_reserve_is_read(text: str, share: int) -> None:
    assert budgets.reserve(text) == share


@pytest.mark.parametrize("text", ["100%", "250", "-1", "ten", "", "1.5%"])
def test_a_reserve_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        budgets.reserve(text)


@pytest.mark.parametrize(
    "text", ["$5", "1.5", "usd=0.0000001", "time=999999999999999999d", "999999999999999999", "beats=2.5"]
)
def test_an_amount_that_is_no_whole_or_no_sane_number_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        budgets.parse(text)


@pytest.mark.parametrize(
    ("limits", "spent", "typed"),
    [
        ({"tokens": 400_000}, Usage(output=400_000), "--budget +200k"), ({"tokens": 7}, Usage(output=7), "--budget +3"),
        ({"cost_microusd": 12_000_000}, Usage(cost_microusd=12_000_000), "--budget usd=+6.00"),
        ({"time_s": 28_800}, Usage(time_ms=28_800_000), "--budget time=+240m"),
    ],
)  # fmt: skip
def test_what_to_type_for_more_can_be_read_again(limits: dict[str, Any], spent: Usage, typed: str) -> None:
    state = msgspec.structs.replace(opened(**limits), spent=spent)
    assert budgets.increase_hint(state, budgets.Live(AT)) == typed
    assert budgets.parse(typed.removeprefix("--budget ").replace("+", "")) is not None


@pytest.mark.parametrize("limit", [1, 50, 80, 95, 100])
@pytest.mark.parametrize("used", [79.0, 80.5, 94.9, 95.0, 99.0, 100.0])
@pytest.mark.parametrize("reserve", [0, 10, 40])
def test_what_to_type_for_more_of_a_window_lets_the_run_go_on(limit: int, used: float, reserve: int) -> None:
    state = msgspec.structs.replace(
        opened(window_pct=limit, reserve_pct=reserve), window=Window(used, AT + timedelta(hours=1), "5h")
    )
    live = budgets.Live(AT)
    [line] = budgets.lines(state, live)
    if not line.is_reached and not line.wraps_up:
        return
    typed = budgets.increase_hint(state, live).removeprefix("--budget ")
    after = terms.raised(state, [typed])
    [line] = budgets.lines(msgspec.structs.replace(state, budget=after), live)
    assert not line.is_reached, typed
    assert not line.wraps_up or typed == "window=+100%", "more than that cannot be typed"


def test_all_units_are_read() -> None:
    assert budgets.parse(["400k", "usd=12.5", "time=8h", "beats=500", "window=80%"]) == Allowance(
        tokens=400_000, cost_microusd=12_500_000, time_s=28_800, beats=500, window_pct=80
    )


# -- crashes -------------------------------------------------------------------------------------------------------


@given(costs=st.lists(usages, min_size=1, max_size=6), in_flight=usages)
def test_a_lost_attempt_is_charged_what_was_set_aside_less_what_is_on_record(
    costs: list[Usage], in_flight: Usage
) -> None:
    state = started(opened(tokens=10**9))
    for cost in costs:
        state = beat(state, cost)
    before = state.spent
    state = fold.apply(
        state,
        ev.Decided(at=AT, beat=len(costs) + 1, name="d", occurrence=1, value=fold.Payload(), usage=in_flight),
    )
    charge = budgets.charge_for_killed(state)
    reserved = dict(state.reserved)[fold.BEAT]
    after = before.plus(in_flight).plus(charge)
    for name in ("input", "output", "cache_read", "cache_write", "cost_microusd"):
        paid = getattr(after, name) - getattr(before, name)
        assert paid == max(getattr(reserved, name), getattr(in_flight, name)), (
            "the larger of the two, never both"
        )
    assert charge == Usage() or charge.estimated


def test_what_a_run_inside_spent_counts_against_the_budget_and_not_as_spent_again() -> None:
    """The run inside has it in its own head: who sums up runs must find it once."""
    state = started(opened(tokens=1_000))
    told = ev.SpendSettled(at=AT, key="inner", usage=Usage(input=700), source=ev.INSIDE)
    state = fold.apply(fold.apply(state, told), told)
    assert state.spent.tokens == state.open_spent.tokens == 0
    assert line(state, "tokens").spent == 1_400
    assert budgets.limit_reached(state, budgets.Live(AT))


def test_every_attempt_that_is_lost_in_the_same_beat_is_charged_once() -> None:
    state = beat(started(opened(tokens=1_000)), Usage(output=100))
    for epoch in (2, 3):
        charge = budgets.charge_for_killed(state)
        assert charge.tokens == 100
        state = fold.apply(
            state, ev.AttemptEnded(at=AT, epoch=epoch, status="interrupted", cause="crash", spent=charge)
        )
        assert budgets.charge_for_killed(state) == Usage(), "nothing is charged while none is under way"
        state = started(state, epoch)
    assert state.spent.tokens == 300
    assert beat(state, Usage(output=7)).open_spent == Usage()


def test_nothing_is_charged_where_nothing_was_ever_spent() -> None:
    state = started(opened(tokens=1_000))
    assert budgets.charge_for_killed(state) == Usage()
    assert budgets.charge_for_killed(beat(state, None)) == Usage()


def test_the_first_beat_of_an_agent_is_charged_too() -> None:
    first = budgets.first_reserved(Allowance(tokens=100_000, cost_microusd=2_000_000))
    assert first == Usage(input=5_000, cost_microusd=100_000)
    assert budgets.first_reserved(Allowance(tokens=10**9)).tokens == budgets.FIRST_TOKENS
    assert budgets.charge_for_killed(started(opened(tokens=100_000), reserved=first)).tokens == 5_000


@given(costs=st.lists(usages, min_size=1, max_size=12))
def test_what_is_set_aside_covers_the_last_beat_and_forgets_the_others(costs: list[Usage]) -> None:
    reserved = Usage()
    for cost in costs:
        reserved = budgets.next_reserved(reserved, cost)
        assert reserved.minus(cost).plus(cost) == reserved, "never less than the last one"
    assert reserved.tokens <= sum(
        max(getattr(c, name) for c in costs) for name in ("input", "output", "cache_read", "cache_write")
    )


# -- warnings ------------------------------------------------------------------------------------------------------


def levels(state: RunState, live: budgets.Live | None = None) -> list[str]:
    return [each.level for each in budgets.due_warnings(state, (75, 90), live)]


def test_each_level_is_due_once_and_only_the_highest_is_told() -> None:
    state = beat(started(opened(tokens=1_000)), Usage(output=749))
    assert levels(state) == []
    state = beat(state, Usage(output=1))
    assert levels(state) == ["budget 75% of tokens 1000"]
    state = fold.apply(state, ev.Warned(at=AT, level="budget 75% of tokens 1000"))
    assert levels(state) == []
    far = beat(started(opened(tokens=1_000)), Usage(output=950))
    assert levels(far) == ["budget 90% of tokens 1000"]


def test_more_budget_makes_the_levels_due_anew() -> None:
    state = beat(started(opened(tokens=1_000)), Usage(output=800))
    state = fold.apply(state, ev.Warned(at=AT, level="budget 75% of tokens 1000"))
    more = msgspec.structs.replace(state, budget=Allowance(tokens=1_050))
    assert levels(more) == ["budget 75% of tokens 1050"]


def test_what_a_plan_will_cost_is_warned_of_before_it_is_spent() -> None:
    state = fold.apply(started(opened(tokens=1_000)), ev.PlanSet(at=AT, steps=fold.Payload(), total=10))
    for _ in range(3):
        state = beat(state, Usage(output=90))
    assert levels(state) == [], "900 of 1,000"
    state = beat(state, Usage(output=180))
    assert levels(state) == ["budget forecast of tokens 1000"], "1,125 of 1,000"


# -- the end -------------------------------------------------------------------------------------------------------


def test_wrapping_up_begins_while_one_more_beat_and_the_reserve_still_fit() -> None:
    state = started(opened(tokens=1_000))
    while not budgets.wraps_up(state):
        state = beat(state, Usage(output=50))
        assert not budgets.limit_reached(state)
    assert state.spent.tokens == 800, "so that four more like the last ones fit"
    assert dict(state.reserved)[fold.BEAT].tokens == 50
    assert budgets.left(state.budget, state).wraps_up


@pytest.mark.parametrize(("share", "at"), [(0, 1_000), (10, 800), (20, 800), (50, 500)])
def test_the_reserve_is_as_large_as_was_said(share: int, at: int) -> None:
    state = beat(started(opened(tokens=1_000, reserve_pct=share)), Usage(output=50))
    while not budgets.wraps_up(state):
        state = beat(state, Usage(output=50))
    assert state.spent.tokens == at


@pytest.mark.parametrize(("beats", "told_after"), [(1, 1), (2, 1), (10, 9), (100, 90)])
def test_beats_have_a_reserve_of_whole_beats(beats: int, told_after: int) -> None:
    state = started(opened(beats=beats))
    while not budgets.wraps_up(state):
        state = beat(state, None)
    assert state.beats == told_after


def test_time_counts_only_while_an_agent_lives() -> None:
    state = started(opened(time_s=3_600))
    assert line(state, "time", budgets.Live(AT, 3_000_000)).left == 600
    ended = ev.AttemptEnded(
        at=AT, epoch=1, status="interrupted", cause="crash", spent=Usage(time_ms=3_000_000)
    )
    state = fold.apply(state, ended)
    assert line(state, "time", budgets.Live(AT + timedelta(days=9))).left == 600
    assert budgets.lines(state) == (), "without a clock nothing is said of time"
    assert (
        budgets.limit_reached(started(state, 2), budgets.Live(AT, 600_000))
        == "1 h 00 min of 1 h 00 min spent"
    )


def test_a_moment_is_kept() -> None:
    state = opened(until=AT + timedelta(hours=1))
    assert not budgets.wraps_up(state, budgets.Live(AT + timedelta(minutes=54)))
    assert budgets.wraps_up(state, budgets.Live(AT + timedelta(minutes=56)))
    assert budgets.limit_reached(state, budgets.Live(AT + timedelta(hours=2))) == "the run's time is over"
    later = Allowance(until=AT + timedelta(hours=10))
    amended = ev.ContractAmended(at=AT + timedelta(hours=9), contract=Contract(goal="g"), budget=later)
    state = fold.apply(state, amended)
    assert line(state, "until", budgets.Live(AT + timedelta(hours=9))).spent == 0, (
        "a new moment counts from when it was said"
    )


def test_a_window_is_a_gauge_that_resets() -> None:
    state = beat(
        started(opened(window_pct=80)), None, window=Window(79.0, AT + timedelta(hours=1), "five_hour")
    )
    assert line(state, "window", budgets.Live(AT)).left == 100
    assert budgets.wraps_up(state, budgets.Live(AT))
    assert not budgets.lines(state, budgets.Live(AT + timedelta(hours=2))), "it has been reset since"
    state = beat(state, None, window=Window(85.0))
    assert budgets.limit_reached(state, budgets.Live(AT))


def test_told_to_wrap_up_is_on_record_until_there_is_more() -> None:
    state = beat(started(opened(tokens=100)), Usage(output=95))
    state = fold.apply(state, ev.Warned(at=AT, level="wrap-up of tokens 100"))
    assert state.wrap_beat == 1
    again = fold.apply(beat(state, None), ev.Warned(at=AT, level="wrap-up once more"))
    assert again.wrap_beat == 1, "it counts from the first"
    args = fold.Payload(v=msgspec.Raw(msgspec.json.encode(Allowance(tokens=500))))
    assert fold.apply(again, ev.Requested(at=AT, id=1, by="me", what="budget", args=args)).wrap_beat is None


def test_two_who_add_at_once_both_count() -> None:
    state = opened(tokens=100)
    args = fold.Payload(v=msgspec.Raw(msgspec.json.encode(Allowance(tokens=50))))
    for number in (1, 2):
        state = fold.apply(state, ev.Requested(at=AT, id=number, by="me", what="more", args=args))
    assert state.budget == Allowance(tokens=200)


def test_more_is_added_unit_by_unit_and_the_rest_is_kept() -> None:
    budget = Allowance(tokens=100, beats=5, until=AT, reserve_pct=20)
    assert budgets.with_more(budget, Allowance(tokens=50, cost_microusd=9)) == Allowance(
        tokens=150, beats=5, until=AT, reserve_pct=20
    )
    assert budgets.same_limits(budget, msgspec.structs.replace(budget, until=None))
    assert not budgets.same_limits(budget, Allowance(tokens=100))


# -- calls that a gateway sees under way ---------------------------------------------------------------------------


def under_way(state: RunState, usage: Usage) -> RunState:
    return fold.apply(state, ev.SpendReserved(at=AT, key=fold.GATEWAY, usage=usage))


def test_calls_under_way_are_set_aside_once_and_not_spent() -> None:
    state = under_way(under_way(started(opened(tokens=1_000)), Usage(output=300)), Usage(output=400))
    assert (line(state, "tokens").spent, line(state, "tokens").reserved) == (0, 400), "the last word counts"
    assert not under_way(state, Usage()).reserved


def test_a_crash_is_charged_the_calls_under_way_or_the_beat_whichever_is_more() -> None:
    state = beat(started(opened(tokens=10_000)), Usage(output=50, cost_microusd=9))
    assert budgets.charge_for_killed(state) == Usage(output=50, cost_microusd=9, estimated=True)
    state = under_way(state, Usage(input=700, output=100, cost_microusd=3))
    assert budgets.charge_for_killed(state) == Usage(input=700, output=100, cost_microusd=9, estimated=True)
    lost = ev.AttemptEnded(
        at=AT, epoch=1, status="interrupted", cause="crash", spent=budgets.charge_for_killed(state)
    )
    state = started(fold.apply(state, lost), 2)
    assert state.spent.tokens == 850
    assert fold.GATEWAY not in dict(state.reserved)
    assert budgets.charge_for_killed(state).tokens == 50, "never twice: what is left is the next beat's"


def test_what_a_beat_is_known_to_have_cost_is_under_way_no_longer() -> None:
    state = under_way(started(opened(tokens=10_000)), Usage(output=900))
    assert dict(beat(state, Usage(output=600)).reserved)[fold.GATEWAY].tokens == 300
    assert fold.GATEWAY not in dict(beat(state, Usage(output=900)).reserved)
