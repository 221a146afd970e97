"""Another user of this machine can plant folders, links, sockets and repositories: none of them is used."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import settings
from outlast.errors import WorkspaceRefused
from outlast.store.local import SOCKET_BYTES_MAX, Local
from outlast.supervisor.client import hook, shim
from outlast.supervisor.socket import connection
from outlast.supervisor.worktree.make import make
from outlast.workspace import repo
from tests.support.environment import NOBODY, Isolated, need_root

LISTENS = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
there = socket.socket(socket.AF_UNIX)
there.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
there.listen()
print("ready", flush=True)
while True:
    other, _ = there.accept()
    try:
        other.sendall((1).to_bytes(4, "big") + b"\\0")  # "allow"
    except OSError:
        pass  # it did not want to know
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may write to, as /tmp is, and can reach."""
    with tempfile.TemporaryDirectory(prefix="outlast-others-") as top:
        os.chmod(top, 0o755)
        folder = Path(top) / "shared"
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


@pytest.fixture
def planted(shared: Path) -> Iterator[Path]:
    """A socket at which another user answers "allow"."""
    need_root()
    path = shared / "socket"
    words = [sys.executable, "-IS", "-c", LISTENS, str(path), str(NOBODY)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path
        process.kill()


# -- the socket of a run --------------------------------------------------------------------------------------------


def test_a_hook_does_not_believe_another_user_who_allows_everything(planted: Path) -> None:
    with pytest.raises(PermissionError, match="another user"):
        hook._ask(str(planted), "run.1", "claude", b"{}")


def test_nor_does_a_shim_or_a_script(planted: Path) -> None:
    with pytest.raises(OSError, match="another user"):
        shim._Connection(str(planted))
    with pytest.raises(connection.Gone, match="another user"):
        connection.connect(str(planted))


def long_store(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    """A store with a path that is too long for a socket, and a temporary folder that everybody may write to."""
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    folder = shared.parent / ("x" * SOCKET_BYTES_MAX)
    folder.mkdir(mode=0o700)
    return Local(folder)


@pytest.mark.parametrize("plant", ["a link to a folder of ours", "a folder that others can read", "a file"])
def test_a_long_state_path_takes_no_folder_that_was_planted_for_its_socket(
    shared: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    local = long_store(shared, monkeypatch)
    usual, mine = shared / f"outlast-{os.getuid()}", shared.parent / "mine"
    mine.mkdir(mode=0o700)
    if plant.startswith("a link"):
        usual.symlink_to(mine)
    elif plant == "a file":
        usual.touch()
    else:
        usual.mkdir()
        usual.chmod(0o777)
    path = local.socket("aaaaaaaaaaaa")
    assert path.parent not in (usual, mine)
    told = os.lstat(path.parent)
    assert (told.st_uid, told.st_mode & 0o77777) == (os.getuid(), 0o40700)
    assert local.socket("aaaaaaaaaaaa") == path, "the next process looks in the same place"
    assert len(os.fsencode(path)) <= SOCKET_BYTES_MAX + len(os.fsencode(shared))
    assert list(mine.iterdir()) == []


def test_one_that_is_ours_is_taken(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = long_store(shared, monkeypatch)
    assert local.socket("aaaaaaaaaaaa").parent == shared / f"outlast-{os.getuid()}"


# -- a worktree -----------------------------------------------------------------------------------------------------


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", folder], check=True)
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one"]
    subprocess.run(words, cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    "plant", ["of another user", "open to others", "a link of another user", "the worktree itself"]
)
def test_a_worktree_is_not_made_in_a_folder_that_another_user_planted(
    shared: Path, state: Isolated, plant: str
) -> None:
    need_root()
    there, beside = repository(shared / "app"), shared / "app.outlast"
    if plant == "a link of another user":
        (shared / "elsewhere").mkdir()
        beside.symlink_to(shared / "elsewhere")
        os.lchown(beside, NOBODY, NOBODY)
    else:
        beside.mkdir()
        if plant == "open to others":
            beside.chmod(0o777)
        place = beside / "t" if plant == "the worktree itself" else beside
        place.mkdir(exist_ok=True)
        if plant != "open to others":
            os.chown(place, NOBODY, NOBODY)
    with pytest.raises(WorkspaceRefused, match="not safe"):
        make(there, "t")
    assert not list(there.glob(".git/worktrees/*"))


def test_a_worktree_is_made_again_in_the_folder_that_an_earlier_one_left(
    shared: Path, state: Isolated
) -> None:
    there = repository(shared / "app")
    before = os.umask(0o002)
    try:
        assert make(there, "t").new
        assert make(there, "u").new
    finally:
        os.umask(before)


# -- a repository -----------------------------------------------------------------------------------------------------


@pytest.fixture
def foreign(shared: Path, state: Isolated) -> Path:
    """A repository that another user made in the folder above ours."""
    need_root()
    subprocess.run(["git", "init", "-q", shared], check=True)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", shared], check=True)
    (shared / "mine").mkdir()
    return shared


def test_a_repository_that_another_user_planted_gets_no_saves(foreign: Path) -> None:
    assert repo.workspace_around(foreign / "mine") == foreign / "mine"
    found = repo.find(foreign, foreign.parent / "private")
    assert found.shadow
    assert "belongs to another user" in found.refused
    assert f"safe.directory {foreign}" in found.refused
    with pytest.raises(WorkspaceRefused, match="belongs to another user"):
        make(foreign / "mine", "t")


@pytest.mark.parametrize("how", ["listed", "listed by a variable", "all", "sudo"])
def test_one_that_git_would_use_is_used(foreign: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "sudo":
        monkeypatch.setenv("SUDO_UID", str(NOBODY))
    elif how == "listed by a variable":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(foreign))
    else:
        listed = "*" if how == "all" else str(foreign)
        subprocess.run(["git", "config", "--global", "--add", "safe.directory", listed], check=True)
    said = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=foreign, capture_output=True, check=False)
    assert said.returncode == 0, "git uses it"
    assert repo.workspace_around(foreign / "mine") == foreign
    assert not repo.find(foreign, foreign.parent / "private").shadow


def test_a_save_says_that_it_is_kept_apart(foreign: Path, state: Isolated) -> None:
    (foreign / "mine" / "a.txt").write_text("a")
    words = [sys.executable, "-m", "outlast", "save", "--workspace", str(foreign)]
    done = subprocess.run(
        words, cwd=foreign / "mine", env=state.environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "belongs to another user" in done.stderr
    assert not (foreign / ".git/refs/outlast").exists()


def test_settings_that_another_user_planted_above_do_not_count(shared: Path) -> None:
    need_root()
    ours = shared / "ours"
    ours.mkdir()
    planted = shared / "outlast.toml"
    planted.write_text('warn_at = "5"\n')
    assert settings.load(ours)["warn_at"] == "5", "our own, in a folder above"
    os.chown(planted, NOBODY, NOBODY)
    assert settings.load(ours)["warn_at"] != "5"
    os.chown(ours, NOBODY, NOBODY)
    assert settings.load(ours)["warn_at"] == "5", "of whoever owns the folder that we chose to work in"
