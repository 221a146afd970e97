"""A store of the test's own, and `start`: `outlast.run` in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast import Run, faults
from outlast.runs.engine.beat import open_beat
from tests.support import inprocess


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def start(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield inprocess.starter(store)
    faults.arm(None)
    open_beat.set(None)
