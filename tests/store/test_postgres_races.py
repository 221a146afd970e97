"""Hosts that race for one PostgreSQL: each host is a store object with a local folder of its own."""

import contextlib
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlast.errors import LeaseLost, RunHeld, StoreError, StoreUnreachable
from outlast.settings import TIMING
from outlast.store import locks, open_store
from outlast.store.postgres.lease import PostgresLease
from outlast.store.postgres.leases import ServerLeases
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import RunFilter
from tests.store.journal_batches import WAIT_S, batch, opened, stage, stages
from tests.support import processes
from tests.support.cut_proxy import HELD, CutProxy, cut_proxy
from tests.support.postgres import PostgresServer

QUICK = "store.reconnect_poll_s=0.01,store.quiet_s=0.3,store.watch_look_s=0.2,store.silence_ms=500,store.silence_look_s=0.05"
TTL_S = 6.0
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
OnHost = Callable[..., PostgresStore]


@pytest.fixture
def on_host(postgres_url: str, tmp_path: Path) -> Iterator[OnHost]:
    """Opens the store on a host: the same name is the same host."""
    made: list[PostgresStore] = []

    def open_on(name: str, url: str = postgres_url, timing: str = QUICK) -> PostgresStore:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(tmp_path / name))
            patch.setenv(TIMING, timing)
            store = open_store(url)
        assert isinstance(store, PostgresStore)
        made.append(store)
        return store

    yield open_on
    for store in made:
        store.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer, rng: random.Random) -> Iterator[CutProxy]:
    with cut_proxy(postgres_server.folder, rng) as made:
        yield made


def leases_of(store: PostgresStore) -> ServerLeases:
    assert store._leases is not None
    return store._leases


def taken(store: PostgresStore, run: str, *, is_proof: bool) -> PostgresLease | None:
    """What a claim does once it has judged: by proof of death, or by silence as of this look."""
    leases = leases_of(store)
    row, _ = store._db.row(run)
    leases._begin()
    seen = leases._seen(run, row)
    lock = locks.try_lock(store.local.run_lock(run))
    assert lock is not None
    with leases._claiming(row):  # else the session's thread gives back what it finds
        return leases._take(run, row, seen, lock, TTL_S, 0, is_proof=is_proof)


def still(store: PostgresStore) -> None:
    """Stop the session's heart, as a process that hangs does."""
    leases = leases_of(store)
    leases._closing = True
    leases._wake.set()
    assert leases._heart is not None
    leases._heart.join(WAIT_S)


# -- the fence ----------------------------------------------------------------------------------------------------


def test_no_event_of_an_old_epoch_lands_after_the_taker_has_read(on_host: OnHost, whole: bool) -> None:
    late = 0
    holder, taker = on_host("a"), on_host("b")
    for number in range(60 if whole else 20):
        run = holder.create(opened(f"t{number}"))
        lease = holder.claim(run, ttl_s=TTL_S)
        begun = threading.Event()

        def write(run: str = run, lease: object = lease, begun: threading.Event = begun) -> None:
            with contextlib.suppress(LeaseLost):
                for at in range(1, 10_000):
                    holder.append(batch(lease, run, at, stage("old")))  # type: ignore[arg-type]
                    if at == 3:
                        begun.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            assert begun.wait(WAIT_S)
            assert taken(taker, run, is_proof=True) is not None
            read = len(stages(taker, run))
            writing.result(WAIT_S)
        late += len(stages(taker, run)) != read
    assert late == 0


def test_an_epoch_given_twice_is_fenced_by_its_session(on_host: OnHost) -> None:
    """A primary that is lost had given it and not shipped it; the next one gives it again."""
    holder, taker = on_host("a"), on_host("b")
    run = holder.create(opened())
    old = holder.claim(run, ttl_s=TTL_S)
    with holder._db.connection() as connection:
        connection.execute("UPDATE leases SET epoch = epoch - 1, session = NULL")  # what was not shipped
    new = taker.claim(run, ttl_s=TTL_S)
    assert new.epoch == old.epoch
    with pytest.raises(LeaseLost):
        holder.append(batch(old, run, 1, stage("zombie")))
    assert list(holder.renew([old])) == [run]
    assert taker.renew([new]) == {}


