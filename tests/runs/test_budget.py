"""Budgets of Python runs: what a kill costs, what a resume has left, who is warned, when to wrap up."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import outlast
from outlast import Run
from outlast.core import budget, events as ev
from outlast.runs import attempts
from outlast.runs.run import run_engine
from tests.support.inprocess import at_point, attempt, head_of, journal_of

Start = Callable[..., Run]
PRICE = 10
HOUR = timedelta(hours=1)
BEATS = 5


class PaidModel:
    """Counts what it was really paid for."""

    def __init__(self) -> None:
        self.paid = 0

    def __call__(self) -> outlast.Answer:
        self.paid += 1
        return outlast.Answer("words", outlast.Usage(output=PRICE))

    def work(self, run: Run) -> None:
        for beat in run.beats():
            beat.decide("ask", self)
            if beat.number == BEATS:
                beat.finish()
            beat.done()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("nth", range(1, BEATS + 1))
@pytest.mark.parametrize(
    "point", ["beat.begun", "decide.answered", "decide.recorded", "beat.before_done", "beat.done"]
)
def test_a_kill_is_charged_once_and_never_too_little(start: Start, store: Path, point: str, nth: int) -> None:
    model = PaidModel()
    assert not attempt(start(budget=1000), model.work, at_point(point, nth))
    assert attempt(start(budget=1000), model.work)
    spent = head_of(store).spent.tokens
    unknown = point == "decide.answered" and nth == 1  # nothing tells yet what a beat costs
    assert model.paid * PRICE - PRICE * unknown <= spent <= (model.paid + 1) * PRICE


def test_each_kill_in_one_beat_is_charged(start: Start, store: Path) -> None:
    model = PaidModel()
    assert not attempt(start(budget=1000), model.work, at_point("decide.answered", 2))
    for _ in range(3):
        assert not attempt(start(budget=1000), model.work, at_point("decide.answered"))
    with start(budget=1000) as run:
        assert run.budget.tokens == 1000 - 5 * PRICE == 1000 - model.paid * PRICE
    assert head_of(store).spent.estimated


def test_a_resumed_run_has_exactly_what_it_had_left(start: Start) -> None:
    model = PaidModel()
    with start(budget=["1000", "beats=50"]) as run:
        for beat in run.beats():
            beat.decide("ask", model)
            beat.done()
            if beat.number == 3:
                break
    for _ in range(4):
        with start(budget=["1000", "beats=50"]) as run:
            assert (run.budget.tokens, run.budget.beats) == (970, 47)


def test_what_a_beat_had_spent_when_it_failed_counts(start: Start, store: Path) -> None:
    with pytest.raises(ConnectionError), start(budget=1000) as run:
        for beat in run.beats():
            beat.spend(outlast.Usage(output=70))
            raise ConnectionError("the service is down")
    assert head_of(store).spent.tokens == 70
    [ended] = [event for event in journal_of(store) if isinstance(event, ev.AttemptEnded)]
    assert (ended.cause, ended.spent is not None and ended.spent.tokens) == ("crash", 70)


@pytest.mark.parametrize("what", ["pause", "kill", "cancel", "handoff"])
def test_an_attempt_that_is_stopped_on_request_is_charged_its_time_and_what_its_beat_had_spent(
    start: Start, store: Path, what: str
) -> None:
    with pytest.raises(outlast.OutlastError), start(budget="time=1h") as run:
        engine = run_engine(run)
        engine.meter._since_s -= 600  # as though ten minutes had passed
        for beat in run.beats():
            beat.spend(outlast.Usage(output=70))
            engine.journal.store.inbox.put(run.id, by="ada", what=what)
            beat.act("comment", lambda: 1)
    spent = head_of(store).spent
    assert (spent.tokens, spent.time_ms // 100_000) == (70, 6)


class WarningNotes:
    """Notes the level of each warning."""

    def __init__(self) -> None:
        self.levels: list[str] = []

    def warned(self, crossing: budget.DueWarning) -> None:
        self.levels.append(crossing.level)


def test_each_level_is_on_record_once_and_costs_no_commit(start: Start, store: Path) -> None:
    listener = WarningNotes()
    for _ in range(2):
        with pytest.raises(outlast.BudgetReached), start(budget=100) as run:
            run_engine(run).meter.listener = listener
            for beat in run.beats():
                beat.decide("ask", PaidModel())
                beat.done()
    levels = [event.level for event in journal_of(store) if isinstance(event, ev.Warned)]
    assert levels == listener.levels == ["budget 75% of tokens 100", "budget 90% of tokens 100"]


def test_an_attempt_that_is_cut_while_its_model_answers_is_charged_what_was_set_aside(
    start: Start, store: Path
) -> None:
    model = PaidModel()
    with pytest.raises(KeyError), start(budget=1000) as run:
        for beat in run.beats():
            beat.decide("ask", model)
            beat.done()
            if beat.number == 2:
                run_engine(run).meter.is_cut = True  # as a supervisor says before it stops an agent
                raise KeyError
    spent = head_of(store).spent
    assert (spent.tokens, spent.estimated) == (3 * PRICE, True)


def test_a_program_sees_that_only_the_reserve_is_left(start: Start) -> None:
    seen: list[tuple[int | None, bool]] = []
    with pytest.raises(outlast.BudgetReached), start(budget=100) as run:
        for beat in run.beats():
            seen.append((run.budget.tokens, run.budget.wraps_up))
            if run.budget.wraps_up:
                assert "only the reserve is left" in run.context()
            beat.decide("ask", PaidModel())
            beat.done()
    assert seen == [(left, left <= 40) for left in range(100, 0, -10)]


def test_a_budget_of_time_counts_the_time_of_dead_attempts(start: Start, store: Path) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.done()

    assert not attempt(start(budget="time=1h"), body, at_point("beat.done", 3))
    with start(budget="time=1h") as run:
        assert 3590 < (run.budget.time_s or 0) <= 3600
    assert head_of(store).spent.time_ms < 60_000


def test_an_attempt_that_was_lost_is_charged_the_time_until_it_was_last_seen(start: Start) -> None:
    with start(budget="time=1h") as run:
        head = run_engine(run).state
        assert head.attempt is not None
        since_s = head.attempt.uptime_s
        seen = attempts.lost(head, run_engine(run).journal.now(), last_seen_s=since_s + 600.0)
        other = replace(
            head, attempt=replace(head.attempt, boot_id="another"), updated_at=head.attempt.started_at + HOUR
        )
        before_boot = attempts.lost(other, run_engine(run).journal.now(), last_seen_s=since_s + 600.0)
    assert seen.spent == outlast.Usage(time_ms=600_000)
    assert before_boot.spent == outlast.Usage(time_ms=3_600_000), "until its last event"


def test_until_is_said_anew_with_each_start(start: Start, store: Path) -> None:
    first, second = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 2))
    for until in (first, second):
        with start(budget=outlast.Allowance(tokens=100, until=until)) as run:
            assert run_engine(run).state.budget == outlast.Allowance(tokens=100, until=until)
    with start() as run:
        assert run_engine(run).state.budget == outlast.Allowance(tokens=100, until=second)
    past: Any = outlast.Allowance(tokens=100, until=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(outlast.BudgetReached, match="is over"), start(budget=past) as run:
        next(iter(run.beats()))
