"""Processes that write one store take turns, and nobody waits for ever for one who is stopped or killed."""

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from outlast.errors import StoreError
from outlast.settings import TIMING
from outlast.store import locks, open_store
from outlast.store.protocol import Lease, Store
from outlast.store.sqlite.leases import SqliteLease
from outlast.store.sqlite.turns import Turns
from tests.store.journal_batches import batch, opened, stage
from tests.support import processes
from tests.support.environment import TIMEOUT_S

LONG_S = 600.0
SOON_S = 20.0
WRITES = 20
HOLDING = """
import sys, time
from pathlib import Path
from outlast.store.protocol import Lease, Store
from outlast.store.sqlite.turns import Turns
turns = Turns(Path(sys.argv[1]), 600, 600)
turns.take()
print("taken", flush=True)
sys.stdin.readline()
turns.leave()
"""


@contextlib.contextmanager
def talking(script: str, *arguments: str, says: bytes) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has said this line, and is spoken to; certainly gone at the end of the block."""
    process = subprocess.Popen(
        processes.python_command(script, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=processes.clean_environment(),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == says
        yield process
    finally:
        processes.kill_group(process)
        process.communicate()


def holder(path: Path) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Another process whose turn it is."""
    return talking(HOLDING, str(path), says=b"taken\n")


def let_go(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def one_event(store: Store, lease: Lease) -> None:
    store.append(batch(lease, lease.run, 1, stage(1)))


def some_events(store: Store, lease: Lease) -> None:
    store.append(batch(lease, lease.run, 1, stage(1), stage(2)))


def for_an_event_loop(store: Store, lease: Lease) -> None:
    durable = threading.Event()
    store.append(batch(lease, lease.run, 1, stage(1)), lambda error: durable.set())
    assert durable.wait(TIMEOUT_S)


def a_run(store: Store, _: Lease) -> None:
    store.create(opened("another"))


def a_claim(store: Store, lease: Lease) -> None:
    store.release(lease)
    store.claim(lease.run)


def a_renewal(store: Store, lease: Lease) -> None:
    store.renew([lease])


def a_request(store: Store, lease: Lease) -> None:
    store.inbox.put(lease.run, by="me", what="pause")


@pytest.mark.parametrize(
    "write", [one_event, some_events, for_an_event_loop, a_run, a_claim, a_renewal, a_request]
)
def test_every_writer_waits_for_its_turn(write: Callable[[Store, Lease], None], tmp_path: Path) -> None:
    with contextlib.closing(open_store(tmp_path / "store")) as store:
        lease = store.claim(store.create(opened("mine")))
        with holder(store.local.turn) as first, ThreadPoolExecutor(1) as pool:
            written = pool.submit(write, store, lease)
            processes.wait_for(
                lambda: _waiting(store.local.turn) == 1 or written.done() or None, what="a writer to stand"
            )
            assert not written.done()
            let_go(first)
            written.result(TIMEOUT_S)


def test_turns_come_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    path, order = tmp_path / "turn", []

    def take(number: int) -> None:
        turns = Turns(path, LONG_S, LONG_S)
        turns.take()
        order.append(number)
        turns.leave()
        turns.close()

    with holder(path) as first:
        threads = []
        for number in range(6):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            processes.wait_for(
                lambda number=number: _waiting(path) == number + 1 or None, what=f"{number + 1} to stand"
            )
        let_go(first)
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert order == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_lease_counts_from_when_it_was_written_however_long_that_took(is_new: bool, tmp_path: Path) -> None:
    with contextlib.closing(open_store(tmp_path / "store")) as store:
        run = store.create(opened("mine"))
        lease = None if is_new else store.claim(run)
        with holder(store.local.turn) as first, ThreadPoolExecutor(1) as pool:
            written = pool.submit(store.claim, run) if lease is None else pool.submit(store.renew, [lease])
            processes.wait_for(lambda: _waiting(store.local.turn) == 1 or None, what="the writer to stand")
            until_s = locks.boottime_s() + 0.1
            processes.wait_for(lambda: locks.boottime_s() > until_s or None, what="a busy store")
            let_go(first)
            found = written.result(TIMEOUT_S)
        held = found if lease is None else lease
        assert isinstance(held, SqliteLease)
        assert held.deadline_s > until_s + held.ttl_s


def _waiting(path: Path) -> int:
    """How many wait for one of the two locks."""
    inodes = {f":{place.stat().st_ino} " for place in (path, path.with_name("turn.next")) if place.exists()}
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and any(inode in line for inode in inodes) for line in lines)


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_is_killed_or_stopped_keeps_nobody_from_writing(
    ends: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIMING, "store.turn_wait_s=0.2")
    with contextlib.closing(open_store(tmp_path / "store")) as store, holder(store.local.turn) as first:
        os.kill(first.pid, ends)
        run = store.create(opened("mine"))
        lease = store.claim(run)
        began_s = time.monotonic()
        for number in range(WRITES):
            store.append(batch(lease, run, number + 1, stage(number)))
        took_s = time.monotonic() - began_s
        assert took_s < WRITES * 0.2, "each write waited for a turn that never comes"
        os.kill(first.pid, signal.SIGKILL)


