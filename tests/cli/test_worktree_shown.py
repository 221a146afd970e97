"""Folder and branch of a worktree stand wherever a run is shown, and nowhere where there is none."""

from pathlib import Path

import pytest

from outlast.workspace import worktree_marker
from tests.cli.command_line import Cli
from tests.cli.result_world import TASK, ResultWorld
from tests.workspace.gitrepo import make_repo


@pytest.fixture
def world(cli: Cli) -> ResultWorld:
    made = ResultWorld(cli)
    made.begin(a="a\n")
    made.finish()
    return made


def test_every_list_names_folder_and_branch(world: ResultWorld) -> None:
    cli, place = world.cli, {"folder": str(world.tree), "branch": f"outlast/{TASK}"}
    assert cli.ok("show", TASK, "--json").json["worktree"] == place
    assert f"worktree {world.tree}   branch outlast/{TASK}" in cli.ok("show", TASK).out
    assert cli.ok("ls", "--json").json[0]["worktree"] == place
    head, row = cli.ok("ls", "--wide").out.splitlines()
    assert head.split()[5:7] == ["WORKTREE", "BRANCH"]
    assert row.split()[5:7] == [str(world.tree), f"outlast/{TASK}"]
    report = cli.ok("report", "--since", "1h", "--json").json["runs"]
    assert [each["worktree"] for each in report] == [place]
    assert f"branch outlast/{TASK} in {world.tree}" in cli.ok("report", "--since", "1h").out


def test_the_branch_is_the_one_that_is_checked_out(world: ResultWorld) -> None:
    world.git("checkout", "-q", "-b", "elsewhere", folder=world.tree)
    assert world.cli.ok("show", TASK, "--json").json["worktree"]["branch"] == "elsewhere"
    world.git("checkout", "-q", "--detach", folder=world.tree)
    assert world.cli.ok("show", TASK, "--json").json["worktree"]["branch"] == f"outlast/{TASK}"


def test_a_run_without_a_worktree_names_none(world: ResultWorld) -> None:
    world.finish(world.cli.folder, "here")
    assert world.cli.ok("show", "here", "--json").json["worktree"] is None
    assert "  worktree " not in world.cli.ok("show", "here").out
    world.cli.ok("clean", TASK)
    assert world.cli.ok("show", TASK, "--json").json["worktree"] is None


def test_a_pipe_in_place_of_the_marker_is_not_waited_for(tmp_path: Path) -> None:
    import os

    make_repo(tmp_path / "app")
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {tmp_path / 'app' / '.git'}\n")
    os.mkfifo(tmp_path / "app" / ".git" / worktree_marker.MARKER)
    assert worktree_marker.place_of(str(folder)) is None
