"""The shelf of a SQLite store is the files of before: what lies there opens, and an older outlast keeps the same locks."""

import fcntl
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlast.errors import StoreBusy, StoreCorrupt, StoreError
from outlast.store import locate, open_store
from outlast.store.protocol import ShelfKind, Store
from tests.support import processes, strace
from tests.support.environment import skip_or_fail

PLACES: dict[ShelfKind, tuple[str, str]] = {
    "walls": ("walls/me-1234.json", "walls.lock"),
    "pools": ("pools.json", ".pools.json.lock"),
    "pressed": ("pressed/me-1234.jsonl", "pressed/me-1234.jsonl"),
}
DATA = b'{"a":1}\n'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_documents_lie_where_they_lay_and_nobody_else_may_read_them(store: Store, tmp_path: Path) -> None:
    for kind, (file, lock) in PLACES.items():
        assert store.shelf.change(kind, "me-1234", lambda before: DATA) == DATA
        for path in (tmp_path / file, tmp_path / lock):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert (tmp_path / "walls/me-1234.json").read_bytes() == DATA
    assert (tmp_path / "pools.json").read_bytes().replace(b"\n", b"") == b'{"me-1234":{"a":1}}'
    assert (tmp_path / "pressed/me-1234.jsonl").read_bytes() == DATA
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("walls", "pressed")] == [0o700, 0o700]


def test_what_an_older_outlast_wrote_is_read(store: Store, tmp_path: Path) -> None:
    for name in ("walls", "pressed"):
        (tmp_path / name).mkdir()
    (tmp_path / "walls/me-1234.json").write_bytes(b'{"a":1}')
    (tmp_path / "walls/.me-1234.json.abc.tmp").write_bytes(b'{"a":')
    (tmp_path / "pools.json").write_bytes(b'{"/my/app":{"unit":"tokens","total":5},"other":{"a":2}}')
    (tmp_path / "pressed/begun.jsonl").write_bytes(b"wish\n" + bytes(4096))
    (tmp_path / "pressed/done.jsonl").write_bytes(b"wish\ndone\n")
    (tmp_path / "pressed/torn.jsonl").write_bytes(b"wish\ndo" + bytes(4096))
    (tmp_path / "pressed/never.jsonl").write_bytes(b"wi" + bytes(4096))
    assert list(store.shelf.every("walls")) == [("me-1234", b'{"a":1}')]
    assert [name for name, _ in store.shelf.every("pools")] == ["/my/app", "other"]
    assert store.shelf.get("pools", "other") == b'{"a":2}'
    whole = {"begun": b"wish\n", "done": b"wish\ndone\n", "torn": b"wish\n"}
    assert dict(store.shelf.every("pressed")) == whole
    assert {name: store.shelf.get_unheld("pressed", name) for name in whole} == whole
    assert store.shelf.get("pressed", "never") is None


