"""Fixtures: `night`, a repository and a home with commands under `outlast run`; `host`, several, and a witness."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.host import Host, host_in
from tests.supervisor.supervised_command import Night, night_in
from tests.support.environment import isolate


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    with night_in(tmp_path, isolate(tmp_path)) as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with host_in(tmp_path, isolate(tmp_path)) as made:
        yield made
