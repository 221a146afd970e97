"""One browser for all tests of a process, one morning to look at, and a desk for those that do something."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment
from tests.support.browser import Browser
from tests.support.environment import Isolated
from tests.web.browser import live_ui as desks
from tests.web.browser.live_ui import Desk, Morning


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with contextlib.closing(Browser()) as made:
        yield made


@pytest.fixture(scope="session")
def morning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Morning]:
    folder = tmp_path_factory.mktemp("morning")
    with desks.morning(folder, environment.isolate(folder)) as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path, state: Isolated) -> Iterator[Desk]:
    with Desk(tmp_path, state) as made:
        yield made


@pytest.fixture(scope="session")
def axe() -> str:
    return desks.axe_source()
