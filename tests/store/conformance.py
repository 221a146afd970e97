"""The public conformance suite of the Store protocol: a backend is right when all of this passes as it is.

Derive a class named `Test…` and say how a store is opened:

    class TestMine(StoreConformance):
        @pytest.fixture
        def opening(self, tmp_path):
            return lambda: MyStore(tmp_path)

Each call opens the same store once more, as another process would. `script` is the same, as Python text.
"""

import asyncio
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.core import events as ev, state as st
from outlast.core.values import Parent, Payload
from outlast.errors import (
    LeaseLost,
    OutlastError,
    RunExists,
    RunHeld,
    StoreCorrupt,
    UnknownRun,
)
from outlast.store.protocol import Lease, RunFilter, Store
from tests.store.conformance_looks import LooksConformance
from tests.store.conformance_races import RacesConformance
from tests.store.conformance_shelf import ShelfConformance
from tests.store.journal_batches import APPENDING, AT, WAIT_S, appended, batch, opened, stage, stages
from tests.support import processes


class StoreConformance(LooksConformance, RacesConformance, ShelfConformance):
    """What every backend promises. See the module's docstring for how to use it."""

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Callable[[], Store]:
        raise NotImplementedError("say how a store of this backend is opened")

    @pytest.fixture
    def script(self, tmp_path: Path) -> str:
        raise NotImplementedError("the same as a Python expression, for other processes")

    @pytest.fixture
    def another(self, opening: Callable[[], Store]) -> Iterator[Callable[[], Store]]:
        """The same store opened once more, closed at the end of the test."""
        made: list[Store] = []

        def make() -> Store:
            made.append(opening())
            return made[-1]

        yield make
        for store in made:
            store.close()

    @pytest.fixture
    def store(self, another: Callable[[], Store]) -> Store:
        return another()

    @pytest.fixture
    def run(self, store: Store) -> str:
        return store.create(opened())

    @pytest.fixture
    def lease(self, store: Store, run: str) -> Lease:
        return store.claim(run)

    # -- create --------------------------------------------------------------------------------------------------

    def test_a_run_is_made_once_per_identity(self, store: Store) -> None:
        first = opened()
        assert store.create(first) == first.run
        assert store.create(opened()) == first.run
        assert store.create(opened("other")) != first.run
        assert store.create(opened(project="other")) != first.run
        assert len(store.list(RunFilter())) == 3
        assert [item.event for item in store.read(first.run, after=0).events] == [first]

    def test_again_makes_the_next_generation_and_the_newest_has_the_name(self, store: Store) -> None:
        first = store.create(opened())
        second = store.create(opened(), after=first)
        assert store.create(opened(), after=first) == second, "who asks too late gets the one that was made"
        assert first != second
        assert store.create(opened()) == second
        assert [(item.run, item.generation) for item in store.list(RunFilter(task="t"))] == [
            (second, 2),
            (first, 1),
        ]

    def test_a_run_id_is_never_used_twice(self, store: Store) -> None:
        store.create(opened("a", run="same"))
        with pytest.raises(RunExists):
            store.create(opened("b", run="same"))
        assert len(store.list(RunFilter())) == 1

    def test_events_given_at_the_beginning_are_there_and_folded(self, store: Store) -> None:
        first = opened()
        store.create(first, [stage("a"), stage("b")])
        assert stages(store, first.run) == ["a", "b"]
        assert (store.list(RunFilter())[0].state.stage, store.list(RunFilter())[0].state.seq) == ("b", 3)

    def test_children_belong_to_their_parents_beat_and_its_root(self, store: Store, run: str) -> None:
        child = store.create(opened("c", parent=Parent(run, 1, run)))
        grandchild = store.create(opened("g", parent=Parent(child, 4, run)))
        assert store.create(opened("c", parent=Parent(run, 1, run))) == child
        assert store.create(opened("c", parent=Parent(run, 2, run))) != child
        found = {item.run: item for item in store.list(RunFilter())}
        assert (found[child].parent, found[child].parent_beat, found[child].root) == (run, 1, run)
        assert (found[grandchild].parent, found[grandchild].root) == (child, run)
        assert found[run].root == run
        assert [item.run for item in store.list(RunFilter(parent=run, parent_beat=1))] == [child]
        assert [item.run for item in store.list(RunFilter(parent=""))] == [run]

    def test_runs_are_found_by_the_run_that_they_were_last_started_in(self, store: Store, run: str) -> None:
        at = opened().at

        def started(*places: str) -> str:
            starts = [ev.AttemptStarted(at=at, epoch=1, within=place) for place in places]
            return store.create(opened(f"started in {places}"), starts)

        inside, back = started(run), started("", run)
        started("elsewhere")
        started(run, "")
        found = [item.run for item in store.list(RunFilter(within=run))]
        assert found == [back, inside]
        assert store.list(RunFilter(within="nowhere")) == []

    def test_two_starts_at_once_make_one_run(self, another: Callable[[], Store]) -> None:
        stores = [another() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(lambda store: store.create(opened()), stores))
        assert len(set(runs)) == 1

    # -- append --------------------------------------------------------------------------------------------------

    def test_events_are_read_back_in_order_and_by_others(
        self, store: Store, run: str, lease: Lease, another: Callable[[], Store]
    ) -> None:
        for number in range(10):
            store.append(batch(lease, run, 1 + 2 * number, stage(f"{number}a"), stage(f"{number}b")))
        for reader in (store, another()):
            items = reader.read(run, after=0).events
            assert [item.seq for item in items] == list(range(1, 22))
            assert {item.run for item in items} == {run}
            assert stages(reader, run) == [f"{number}{half}" for number in range(10) for half in "ab"]

    @pytest.mark.parametrize("after", [0, 2, 7, -1])
    def test_an_unexpected_number_is_refused_and_nothing_is_written(
        self, store: Store, run: str, lease: Lease, after: int
    ) -> None:
        with pytest.raises(LeaseLost):
            store.append(batch(lease, run, after, stage("x"), stage("y")))
        assert stages(store, run) == []
        store.append(batch(lease, run, 1, stage("right")))
        assert stages(store, run) == ["right"]

    def test_a_stale_epoch_is_refused_and_nothing_is_written_or_taken(self, store: Store, run: str) -> None:
        old = store.claim(run)
        store.release(old)
        new = store.claim(run)
        request = store.inbox.put(run, by="ada", what="pause")
        head = st.fold(st.RunState(), [store.read(run, after=0).events[0].event, stage("zombie")])
        with pytest.raises(LeaseLost):
            store.append(batch(old, run, 1, stage("zombie"), takes=(request,), head=head))
        assert stages(store, run) == []
        assert [item.id for item in store.inbox.pending(run)] == [request]
        assert store.list(RunFilter())[0].state.stage == ""
        store.append(batch(new, run, 1, stage("new")))

    def test_a_released_lease_writes_nothing_more(self, store: Store, run: str, lease: Lease) -> None:
        store.append(batch(lease, run, 1, stage("in time")))
        store.release(lease)
        with pytest.raises(OutlastError):
            store.append(batch(lease, run, 2, stage("late")))
        assert stages(store, run) == ["in time"]

    def test_a_released_lease_touches_nobody_elses_files(
        self, store: Store, run: str, lease: Lease, tmp_path: Path
    ) -> None:
        """Its descriptors are closed; the numbers belong to whoever opens the next files."""
        store.release(lease)
        files = [(tmp_path / f"mine {number}").open("w+b", buffering=0) for number in range(8)]
        try:
            for file in files:
                file.write(b"precious")
            for again in (
                lambda: store.append(batch(lease, run, 1, stage("late"))),
                lambda: store.release(lease),
            ):
                try:
                    again()
                except (OutlastError, OSError, ValueError):
                    pass
            for file in files:
                file.seek(0)
                assert file.read() == b"precious"
        finally:
            for file in files:
                try:
                    file.close()
                except OSError:
                    pass

    def test_a_child_is_written_under_its_roots_lease_and_falls_with_it(self, store: Store, run: str) -> None:
        child = store.create(opened("c", parent=Parent(run, 1, run)))
        old = store.claim(run)
        store.append(batch(old, child, 1, stage("by the root")))
        store.release(old)
        store.claim(run)
        with pytest.raises(LeaseLost):
            store.append(batch(old, child, 2, stage("zombie")))
        assert stages(store, child) == ["by the root"]

    def test_requests_are_taken_in_the_same_commit(
        self, store: Store, run: str, lease: Lease, another: Callable[[], Store]
    ) -> None:
        first, second, third = (store.inbox.put(run, by="ada", what=what) for what in ("a", "b", "c"))
        store.append(batch(lease, run, 1, stage("x"), takes=(first, third)))
        assert [item.id for item in another().inbox.pending(run)] == [second]

    def test_a_stored_head_is_where_reading_begins(self, store: Store, run: str, lease: Lease) -> None:
        events = [item.event for item in store.read(run, after=0).events]
        head = st.fold(st.RunState(), [*events, stage("a")])
        store.append(batch(lease, run, 1, stage("a"), head=head))
        store.append(batch(lease, run, 2, stage("b")))
        history = store.read(run)
        assert history.state == head
        assert [item.seq for item in history.events] == [3]
        assert store.list(RunFilter())[0].state.stage == "b"

    def test_a_batch_that_fails_leaves_its_neighbours_and_the_store_whole(
        self, store: Store, run: str, lease: Lease, another: Callable[[], Store]
    ) -> None:
        """A head beyond its limit is a broken invariant of ours; what is acknowledged after it is durable still."""
        swollen = msgspec.structs.replace(st.RunState(run=run), stage="x" * 100_000)
        with pytest.raises((OutlastError, AssertionError)):
            store.append(batch(lease, run, 1, stage("swollen"), head=swollen))
        store.append(batch(lease, run, 1, stage("kept")))
        assert stages(another(), run) == ["kept"]

    def test_an_unknown_run_fails_its_own_batch_only(
        self, store: Store, run: str, lease: Lease, another: Callable[[], Store]
    ) -> None:
        """Sent together, from one thread, so that they share a commit."""
        answers: dict[str, Any] = {}
        woken = threading.Semaphore(0)

        def send(name: str, target: str, after: int, event: ev.AnyEvent) -> None:
            def wake(error: Exception | None, *_rest: object) -> None:
                answers[name] = error
                woken.release()

            store.append(batch(lease, target, after, event), wake)

        for number in range(20):
            answers.clear()
            send("good", run, 1 + 2 * number, stage(2 * number))
            send("bad", "nowhere", 1, stage("x"))
            send("also good", run, 2 + 2 * number, stage(2 * number + 1))
            assert all(woken.acquire(timeout=WAIT_S) for _ in range(3))
            assert isinstance(answers["bad"], OutlastError)
            assert (answers["good"], answers["also good"]) == (None, None)
        assert stages(another(), run) == [str(number) for number in range(40)]

    # -- group commit --------------------------------------------------------------------------------------------

    def test_threads_append_to_their_runs_at_once(self, store: Store, another: Callable[[], Store]) -> None:
        with ThreadPoolExecutor(16) as pool:
            runs = list(pool.map(lambda number: appended(store, f"t{number}", 20), range(16)))
        for run in runs:
            assert stages(another(), run) == [str(number) for number in range(20)]

    def test_event_loops_append_without_waiting_and_are_told(
        self, store: Store, another: Callable[[], Store]
    ) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(16)]
        leases = [store.claim(run) for run in runs]

        async def work(run: str, lease: Lease) -> None:
            loop = asyncio.get_running_loop()
            for number in range(10):
                future: asyncio.Future[Exception | None] = loop.create_future()

                def wake(error: Exception | None, *_rest: object, future: Any = future) -> None:
                    loop.call_soon_threadsafe(future.set_result, error)

                store.append(batch(lease, run, number + 1, stage(number)), wake)
                assert await asyncio.wait_for(future, WAIT_S) is None
                assert stages(store, run)[-1] == str(number)

        async def main() -> None:
            await asyncio.gather(*(work(run, lease) for run, lease in zip(runs, leases, strict=True)))

        asyncio.run(main())
        for run in runs:
            assert len(stages(another(), run)) == 10

    def test_a_stale_one_in_a_group_fails_alone(self, store: Store) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(8)]
        stale = {run: store.claim(run) for run in runs[:4]}
        for lease in stale.values():
            store.release(lease)
        leases = stale | {run: store.claim(run) for run in runs[4:]}
        for run in runs[:4]:
            store.claim(run)
        ended: dict[str, Any] = {}
        woken = threading.Semaphore(0)
        for run in runs:

            def wake(error: Exception | None, *_rest: object, run: str = run) -> None:
                ended[run] = error
                woken.release()

            store.append(batch(leases[run], run, 1, stage("x")), wake)
        assert all(woken.acquire(timeout=WAIT_S) for _ in runs)
        assert [type(ended[run]) for run in runs] == [LeaseLost] * 4 + [type(None)] * 4
        assert [len(stages(store, run)) for run in runs] == [0] * 4 + [1] * 4

    def test_two_processes_append_to_different_runs_at_once(
        self, store: Store, script: str, tmp_path: Path
    ) -> None:
        command = [processes.python_command(APPENDING, script, task, "50") for task in ("a", "b")]
        started = [
            subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=processes.clean_environment()
            )
            for arguments in command
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in started:
            process.communicate(b"go\n", timeout=60)
            assert process.returncode == 0
        for task in ("a", "b"):
            run = store.list(RunFilter(task=task))[0].run
            assert stages(store, run) == [str(number) for number in range(50)]

    # -- leases --------------------------------------------------------------------------------------------------

    def test_each_claim_has_a_later_epoch(self, store: Store, run: str) -> None:
        epochs = []
        for _ in range(3):
            lease = store.claim(run)
            epochs.append(lease.epoch)
            assert (lease.run, lease.holder.pid > 0) == (run, True)
            store.release(lease)
        assert epochs == sorted(set(epochs))
        assert store.list(RunFilter())[0].epoch == epochs[-1]

    def test_a_held_run_is_not_claimed_by_anybody_else(
        self, store: Store, run: str, lease: Lease, another: Callable[[], Store]
    ) -> None:
        for other in (store, another()):
            with pytest.raises(RunHeld, match=f"held by pid {lease.holder.pid} on {lease.holder.host}"):
                other.claim(run)
        store.append(batch(lease, run, 1, stage("still mine")))

    def test_a_lease_that_was_overtaken_is_lost_when_renewed_and_one_that_was_not_is_kept(
        self, store: Store, run: str
    ) -> None:
        kept = store.claim(store.create(opened("kept")))
        old = store.claim(run)
        store.release(old)
        new = store.claim(run)
        lost = store.renew([old, new, kept])
        assert list(lost) == [run]
        assert store.renew([new, kept]) == {}

    def test_a_valid_lease_guards_an_act(self, lease: Lease) -> None:
        with lease.guard(), lease.guard():
            pass

    def test_of_many_claims_at_once_one_wins(self, run: str, another: Callable[[], Store]) -> None:
        stores = [another() for _ in range(6)]

        def claim(store: Store) -> Lease | None:
            try:
                return store.claim(run)
            except RunHeld:
                return None

        with ThreadPoolExecutor(6) as pool:
            leases = [lease for lease in pool.map(claim, stores) if lease]
        assert len(leases) == 1

    def test_closing_a_store_lets_its_runs_go(self, run: str, another: Callable[[], Store]) -> None:
        holder = another()
        holder.claim(run)
        holder.close()
        another().claim(run)

    # -- inbox ---------------------------------------------------------------------------------------------------

    def test_requests_wait_in_order_with_who_asked(
        self, store: Store, run: str, another: Callable[[], Store]
    ) -> None:
        other = store.create(opened("other"))
        ids = [
            another().inbox.put(run, by=f"u{number}", what="w", args=b'{"n":%d}' % number)
            for number in range(3)
        ]
        store.inbox.put(other, by="x", what="y")
        pending = store.inbox.pending(run)
        assert [item.id for item in pending] == ids == sorted(ids)
        assert [(item.by, item.what, item.args, item.run) for item in pending] == [
            (f"u{number}", "w", b'{"n":%d}' % number, run) for number in range(3)
        ]
        assert all(item.at.tzinfo is not None for item in pending)
        assert store.inbox.all_pending() == sorted(
            [*pending, *store.inbox.pending(other)], key=lambda each: each.id
        )

    def test_a_request_needs_no_lease_and_reaches_a_held_run(
        self, store: Store, run: str, lease: Lease
    ) -> None:
        store.inbox.put(run, by="ada", what="pause")
        assert len(store.inbox.pending(run)) == 1
        store.append(batch(lease, run, 1, stage("x")))
        assert len(store.inbox.pending(run)) == 1

    # -- blobs ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 4097, 5_000_000])
    def test_blobs_come_back_and_have_one_name(
        self, store: Store, another: Callable[[], Store], size: int
    ) -> None:
        data = random.Random(size).randbytes(size)
        name = store.blobs.put(data)
        assert another().blobs.put(data) == name
        assert another().blobs.get(name) == data

    def test_a_missing_blob_is_said_to_be_missing(self, store: Store) -> None:
        for name in ("0" * 64, "../../etc/passwd", "", "0" * 63 + "G"):
            with pytest.raises(StoreCorrupt):
                store.blobs.get(name)

    def test_a_sweep_spares_the_named_and_the_young(self, store: Store) -> None:
        kept, swept = store.blobs.put(b"kept" * 2000), store.blobs.put(b"swept" * 2000)
        assert store.blobs.sweep({kept}, older_than_s=3600) == 0
        assert store.blobs.get(swept)
        assert store.blobs.sweep({kept}, older_than_s=-1) == 1
        assert store.blobs.get(kept) == b"kept" * 2000
        with pytest.raises(StoreCorrupt):
            store.blobs.get(swept)
        assert store.blobs.put(b"swept" * 2000) == swept
        assert store.blobs.get(swept) == b"swept" * 2000

    def test_blobs_are_put_and_swept_by_many_at_once(self, store: Store) -> None:
        def work(number: int) -> None:
            for turn in range(20):
                if number == 0:
                    store.blobs.sweep(set(), older_than_s=3600)
                else:
                    name = store.blobs.put(b"%d" % (turn % 5) * 5000)
                    assert len(store.blobs.get(name)) == 5000

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    # -- forget --------------------------------------------------------------------------------------------------

    def test_a_forgotten_run_is_gone_with_its_children_and_nothing_else(self, store: Store, run: str) -> None:
        child = store.create(opened("c", parent=Parent(run, 1, run)))
        kept = store.create(opened("kept"))
        store.inbox.put(run, by="ada", what="pause")
        for known in (run, child, kept):
            store.read(known)
        store.forget(run)
        for gone in (run, child):
            with pytest.raises(UnknownRun):
                store.read(gone)
        assert [item.run for item in store.list(RunFilter())] == [kept]
        fresh = store.create(opened())
        assert fresh != run
        assert [item.seq for item in store.read(fresh, after=0).events] == [1]
        assert store.inbox.pending(fresh) == []

    def test_a_run_forgotten_by_another_is_not_taken_for_the_next_one(
        self, store: Store, another: Callable[[], Store]
    ) -> None:
        """A long-lived reader must not show a new run's events under the old one's name."""
        gone = store.create(opened("old"))
        assert stages(store, gone) == []
        other = another()
        other.forget(gone)
        new = other.create(opened("new"))
        lease = other.claim(new)
        other.append(batch(lease, new, 1, stage("of the new one")))
        try:
            found = stages(store, gone)
        except UnknownRun:
            found = []
        assert found == []

    def test_numbers_are_not_used_again_after_a_run_is_forgotten(self, store: Store) -> None:
        store.create(opened("a"))
        last = store.create(opened("b"))
        before = store.subscribe(0, wait_s=0)[-1].n
        store.forget(last)
        store.create(opened("c"))
        fresh = store.subscribe(before, wait_s=0)
        assert [item.event.task for item in fresh if isinstance(item.event, ev.RunOpened)] == ["c"]

    # -- the end -------------------------------------------------------------------------------------------------

    def test_after_closing_nothing_is_written_and_nobody_hangs(
        self, run: str, another: Callable[[], Store], opening: Callable[[], Store]
    ) -> None:
        closed = opening()
        lease = closed.claim(run)
        closed.append(batch(lease, run, 1, stage("x")))
        closed.close()
        with pytest.raises(OutlastError):
            closed.append(batch(lease, run, 2, stage("y")))
        answers: list[Any] = []
        told = threading.Event()

        def wake(error: Exception | None, *_rest: object) -> None:
            answers.append(error)
            told.set()

        try:
            closed.append(batch(lease, run, 2, stage("z")), wake)
        except OutlastError:
            told.set()
        assert told.wait(WAIT_S), "an event loop would wait for ever"
        assert all(isinstance(answer, OutlastError) for answer in answers)
        closed.close()
        assert stages(another(), run) == ["x"]

    def test_large_events_and_any_text_come_back(self, store: Store, run: str, lease: Lease) -> None:
        event = ev.Decided(
            at=AT,
            beat=1,
            name="ä\x00🧪\u2028",
            occurrence=1,
            value=Payload(v=msgspec.Raw(b'"' + b"x" * 100_000 + b'"')),
        )
        store.append(batch(lease, run, 1, event))
        back = store.read(run, after=1).events[0].event
        assert isinstance(back, ev.Decided)
        assert (back.name, bytes(back.value.v)) == (event.name, bytes(event.value.v))
