"""Worktrees of tasks: made whole by the same call again, whatever was half made, and nothing of anybody's is touched."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.errors import OutlastError, UsageError, WorkspaceRefused
from outlast.settings import load
from outlast.supervisor.worktree import make
from outlast.supervisor.worktree.copy import copy_into
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.sweeps import Sweep
from tests.workspace.gitrepo import GitRepo, make_repo


@pytest.fixture
def repo(tmp_path: Path, state: Isolated) -> GitRepo:
    made = make_repo(tmp_path / "app")
    (made.folder / "a.txt").write_text("one\n")
    (made.folder / "below").mkdir()
    (made.folder / "below" / "b.sh").write_text("#!/bin/sh\n")
    (made.folder / "below" / "b.sh").chmod(0o755)
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    return made


def state_of(repo: GitRepo) -> tuple[bytes, ...]:
    """Everything that a refused call must leave as it was."""
    around = sorted(str(path) for path in repo.folder.parent.iterdir()) + sorted(os.listdir(repo.git_dir))
    around = [name for name in around if name != "outlast-worktrees.lock"]
    return repo.git("for-each-ref"), repo.git("worktree", "list", "--porcelain"), repr(around).encode()


def check_whole(repo: GitRepo, made: make.Made) -> None:
    tree = GitRepo(made.folder, repo.algo)
    assert tree.git("status", "--porcelain") == b""
    assert tree.git("symbolic-ref", "--short", "HEAD").decode().strip() == made.branch
    assert (made.folder / "a.txt").read_text() == "one\n"
    assert (made.folder / "below" / "b.sh").stat().st_mode & 0o111
    listed = repo.git("worktree", "list", "--porcelain").decode()
    assert listed.count(f"worktree {made.folder}\n") == 1
    assert "locked" not in listed
    assert "prunable" not in listed


def test_a_worktree_lies_beside_the_repository_on_a_branch_of_its_task(repo: GitRepo) -> None:
    made = make.make(repo.folder / "below", "1411")
    assert made == make.Made(
        repo.folder.parent / "app.outlast" / "1411", "outlast/1411", repo.folder, new=True
    )
    check_whole(repo, made)
    again = make.make(repo.folder, "1411")
    assert again == make.Made(made.folder, made.branch, repo.folder, new=False)
    assert repo.git("status", "--porcelain") == b""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "task", ["a/b", "..", ".", "", "x" * 300, "grün 🎉", "-n", "a b~^:?*[\\", "a.lock", "\n"]
)
def test_any_task_has_a_valid_worktree_of_its_own(repo: GitRepo, task: str) -> None:
    made, other = make.make(repo.folder, task), make.make(repo.folder, task + "2")
    check_whole(repo, made)
    assert made.folder != other.folder
    assert made.folder.parent == repo.folder.parent / "app.outlast"


def test_a_task_that_begins_with_a_sign_takes_no_other_tasks_folder(repo: GitRepo) -> None:
    made = [make.make(repo.folder, task) for task in ("-x", "x", "--x")]
    assert len({each.folder for each in made}) == 3
    for each in made:
        check_whole(repo, each)


def test_a_base_and_a_folder_can_be_named(repo: GitRepo) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "second")
    made = make.make(repo.folder, "1411", to=repo.folder.parent / "deep" / "there", base="HEAD~1")
    assert made.folder == repo.folder.parent / "deep" / "there"
    assert repo.git("rev-parse", "outlast/1411") == repo.git("rev-parse", "HEAD~1")
    check_whole(repo, made)


def test_where_a_branch_is_called_outlast_the_tasks_branch_stands_beside_it(repo: GitRepo) -> None:
    repo.git("branch", "outlast")
    made = make.make(repo.folder, "1411")
    assert made.branch == "outlast-1411"
    assert made.folder.name == "1411"
    check_whole(repo, made)


def test_from_a_worktree_another_one_is_made_beside_the_repository(repo: GitRepo) -> None:
    first = make.make(repo.folder, "1411")
    second = make.make(first.folder, "1412")
    assert second.folder == repo.folder.parent / "app.outlast" / "1412"
    check_whole(repo, second)


def test_work_in_a_worktree_is_never_reset(repo: GitRepo) -> None:
    made = make.make(repo.folder, "1411")
    tree = GitRepo(made.folder, repo.algo)
    (made.folder / "a.txt").write_text("changed\n")
    (made.folder / "below" / "b.sh").unlink()
    tree.git("checkout", "-qb", "of-the-agent")
    tree.git("commit", "-qm", "work", "--allow-empty")
    before = tree.git("status", "--porcelain"), tree.git("rev-parse", "HEAD")
    again = make.make(repo.folder, "1411")
    assert (again.branch, again.new) == ("of-the-agent", False)
    assert (tree.git("status", "--porcelain"), tree.git("rev-parse", "HEAD")) == before


def test_a_branch_with_work_is_gone_on_with(repo: GitRepo) -> None:
    made = make.make(repo.folder, "1411")
    GitRepo(made.folder, repo.algo).git("commit", "-qm", "work", "--allow-empty")
    tip = repo.git("rev-parse", "outlast/1411")
    repo.git("worktree", "remove", made.folder)
    assert make.make(repo.folder, "1411").new
    assert repo.git("rev-parse", "outlast/1411") == tip


# -- killed ------------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from outlast.supervisor.worktree import make as worktrees
left = int(sys.argv[2])
def hook(name, args):
    global left
    if name in ("subprocess.Popen", "open", "os.rename", "os.mkdir", "os.remove", "shutil.copyfile"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
worktrees.make(Path(sys.argv[1]), "1410")  # everything is imported, and the parent folder there
sys.addaudithook(hook)
worktrees.make(Path(sys.argv[1]), "1411")
"""


