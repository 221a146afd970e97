"""SIGSTOP past the lease, a takeover, then SIGCONT: the zombie writes nothing and, on one host, performs nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from outlast.store import open_store
from outlast.store.locks import boottime_s
from outlast.store.protocol import Batch, Lease, Store
from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed
from tests.crash.zygote import Child
from tests.support import processes, strace
from tests.support.environment import ROOT, need_root, need_tool, skip_or_fail
from tests.support.strace import Syscall, Trace, Traced

LEASE_S = 1
HELD = 2  # the exit code of an agent that was told who holds the run
POINTS = (
    "plan.recorded", "beat.begun", "decide.answered", "decide.recorded", "act.before_intent", "act.intended",
    "act.performed", "act.confirmed", "beat.before_done", "beat.done", "store.after_commit",
)  # fmt: skip


def take_over(world: CrashWorld, **spec: Any) -> int:
    """Start until nobody holds it any more; the exit code of the start that went through."""
    return processes.wait_for(lambda: _start(world, **spec), what="the lease to pass")[0]


def _start(world: CrashWorld, **spec: Any) -> tuple[int] | None:
    code = world.run(lease_s=LEASE_S, **spec)
    return None if code == HELD else (code,)


def frozen(world: CrashWorld, script: str, **how: Any) -> Child:
    child = world.start(script=script, lease_s=LEASE_S, **how)
    child.wait_stopped(lambda: world.story)
    return child


def take_over_all(worlds: dict[CrashWorld, str]) -> None:
    """Take over all of them at the same time."""
    takers = {world: world.start(script=script, lease_s=LEASE_S) for world, script in worlds.items()}

    def all_done() -> bool:
        for world, taker in takers.items():
            if taker.ended and taker.wait() == HELD:
                takers[world] = world.start(script=worlds[world], lease_s=LEASE_S)
        return all(taker.ended for taker in takers.values())

    processes.wait_for(all_done, what="the leases to pass")
    for world, taker in takers.items():
        assert taker.wait() == 0, world.story


def check_zombie_did_nothing(world: CrashWorld, zombie: Child, taken_over: int) -> None:
    """Since the takeover it performed nothing, and learnt that at its next write or act."""
    later = [note for note in world.notes[taken_over:] if note.pid == zombie.pid]
    assert [note for note in later if note.kind == "perform"] == [], world.story
    errors = [note.words[0] for note in later if note.kind == "error"]
    assert errors == ["LeaseLost"], world.story


def test_stopped_between_any_two_events_a_zombie_writes_and_performs_nothing(make_world: MakeWorld) -> None:
    """Keyed and probed acts; all of the zombies wait for their lease at the same time."""
    worlds: dict[CrashWorld, str] = {}
    zombies: dict[CrashWorld, Child] = {}
    for script in ("plain", "ticket"):
        for point in POINTS:
            if (script, point) == ("ticket", "decide.recorded"):
                continue  # its only decision is lazy
            world = make_world(f"{script}-{point}")
            nth = 3 if point == "store.after_commit" else 1
            zombies[world] = frozen(world, script, blows=(Blow(nth, point, "STOP"),))
            worlds[world] = script
    take_over_all(worlds)
    for world, zombie in zombies.items():
        taken_over, journal = len(world.notes), world.journal()
        zombie.go_on()
        assert zombie.wait() == 3, world.story
        check_zombie_did_nothing(world, zombie, taken_over)
        assert world.journal() == journal, world.story
        world.check_effects()


def test_stopped_before_a_blind_act_a_zombie_does_not_perform_it(world: CrashWorld) -> None:
    zombie = frozen(world, "mail", blows=(Blow(1, "act.intended", "STOP"),))
    assert take_over(world, script="mail") == 3
    taken_over = len(world.notes)
    zombie.go_on()
    assert zombie.wait() == 3
    check_zombie_did_nothing(world, zombie, taken_over)
    assert world.settle_by_the_truth() == 1
    assert world.run(script="mail") == 0
    world.check_effects(["mail-1"])


@pytest.mark.parametrize(
    ("script", "act", "code"), [("plain", "plain-1", 0), ("ticket", "ticket-1", 0), ("mail", "mail-1", 3)]
)
def test_stopped_inside_an_act_a_zombie_is_killed_by_the_taker(
    script: str, act: str, code: int, world: CrashWorld
) -> None:
    zombie = frozen(world, script, freeze_in=act)
    assert take_over(world, script=script) == code, world.story
    assert killed(zombie.wait()), world.story
    if code == 3:
        assert world.settle_by_the_truth() == 1
        assert world.run(script=script) == 0
    world.check_effects()
    assert act in {item.identity for item in world.performed()}


@pytest.mark.root
def test_stopped_inside_an_act_where_it_cannot_be_killed_nobody_takes_over(world: CrashWorld) -> None:
    """In another pid namespace its number means nothing here, so only it can tell that it is dead."""
    need_root()
    spec = msgspec.json.encode(world.spec(script="ticket", lease_s=LEASE_S, freeze_in="ticket-1")).decode()
    # The first process of a namespace ignores SIGSTOP: there must be one before the agent.
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *_agent(spec)]
    command = [need_tool("unshare"), "--pid", "--fork", "--kill-child", "--mount-proc", *shell]
    with processes.running(command, cwd=ROOT) as unshare:
        first = processes.wait_for(lambda: _child_of(unshare.pid), what="the namespace to start")
        inner = processes.wait_for(lambda: _child_of(first), what="the agent to start")
        processes.wait_for(lambda: processes.state(inner) == "T", what="the agent to stop")
        processes.wait_for(lambda: _held_in_an_act(world), what="the lease to pass")
        processes.go_on(inner)
        assert unshare.wait() == 0, world.story
    world.check_effects(["ticket-1"])


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0


def _held_in_an_act(world: CrashWorld) -> bool:
    assert world.run(script="ticket", lease_s=LEASE_S) == HELD, world.story
    return (
        "act" in " ".join(world.noted("error")[-1]).rpartition(", ")[2]
    )  # why it is held although it is silent


def test_the_new_holder_is_not_robbed_when_the_zombie_ends(world: CrashWorld) -> None:
    zombie = frozen(world, "plain", blows=(Blow(1, "beat.done", "STOP"),))
    holders: list[Child] = []

    def holding() -> bool:
        child = world.start(script="plain", lease_s=30, hold="three")
        holders.append(child)
        entered = ("3", "three")
        processes.wait_for(lambda: child.ended or entered in world.noted("beat"), what="the taker")
        return not child.ended

    processes.wait_for(holding, what="the lease to pass")
    zombie.go_on()
    assert zombie.wait() == 3
    assert world.run(script="plain") == HELD
    assert f"is held by pid {holders[-1].pid} on " in " ".join(world.noted("error")[-1])
    holders[-1].signal(15)
    assert holders[-1].wait() == 0, world.story
    world.check_effects(["plain-1", "plain-2", "plain-3"])


# -- in the middle of system calls -------------------------------------------------------------------------------


@pytest.fixture
def _strace() -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)


def _agent(spec: str) -> list[str]:
    return [sys.executable, "-m", "tests.crash.agent", spec]


def traced(world: CrashWorld, calls: tuple[str, ...] = strace.DISK, **spec: Any) -> Traced:
    encoded = msgspec.json.encode(world.spec(**spec)).decode()
    return Traced(_agent(encoded), world.root, calls, cwd=ROOT)


@pytest.mark.strace
@pytest.mark.slow
@pytest.mark.usefixtures("_strace")
def test_stopped_inside_a_commit_the_zombie_is_killed_by_the_taker(make_world: MakeWorld) -> None:
    """It has the lock of the whole database in its hands: nobody else could ever write again."""
    with make_world("dry") as world:
        world.root.mkdir()
        dry = traced(world, script="plain", lease_s=LEASE_S).run()
    writes = [call for call in dry.calls if call.paths[0].endswith("-wal") and call.name == "pwrite64"]
    with make_world("stopped") as world:
        world.root.mkdir()
        target = writes[len(writes) // 2]
        with traced(world, script="plain", lease_s=LEASE_S).stop_at(target.nth, dry) as zombie:
            assert take_over(world, script="plain") == 0, world.story
            assert not processes.alive(zombie.pid)
        world.check_effects(["plain-1", "plain-2", "plain-3"])


@pytest.mark.strace
@pytest.mark.usefixtures("_strace")
def test_stopped_inside_its_claim_a_zombie_does_not_rob_the_next_holder(make_world: MakeWorld) -> None:
    with make_world("dry") as world:
        world.root.mkdir()
        dry = traced(world, script="plain").run()
    target = next(call for call in dry.calls if call.name == "fallocate" and call.paths[0].endswith(".lock"))
    with make_world("stopped") as world:
        world.root.mkdir()
        with traced(world, script="plain").stop_at(target.nth, dry) as zombie:
            holder = world.start(script="plain", hold="two")
            processes.wait_for(
                lambda: holder.ended or ("2", "two") in world.noted("beat"), what="the next holder to work"
            )
            zombie.go_on()
            assert zombie.wait().returncode == HELD, world.story
        holder.signal(15)
        assert holder.wait() == 0, world.story
        world.check_effects(["plain-1", "plain-2", "plain-3"])


@pytest.mark.strace
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("when", [1, 2], ids=["before", "after"])
def test_a_zombie_that_wakes_in_the_middle_of_a_takeover_does_not_act_beside_the_taker(
    world: CrashWorld, when: int
) -> None:
    zombie = frozen(world, "ticket", blows=(Blow(1, "act.intended", "STOP"),))
    world.witness.fault("late", match="ticket")
    expiry = boottime_s() + 2 * LEASE_S + 1
    processes.wait_for(lambda: boottime_s() > expiry, what="the lease to pass")
    # The taker's first fallocate is that of the store's mark, its second that of its own lock, which then is in the
    # place of the zombie's.
    only = Trace((Syscall(1, 0, "fallocate", ("lock",), when, when, ""),), 0, "")
    with traced(world, strace.SIZES, script="ticket").stop_at(1, only) as taker:
        zombie.go_on()
        processes.wait_for(
            lambda: zombie.ended or world.witness.counts().waiting, what="the zombie to act or to end"
        )
        taker.go_on()
        processes.wait_for(
            lambda: _noted_by(world, taker.pid),
            what="the taker to act or to be refused",
        )
        world.witness.release()
        taker.wait()
    zombie.wait()
    world.run_to_end(script="ticket")
    world.check_effects(["ticket-1"])


def _noted_by(world: CrashWorld, pid: int) -> bool:
    return any(note.pid == pid and note.kind in ("perform", "error") for note in world.notes)


@pytest.mark.strace
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("zombie_lives", [True, False], ids=["another takeover", "a free claim"])
def test_what_a_takeover_that_was_killed_leaves_behind_is_swept_by_the_next_claim(
    world: CrashWorld, zombie_lives: bool
) -> None:
    zombie = frozen(world, "plain", blows=(Blow(1, "beat.done", "STOP"),))
    expiry = boottime_s() + 2 * LEASE_S + 1
    processes.wait_for(lambda: boottime_s() > expiry, what="the lease to pass")
    # The taker's only rename puts its lock in the place of the zombie's.
    only = Trace((Syscall(1, 0, "rename", ("lock",), 1, 1, ""),), 0, "")
    broken = traced(world, strace.RENAMES, script="plain", lease_s=LEASE_S).kill_at(1, only)
    assert broken.returncode != 0
    assert len(list(world.root.glob("runs/*.new"))) == 1
    if not zombie_lives:
        zombie.signal(9)
        zombie.wait()
    assert take_over(world, script="plain") == 0, world.story
    assert list(world.root.glob("runs/*.new")) == []
    world.check_effects(["plain-1", "plain-2", "plain-3"])


# -- the store's half --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stores(folder: Path, count: int) -> Iterator[list[Store]]:
    """The same store opened several times: to the locks and to SQLite these are strangers."""
    opened = [open_store(folder) for _ in range(count)]
    yield opened
    for store in opened:
        store.close()


def opened(task: str) -> ev.RunOpened:
    return ev.RunOpened(
        at=datetime.now(UTC), run=f"run{task}", task=task, project="p", contract=ev.Contract()
    )


def stage(lease: Lease, run: str, after: int) -> Batch:
    return Batch(lease, run, after, (ev.StageSet(at=datetime.now(UTC), stage=str(after)),))


def past_lease(store: Store, run: str) -> Store:
    """Wait until a holder that was silent from now on has lost its right."""
    expiry = boottime_s() + 2 * LEASE_S + 1
    processes.wait_for(lambda: boottime_s() > expiry, what="the lease to pass")
    return store


def test_every_write_of_a_lost_lease_is_refused(tmp_path: Path) -> None:
    with stores(tmp_path, 2) as (zombie, taker):
        run = zombie.create(opened("a"))
        old = zombie.claim(run, ttl_s=LEASE_S)
        zombie.append(stage(old, run, 1))
        past_lease(zombie, run)
        new = taker.claim(run)
        for after in (1, 2, 3):
            with pytest.raises(outlast.LeaseLost):
                zombie.append(stage(old, run, after))
        with pytest.raises(outlast.LeaseLost), old.guard():
            pytest.fail("a zombie acts")
        assert zombie.renew([old]) == {run: "another attempt claimed it"}
        zombie.release(old)
        taker.append(stage(new, run, 2))
        assert [item.seq for item in taker.read(run, after=0).events] == [1, 2, 3]
        with pytest.raises(outlast.RunHeld, match="held by pid"):
            zombie.claim(run)


def test_of_two_takers_at_once_one_wins(tmp_path: Path) -> None:
    rounds = 8
    with stores(tmp_path, 1 + 2 * rounds) as (zombie, *takers):
        runs = [zombie.create(opened(str(n))) for n in range(rounds)]
        for run in runs:
            zombie.claim(run, ttl_s=LEASE_S)
        past_lease(zombie, runs[-1])
        won: list[str] = []

        def take(store: Store, run: str) -> None:
            with contextlib.suppress(outlast.RunHeld):
                store.claim(run)
                won.append(run)

        threads = [
            threading.Thread(target=take, args=(taker, runs[n // 2])) for n, taker in enumerate(takers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == sorted(runs)
