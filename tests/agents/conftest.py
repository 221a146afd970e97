"""Fixtures: `world`, a scripted model and the external witness; `under`, each real agent in turn under `outlast run` in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script

# Those of which it was measured that, bare, they do it twice, and those that do not.
AGENTS = [
    ("claude", "2.1.325"), ("claude", "2.1.197"), ("codex", None), ("kimi-code", None), ("kimi-cli", "1.51.0"),
    ("gemini", None), ("opencode", None),
]  # fmt: skip


# A test with one of these runs a real CLI; others that do have the mark themselves.
REAL = {"world", "under", "night"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        here = item.path.is_relative_to(Path(__file__).parent) and item.path.parent.name != "outward"
        if here and REAL & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real_agent)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AgentWorld]:
    with AgentWorld(tmp_path / "world", Script([])) as made:
        yield made


@pytest.fixture(params=AGENTS, ids=lambda agent: "-".join(filter(None, agent)))
def under(request: pytest.FixtureRequest, world: AgentWorld) -> Under:
    return Under(world, *request.param)