def test_who_gave_up_waiting_passes_the_turn_on_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    impatient, next_one = Turns(path, 0.05, LONG_S), Turns(path, SOON_S, LONG_S)
    with holder(path) as first:
        impatient.take()
        impatient.leave()
        let_go(first)
        assert first.wait(TIMEOUT_S) == 0
    next_one.take()
    assert next_one._without_until_s == 0, "the turn never came"
    next_one.leave()
    assert _waiting(path) == 0


INTERRUPTED = """
import signal, sys
from pathlib import Path
from outlast.store.protocol import Lease, Store
from outlast.store.sqlite.turns import Turns
turns = Turns(Path(sys.argv[1]), 600, 600)
print("begun", flush=True)
try:
    turns.take()
except KeyboardInterrupt:
    turns.leave()
    print("interrupted", flush=True)
    sys.stdin.readline()
"""


def test_who_is_interrupted_while_waiting_stands_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    with holder(path) as first, talking(INTERRUPTED, str(path), says=b"begun\n") as second:
        processes.wait_for(lambda: _waiting(path) == 1 or None, what="the second to stand")
        second.send_signal(signal.SIGINT)
        assert second.stdout is not None
        assert second.stdout.readline() == b"interrupted\n"
        let_go(first)
        third = Turns(path, LONG_S, LONG_S)
        third.take()
        third.leave()


def test_a_turn_that_never_comes_is_waited_for_by_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    turns = Turns(path, 0.01, 0)
    with holder(path) as first:
        open_files = set[int]()
        for _ in range(WRITES):
            turns.take()
            turns.leave()
            open_files.add(len(os.listdir("/proc/self/fd")))
        assert len(open_files) == 1
        assert sum(thread.name == "outlast-turn" for thread in threading.enumerate()) == 1
        let_go(first)
        assert first.wait(TIMEOUT_S) == 0
    processes.wait_for(
        lambda: all(thread.name != "outlast-turn" for thread in threading.enumerate()) or None,
        what="the one who stood to go",
    )
    with holder(path) as second:
        turns.take()
        turns.leave()
        let_go(second)
    turns.close()


def test_who_comes_back_has_kept_its_place(tmp_path: Path) -> None:
    path = tmp_path / "turn"
    turns = Turns(path, 0.05, 0)
    with holder(path) as first, ThreadPoolExecutor(1) as pool:
        turns.take()
        turns.leave()
        turns._wait_s = SOON_S
        taken = pool.submit(turns.take)
        processes.wait_for(lambda: turns._now._waiter is not None or None, what="it to be back")
        let_go(first)
        taken.result(TIMEOUT_S)
        assert turns._without_until_s == 0, "the turn never came"
        with path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        turns.leave()
        assert first.wait(TIMEOUT_S) == 0
    with holder(path):
        pass
    turns.close()


def test_a_store_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    for name in ("outlast.db-wal", "outlast.db-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
        (tmp_path / "store" / name).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(StoreError):
            open_store(tmp_path / "store")
    assert len(os.listdir("/proc/self/fd")) == before
