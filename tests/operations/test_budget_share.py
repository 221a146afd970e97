"""What the store's own history predicts, and one budget shared: exact, never above the total, given back."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast import Run, faults
from outlast.core import events as ev, forecast
from outlast.core.values import Allowance, Contract, Parent, Payload
from outlast.inspect import find, forecast as forecasts
from outlast.operations import budget_share, requests
from outlast.store import open_store
from outlast.store.protocol import Store, Summary
from tests.support.inprocess import reading
from tests.support.journals.past_runs import BEGIN, put

Start = Callable[..., Run]
TOTAL = 5_000_000


@pytest.fixture
def opened(store: Path) -> Iterator[Store]:
    with reading(store) as found:
        yield found


def filled(store: Store, runs: int = 30, tokens: int = 100_000) -> None:
    for n in range(runs):
        put(store, n, tokens=tokens + n, time_s=600 + n, status="done", agent="claude")


def shared(store: Store, total: int | None = TOTAL, **more: bool) -> budget_share.Split:
    """What `outlast budget share --yes` does."""
    with budget_share.sharing(store, "app") as pool:
        asked: tuple[forecast.Unit, int] | None = None if total is None else ("tokens", total)
        made = budget_share.split(store, "app", asked, budget_share.waiting(store, "app"), **more)
        budget_share.apply(store, pool, made)
    return made


def limits(store: Store) -> dict[str, int]:
    """The limit of every run that has one."""
    found = ((each.run, each.state.budget) for each in find.all_runs(store, budget_share.RunFilter()))
    return {run: budget.tokens for run, budget in found if budget is not None and budget.tokens is not None}


def summary(store: Store, run: str) -> Summary:
    return requests.summary_of(store, run)


def finish(store: Store, run: str) -> None:
    """Somebody cancels it: what it spent is what it needed."""
    requests.cancel(store, run)


# -- history -----------------------------------------------------------------------------------------------------------


def test_history_is_what_roots_have_cost_and_takes_one_query(
    opened: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(opened, 0, tokens=7_000, time_s=61, status="done", agent="codex", plan=5, files=("src/a.py",))
    put(opened, 1, tokens=9_000, status="failed")
    put(opened, 2, tokens=3_000)
    root = put(opened, 3)
    put(opened, 4, tokens=1_000, parent=Parent(root, 1, root))
    asked: list[str] = []
    opened._db.read, ask = (lambda what: (asked.append("query"), ask(what))[1]), opened._db.read  # type: ignore[method-assign]
    found = {past.name: past for past in forecasts.history(opened)}
    assert len(asked) == 1
    assert set(found) == {"t0", "t1", "t2"}
    assert (found["t0"].tokens, found["t0"].time_s, found["t0"].finished) == (7_000, 61, True)
    assert found["t0"].task == forecast.Task(goal="fix the parser", plan=5, project="app", agent="codex")
    assert found["t0"].touched == ("src/a.py",)
    assert [found[name].finished for name in ("t1", "t2")] == [False, False]


def test_auto_is_p90_in_round_numbers_and_time_only_where_it_was_learnt(opened: Store) -> None:
    budget, found = forecasts.auto(opened, goal="fix the parser", project="app")
    assert budget == Allowance(tokens=2_000_000)
    assert found.tokens.sure == "default"
    filled(opened)
    budget, found = forecasts.auto(opened, goal="fix the parser", project="app", agent="claude")
    assert budget.tokens is not None
    assert found.tokens.p90 <= budget.tokens <= found.tokens.p90 * 1.1
    assert budget.tokens % 1_000 == 0
    assert budget.time_s is not None
    assert budget.time_s % 60 == 0
    assert found.tokens.similar == 30


def test_without_a_store_the_default_is_said() -> None:
    assert forecasts.suggest(None, goal="anything").tokens.sure == "default"


def test_the_first_prediction_is_kept_and_priced_again_at_each_beat(start: Start, opened: Store) -> None:
    filled(opened)
    with start("again", goal="fix the parser", project="app") as run:
        run.plan(["one", "two", "three", "four"])
        seen = []
        for beat in run.beats():
            beat.spend(outlast.Usage(input=400_000))
            beat.done()
            head = summary(opened, run.id).state
            told = forecasts.first_forecast(opened, head)
            seen.append((head.spent.tokens, forecasts.repriced(told, head).tokens))
    assert all(spent <= bounds.p50 <= bounds.p90 for spent, bounds in seen)
    assert seen[-1][1] == forecast.Range(1_600_000, 1_600_000)
    assert seen[2][1].p50 > told.tokens.p90, "it was dearer than all before, which the beats tell"
    put(opened, 900, tokens=10**9, status="done")
    assert forecasts.first_forecast(opened, summary(opened, run.id).state) == told
    kept = opened.local.run_folder(run.id) / forecasts.FILE
    kept.write_bytes(b"{")
    assert forecasts.first_forecast(opened, summary(opened, run.id).state).tokens.p90 > 0


def test_the_agent_of_a_run_that_never_started_is_that_of_its_command(opened: Store) -> None:
    launch = Payload(v=msgspec.Raw(b'{"argv":["claude","-p","go"],"program":"/opt/bin/claude","cwd":"/"}'))
    run = opened.create(
        ev.RunOpened(
            at=BEGIN, run="x" * 12, task="x", project="app", contract=Contract(goal="g"), launch=launch
        )
    )
    assert forecasts.agent_of(opened, summary(opened, run).state) == "claude"


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_a_share_adds_up_and_goes_by_need(opened: Store) -> None:
    for n in range(40):
        goal, cost = ("fix a typo", 20_000) if n % 2 else ("migrate the schema", 900_000)
        put(opened, n, tokens=cost + n, status="done", goal=goal)
    small = put(opened, 50, goal="fix a typo")
    large = put(opened, 51, goal="migrate the schema")
    begun = put(opened, 52, goal="fix a typo", tokens=300_000, status="interrupted")
    made = shared(opened)
    found = limits(opened)
    assert sum(found.values()) == TOTAL
    assert found[large] > 5 * found[small]
    assert found[begun] >= 300_000 + budget_share.FLOOR["tokens"]
    assert [share.before for share in made.shares] == [None, None, None]


def test_only_looking_changes_nothing(opened: Store) -> None:
    put(opened, 0)
    budget_share.split(opened, "app", ("tokens", TOTAL), budget_share.waiting(opened, "app"))
    assert limits(opened) == {}
    assert budget_share.pools(opened) == {}


def test_other_units_of_a_budget_stay(opened: Store) -> None:
    run = put(opened, 0, budget=Allowance(tokens=5, beats=70, time_s=600))
    shared(opened)
    assert summary(opened, run).state.budget == Allowance(tokens=TOTAL, beats=70, time_s=600)


def test_what_a_run_did_not_need_goes_back(opened: Store) -> None:
    thrifty = put(opened, 0, tokens=100_000, status="interrupted")
    other = put(opened, 1)
    shared(opened)
    given = limits(opened)[thrifty]
    finish(opened, thrifty)
    made = shared(opened, None)
    assert (made.used, made.returned) == (100_000, given - 100_000)
    assert limits(opened)[other] == TOTAL - 100_000
    assert shared(opened, None) == made or limits(opened)[other] == TOTAL - 100_000, (
        "again, and nothing moves"
    )


def test_a_run_that_works_keeps_what_it_holds(start: Start, opened: Store) -> None:
    put(opened, 0)
    with start("busy", goal="fix the parser", project="app") as run:
        pass
    shared(opened)
    holds = limits(opened)[run.id]
    with start("busy", goal="fix the parser", project="app"):
        put(opened, 1)
        made = shared(opened, None)
        assert made.held == holds
        assert {share.task for share in made.shares} == {"t0", "t1"}
        assert sum(share.limit for share in made.shares) + holds == TOTAL


def test_a_new_total_begins_anew_when_all_of_the_old_are_over_or_when_asked(opened: Store) -> None:
    first = put(opened, 0, tokens=700_000, status="interrupted")
    shared(opened)
    finish(opened, first)
    put(opened, 1)
    assert budget_share.split(opened, "app", None, budget_share.waiting(opened, "app")).used == 700_000
    assert shared(opened, 2_000_000).used == 0
    second = put(opened, 2, tokens=300_000, status="interrupted")
    shared(opened, 2_000_000)
    finish(opened, second)
    assert shared(opened, 2_000_000).used == 300_000
    assert shared(opened, 2_000_000, anew=True).used == 0


def test_a_run_that_was_forgotten_counts_with_all_it_was_given(opened: Store) -> None:
    first, _ = put(opened, 0), put(opened, 1)
    shared(opened)
    given = limits(opened)[first]
    finish(opened, first)
    opened.forget(first)
    assert shared(opened, None).used == given


def test_too_small_a_total_is_refused_with_the_smallest_that_would_do(opened: Store) -> None:
    put(opened, 0, tokens=400_000, status="interrupted")
    put(opened, 1)
    runs = budget_share.waiting(opened, "app")
    with pytest.raises(outlast.UsageError) as refused:
        budget_share.split(opened, "app", ("tokens", 300_000), runs)
    assert "--total 440000" in refused.value.hint
    assert (
        sum(s.limit for s in budget_share.split(opened, "app", ("tokens", 440_000), runs).shares) == 440_000
    )
    with pytest.raises(outlast.UsageError, match="no total"):
        budget_share.split(opened, "app", None, runs)


def test_a_torn_file_of_pools_is_named_and_not_overwritten(opened: Store) -> None:
    put(opened, 0)
    (opened.local.folder / "pools.json").write_bytes(b'{"app":')
    with pytest.raises(outlast.StoreError, match=r"pools\.json"):
        shared(opened)


def test_killed_anywhere_the_limits_are_never_above_the_total_and_the_same_again_ends_right(
    tmp_path: Path,
) -> None:
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        with reading(root) as store:
            for n, limit in enumerate((4_000_000, 500_000, 500_000)):
                put(store, n, budget=Allowance(tokens=limit), tokens=200_000 * (2 - n), status="interrupted")
            for n in range(10, 40):
                put(store, n, tokens=90_000 + n, status="done")
        pid = os.fork()
        if pid == 0:
            faults.arm(faults.nth(nth, lambda name: os.kill(os.getpid(), signal.SIGKILL)))
            code = 1
            try:
                mine = open_store(root)
                shared(mine)
                mine.close()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)
        with reading(root) as store:
            assert sum(limits(store).values()) <= TOTAL, f"killed at crash point {nth}"
            shared(store)
            assert sum(limits(store).values()) == TOTAL, f"killed at crash point {nth}"
        if code == 0:
            assert nth > 3, "it met crash points"
            return
