"""Fixtures: `repo`, once with sha1 and once with sha256."""

from pathlib import Path

import pytest

from tests.workspace.gitrepo import GitRepo, make_repo


@pytest.fixture(params=["sha1", "sha256"])
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> GitRepo:
    return make_repo(tmp_path / "repo", request.param)
