"""Fixtures: `repo`, once with sha1 and once with sha256; `place`, a workspace with a history of two commits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workspace.gitrepo import GitRepo, make_repo
from tests.workspace.workspace import Workspace, placed


@pytest.fixture(params=["sha1", "sha256"])
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> GitRepo:
    return make_repo(tmp_path / "repo", request.param)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    with placed(tmp_path) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder
