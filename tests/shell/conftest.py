"""A project for each test, once with bash and once with zsh."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell.project import SHELLS, Project, project


@pytest.fixture(params=SHELLS)
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project whose scripts are run by each shell."""
    with project(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def in_bash(tmp_path: Path) -> Iterator[Project]:
    """A project whose scripts are run by bash, for what does not depend on the shell."""
    with project(tmp_path) as made:
        yield made
