"""What tests of acts begin with: programs of somebody's own, and commands in the background."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Run
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import Store
from tests.dashboard.dashboard import Dashboard
from tests.dashboard.pen import Pen
from tests.dashboard.saved_work import Work, git
from tests.supervisor.supervised_command import Night
from tests.support import inprocess
from tests.support.environment import TIMEOUT_S, Isolated


@pytest.fixture
def night(tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    monkeypatch.setenv("OUTLAST_RESTART_WAIT_S", "0.05")
    with Night(tmp_path, state) as made:
        yield made


@pytest.fixture
def start(dashboard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    folder = tmp_path / "program"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return inprocess.starter(dashboard.store.local.folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def pen(store: Store) -> Iterator["Pen"]:
    pen = Pen(store)
    yield pen
    pen.release()


@pytest.fixture
def dashboard(state: Isolated) -> Iterator[Dashboard]:
    store = open_store(state.state_home / "outlast")
    yield Dashboard(store)
    store.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page leaves out what takes it too long; here the machine may be busy."""
    monkeypatch.setenv(TIMING, f"dashboard.count_files_s={TIMEOUT_S}")


@pytest.fixture
def work(state: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("one\ntwo\nthree\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    store = open_store(None)
    yield Work(folder, store)
    store.close()
