"""SIGKILL at the N-th write, fsync, rename, … that the agent makes under its state folder, for N from 1 up."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld
from tests.support import processes, strace
from tests.support.environment import ROOT, skip_or_fail
from tests.support.strace import Drifted, Syscall, Trace, Traced

Twins = Callable[[str], dict[str, Any]]
SCRIPT = "short"
SAMPLE = 16

pytestmark = pytest.mark.strace


@pytest.fixture(autouse=True)
def _strace() -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)


def traced(world: CrashWorld, calls: tuple[str, ...] = strace.DISK) -> Traced:
    world.root.mkdir()
    spec = msgspec.json.encode(world.spec(script=SCRIPT)).decode()
    return Traced([sys.executable, "-m", "tests.crash.agent", spec], world.root, calls, cwd=ROOT)


def dry_run(make_world: MakeWorld) -> Trace:
    with make_world("dry") as world:
        dry = traced(world).run()
        assert dry.returncode == 0, f"{dry.output}\n{world.story}"
        world.check_effects()
    return dry


def kill_at_each(numbers: Iterable[int], dry: Trace, make_world: MakeWorld, twins: Twins) -> Counter[str]:
    """Kill there, resume, compare; how often each kind of call was hit."""
    hit: Counter[str] = Counter()
    for nth in numbers:
        with make_world(nth) as world:
            try:
                broken = traced(world).kill_at(nth, dry)
            except Drifted:  # another thread, or a retry: the program did other calls this time
                hit["drifted"] += 1
                continue
            assert broken.returncode != 0, f"{broken.hit}: {broken.output}"
            assert broken.hit is not None
            hit[broken.hit.name] += 1
            then = world.recorded()
            try:
                world.run_to_end(script=SCRIPT)
                world.check_nothing_repeated(then)
                world.check_effects(["ticket-1", "upload-2", "plain-3"])
                world.check_equal(twins(SCRIPT))
            except AssertionError as failed:
                raise AssertionError(f"killed at {broken.hit}: {failed}") from failed
    return hit


def test_killed_at_a_sample_of_its_system_calls_the_run_ends_like_its_twin(
    make_world: MakeWorld, twins: Twins, rng: random.Random
) -> None:
    """Some of each kind: writes, syncs, renames, new folders."""
    dry = dry_run(make_world)
    kinds: dict[str, list[int]] = {}
    for call in dry.calls:
        kinds.setdefault(call.name, []).append(call.nth)
    chosen = {rng.choice(numbers) for numbers in kinds.values()}
    rest = sorted(set(range(1, len(dry.calls) + 1)) - chosen)
    chosen |= set(rng.sample(rest, SAMPLE - len(chosen)))
    hit = kill_at_each(sorted(chosen), dry, make_world, twins)
    assert hit["drifted"] <= SAMPLE // 4, hit


@pytest.mark.sampled(0)
@pytest.mark.slow
@pytest.mark.parametrize("shard", [0, *(pytest.param(n, marks=pytest.mark.campaign) for n in (1, 2, 3))])
def test_killed_at_each_of_its_system_calls_the_run_ends_like_its_twin(
    shard: int, make_world: MakeWorld, twins: Twins
) -> None:
    dry = dry_run(make_world)
    hit = kill_at_each(range(1 + shard, len(dry.calls) + 1, 4), dry, make_world, twins)
    assert hit["drifted"] <= hit.total() // 10, hit


def test_every_new_name_is_made_durable_by_an_fsync_of_its_folder(make_world: MakeWorld) -> None:
    """ext4 often does it unasked, so no power cut of ours would show it missing; POSIX promises nothing."""
    calls = dry_run(make_world).calls
    for call in calls:
        if call.name not in (*strace.FOLDERS, *strace.RENAMES) or "lock" in call.paths[-1]:
            continue
        folder = os.path.dirname(call.paths[-1]) or "."
        following = [later for later in calls[call.nth :] if _matters(later)]
        assert following, f"{call} is the last thing done"
        assert following[0].name == "fsync", f"{call} is followed by {following[0]}"
        assert following[0].paths == (folder,), f"{call} is followed by {following[0]}"


def _matters(call: Syscall) -> bool:
    return call.name in (*strace.SYNCS, *strace.RENAMES, *strace.WRITES)


def test_a_blob_is_flushed_before_it_gets_its_name_and_that_before_the_event_that_names_it(
    make_world: MakeWorld,
) -> None:
    calls = dry_run(make_world).calls
    renames = [call for call in calls if call.name in strace.RENAMES and call.paths[0].endswith(".tmp")]
    assert len(renames) >= 2
    for rename in renames:
        before = [call for call in calls[: rename.nth - 1] if call.paths[0] == rename.paths[0]]
        assert before[-1].name in strace.SYNCS, f"{rename} without a flush"
        after = next(call for call in calls[rename.nth :] if _matters(call))
        assert (after.name, after.paths[0]) == ("fsync", os.path.dirname(rename.paths[0]))


PUT = """
import sys
from outlast.store import open_store
store = open_store(sys.argv[1])
store.blobs.put(b"x" * 10_000)
"""


def test_a_blob_found_under_its_name_is_made_durable_too(tmp_path: Path) -> None:
    """Killed between the rename and the fsync of the folder, the next attempt finds the name and relies on it."""

    def command(folder: Path) -> Traced:
        folder.mkdir(exist_ok=True)
        return Traced(processes.python_command(PUT, str(folder)), folder, cwd=ROOT)

    dry = command(tmp_path / "dry").run()
    rename = next(call for call in dry.calls if call.name in strace.RENAMES)
    sync = next(call for call in dry.calls[rename.nth :] if call.name == "fsync")
    broken = command(tmp_path / "cut").kill_at(sync.nth, dry)
    assert broken.hit is not None
    again = command(tmp_path / "cut").run()
    assert again.returncode == 0, again.output
    assert broken.hit.paths in [call.paths for call in again.calls if call.name == "fsync"]


def test_the_syncs_are_those_that_we_promise(make_world: MakeWorld) -> None:
    """Per beat: 1 for its end, 1 per decision (0 when lazy), 2 per effect; and nothing else touches the log."""
    syncs = [
        call for call in dry_run(make_world).calls if call.paths[0].endswith("-wal") and "sync" in call.name
    ]
    decisions, effects, beats = 2, 3, 3
    opening = 4  # the new log, create, claim, attempt started
    plan, finished = 1, 1
    assert len(syncs) - (decisions + 2 * effects + beats) - opening - plan - finished in (0, 1)
