"""SIGKILL at every crash point of a run in a PostgreSQL: it ends like its twin, whose store is a folder."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.agent import Blow
from tests.crash.crash_world import CrashWorld, killed
from tests.crash.test_points import EFFECTS
from tests.crash.zygote import Zygote
from tests.support.postgres import PostgresServer
from tests.support.sweeps import Sweep

SHARDS = 4
SECOND_KILLS = 20
SECOND_KILLS_SAMPLED = 2
OF_THE_STORE = ("store.created", "store.claimed", "store.before_commit", "store.after_commit", "blob.written")
Twins = Callable[[str], dict[str, Any]]
MakeShared = Callable[[object], Any]


@pytest.fixture
def make_shared(tmp_path: Path, zygote: Zygote, postgres_server: PostgresServer) -> MakeShared:
    """Worlds with a database each."""

    @contextmanager
    def made(name: object) -> Iterator[CrashWorld]:
        database = postgres_server.store()
        try:
            with CrashWorld(tmp_path / str(name), zygote, url=postgres_server.url(database)) as world:
                yield world
        finally:
            postgres_server.drop(database)

    return made


def check(world: CrashWorld, twins: Twins) -> None:
    world.check_effects(EFFECTS)
    world.check_equal(twins("full"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_any_crash_point_a_run_in_a_database_ends_like_its_twin(
    shard: int, make_shared: MakeShared, twins: Twins, sweep: Sweep
) -> None:
    for trial in sweep:
        nth = 1 + shard + SHARDS * (trial - 1)
        with make_shared(nth) as world:
            died = killed(world.run(kill_at=nth))
            then = world.recorded()
            if died:
                world.run_to_end()
                world.check_nothing_repeated(then)
            check(world, twins)
        sweep.met(died)


def test_killed_again_while_resuming_a_run_in_a_database_ends_like_its_twin(
    make_shared: MakeShared, twins: Twins, rng: random.Random, whole: bool
) -> None:
    with make_shared("count") as world:
        assert world.run() == 0, world.story
        total = len(world.noted("point"))
        check(world, twins)
    for trial in range(SECOND_KILLS if whole else SECOND_KILLS_SAMPLED):
        first, second = rng.randint(1, total), rng.randint(1, 25)
        with make_shared(trial) as world:
            assert killed(world.run(kill_at=first)), world.story
            world.run(kill_at=second)
            then = world.recorded()
            world.settle_by_the_truth()
            world.run_to_end()
            world.check_nothing_repeated(then)
            check(world, twins)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_THE_STORE)
def test_every_point_of_the_store_is_met_in_a_database(
    name: str, make_shared: MakeShared, twins: Twins
) -> None:
    with make_shared("world") as world:
        code = world.run(blows=(Blow(name=name),))
        assert killed(code), f"{name} was not met\n{world.story}"
        then = world.recorded()
        world.run_to_end()
        world.check_nothing_repeated(then)
        check(world, twins)
