"""Fixtures: `night`, a repository and a home with commands under `outlast run`; `host`, several, and a witness."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.host import Host
from tests.supervisor.supervised_command import Night
from tests.supervisor.upgraded import Upgraded
from tests.support.environment import isolate


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    with Night(tmp_path, isolate(tmp_path)) as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(tmp_path, isolate(tmp_path)) as made:
        yield made


@pytest.fixture
def upgraded(host: Host) -> Upgraded:
    return Upgraded(host)
