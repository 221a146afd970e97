"""EIO, ENOSPC and failing fsync at the N-th call: a failed append is unknown, so nothing is done after it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast import faults
from outlast.core import events as ev
from outlast.store import open_store
from outlast.store.protocol import Batch, Lease, Store
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld
from tests.store.store_on_vfs import open_on
from tests.support import loopdisk, processes, strace
from tests.support.environment import ROOT, skip_or_fail
from tests.support.faulty_vfs import DiskFault, FaultyVFS
from tests.support.loopdisk import LoopDisk
from tests.support.strace import Drifted, Traced

Twins = Callable[[str], dict[str, Any]]
SCRIPT = "short"
EFFECTS = ["ticket-1", "upload-2", "plain-3"]


def check_resumes(world: CrashWorld, twins: Twins) -> None:
    """With a good disk the run ends like its twin, and nothing happened twice."""
    world.run_to_end(script=SCRIPT)
    world.check_effects(EFFECTS)
    world.check_equal(twins(SCRIPT))


def after_fault(world: CrashWorld) -> list[str]:
    """The kinds of what the agent noted after the disk had failed."""
    kinds = [note.kind for note in world.notes]
    return [kind for kind in kinds[kinds.index("fault") + 1 :] if kind not in ("fault", "point")]


def trials(fault: dict[str, Any], step: Callable[[], int]) -> Iterator[dict[str, Any]]:
    nth = 0
    while True:
        nth += step()
        yield {**fault, "nth": nth}


# -- SQLite's files ------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("done", ["none", "all"])
@pytest.mark.parametrize("op", ["sync", "write"])
def test_after_a_failing_write_or_fsync_nothing_is_performed(
    op: str, done: str, make_world: MakeWorld, twins: Twins, rng: random.Random
) -> None:
    """Every fsync of the log, and a sample of its writes; whether or not it had reached the disk after all."""
    fault = {"op": op, "error": "EIO", "done": done, "suffix": "-wal"}
    for asked in trials(fault, lambda: 1 if op == "sync" else rng.randint(1, 9)):
        with make_world(asked["nth"]) as world:
            code = world.run(script=SCRIPT, fault=asked)
            if not world.noted("fault"):
                assert code == 0, world.story
                return
            if code == 0:  # it struck when everything was durable and the store tidied up before closing
                assert after_fault(world) == [], f"{asked}\n{world.story}"
                world.check_equal(twins(SCRIPT))
                continue
            assert code == 3, f"{asked}\n{world.story}"
            assert after_fault(world) == ["error"], f"{asked}\n{world.story}"
            assert world.noted("error")[-1][0] == "AppendUnknown", world.story
            check_resumes(world, twins)


def test_on_a_full_disk_the_ballast_lets_the_outcome_and_the_cause_be_recorded(
    make_world: MakeWorld, twins: Twins, rng: random.Random
) -> None:
    """The disk is full once; what was given back is enough for what is under way. Nothing new is begun."""
    fault = {"op": "write", "error": "ENOSPC", "done": "half", "suffix": "-wal"}
    begun = 0
    for asked in trials(fault, lambda: rng.randint(1, 7)):
        with make_world(asked["nth"]) as world:
            code = world.run(script=SCRIPT, fault=asked)
            if not world.noted("fault"):
                assert code == 0, world.story
                break
            if world.noted("error") and world.noted("error")[-1][0] == "AppendUnknown":
                assert not world.noted("ask"), f"only before the run is begun: {world.story}"
            elif world.noted("ask"):
                begun += 1
                assert not (world.root / "ballast").exists()
                assert after_fault(world).count("perform") <= 1, world.story
                assert after_fault(world).count("beat") == 0, world.story
                ended = world.events()[-1]
                assert isinstance(ended, ev.AttemptEnded)
                assert ended.cause in ("disk", "done"), f"{ended}\n{world.story}"
                assert ended.status in ("interrupted", "done"), "no effect is left in doubt"
            check_resumes(world, twins)
            assert (world.root / "ballast").exists(), "the next opening makes it again"
    assert begun > 5


def test_on_a_disk_that_stays_full_nothing_is_performed(
    make_world: MakeWorld, twins: Twins, rng: random.Random
) -> None:
    fault = {"op": "write", "error": "ENOSPC", "persistent": True, "suffix": "-wal"}
    for asked in trials(fault, lambda: rng.randint(2, 14)):
        with make_world(asked["nth"]) as world:
            code = world.run(script=SCRIPT, fault=asked)
            if not world.noted("fault"):
                assert code == 0, world.story
                return
            assert code == 3, world.story
            assert after_fault(world) == ["error"], f"{asked}\n{world.story}"
            check_resumes(world, twins)


# -- any file, any call --------------------------------------------------------------------------------------------


@pytest.fixture
def _strace() -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)


def traced(world: CrashWorld) -> Traced:
    world.root.mkdir()
    spec = msgspec.json.encode(world.spec(script=SCRIPT)).decode()
    return Traced([sys.executable, "-m", "tests.crash.agent", spec], world.root, cwd=ROOT)


def fail_each(make_world: MakeWorld, twins: Twins, choose: Callable[[int], list[tuple[int, str]]]) -> None:
    with make_world("dry") as world:
        dry = traced(world).run()
        assert dry.returncode == 0, f"{dry.output}\n{world.story}"
    for nth, error in choose(len(dry.calls)):
        with make_world(f"{nth}-{error}") as world, contextlib.suppress(Drifted):
            broken = traced(world).fail_at(nth, dry, error)
            assert broken.returncode in (0, 1, 2, 3), f"{broken.hit} {error}: {broken.output}\n{world.story}"
            try:
                check_resumes(world, twins)
            except AssertionError as failed:
                raise AssertionError(f"{broken.hit} failed with {error}: {failed}") from failed


@pytest.mark.strace
@pytest.mark.usefixtures("_strace")
def test_after_a_failing_call_the_run_resumes(
    make_world: MakeWorld, twins: Twins, rng: random.Random
) -> None:
    """A sample; the blobs, locks and folders among them, which SQLite's files are not."""

    def choose(calls: int) -> list[tuple[int, str]]:
        return [(nth, rng.choice(["EIO", "ENOSPC"])) for nth in sorted(rng.sample(range(1, calls + 1), 14))]

    fail_each(make_world, twins, choose)


