"""What tests of acts begin with: programs of somebody's own, and commands in the background."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Run
from tests.supervisor.supervised_command import Night, night_in
from tests.support import inprocess
from tests.support.environment import Isolated


@pytest.fixture
def night(tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    monkeypatch.setenv("OUTLAST_RESTART_WAIT_S", "0.05")
    with night_in(tmp_path, state) as made:
        yield made


@pytest.fixture
def start(board: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    folder = tmp_path / "program"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return inprocess.starter(board.store.local.folder)
