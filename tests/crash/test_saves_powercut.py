"""Power cuts and saves: one that returned is there afterwards, whole; a cut during a save leaves the one before.

Folder, repository and state folder lie on one loop-mounted ext4 image; the agent's own gits flush nothing.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import save_worker
from tests.crash.save_control import Judge, Worker, neighbour_flushes
from tests.crash.save_worker import KINDS, SOURCES, Job
from tests.support import loopdisk
from tests.support.environment import skip_or_fail
from tests.support.loopdisk import LoopDisk

pytestmark = pytest.mark.root

DISK_MB = 48


def _knows_reftable() -> bool:
    done = subprocess.run(["git", "init", "-h"], capture_output=True, text=True, check=False)
    return "--ref-format" in done.stdout


ALL = tuple(kind for kind in (*KINDS, *SOURCES) if kind != "reftable" or _knows_reftable())


@pytest.fixture
def disk() -> Iterator[LoopDisk]:
    reason = loopdisk.available()
    if reason is not None:
        skip_or_fail(reason)
    with LoopDisk(DISK_MB) as disk:
        yield disk


@pytest.fixture
def judge(disk: LoopDisk) -> Iterator[Judge]:
    with Judge(disk) as judge:
        yield judge


def prepared(disk: LoopDisk, kind: str, **more: object) -> Job:
    job = Job(place=str(disk.mount), kind=kind, **more)  # type: ignore[arg-type]
    save_worker.prepare(job)
    return job


def cut_after_each(disk: LoopDisk, judge: Judge, job: Job, *, neighbour: bool) -> None:
    """Cut right after each save, and again after the work that follows it; all earlier saves are looked at each time."""
    with Worker(job) as worker:
        stops = 0
        while worker.wait_stopped():
            stops += 1
            if neighbour:
                neighbour_flushes(disk.mount)
            judge.check(job, worker.told, f"at stop {stops}", whole=stops >= job.rounds * 2 - 1)
            worker.go_on()
        assert worker.wait() == 0
        assert (stops, len(worker.told)) == (job.rounds * 2, job.rounds)
        neighbour_flushes(disk.mount)
        judge.check(job, worker.told, "at the end", whole=True)


def test_a_save_that_returned_survives_any_later_cut(disk: LoopDisk, judge: Judge) -> None:
    """Also the agent's own commits, staged files and merges just before it, which nothing else flushed."""
    job = prepared(disk, "plain", rounds=8, stop=("worked", "saved"), saves=("beat", "beat", "emergency"))
    cut_after_each(disk, judge, job, neighbour=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ALL)
def test_a_save_survives_when_a_neighbours_flush_commits_the_journal_first(
    kind: str, disk: LoopDisk, judge: Judge
) -> None:
    job = prepared(disk, kind, rounds=4, stop=("worked", "saved"))
    cut_after_each(disk, judge, job, neighbour=True)


def cut_in_saves(judge: Judge, job: Job, chosen: set[int] | None, neighbour: Path | None = None) -> int:
    """Cut before the chosen of the operations that saves do on the disk, or all; how many there were."""
    stops = 0
    with Worker(job) as worker:
        while worker.wait_stopped():
            stops += 1
            if chosen is None or stops in chosen:
                if neighbour is not None:
                    neighbour_flushes(neighbour)
                judge.check(job, worker.told, f"before operation {stops}")
            worker.go_on()
        assert worker.wait() == 0
        judge.check(job, worker.told, "at the end")
    return stops


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ALL)
def test_a_cut_during_a_save_leaves_the_ones_before(
    kind: str, disk: LoopDisk, judge: Judge, rng: random.Random
) -> None:
    """The first one brings in what the repository has."""
    job = prepared(disk, kind, rounds=4, stop=("operation",), saves=("beat", "emergency"))
    stops = cut_in_saves(judge, job, set(rng.sample(range(1, 150), 20)))
    assert stops > 80


@pytest.mark.campaign
@pytest.mark.parametrize("neighbour", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_a_cut_before_any_operation_of_a_save_leaves_the_ones_before(
    kind: str, neighbour: bool, disk: LoopDisk, judge: Judge
) -> None:
    job = prepared(disk, kind, rounds=3, stop=("operation",), saves=("beat", "emergency"))
    stops = cut_in_saves(judge, job, None, disk.mount if neighbour else None)
    assert judge.cuts == stops + 1


def test_cut_at_random_in_a_tight_loop_every_save_that_returned_is_there(
    disk: LoopDisk, judge: Judge, rng: random.Random
) -> None:
    """Worker and gits are stopped wherever they are, also between calls that no test knows of."""
    job = prepared(disk, "plain", rounds=60, files=1, saves=("beat", "beat", "emergency"))
    with Worker(job) as worker:
        for n in range(10):
            worker.listen_for(rng.uniform(0.02, 0.2))
            if not worker.stop():
                break
            judge.check(job, worker.told, f"at random, {n}")
            worker.go_on()
        worker.kill_all()
    assert judge.cuts > 4


def test_after_the_agents_own_gc_a_save_survives_a_cut(disk: LoopDisk, judge: Judge) -> None:
    """`gc` rewrites what the vault has links to, and moves the user's refs without a flush. Ours are not among them."""
    job = prepared(disk, "plain", rounds=3, stop=("saved",))
    with Worker(job) as worker:
        while worker.wait_stopped():
            save_worker.agent_git(job.folder, "gc", "-q", "--prune=now")
            neighbour_flushes(disk.mount)
            assert not judge.lost(job, worker.told)
            worker.go_on()
        assert worker.wait() == 0


# -- would these tests notice? ---------------------------------------------------------------------------------------


def lost_without(disk: LoopDisk, judge: Judge, name: str, *, neighbour: bool, **more: object) -> int:
    """How many of eight cuts, each right after a save, lose something when a protection is taken out."""
    job = prepared(
        disk, "plain", rounds=8, stop=("saved",), secrets=False, without=(name,) if name else (), **more
    )
    lost = 0
    with Worker(job) as worker:
        while worker.wait_stopped():
            if neighbour:
                neighbour_flushes(disk.mount)
            lost += bool(judge.lost(job, worker.told[-1:]))
            worker.go_on()
        assert worker.wait() == 0
    return lost


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pack fsync", "beat"),
        ("pack index fsync", "beat"),
        ("ref fsync", "emergency"),
        ("ref folder fsync", "emergency"),
    ],
)
def test_each_flush_is_needed(name: str, kind: str, disk: LoopDisk, judge: Judge) -> None:
    """Not shown: the flush of the pack's folder. The ref's own commits ext4's journal, and the pack's name with it."""
    assert lost_without(disk, judge, name, neighbour=False, saves=(kind,)) > 0