# -- claims -------------------------------------------------------------------------------------------------------


def test_of_claims_on_many_hosts_at_once_one_wins(on_host: OnHost, whole: bool) -> None:
    hosts = [on_host(f"h{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for number in range(20 if whole else 6):
            run = hosts[0].create(opened(f"t{number}"))
            barrier = threading.Barrier(6)

            def claim(
                store: PostgresStore, run: str = run, barrier: threading.Barrier = barrier
            ) -> PostgresLease | None:
                leases = leases_of(store)
                row, _ = store._db.row(run)
                leases._begin()
                seen = leases._seen(run, row)
                lock = locks.try_lock(store.local.run_lock(run))
                assert lock is not None
                barrier.wait(WAIT_S)
                with leases._claiming(row):
                    lease = leases._take(run, row, seen, lock, TTL_S, 0, is_proof=True)
                if lease is None:
                    lock.close()
                return lease

            won = [lease for lease in pool.map(claim, hosts) if lease is not None]
            assert len(won) == 1
            assert hosts[0].list(RunFilter(runs=(run,)))[0].epoch == won[0].epoch == 1


def test_a_claim_by_silence_and_a_renewal_are_not_both_granted(
    on_host: OnHost, rng: random.Random, whole: bool
) -> None:
    holder, taker = on_host("a"), on_host("b")
    both = claims = renewals = 0
    for number in range(120 if whole else 40):
        run = holder.create(opened(f"t{number}"))
        lease = holder.claim(run, ttl_s=60.0)
        assert isinstance(lease, PostgresLease)
        leases = leases_of(taker)
        row, _ = taker._db.row(run)
        leases._begin()
        seen = leases._seen(run, row)
        barrier = threading.Barrier(2)

        def renew(lease: PostgresLease = lease, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait(WAIT_S)
            leases_of(holder)._renew()
            return not lease.lost

        lock = locks.try_lock(taker.local.run_lock(run))
        assert lock is not None
        with ThreadPoolExecutor(1) as pool:
            renewing = pool.submit(renew)
            barrier.wait(WAIT_S)
            threading.Event().wait(rng.uniform(0, 0.002))
            with leases._claiming(row):
                won = leases._take(run, row, seen, lock, 60.0, 0, is_proof=False)
            renewed = renewing.result(WAIT_S)
        both += won is not None and renewed
        claims += won is not None
        renewals += renewed
        (taker.release(won) if won is not None else lock.close())
        holder.release(lease)
    assert both == 0, f"of {claims} claims and {renewals} renewals"


def test_a_run_whose_holder_lives_elsewhere_is_held_and_one_whose_holder_hangs_is_overtaken(
    on_host: OnHost,
) -> None:
    holder, taker = on_host("a"), on_host("b")
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=TTL_S)
    began_s = locks.boottime_s()
    with pytest.raises(RunHeld):
        taker.claim(run, ttl_s=TTL_S)  # it has seen the counter move, and watches it from then on
    still(holder)
    new = taker.claim(run, ttl_s=TTL_S)
    assert locks.boottime_s() - began_s > TTL_S, "its counter stood still for its whole lease by our clock"
    assert new.epoch == lease.epoch + 1
    with pytest.raises(StoreError), lease.guard():
        pytest.fail("it was overtaken")
    assert (holder.holder_lives(run), taker.holder_lives(run)) == (True, True)


def test_a_holder_stops_by_its_own_clock_before_anybody_can_overtake_it(
    on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Cut off and silent: nothing is closed, and no answer comes."""
    cut_off = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    taker = on_host("b")
    run = cut_off.create(opened())
    lease = cut_off.claim(run, ttl_s=TTL_S)
    with lease.guard():
        pass
    cut_off.check_exists()
    proxy.silence(True)
    acts: list[float] = []
    stopped: list[float] = []

    def act() -> None:
        while not stopped:
            try:
                with lease.guard():
                    acts.append(locks.boottime_s())
                cut_off.check_exists()
            except StoreError:
                stopped.append(locks.boottime_s())

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        new = taker.claim(run, ttl_s=TTL_S)
        took_s = locks.boottime_s() - 0.3
        acting.result(WAIT_S)
    assert new.epoch == lease.epoch + 1
    assert stopped[0] < took_s
    assert all(at_s < took_s for at_s in acts)
    with pytest.raises(StoreUnreachable):
        cut_off.check_exists()


def test_on_the_same_host_a_dead_holder_is_overtaken_at_once(
    on_host: OnHost, postgres_url: str, tmp_path: Path
) -> None:
    store = on_host("a")
    script = (
        "import sys; from outlast.store import open_store; from tests.store.journal_batches import opened\n"
        "store = open_store(sys.argv[1]); run = store.create(opened()); store.claim(run)\n"
        "print(run, flush=True); sys.stdin.readline()"
    )
    environment = processes.clean_environment({"XDG_STATE_HOME": str(tmp_path / "a")})
    with subprocess.Popen(
        processes.python_command(script, postgres_url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        run = process.stdout.readline().decode().strip()
        with pytest.raises(RunHeld):
            store.claim(run, ttl_s=TTL_S)
        processes.kill(process)
    began_s = locks.boottime_s()
    assert store.claim(run, ttl_s=TTL_S).epoch == 2
    assert locks.boottime_s() - began_s < TTL_S / 2


def test_a_copy_of_the_folder_on_another_machine_proves_nobody_dead(on_host: OnHost) -> None:
    """As does a lock file that another session wrote."""
    holder, other = on_host("a"), on_host("b")
    run = holder.create(opened())
    holder.claim(run, ttl_s=60.0)
    seen = leases_of(other)._seen(run, other._db.row(run)[0])
    path = other.local.run_lock(run)
    path.write_bytes(holder.local.run_lock(run).read_bytes())
    assert not leases_of(other)._is_dead(seen, path), "the host is another"
    assert leases_of(holder)._is_dead(seen, holder.local.run_lock(run))
    path.write_bytes(b"\0" * 64)
    assert not leases_of(holder)._is_dead(seen, path), "another session had this lock last"


def test_the_servers_clock_takes_no_run_from_a_living_holder(on_host: OnHost) -> None:
    """It was set an hour ahead: by it, every lease is over."""
    holder, taker = on_host("a"), on_host("b")
    run = holder.create(opened())
    holder.claim(run, ttl_s=TTL_S)
    with holder._db.connection() as connection:
        connection.execute("UPDATE sessions SET renewed_at = renewed_at - interval '1 hour'")
    with pytest.raises(RunHeld):
        taker.claim(run, ttl_s=TTL_S)


def test_a_lease_counts_from_when_its_renewal_was_sent(on_host: OnHost) -> None:
    """The answer may be late, and others count from what they saw before it."""
    holder = on_host("a", timing=QUICK.replace("silence_ms=500", "silence_ms=20000"))
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=60.0)
    assert isinstance(lease, PostgresLease)
    lease.deadline_s = 0.0
    with holder._db.connection() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sessions FOR UPDATE")
        renewing = pool.submit(leases_of(holder)._renew)
        processes.wait_for(lambda: holder._db.ask(WAITS)[0][0] == 1)
        freed_s = locks.boottime_s()
        connection.execute("COMMIT")
        renewing.result(WAIT_S)
    assert 0 < lease.deadline_s < freed_s + 60.0 - 7.0


def test_an_act_long_after_its_intent_asks_first_whether_the_run_is_still_its(on_host: OnHost) -> None:
    """A closed lid: the intent is written, and the run is overtaken before the act begins."""
    holder, taker = on_host("a"), on_host("b")
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=60.0)
    assert isinstance(lease, PostgresLease)
    holder.append(batch(lease, run, 1, stage("intent")))
    assert taken(taker, run, is_proof=True) is not None
    lease.vouched_s -= holder._timing.act_within_s
    with pytest.raises(LeaseLost), lease.guard():
        pytest.fail("somebody else may have settled it")


def test_an_act_begins_soon_after_the_lease_was_asked_for_however_late_the_answer_comes(
    on_host: OnHost,
) -> None:
    """Else it begins after a taker's quiet time."""
    timing = QUICK.replace("silence_ms=500", "silence_ms=20000") + ",store.act_within_s=0.5"
    holder = on_host("a", timing=timing)
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=60.0)
    assert isinstance(lease, PostgresLease)
    lease.vouched_s = 0.0

    def act() -> float:
        with lease.guard():
            return locks.boottime_s() - lease.vouched_s

    with holder._db.connection() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sessions FOR UPDATE")
        acting = pool.submit(act)
        processes.wait_for(lambda: holder._db.ask(WAITS)[0][0] == 1)
        threading.Event().wait(0.6)
        connection.execute("COMMIT")
        assert acting.result(WAIT_S) <= 0.5


def test_a_heart_goes_on_when_the_server_refuses_a_renewal(on_host: OnHost, postgres_url: str) -> None:
    """Somebody keeps a lock, or the server's disk is full: a healthy holder must not fall silent for good."""
    holder = on_host("a", timing=f"{QUICK},store.busy_ms=100,store.retry_s=0.1")
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=TTL_S)
    assert isinstance(lease, PostgresLease)
    leases = leases_of(holder)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT 1 FROM outlast.sessions FOR UPDATE")
        with pytest.raises(StoreError):
            leases.renew([lease])
        waited_s = locks.boottime_s()
        processes.wait_for(
            lambda: locks.boottime_s() - waited_s > TTL_S / 6 + 0.5, what="a beat that is refused"
        )
    processes.wait_for(lambda: lease.vouched_s > waited_s + TTL_S / 6 + 0.5, 20.0, "the heart to beat")


def test_a_claim_that_fails_in_its_quiet_time_holds_nothing(on_host: OnHost) -> None:
    """Its session lives on, so others would never see that nobody works on the run."""
    holder, taker, later = on_host("a"), on_host("b"), on_host("c")
    run = holder.create(opened())
    holder.claim(run, ttl_s=TTL_S)
    leases = leases_of(taker)

    def fail(lease: PostgresLease) -> None:
        raise StoreUnreachable("no answer")

    leases._wait_for_quiet = fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnreachable):
        taken(taker, run, is_proof=False)
    assert leases._held == {}
    began_s = locks.boottime_s()
    assert later.claim(run, ttl_s=TTL_S).epoch == 3
    assert locks.boottime_s() - began_s < TTL_S / 2