def test_killed_before_any_step_the_same_call_ends_with_the_same_worktree(
    repo: GitRepo, tmp_path: Path, sweep: Sweep
) -> None:
    made = repo.folder.parent / "app.outlast" / "1411"
    for nth in sweep:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, repo.folder, str(nth)],
            timeout=TIMEOUT_S,
            capture_output=True,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        found = make.make(repo.folder, "1411")
        assert (found.folder, found.branch) == (made, "outlast/1411")
        check_whole(repo, found)
        repo.git("worktree", "remove", found.folder)
        repo.git("branch", "-qD", found.branch)
        sweep.met(done.returncode != 0)
    assert sweep.total > 8


def _branch_only(repo: GitRepo, folder: Path) -> None:
    repo.git("branch", "outlast/1411")


def _unfilled(repo: GitRepo, folder: Path) -> None:
    repo.git("worktree", "add", "-q", "--no-checkout", "-b", "outlast/1411", folder)


def _half_filled(repo: GitRepo, folder: Path) -> None:
    make.make(repo.folder, "1411")
    git_dir = repo.git_dir / "worktrees" / "1411"
    make.mark(git_dir, make.Marker(task="1411", state="making"))
    (git_dir / "index").unlink()
    (git_dir / "index.outlast").write_bytes(b"half")
    (git_dir / "index.outlast.lock").write_bytes(b"")
    (folder / "a.txt").write_text("o")
    shutil.rmtree(folder / "below")


def _folder_gone(repo: GitRepo, folder: Path) -> None:
    make.make(repo.folder, "1411")
    shutil.rmtree(folder)


def _folder_empty(repo: GitRepo, folder: Path) -> None:
    folder.mkdir(parents=True)


def _initializing(repo: GitRepo, folder: Path) -> None:
    """As `git worktree add` leaves it when it is killed early: an entry without HEAD, locked."""
    repo.git("branch", "outlast/1411")
    entry = repo.git_dir / "worktrees" / "1411"
    entry.mkdir(parents=True)
    (entry / "locked").write_text("initializing")
    (entry / "gitdir").write_text(f"{folder}/.git\n")


@pytest.mark.parametrize(
    "left",
    [_branch_only, _unfilled, _half_filled, _folder_gone, _folder_empty, _initializing],
    ids=lambda each: each.__name__,
)
def test_whatever_a_killed_call_left_is_made_whole(repo: GitRepo, left: object) -> None:
    folder = repo.folder.parent / "app.outlast" / "1411"
    assert callable(left)
    left(repo, folder)
    made = make.make(repo.folder, "1411")
    assert (made.folder, made.branch) == (folder, "outlast/1411")
    check_whole(repo, made)


def test_the_index_of_a_worktree_whose_folder_is_gone_is_kept(repo: GitRepo) -> None:
    made = make.make(repo.folder, "1411")
    tree = GitRepo(made.folder, repo.algo)
    (made.folder / "staged").write_text("staged\n")
    tree.git("add", "staged")
    shutil.rmtree(made.folder)
    make.make(repo.folder, "1411")
    assert tree.git("status", "--porcelain") == b"A  staged\n"


# -- refused -----------------------------------------------------------------------------------------------------------


def refused(repo: GitRepo, kind: type[OutlastError], match: str, **given: object) -> None:
    """One clear error with a hint, and nothing was made."""
    before = state_of(repo)
    with pytest.raises(kind, match=match) as caught:
        make.make(repo.folder, "1411", **given)  # type: ignore[arg-type]
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert state_of(repo) == before


def test_an_unknown_base_is_refused(repo: GitRepo) -> None:
    for base in ("nobody", "-f", "--all", "HEAD:a.txt"):
        refused(repo, UsageError, "is not a commit", base=base)


def test_a_folder_inside_the_repository_is_refused(repo: GitRepo) -> None:
    for to in (repo.folder, repo.folder / "in", repo.git_dir / "in"):
        refused(repo, WorkspaceRefused, "inside the repository", to=to)


