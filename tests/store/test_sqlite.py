"""The SQLite backend: the conformance suite, and what only a file on a local disk can get wrong."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from outlast.core import events as ev
from outlast.errors import (
    LeaseLost,
    RunHeld,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreRewound,
    StoreTooNew,
)
from outlast.settings import TIMING
from outlast.store import durable, locks, open_store
from outlast.store.protocol import RunFilter, Store
from outlast.store.sqlite import schema
from tests.store import make_fixture
from tests.store.conformance import StoreConformance
from tests.store.journal_batches import appended, batch, opened, stage, stages
from tests.support import processes, strace
from tests.support.environment import need_root, need_tool, skip_or_fail


class TestSqlite(StoreConformance):
    @pytest.fixture
    def opening(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: open_store(tmp_path / "store")

    @pytest.fixture
    def script(self, tmp_path: Path) -> str:
        return f"__import__('outlast.store').store.open_store({str(tmp_path / 'store')!r})"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def store(path: Path) -> Store:
    return open_store(path)


# -- where and how -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_any_of_it(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = open_store(path)
        appended(store, "t", 3)
        store.blobs.put(b"x" * 10_000)
    finally:
        os.umask(before)
    modes = {}
    for found in (path.parent, path, *path.rglob("*")):
        mode = stat.S_IMODE(found.stat().st_mode)
        modes[str(found.relative_to(path.parent))] = mode
        assert mode == (0o700 if found.is_dir() else 0o600), modes
    assert {"store/outlast.db", "store/outlast.db-wal", "store/outlast.db-shm"} <= set(modes)
    store.close()


def test_a_store_is_a_folder_a_file_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, database in (
        (tmp_path / "folder", tmp_path / "folder" / "outlast.db"),
        (str(tmp_path / "file.db"), tmp_path / "file.db"),
        (f"sqlite://{tmp_path}/url", tmp_path / "url" / "outlast.db"),
    ):
        store = open_store(url)
        appended(store, "t", 1)
        store.close()
        assert database.exists()
        reopened = open_store(url)
        assert len(reopened.list(RunFilter())) == 1
        reopened.close()
    with pytest.raises(StoreRefused):
        open_store("mysql://host/x")
    monkeypatch.setenv("OUTLAST_STORE", str(tmp_path / "folder"))
    store = open_store()
    assert len(store.list(RunFilter())) == 1
    store.close()


def test_every_connection_of_the_store_is_wal_and_full(store: Store) -> None:
    database = store._db
    for connection in (database.writer, database._reader):
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
    store.close()


ONE_BY_ONE = """
import sys
from outlast.store import open_store
from tests.store.journal_batches import appended
store = open_store(sys.argv[1])
appended(store, "t", int(sys.argv[2]))
"""
BLOB_TWICE = """
import os, sys
from outlast.store import open_store
store = open_store(sys.argv[1])
for _ in range(int(sys.argv[2])):
    store.blobs.put(b"x" * 10_000)
"""


def syncs(script: str, folder: Path, *arguments: str) -> list[str]:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    folder.mkdir()
    trace = strace.Traced(
        processes.python_command(script, str(folder), *arguments), folder, strace.SYNCS
    ).run()
    assert trace.returncode == 0, trace.output
    return [path for call in trace.calls for path in call.paths]


@pytest.mark.strace
def test_every_append_is_one_flush_of_the_wal(tmp_path: Path) -> None:
    few = syncs(ONE_BY_ONE, tmp_path / "few", "5")
    many = syncs(ONE_BY_ONE, tmp_path / "many", "25")
    assert many.count("outlast.db-wal") - few.count("outlast.db-wal") == 20
    assert len(many) - len(few) == 20


@pytest.mark.strace
def test_a_blob_is_flushed_with_its_name_also_when_it_was_there_already(tmp_path: Path) -> None:
    """The one that was there may be of a process killed before it could flush the folder."""
    once, twice = syncs(BLOB_TWICE, tmp_path / "once", "1"), syncs(BLOB_TWICE, tmp_path / "twice", "2")
    folders = [place for place in twice if place.startswith("blobs/") and place.count("/") == 1]
    assert len(twice) > len(once), f"only {folders} were flushed"


@pytest.mark.strace
def test_new_folders_are_flushed_up_to_the_first_old_one(tmp_path: Path) -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    target = tmp_path / "a" / "b" / "c"
    trace = strace.Traced(
        processes.python_command(ONE_BY_ONE, str(target), "1"), tmp_path, strace.SYNCS
    ).run()
    flushed = {path for call in trace.calls for path in call.paths}
    assert {".", "a", "a/b", "a/b/c"} <= flushed


def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = durable.fs_type(path)
    assert here
    monkeypatch.setattr(durable, "NETWORK_TYPES", frozenset({here}))
    with pytest.raises(StoreRefused, match=here):
        open_store(path)
    assert not path.exists()


@pytest.mark.root
@pytest.mark.parametrize("name", ["plain", "with space", "wörld"])
def test_the_file_system_under_any_mount_point_is_known(tmp_path: Path, name: str) -> None:
    need_root()
    unshare = need_tool("unshare")
    place = tmp_path / name
    place.mkdir()
    script = (
        "import subprocess, sys; from pathlib import Path; from outlast.store import durable as files\n"
        "subprocess.run(['mount', '-t', 'tmpfs', 'none', sys.argv[1]], check=True)\n"
        "print(files.fs_type(Path(sys.argv[1]) / 'deep' / 'er'))"
    )
    command = [unshare, "--mount", "--propagation", "private", sys.executable, "-c", script, place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount" in done.stderr and done.returncode:
        skip_or_fail(f"cannot mount: {done.stderr[-200:]}")
    assert done.stdout.strip() == "tmpfs"


def test_a_place_that_cannot_be_written_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreRefused, match="cannot use the store"):
        open_store(tmp_path / "file" / "store")


# -- files that are not what they should be ----------------------------------------------------------------------


def spoiled(path: Path, spoil: Callable[[Path], None]) -> bytes:
    """A store's file, closed and checkpointed, then spoiled."""
    store = open_store(path)
    appended(store, "t", 200)
    store.close()
    database = path / "outlast.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    spoil(database)
    return database.read_bytes()


