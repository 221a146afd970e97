"""The emergency saves of all runs: after real kills, each shown once, with who went on from it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from outlast.dashboard.charts import Counter
from outlast.dashboard.overview.index import Index
from outlast.dashboard.saves import emergencies, saves as dashboard_saves
from outlast.operations import fork
from outlast.store import open_store
from outlast.store.protocol import Batch, RunFilter, Store
from outlast.supervisor.guardian import lock
from tests.dashboard.saved_work import HOSTILE, Work, writes
from tests.supervisor.supervised_command import Night, supervisor_of
from tests.support.environment import TIMEOUT_S, isolate
from tests.support.journals.large_stores import many_runs
from tests.support.journals.scribe import Scribe
from tests.support.processes import wait_for


@contextmanager
def dashboard(night: Night) -> Iterator[tuple[Store, Index]]:
    store = open_store(night.isolated.state_home / "outlast")
    try:
        yield store, Index(store)
    finally:
        store.close()


def test_a_killed_supervisors_save_is_shown_at_once_and_then_who_went_on_from_it(tmp_path: Path) -> None:
    with Night(tmp_path, isolate(tmp_path)) as night:
        process = night.start_agent()
        night.ready(1)
        os.kill(supervisor_of(process.pid), signal.SIGKILL)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
        with dashboard(night) as (store, index):
            (before,) = dashboard_saves.emergencies(store, index).saves
            night.start_agent()
            night.ready(2)
            after = wait_for(
                lambda: [each for each in dashboard_saves.emergencies(store, index).saves if each.n] or None,
                what="the save on record",
            )
            (only,) = after
            listed = {each.point.commit: each.point for each in dashboard_saves.saves(store, only.run).saves}
        night.let_go()
    assert (before.n, before.cause, before.picked_up) == (0, "crash", None)
    assert "SIGKILL" in before.evidence
    assert (only.commit, only.kind, only.cause) == (before.commit, "emergency", "crash")
    assert (only.picked_up, only.beat) == (2, 0)
    assert only.picked_up_at is not None
    assert only.files == listed[only.commit].changed == 1


def test_a_signal_is_told_with_its_sender_and_not_picked_up_before_a_resume(tmp_path: Path) -> None:
    with Night(tmp_path, isolate(tmp_path)) as night:
        process = night.start_agent()
        night.ready(1)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(TIMEOUT_S)
        with dashboard(night) as (store, index):
            found = dashboard_saves.emergencies(store, index)
            assert {each.cause for each in found.saves} == {"signal"}
            assert all(f"pid {os.getpid()}" in each.evidence for each in found.saves)
            assert {each.picked_up for each in found.saves} == {None}
            assert [(count.name, count.runs) for count in found.causes] == [("signal", found.total)]
            night.start_agent()
            night.ready(2)
            wait_for(
                lambda: (
                    {each.picked_up for each in dashboard_saves.emergencies(store, index).saves} == {2}
                    or None
                ),
                what="the resume",
            )
        night.let_go()


def _left(work: Work, error: BaseException | None, task: str, at: int = 2) -> str:
    """A run that leaves dirty files in the middle of its second beat, or another; done without an error."""
    try:
        with outlast.run(task, workspace=work.folder, files="keep") as run:
            for beat in run.beats():
                (work.folder / "file").write_text(f"{task} {beat.number}\n")
                if beat.number == at and error is not None:
                    raise error
                beat.done()
                if beat.number == at:
                    run.finish()
    except BaseException as met:
        if met is not error and not isinstance(met, outlast.OutlastError):
            raise
    return run.id


def test_a_save_that_only_a_guardian_noted_stands_in_its_place_and_is_counted_in_the_chart(
    work: Work,
) -> None:
    first = _left(work, ValueError("one"), "a")
    second = _left(work, ValueError("two"), "b")
    index = Index(work.store)
    newest, oldest = dashboard_saves.emergencies(work.store, index).saves
    assert (newest.run, oldest.run) == (second, first)
    note = lock.GuardianNote(first, 9, "killed", save="1" * 40)
    path = work.store.local.guardian_note(first)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(note))
    between_s = (newest.at.timestamp() + oldest.at.timestamp()) / 2
    os.utime(path, (between_s, between_s))
    found = dashboard_saves.emergencies(work.store, index)
    assert [each.commit for each in found.saves] == [newest.commit, "1" * 40, oldest.commit], "newest first"
    shown = Counter(work.store, index).charts("UTC").saves_by_cause
    assert sum(sum(each.values) for each in shown) == found.total == 3


def test_each_cause_is_told_and_a_run_that_is_done_had_no_emergency(work: Work) -> None:
    quota = outlast.QuotaReached("5 hours are used up")
    runs = {
        "crash": _left(work, ValueError("no such thing"), "a"),
        "quota": _left(work, quota, "b"),
        "signal": _left(work, KeyboardInterrupt(), "c"),
        "done": _left(work, None, "d"),
    }
    index = Index(work.store)
    found = dashboard_saves.emergencies(work.store, index)
    assert {each.cause: each.run for each in found.saves} == {
        name: run for name, run in runs.items() if name != "done"
    }
    assert [each.cause for each in found.saves] == ["signal", "quota", "crash"], "newest first"
    told = {each.cause: each for each in found.saves}
    assert told["crash"].evidence == "ValueError: no such thing"
    assert (told["quota"].evidence, told["quota"].status) == ("5 hours are used up", "parked")
    assert {each.beat for each in found.saves} == {1}
    assert {each.files for each in found.saves} == {1}
    (only,) = dashboard_saves.emergencies(work.store, index, cause="quota").saves
    assert only == told["quota"]
    assert dashboard_saves.emergencies(work.store, index, cause=HOSTILE).total == 0


def test_pages_hold_every_emergency_once_and_cost_the_same(tmp_path: Path) -> None:
    counts = []
    for runs in (30, 600):
        store = open_store(many_runs(tmp_path / str(runs), runs))
        index = Index(store)
        every = dashboard_saves.emergencies(store, index, size=200)
        found: list[int] = []
        before = None
        while True:
            page = dashboard_saves.emergencies(store, index, before, size=3)
            assert page.total == every.total
            found += [each.n for each in page.saves]
            before = page.before
            if before is None:
                break
        assert found == [each.n for each in every.saves]
        told: list[str] = []
        store._db._reader.exec_trace = lambda _, sql, __, told=told: not told.append(sql)
        dashboard_saves.emergencies(store, index)
        counts.append(len(told))
        store.close()
    assert 0 < counts[0] == counts[1] <= 6


def test_the_past_of_a_fork_is_its_sources(work: Work) -> None:
    run = _left(work, ValueError("first"), "a")
    _left(work, ValueError("second"), "a", at=3)
    source = work.store.list(RunFilter(runs=(run,)))[0]
    made = fork.make(work.store, fork.prepare(work.store, source, at=2))
    copied = work.store.read(made, after=0, tags=("save_made",)).events
    assert any(isinstance(each.event, ev.SaveMade) and each.event.kind == "emergency" for each in copied)
    index = Index(work.store)
    found = dashboard_saves.emergencies(work.store, index)
    assert {each.run for each in found.saves} == {run} != {made}
    assert [each.picked_up for each in found.saves] == [None, 2]


def test_what_is_found_counts_only_after_a_death_without_a_word(rng: Random, tmp_path: Path) -> None:
    def told(task: str) -> Scribe:
        return Scribe(rng, datetime(2026, 3, 1, tzinfo=UTC), task, "app", "goal", workspace="/srv/app")

    died = told("died").start().beat("x")
    died.end("interrupted", "host", "ran before the last boot").save("found", "found on resume").start()
    edited = (
        told("edited").start().beat("x").end("paused", "operator", "pause by alice").ask("resume", "alice")
    )
    edited.wait(9).warn("a", "b").save("found", "found on resume").start()
    saved = told("saved").start().beat("x").stop("signal", "SIGTERM").save("found", "found on resume").start()
    cut = told("cut").start().beat("x").save("final", "done").end("interrupted", "checks", "the tests fail")
    store = open_store(tmp_path / "store")
    try:
        (first, *others) = [each.journal for each in (died, edited, saved, cut)]
        store.create(*first, children=others)
        found = dashboard_saves.emergencies(store, Index(store)).saves
    finally:
        store.close()
    assert {(each.task, each.kind, each.cause, each.picked_up) for each in found} == {
        ("died", "found", "host", 2),
        ("saved", "emergency", "signal", 2),
        ("cut", "final", "checks", None),
    }


def test_a_save_of_a_guardian_stands_for_what_was_found_then(rng: Random, tmp_path: Path) -> None:
    told = Scribe(rng, datetime(2026, 3, 1, tzinfo=UTC), "t", "app", "goal", workspace="/srv/app")
    told.start().beat("x").end("interrupted", "crash", "is gone").save("found", "found on resume").start()
    told.save("emergency", "the supervisor was killed (SIGKILL), sender unknown").warn("guardian 1", "killed")
    told.beat("y").stop("budget", "all is spent")
    store = open_store(tmp_path / "store")
    try:
        run = store.create(*told.journal)
        index = Index(store)
        last, first = dashboard_saves.emergencies(store, index).saves
        assert (first.kind, first.cause, first.picked_up) == ("emergency", "crash", 2)
        assert (last.cause, last.evidence, last.picked_up) == ("budget", "all is spent", None)
        lease = store.claim(run)
        again = ev.AttemptStarted(at=told.at, epoch=3)
        head = store.list(RunFilter(runs=(run,)))[0].state
        store.append(Batch(lease, run, head.seq, (again,)))
        picked = [each.picked_up for each in dashboard_saves.emergencies(store, index).saves]
        assert picked == [3, 2]
    finally:
        store.close()


def test_what_comes_in_great_numbers_is_taken_in_as_if_it_were_read_anew(
    rng: Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emergencies, "NEWS_EVENTS", 10)
    monkeypatch.setattr(emergencies, "LOAD_PAGE", 7)
    store = open_store(tmp_path / "store")
    try:
        book = emergencies.Book(store)
        assert book.rescues() == []
        for number in range(12):
            told = Scribe(rng, datetime(2026, 3, 1, tzinfo=UTC), f"t{number}", "app", "goal")
            for _ in range(rng.randrange(1, 4)):
                told.start().beat("x").stop("crash", "it died").wait(5)
            store.create(*told.journal)
            assert book.rescues() == emergencies.Book(store).rescues()
    finally:
        store.close()


def test_nothing_on_the_way_to_a_page_is_written_into_the_workspace(work: Work) -> None:
    run = work.beats(writes("a\n"))

    def picture() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in sorted(work.folder.rglob("*"))
        }

    before = picture()
    work.saves(run)
    work.diff(run)
    work.diff(run, "head")
    dashboard_saves.emergencies(work.store, Index(work.store))
    assert picture() == before