def test_a_stopped_holder_on_the_same_host_is_overtaken_by_one_start(
    on_host: OnHost, postgres_url: str, tmp_path: Path
) -> None:
    """A command that looked once would begin to watch it anew each time it is typed."""
    store = on_host("a")
    script = (
        "import sys; from outlast.store import open_store; from tests.store.journal_batches import opened\n"
        f"store = open_store(sys.argv[1]); run = store.create(opened()); store.claim(run, ttl_s={TTL_S})\n"
        "print(run, flush=True); sys.stdin.readline()"
    )
    environment = processes.clean_environment({"XDG_STATE_HOME": str(tmp_path / "a")})
    with subprocess.Popen(
        processes.python_command(script, postgres_url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:  # fmt: skip
        assert process.stdout is not None
        run = process.stdout.readline().decode().strip()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunHeld):
            store.claim(run, ttl_s=TTL_S)
        over = "SELECT clock_timestamp() - renewed_at > interval '6 s' FROM sessions"
        processes.wait_for(
            lambda: any(is_over for (is_over,) in store._db.ask(over)), what="its lease to be over"
        )
        leases_of(store)._watch.forget(store._db.row(run)[0])
        assert store.claim(run, ttl_s=TTL_S).epoch == 2
        processes.kill(process)


# -- releases -----------------------------------------------------------------------------------------------------


def test_a_release_waits_for_the_act_in_progress_and_then_lets_other_hosts_in(on_host: OnHost) -> None:
    holder, other = on_host("a"), on_host("b")
    run = holder.create(opened())
    lease = holder.claim(run, ttl_s=TTL_S)
    with lease.guard():
        holder.release(lease)
        with pytest.raises(RunHeld):
            other.claim(run, ttl_s=TTL_S)
    began_s = locks.boottime_s()
    assert other.claim(run, ttl_s=TTL_S).epoch == 2
    assert locks.boottime_s() - began_s < TTL_S / 2


def test_a_release_lets_another_host_in_at_once(on_host: OnHost) -> None:
    holder, other = on_host("a"), on_host("b")
    run = holder.create(opened())
    holder.release(holder.claim(run, ttl_s=300.0))
    began_s = locks.boottime_s()
    assert other.claim(run, ttl_s=300.0).epoch == 2
    assert locks.boottime_s() - began_s < 10


def test_who_was_not_proven_dead_stays_so_for_later_takers(on_host: OnHost) -> None:
    """Else the second taker settles at once what the first holder may be doing yet."""
    holder, taker, later = (
        on_host("a"),
        on_host("b"),
        on_host("c", timing=QUICK.replace("quiet_s=0.3", "quiet_s=1.5")),
    )
    run = holder.create(opened())
    holder.claim(run, ttl_s=TTL_S)
    row, _ = holder._db.row(run)
    leases = leases_of(taker)
    leases._wait_for_quiet = lambda lease: None  # type: ignore[method-assign]  # it dies before its quiet time is over
    assert taken(taker, run, is_proof=False) is not None
    began_s = locks.boottime_s()
    assert taken(later, run, is_proof=True) is not None
    assert locks.boottime_s() - began_s >= 1.5
    assert holder._db.read("SELECT proven FROM leases WHERE run = %s", (row,)) == [(2,)]


# -- lost connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["lost", "late", "unanswered", ""])
def test_however_connections_are_cut_a_writer_knows_its_own_journal(
    way: str,
    on_host: OnHost,
    proxy: CutProxy,
    postgres_server: PostgresServer,
    postgres_url: str,
    rng: random.Random,
    whole: bool,
) -> None:
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    run = store.create(opened())
    lease = store.claim(run)
    count = 120 if whole else 40
    for number in range(count):
        if rng.random() < 0.4:
            proxy.cut_next(way)
        store.append(batch(lease, run, number + 1, stage(number)))
    assert stages(store, run) == [str(number) for number in range(count)]
    assert len(proxy.cuts) > count / 5


def test_an_append_that_arrives_after_its_writer_has_looked_is_refused(
    on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    run = store.create(opened())
    lease = store.claim(run, ttl_s=60.0)
    store.append(batch(lease, run, 1, stage(0)))
    assert store._commits is not None
    look = store._commits._is_there

    def look_then_deliver(pending: Any) -> bool:
        found = look(pending)
        proxy.deliver()
        return found

    store._commits._is_there = look_then_deliver  # type: ignore[method-assign]
    proxy.cut_next(HELD)
    store.append(batch(lease, run, 2, stage(1)))
    assert proxy.cuts == [HELD]
    assert stages(store, run) == ["0", "1"]


def test_a_silent_server_is_given_up_and_asked_again_until_it_answers(
    on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Its connections stay open, as those of a stopped process do."""
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    run = store.create(opened())
    lease = store.claim(run, ttl_s=600.0)  # so that no renewal asks for a connection
    proxy.silence(True)
    before = proxy.connections
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.append, batch(lease, run, 1, stage(0)))
        try:
            processes.wait_for(lambda: proxy.connections > before, 20.0, "another connection")
        finally:
            proxy.silence(False)
        writing.result(WAIT_S)
    assert stages(store, run) == ["0"]


def test_an_append_that_the_server_chose_to_fail_for_a_deadlock_is_sent_again(on_host: OnHost) -> None:
    """It looks for one once, so long after it began to wait: here the append does, and this test does not."""
    first = on_host("a")
    with first._db.connection() as connection:
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET deadlock_timeout = '4s'")
    store = on_host("b", timing=QUICK.replace("silence_ms=500", "silence_ms=20000"))
    run = store.create(opened())
    lease = store.claim(run, ttl_s=60.0)
    row, _ = store._db.row(run)
    with store._db.connection() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("SET deadlock_timeout = '10min'")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO events(n, run, seq, data) VALUES (1, %s, 2, '')", (row,))
        writing = pool.submit(store.append, batch(lease, run, 1, stage("mine")))
        processes.wait_for(lambda: store._db.ask(WAITS)[0][0] == 1)
        connection.execute("SELECT 1 FROM leases FOR UPDATE")
        connection.execute("ROLLBACK")
        writing.result(WAIT_S)
    assert stages(store, run) == ["mine"]


def test_a_document_is_held_although_the_connection_is_cut_on_the_way(
    on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    for way in ("lost", "late", "unanswered"):
        proxy.cut_next(way)
        assert store.shelf.change("walls", "account", lambda _, way=way: way.encode()) == way.encode()  # type: ignore[misc]
    assert len(proxy.cuts) == 3


def test_what_is_let_go_of_is_free_before_the_server_sees_that_its_connection_is_closed(
    on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    first = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    other = on_host("b")
    with proxy.late_ends():
        with first.exclusive("r1", "asking", wait_s=0.0):
            pass
        with other.exclusive("r1", "asking", wait_s=0.0):
            pass


def test_a_database_that_prefers_another_isolation_changes_nothing(
    on_host: OnHost, postgres_url: str
) -> None:
    """Its lock would show what was there before the wait."""
    first = on_host("a")
    with first._db.connection() as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    assert on_host("b")._db.ask("SHOW transaction_isolation") == [("read committed",)]


@pytest.mark.parametrize("way", ["lost", "late", "unanswered"])
def test_a_claim_whose_answer_is_lost_is_looked_for(
    way: str, on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    other = on_host("b")
    for number in range(5):
        run = store.create(opened(f"t{number}"))
        leases = leases_of(store)
        row, _ = store._db.row(run)
        leases._begin()
        seen = leases._seen(run, row)
        lock = locks.try_lock(store.local.run_lock(run))
        assert lock is not None
        proxy.cut_next(way)
        with leases._claiming(row):
            lease = leases._take(run, row, seen, lock, TTL_S, 0, is_proof=True)
        assert lease is not None, "nobody else wanted it"
        store.append(batch(lease, run, 1, stage("mine")))
        store.release(lease)
        other.release(other.claim(run, ttl_s=TTL_S))


@pytest.mark.parametrize("way", ["lost", "late", "unanswered"])
def test_what_may_be_done_twice_is_done_once(
    way: str, on_host: OnHost, proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str
) -> None:
    store = on_host("a", url=postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    for number in range(6):
        proxy.cut_next(way)
        run = store.create(opened(f"t{number}"))
        proxy.cut_next(way)
        store.inbox.put(run, by="ada", what=f"{number}")
        proxy.cut_next(way)
        assert store.blobs.get(store.blobs.put(b"%d" % number)) == b"%d" % number
        assert [request.what for request in store.inbox.pending(run)] == [str(number)]
    assert len(store.list(RunFilter())) == 6


def test_a_killed_server_loses_nothing_that_was_acknowledged(
    postgres_server: PostgresServer, on_host: OnHost, rng: random.Random, whole: bool
) -> None:
    store = on_host("a")
    run = store.create(opened())
    lease = store.claim(run, ttl_s=60.0)
    written = 0
    for _ in range(6 if whole else 2):
        stop = threading.Event()

        def write(after: int = written, stop: threading.Event = stop) -> int:
            while not stop.is_set():
                store.append(batch(lease, run, after + 1, stage(after)))
                after += 1
            return after

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            threading.Event().wait(rng.uniform(0.01, 0.2))
            postgres_server.kill()
            postgres_server.start()
            stop.set()
            written = writing.result(WAIT_S)
    assert stages(store, run) == [str(number) for number in range(written)]
