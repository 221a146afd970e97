"""A program that reads the store for hours keeps its log from being reset: it is named, and the log shrinks when it goes."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.inspect import doctor
from outlast.settings import TIMING
from outlast.store import locate, notices, open_store
from outlast.store.protocol import Lease, Store
from outlast.store.sqlite.log_readers import LONG_BYTES
from tests.store.journal_batches import batch, opened, stage
from tests.support import processes

READING = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM events").fetchall()
print("reading", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def foreign_reader(database: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        processes.python_command(READING, str(database)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"reading\n"
            yield process
        finally:
            process.kill()


def written(store: Store, lease: Lease, after: int, count: int) -> int:
    """Append that many times 200 long events; the last one's number."""
    for _ in range(count):
        store.append(batch(lease, lease.run, after, *(stage("x" * 2_000) for _ in range(200))))
        after += 200
    return after


def test_a_reader_that_holds_up_the_log_is_named_once_and_the_log_shrinks_when_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "store.log_look_s=0")
    lines: list[str] = []
    notices.listen(notices.Listener(lambda _: False, lines.append))
    try:
        with contextlib.closing(open_store(tmp_path / "store")) as store:
            database = tmp_path / "store" / "outlast.db"
            log = database.with_name("outlast.db-wal")
            lease = store.claim(store.create(opened()))
            with foreign_reader(database) as reader:
                after = written(store, lease, 1, 50)
                for _ in range(3):
                    store.renew([lease])
                assert log.stat().st_size > LONG_BYTES
                assert len(lines) == 1, lines
                assert f"pid {reader.pid} (" in lines[0]
                assert "keeps its log from being reset: " in lines[0]
                [named] = [each for each in doctor.examine(locate(tmp_path / "store")) if each.what == "log"]
                assert f"pid {reader.pid} (" in named.text
            written(store, lease, after, 5)
            assert log.stat().st_size < LONG_BYTES
            assert not [each for each in doctor.examine(locate(tmp_path / "store")) if each.what == "log"]
    finally:
        notices.listen(None)
