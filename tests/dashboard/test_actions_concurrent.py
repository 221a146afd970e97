"""Acts that meet: budget is neither made nor lost, nothing that somebody was promised is taken back. Real runs and processes."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from outlast import Run
from outlast.core.values import Allowance
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import ActName, Done, Wish
from outlast.errors import OutlastError, UsageError
from outlast.inspect import find
from outlast.operations import fork as forks, requests
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.control import resume
from tests.supervisor.supervised_command import Night
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.inprocess import Killed, armed, at_point, attempt
from tests.support.processes import wait_for

BY = "alice via ui"


class TaskActions:
    """A store, and acts on its newest run of a task."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def summary(self, of: str = "t") -> Summary:
        return self.store.list(RunFilter(task=of))[0]

    def status(self, of: str = "t") -> str:
        return find.shown_status(self.store, self.summary(of).state, self.summary(of).root)

    def tokens(self, of: str = "t") -> int:
        """The limit of a run, with what waits for its holder."""
        budget = requests.standing(self.store, self.summary(of).run).state.budget
        assert budget is not None
        assert budget.tokens is not None
        return budget.tokens

    def left(self, of: str) -> int:
        return self.tokens(of) - self.summary(of).state.spent.tokens

    def do(self, act: ActName, **fields: Any) -> Done:
        return perform.do(self.store, Wish(act=act, run=self.summary().run, **fields), BY)

    def fork(self, tokens: int, task: str) -> bool:
        """As the command does it; whether it was made."""
        given = Allowance(tokens=tokens)
        try:
            plan = forks.prepare(self.store, self.summary(), at=1, task=task, budget=given)
            return forks.is_new(plan, forks.make(self.store, plan, by="bob"))
        except OutlastError:
            return False


@pytest.fixture
def dashboard(state: Isolated) -> Iterator[TaskActions]:
    store = open_store(state.state_home / "outlast")
    yield TaskActions(store)
    store.close()


def rests(start: Callable[..., Run], **terms: Any) -> None:
    """A run that has done a beat and was cut off in the next one."""

    def work(run: Run) -> None:
        for beat in run.beats():
            if beat.number > 1:
                raise RuntimeError("the agent broke down")
            beat.spend(100)
            beat.done()

    with pytest.raises(RuntimeError, match="broke down"):
        attempt(start(**terms), work)


def lives(start: Callable[..., Run], during: Callable[[], None], **terms: Any) -> None:
    """A run at whose second beat something is done with it."""
    with start(**terms) as run:
        for beat in run.beats():
            beat.spend(100)
            if beat.number == 2:
                during()
            if beat.number == 3:
                beat.finish()
            beat.done()


# -- a fork and whoever else changes the budget ------------------------------------------------------------------------


