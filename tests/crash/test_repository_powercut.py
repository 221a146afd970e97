"""Power cuts and the user's own repository: git flushes nothing of a commit, and the next attempt finds it whole all the same.

Folder, repository and state folder lie on one loop-mounted ext4 image.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash import save_worker
from tests.crash.save_control import Judge, Worker, neighbour_flushes
from tests.crash.save_worker import Job
from tests.support import loopdisk
from tests.support.environment import skip_or_fail
from tests.support.loopdisk import LoopDisk

pytestmark = pytest.mark.root

DISK_MB = 48


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


def damaged(
    disk: LoopDisk, judge: Judge, kind: str, *without: str, rounds: int = 8, neighbour: bool = True
) -> list[str]:
    """What is wrong with the repository after a cut, for each of these cuts: right after a save, and after the work that follows."""
    job = Job(
        place=str(disk.mount),
        kind=kind,
        rounds=rounds,
        stop=("worked", "saved"),
        secrets=False,
        without=without,
    )
    save_worker.prepare(job)
    found = []
    with Worker(job) as worker:
        while worker.wait_stopped():
            if neighbour:
                neighbour_flushes(disk.mount)
            if worker.told:
                found.append(judge.lost(job, worker.told, mended=True))
            worker.go_on()
        assert worker.wait() == 0
    assert len(found) >= rounds
    return [each for each in found if each]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["plain", "linked", "sha256", "packed"])
def test_after_a_cut_the_repository_has_the_commits_of_the_save_and_nothing_that_is_torn(
    kind: str, disk: LoopDisk, judge: Judge
) -> None:
    assert damaged(disk, judge, kind) == []
