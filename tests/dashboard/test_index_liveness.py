"""What no event tells: dead, idle, stuck, stranded and out of budget, as the index shows them."""

import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import budget as budgets, events as ev
from outlast.core.values import NOTHING, Allowance, Contract, Parent, Window
from outlast.dashboard.documents import Ask
from outlast.dashboard.overview import filters, rows, verdict
from outlast.dashboard.overview.index import Index
from outlast.store import locate
from outlast.store.protocol import Store
from outlast.supervisor.control import service, service_units
from outlast.supervisor.control.service_units import Boot
from outlast.supervisor.guardian import lock
from outlast.supervisor.output import log
from tests.dashboard.pen import AT, HOUR, Pen, beat, ended, intended, looked, started, tasks
from tests.support import processes
from tests.support.processes import wait_for

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


def test_the_overview_tells_what_the_installed_service_restarts_at_boot(
    store: Store, pen: Pen, clock: list[datetime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pen.open("killed", launched())
    pen.open("own", started())
    path = service.unit_path()
    path.parent.mkdir(parents=True)
    for name, at_boot in (("another", 0), ("store", 1)):
        boot = Boot(("outlast", "--store", locate(str(tmp_path / name)).option, "resume", "--all"))
        path.write_text(service_units.unit(boot, lingering_is_ours=False))
        found = Index(store, clock=lambda: clock[0]).overview(Ask())
        assert (found.stranded, found.at_boot) == (2, at_boot)
    assert verdict.verdict(found)[0].startswith("2 runs have stopped: 1 will restart only at the next boot")


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