@pytest.mark.campaign
@pytest.mark.strace
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_after_any_failing_call_the_run_resumes(error: str, make_world: MakeWorld, twins: Twins) -> None:
    fail_each(make_world, twins, lambda calls: [(nth, error) for nth in range(1, calls + 1)])


# -- a disk that is really full ------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[LoopDisk]:
    reason = loopdisk.available()
    if reason is not None:
        skip_or_fail(reason)
    with LoopDisk() as disk:
        yield disk


def fill(folder: Path) -> Path:
    """Take all the room there is, to the last block."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(b"x" * size)
        with contextlib.suppress(OSError):
            os.fsync(filler.fileno())
    return path


@pytest.mark.sampled(2)
@pytest.mark.root
@pytest.mark.parametrize("acks", range(1, 8))
def test_a_disk_that_fills_up_under_a_run_stops_it_with_its_cause(
    acks: int, make_world: MakeWorld, twins: Twins, disk: LoopDisk
) -> None:
    world = make_world(store=disk.mount / "state")
    child = world.start(script=SCRIPT, stop_at_acks=True)
    for n in range(1, acks + 1):
        processes.wait_for(lambda n=n: child.ended or len(world.noted("ack")) == n, what="an acknowledgement")
        child.wait_stopped(lambda: world.story)
        if n < acks:
            child.go_on()
    filler = fill(disk.mount)
    while not child.ended:
        child.go_on()
    code = child.wait()
    filler.unlink()
    ended = world.events()[-1]
    assert isinstance(ended, ev.AttemptEnded), f"{ended}\n{world.story}"
    # What is under way may end; in the last beat that is the run.
    expected = [(3, "disk", "interrupted"), *([(0, "done", "done")] if acks > 5 else [])]
    assert (code, ended.cause, ended.status) in expected, f"{ended}\n{world.story}"
    check_resumes(world, twins)


@pytest.mark.root
def test_a_run_started_on_a_full_disk_is_refused_and_not_killed_by_it(
    make_world: MakeWorld, disk: LoopDisk
) -> None:
    """There is room in the log that an earlier run left, and none for a new run's lock file."""
    world = make_world(store=disk.mount / "state")
    assert world.run(script=SCRIPT) == 0
    filler = fill(disk.mount)
    code = world.run(script=SCRIPT, task="another")
    assert code != -signal.SIGBUS, "a mapped lock file without room behind it"
    assert code in (0, 3), world.story
    filler.unlink()


