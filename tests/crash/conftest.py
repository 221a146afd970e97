"""One zygote per worker, a world per test, and the twin that nobody kills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.crash.crash_world import CrashWorld
from tests.crash.zygote import Zygote

MakeWorld = Callable[..., CrashWorld]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


@pytest.fixture
def make_world(tmp_path: Path, zygote: Zygote) -> Iterator[MakeWorld]:
    """Worlds in folders of their own; their witnesses end with the test."""
    with ExitStack() as stack:
        yield lambda name="world", **more: stack.enter_context(
            CrashWorld(tmp_path / str(name), zygote, **more)
        )


@pytest.fixture
def world(make_world: MakeWorld) -> CrashWorld:
    return make_world()


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Callable[[str], dict[str, Any]]:
    """The journal of an uninterrupted run of a script."""
    known: dict[str, dict[str, Any]] = {}

    def twin(script: str = "full") -> dict[str, Any]:
        if script not in known:
            with CrashWorld(tmp_path_factory.mktemp("twin") / script, zygote) as world:
                assert world.run(script=script) == 0, world.story
                known[script] = world.journal()
        return known[script]

    return twin
