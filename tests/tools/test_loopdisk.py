"""The real file system has teeth: unsynced files are gone after a cut, synced ones are there."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.support import loopdisk, processes
from tests.support.environment import ROOT, skip_or_fail
from tests.support.loopdisk import LoopDisk

pytestmark = pytest.mark.root


@pytest.fixture
def disk() -> Iterator[LoopDisk]:
    reason = loopdisk.available()
    if reason is not None:
        skip_or_fail(reason)
    with LoopDisk() as disk:
        yield disk


def fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def test_a_file_written_and_renamed_without_fsync_is_lost(disk: LoopDisk) -> None:
    (disk.mount / "new").write_text("state")
    (disk.mount / "new").rename(disk.mount / "state.json")
    after = disk.cut() / "state.json"
    assert not after.exists() or after.stat().st_size == 0
    assert (disk.mount / "state.json").read_text() == "state"  # the running system sees no difference


def test_a_file_fsynced_and_renamed_with_its_folder_fsynced_survives(disk: LoopDisk) -> None:
    (disk.mount / "new").write_text("state")
    fsync(disk.mount / "new")
    (disk.mount / "new").rename(disk.mount / "state.json")
    fsync(disk.mount)
    assert (disk.cut() / "state.json").read_text() == "state"


@pytest.mark.parametrize(("synchronous", "survives"), [("full", True), ("normal", False)])
def test_sqlite_keeps_acknowledged_commits_with_full_and_loses_them_with_normal(
    disk: LoopDisk, synchronous: str, survives: bool
) -> None:
    db = apsw.Connection(str(disk.mount / "db"))
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.execute("create table t (n)")
    fsync(disk.mount)
    db.pragma("synchronous", synchronous)
    for acknowledged in range(1, 11):
        db.execute("insert into t values (0)")
        cut = disk.cut()
        after = apsw.Connection(str(cut / "db"))
        found = after.execute("select count(*) from t").get
        after.close()
        disk.forget(cut)
        assert found == (acknowledged if survives else 0)
    db.close()


LEFT_BEHIND = """
import os, signal
from tests.support.loopdisk import LoopDisk
disk = LoopDisk()
print(disk.cut(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_mounted_is_swept(disk: LoopDisk, tmp_path: Path) -> None:
    command = processes.python_command(LEFT_BEHIND)
    with processes.running(command, output=tmp_path / "output", cwd=ROOT) as process:
        assert process.wait(processes.LIMIT_S) == -signal.SIGKILL
    left = Path((tmp_path / "output").read_text().strip())
    assert left.is_mount()
    loopdisk.sweep()
    assert not left.parent.exists()
    assert disk.mount.is_mount()
