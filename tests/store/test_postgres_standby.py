"""A PostgreSQL with a standby: what was acknowledged is there after a failover, and a standby that hangs robs nobody."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlast.errors import OutlastError, StoreError, StoreRewound
from outlast.settings import TIMING
from outlast.store import locate, locks, open_store
from outlast.store.postgres.lease import PostgresLease
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Lease
from tests.store.journal_batches import WAIT_S, batch, opened, stage, stages
from tests.support import postgres, processes
from tests.support.postgres import PostgresServer

QUICK = "store.reconnect_poll_s=0.05,store.quiet_s=0.3,store.watch_look_s=0.2,store.busy_ms=1500,store.reconnect_s=3"
PATIENT = f"{QUICK},store.silence_ms=60000"  # only a warning tells it that nobody waited for the standby
TTL_S = 6.0
_WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = %s"
Opener = Callable[..., PostgresStore]


Pair = tuple[PostgresServer, PostgresServer]


@contextlib.contextmanager
def made_pair() -> Iterator[Pair]:
    with postgres.server() as primary, postgres.server(primary=primary) as standby:
        primary.set("synchronous_standby_names", "*")
        yield primary, standby


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary and its standby, for which each commit waits."""
    with made_pair() as made:
        yield made


@pytest.fixture
def pair_to_break() -> Iterator[Pair]:
    """Another pair, for one test."""
    with made_pair() as made:
        yield made


@pytest.fixture
def on_host(tmp_path: Path) -> Iterator[Opener]:
    made: list[PostgresStore] = []

    def open_on(name: str, url: str, timing: str = QUICK) -> PostgresStore:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(tmp_path / name))
            patch.setenv(TIMING, timing)
            store = open_store(url)
        assert isinstance(store, PostgresStore)
        made.append(store)
        return store

    yield open_on
    for store in made:
        with contextlib.suppress(StoreError):
            store.close()


def waiting(server: PostgresServer, database: str) -> list[int]:
    """The server's processes that wait for the standby."""
    with server.connect("postgres") as connection:
        return [pid for (pid,) in connection.execute(_WAITING, (database,)).fetchall()]


def cancel_the_wait(server: PostgresServer, database: str) -> None:
    """What waits now is cancelled. It is asked again at once, by another process of the server, which waits too."""
    pids = processes.wait_for(lambda: waiting(server, database), what="a commit that waits for the standby")
    with server.connect("postgres") as connection:
        for pid in pids:
            connection.execute("SELECT pg_cancel_backend(%s)", (pid,))
    processes.wait_for(
        lambda: not set(pids) & set(waiting(server, database)), what="its wait to be cancelled"
    )


@pytest.mark.slow
def test_a_standby_that_hangs_robs_no_healthy_holder(pair: Pair, on_host: Opener) -> None:
    """No commit is acknowledged meanwhile, so every counter stands still."""
    primary, standby = pair
    url = primary.url(primary.store())
    holder, taker = on_host("a", url), on_host("b", url)
    taker.release(taker.claim(taker.create(opened("own")), ttl_s=TTL_S))  # it has a session already
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=TTL_S)
    holder.append(batch(lease, run, 1, stage("before")))
    refused: list[OutlastError] = []

    def take(stop: threading.Event) -> Lease | None:
        while not stop.is_set():
            try:
                return taker.claim(run, ttl_s=TTL_S)
            except OutlastError as error:
                refused.append(error)
        return None

    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with standby.frozen():
            frozen_s = locks.boottime_s()
            taking: Future[Lease | None] = pool.submit(take, stop)
            processes.wait_for(lambda: locks.boottime_s() - frozen_s > TTL_S * 2, what="two leases")
        processes.wait_for(lambda: _writes(holder, lease, run), what="the holder to go on")
        stop.set()
        assert taking.result(WAIT_S) is None, "it would have robbed a holder that lives"
    assert refused
    assert not lease.lost  # type: ignore[attr-defined]