# -- group commit --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held_commit() -> Iterator[threading.Event]:
    """The first commit waits, so that all that is appended meanwhile shares the next one."""
    go = threading.Event()
    waited: list[str] = []

    def hook(name: str) -> None:
        if name == "store.before_commit" and not waited:
            waited.append(name)
            assert go.wait(30)

    faults.arm(hook)
    try:
        yield go
    finally:
        go.set()
        faults.arm(None)


class Wake:
    """What one waiter is told."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.error: Exception | None = None

    def __call__(self, error: Exception | None, *_: object) -> None:
        self.error = error
        self.told.set()

    def wait(self) -> Exception | None:
        assert self.told.wait(30), "nobody was woken"
        return self.error


def claimed(store: Store, task: str) -> tuple[str, Lease]:
    at = datetime.now(UTC)
    run = store.create(ev.RunOpened(at=at, run=f"run{task}", task=task, project="p", contract=ev.Contract()))
    return run, store.claim(run)


def batch(lease: Lease, run: str, after: int = 1, size: int = 1) -> Batch:
    return Batch(lease, run, after, (ev.StageSet(at=datetime.now(UTC), stage="on"),) * size)


def lengths(store: Store, runs: list[str]) -> list[int]:
    return [len(store.read(run, after=0).events) for run in runs]


def test_in_a_group_commit_a_stale_append_fails_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    names = [claimed(store, str(n)) for n in range(4)]
    (first, lease), *others = names
    (stale_run, old), (late_run, late), (good_run, good) = others
    store.release(old)
    store.claim(stale_run)
    with held_commit() as go:
        waiters = [Wake() for _ in names]
        store.append(batch(lease, first), waiters[0])
        store.append(batch(old, stale_run, size=3), waiters[1])  # an epoch that is over
        store.append(batch(late, late_run, after=5), waiters[2])  # a place that is not the next
        store.append(batch(good, good_run, size=3), waiters[3])
        go.set()
        errors = [waiter.wait() for waiter in waiters]
    assert [type(error) for error in errors] == [type(None), outlast.LeaseLost, outlast.LeaseLost, type(None)]
    assert lengths(store, [first, stale_run, late_run, good_run]) == [2, 1, 1, 4]
    store.append(batch(good, good_run, after=4))
    store.close()


def test_a_batch_behind_its_fence_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Its first event fits and its epoch is over meanwhile, or its second place is taken: nothing of it stays."""
    store = open_store(tmp_path)
    run, lease = claimed(store, "a")
    store.append(batch(lease, run, size=2))
    with pytest.raises(outlast.LeaseLost):
        store.append(batch(lease, run, after=1, size=3))
    with pytest.raises(outlast.LeaseLost):
        store.append(batch(lease, run, after=2, size=3))
    assert lengths(store, [run]) == [3]
    store.close()


@pytest.mark.parametrize("op", ["write", "sync"])
def test_in_a_group_commit_an_io_error_fails_every_waiter(op: Any, tmp_path: Path) -> None:
    with FaultyVFS("group", None) as vfs:
        store = open_on(tmp_path, "group")
        names = [claimed(store, str(n)) for n in range(4)]
        with held_commit() as go:
            waiters = [Wake() for _ in names]
            for (run, lease), waiter in zip(names, waiters, strict=True):
                store.append(batch(lease, run), waiter)
            first = waiters[0]
            vfs.fault = DiskFault(op, vfs.met[op] + 1, persistent=True)
            go.set()
            errors = [waiter.wait() for waiter in waiters]
        assert first.error is not None
        assert all(isinstance(error, outlast.AppendUnknown) for error in errors), errors
        vfs.fault = None  # also when the disk is well again: what became of the last write is not known
        with pytest.raises(outlast.AppendUnknown):
            store.append(batch(names[0][1], names[0][0]))
        store.close()
    again = open_store(tmp_path)
    assert set(lengths(again, [run for run, _ in names])) <= {1, 2}
    again.close()
