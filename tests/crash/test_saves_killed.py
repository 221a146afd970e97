"""Saves that are killed, stopped, in each other's way, or on a disk that is full or fails: what was saved stays whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import SaveFailed
from outlast.workspace import saves
from outlast.workspace.git import refs
from outlast.workspace.types import Purpose
from tests.crash import save_worker
from tests.crash.save_control import Worker
from tests.crash.save_worker import KINDS, Job, Told
from tests.support import loopdisk, processes
from tests.support.environment import skip_or_fail
from tests.support.loopdisk import LoopDisk

SAVES = 200
SAVES_SAMPLED = 30
POINTS_MAX = 100
OPERATIONS_MAX = 400


def prepared(place: Path, kind: str = "plain", **more: object) -> Job:
    place.mkdir(exist_ok=True)
    job = Job(place=str(place), kind=kind, **more)  # type: ignore[arg-type]
    save_worker.prepare(job)
    return job


def again(job: Job, **changes: object) -> Job:
    return save_worker.msgspec.structs.replace(job, **changes)


def fsck(job: Job) -> None:
    """Git finds nothing to complain of, in the repository and in the one of secrets."""
    with contextlib.closing(job.saver()) as saver:
        places = [saver.repo().vault, saver.private / "secrets.git"]
    for place in filter(Path.exists, places):
        words = ["git", f"--git-dir={place}", "fsck", "--full", "--strict", "--no-dangling", "--no-progress"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if not line.startswith("notice: ")]
        assert (done.returncode, said) == (0, []), place


def check_free(job: Job) -> None:
    """Nobody holds the lock of saving; for a moment a git does that the killed one was just starting."""
    with contextlib.closing(job.saver()) as saver:
        fd = os.open(saver.private / "lock", os.O_RDWR | os.O_CREAT)

    def is_free() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    try:
        processes.wait_for(is_free, what="the lock of saving to be free")
    finally:
        os.close(fd)


# -- killed --------------------------------------------------------------------------------------------------------


def kill_in_a_loop(job: Job, rng: random.Random, *, every: int, wanted: int = SAVES) -> int:
    """Kill the one who saves, alone or with its gits, at random; how often until all saves are made."""
    told: list[Told] = []
    kills = 0
    while len(told) < wanted:
        with Worker(again(job, first=len(told) + 1, rounds=wanted - len(told))) as worker:
            worker.wait_told(min(rng.randint(0, every), wanted - len(told)))
            worker.listen_for(rng.uniform(0, 0.06))
            code = rng.choice([worker.kill, worker.kill_all])()
            told += worker.told
        assert code in (0, -9)
        kills += code == -9
        check_free(job)
        save_worker.check(job, tuple(told[-2:]), before=False)
        fsck(job)
    save_worker.check(job, tuple(told))
    return kills


def test_killed_at_random_in_a_tight_loop_every_save_that_returned_is_whole(
    tmp_path: Path, rng: random.Random, whole: bool
) -> None:
    """Also what they leave is swept by the next one, and nothing of it is in its way."""
    job = prepared(tmp_path / "place", gits=False, files=1, saves=("beat", "beat", "beat", "emergency"))
    wanted, every = (SAVES, 50) if whole else (SAVES_SAMPLED, 8)
    assert kill_in_a_loop(job, rng, every=every, wanted=wanted) > 2


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["plain", "shadow", "linked"])
def test_killed_over_and_over_every_save_that_returned_is_whole(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    job = prepared(tmp_path / "place", kind, gits=False, files=1, saves=("beat", "emergency"))
    assert kill_in_a_loop(job, rng, every=8) > 20


def kill_at_each_point(job: Job) -> int:
    """The first crash point of a save, the second, … until one meets none; how many there were."""
    told: list[Told] = []
    for nth in range(1, POINTS_MAX):
        with Worker(again(job, first=job.rounds * nth, die_at=nth)) as worker:
            code = worker.wait()
            told += worker.told
        assert code == (-9 if len(worker.told) < job.rounds else 0), nth
        save_worker.check(job, tuple(told[-3:]))
        fsck(job)
        if not code:
            save_worker.check(job, tuple(told))
            return nth - 1
    pytest.fail(f"more than {POINTS_MAX} crash points")


@pytest.mark.sampled(1)
def test_killed_at_any_crash_point_of_a_save_the_ones_before_are_whole(tmp_path: Path) -> None:
    job = prepared(tmp_path / "place", saves=("beat", "emergency"))
    assert kill_at_each_point(job) >= 8


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_crash_point_of_the_next_save_the_ones_before_are_whole(
    kind: str, tmp_path: Path
) -> None:
    job = prepared(tmp_path / "place", kind, rounds=2, saves=("beat", "emergency"))
    assert kill_at_each_point(job) >= 16


# -- stopped, and two at once --------------------------------------------------------------------------------------


def waits_for_a_lock(pid: int) -> bool:
    """Whether a process has the lock's file open, which somebody else holds: it asks for it again and again."""
    with contextlib.suppress(OSError):
        return any(os.readlink(fd).endswith("/lock") for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


@pytest.mark.parametrize("point", ["save.pack_written", "save.before_ref", "save.ref_written"])
def test_who_saves_what_another_is_saving_waits_for_it(point: str, tmp_path: Path) -> None:
    job = prepared(tmp_path / "place", run="one", stop=(point,), secrets=False)
    other = again(job, run="two", first=100, stop=())
    with Worker(job) as stopped:
        assert stopped.wait_stopped()
        with Worker(other) as waiting:
            processes.wait_for(lambda: waits_for_a_lock(waiting.pid), what="the second to wait for the first")
            assert waiting.told == ()
            stopped.go_on()
            while stopped.wait_stopped():
                stopped.go_on()
            assert (stopped.wait(), waiting.wait()) == (0, 0)
    save_worker.check_saves(job, stopped.told)
    save_worker.check(other, waiting.told)
    fsck(job)


def test_two_who_save_one_folder_all_the_time_lose_none_of_their_saves(tmp_path: Path) -> None:
    job = prepared(
        tmp_path / "place", run="one", rounds=50, gits=False, looks=False, saves=("beat", "emergency")
    )
    other = again(job, run="two", first=1000)
    with Worker(job) as first, Worker(other) as second:
        assert (first.wait(), second.wait()) == (0, 0)
        for mine, worker in ((job, first), (other, second)):
            assert len(worker.told) == 50
            save_worker.check_saves(mine, worker.told)
    with contextlib.closing(job.saver()) as saver:
        for run in ("one", "two"):
            numbers = [held.meta.number for held in saves.chain(saver.repo(), saver.reader(), run)]
            assert numbers == list(range(50, 0, -1)), run
    fsck(job)


def test_two_who_save_for_one_run_make_one_chain(tmp_path: Path) -> None:
    job = prepared(tmp_path / "place", rounds=15, gits=False, looks=False)
    with Worker(job) as first, Worker(again(job, first=1000)) as second:
        assert (first.wait(), second.wait()) == (0, 0)
        told = first.told + second.told
    with contextlib.closing(job.saver()) as saver:
        chained = [held.commit for held in saves.chain(saver.repo(), saver.reader(), job.run)]
    assert {save.commit for save in told} == set(chained)


# -- a disk that is full, or fails ---------------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[LoopDisk]:
    reason = loopdisk.available()
    if reason is not None:
        skip_or_fail(reason)
    with LoopDisk(16) as disk:
        yield disk


def fill(folder: Path, leave_kb: int) -> Path:
    """Take all the room there is but so much."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)
        with contextlib.suppress(OSError):
            os.fsync(filler.fileno())
        if leave_kb:
            os.ftruncate(filler.fileno(), max(0, path.stat().st_size - leave_kb * 1024))
            os.fsync(filler.fileno())
    return path


def try_to_save(job: Job) -> str:
    """What a save that cannot be made says; empty when it was made."""
    with contextlib.closing(job.saver()) as saver:
        try:
            saver.capture(Purpose(kind="beat", run=job.run, reason="may fail"))
        except SaveFailed as error:
            save_worker.check_swept(job, saver)
            said = str(error)
        else:
            said = ""
    assert "\n" not in said
    return said


@pytest.mark.root
@pytest.mark.parametrize("kind", ["plain", "shadow"])
def test_on_a_full_disk_a_save_fails_in_one_line_and_the_ones_before_are_whole(
    kind: str, disk: LoopDisk
) -> None:
    job = prepared(disk.mount / "place", kind, rounds=3)
    with Worker(job) as worker:
        assert worker.wait() == 0
        told = worker.told
    save_worker._put(job.folder / "big.bin", random.Random(1).randbytes(200_000).hex())
    (job.folder / "c.txt").write_text("changed\n")
    if kind == "plain":
        save_worker.agent_git(job.folder, "add", "c.txt", "a.txt")
    refs.syncfs(disk.mount)
    failed = 0
    for leave_kb in (0, 0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048):
        filler = fill(disk.mount, leave_kb)
        said = try_to_save(job)
        save_worker.check_saves(job, told)
        filler.unlink()
        failed += bool(said)
        if not said:
            break
    assert failed >= 4
    assert not said
    save_worker.check(job, told, whole=True)
    fsck(job)


def fail_each_call(job: Job, code: int, step: int) -> None:
    """The first call that changes the disk fails, then a later one, … until a save meets no fault."""
    with Worker(job) as worker:
        assert worker.wait() == 0
        told = worker.told
    for nth in range(1, OPERATIONS_MAX, step):
        save_worker.work(job, 10 + 2 * nth)  # edits and staged files in turn
        met = 0

        def fail(nth: int = nth) -> None:
            nonlocal met
            met += 1
            if met == nth:
                raise OSError(code, os.strerror(code))

        # What cannot even be removed stays until the next start, which takes over a dead owner's locks.
        with save_worker.before_operations(fail, ("fsync", "rename", "replace", "symlink", "mkdir", "write")):
            said = try_to_save(job)
        save_worker.check_saves(job, told)
        if met < nth:
            assert not said
            assert nth > 20
            break
        if not said:  # a folder that is there need not be made
            save_worker.check(job, told)
    save_worker.check(job, told)
    fsck(job)


def test_when_a_call_of_a_save_fails_it_says_so_in_one_line_and_the_ones_before_are_whole(
    tmp_path: Path,
) -> None:
    fail_each_call(prepared(tmp_path / "place", rounds=2), errno.EIO, step=5)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whatever_call_of_a_save_fails_it_says_so_in_one_line_and_the_ones_before_are_whole(
    code: int, kind: str, tmp_path: Path
) -> None:
    fail_each_call(prepared(tmp_path / "place", kind, rounds=2), code, step=1)
