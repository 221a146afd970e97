"""Power cuts: what was acknowledged is there afterwards, in order and without gaps; what was not may be there or not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast import faults
from outlast.core import events as ev
from outlast.store.protocol import Batch, RunFilter
from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld
from tests.store.store_on_vfs import open_on
from tests.support import loopdisk, processes
from tests.support.environment import skip_or_fail
from tests.support.inprocess import reading
from tests.support.loopdisk import LoopDisk
from tests.support.powercut_vfs import HOWS, PowerCutVFS

# -- the store on a modelled disk: a cut at every operation of SQLite's --------------------------------------------


@dataclass
class Acknowledged:
    """What the store has told its user so far."""

    created: bool = False
    events: int = 0


def work(folder: Path, vfs: str, told: Acknowledged, *, appends: int, chars: int) -> None:
    """Make a run and append to it: single events and batches, with and without a head."""
    store = open_on(folder, vfs)
    at = datetime.now(UTC)
    run = store.create(ev.RunOpened(at=at, run="therun", task="t", project="p", contract=ev.Contract()))
    told.created, told.events = True, 1
    lease = store.claim(run)
    for n in range(appends):
        size = 3 if n % 4 == 0 else 1
        events = tuple(ev.StageSet(at=at, stage=f"{told.events + k + 1} {'x' * chars}") for k in range(size))
        store.append(Batch(lease, run, told.events, events))
        told.events += size
    store.release(lease)
    store.close()


def check_copy(copy: Path, told: Acknowledged, where: str) -> None:
    """The cut copy opens, has all that was acknowledged, and can be written."""
    with reading(copy) as store:
        runs = store.list(RunFilter())
        assert len(runs) >= told.created, where
        if not runs:
            return
        found = store.read("therun", after=0).events
        assert [item.seq for item in found] == list(range(1, len(found) + 1)), where
        stages = [item.event.stage.split()[0] for item in found[1:] if isinstance(item.event, ev.StageSet)]
        assert stages == [str(n) for n in range(2, len(found) + 1)], where
        assert len(found) >= told.events, f"{where}: {told.events} were acknowledged, {len(found)} are there"
        lease = store.claim("therun")
        store.append(Batch(lease, "therun", len(found), (ev.StageSet(at=datetime.now(UTC), stage="on"),)))
        store.release(lease)


def cut_everywhere(
    tmp_path: Path, rng: random.Random, *, appends: int, chars: int, share: float = 1.0
) -> tuple[int, int]:
    """Cut before every operation (or a share of them) in every way; operations and cuts."""
    told = Acknowledged()
    cuts = 0
    folder = tmp_path / "disk"
    folder.mkdir()
    with PowerCutVFS("cut", folder) as vfs:

        def before(op: int) -> None:
            nonlocal cuts
            for how in HOWS:
                if rng.random() < share:
                    copy = vfs.cut(tmp_path / "copy", how, seed=rng.randrange(2**32))
                    check_copy(copy, told, f"cut before operation {op}, {how}")
                    shutil.rmtree(copy)
                    cuts += 1

        vfs.before_op = before
        work(folder, "cut", told, appends=appends, chars=chars)
        vfs.before_op = None
        for how in HOWS:
            check_copy(vfs.cut(tmp_path / f"end-{how}", how), told, f"cut at the end, {how}")
        return vfs.ops, cuts


def test_cut_at_any_operation_every_acknowledged_append_is_there(
    tmp_path: Path, rng: random.Random, whole: bool
) -> None:
    """Also the operations that make the database: there a cut leaves a store that can be opened."""
    ops, cuts = cut_everywhere(tmp_path, rng, appends=10, chars=10, share=1.0 if whole else 0.2)
    assert ops > 60
    assert cuts == ops * len(HOWS) or not whole


def test_cut_in_a_checkpoint_every_acknowledged_append_is_there(
    tmp_path: Path, rng: random.Random, whole: bool
) -> None:
    """Enough is written that SQLite moves the log into the main file in between."""
    ops, _ = cut_everywhere(tmp_path, rng, appends=450, chars=3_500, share=0.01 if whole else 0.002)
    assert ops > 2_000
    assert (tmp_path / "disk/outlast.db").stat().st_size > 1_000_000


# -- a whole run on a real file system -----------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[LoopDisk]:
    reason = loopdisk.available()
    if reason is not None:
        skip_or_fail(reason)
    with LoopDisk() as disk:
        yield disk


def acknowledged(world: CrashWorld) -> list[tuple[str, ...]]:
    return world.noted("ack")


def check_acknowledged(world: CrashWorld, acks: list[tuple[str, ...]]) -> None:
    """Everything the agent was told to be durable is in the journal, its blobs included."""
    runs = [run for name, run in world.journal().items() if name.startswith("1411")]
    root = runs[0] if runs else {"beats": [], "decided": {}, "effects": {}}  # cut before there was a run
    done = {(str(beat), step) for beat, step, *_ in root["beats"]}
    decided = {(str(beat), name) for beat, name, _ in root["decided"]}
    confirmed = {(str(beat), e[0]) for (beat, _), e in root["effects"].items() if e[3] == "confirmed"}
    known = {"done": done, "decided": decided, "acted": confirmed}
    missing = [ack for ack in acks if (ack[1], ack[2]) not in known[ack[0]]]
    assert missing == [], f"lost by the cut: {missing}\n{world.story}"


def check_resumes(world: CrashWorld, disk: LoopDisk, cut: Path, name: str, script: str) -> None:
    """After a cut the run ends as if nothing had been, on the copy of the disk and with the world as it was."""
    acks = acknowledged(world)
    with world.after_cut(world.folder / name, cut / "state") as copy:
        check_acknowledged(copy, acks)
        then = copy.recorded()
        copy.run_to_end(script=script)
        copy.check_nothing_repeated(then)
        copy.check_effects()
    disk.forget(cut)


@pytest.mark.root
def test_cut_after_each_acknowledgement_what_was_acknowledged_is_there(
    make_world: MakeWorld, disk: LoopDisk
) -> None:
    world = make_world(store=disk.mount / "state")
    child = world.start(script="short", stop_at_acks=True)
    for n in range(1, 50):
        processes.wait_for(lambda: child.ended or processes.state(child.pid) == "T", what="the agent")
        if child.ended:
            break
        check_resumes(world, disk, disk.cut(), f"cut-{n}", "short")
        child.go_on()
        processes.wait_for(
            lambda n=n: child.ended or len(acknowledged(world)) > n, what="the next acknowledgement"
        )
    assert child.wait() == 0, world.story
    assert len(acknowledged(world)) == 8


@pytest.mark.root
def test_cut_at_any_crash_point_what_was_acknowledged_is_there(
    make_world: MakeWorld, disk: LoopDisk, rng: random.Random
) -> None:
    """One run, stopped at a sample of its crash points; at each the power fails and another run takes its place."""
    with make_world("count") as world:
        assert world.run(script="short") == 0
        total = len(world.noted("point"))
    chosen = sorted(rng.sample(range(1, total + 1), 12))
    world = make_world("cut", store=disk.mount / "state")
    child = world.start(script="short", blows=tuple(Blow(nth, signal="STOP") for nth in chosen))
    for n, _ in enumerate(chosen, 1):
        processes.wait_for(lambda n=n: child.ended or len(world.noted("blow")) == n, what="the next stop")
        child.wait_stopped(lambda: world.story)
        check_resumes(world, disk, disk.cut(), f"cut-{n}", "short")
        child.go_on()
    assert child.wait() == 0, world.story


def test_the_points_of_a_short_run_cover_blobs_probes_and_beats(world: CrashWorld) -> None:
    """So that the cuts above happen in all of them."""
    assert world.run(script="short") == 0
    met = {name for (name,) in world.noted("point")}
    assert met >= {"blob.before_rename", "blob.written", "act.intended", "act.confirmed", "beat.done"}
    assert met <= set(faults.POINTS)
