"""Files that are torn, foreign, from the future or rewound: a clear error, the file as it was, and nothing runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import outlast
from outlast.store import open_store
from outlast.store.protocol import RunFilter
from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed

MAIN, WAL = "outlast.db", "outlast.db-wal"


@pytest.fixture
def store(make_world: MakeWorld) -> Path:
    """A store with a finished run, its log moved into the main file."""
    world = make_world("made")
    assert world.run(script="short") == 0
    db = sqlite3.connect(world.root / MAIN)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return world.root


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_a_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def cut_in_its_header(path: Path) -> None:
    os.truncate(path, 50)


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def garbage_behind_a_good_header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + os.urandom(len(data) - 100))


def foreign(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE somebody(elses)")
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "damage",
    [cut_in_half, cut_a_byte, cut_a_page, cut_in_its_header, garbage, garbage_behind_a_good_header, foreign],
)
def test_a_damaged_or_foreign_file_is_refused_and_not_changed(
    damage: Callable[[Path], None], store: Path
) -> None:
    path = store / MAIN
    damage(path)
    before = path.read_bytes()
    with pytest.raises(outlast.StoreCorrupt) as caught:
        open_store(store)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_refused_and_not_changed(store: Path) -> None:
    path = store / MAIN
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    before = path.read_bytes()
    with pytest.raises(outlast.StoreTooNew, match="version 999"):
        open_store(store)
    assert path.read_bytes() == before


def test_a_newer_version_that_stands_in_the_log_only_is_refused(store: Path) -> None:
    """Another outlast migrates the store while the main file still has the old number."""
    path = store / MAIN
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 999")
    other.commit()
    before = path.read_bytes()
    with pytest.raises(outlast.StoreTooNew, match="version 999"):
        open_store(store)
    assert path.read_bytes() == before
    other.close()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """That is what a power cut leaves right after the file was made."""
    (tmp_path / MAIN).touch()
    open_store(tmp_path).close()
    assert (tmp_path / MAIN).stat().st_size > 0


@pytest.mark.parametrize("lost", [(WAL,), (MAIN, WAL)], ids=["log", "database"])
def test_a_store_that_has_forgotten_a_run_altogether_is_found_out(
    lost: tuple[str, ...], world: CrashWorld
) -> None:
    """The first log of a store holds all there is. The lock beside it remembers that there was a run."""
    killed_at(world, 2, "beat.done")
    for name in (*lost, "outlast.db-shm"):
        (world.root / name).unlink()
    check_rewound(world, 2)


# -- rewound -------------------------------------------------------------------------------------------------------


def check_rewound(world: CrashWorld, performed: int) -> None:
    """The next start says so, exits with 3, asks nothing and performs nothing; and so does the one after it."""
    for _ in range(2):
        then = len(world.notes)
        assert world.run(script="plain") == 3, world.story
        assert world.noted("error", after=then)[0][0] == "StoreRewound", world.story
        assert {note.kind for note in world.notes[then:]} <= {"point", "error"}, world.story
    assert len(world.performed()) == performed


def killed_at(world: CrashWorld, nth: int, name: str) -> None:
    assert killed(world.run(script="plain", blows=(Blow(nth, name),))), world.story


def test_a_log_whose_tail_is_lost_is_found_out(make_world: MakeWorld) -> None:
    for lost in (1, 4096, 3 * 4120):
        world = make_world(lost)
        killed_at(world, 2, "beat.done")
        path = world.root / WAL
        os.truncate(path, path.stat().st_size - lost)
        check_rewound(world, 2)


def test_a_log_cut_in_half_is_found_out(world: CrashWorld) -> None:
    killed_at(world, 2, "act.confirmed")
    os.truncate(world.root / WAL, (world.root / WAL).stat().st_size // 2)
    (world.root / "outlast.db-shm").unlink(missing_ok=True)
    check_rewound(world, 2)


def test_a_store_restored_from_an_older_copy_is_found_out(make_world: MakeWorld) -> None:
    """Only the database is restored; the locks and their marks are as the run left them."""
    world = make_world()
    killed_at(world, 1, "beat.done")
    backup = world.folder / "backup"
    shutil.copytree(world.root, backup)
    killed_at(world, 1, "beat.done")
    for name in (MAIN, WAL, "outlast.db-shm"):
        (world.root / name).unlink()
        shutil.copy(backup / name, world.root / name)
    check_rewound(world, 2)


def test_a_log_that_is_gone_is_found_out(world: CrashWorld) -> None:
    """The first start left everything in the main file; the second one's log is deleted."""
    assert world.run(script="plain", leave_at="two") == 10
    db = sqlite3.connect(world.root / MAIN)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    killed_at(world, 1, "beat.done")
    (world.root / WAL).unlink()
    (world.root / "outlast.db-shm").unlink(missing_ok=True)
    check_rewound(world, 2)


def test_a_whole_store_restored_with_its_locks_is_an_older_run(make_world: MakeWorld) -> None:
    """What nothing can find out: a copy of everything. Keyed effects are safe even then."""
    world = make_world()
    killed_at(world, 1, "act.intended")
    backup = world.folder / "backup"
    shutil.copytree(world.root, backup)
    world.run_to_end(script="plain")
    shutil.rmtree(world.root)
    shutil.copytree(backup, world.root)
    world.run_to_end(script="plain")
    world.check_effects(["plain-1", "plain-2", "plain-3"])


def test_a_person_who_has_looked_can_accept_the_loss(world: CrashWorld) -> None:
    killed_at(world, 2, "beat.done")
    path = world.root / WAL
    os.truncate(path, path.stat().st_size - 1)
    check_rewound(world, 2)
    store = open_store(world.root)
    store.accept_rewind(store.list(RunFilter())[0].run)
    store.close()
    world.run_to_end(script="plain")
    world.check_effects(["plain-1", "plain-2", "plain-3"])
