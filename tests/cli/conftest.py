"""A project with the command line in it, a living agent, a saved tree, and two clones to carry a run between."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.clones import Clone
from tests.cli.command_line import AGENT, Cli, LiveAgent
from tests.cli.saved_tree import Tree
from tests.supervisor.host import Host
from tests.support.environment import Isolated, isolate


@pytest.fixture
def cli(state: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in a fresh project; this process works there too."""
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Cli(folder, state)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Repositories, a home and a witness, for commands under `outlast run`."""
    with Host(tmp_path, isolate(tmp_path)) as made:
        yield made


@pytest.fixture
def agent(cli: Cli) -> Iterator[LiveAgent]:
    """A living holder of run 1411, inside the effect of its first beat."""
    with cli.started(sys.executable, "-c", AGENT) as process:
        live = LiveAgent(process)
        live.wait_for("running")
        live.wait_for("acting 1")
        yield live


@pytest.fixture
def tree(cli: Cli) -> Tree:
    made = Tree(cli)
    made.git("init", "-q")
    made.write(kept="kept\n", changed="one\n", deleted="gone soon\n")
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    return made


@pytest.fixture
def source(cli: Cli) -> Clone:
    """A clone in which a run has done two beats and was stopped in the third."""
    host = Clone(cli)
    host.git("init", "-q", "-b", "main")
    (host.folder / "kept").write_text("kept")
    (host.folder / "changed").write_text("at first")
    host.git("add", ".")
    host.git("commit", "-qm", "first")
    return host


@pytest.fixture
def there(source: Clone, tmp_path: Path) -> Clone:
    """Another clone of the same repository, with another store."""
    folder = tmp_path / "there" / "clone"
    source.git("clone", "-q", source.folder, folder)
    return source.with_store_of(tmp_path / "there" / "home").at(folder)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.outlast.tar.gz"
