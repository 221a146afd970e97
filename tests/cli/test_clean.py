"""`outlast clean`: a worktree goes only when all of it is on a branch or in a save, and says what it keeps."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import outlast
from outlast.supervisor.worktree import make
from tests.cli.command_line import Cli
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep
from tests.support.vaults import git_words, seeing
from tests.workspace.gitrepo import make_repo


@dataclass(frozen=True)
class TaskWorktree:
    """A repository, and the worktree of a task in it."""

    cli: Cli
    folder: Path

    def git(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *git_words(folder or self.cli.folder, words), *words],
            env=self.cli.environ | seeing(folder or self.cli.folder), capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def files(self) -> set[str]:
        found = (path for path in self.folder.rglob("*") if not path.is_dir())
        return {str(path.relative_to(self.folder)) for path in found} - {".git"}

    def is_gone(self) -> bool:
        listed = self.git("worktree", "list", "--porcelain")
        return not self.folder.exists() and str(self.folder) not in listed


def finish(folder: Path, task: str = "1411", *, done: bool = True) -> str:
    """A run in a folder that did one beat, and is over or not; its id."""
    with outlast.run(task, workspace=folder) as run:
        run.plan(["only"] if done else ["one", "two"])
        for beat in run.beats():
            if beat.number == 2:
                break
            beat.done(beat.number)
    return run.id


@pytest.fixture
def task(cli: Cli) -> TaskWorktree:
    made = TaskWorktree(cli, cli.folder.parent / "app.outlast" / "1411")
    made.git("init", "-q")
    for name, text in {
        ".gitignore": "*.log\n.env\nbuild/\n",
        "kept": "kept\n",
        "changed": "one\n",
        "deleted": "x\n",
    }.items():
        (cli.folder / name).write_text(text)
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    make.make(cli.folder, "1411")
    return made


def test_a_clean_worktree_goes_and_its_branch_stays(task: TaskWorktree) -> None:
    task.write(changed="two\n")
    task.git("commit", "-qam", "work", folder=task.folder)
    finish(task.folder)
    said = task.cli.ok("clean", "--json").json
    assert [(each["removed"], each["task"], each["branch"]) for each in said] == [
        (True, "1411", "outlast/1411")
    ]
    assert task.is_gone()
    assert not task.folder.parent.exists()
    assert task.git("show", "outlast/1411:changed") == "two\n"
    assert task.git("status", "--porcelain") == ""
    assert "no worktree" in task.cli.ok("clean").err


def test_what_is_not_committed_is_saved_first_and_can_be_brought_back(
    task: TaskWorktree, tmp_path: Path
) -> None:
    finish(task.folder)
    task.write(changed="staged\n")
    task.git("add", "changed", folder=task.folder)
    task.write(changed="two\n", untracked="new\n")
    (task.folder / "deleted").unlink()
    (task.folder / "link").symlink_to("kept")
    answer = task.cli.ok("clean", "1411", "--json").json[0]
    assert answer["removed"]
    assert task.is_gone()
    task.cli.ok("restore", answer["save"], "--to", tmp_path / "back")
    back = {path.name: path.read_text() for path in (tmp_path / "back").iterdir() if path.is_file()}
    back.pop(".git", None)
    assert back == {".gitignore": "*.log\n.env\nbuild/\n", "kept": "kept\n", "changed": "two\n", "untracked": "new\n", "link": "kept\n"}  # fmt: skip
    assert task.git("show", f"{answer['save']}^2:changed") == "staged\n"


def test_a_commit_on_no_branch_is_held_by_the_save(task: TaskWorktree) -> None:
    finish(task.folder)
    task.git("checkout", "-q", "--detach", folder=task.folder)
    task.git("commit", "-qm", "on no branch", "--allow-empty", folder=task.folder)
    tip = task.git("rev-parse", "HEAD", folder=task.folder).strip()
    task.cli.ok("clean")
    assert task.is_gone()
    assert "refs/outlast/" in task.git("for-each-ref", "--contains", tip, "refs/outlast/")


def test_files_that_git_ignores_keep_a_worktree_unless_they_may_go(task: TaskWorktree) -> None:
    finish(task.folder)
    task.write(**{"debug.log": "x" * 1234, ".env": "KEY=1\n"})
    (task.folder / "build").mkdir()
    (task.folder / "build" / "out.o").write_text("y" * 10)
    before = task.files()
    answer = task.cli("clean", "1411")
    assert answer.code == 1
    assert "kept" in answer.out
    assert "debug.log (ignored by git, 1,234 bytes)" in answer.err
    assert "build/ (ignored by git, 10 bytes)" in answer.err
    assert ".env (ignored by git, 6 bytes)" in answer.err
    assert task.files() == before
    assert task.cli("clean", "1411", "--dry-run").code == 1
    assert task.cli.ok("clean", "1411", "--ignored", "--dry-run").out.startswith("would go")
    assert task.files() == before
    task.cli.ok("clean", "1411", "--ignored")
    assert task.is_gone()


def test_an_ignored_file_that_the_repository_has_too_keeps_nothing(task: TaskWorktree) -> None:
    finish(task.folder)
    (task.cli.folder / ".env").write_text("KEY=1\n")
    task.write(**{".env": "KEY=1\n"})
    task.cli.ok("clean")
    assert task.is_gone()
    assert (task.cli.folder / ".env").read_text() == "KEY=1\n"


def test_what_no_save_holds_keeps_a_worktree(task: TaskWorktree) -> None:
    finish(task.folder)
    (task.cli.folder / "outlast.toml").write_text("")
    (task.folder / "outlast.toml").write_text("[save]\nbig_file_bytes = 2000\n")
    task.write(big="z" * 5000)
    os.mkfifo(task.folder / "fifo")
    said = task.cli("clean", "1411", "--ignored", "--json")
    assert said.code == 1
    assert {each["path"]: each["why"] for each in said.json[0]["kept"]} == {
        "big": "big",
        "fifo": "in no save",
    }
    foreseen = task.cli("clean", "1411", "--ignored", "--dry-run", "--json").json[0]
    assert {each["path"] for each in foreseen["kept"]} == {"big", "fifo"}
    assert {"big", "fifo", "kept"} <= task.files()


def test_a_repository_inside_keeps_a_worktree(task: TaskWorktree) -> None:
    finish(task.folder)
    task.git("init", "-q", task.folder / "inner")
    (task.folder / "inner" / "file").write_text("x")
    for words in (("clean",), ("clean", "--dry-run")):
        assert task.cli(*words).code == 1
    assert (task.folder / "inner" / ".git" / "HEAD").exists()


def test_an_untracked_secret_is_kept_apart_and_goes(task: TaskWorktree) -> None:
    finish(task.folder)
    task.write(**{"server.pem": "-----BEGIN PRIVATE KEY-----\nx\n"})
    said = task.cli.ok("clean", "--json").json[0]
    assert task.is_gone()
    assert "server.pem" not in task.git("ls-tree", "-r", "--name-only", said["save"])


def test_a_run_that_may_go_on_keeps_its_worktree(task: TaskWorktree) -> None:
    run = finish(task.folder, done=False)
    assert f"run {run} is left and may go on" in task.cli("clean").out
    assert task.cli("clean", "1411").code == 1
    assert task.files() >= {"kept"}
    task.cli.ok("cancel", "1411")
    task.cli.ok("clean", "1411")
    assert task.is_gone()


HOLDER = """
import sys, outlast
from pathlib import Path
with outlast.run("1411", workspace=Path(sys.argv[1])) as run:
    print("running", flush=True)
    sys.stdin.readline()
