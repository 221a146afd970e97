"""A store that is only read: nothing of it is made or changed, and it need not be where anything can be."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.core.values import Contract
from outlast.errors import StoreGone, StoreRefused, UnknownRun
from outlast.inspect import forecast
from outlast.store import open_store
from outlast.store.protocol import Batch, RunFilter, Store
from tests.support.environment import need_root, need_tool

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
OPENED = ev.RunOpened(at=NOW, run="run1", task="t", project="p", contract=Contract("goal"))
AT_WORK_MAY_CHANGE = "outlast.db-shm"  # where those who read say what they still need; no file of ours


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with contextlib.closing(open_store(tmp_path / "store")) as store:
        store.create(OPENED)
    return tmp_path / "store"


@contextlib.contextmanager
def reading(root: Path) -> Iterator[Store]:
    with contextlib.closing(open_store(root, reading=True)) as store:
        yield store


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in root.rglob("*") if path.name != AT_WORK_MAY_CHANGE)
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in files
    }


def test_who_reads_makes_and_changes_nothing(root: Path) -> None:
    for name in ("mark", "ballast"):
        (root / name).unlink()
    for name in ("runs", "blobs"):
        (root / name).rmdir()
    before = contents(root)
    with reading(root) as store:
        assert [summary.run for summary in store.list(RunFilter())] == ["run1"]
        assert not store.holder_lives("run1")
        assert store.changes(0).runs == ("run1",)
        forecast.first_forecast(store, store.list(RunFilter())[0].state)
        with pytest.raises(UnknownRun):
            store.read("run2")
        for write in (
            lambda: store.create(OPENED),
            lambda: store.forget("run1"),
            lambda: store.inbox.put("run1", by="me", what="pause"),
        ):
            with pytest.raises(StoreRefused, match="open for reading"):
                write()
    assert contents(root) == before


def test_who_reads_sees_what_others_write(root: Path) -> None:
    with reading(root) as store, contextlib.closing(open_store(root)) as other:
        lease = other.claim("run1")
        assert store.holder_lives("run1")
        other.append(Batch(lease, "run1", 1, (ev.StageSet(at=NOW, stage="s"),)))
        assert store.list(RunFilter())[0].state.stage == "s"
        assert [item.n for item in store.glimpses(1, wait_s=0)] == [2]


def test_there_must_be_a_store_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="cannot use the store"), reading(tmp_path / "nowhere"):
        pass
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "outlast.db").touch()
    with pytest.raises(StoreRefused, match="older version"), reading(tmp_path):
        pass
    assert (tmp_path / "outlast.db").stat().st_size == 0


def test_one_that_is_deleted_while_it_is_read_is_noticed(root: Path) -> None:
    with reading(root) as store:
        (root / "outlast.db").unlink()
        with pytest.raises(StoreGone):
            store.check_exists()
        assert not store.usable


@pytest.mark.parametrize("name", ["mark", "ballast"])
def test_a_part_that_cannot_be_made_is_named(root: Path, name: str) -> None:
    (root / name).unlink()
    (root / name).symlink_to(root / "no" / "such" / "folder")
    with pytest.raises(StoreRefused, match=f"cannot use the store .*{name}: No such file") as caught:
        open_store(root)
    assert caught.value.hint


# -- where nothing can be written --------------------------------------------------------------------------------------

LOOK = """
import sys
from pathlib import Path
from outlast.errors import OutlastError
from outlast.store import open_store
from outlast.store.protocol import RunFilter
root = Path(sys.argv[1])
for reading in (False, True):
    try:
        store = open_store(root, reading=reading)
        print([(each.run, each.state.seq) for each in store.list(RunFilter())])
        store.check_exists()
        print(store.usable)
        if sys.argv[2:]:
            with Path(sys.argv[2]).open("ab") as file: file.write(b"x" * 4096)
            store.check_exists()
            print(store.usable)
        store.close()
    except OutlastError as error:
        print(type(error).__name__, error.hint)
"""


def looked_at(root: Path, there: Path, *more: str) -> list[str]:
    """What one sees who has this folder on a read-only file system."""
    need_root()
    there.mkdir()
    mount = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'
    words = [need_tool("unshare"), "--mount", "sh", "-c", mount, "sh", str(root), str(there)]
    done = subprocess.run(
        [*words, sys.executable, "-c", LOOK, str(there), *more],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_on_a_read_only_file_system_it_is_refused_or_read(root: Path, tmp_path: Path) -> None:
    refused, *read = looked_at(root, tmp_path / "there")
    assert refused.startswith("StoreRefused")
    assert "outlast ui --read-only" in refused
    assert read == ["[('run1', 1)]", "True"]


def test_on_a_read_only_file_system_a_copy_of_the_file_alone_is_read(root: Path, tmp_path: Path) -> None:
    """And once somebody writes it all the same, from elsewhere, it is opened anew."""
    with contextlib.closing(open_store(root)):
        pass  # which brings the log into the file
    (root / "outlast.db-wal").unlink()
    (root / "outlast.db-shm").unlink()
    refused, *read = looked_at(root, tmp_path / "there", str(root / "outlast.db"))
    assert refused.startswith("StoreRefused")
    assert read == ["[('run1', 1)]", "True", "False"]


def test_a_log_that_nobody_can_account_for_is_not_passed_over(root: Path, tmp_path: Path) -> None:
    with contextlib.closing(open_store(root)) as store:
        store.create(ev.RunOpened(at=NOW, run="run2", task="t2", project="p", contract=Contract("goal")))
        log = (root / "outlast.db-wal").read_bytes()
    (root / "outlast.db-wal").write_bytes(log)
    (root / "outlast.db-shm").unlink()
    _, *read = looked_at(root, tmp_path / "there")
    assert read == ["StoreRefused copy its folder, with the -wal file, to a folder you may write"]