def test_what_a_living_run_was_given_is_not_lost_by_a_fork_of_it(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    def during() -> None:
        assert dashboard.do("budget", amounts="+10k").ok
        assert dashboard.do("fork", beat=1, task="f", amounts="tokens=1000").ok
        assert dashboard.do("budget", amounts="+5k").ok

    lives(start, during, budget="100k")
    budget = dashboard.summary().state.budget
    assert budget is not None
    assert budget.tokens == 114_000
    assert dashboard.left("f") == 1_000


@pytest.mark.parametrize("way", [lives, None])
def test_forks_at_once_share_what_there_is(
    dashboard: TaskActions, start: Callable[..., Run], way: Callable[..., None] | None
) -> None:
    barrier, made = threading.Barrier(3), []

    def at_once() -> None:
        together = [
            lambda: dashboard.do("fork", beat=1, task="a", amounts="tokens=60k").ok,
            lambda: dashboard.fork(60_000, "b"),
            lambda: dashboard.fork(60_000, "c"),
        ]
        meet = inprocess_hook("fork.before", barrier)
        with armed(meet), ThreadPoolExecutor(3) as pool:
            made.extend(pool.map(lambda act: act(), together))

    if way is None:
        rests(start, budget="100k")
        at_once()
    else:
        way(start, at_once, budget="100k")
    assert sum(made) == 1, made
    budget = dashboard.summary().state.budget
    assert budget is not None
    assert budget.tokens == 40_000


def inprocess_hook(point: str, barrier: threading.Barrier) -> Callable[[str], None]:
    """All who come to a point wait there for the others: each has worked out what it will do by then."""

    def hook(name: str) -> None:
        if name == point:
            barrier.wait(TIMEOUT_S)

    return hook


def test_what_was_added_while_a_fork_was_worked_out_stays(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    rests(start, budget="100k")
    run = dashboard.summary().run
    more = at_point(
        "fork.before",
        act=lambda _: requests.add_budget(dashboard.store, run, Allowance(tokens=10_000)) and None,
    )
    with armed(more):
        assert dashboard.do("fork", beat=1, task="f", amounts="tokens=1000").ok
    assert (dashboard.tokens(), dashboard.left("f")) == (109_000, 1_000)


def test_the_same_fork_asked_for_twice_at_once_is_made_once(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    rests(start, budget="100k")
    plans = [
        forks.prepare(dashboard.store, dashboard.summary(), at=1, budget=Allowance(tokens=30_000))
        for _ in range(2)
    ]
    runs = [forks.make(dashboard.store, plan, by=BY) for plan in plans]
    assert runs[0] == runs[1]
    assert [forks.is_new(plan, run) for plan, run in zip(plans, runs, strict=True)] == [True, False]
    assert dashboard.tokens() == 70_000
    other = forks.prepare(
        dashboard.store, dashboard.summary(), at=1, task="o", budget=Allowance(tokens=20_000)
    )
    forks.make(
        dashboard.store,
        forks.prepare(dashboard.store, dashboard.summary(), at=1, task="o", budget=Allowance(tokens=10_000)),
    )
    with pytest.raises(UsageError, match="has a run already"):
        forks.make(dashboard.store, other)
    assert dashboard.tokens() == 60_000


def test_budget_is_neither_made_nor_lost_whoever_does_what(
    dashboard: TaskActions, start: Callable[..., Run], rng: Random
) -> None:
    rests(start, budget="100k")
    courses = [[rng.choice((0, rng.randint(1, 40_000))) for _ in range(5)] for _ in range(4)]
    run, added = dashboard.summary().run, 0

    def course(nth: int) -> int:
        given = 0
        for step, tokens in enumerate(courses[nth]):
            if tokens:
                dashboard.fork(tokens, f"f-{nth}-{step}")
            else:
                requests.add_budget(dashboard.store, run, Allowance(tokens=7_000))
                given += 7_000
        return given

    with ThreadPoolExecutor(4) as pool:
        added = sum(pool.map(course, range(4)))
    made = [each.task for each in dashboard.store.list(RunFilter()) if each.task.startswith("f-")]
    assert dashboard.tokens() + sum(map(dashboard.left, made)) == 100_000 + added, (courses, made)
    assert dashboard.left("t") >= 0


def test_what_a_living_run_needs_for_its_beat_is_not_moved(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    said: list[Done] = []
    lives(
        start,
        lambda: said.append(dashboard.do("fork", beat=1, task="f", amounts="beats=9")),
        budget="beats=10",
    )
    assert not said[0].ok
    assert "has beats=8 left; beats=9 cannot be moved" in said[0].says


def test_the_same_amount_from_two_people_is_added_twice(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    says: list[Done] = []

    def during() -> None:
        says.append(dashboard.do("budget", amounts="+10k", limit_was="100,000 tokens"))
        says.append(dashboard.do("budget", amounts="+10k", limit_was="110,000 tokens"))

    lives(start, during, budget="100k")
    assert [(done.ok, done.changed) for done in says] == [(True, True)] * 2
    assert dashboard.tokens() == 120_000


# -- resume and whoever else changes the budget ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "after"), [("+10k", 115_000), ("+10k until=+8h", 115_000), ("130k", 130_000)]
)
def test_what_was_added_while_a_resume_had_the_run_stays(
    dashboard: TaskActions, start: Callable[..., Run], given: str, after: int
) -> None:
    rests(start, budget="100k")
    run = dashboard.summary().run
    more = at_point(
        "store.claimed",
        act=lambda _: requests.add_budget(dashboard.store, run, Allowance(tokens=5_000)) and None,
    )
    with armed(more):
        assert dashboard.do("resume", amounts=given).ok
    assert dashboard.tokens() == after


def test_a_resume_that_cannot_start_takes_no_money(dashboard: TaskActions, night: Night) -> None:
    agent = (sys.executable, "-P", str(night.folder / "agent.py"), str(night.folder))
    night.start("--task", "t", "--budget", "100k", "--", *agent)
    night.ready(1)
    dashboard.do("pause")
    wait_for(lambda: dashboard.status() == "paused" or None, what="a pause")
    night.work.rename(night.folder / "elsewhere")
    for _ in range(2):
        done = dashboard.do("resume", amounts="+10k")
        assert (done.ok, done.changed) == (False, False)
        assert f"the workspace {night.work} is gone, and its repository" in done.says
    asked = [
        item.event.what
        for item in dashboard.store.read(dashboard.summary().run, after=0, tags=("requested",)).events
    ]
    assert (dashboard.tokens(), asked) == (100_000, ["pause"])


def test_a_resume_that_comes_to_nothing_says_that_the_money_is_there(
    dashboard: TaskActions, night: Night
) -> None:
    program = night.folder / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -P {night.folder}/agent.py {night.folder}\n")
    program.chmod(0o755)
    night.start("--task", "t", "--budget", "100k", "--", str(program))
    night.ready(1)
    dashboard.do("pause")
    wait_for(lambda: dashboard.status() == "paused" or None, what="a pause")
    program.unlink()
    done = dashboard.do("resume", amounts="+10k")
    assert (done.ok, done.changed) == (False, True)
    assert "not found" in done.says
    assert done.says.endswith("Its budget is already 110,000 tokens, although it did not start.")


# -- resume and a stop that waits --------------------------------------------------------------------------------------


def test_a_resume_waits_for_a_pause_and_goes_on(dashboard: TaskActions, night: Night) -> None:
    night.start_agent()
    night.ready(1)
    assert dashboard.do("pause").ok
    done = dashboard.do("resume")
    assert (done.ok, done.changed) == (True, True), done
    night.ready(2)
    assert dashboard.status() == "running"


def test_a_resume_is_refused_while_a_pause_waits_that_does_not_come(
    dashboard: TaskActions, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "acts.leaves_within_s=0.1")

    def during() -> None:
        assert dashboard.do("pause").ok
        done = dashboard.do("resume")
        assert (done.ok, done.changed) == (False, False)
        assert f"was asked to pause by {BY}, and has not stopped yet" in done.says

    with pytest.raises(OutlastError, match="pause asked by"):
        lives(start, during)


def test_who_is_dying_is_not_taken_for_one_who_goes_on(
    dashboard: TaskActions, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, f"acts.sure_after_s={TIMEOUT_S}")
    with ThreadPoolExecutor(1) as pool:

        def killed(run: Run) -> None:
            for beat in run.beats():
                future = pool.submit(dashboard.do, "resume")
                with pytest.raises(TimeoutError):
                    future.result(0.2)
                answers.append(future)
                raise Killed(beat.number)

        answers: list[Any] = []
        attempt(start(), killed)
        done = answers[0].result(TIMEOUT_S)
    assert done.ok
    assert "may be started again" in done.says


def test_going_on_with_more_counts_from_what_it_has_then(
    dashboard: TaskActions, start: Callable[..., Run]
) -> None:
    rests(start, budget=["100k", "beats=9"])
    resume.allow_again(dashboard.store, dashboard.summary(), ["+10k", "beats=20"])
    assert dashboard.summary().state.budget == Allowance(tokens=110_000, beats=20)