"""


def test_a_live_run_is_refused(task: TaskWorktree) -> None:
    with task.cli.started(sys.executable, "-c", HOLDER, str(task.folder)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "running\n"
        for words in (("clean",), ("clean", "1411", "--ignored")):
            answer = task.cli(*words)
            assert answer.code == 1
            assert "is working there" in answer.out
    assert task.files() >= {"kept"}


def test_worktrees_that_outlast_did_not_make_are_left_alone(task: TaskWorktree, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    task.git("worktree", "add", "-q", "-b", "theirs", theirs)
    finish(theirs, "theirs")
    finish(task.cli.folder, "main")
    assert "no worktree that outlast made" in task.cli("clean", "theirs").complaint
    assert "no worktree that outlast made" in task.cli("clean", "main").complaint
    assert task.cli("clean").code == 1  # only that of 1411, in which no run works yet
    assert (theirs / "kept").exists()
    assert (task.cli.folder / "kept").exists()
    assert task.files() >= {"kept"}


def test_a_locked_worktree_is_kept(task: TaskWorktree) -> None:
    finish(task.folder)
    task.git("worktree", "lock", task.folder)
    assert "locked" in task.cli("clean").out
    assert task.files() >= {"kept"}


def test_killed_at_any_crash_point_the_same_again_ends_right(
    task: TaskWorktree, tmp_path: Path, sweep: Sweep
) -> None:
    run = finish(task.folder)
    for nth in sweep:
        if not task.folder.exists():
            make.make(task.cli.folder, "1411")
        task.write(changed="two\n", untracked="new\n", **{"some.log": "ignored\n"})
        died = task.cli.killed_at(nth, "clean", "1411", "--ignored")
        if died:
            said = task.cli.ok("clean", run, "--ignored", "--json").json
            save = said[0]["save"]
            assert task.git("show", f"{save}:untracked") == "new\n", f"killed at crash point {nth}"
            assert task.git("show", f"{save}:changed") == "two\n", f"killed at crash point {nth}"
            assert task.git("show", f"{save}:kept") == "kept\n", f"killed at crash point {nth}"
        assert task.is_gone(), f"killed at crash point {nth}"
        sweep.met(died)


def test_killed_when_the_folder_was_gone_the_same_again_forgets_it(task: TaskWorktree) -> None:
    run = finish(task.folder)
    git_dir = task.cli.folder / ".git" / "worktrees" / "1411"
    make.mark(git_dir, make.Marker(task="1411", state="removing", save="0" * 40))
    shutil.rmtree(task.folder)
    assert task.cli.ok("clean", run, "--json").json[0]["removed"]
    assert not git_dir.exists()


def test_a_file_that_came_during_a_removal_is_kept_and_said(task: TaskWorktree) -> None:
    run = finish(task.folder)
    assert task.cli.killed_at(_first_deletion(task), "clean", run)
    task.write(late="somebody's\n")
    said = task.cli("clean", run, "--json")
    assert said.code == 1
    assert [(each["path"], each["why"]) for each in said.json[0]["kept"]] == [("late", "in no save")]
    assert (task.folder / "late").read_text() == "somebody's\n"
    (task.folder / "late").unlink()
    task.cli.ok("clean", run)
    assert task.is_gone()


def _first_deletion(task: TaskWorktree) -> int:
    """At which crash point a removal has deleted its first file, counted in a copy that then goes on."""
    met: list[str] = []
    copy = task.cli.folder.parent / "app.outlast" / "counted"
    make.make(task.cli.folder, "counted")
    finish(copy, "counted")
    names = task.cli.folder.parent / "points"
    task.cli.forked("clean", "counted", hook=lambda name: names.open("a").write(f"{name}\n") and None)
    met = names.read_text().split()
    return met.index("restore.deleted") + 1


def test_submodules_keep_it_and_a_person_is_told_what_to_type(task: TaskWorktree, tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other")
    (other.folder / "s.txt").write_text("s\n")
    other.git("add", ".")
    other.git("commit", "-qm", "s")
    allow = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    task.git(*allow, "add", str(other.folder), "sub", folder=task.folder)
    task.git("commit", "-qm", "with a submodule", folder=task.folder)
    finish(task.folder)
    for emptied in (False, True):  # its commits may be nowhere else, whether its files are there or not
        if emptied:
            task.git("submodule", "--quiet", "deinit", "--all", folder=task.folder)
        answer = task.cli("clean")
        assert answer.code == 1
        assert "no save holds the commits of its submodules (sub)" in answer.out
        assert f"`git worktree remove --force {task.folder}`" in answer.out
        assert not task.is_gone()
    task.git("worktree", "remove", "--force", task.folder)
    assert task.is_gone()
