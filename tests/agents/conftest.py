"""Fixtures: `world`, a scripted model and the external witness; `under`, each real agent in turn under `outlast run` in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.script import Script
from tests.agents.under import Under
from tests.agents.worlds import World

# Those of which it was measured that, bare, they do it twice, and those that do not.
AGENTS = [
    ("claude", "2.1.325"), ("claude", "2.1.197"), ("codex", None), ("kimi-code", None), ("kimi-cli", "1.51.0"),
    ("gemini", None), ("opencode", None),
]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "world", Script([])) as made:
        yield made


@pytest.fixture(params=AGENTS, ids=lambda agent: "-".join(filter(None, agent)))
def under(request: pytest.FixtureRequest, world: World) -> Iterator[Under]:
    made = Under(world, *request.param)
    yield made
    made.close()
