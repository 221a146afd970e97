"""The long searches of a store in PostgreSQL: `./dev campaign tests/store/test_postgres_campaign.py`. Small ones are beside the other tests."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import Lease, Store
from tests.store.journal_batches import WAIT_S, batch, opened, stage
from tests.support.cut_proxy import CutProxy, cut_proxy
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.campaign

CUTS, KILLS = 1_000, 200
WRITERS = 8
TURNS_MAX = 40_000
QUICK = "store.reconnect_poll_s=0.01,store.quiet_s=0.1,store.watch_look_s=0.2,store.silence_ms=1500,store.silence_look_s=0.05"


@pytest.fixture
def proxy(postgres_server: PostgresServer, rng: random.Random) -> Iterator[CutProxy]:
    with cut_proxy(postgres_server.folder, rng) as made:
        yield made


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "host"))
    monkeypatch.setenv(TIMING, QUICK)


class JournalWriter:
    """One run and what its writer was told: which stages are in its journal, and which requests were taken in."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.run = store, store.create(opened(name))
        self.lease: Lease = store.claim(self.run, ttl_s=60.0)
        self.epochs, self.written = 1, 0

    def write(self) -> None:
        self.store.append(batch(self.lease, self.run, self.written + 1, stage(self.written)))
        self.written += 1

    def hand_over(self) -> None:
        """Let go, and claim again."""
        self.store.release(self.lease)
        self.lease = self.store.claim(self.run, ttl_s=60.0)
        self.epochs += 1

    def check(self) -> None:
        found: list[str] = []
        after = 0
        while page := self.store.read(self.run, after=after).events:
            found += [item.event.stage for item in page if isinstance(item.event, ev.StageSet)]
            after = page[-1].seq
        assert found == [str(number) for number in range(self.written)]


@pytest.mark.usefixtures("quick")
def test_of_a_thousand_cut_connections_none_leaves_a_writer_wrong_about_its_journal(
    proxy: CutProxy, postgres_server: PostgresServer, postgres_url: str, rng: random.Random
) -> None:
    store = open_store(postgres_url.replace(str(postgres_server.folder), str(proxy.folder)))
    writers = [JournalWriter(store, f"t{number}") for number in range(WRITERS)]
    for turn in range(TURNS_MAX):
        if len(proxy.cuts) >= CUTS:
            break
        writer = rng.choice(writers)
        if rng.random() < 0.6:
            proxy.cut_next(after=rng.randint(0, 2))
        match rng.randint(0, 9):
            case 0:
                writer.hand_over()
            case 1:
                store.inbox.put(writer.run, by="ada", what=str(turn))
            case 2:
                store.renew([writer.lease])
            case _:
                writer.write()
        if turn % 100 == 0:
            writer.check()
    proxy.disarm()
    for writer in writers:
        writer.check()
    print(f"{len(proxy.cuts)} cuts, {sum(writer.written for writer in writers)} events")
    assert len(proxy.cuts) >= CUTS
    store.close()


@pytest.mark.usefixtures("quick")
def test_of_two_hundred_kills_of_the_server_none_loses_what_was_acknowledged(
    postgres_server: PostgresServer, postgres_url: str, rng: random.Random
) -> None:
    store = open_store(postgres_url)
    writers = [JournalWriter(store, f"t{number}") for number in range(WRITERS)]
    for kill in range(KILLS):
        stop = threading.Event()

        def write(writer: JournalWriter, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                writer.write()

        with ThreadPoolExecutor(WRITERS) as pool:
            writing = [pool.submit(write, writer) for writer in writers]
            threading.Event().wait(rng.uniform(0.01, 0.2))
            postgres_server.kill()
            postgres_server.start()
            stop.set()
            for each in writing:
                each.result(WAIT_S)
        if kill % 20 == 0:
            for writer in writers:
                writer.check()
    for writer in writers:
        writer.check()
    print(f"{KILLS} kills, {sum(writer.written for writer in writers)} events")
    store.close()
