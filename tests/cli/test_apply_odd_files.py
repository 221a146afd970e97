"""`outlast apply` with links, devices, submodules, sparse checkouts and folders where files were: whole, or refused in one line."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.command_line import Cli
from tests.cli.result_world import TASK, ResultWorld


@pytest.fixture
def world(cli: Cli) -> ResultWorld:
    made = ResultWorld(cli)
    made.begin(**{"a": "a\n", "b": "b\n", "below/c": "c\n", "below/d": "d\n", ".gitignore": "*.log\n"})
    return made


def file_and_folder(world: ResultWorld) -> None:
    (world.tree / "b").unlink()
    world.write(world.tree, "b/x", "x\n")
    shutil.rmtree(world.tree / "below")
    world.write(world.tree, "below", "a file by now\n")


def folder_and_link(world: ResultWorld) -> None:
    outside = world.cli.folder.parent / "outside"
    outside.mkdir()
    (outside / "c").write_text("of somebody else\n")
    shutil.rmtree(world.tree / "below")
    (world.tree / "below").symlink_to(outside)


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("change", [file_and_folder, folder_and_link])
def test_a_folder_a_file_and_a_link_take_each_other_s_place(
    change: object, commits: bool, world: ResultWorld
) -> None:
    assert callable(change)
    change(world)
    if commits:
        world.commit("the run's", world.tree)
    world.finish()
    before = world.all_state()
    done = world.cli.ok("apply", TASK, "--json").json
    assert world.files() == world.files(world.tree)
    again = world.cli.ok("apply", TASK, "--json").json
    assert (again["how"], again["files"]) == ("nothing", [])
    assert world.files() == world.files(world.tree)
    world.cli.ok("restore", done["before"], "--force")
    assert world.all_state() == before
    if change is folder_and_link:
        assert (world.cli.folder.parent / "outside" / "c").read_text() == "of somebody else\n"


@pytest.mark.parametrize("what", ["fifo", "link to a folder", "link in place of a folder", "empty folder"])
def test_what_is_no_file_is_in_the_way(what: str, world: ResultWorld) -> None:
    outside = world.cli.folder.parent / "outside"
    outside.mkdir()
    (outside / "c").write_text("c\n")
    world.write(world.tree, "new/file", "new\n")
    world.write(world.tree, "below/c", "the run's\n")
    if what == "fifo":
        (world.cli.folder / "new").mkdir()
        os.mkfifo(world.cli.folder / "new/file")
    elif what == "empty folder":
        (world.cli.folder / "new/file").mkdir(parents=True)
    elif what == "link to a folder":
        (world.cli.folder / "new").symlink_to(outside)
    else:
        shutil.rmtree(world.cli.folder / "below")
        (world.cli.folder / "below").symlink_to(outside)
    world.finish()
    before = world.git_state()
    for words in ((), ("--dry-run",)):
        answer = world.cli("apply", TASK, *words)
        assert answer.code == 2, answer
        assert ("below/c" if what == "link in place of a folder" else "new/file") in answer.out
    assert world.git_state() == before
    assert [path.name for path in outside.iterdir()] == ["c"]
    assert (outside / "c").read_text() == "c\n"


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_is_told_not_to_look_at_is_in_the_way_too(mark: str, world: ResultWorld) -> None:
    world.git("update-index", mark, "b")
    world.write(world.cli.folder, "b", "mine, and git does not know\n")
    world.write(world.tree, "b", "the run's\n")
    world.finish()
    before = world.all_state()
    for words in ((), ("--dry-run",)):
        answer = world.cli("apply", TASK, *words)
        assert (answer.code, answer.out.splitlines()) == (2, ["!  b   changed, and not committed"])
    assert world.all_state() == before


def test_what_a_sparse_checkout_here_leaves_out_comes_as_a_commit_or_not_at_all(world: ResultWorld) -> None:
    """An uncommitted change of such a file would be in no file and in no commit; and the next commit here would delete the file."""
    world.git("sparse-checkout", "set", "--no-cone", "/*", "!/below/")
    world.write(world.tree, "a", "the run's\n")
    world.write(world.tree, "below/c", "the run's\n")
    world.write(world.tree, "below/new", "new\n")
    (world.tree / "below/d").unlink()
    world.finish()
    before = world.all_state()
    answer = world.cli("apply", TASK)
    assert answer.code == 2
    assert [line.split()[1] for line in answer.out.splitlines()] == ["below/c", "below/d", "below/new"]
    assert "--branch NAME" in answer.err
    assert world.all_state() == before
    world.commit("the run's", world.tree)
    world.cli.ok("apply", TASK)
    assert world.git("status", "--porcelain") == ""
    assert (world.cli.folder / "a").read_text() == "the run's\n"
    assert not (world.cli.folder / "below").exists()


def submodule(world: ResultWorld) -> Path:
    source = world.cli.folder.parent / "source"
    source.mkdir()
    world.git("init", "-q", "-b", "main", folder=source)
    for name, value in (("user.name", "me"), ("user.email", "me@example.org")):
        world.git("config", "--global", name, value)
    world.write(source, "s", "s\n")
    world.commit("first", source)
    allow = ("-c", "protocol.file.allow=always", "submodule", "-q")
    world.git(*allow, "add", str(source), "module")
    world.commit("with a submodule")
    world.git("merge", "-q", "main", folder=world.tree)
    return world.tree / "module"


@pytest.mark.parametrize("what", ["not here", "as it was", "changed", "another commit", "committed"])
def test_a_submodule_stays_one(what: str, world: ResultWorld) -> None:
    there = submodule(world)
    was = world.git("ls-tree", "HEAD", "module")
    if what != "not here":
        world.git(
            "-c", "protocol.file.allow=always", "submodule", "-q", "update", "--init", folder=world.tree
        )
    if what in ("changed", "another commit", "committed"):
        world.write(there, "s", "the run's\n")
    if what in ("another commit", "committed"):
        world.commit("inside", there)
    if what == "committed":
        world.git("add", "module", folder=world.tree)
        world.git("commit", "-qm", "another commit", folder=world.tree)
        was = world.git("ls-tree", f"outlast/{TASK}", "module")
    world.write(world.tree, "a", "the run's\n")
    world.finish()
    done = world.cli.ok("apply", TASK, "--json").json
    assert [each["path"] for each in done["files"]] == (["a", "module"] if what == "committed" else ["a"])
    assert done["submodules_left"] == (["module"] if what in ("changed", "another commit") else [])
    assert world.git("ls-files", "-s", "module").split()[:2] == was.split()[0:3:2]
    assert (world.cli.folder / "module/s").read_text() == "s\n"
    world.cli.ok("apply", TASK, "--branch", "taken")
    assert world.git("ls-tree", "taken", "module") == was
    world.git("config", "diff.submodule", "log")
    assert "module/s" not in world.cli.ok("apply", TASK, "--patch").out
    shutil.rmtree(world.tree)
    assert world.cli.ok("apply", TASK, "--dry-run", "--json").json["files"] == []


def test_a_name_that_cannot_be_a_branch_is_refused(world: ResultWorld) -> None:
    world.finish()
    world.git("checkout", "-q", "-b", "other")
    refs = world.git("for-each-ref")
    for name, word in (
        ("@{-1}", "not a name"),
        ("main/sub", "branch main exists"),
        ("outlast", "exists, so"),
    ):
        answer = world.cli("apply", TASK, "--branch", name)
        assert (answer.code, word in answer.complaint) == (2, True), answer
        assert world.cli("apply", TASK, "--branch", name, "--dry-run").code == 2
    assert world.git("for-each-ref") == refs
