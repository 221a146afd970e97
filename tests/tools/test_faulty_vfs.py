"""The failing disk fails exactly once, where it was told, and SQLite says so."""

import itertools
import shutil
from pathlib import Path

import apsw
import pytest

from tests.support.faulty_vfs import DiskFault, Error, FaultyVFS, Op

COMMITS = 5


def commits(path: Path) -> tuple[int, apsw.Error | None]:
    """Make, fill and checkpoint a database on the faulty disk: how many commits were acknowledged, and the error."""
    acknowledged, failure = 0, None
    db: apsw.Connection | None = None
    try:
        db = apsw.Connection(str(path), vfs="faulty")
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "full")
        db.execute("create table t (n integer primary key)")
        for n in range(COMMITS):
            db.execute("insert into t values (?)", (n,))
            acknowledged = n + 1
        db.pragma("wal_checkpoint(truncate)")
    except apsw.Error as error:
        failure = error
    try:
        if db is not None:
            db.close()
    except apsw.Error as error:
        failure = failure or error
    return acknowledged, failure


def rows(path: Path) -> int:
    db = apsw.Connection(str(path))
    try:
        there = db.execute("select count(*) from sqlite_schema where name = 't'").get
        return db.execute("select count(*) from t").get if there else 0
    finally:
        db.close()


@pytest.mark.parametrize(
    ("op", "error", "expected"),
    [
        ("write", "EIO", apsw.IOError),
        ("write", "ENOSPC", apsw.FullError),
        ("sync", "EIO", apsw.IOError),
        ("truncate", "EIO", apsw.IOError),
        ("open", "EIO", apsw.CantOpenError),
        ("delete", "EIO", apsw.IOError),
    ],
)
def test_each_nth_operation_fails_in_turn_until_a_run_meets_no_fault(
    tmp_path: Path, op: Op, error: Error, expected: type[apsw.Error]
) -> None:
    for nth in itertools.count(1):
        path = tmp_path / f"{nth}.db"
        with FaultyVFS("faulty", DiskFault(op, nth, error)) as vfs:
            acknowledged, failure = commits(path)
        if vfs.fired is None:
            break
        assert isinstance(failure, expected)
        assert acknowledged <= rows(path)
    assert (acknowledged, failure) == (COMMITS, None)
    assert nth > 1


def test_a_failed_commit_may_have_been_done_all_the_same(tmp_path: Path) -> None:
    """Why a failed append is unknown: the sync failed, a re-read finds nothing, recovery after a kill finds it."""
    with FaultyVFS("faulty") as vfs:
        db = apsw.Connection(str(tmp_path / "db"), vfs="faulty")
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "full")
        db.execute("create table t (n integer primary key)")
        vfs.fault = DiskFault("sync", vfs.met["sync"] + 1)
        with pytest.raises(apsw.IOError):
            db.execute("insert into t values (0)")
        assert db.execute("select count(*) from t").get == 0
        killed = tmp_path / "killed"
        killed.mkdir()
        for left in ("db", "db-wal"):
            shutil.copy(tmp_path / left, killed / left)
        db.close()
    assert rows(killed / "db") == 1
    assert rows(tmp_path / "db") == 0


def test_a_full_disk_stays_full(tmp_path: Path) -> None:
    with FaultyVFS("faulty", DiskFault("write", 3, "ENOSPC", persistent=True, suffix="-wal")):
        db = apsw.Connection(str(tmp_path / "db"), vfs="faulty")
        db.pragma("journal_mode", "wal")
        for _ in range(3):
            with pytest.raises(apsw.FullError):
                db.execute("create table t (n)")
        db.close()


def test_half_a_write_is_on_the_disk(tmp_path: Path) -> None:
    with FaultyVFS("faulty", DiskFault("write", 1, done="half")):
        db = apsw.Connection(str(tmp_path / "db"), vfs="faulty")
        db.pragma("journal_mode", "memory")
        with pytest.raises(apsw.IOError):
            db.execute("pragma page_size = 4096; pragma cache_spill = off; create table t (n)")
        written = (tmp_path / "db").stat().st_size
        db.close()
    assert written in (0, 2048)  # SQLite may have rolled the length back