def patch(database: Path, at: int, data: bytes) -> None:
    with database.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda database: os.truncate(database, database.stat().st_size // 2), StoreCorrupt),
        (lambda database: os.truncate(database, 50), StoreCorrupt),
        (lambda database: database.write_bytes(b"not a database" * 1000), StoreCorrupt),
        (lambda database: patch(database, 60, (99).to_bytes(4, "big")), StoreTooNew),
        (lambda database: patch(database, 68, b"else"), StoreCorrupt),
    ],
    ids=["cut in half", "cut in the header", "foreign", "newer", "of another program"],
)
def test_a_spoiled_file_is_a_clear_error_and_stays_unchanged(
    path: Path, spoil: Callable[[Path], None], error: type[StoreError]
) -> None:
    before = spoiled(path, spoil)
    for _ in range(2):
        with pytest.raises(error, match="not changed"):
            open_store(path)
    assert (path / "outlast.db").read_bytes() == before


def test_a_damaged_blob_is_not_returned(store: Store, path: Path) -> None:
    name = store.blobs.put(b"x" * 10_000)
    blob = next(path.glob(f"blobs/*/{name}"))
    blob.write_bytes(b"x" * 9_999 + b"y")
    with pytest.raises(StoreCorrupt, match="damaged"):
        store.blobs.get(name)
    store.close()


def test_a_lost_tail_of_the_journal_is_seen_where_a_mark_shows_it(path: Path) -> None:
    store = open_store(path)
    run = store.create(opened())
    lease = store.claim(run)
    store.append(batch(lease, run, 1, stage("kept")))
    shutil.copytree(path, path.with_name("backup"))
    store.append(batch(lease, run, 2, stage("lost")))
    store.release(lease)
    store.close()
    for name in ("outlast.db", "outlast.db-wal"):
        shutil.copy(path.with_name("backup") / name, path / name)
    (path / "outlast.db-shm").unlink(missing_ok=True)
    store = open_store(path)
    with pytest.raises(StoreRewound):
        store.claim(run)
    store.accept_rewind(run)
    lease = store.claim(run)
    assert stages(store, run) == ["kept"]
    store.append(batch(lease, run, 2, stage("anew")))
    store.close()


# -- other programs on the same file -----------------------------------------------------------------------------


def test_a_store_opened_twice_in_one_process_keeps_its_locks_against_other_programs(path: Path) -> None:
    """POSIX: closing any descriptor of a file drops all of this process's locks on it. Another program then believes
    to be the last user, and removes the WAL under us: what we acknowledge afterwards is lost."""
    store = open_store(path)
    run = store.create(opened())
    lease = store.claim(run)
    store.append(batch(lease, run, 1, stage("before")))
    second = open_store(path)
    other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select * from runs').fetchall(); c.close()"
    subprocess.run([sys.executable, "-c", other, path / "outlast.db"], check=True)
    store.append(batch(lease, run, 2, stage("after")))
    seen = (
        "import sys; from outlast.store import open_store; from tests.store.journal_batches import stages\n"
        "print(stages(open_store(sys.argv[1]), sys.argv[2]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", seen, path, run], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert found.stdout.strip() == "['before', 'after']"
    second.close()
    store.close()


