"""The part of the conformance suite about races: who looks while others write, and who writes while others look."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from outlast.core.values import Parent
from outlast.errors import StoreCorrupt
from outlast.store.protocol import RecordedEvent, Store
from tests.store.journal_batches import WAIT_S, batch, opened, stage

WRITERS = 4


class RacesConformance:
    """What every backend keeps while several are at it; `StoreConformance` has the fixtures."""

    def test_a_subscriber_hears_every_event_once_and_in_order_however_slowly_they_are_committed(
        self, another: Callable[[], Store], whole: bool
    ) -> None:
        """Some commit one event at once, some many in a long transaction that began earlier."""
        stores = [another() for _ in range(WRITERS)]
        reader = another()
        rounds = 60 if whole else 15
        done = threading.Event()
        heard: list[RecordedEvent] = []

        def listen() -> None:
            after = 0
            while True:
                was_done = done.is_set()
                page = reader.subscribe(after, wait_s=0)
                heard.extend(page)
                if page:
                    after = page[-1].n
                elif was_done:
                    return

        def quick(store: Store) -> int:
            run = store.create(opened(f"quick {id(store)}"))
            lease = store.claim(run)
            for number in range(rounds * 4):
                store.append(batch(lease, run, number + 1, stage(number)))
            store.release(lease)
            return 1 + rounds * 4

        def slow(store: Store) -> int:
            for number in range(rounds):
                first = opened(f"slow {id(store)} {number}")
                child = opened("c", parent=Parent(first.run, 1, first.run))
                store.create(first, [stage(0)] * 150, children=[(child, [stage(1)] * 50)])
            return rounds * 202

        with ThreadPoolExecutor(WRITERS + 1) as pool:
            listening = pool.submit(listen)
            written = [pool.submit(quick if at % 2 else slow, store) for at, store in enumerate(stores)]
            wanted = sum(each.result(WAIT_S) for each in written)
            done.set()
            listening.result(WAIT_S)
        numbers = [item.n for item in heard]
        assert numbers == sorted(set(numbers)), "in order, none twice"
        assert len(heard) == wanted, "none missed"

    def test_many_that_make_the_same_run_at_once_get_one(
        self, another: Callable[[], Store], whole: bool
    ) -> None:
        stores = [another() for _ in range(WRITERS)]
        newest = ""
        with ThreadPoolExecutor(WRITERS) as pool:
            for _ in range(20 if whole else 5):
                barrier = threading.Barrier(WRITERS)

                def make(store: Store, barrier: threading.Barrier = barrier, after: str = newest) -> str:
                    first = opened("the same")
                    barrier.wait(WAIT_S)
                    return store.create(first, after=after)

                made = set(pool.map(make, stores))
                assert len(made) == 1
                assert made != {newest}
                newest = made.pop()

    def test_a_payload_that_was_just_put_is_not_swept(
        self, another: Callable[[], Store], rng: random.Random, whole: bool
    ) -> None:
        """It was old when the sweep looked, and young when it deletes."""
        putting, sweeping = another(), another()
        stop = threading.Event()

        def sweep() -> None:
            while not stop.is_set():
                sweeping.blobs.sweep(set(), older_than_s=1.0)

        missing = 0
        with ThreadPoolExecutor(1) as pool:
            swept = pool.submit(sweep)
            try:
                for _ in range(40 if whole else 5):
                    stop.wait(rng.choice([0.0, 1.0, 1.005]))
                    name = putting.blobs.put(b"again" * 1000)
                    try:
                        putting.blobs.get(name)
                    except StoreCorrupt:
                        missing += 1
            finally:
                stop.set()
            swept.result(WAIT_S)
        assert missing == 0
