"""A workspace whose folder is gone comes back by `outlast restore`: whole, in its own place, however often killed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import outlast
from tests.cli.saved_tree import Tree, files, work
from tests.cli.test_hints import paste
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, need_tool
from tests.support.sweeps import Sweep

POINTS_MAX = 60


@pytest.fixture
def linked(tree: Tree) -> Tree:
    """A linked worktree with a branch of its own, in which a run did three beats and something is staged."""
    made = Tree(replace(tree.cli, folder=tree.folder.parent / "deep/linked"))
    tree.git("worktree", "add", "-q", "-b", "topic", made.folder)
    made.write(staged="staged\n", changed="two\n", **{".env": "PASSWORD=x\n"})
    made.git("add", "staged")
    work(made, until=3)
    return made


def picture(tree: Tree) -> tuple[object, ...]:
    """What must come back: files, branch, commit, index."""
    there = {name: told for name, told in files(tree.folder).items() if name != ".env"}
    words = (("symbolic-ref", "HEAD"), ("rev-parse", "HEAD"), ("ls-files", "-s"), ("status", "--porcelain"))
    return there, *(tree.git(*each).replace("?? .env\n", "") for each in words)


GONE: dict[str, Callable[[Tree, Tree], object]] = {
    "removed": lambda tree, linked: shutil.rmtree(linked.folder),
    "removed with the folder above": lambda tree, linked: shutil.rmtree(linked.folder.parent),
    "removed and pruned": lambda tree, linked: (shutil.rmtree(linked.folder), tree.git("worktree", "prune")),
    "removed by git": lambda tree, linked: tree.git("worktree", "remove", "--force", linked.folder),
    "moved away": lambda tree, linked: linked.folder.rename(linked.folder.with_name("away")),
}


def around(tree: Tree) -> tuple[object, ...]:
    """What a command that only looks, or is refused, must leave as it is."""
    names = sorted(path.name for path in tree.folder.parent.iterdir())
    return names, files(tree.folder), tree.state(), tree.git("for-each-ref"), tree.git("worktree", "list")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", GONE)
def test_a_run_whose_workspace_is_gone_gets_it_back_whole(tree: Tree, linked: Tree, how: str) -> None:
    wanted = picture(linked)
    GONE[how](tree, linked)
    before = around(tree)
    foreseen = tree.cli.ok("restore", "1411", "--dry-run", "--json").json
    assert (foreseen["folder"], foreseen["recreated"], foreseen["dry_run"]) == (
        str(linked.folder),
        True,
        True,
    )
    assert set(foreseen["written"]) == set(wanted[0])  # type: ignore[call-overload]
    assert (
        f"{linked.folder} was gone and would be made again, on branch topic"
        in tree.cli.ok("restore", "1411", "-n").err
    )
    assert around(tree) == before
    said = tree.cli.ok("restore", "1411")
    assert f"{linked.folder} was gone and is made again, on branch topic\n" in said.err
    assert "undo" not in said.err
    assert picture(linked) == wanted
    assert not (linked.folder / ".env").exists()
    assert sorted(path.name for path in linked.folder.parent.iterdir()) == sorted(
        {"linked", *(["away"] if how == "moved away" else [])}
    )
    assert tree.git("worktree", "list").count("\n") == 2
    tree.git("fsck", "--strict", "--no-dangling")
    work(linked)
    assert (linked.folder / "beat").read_text() == "5\n"


def test_secrets_come_back_with_it_when_asked_for(tree: Tree, linked: Tree) -> None:
    shutil.rmtree(linked.folder)
    assert tree.cli.ok("restore", "1411", "--with-secrets", "-n", "--json").json["secrets"] == [".env"]
    assert tree.cli.ok("restore", "1411", "--with-secrets", "--json").json["secrets"] == [".env"]
    assert (linked.folder / ".env").read_text() == "PASSWORD=x\n"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["commit", "ref", "beat", "--workspace"])
@pytest.mark.parametrize("where", ["main", "elsewhere"])
def test_a_save_of_a_worktree_that_is_gone_goes_there_and_nowhere_else(
    tree: Tree, linked: Tree, name: str, where: str
) -> None:
    found = tree.cli.ok("saves", "1411", "--json").json[0]
    wanted, mine = picture(linked), (files(tree.folder), tree.state())
    run = found["run"]
    shutil.rmtree(linked.folder)
    standing = tree.cli if where == "main" else replace(tree.cli, folder=tree.folder.parent / "elsewhere")
    standing.folder.mkdir(exist_ok=True)
    words = {
        "commit": [found["commit"][:12]],
        "ref": [found["ref"], "--workspace", linked.folder] if where == "elsewhere" else [found["ref"]],
        "beat": [f"{run}@3"],
        "--workspace": [found["commit"], "--workspace", linked.folder],
    }[name]
    assert standing.ok("restore", *words, "--json").json["recreated"]
    assert picture(linked) == wanted
    assert (files(tree.folder), tree.state()) == mine


def test_a_folder_without_a_repository_comes_back(tree: Tree) -> None:
    plain = Tree(replace(tree.cli, folder=tree.folder.parent / "plain"))
    plain.folder.mkdir()
    run = work(plain, until=2)
    wanted = files(plain.folder)
    shutil.rmtree(plain.folder)
    assert tree.cli.ok("restore", run, "-n", "--json").json["recreated"]
    assert not plain.folder.exists()
    tree.cli.ok("restore", run)
    assert files(plain.folder) == wanted


def test_a_worktree_whose_git_folder_lies_apart_comes_back(tree: Tree) -> None:
    apart = Tree(replace(tree.cli, folder=tree.folder.parent / "apart"))
    tree.git("init", "-q", f"--separate-git-dir={tree.folder.parent / 'g'}", apart.folder)
    apart.write(a="1\n")
    apart.git("add", ".")
    apart.git("commit", "-qm", "first")
    run = work(apart, until=2)
    wanted = picture(apart)
    shutil.rmtree(apart.folder)
    tree.cli.ok("restore", run)
    assert picture(apart) == wanted
    assert apart.git("worktree", "list").count("\n") == 1


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused(tree: Tree, *words: str | Path) -> Answer:
    """A command that is refused in one line and a hint, also when only asked, and changes nothing."""
    before = around(tree)
    for more in (["--dry-run"], []):
        answer = tree.cli("restore", *words, *more)
        assert answer.code in (2, 3), answer.err
        assert answer.complaint
        assert around(tree) == before
    return answer


def test_where_the_repository_is_gone_too_both_come_back(tree: Tree, linked: Tree) -> None:
    wanted = picture(linked)
    shutil.rmtree(linked.folder)
    shutil.rmtree(tree.folder / ".git")
    tree.cli.ok("restore", "1411")
    assert picture(linked) == wanted
    assert (linked.folder / ".git").is_file(), "it is a worktree of that repository, as before"
    assert (tree.folder / ".git").is_dir()


def test_a_branch_that_moved_on_is_moved_back_only_by_force(tree: Tree, linked: Tree) -> None:
    wanted = picture(linked)
    shutil.rmtree(linked.folder)
    tip = tree.git("commit-tree", "-p", "topic", "-m", "on", "topic^{tree}").strip()
    tree.git("update-ref", "refs/heads/topic", tip)
    assert "its branch topic has moved on" in refused(tree, "1411").complaint
    tree.cli.ok("restore", "1411", "--force")
    assert picture(linked) == wanted
    assert tip in tree.git("for-each-ref", "refs/outlast", "--format=%(objectname)").split()


@pytest.mark.parametrize("how", ["removed", "removed by git"])
def test_a_branch_that_is_checked_out_elsewhere_stays_there(tree: Tree, linked: Tree, how: str) -> None:
    GONE[how](tree, linked)
    tree.git("checkout", "-q", "--ignore-other-worktrees", "topic")
    for words in (["1411"], ["1411", "--force"]):
        assert "is checked out in another worktree" in refused(tree, *words).complaint
    tree.cli.ok("restore", "1411", "--to", "../new")
    assert (tree.folder.parent / "new/beat").read_text() == "3\n"


def test_a_locked_worktree_is_made_again_only_when_it_is_unlocked(tree: Tree, linked: Tree) -> None:
    tree.git("worktree", "lock", linked.folder)
    shutil.rmtree(linked.folder)
    answer = refused(tree, "1411")
    assert "is gone, but locked" in answer.complaint
    (unlock,) = re.findall("`(git .*?)`", answer.err)
    assert paste(replace(tree.cli, folder=tree.folder.parent), unlock).code == 0
    tree.cli.ok("restore", "1411")


def test_a_file_in_its_place_is_left_alone(tree: Tree, linked: Tree) -> None:
    shutil.rmtree(linked.folder)
    linked.folder.write_text("mine\n")
    answer = refused(tree, "1411")
    assert f"not a folder: {linked.folder}" in answer.complaint
    assert "hint: move it away, and do this again" in answer.err
    assert linked.folder.read_text() == "mine\n"


def test_with_saves_kept_elsewhere_by_now_the_repository_is_not_written_to(tree: Tree, linked: Tree) -> None:
    shutil.rmtree(linked.folder)
    before = files(tree.folder), tree.state()
    answer = tree.cli("restore", "1411", OUTLAST_SAVE_WHERE="shadow")
    assert answer.code == 2
    assert (files(tree.folder), tree.state()) == before
    tree.cli.ok("restore", "1411")
    assert (linked.folder / "beat").read_text() == "3\n"


# -- other commands ----------------------------------------------------------------------------------------------------


def test_saves_can_still_be_read_and_nothing_can_be_saved(tree: Tree, linked: Tree) -> None:
    listed, wanted = tree.cli.ok("saves", "1411", "--json").json, files(linked.folder)
    shutil.rmtree(linked.folder)
    before = around(tree)
    assert tree.cli.ok("saves", "1411", "--json").json == listed
    assert tree.cli.ok("diff", "1411@1", "1411@2", "--name-only").out == "beat\n"
    answer = tree.cli("diff", "1411@1")
    assert f"the workspace {linked.folder} is gone" in answer.complaint
    for words in (["save", "--workspace", linked.folder], ["save", "--workspace", "nowhere"]):
        assert "is not a folder" in tree.cli(*words).complaint
    tree.cli.ok("bisect", "1411", "--", "test", "!", "-e", "beat")
    assert around(tree) == before
    tree.cli.ok("restore", "1411", "--to", "../new", "--with-secrets")
    assert files(tree.folder.parent / "new") == wanted
    tree.cli.ok("fork", "1411", "--at", "2", "--to", "../forked", "--task", "again")
    assert (tree.folder.parent / "forked/beat").read_text() == "2\n"
    (command,) = re.findall("`(outlast restore .*?)`", answer.err)
    assert paste(tree.cli, command).code == 0
    assert (linked.folder / "beat").read_text() == "1\n"


def test_in_a_folder_that_is_gone_it_is_said_so(tree: Tree) -> None:
    (tree.folder / "below").mkdir()
    script = 'cd below; rmdir ../below; exec "$0" -m outlast saves'
    done = subprocess.run(
        [need_tool("sh"), "-c", script, sys.executable], cwd=tree.folder, env=tree.cli.environ,
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    answer = Answer(done.returncode, done.stdout, done.stderr)
    assert (answer.complaint, answer.code) == ("the folder you are in is gone", 2)


# -- killed on the way -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["removed", "removed and pruned"])
@pytest.mark.parametrize("then", ["the command", "the run"])
def test_killed_at_any_crash_point_it_ends_right_when_repeated(
    tree: Tree, linked: Tree, how: str, then: str, sweep: Sweep
) -> None:
    wanted = picture(linked)
    for nth in sweep:
        GONE[how](tree, linked)
        died = tree.cli.killed_at(nth, "restore", "1411")
        if died and then == "the command":
            tree.cli.ok("restore", "1411")
        elif died:
            with outlast.run("1411", workspace=linked.folder):
                pass
        assert picture(linked) == wanted, f"killed at crash point {nth}"
        assert tree.git("worktree", "list").count("\n") == 2, f"killed at crash point {nth}"
        assert os.listdir(linked.folder.parent) == ["linked"], f"killed at crash point {nth}"
        sweep.met(died)


def test_what_a_killed_git_left_is_no_hindrance(tree: Tree, linked: Tree) -> None:
    wanted = picture(linked)
    GONE["removed and pruned"](tree, linked)
    tree.cli.killed_at(1, "restore", "1411")
    (admin,) = (tree.folder / ".git/worktrees").iterdir()
    (admin / "locked").write_text("initializing\n")
    (made,) = linked.folder.parent.iterdir()
    shutil.rmtree(made)
    tree.cli.ok("restore", "1411")
    assert picture(linked) == wanted
    assert tree.git("worktree", "list").count("\n") == 2
