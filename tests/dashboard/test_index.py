"""The index of all runs: it says what the commands say, keeps up with what is written, and asks a constant number of questions."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import budget as budgets, events as ev
from outlast.core.values import NOTHING, Allowance, Contract, Parent, SessionMark, Usage, Window
from outlast.dashboard import report
from outlast.dashboard.documents import Ask, Overview, Row
from outlast.dashboard.overview import filters, rows
from outlast.dashboard.overview.index import Index
from outlast.dashboard.timing import Timing
from outlast.errors import UnknownRun
from outlast.inspect import find, ledger, show
from outlast.store import open_store
from outlast.store.protocol import Batch, Lease, Store, Where
from outlast.supervisor.guardian import lock
from outlast.supervisor.output import log
from tests.support import processes
from tests.support.processes import wait_for

AT = datetime(2026, 11, 15, 22, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def pen(store: Store) -> Iterator["Pen"]:
    pen = Pen(store)
    yield pen
    pen.release()


class Pen:
    """Writes journals through leases, as the runs' own processes would."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._leases: dict[str, Lease] = {}

    def open(
        self, task: str, *events: ev.AnyEvent, project: str = "/src/app/.git", goal: str = "mend it", agent: str = "",
        parent: Parent | None = None, budget: Allowance | None = None, model: str = "", at: datetime = AT,
    ) -> str:  # fmt: skip
        opened = ev.RunOpened(
            at=at, run=f"r{task}{len(self.store.list(Where()))}x", task=task, project=project, contract=Contract(goal),
            parent=parent, budget=budget,
        )  # fmt: skip
        session = SessionMark(agent, f"session of {task}", model=model)
        known = [ev.SessionKnown(at=at, session=session)] if agent else []
        return self.store.create(opened, [*known, *events])

    def write(self, run: str, *events: ev.AnyEvent) -> None:
        """Append to a run, which is held from now on."""
        summary = self.store.list(Where(runs=(run,)))[0]
        lease = self._leases.get(summary.root) or self.store.claim(summary.root)
        self._leases[summary.root] = lease
        self.store.append(Batch(lease, run, summary.state.seq, events))

    def release(self, *roots: str) -> None:
        for root in roots or tuple(self._leases):
            self.store.release(self._leases.pop(root))