def test_a_folder_that_is_something_else_is_refused(repo: GitRepo) -> None:
    folder = repo.folder.parent / "taken"
    folder.mkdir()
    (folder / "mine").write_text("precious")
    refused(repo, WorkspaceRefused, "not a worktree of", to=folder)
    (repo.folder.parent / "file").write_text("a file")
    refused(repo, WorkspaceRefused, "not a worktree of", to=repo.folder.parent / "file")
    make_repo(repo.folder.parent / "clone")
    refused(repo, WorkspaceRefused, "not a worktree of", to=repo.folder.parent / "clone")
    repo.git("worktree", "add", "-q", "-b", "theirs", repo.folder.parent / "theirs")
    refused(repo, WorkspaceRefused, "on theirs", to=repo.folder.parent / "theirs")
    assert (folder / "mine").read_text() == "precious"


def test_a_branch_that_is_checked_out_elsewhere_is_refused(repo: GitRepo) -> None:
    repo.git("worktree", "add", "-q", "-b", "outlast/1411", repo.folder.parent / "elsewhere")
    refused(repo, WorkspaceRefused, "checked out in .*elsewhere")
    repo.git("worktree", "remove", repo.folder.parent / "elsewhere")
    repo.git("checkout", "-q", "outlast/1411")
    refused(repo, WorkspaceRefused, "checked out in .*app")


def test_a_repository_without_a_commit_or_without_files_is_refused(tmp_path: Path) -> None:
    unborn = make_repo(tmp_path / "unborn")
    refused(unborn, WorkspaceRefused, "no commit yet")
    unborn.git("init", "-q", "--bare", tmp_path / "bare")
    for folder in (tmp_path / "bare", tmp_path):
        with pytest.raises(WorkspaceRefused) as caught:
            make.make(folder, "1411")
        assert caught.value.hint


# -- copying -----------------------------------------------------------------------------------------------------------


def test_untracked_files_are_copied_with_their_modes_and_tracked_ones_are_not(repo: GitRepo) -> None:
    made = make.make(repo.folder, "1411")
    (repo.folder / ".gitignore").write_text(".env*\n")
    (repo.folder / ".env").write_text("KEY=1\n")
    (repo.folder / ".env").chmod(0o600)
    (repo.folder / ".env.local").symlink_to(".env")
    (repo.folder / "config").mkdir()
    (repo.folder / "config" / "local.yml").write_text("a: 1\n")
    (repo.folder / "config" / "other.yml").write_text("b: 1\n")
    (repo.folder / "a.txt").write_text("changed here\n")
    copied = copy_into(made, [".env*", "config/local.yml", "a.txt"])
    assert copied.files == (".env", ".env.local", "config/local.yml")
    assert (made.folder / ".env").stat().st_mode & 0o777 == 0o600
    assert (made.folder / ".env.local").readlink() == Path(".env")
    assert (made.folder / "a.txt").read_text() == "one\n"
    assert not (made.folder / "config" / "other.yml").exists()
    (made.folder / ".env").write_text("KEY=the agent's\n")
    assert copy_into(made, [".env*"]).files == ()
    assert (made.folder / ".env").read_text() == "KEY=the agent's\n"


def test_nothing_is_copied_from_or_to_outside(repo: GitRepo, tmp_path: Path) -> None:
    (repo.folder / "out").symlink_to(tmp_path / "elsewhere")
    repo.git("add", "out")
    repo.git("commit", "-qm", "a link in the place of a folder")
    made = make.make(repo.folder, "1411")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secret").write_text("s")
    (repo.folder / "out").unlink()
    (repo.folder / "out").mkdir()
    (repo.folder / "out" / "x.env").write_text("x")
    (repo.folder / "l1.env").symlink_to(tmp_path / "secret")
    (repo.folder / "l2.env").symlink_to("../secret")
    (repo.folder / "l3.env").symlink_to(
        repo.folder / "a.txt"
    )  # the agent would write into the repository itself
    os.mkfifo(repo.folder / "fifo.env")
    for bad in ("/etc/passwd", "../x", "a/../../x", ""):
        with pytest.raises(UsageError, match="inside the repository"):
            copy_into(made, [bad])
    copied = copy_into(made, ["**/*.env"])
    assert copied.files == ()
    assert {name for name, _ in copied.skipped} >= {"out/x.env", "l1.env", "l2.env", "l3.env"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_copied_and_set_up_are_settings(repo: GitRepo, state: Isolated) -> None:
    (repo.folder / "outlast.toml").write_text('[worktree]\ncopy = [".env*", "config/local.yml"]\n')
    assert load(repo.folder)["worktree_copy"] == ".env*,config/local.yml"
    (repo.folder / "outlast.toml").write_text('[worktree]\nsetup = "make install"\n')
    with pytest.raises(UsageError, match="only your own file may set it"):
        load(repo.folder)
    (repo.folder / "outlast.toml").write_text("[worktree]\ncopy = [1]\n")
    with pytest.raises(UsageError, match="is invalid"):
        load(repo.folder)