def _writes(store: PostgresStore, lease: Lease, run: str) -> bool:
    assert isinstance(lease, PostgresLease)
    return lease.vouched_s > locks.boottime_s() - 2 and stages(store, run) == ["before"]


@pytest.mark.parametrize("what", ["append", "claim", "request"])
def test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged(
    what: str, pair: Pair, on_host: Opener
) -> None:
    """The server answers success, with a warning. Its client asks until the standby has it."""
    primary, standby = pair
    database = primary.store()
    store = on_host("a", primary.url(database), timing=PATIENT)
    run, other = store.create(opened()), store.create(opened("other"))
    lease = store.claim(run, ttl_s=60.0)
    does: dict[str, Callable[[], Any]] = {
        "append": lambda: store.append(batch(lease, run, 1, stage("x"))),
        "claim": lambda: store.claim(other, ttl_s=60.0),
        "request": lambda: store.inbox.put(run, by="ada", what="pause"),
    }
    with ThreadPoolExecutor(1) as pool:
        with standby.frozen():
            doing = pool.submit(does[what])
            cancel_the_wait(primary, database)
            processes.wait_for(
                lambda: waiting(primary, database) or doing.done(),
                what="it to be asked again, or taken for done",
            )
            assert not doing.done()
        doing.result(WAIT_S)
    assert stages(store, run) == (["x"] if what == "append" else [])
    assert len(store.inbox.pending(run)) == (what == "request")


def test_what_was_acknowledged_is_there_after_a_failover_and_nothing_is_claimed_before_a_person_accepts(
    pair_to_break: Pair, on_host: Opener
) -> None:
    primary, standby = pair_to_break
    database = primary.store()
    store = on_host("a", primary.url(database))
    run = store.create(opened())
    lease = store.claim(run, ttl_s=60.0)
    written: list[int] = []

    def write() -> None:
        with contextlib.suppress(StoreError):
            for number in range(100_000):
                store.append(batch(lease, run, number + 1, stage(number)))
                written.append(number)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        processes.wait_for(lambda: len(written) > 20, what="some events")
        primary.kill()
        acknowledged = len(written)
        standby.promote()
        store._closing = True  # type: ignore[attr-defined]
        store._leases._held[next(iter(store._leases._held))].deadline_s = 0.0  # type: ignore[union-attr]
        writing.result(WAIT_S)
    url = standby.url(database)
    with pytest.raises(StoreRewound, match="another server or timeline"):
        open_store(url)
    assert locate(url).accept()  # type: ignore[attr-defined]
    after = on_host("a", url)
    assert stages(after, run)[:acknowledged] == [str(number) for number in range(acknowledged)]


def test_what_an_asynchronous_standby_had_not_got_stops_the_run_that_lost_it(
    pair_to_break: Pair, on_host: Opener
) -> None:
    primary, standby = pair_to_break
    primary.set("synchronous_standby_names", "")
    database = primary.store()
    store = on_host("a", primary.url(database))
    run = store.create(opened())
    lease = store.claim(run, ttl_s=60.0)
    store.append(batch(lease, run, 1, stage("shipped")))

    def has_it() -> bool:
        try:
            with standby.connect(database) as connection:
                found = connection.execute("SELECT max(seq) FROM outlast.events").fetchone()
        except psycopg.OperationalError:  # it has not even got the database yet
            return False
        return found == (2,)

    processes.wait_for(has_it, what="the standby to have it")
    standby.kill()
    store.append(batch(lease, run, 2, stage("lost")))
    primary.kill()
    store.close()
    standby.start()
    standby.promote()
    url = standby.url(database)
    with pytest.raises(StoreRewound):
        open_store(url)
    locate(url).accept()  # type: ignore[attr-defined]
    here, elsewhere = on_host("a", url), on_host("b", url)
    assert stages(here, run) == ["shipped"]
    with pytest.raises(StoreRewound, match="event 3 was acknowledged, the last one is 2"):
        here.claim(run)
    assert elsewhere.claim(elsewhere.create(opened("another"))).epoch == 1