def test_a_store_locked_for_too_long_is_busy_and_usable_afterwards(path: Path) -> None:
    store = open_store(path)
    run = store.create(opened())
    lease = store.claim(run)
    store._db.writer.set_busy_timeout(10)
    other = apsw.Connection(str(path / "outlast.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.append(batch(lease, run, 1, stage("x")))
    other.execute("ROLLBACK")
    other.close()
    store.append(batch(lease, run, 1, stage("y")))
    assert stages(store, run) == ["y"]
    store.close()


# -- leases on one host ------------------------------------------------------------------------------------------

HOLDING = """
import sys
from outlast.store import open_store
store = open_store(sys.argv[1])
lease = store.claim(sys.argv[2], ttl_s=float(sys.argv[3]))
print("held", flush=True)
if sys.argv[4] == "acting":
    with lease.guard():
        print("acting", flush=True)
        sys.stdin.readline()
else:
    sys.stdin.readline()
from tests.store.journal_batches import batch, stage
try:
    store.append(batch(lease, sys.argv[2], 1, stage("zombie")))
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def holding(path: Path, run: str, ttl_s: float, how: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        processes.python_command(HOLDING, str(path), run, str(ttl_s), how),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=processes.clean_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    if how == "acting":
        assert process.stdout.readline() == b"acting\n"
    return process


def test_a_dead_holder_is_replaced_at_once_whatever_its_lease_says(store: Store, path: Path) -> None:
    run = store.create(opened())
    with holding(path, run, 10_000, "idle") as process:
        with pytest.raises(RunHeld, match=f"held by pid {process.pid}"):
            store.claim(run)
        process.kill()
        process.wait()
        assert store.claim(run).epoch == 2
    store.close()


def test_an_expired_lease_of_a_live_holder_is_taken_and_the_zombie_writes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "store.wakeup_grace_s=0")
    store = open_store(path)
    run = store.create(opened())
    with holding(path, run, -10, "idle") as process:
        lease = store.claim(run)
        out, _ = process.communicate(b"go on\n", timeout=30)
        assert out == b"LeaseLost\n"
        store.append(batch(lease, run, 1, stage("mine")))
    assert stages(store, run) == ["mine"]
    store.close()


def test_a_holder_frozen_inside_an_act_is_killed_before_its_run_is_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "store.wakeup_grace_s=0")
    store = open_store(path)
    run = store.create(opened())
    with holding(path, run, -10, "acting") as process:
        processes.stop(process.pid)
        store.claim(run)
        assert process.wait(30) == -signal.SIGKILL
    store.close()


def test_a_process_that_has_our_pid_by_chance_is_not_killed() -> None:
    me = locks.myself()
    assert locks.is_here(me)
    for stranger in (
        msgspec.structs.replace(me, start_ticks=me.start_ticks + 1),
        msgspec.structs.replace(me, boot_id="another"),
        msgspec.structs.replace(me, host="another"),
        msgspec.structs.replace(me, pid_ns="pid:[1]"),
    ):
        assert not locks.is_here(stranger)
        assert not locks.kill_frozen(stranger)


def test_a_guard_with_an_expired_lease_renews_it_first(store: Store) -> None:
    run = store.create(opened())
    lease = store.claim(run, ttl_s=-10)
    with lease.guard():
        pass
    store._db.writer.execute("UPDATE runs SET epoch = epoch + 1")
    store.renew([lease], ttl_s=-10)
    with pytest.raises(LeaseLost), lease.guard():
        raise AssertionError("not reached")
    store.close()


# -- for ever ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_the_stores_of_every_version_open_and_read_the_same_for_ever(tmp_path: Path, version: int) -> None:
    fixture = make_fixture.FIXTURES / f"v{version}"
    shutil.copytree(fixture / "store", tmp_path / "store")
    expected = msgspec.json.decode((fixture / "contents.json").read_bytes())
    found = msgspec.json.decode(msgspec.json.encode(make_fixture.contents(tmp_path / "store")))
    assert found == expected


# -- what an older outlast stored ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "start"), [((), ""), (("import",), "awaited"), (("import", "resume"), "asked")], ids=str
)
def test_an_older_head_tells_how_its_run_was_started(
    store: Store, path: Path, wishes: tuple[str, ...], start: str
) -> None:
    """As it was before heads said that: the events alone tell."""
    first = opened("t")
    asked = [ev.Requested(at=first.at, id=0, by="anna", what=what) for what in wishes]
    store.create(first, [*asked, stage(1)])
    store.close()
    connection = sqlite3.connect(path / "outlast.db")
    [(stored,)] = connection.execute("SELECT state FROM heads").fetchall()
    head = msgspec.json.decode(stored)
    older = {name: value for name, value in head.items() if name not in ("start", "start_known", "sum")}
    connection.execute("UPDATE heads SET state = ?", (msgspec.json.encode(older),))
    connection.commit()
    connection.close()
    again = open_store(path)
    [listed] = again.list(RunFilter())
    found = (listed.state, again.read(first.run).state)
    assert [(each.start, each.awaits_start) for each in found] == [(start, start == "awaited")] * 2
    again.close()
