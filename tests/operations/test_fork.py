"""Where a fork begins and what its past has cost, found without reading all of a long journal."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest

from outlast.core import events as ev, questions, state as st
from outlast.core.values import Allowance, Usage
from outlast.errors import OutlastError
from outlast.inspect import ledger, ledger_sums
from outlast.operations import fork, requests as operations_requests
from outlast.runs.inbox import BudgetArgs, Move
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store
from tests.support.journals.scribe import AgentCli, Scribe

BEGIN = datetime(2026, 3, 1, 22, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "store")
    yield made
    made.close()


def written(rng: Random) -> Scribe:
    """A run of some attempts, with decisions, calls and beats that were cut off."""
    scribe = Scribe(
        rng, BEGIN, "1411", "/srv/app/.git", "fix it", AgentCli("claude", "claude", "opus", 1_000)
    )
    for _ in range(rng.randint(1, 4)):
        scribe.start()
        for _ in range(rng.randint(0, 6)):
            if rng.random() < 0.5:
                scribe.call("Bash make")
                scribe.confirm("ok")
            if rng.random() < 0.3:
                usage = Usage(input=rng.randint(1, 99), time_ms=rng.randint(0, 9_999))
                scribe.say(ev.SpendSettled(at=scribe.at, key="call", usage=usage))
            scribe.beat("it", tokens=rng.randint(0, 500))
        scribe.stop("signal", "SIGKILL")
    return scribe


def test_a_fork_does_not_get_the_approval_that_its_source_has_not_used_yet(store: Store, rng: Random) -> None:
    """It would pass a call once in each of them."""
    scribe = Scribe(
        rng, BEGIN, "1411", "/srv/app/.git", "fix it", AgentCli("claude", "claude", "opus", 1_000)
    )
    scribe.start()
    scribe.say(ev.QuestionAsked(at=scribe.at, id="a1", kind="approval", text="git push", digest="d"))
    scribe.say(ev.QuestionAnswered(at=scribe.at, id="a1", answer="approved", by="ada"))
    scribe.beat("it", tokens=10)
    (summary,) = store.list(RunFilter(run_prefix=store.create(*scribe.journal)))
    assert questions.usable(summary.state.questions, "d") is not None
    made = fork.make(store, fork.prepare(store, summary, at=1))
    assert operations_requests.summary_of(store, made).state.questions == ()


@pytest.mark.parametrize("nth", range(12))
def test_a_save_point_and_its_cost_are_what_the_whole_journal_says(
    store: Store, rng: Random, nth: int
) -> None:
    run = store.create(*written(rng).journal)
    (summary,) = store.list(RunFilter(run_prefix=run))
    events = [item.event for item in store.read(run, after=0).events]
    for at in range(summary.state.beats + 1):
        length = fork.save_point(events, at)
        length = len(events) if length is None else length
        seq = fork.place(store, summary.state, at)
        assert seq == length, f"beat {at}"
        kept = fork.work_among(events[:length])
        assert fork.past(store, run, seq) == kept
        assert fork._used(store, run, seq) == st.fold(st.RunState(), list(kept)).spent


def test_what_a_fork_may_do_again_is_what_was_intended_after_it(store: Store, rng: Random) -> None:
    scribe = written(rng)
    scribe.start().call("Bash deploy")
    run = store.create(*scribe.journal)
    (summary,) = store.list(RunFilter(run_prefix=run))
    for at in range(summary.state.beats + 1):
        plan = fork.prepare(store, summary, at=at)
        intended = {
            f"{item.event.beat}.{item.event.n}"
            for item in store.read(run, after=0, tags=("effect_intended",)).events
            if isinstance(item.event, ev.EffectIntended) and item.event.beat > at
        }
        assert {each.id for each in plan.again} == intended


# -- what is moved ----------------------------------------------------------------------------------------------------


def limited(store: Store, rng: Random) -> str:
    """A run that rests, with 9,000 tokens left of its budget, and no other limit."""
    scribe = Scribe(
        rng, BEGIN, "1411", "/srv/app/.git", "fix it", AgentCli("claude", "claude", "opus", 1_000)
    )
    opened, events = scribe.start().beat("it", tokens=1_000).stop("signal", "SIGKILL").journal
    return store.create(msgspec.structs.replace(opened, budget=Allowance(tokens=10_000, beats=9)), events)


@pytest.mark.parametrize("what", ["less", "budget"])
def test_a_fork_cut_off_after_its_move_is_ended_by_the_same_command(
    store: Store, rng: Random, what: str
) -> None:
    """An outlast before this one wrote down what is left, not what was moved."""
    run = limited(store, rng)
    given = Allowance(tokens=4_000, beats=2)
    move = Move("abcdefghjkmn", "other", 1, given)
    args = BudgetArgs(4_000, beats=2, fork=move) if what == "less" else BudgetArgs(6_000, beats=7, fork=move)
    operations_requests.ask(store, run, "fork", what, msgspec.json.encode(args))
    plan = fork.prepare(store, operations_requests.summary_of(store, run), at=1, budget=given)
    assert (plan.moved_already, plan.opened.run) == (True, move.run)
    assert fork.make(store, plan) == move.run
    assert operations_requests.summary_of(store, run).state.budget == Allowance(tokens=6_000, beats=7)
    assert operations_requests.summary_of(store, move.run).state.budget == Allowance(tokens=5_000, beats=3)
    again = fork.prepare(store, operations_requests.summary_of(store, run), at=1, task="other", budget=given)
    assert (again.exists, fork.make(store, again)) == (True, move.run)


def test_what_was_moved_is_less_on_record_and_in_the_ledger(store: Store, rng: Random) -> None:
    run = limited(store, rng)
    given = Allowance(tokens=4_000, beats=2)
    fork.make(store, fork.prepare(store, operations_requests.summary_of(store, run), at=1, budget=given))
    requests = [item.event for item in store.read(run, after=0, tags=("requested",)).events]
    assert [event.what for event in requests if isinstance(event, ev.Requested)] == ["less", "forked"]
    sums = ledger_sums.Sums(last=1)
    ledger.take_in(store, run, sums)
    left = Allowance(tokens=6_000, beats=7)
    assert (operations_requests.summary_of(store, run).state.budget, sums.limits[-1][1]) == (left, left)


def test_a_limit_stays_one_whatever_is_taken_off_it() -> None:
    kept = Allowance(tokens=10, window_pct=80, reserve_pct=5)
    assert kept.minus(Allowance(tokens=4, beats=3, window_pct=20)) == Allowance(
        tokens=6, window_pct=80, reserve_pct=5
    )
    assert kept.minus(Allowance(tokens=40)).tokens == 1


def test_of_a_limit_that_nothing_was_spent_of_something_stays(store: Store, rng: Random) -> None:
    """A limit is at least 1: what stays there must not be made of nothing, however often one forks."""
    scribe = Scribe(
        rng, BEGIN, "1411", "/srv/app/.git", "fix it", AgentCli("claude", "claude", "opus", 1_000)
    )
    (opened, events) = scribe.start().stop("signal", "SIGKILL").journal
    run = store.create(msgspec.structs.replace(opened, budget=Allowance(beats=5)), events)
    moved = 0
    for wanted in (5, 4, 1, 1):
        (summary,) = store.list(RunFilter(run_prefix=run))
        try:
            plan = fork.prepare(
                store, summary, at=0, task=f"f{wanted}{moved}", budget=Allowance(beats=wanted)
            )
            fork.make(store, plan)
        except OutlastError:
            continue
        moved += wanted
    (summary,) = store.list(RunFilter(run_prefix=run))
    assert summary.state.budget is not None
    assert (moved, summary.state.budget.beats) == (4, 1)
