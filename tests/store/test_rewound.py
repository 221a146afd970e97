"""A store that was put back to an earlier state: no run is begun that it may have forgotten."""

import shutil
from pathlib import Path

import pytest

import outlast
from outlast.store import open_store


def work(store: Path, task: str, beats: int = 2) -> None:
    with outlast.run(task, store=store, project="p") as run:
        for beat in run.beats():
            beat.done()
            if beat.number == beats:
                run.finish()


def put_back(store: Path, backup: Path) -> None:
    for name in ("outlast.db", "outlast.db-wal", "outlast.db-shm"):
        (store / name).unlink(missing_ok=True)
    shutil.copy(backup, store / "outlast.db")


def back_up(store: Path, to: Path) -> Path:
    opened = open_store(store)
    opened.close()
    shutil.copy(store / "outlast.db", to)
    return to


def test_a_task_that_the_backup_does_not_know_is_not_begun_a_second_time(tmp_path: Path) -> None:
    store = tmp_path / "store"
    work(store, "old")
    backup = back_up(store, tmp_path / "backup.db")
    work(store, "new")
    put_back(store, backup)
    with pytest.raises(outlast.StoreRewound, match="no new run is created"):
        work(store, "new")
    with outlast.run("old", store=store, project="p") as run:
        assert run.is_done, "what the backup holds can still be read"
    (store / "mark").unlink()
    work(store, "new")


def test_a_run_that_lost_its_newest_events_is_not_taken_up(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with outlast.run("t", store=store, project="p") as run:
        next(iter(run.beats())).done()
    backup = back_up(store, tmp_path / "backup.db")
    work(store, "t")
    put_back(store, backup)
    with pytest.raises(outlast.StoreRewound, match="was acknowledged and is gone"):
        work(store, "t")
