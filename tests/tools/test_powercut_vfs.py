"""The modelled disk has teeth: it loses what was not synced, and never what was."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.support import processes
from tests.support.environment import ROOT
from tests.support.powercut_vfs import HOWS, SECTOR_BYTES, How, PowerCutVFS, Write

COMMITS = 25
SEEDS = 3


def open_db(path: Path, synchronous: str, vfs: str | None = None) -> apsw.Connection:
    db = apsw.Connection(str(path), vfs=vfs)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", synchronous)
    db.pragma("wal_autocheckpoint", 10)
    return db


def rows(folder: Path) -> list[int]:
    """What is found after the cut; asserts that the file is sound and holds a beginning of the history."""
    path = folder / "db"
    if not path.exists() or path.stat().st_size == 0:
        return []
    db = apsw.Connection(str(path))
    try:
        assert db.execute("pragma integrity_check").get == "ok"
        if not db.execute("select count(*) from sqlite_schema where name = 't'").get:
            return []
        found = [row[0] for row in db.execute("select n from t order by n")]
    finally:
        db.close()
    assert found == list(range(len(found)))
    return found


def cuts(
    tmp_path: Path, synchronous: str, hows: tuple[How, ...], seed: int
) -> Iterator[tuple[str, int, int]]:
    """Commit with a checkpoint now and then, cut before each operation; yields (where, acknowledged, found)."""
    root = tmp_path / "disk"
    root.mkdir()
    acknowledged = 0
    disks: list[tuple[str, int, Path]] = []
    with PowerCutVFS("powercut", root) as vfs:

        def before_op(op: int) -> None:
            how = hows[op % len(hows)]
            for each in range(seed, seed + SEEDS):
                where = f"{how}-{op}-{each}"
                disks.append((where, acknowledged, vfs.cut(tmp_path / where, how, each)))

        vfs.before_op = before_op
        db = open_db(root / "db", synchronous, "powercut")
        db.execute("create table t (n integer primary key, payload blob)")
        for n in range(COMMITS):
            db.execute("insert into t values (?, zeroblob(2000))", (n,))
            acknowledged = n + 1
        vfs.before_op = None
        db.close()
    for where, told, disk in disks:
        yield where, told, len(rows(disk))


def test_with_full_every_acknowledged_commit_survives_every_cut(tmp_path: Path, rng: random.Random) -> None:
    trials = list(cuts(tmp_path, "full", HOWS, rng.randrange(10**6)))
    assert len(trials) >= 200
    assert [trial for trial in trials if trial[2] < trial[1]] == []
    assert any(found > told for _, told, found in trials), "no cut ever kept an unacknowledged commit"


@pytest.mark.parametrize("how", ["drop", "torn", "subset"])
def test_with_normal_acknowledged_commits_are_lost(tmp_path: Path, how: How, rng: random.Random) -> None:
    lost = [trial for trial in cuts(tmp_path, "normal", (how,), rng.randrange(10**6)) if trial[2] < trial[1]]
    assert lost


def test_kept_whole_nothing_is_lost_even_with_normal(tmp_path: Path) -> None:
    assert all(found >= told for _, told, found in cuts(tmp_path, "normal", ("keep",), 0))


def test_strictly_a_new_database_is_lost_until_its_folder_is_synced(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    (root / "other").write_text("not SQLite's")
    with PowerCutVFS("powercut", root, strict=True) as vfs:
        db = apsw.Connection(str(root / "db"), vfs="powercut")
        db.pragma("journal_mode", "memory")
        db.execute("create table t (n); insert into t values (0)")
        before = vfs.cut(tmp_path / "before")
        vfs.sync_folder()
        after = vfs.cut(tmp_path / "after")
        db.close()
    assert not (before / "db").exists()
    assert (before / "other").read_text() == "not SQLite's"
    assert rows(after) == [0]


def test_a_torn_write_ends_at_a_sector(rng: random.Random) -> None:
    write = Write(100, bytes(4096))
    for _ in range(50):
        torn = write.torn(rng)
        assert torn is not None
        assert len(torn.data) < 4096
        edge = torn.offset if torn.offset > write.offset else torn.offset + len(torn.data)
        assert edge % SECTOR_BYTES == 0


ARMED = """
import sys
from pathlib import Path
from tests.support.powercut_vfs import PowerCutVFS
from tests.tools.test_powercut_vfs import open_db
root, into, nth = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
vfs = PowerCutVFS("powercut", root)
vfs.arm(nth, into)
db = open_db(root / "db", "full", "powercut")
db.execute("create table t (n integer primary key)")
for n in range(100):
    db.execute("insert into t values (?)", (n,))
    print(n, flush=True)
"""


def test_armed_it_cuts_and_kills_the_process_at_that_operation(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    command = processes.python_command(ARMED, str(root), str(tmp_path / "after"), "60")
    with processes.running(command, output=tmp_path / "output", cwd=ROOT) as process:
        assert process.wait(processes.LIMIT_S) == -signal.SIGKILL
    acknowledged = len((tmp_path / "output").read_text().splitlines())
    assert 0 < acknowledged <= len(rows(tmp_path / "after")) < 100