@pytest.mark.parametrize("kind", list(PLACES))
def test_the_locks_are_those_of_before(kind: ShelfKind, store: Store, tmp_path: Path) -> None:
    store.shelf.change(kind, "me-1234", lambda before: DATA)
    fd = os.open(tmp_path / PLACES[kind][1], os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(StoreBusy), store.shelf.hold(kind, "me-1234", wait_s=0.0):
        pytest.fail("an older outlast holds it")
    os.close(fd)
    with store.shelf.hold(kind, "me-1234", wait_s=0.0):
        pass


def test_a_torn_file_of_pools_is_named_and_kept(store: Store, tmp_path: Path) -> None:
    (tmp_path / "pools.json").write_bytes(b'{"app":')
    with pytest.raises(StoreCorrupt, match=r"pools\.json"):
        store.shelf.change("pools", "app", lambda before: b"1")
    assert (tmp_path / "pools.json").read_bytes() == b'{"app":'


@pytest.mark.parametrize("kind", list(PLACES))
def test_in_a_store_that_was_deleted_nothing_is_made(kind: ShelfKind, store: Store, tmp_path: Path) -> None:
    gone = locate(tmp_path / "gone").open()
    os.rename(tmp_path / "gone", tmp_path / "away")
    with pytest.raises(StoreError, match="No such file"):
        gone.shelf.change(kind, "one", lambda before: DATA)
    gone.close()
    assert not (tmp_path / "gone").exists()


def test_who_waited_for_a_document_that_was_taken_away_begins_anew(store: Store, tmp_path: Path) -> None:
    def wait() -> None:
        with store.shelf.hold("pressed", "one") as held:
            assert held.get() is None
            held.put(b"mine\n")

    with ThreadPoolExecutor(1) as pool:
        with store.shelf.hold("pressed", "one") as held:
            held.put(b"first\n")
            inode = (tmp_path / "pressed/one.jsonl").stat().st_ino
            waiter = pool.submit(wait)
            processes.wait_for(lambda: _is_waited_for(inode) or None, what="somebody to wait for the lock")
            held.put(None)
        waiter.result(60)
    assert store.shelf.get("pressed", "one") == b"mine\n"


def _is_waited_for(inode: int) -> bool:
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{inode} " in line for line in lines)


PRESSING = """
import sys
from outlast.store.sqlite.shelf import FileShelf
from pathlib import Path
with FileShelf(Path(sys.argv[1])).hold("pressed", "one") as held:
    held.put(b"first\\n", room=1 << 16)
    held.put(b"first\\nsecond\\n")
"""


@pytest.mark.strace
def test_the_room_for_a_line_is_kept_until_the_line_is_in_it(tmp_path: Path) -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    command = processes.python_command(PRESSING, str(tmp_path))
    trace = strace.Traced(command, tmp_path, strace.DISK).run()
    assert trace.returncode == 0, trace.output
    names = [call.name for call in trace.calls if call.paths == ("pressed/one.jsonl",)]
    kept = names.index("fallocate")
    after = [name for name in names[kept:] if name in (*strace.WRITES, *strace.SIZES)]
    assert after == ["fallocate", "pwrite64", "ftruncate"]
    assert names[-1] in strace.SYNCS


CHANGING = """
import sys
from outlast.store.sqlite.shelf import FileShelf
from pathlib import Path
shelf = FileShelf(Path(sys.argv[1]))
shelf.change(sys.argv[2], "me-1234", lambda before: (before or b"") and b'"new"\\n' or b'"old"\\n')
"""


@pytest.mark.strace
@pytest.mark.parametrize("kind", ["walls", "pools"])
def test_killed_at_any_call_there_is_the_old_document_or_the_new(kind: ShelfKind, tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        opened = open_store(made)
        opened.shelf.change(kind, "me-1234", lambda before: b'"old"\n')
        opened.close()
        return made

    def traced(where: Path) -> strace.Traced:
        return strace.Traced(processes.python_command(CHANGING, str(where), kind), where, strace.DISK)

    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    dry = traced(folder("dry")).run()
    assert dry.returncode == 0, dry.output
    names = [call.name for call in dry.calls]
    renamed = next(n for n, name in enumerate(names) if name in strace.RENAMES)
    assert set(names[:renamed]) & set(strace.SYNCS), "the new file is on the disk before it has the name"
    assert set(names[renamed:]) & set(strace.SYNCS), "and its name before anything relies on it"
    for nth in range(1, len(dry.calls) + 1):
        where = folder(f"killed-{nth}")
        traced(where).kill_at(nth, dry)
        opened = open_store(where)
        found = opened.shelf.get(kind, "me-1234")
        assert found is not None
        assert found.strip() == (b'"old"' if nth <= renamed + 1 else b'"new"'), str(dry.calls[nth - 1])
        assert opened.shelf.change(kind, "me-1234", lambda before: b'"next"\n') == b'"next"\n'
        opened.close()
