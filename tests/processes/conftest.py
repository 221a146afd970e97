"""Fixtures: `attempt`, real processes with a mark of their own, all killed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.attempts import Attempt, attempting


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    with attempting(tmp_path) as made:
        yield made
