"""Two starts of one task at once: one wins, the other says who holds it. And those that are not the same task."""

from __future__ import annotations

import fcntl
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

import outlast
from outlast.core import events as ev
from outlast.store import open_store
from outlast.store.protocol import Batch
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld
from tests.support import processes

ROUNDS = 12
HELD = 2


def test_of_two_starts_at_once_one_wins_and_the_other_says_who_holds_it(make_world: MakeWorld) -> None:
    for n in range(ROUNDS):
        with make_world(n) as world:
            gate = world.folder / "gate"
            gate.touch()
            with gate.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                starts = [world.start(script="plain", gate=str(gate), hold="one") for _ in range(2)]
            processes.wait_for(lambda s=starts: any(start.ended for start in s), what="one to be refused")
            (loser,) = [start for start in starts if start.ended]
            (winner,) = [start for start in starts if start is not loser]
            assert loser.wait() == HELD, world.story
            (error,) = world.noted("error")
            assert error[0] == "RunHeld"
            assert f"is held by pid {winner.pid} on {os.uname().nodename} since 20" in " ".join(error)
            processes.wait_for(lambda w=world: w.noted("beat"), what="the winner to work")
            winner.signal(signal.SIGTERM)
            assert winner.wait() == 0, world.story
            world.check_effects(["plain-1", "plain-2", "plain-3"])
            assert {note.pid for note in world.notes if note.kind == "perform"} == {winner.pid}


def test_two_projects_with_the_same_task_do_not_see_each_other(make_world: MakeWorld) -> None:
    one = make_world("one")
    other = make_world("other", store=one.root)
    holding = one.start(script="plain", project="one", hold="two")
    processes.wait_for(lambda: ("2", "two") in one.noted("beat"), what="the first to work")
    assert other.run(script="plain", project="other") == 0, other.story
    holding.signal(signal.SIGTERM)
    assert holding.wait() == 0, one.story
    for world in (one, other):
        world.check_effects(["plain-1", "plain-2", "plain-3"])
    keys = [item.key for world in (one, other) for item in world.performed()]
    assert len(set(keys)) == 6


def test_a_killed_holder_is_claimed_from_at_once(world: CrashWorld) -> None:
    holder = world.start(script="plain", hold="two")
    processes.wait_for(lambda: ("2", "two") in world.noted("beat"), what="the holder to work")
    assert world.run(script="plain") == HELD
    holder.signal(signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    assert world.run(script="plain") == 0, world.story
    world.check_effects(["plain-1", "plain-2", "plain-3"])


# -- fork ----------------------------------------------------------------------------------------------------------


def opened() -> ev.RunOpened:
    return ev.RunOpened(at=datetime.now(UTC), run="therun", task="t", project="p", contract=ev.Contract())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_cannot_write_with_its_parents_lease(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = store.create(opened())
    lease = store.claim(run)
    batch = Batch(lease, run, 1, (ev.StageSet(at=datetime.now(UTC), stage="on"),))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.append(batch)
        except outlast.StoreRefused:
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    store.append(batch)
    assert len(store.read(run, after=0).events) == 2
    other = open_store(tmp_path)
    with pytest.raises(outlast.RunHeld, match="held by pid"):
        other.claim(run)  # the child's end did not let go of the parent's lock
    other.close()
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parents_run_alive(tmp_path: Path) -> None:
    """A holder forks and dies; its child lives on, as a daemon that an agent started would."""
    ready, alive = os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            store = open_store(tmp_path)
            store.claim(store.create(opened()), ttl_s=60)
            if os.fork() == 0:
                os.write(ready[1], b"%d" % os.getpid())
                os.close(alive[1])
                os.read(alive[0], 1)  # until the test ends
            else:
                signal.pause()
        finally:
            os._exit(0)
    child = int(os.read(ready[0], 32))
    try:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        store = open_store(tmp_path)
        lease = store.claim("therun")
        assert lease.epoch == 2
        assert processes.alive(child)
        store.close()
    finally:
        os.close(alive[1])
