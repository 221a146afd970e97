"""The part of the conformance suite about looking: lists, pages, summaries, changes, subscriptions."""

import itertools
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outlast.core import events as ev
from outlast.core.values import NOTHING
from outlast.errors import (
    UnknownRun,
)
from outlast.store.protocol import Lease, RunFilter, Store
from tests.store.journal_batches import APPENDING, AT, WAIT_S, batch, opened, stage
from tests.support import processes


class LooksConformance:
    """What every backend shows of its runs; `StoreConformance` has the fixtures."""

    # -- list ----------------------------------------------------------------------------------------------------

    def test_runs_are_listed_newest_first_and_paged(self, store: Store, rng: random.Random) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(25)]
        assert [item.run for item in store.list(RunFilter())] == runs[::-1]
        size, after, seen = rng.randint(1, 7), 0, []
        while page := store.list(RunFilter(), after=after, limit=size):
            assert len(page) <= size
            seen += [item.run for item in page]
            after = page[-1].id
        assert seen == runs[::-1], f"pages of {size}"

    def test_runs_are_filtered(self, store: Store) -> None:
        a = store.create(opened("a", project="p", run="abcx"))
        b = store.create(opened("b", project="p", run="abdx"))
        c = store.create(opened("a", project="q", run="xyzx"))
        assert [item.run for item in store.list(RunFilter(task="a"))] == [c, a]
        assert [item.run for item in store.list(RunFilter(project="p"))] == [b, a]
        assert [item.run for item in store.list(RunFilter(project="p", task="a"))] == [a]
        assert [item.run for item in store.list(RunFilter(run_prefix="ab"))] == [b, a]
        assert [item.run for item in store.list(RunFilter(run_prefix="abd"))] == [b]
        for nothing in ("b", "ab*", "a?c", "[a]", "%", "_"):
            assert store.list(RunFilter(run_prefix=nothing)) == []

    def test_runs_are_filtered_by_status_also_across_pages(self, store: Store) -> None:
        """A full page of runs that do not fit is not the end."""
        wanted = []
        for number in range(12):
            first = opened(f"t{number}")
            ended = ev.Finished(at=AT)
            store.create(first, [ended] if number % 4 == 0 else [])
            wanted += [first.run] if number % 4 == 0 else []
        assert [item.run for item in store.list(RunFilter(statuses=("done",)))] == wanted[::-1]
        assert len(store.list(RunFilter(open_only=True))) == 9
        assert [item.run for item in store.list(RunFilter(statuses=("done",)), limit=1)] == wanted[-1:]
        assert len(store.list(RunFilter(open_only=True), limit=9)) == 9

    def test_a_summary_is_folded_to_the_last_event(self, store: Store, run: str, lease: Lease) -> None:
        store.append(batch(lease, run, 1, stage("late")))
        summary = store.list(RunFilter())[0]
        assert (summary.state.stage, summary.state.seq) == ("late", 2)
        assert (summary.task, summary.project, summary.generation) == ("t", "p", 1)
        assert summary.holder is not None
        assert summary.holder.pid == lease.holder.pid

    # -- read ----------------------------------------------------------------------------------------------------

    def test_events_are_read_in_pages_by_tag_and_by_own_key(
        self, store: Store, run: str, lease: Lease
    ) -> None:
        events: list[ev.AnyEvent] = []
        for number in range(30):
            events += [
                stage(number),
                ev.BeatDone(at=AT, beat=number + 1),
                ev.EffectIntended(
                    at=AT,
                    beat=1,
                    n=number,
                    name="n",
                    occurrence=1,
                    key=f"k{number % 3}",
                    own_key=number % 2 == 0,
                ),
            ]
        store.append(batch(lease, run, 1, *events))
        after, seen = 0, []
        while page := store.read(run, after=after, limit=7).events:
            seen += [item.event for item in page]
            after = page[-1].seq
        assert seen[1:] == events
        intents = [item.event for item in store.read(run, after=0, tags=("effect_intended",)).events]
        assert intents == events[2::3]
        both = store.read(run, after=0, tags=("effect_intended", "stage_set")).events
        assert [item.event for item in both] == [
            event for event in events if not isinstance(event, ev.BeatDone)
        ]
        assert [item.seq for item in both] == sorted(item.seq for item in both)
        own = [item.event for item in store.read(run, after=0, key="k1").events]
        assert own == [event for event in intents if event.own_key and event.key == "k1"]
        assert store.read(run, after=0, key="unknown").events == []
        assert [item.seq for item in store.read(run, after=88, limit=2).events] == [89, 90]

    def test_an_unknown_run_is_said_to_be_unknown(self, store: Store) -> None:
        for call in (
            lambda: store.read("nowhere"),
            lambda: store.claim("nowhere"),
            lambda: store.forget("nowhere"),
            lambda: store.inbox.put("nowhere", by="ada", what="pause"),
            lambda: store.inbox.pending("nowhere"),
        ):
            with pytest.raises(UnknownRun):
                call()

    # -- looking on ----------------------------------------------------------------------------------------------

    def test_runs_are_listed_by_their_names_however_many(self, store: Store) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(30)]
        assert [item.run for item in store.list(RunFilter(runs=tuple(runs[3:7])))] == runs[3:7][::-1]
        many = (*(f"nobody{number}" for number in range(12_000)), runs[5])
        assert [item.run for item in store.list(RunFilter(runs=many))] == [runs[5]]

    def test_many_summaries_are_folded_to_their_last_events_together(
        self, store: Store, rng: random.Random
    ) -> None:
        wanted = {}
        for number in range(20):
            run, count = store.create(opened(f"t{number}")), rng.randint(0, 9)
            lease = store.claim(run)
            for at in range(count):
                store.append(batch(lease, run, at + 1, stage(at)))
            wanted[run] = (count + 1, str(count - 1) if count else "")
        assert {item.run: (item.state.seq, item.state.stage) for item in store.list(RunFilter())} == wanted

    def test_changes_name_the_runs_with_new_events_and_no_others(self, store: Store) -> None:
        assert (store.last_number(), store.changes(0).runs) == (0, ())
        runs = [store.create(opened(f"t{number}")) for number in range(5)]
        number = store.last_number()
        assert number == store.subscribe(0, wait_s=0)[-1].n
        assert store.changes(number).runs == ()
        lease = store.claim(runs[2])
        store.append(batch(lease, runs[2], 1, stage("a"), stage("b")))
        fresh = store.create(opened("fresh"))
        found = store.changes(number)
        assert (found.number, set(found.runs), found.anew) == (
            store.last_number(),
            {runs[2], fresh},
            False,
        )

    def test_after_a_run_was_forgotten_all_is_to_be_read_anew(self, store: Store, run: str) -> None:
        other = store.create(opened("other"))
        number = store.last_number()
        store.forget(run)
        assert store.changes(number).anew
        number = store.last_number()
        assert not store.changes(number).anew
        store.append(batch(store.claim(other), other, 1, stage("a")))
        assert not store.changes(number).anew

    @pytest.mark.parametrize("beats", [0, 1, 2, 9, 10, 11, 300])
    def test_beats_are_sampled_evenly_with_the_first_and_the_last(
        self, store: Store, beats: int, rng: random.Random
    ) -> None:
        journal: list[ev.AnyEvent] = []
        for beat in range(1, beats + 1):
            journal += [stage("x")] * rng.randint(0, 3)
            extended = (ev.Extension(NOTHING, added=1),) if rng.random() < 0.2 else ()
            journal.append(ev.BeatDone(at=AT, beat=beat, step="s", cursor=(beat,), extended=extended))
        run = store.create(opened("sampled"), [*journal, *([stage("end")] * 50)])
        found = [
            item.event.beat for item in store.beat_end_sample(run, 10) if isinstance(item.event, ev.BeatDone)
        ]
        if beats <= 10:
            assert found == list(range(1, beats + 1))
        else:
            assert (found[0], found[-1]) == (1, beats)
            assert found == sorted(set(found))
            assert 5 <= len(found) <= 10
        if beats == 300:
            gaps = [later - earlier for earlier, later in itertools.pairwise(found)]
            assert max(gaps) < 3 * beats / 10, f"gaps {gaps}"

    def test_the_ends_of_beats_are_read_from_any_place_newest_first(
        self, store: Store, rng: random.Random
    ) -> None:
        journal: list[ev.AnyEvent] = []
        for beat in range(1, 30):
            journal += [stage("x")] * rng.randint(0, 3)
            extended = (ev.Extension(NOTHING, added=1),) if rng.random() < 0.2 else ()
            journal.append(ev.BeatDone(at=AT, beat=beat, step="s", cursor=(beat,), extended=extended))
        run = store.create(opened("ends"), journal)
        wanted = [item for item in store.read(run, after=0).events if isinstance(item.event, ev.BeatDone)]
        found: list[Any] = []
        before = 0
        while page := store.beat_ends(run, before=before, limit=7):
            found += page
            before = page[-1].seq
        assert found == wanted[::-1]

    def test_events_are_counted_by_kind_and_read_between_two_of_them(
        self, store: Store, rng: random.Random
    ) -> None:
        kinds: list[ev.AnyEvent] = [stage("x"), ev.Warned(at=AT, level="50"), ev.Woken(at=AT)]
        journal = [rng.choice(kinds) for _ in range(60)]
        run = store.create(opened("kinds"), journal)
        wanted = {"run_opened": 1} | {ev.tag_of(kind): journal.count(kind) for kind in kinds}
        assert store.event_counts(run) == {kind: count for kind, count in wanted.items() if count}
        everything = store.read(run, after=0).events
        for _ in range(20):
            after, before = sorted(rng.sample(range(1, 62), 2))
            limit, newest = rng.randint(1, 70), rng.random() < 0.5
            tags = tuple(ev.tag_of(kind) for kind in rng.sample(kinds, rng.randint(0, 3)))
            fits = [
                item
                for item in everything
                if after < item.seq < before and (not tags or ev.tag_of(item.event) in tags)
            ]
            found = store.read(run, after=after, before=before, limit=limit, tags=tags, newest=newest).events
            assert found == (fits[-limit:] if newest else fits[:limit]), (after, before, limit, tags, newest)

    def test_events_of_a_kind_are_read_across_all_runs_newest_first(
        self, store: Store, rng: random.Random
    ) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(6)]
        leases, seqs = {run: store.claim(run) for run in runs}, dict.fromkeys(runs, 1)
        for _ in range(40):
            run = rng.choice(runs)
            event = rng.choice([stage("x"), ev.Warned(at=AT, level="50"), ev.Woken(at=AT)])
            store.append(batch(leases[run], run, seqs[run], event))
            seqs[run] += 1
        everything = [
            item for item in store.subscribe(0, wait_s=0) if isinstance(item.event, (ev.Warned, ev.Woken))
        ]
        found: list[Any] = []
        before = 0
        while page := store.events_of_kinds(("warned", "woken"), before=before, limit=7):
            found += page
            before = page[-1].n
        assert found == everything[::-1]

    # -- subscribe -----------------------------------------------------------------------------------------------

    def test_a_subscriber_catches_up_exactly_by_number(self, store: Store, rng: random.Random) -> None:
        runs = [store.create(opened(f"t{number}")) for number in range(3)]
        leases = [store.claim(run) for run in runs]
        seqs = [1, 1, 1]
        for _ in range(30):
            which = rng.randrange(3)
            store.append(batch(leases[which], runs[which], seqs[which], stage(seqs[which])))
            seqs[which] += 1
        seen: list[Any] = []
        after = 0
        while page := store.subscribe(after, wait_s=0, limit=rng.randint(1, 9)):
            assert all(item.n > after for item in page)
            seen += page
            after = page[-1].n
        assert len(seen) == 33
        assert [item.n for item in seen] == sorted({item.n for item in seen})
        for run, seq in zip(runs, seqs, strict=True):
            assert [item.seq for item in seen if item.run == run] == list(range(1, seq + 1))
        middle = seen[16].n
        assert [item.n for item in store.subscribe(middle, wait_s=0)] == [item.n for item in seen[17:]]

    def test_a_subscriber_is_woken_by_another_process(self, store: Store, script: str) -> None:
        arguments = processes.python_command(APPENDING, script, "far", "3")
        with subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=processes.clean_environment()
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(store.subscribe, 0, wait_s=WAIT_S)
                process.communicate(b"go\n", timeout=60)
                assert waiting.result(WAIT_S)
        after, seen = 0, []
        while len(seen) < 4:
            page = store.subscribe(after, wait_s=WAIT_S)
            assert page
            seen += [item.seq for item in page]
            after = page[-1].n
        assert seen == [1, 2, 3, 4]

    def test_a_subscriber_with_nothing_to_hear_gets_nothing(self, store: Store, run: str) -> None:
        assert list(store.subscribe(store.last_number(), wait_s=0)) == []
        assert list(store.subscribe(store.last_number(), wait_s=0.1)) == []
