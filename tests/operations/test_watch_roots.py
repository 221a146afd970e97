"""What `outlast watch` takes for its own: never a whole machine, nor what belongs to somebody else."""

import os
import subprocess
from pathlib import Path

import pytest

from outlast.errors import UsageError
from outlast.operations import watch
from outlast.store.local import Local
from tests.support import environment
from tests.support.environment import NOBODY, TIMEOUT_S, Isolated


def init(*folders: Path) -> None:
    for folder in folders:
        subprocess.run(["git", "init", "-q", folder], check=True, timeout=TIMEOUT_S)


def refused(root: Path, state: Path) -> str:
    """What is said where a root is refused. Nothing may be touched by then."""
    with pytest.raises(UsageError) as caught:
        list(watch.once([root], Local(state)))
    assert caught.value.hint
    assert not state.exists()
    return str(caught.value)


def test_the_root_and_what_holds_a_home_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    init(tmp_path / "app", tmp_path / "home/app")
    with pytest.raises(UsageError, match="/ is too much to watch"):
        watch.refuse(Path("/"))  # and no further: a test that fails here must not save the machine it runs on
    with pytest.raises(UsageError, match="is too much to watch"):
        watch.refuse(tmp_path.parent)
    (tmp_path / "link").symlink_to(tmp_path)
    for root in (tmp_path, tmp_path / "link", tmp_path / "app/.."):
        assert "is too much to watch" in refused(root, tmp_path / "state")
    assert watch.worktrees([tmp_path / "home"]) == [tmp_path / "home/app"]


def test_root_does_not_watch_what_everybody_writes_to(state: Isolated, tmp_path: Path) -> None:
    environment.need_root()
    shared = tmp_path / "shared"
    init(shared / "app")
    shared.chmod(0o1777)
    assert "is too much to watch" in refused(shared, tmp_path / "state")
    shared.chmod(0o755)
    assert watch.worktrees([shared]) == [shared / "app"]


def test_worktrees_of_others_are_watched_only_when_they_are_named(state: Isolated, tmp_path: Path) -> None:
    environment.need_root()
    root = tmp_path / "root"
    init(root / "mine", root / "theirs")
    os.chown(root / "theirs", NOBODY, NOBODY)
    assert watch.worktrees([root]) == [root / "mine"]
    assert watch.worktrees([root / "theirs"]) == [root / "theirs"]
    os.chown(root / "mine", NOBODY, NOBODY)
    assert "there is no git worktree in or under" in refused(root, tmp_path / "state")


def test_another_file_system_below_is_not_looked_into(state: Isolated, tmp_path: Path) -> None:
    environment.need_root()
    root = tmp_path / "root"
    init(root / "here")
    (root / "disk").mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", root / "disk"], capture_output=True, check=False)
    if done.returncode:
        environment.skip_or_fail("cannot mount here")
    try:
        init(root / "disk/there")
        assert watch.worktrees([root]) == [root / "here"]
        assert watch.worktrees([root / "disk"]) == [root / "disk/there"]
    finally:
        subprocess.run(["umount", "-l", root / "disk"], check=True)