def started(at: datetime = AT, epoch: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(at=at, epoch=epoch, host="here", pid=7, boot_id="b")


def ended(status: ev.EndStatus, cause: ev.Cause, at: datetime = AT, evidence: str = "why") -> ev.AttemptEnded:
    return ev.AttemptEnded(at=at, epoch=1, status=status, cause=cause, evidence=evidence)


def beat(number: int, at: datetime = AT, tokens: int = 100) -> ev.BeatDone:
    return ev.BeatDone(at=at, beat=number, step=f"step {number}", cursor=(number,), spent=Usage(input=tokens))


def intended(beat: int = 1, n: int = 1, policy: ev.Policy = "ask", at: datetime = AT) -> ev.EffectIntended:
    return ev.EffectIntended(
        at=at, beat=beat, n=n, name="push", key=f"k{beat}.{n}", policy=policy, args=NOTHING, occurrence=n
    )


def runs_of(overview: Overview) -> list[str]:
    return [row.run for row in overview.rows]


def tasks(index: Index, **asked: object) -> list[str]:
    return [row.task for row in index.overview(Ask(**asked)).rows]  # type: ignore[arg-type]


# -- it says what the commands say --------------------------------------------------------------------------------------


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
            above = rng.choice(pen.store.list(Where(runs=(root,))) + pen.store.list(Where(parent=root)))
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
        summary = rng.choice(pen.store.list(Where()))
        at = AT + HOUR + step * timedelta(minutes=1)
        pen.write(summary.run, *random_events(rng, summary.state.beats, at))
        if rng.random() < 0.5:
            pen.release()


def by_the_commands(store: Store, row: Row, now: datetime) -> None:
    """What `show`, `report` and `budget` would say, each with questions of its own."""
    summary = store.list(Where(runs=(row.run,)))[0]
    state = summary.state
    status = find.shown_status(store, state, summary.root)
    listed = show.listed(store, summary)
    assert (row.status, row.cause, row.in_doubt) == (status, listed.cause, listed.in_doubt)
    if summary.parent:
        assert row.act in (None, "settle")
        return
    judged = report.judged(find.children_in(store), state, status, now)
    assert (row.what, row.why, row.command) == judged
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
            roots = store.list(Where(parent=""))
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


# -- questions ------------------------------------------------------------------------------------------------------------


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
    assert few[0] == 1
    assert few[1] <= 4


# -- what no event tells ---------------------------------------------------------------------------------------------------

HOLDING = """
import sys
from outlast.store import open_store
store = open_store(sys.argv[1])
lease = store.claim(sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_death_without_a_word_shows_within_a_second_or_so(store: Store, pen: Pen, tmp_path: Path) -> None:
    run = pen.open("t", started())
    index = Index(store)
    assert (index.row(run).status, index.row(run).what) == ("interrupted", "stopped")
    command = processes.python_command(HOLDING, str(tmp_path / "store"), run)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            row = wait_for(lambda: (row := index.row(run)).lives and row, 20.0, "the holder to be seen")
            assert (row.status, row.what) == ("running", "running")
            version, number = index.version, index.number
        finally:
            holder.kill()
    row = wait_for(lambda: not (row := index.row(run)).lives and row, 20.0, "the death to be seen")
    assert (row.status, row.cause, row.what) == ("interrupted", "host", "stopped")
    assert index.version > version, "who pushes changes to pages learns of it"
    assert index.number == number


@pytest.fixture
def clock() -> list[datetime]:
    return [AT]


def living(store: Store, pen: Pen, clock: list[datetime], **more: object) -> tuple[Index, str]:
    run = pen.open("t", **more)  # type: ignore[arg-type]
    pen.write(run, started())
    return Index(store, clock=lambda: clock[0]), run


def looked(index: Index, run: str) -> Row:
    index._looked_s = float("-inf")
    return index.row(run)


def test_an_agent_that_lives_and_does_nothing_is_idle_and_then_stuck(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    index, run = living(store, pen, clock)
    assert looked(index, run).quiet == ""
    for age, word in (
        (rows.IDLE_AFTER - timedelta(seconds=1), ""),
        (rows.IDLE_AFTER, "idle"),
        (rows.STUCK_AFTER, "stuck"),
    ):
        clock[0] = AT + age
        row = looked(index, run)
        assert (row.quiet, row.quiet_s) == (word, int(age.total_seconds()))
    assert tasks(index, q="stuck") == ["t"]
    pen.write(run, beat(1, clock[0]))
    assert (index.row(run).quiet, index.row(run).active_at) == ("", clock[0])
    clock[0] += rows.STUCK_AFTER
    pen.release()
    assert (looked(index, run).lives, looked(index, run).quiet) == (False, ""), "the dead are not idle"


def test_what_it_prints_is_a_sign_of_life_also_in_a_later_part_of_its_log(
    store: Store, pen: Pen, clock: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, run = living(store, pen, clock)
    clock[0] = AT + HOUR
    assert looked(index, run).quiet == "stuck"
    folder = store.local.run_folder(run)
    folder.mkdir(exist_ok=True)
    first, later = (log.part_path(folder, 1, start) for start in (0, 4 << 20))
    first.write_text("said\n")
    os.utime(first, (0, (AT + HOUR / 2).timestamp()))
    assert looked(index, run).active_at == AT + HOUR / 2
    os.truncate(first, log.PART_BYTES)
    os.utime(first, (0, (AT + HOUR / 2).timestamp()))
    later.write_text("more\n")
    os.utime(later, (0, clock[0].timestamp()))
    assert (looked(index, run).active_at, looked(index, run).quiet) == (clock[0], "")


def test_that_nothing_was_heard_is_no_sign_of_life(store: Store, pen: Pen, clock: list[datetime]) -> None:
    index, run = living(store, pen, clock)
    clock[0] = AT + HOUR
    pen.write(run, ev.Warned(at=clock[0], level="idle 1", text="nothing was printed for 60 min"))
    assert (looked(index, run).quiet, looked(index, run).active_at) == ("stuck", AT)
    again = Index(store, clock=lambda: clock[0])
    assert (again.row(run).quiet, again.row(run).active_at) == ("stuck", AT)
    pen.write(run, beat(1, clock[0]))
    assert (index.row(run).quiet, again.row(run).quiet) == ("", "")


def test_a_root_whose_child_works_is_not_idle(store: Store, pen: Pen, clock: list[datetime]) -> None:
    index, run = living(store, pen, clock)
    child = pen.open("c", started(), parent=Parent(run, 1, run))
    clock[0] = AT + HOUR
    pen.write(child, beat(1, clock[0]))
    assert (looked(index, run).quiet, looked(index, run).active_at) == ("", clock[0])
    assert looked(index, run).spent.tokens == 100, "what runs below the open beat spent is spent"


def test_a_run_that_its_supervisor_starts_again_needs_no_command(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    launched = ev.AttemptStarted(at=AT, epoch=1, host="h", pid=1, boot_id="b", launch=NOTHING)
    run = pen.open("t", launched, ended("interrupted", "network"))
    index = Index(store, clock=lambda: clock[0])
    assert (index.row(run).what, index.row(run).act) == ("stopped", "resume")
    guardian = lock.take(store.local, run, supervisor=os.getpid())
    try:
        row = looked(index, run)
        assert (row.what, row.command, row.act) == ("stopped", None, None)
        assert row.why.endswith("its supervisor starts it again")
    finally:
        os.close(guardian)
    assert looked(index, run).act == "resume"
    clock[0] += rows.WAIT_MAX
    looked(index, run)
    assert run not in index._moving, "after that it is not looked at any more"


def launched(at: datetime = AT) -> ev.AttemptStarted:
    return ev.AttemptStarted(at=at, epoch=1, host="h", pid=1, boot_id="b", launch=NOTHING)


def test_what_stopped_against_anybodys_wish_with_nobody_to_start_it_is_stranded(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    wanted = ev.AttemptEnded(
        at=AT, epoch=1, status="interrupted", cause="signal", evidence="SIGTERM", wanted=True
    )
    until = AT + HOUR
    wall = ev.Parked(at=AT, cause="quota", until=until, evidence="limit")
    settled = ev.EffectSettled(at=AT, beat=1, n=1, finding="did_not", by="ada", evidence="looked")
    made = {
        "killed": pen.open("killed", launched()),
        "crashed": pen.open("crashed", launched(), ended("interrupted", "crash")),
        "settled": pen.open("settled", launched(), intended(), ended("in_doubt", "crash"), settled),
        "doubtful": pen.open("doubtful", launched(), intended(policy="probe"), ended("in_doubt", "crash")),
        "own": pen.open("own", started()),
        "stopped": pen.open("stopped", launched(), wanted),
        "left": pen.open("left", started(), ended("interrupted", "operator")),
        "paused": pen.open("paused", launched(), ended("paused", "operator")),
        "failed": pen.open("failed", launched(), ended("failed", "checks")),
        "opened": pen.open("opened"),
        "parked": pen.open("parked", launched(), ended("interrupted", "quota"), wall),
        "own parked": pen.open("own parked", started(), ended("interrupted", "quota"), wall),
    }
    pen.open("child", ended("interrupted", "crash"), parent=Parent(made["killed"], 1, made["killed"]))
    index = Index(store, clock=lambda: clock[0])

    def stranded() -> set[str]:
        looked(index, made["killed"])
        found = index.overview(Ask(q="nothing fits this"))
        tasks = {row.task for row in index.rows() if row.stranded}
        assert {row.task for row in found.stranded_rows} <= tasks
        assert (found.stranded, len(found.stranded_rows)) == (
            len(tasks),
            min(len(tasks), filters.STRANDED_MAX),
        )
        return tasks

    always = {"killed", "crashed", "settled", "doubtful", "own"}
    assert stranded() == always
    clock[0] = until + timedelta(seconds=1)
    assert stranded() == {*always, "own parked"}, "the service has a moment to wake it"
    clock[0] = until + rows.GRACE + timedelta(seconds=1)
    assert stranded() == {*always, "own parked", "parked"}
    assert [row.task for row in index.rows() if row.own_program] == ["own parked", "opened", "left", "own"]
    order = [(row.what, row.stranded) for row in index.overview(Ask(grouped=False)).rows]
    assert order[:2] == [("needs you", False), ("stopped", True)]
    assert [is_so for what, is_so in order if what == "stopped"] == [True] * 7 + [False] * 5


def test_a_run_that_was_told_to_stop_before_its_supervisor_was_killed_is_not_stranded(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    run = pen.open("t", launched())
    index = Index(store, clock=lambda: clock[0])
    assert index.row(run).stranded
    folder = store.local.run_folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    for epoch, wanted, is_stranded in ((1, False, True), (9, True, True), (1, True, False)):
        note = lock.GuardianNote(run, epoch, "SIGTERM", wanted=wanted)
        store.local.guardian_note(run).write_bytes(msgspec.json.encode(note))
        assert looked(index, run).stranded is is_stranded


def test_a_run_whose_supervisor_waits_is_not_stranded(store: Store, pen: Pen, clock: list[datetime]) -> None:
    run = pen.open("t", launched(), ended("interrupted", "network"))
    index = Index(store, clock=lambda: clock[0])
    version = index.version
    guardian = lock.take(store.local, run, supervisor=os.getpid())
    try:
        assert not looked(index, run).stranded
    finally:
        os.close(guardian)
    assert looked(index, run).stranded
    assert index.version > version


def spent(pen: Pen, *events: ev.AnyEvent, budget: Allowance, **more: Any) -> str:
    end = ended("interrupted", "budget", evidence="3 of 3 beats done")
    return pen.open("t", launched(), beat(1), beat(2), beat(3), *events, end, budget=budget, **more)


def test_who_got_more_budget_needs_it_no_more_but_is_to_be_resumed(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    run = spent(pen, budget=Allowance(beats=3))
    index = Index(store, clock=lambda: clock[0])
    row = index.row(run)
    assert (row.what, row.command) == ("needs you", f"outlast resume {run} --budget beats=+1")
    pen.write(run, ev.ContractAmended(at=AT, contract=Contract("mend it"), budget=Allowance(beats=4)))
    pen.release()
    row = looked(index, run)
    assert (row.what, row.stranded, row.act, row.command) == (
        "stopped",
        True,
        "resume",
        f"outlast resume {run}",
    )
    assert row.why == "its budget was spent, and there is some again: 1 of 4 beats left"


def test_one_that_wrapped_up_has_nothing_left_to_go_on_with_though_its_reserve_is_there(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    told = ev.Warned(at=AT, level="wrap-up of beats 40", text="told to wrap up")
    run = spent(pen, told, budget=Allowance(beats=40))
    assert Index(store, clock=lambda: clock[0]).row(run).what == "needs you"


def test_a_window_that_has_passed_is_budget_again_without_an_event(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    done = ev.BeatDone(at=AT, beat=4, step="s", cursor=(4,), window=Window(81.0, AT + HOUR, "5 h"))
    run = spent(pen, done, budget=Allowance(window_pct=80))
    index = Index(store, clock=lambda: clock[0])
    assert index.row(run).what == "needs you"
    clock[0] = AT + 2 * HOUR
    assert (looked(index, run).what, index.row(run).stranded) == ("stopped", True)


def test_a_model_without_a_price_is_not_helped_by_more_budget(
    store: Store, pen: Pen, clock: list[datetime]
) -> None:
    end = ended("interrupted", "budget", evidence=f"{budgets.NO_PRICE}, so its budget cannot be kept")
    run = pen.open("t", launched(), beat(1), end, budget=Allowance(cost_microusd=10**6))
    row = Index(store, clock=lambda: clock[0]).row(run)
    assert (row.what, row.command) == ("needs you", f"outlast resume {run}")


# -- which, and in what order ----------------------------------------------------------------------------------------------


def test_what_needs_a_person_is_on_top_and_then_the_latest(store: Store, pen: Pen) -> None:
    pen.open("done", ev.Finished(at=AT + 5 * HOUR))
    pen.open("old failure", ended("failed", "checks", AT))
    pen.open("stopped", ended("interrupted", "signal", AT + 4 * HOUR))
    pen.open("new failure", ended("failed", "checks", AT + HOUR))
    pen.write(pen.open("running"), started(AT + 3 * HOUR))
    index = Index(store, clock=lambda: AT + 5 * HOUR)
    order = ["new failure", "old failure", "stopped", "running", "done"]
    assert tasks(index) == tasks(index, grouped=False) == order
    assert tasks(index, up=True) == tasks(index, grouped=False, up=True) == order[::-1]
    overview = index.overview(Ask())
    assert [(count.name, count.runs) for count in overview.whats] == [
        ("needs you", 2), ("stopped", 1), ("running", 1), ("done", 1),
    ]  # fmt: skip
    assert overview.projects[0].needs_you == 2
    assert overview.projects[0].label == "app"


def test_each_order_has_the_most_on_top_and_tasks_by_their_letters(store: Store, pen: Pen) -> None:
    pen.open("b", beat(1, AT + HOUR, tokens=500))
    pen.open("A", beat(1, AT + 3 * HOUR, tokens=10), beat(2, AT + 3 * HOUR, tokens=10))
    pen.open("c", ev.StageSet(at=AT + 2 * HOUR, stage="x"))
    index = Index(store)
    for grouped in (True, False):
        assert tasks(index, sort="activity", grouped=grouped) == ["A", "c", "b"]
        assert tasks(index, sort="created", grouped=grouped) == ["c", "A", "b"]
        assert tasks(index, sort="spent", grouped=grouped) == ["b", "A", "c"]
        assert tasks(index, sort="beats", grouped=grouped) == ["A", "b", "c"]
        assert tasks(index, sort="task", grouped=grouped) == ["A", "b", "c"]
        assert tasks(index, sort="task", up=True, grouped=grouped) == ["c", "b", "A"]


def test_projects_stand_together_and_children_under_their_roots(store: Store, pen: Pen) -> None:
    quiet = pen.open("quiet", project="/src/quiet/.git", at=AT + 9 * HOUR)
    one = pen.open("one", ev.StageSet(at=AT + HOUR, stage="x"))
    pen.open("two", ev.StageSet(at=AT + 2 * HOUR, stage="x"))
    child = pen.open("child", parent=Parent(one, 1, one))
    pen.open("grandchild", parent=Parent(child, 1, one))
    index = Index(store)
    assert tasks(index) == ["quiet", "two", "one", "child", "grandchild"]
    assert [row.children for row in index.overview(Ask()).rows] == [0, 0, 1, 1, 0]
    pen.write(child, intended(policy="ask"))
    pen.release()
    wanted = ["one", "child", "grandchild", "two", "quiet"]
    looked(index, one)
    assert tasks(index) == wanted, "a child that needs a person lifts its root, and that its project"
    row = index.row(child)
    assert (row.what, row.act, row.command) == (
        "needs you", "settle", f"outlast settle {child} 1.1 (--happened | --did-not)",
    )  # fmt: skip
    assert index.row(one).in_doubt == 1
    assert index.row(quiet).what == "stopped"


def test_of_a_child_whose_root_works_nothing_is_for_a_person(store: Store, pen: Pen) -> None:
    root = pen.open("root")
    pen.write(root, started())
    child = pen.open("child", ended("failed", "checks"), parent=Parent(root, 1, root))
    doubtful = pen.open("doubtful", intended(policy="ask"), parent=Parent(root, 1, root))
    index = Index(store)
    assert [(index.row(run).what, index.row(run).command) for run in (child, doubtful)] == [
        ("stopped", None)
    ] * 2
    assert index.row(root).what == "running"
    pen.release()
    looked(index, root)
    assert [index.row(run).what for run in (root, child, doubtful)] == ["needs you", "stopped", "needs you"]
    filtered = index.overview(Ask(q="nothing has this word"))
    assert (filtered.rows, filtered.needs_total) == ((), 2), "what needs a person is told whatever is asked"
    assert {row.run for row in filtered.needs} == {root, doubtful}


def test_a_root_is_shown_if_one_of_its_children_fits_and_pages_are_cut_at_roots(
    store: Store, pen: Pen
) -> None:
    for number in range(5):
        root = pen.open(f"root{number}", at=AT + number * HOUR)
        for name in ("left", "right"):
            pen.open(f"{name}{number}", parent=Parent(root, 1, root), at=AT + number * HOUR)
    index = Index(store)
    assert tasks(index, q="left3") == ["root3", "left3"]
    assert index.overview(Ask(q="left3")).found == 1
    assert tasks(index, q="left3", grouped=False) == ["left3"]
    first, second, third = (index.overview(Ask(size=6, page=page)) for page in (1, 2, 3))
    assert (first.pages, first.found, len(first.rows), len(third.rows)) == (3, 15, 6, 3)
    assert [row.task for row in first.rows][::3] == ["root4", "root3"]
    assert len({*runs_of(first), *runs_of(second), *runs_of(third)}) == 15
    assert len(index.overview(Ask(size=1)).rows) == 3, "a family is not torn"
    assert index.overview(Ask(page=99)).page == 1, "a page that there is not is the last one"
    assert index.overview(Ask(size=10**9, page=-1)).page == 1


def test_a_root_with_very_many_children_shows_those_that_matter(store: Store, pen: Pen) -> None:
    root = pen.open("root")
    for number in range(filters.CHILDREN_MAX + 5):
        pen.open(f"c{number}", ev.Finished(at=AT), parent=Parent(root, 1, root))
    pen.open("open", ended("interrupted", "crash"), parent=Parent(root, 1, root))
    index = Index(store)
    found = tasks(index)
    assert (found[:2], len(found)) == (["root", "open"], 1 + filters.CHILDREN_MAX)
    assert index.row(root).children == filters.CHILDREN_MAX + 6


def test_a_search_finds_every_word_anywhere_without_case(store: Store, pen: Pen) -> None:
    pen.open("1411", ended("failed", "checks"), goal="Mend the PARSER", agent="claude", model="opus")
    other = pen.open("1412", goal="write a page", project="/src/Straße/.git", agent="codex")
    index = Index(store)
    for q in (
        "parser",
        "PARSER mend",
        "claude",
        "OPUS",
        "failed",
        "checks",
        "1411",
        "needs you",
        "app",
        "why",
    ):
        assert tasks(index, q=q) == ["1411"], q
    for q in ("STRASSE", "codex page", other[:6]):
        assert tasks(index, q=q) == ["1412"], q
    for q in ("parser page", "\x00", "%", "zz"):
        assert tasks(index, q=q) == [], q
    assert len(tasks(index, q="  ")) == 2


def test_counts_leave_out_the_filter_they_belong_to(store: Store, pen: Pen) -> None:
    for number in range(12):
        closing = ev.Finished(at=AT) if number % 2 else ended("failed", "checks")
        pen.open(
            f"t{number}", closing, project=f"/src/p{number % 3}", agent=("claude", "codex")[number % 4 == 0],
        )  # fmt: skip
    index = Index(store)
    overview = index.overview(Ask(what=("done",), project="p1", agent="claude"))
    assert {row.task for row in overview.rows} == {"t1", "t7"}
    assert {count.name: count.runs for count in overview.whats} == {"needs you": 1, "done": 2}
    assert {count.label: count.runs for count in overview.projects} == {"p0": 2, "p1": 2, "p2": 2}
    assert {count.name: count.runs for count in overview.agents} == {"claude": 2}
    assert {count.name: count.runs for count in overview.statuses} == {"done": 2}
    both = index.overview(Ask(status=("done", "failed"), project="/src/p1"))
    assert (both.found, both.total) == (4, 12)


def test_what_is_told_of_all_runs_is_told_of_all_whatever_is_asked(store: Store, pen: Pen) -> None:
    pen.open("a", beat(1, tokens=1_000), ended("failed", "checks"), project="/src/one")
    pen.open("b", beat(1, tokens=20), ev.Finished(at=AT), project="/src/two")
    index = Index(store)
    everything = index.overview(Ask())
    for ask in (Ask(), Ask(project="two"), Ask(what=("done",)), Ask(q="nothing")):
        overview = index.overview(ask)
        assert (overview.needs_total, overview.all_whats) == (1, everything.all_whats)
        assert overview.all_spent == everything.spent
    assert [(count.name, count.runs) for count in everything.all_whats] == [("needs you", 1), ("done", 1)]
    within = index.overview(Ask(), within="two")
    assert (within.total, within.needs_total, within.all_spent) == (
        1,
        0,
        index.overview(Ask(project="two")).spent,
    )


def test_by_project_the_needy_come_first_in_each(store: Store, pen: Pen) -> None:
    pen.open("late", ev.Finished(at=AT + HOUR), project="/src/b")
    pen.open("needy", ended("failed", "checks"), project="/src/b")
    pen.open("other", ev.Finished(at=AT), project="/src/a")
    index = Index(store)
    for grouped in (True, False):
        assert tasks(index, sort="project", grouped=grouped) == ["other", "needy", "late"]
        assert tasks(index, sort="project", up=True, grouped=grouped) == ["late", "needy", "other"]


def test_the_sum_counts_nothing_twice(store: Store, pen: Pen) -> None:
    root = pen.open("root", beat(1, tokens=1_000))
    pen.open("child", beat(1, tokens=300), parent=Parent(root, 2, root))
    pen.open("other", beat(1, tokens=7))
    index = Index(store)
    for grouped in (True, False):
        assert index.overview(Ask(grouped=grouped)).spent.tokens == 1_307
        assert index.overview(Ask(q="child", grouped=grouped)).spent.tokens == 300
        assert index.overview(Ask(q="nothing", grouped=grouped)).spent.tokens == 0


def test_the_unit_nearest_to_its_limit_comes_first_and_what_to_type_is_an_act(store: Store, pen: Pen) -> None:
    run = pen.open("t", budget=Allowance(tokens=1_000, beats=4, cost_microusd=10**6))
    pen.write(
        run, started(), ev.PlanSet(at=AT, steps=NOTHING, total=8), *[beat(number) for number in (1, 2, 3)]
    )
    index = Index(store, clock=lambda: AT)
    row = index.row(run)
    assert [(meter.unit, meter.used_pct, meter.forecast) for meter in row.meters] == [
        ("beats", 75.0, None), ("tokens", 30.0, 800), ("usd", 0.0, None),
    ]  # fmt: skip
    assert (row.beats, row.plan_total, row.attempts, row.act) == (3, 8, 1, None)
    pen.write(run, beat(4), ended("interrupted", "budget", evidence="4 of 4 beats done"))
    row = index.row(run)
    assert (row.what, row.act, row.command) == (
        "needs you",
        "resume",
        f"outlast resume {run} --budget beats=+2",
    )
    pen.write(run, ended("failed", "checks"))
    assert (index.row(run).act, index.row(run).command) == ("resume", f"outlast resume {run}")


# -- many at once ----------------------------------------------------------------------------------------------------------


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
