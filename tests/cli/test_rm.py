"""`outlast rm`: a run is forgotten whole, never while something of it is needed, and nothing of anybody else's goes."""

import json
import os
import pty
from pathlib import Path

import pytest

import outlast
from outlast import faults
from outlast.errors import EffectInDoubt
from tests.cli.command_line import Cli, LiveAgent
from tests.cli.result_world import ResultWorld
from tests.support.commands import ARGV
from tests.support.sweeps import Sweep
from tests.support.vaults import vault_of


def begin(cli: Cli, task: str = "1411", beats: int = 2) -> str:
    """A run with saves, payloads and a child, that is not over."""
    with outlast.run(task, workspace=cli.folder, project=str(cli.folder), files="keep") as run:
        run.plan([f"turn {turn}" for turn in range(beats + 1)])
        for beat in run.beats():
            if beat.number > beats:
                break
            (cli.folder / "a").write_text(f"{task} {beat.number}\n")
            beat.decide("big", lambda: "x" * 20_000 + task)
            with beat.run("part") as child:
                child.plan(["only"])
                for part in child.beats():
                    part.done()
            beat.done()
    return run.id


@pytest.fixture
def world(cli: Cli) -> ResultWorld:
    made = ResultWorld(cli)
    made.write(cli.folder, "a", "at first\n")
    made.commit("first")
    return made


def traces(cli: Cli, run: str) -> list[str]:
    """What is left of a run in the state folder, by name and in the vaults' refs."""
    found = [str(path) for path in cli.root.rglob("*") if run in path.name]
    connection_rows = [row for rows in cli.rows().values() for row in rows if run in map(str, row)]
    return [*found, *map(str, connection_rows)]


def test_nothing_of_the_run_is_left_and_all_else_is(world: ResultWorld) -> None:
    cli = world.cli
    mine, other = begin(cli), begin(cli, "other")
    cli.ok("save", "-m", "by hand")
    before, refs = world.all_state(), [ref for ref in world.saves() if mine not in ref]
    shown = cli.ok("show", other, "--json").json
    assert traces(cli, mine)
    done = cli.ok("rm", "1411", "--yes", "--json").json
    assert (done["run"], done["saves"], len(done["children"]), done["saves_left"]) == (mine, 4, 2, 0)
    assert traces(cli, mine) == []
    assert world.saves() == refs
    assert world.all_state() == before
    assert cli.ok("show", other, "--json").json == shown
    cli.ok("restore", f"{other}@1")
    assert "no such run" in cli("rm", mine, "--yes").complaint
    cli.ok("doctor", "--all")


def test_a_dry_run_takes_nothing_away(world: ResultWorld) -> None:
    run = begin(world.cli)
    before, rows, refs = traces(world.cli, run), world.cli.rows(), world.saves()
    answer = world.cli.ok("rm", run, "--dry-run")
    assert "4 saves" in answer.err
    assert "It could still go on" in answer.err
    assert (traces(world.cli, run), world.cli.rows(), world.saves()) == (before, rows, refs)


def test_without_a_terminal_it_needs_a_yes(world: ResultWorld) -> None:
    run = begin(world.cli)
    answer = world.cli("rm", run)
    assert answer.code == 2
    assert "--yes" in answer.err
    assert world.cli.ok("show", run)


@pytest.mark.parametrize(("typed", "gone"), [("n", False), ("y", True)])
def test_at_a_terminal_it_asks(typed: str, gone: bool, world: ResultWorld) -> None:
    run = begin(world.cli)
    ours, theirs = pty.openpty()
    try:
        import subprocess

        process = subprocess.Popen(
            [*ARGV, "rm", run],
            cwd=world.cli.folder,
            env=world.cli.environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.write(ours, typed.encode() + b"\n")
        assert process.wait(60) == (0 if gone else 2)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (world.cli("show", run).code != 0) == gone


def test_killed_at_any_crash_point_it_can_be_typed_again(
    tmp_path: Path, world: ResultWorld, sweep: Sweep
) -> None:
    for nth in sweep:
        folder = tmp_path / str(nth) / "app"
        folder.mkdir(parents=True)
        mine = ResultWorld(Cli(folder, world.cli.isolated))
        mine.commit("first")
        run = begin(mine.cli, f"task-{nth}")
        died = mine.cli.killed_at(nth, "rm", run, "--yes")
        answer = mine.cli("rm", run, "--yes")
        assert answer.code == 0 or "no such run" in answer.err, (nth, answer)
        mine.cli.ok("gc")
        assert traces(mine.cli, run) == [], nth
        sweep.met(died)
    assert sweep.total > 4


@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith("rm.")])
def test_every_named_point_is_met_and_survived(point: str, world: ResultWorld) -> None:
    other = begin(world.cli, "other")
    run, before = begin(world.cli), world.all_state()
    assert world.cli.killed_at_point(point, "rm", run, "--yes")
    assert world.cli.ok("show", run)
    world.cli.ok("rm", run, "--yes")
    assert traces(world.cli, run) == []
    assert world.all_state() == before
    world.cli.ok("restore", f"{other}@1")


def test_the_saves_that_a_fork_needs_stay(world: ResultWorld) -> None:
    cli = world.cli
    run = begin(cli, beats=3)
    fork = json.loads(cli.ok("fork", run, "--at", "1", "--task", "again", "--yes", "--json").out)["run"]
    with outlast.run("again", workspace=cli.folder, project=str(cli.folder), files="keep") as again:
        for beat in again.beats():
            if beat.number == 3:
                break
            beat.done()
    assert again.id == fork
    assert cli.ok("rm", run, "--dry-run", "--json").json["saves_left"] == 2
    done = cli.ok("rm", run, "--yes", "--json").json
    assert (done["saves"], done["saves_left"]) == (3, 2)
    assert [ref for ref in world.saves() if run in ref] == [f"refs/outlast/{run}/kept"]
    cli.ok("restore", f"{fork}@1")
    assert (cli.folder / "a").read_text() == "1411 1\n"
    cli.ok("rm", fork, "--yes")


def test_a_run_at_work_stays(cli: Cli, agent: LiveAgent) -> None:
    for words in ((), ("--force",), ("--dry-run",)):
        assert "is at work" in cli("rm", "1411", "--yes", *words).complaint
    assert cli.ok("show", "1411")


def test_with_an_effect_in_doubt_it_stays_unless_forced(cli: Cli) -> None:
    def pay() -> None:
        raise OSError("the line went dead")

    with pytest.raises(EffectInDoubt), outlast.run("1411", project=str(cli.folder)) as run:
        for beat in run.beats():
            beat.act("pay", pay)
    answer = cli("rm", "1411", "--yes")
    assert "in doubt" in answer.complaint
    assert "outlast effects" in answer.err
    assert cli.ok("show", "1411")
    cli.ok("rm", "1411", "--yes", "--force")
    assert cli("show", "1411").code == 2


def test_work_in_its_worktree_that_nobody_committed_stays_unless_forced(world: ResultWorld) -> None:
    world.begin(b="b\n")
    run = world.finish()
    world.write(world.tree, "new", "new\n")
    answer = world.cli("rm", run, "--yes")
    assert "nobody committed" in answer.complaint
    assert "outlast apply" in answer.err
    assert vault_of(world.cli.folder)
    world.commit("the run's", world.tree)
    before = world.files(world.tree)
    world.cli.ok("rm", run, "--yes")
    assert world.files(world.tree) == before
    again = world.finish()
    world.write(world.tree, "new", "newer\n")
    world.cli.ok("rm", again, "--yes", "--force")
    assert (world.tree / "new").read_text() == "newer\n"


@pytest.mark.parametrize("cut_off", [False, True])
def test_what_an_undo_took_away_is_not_forgotten_with_the_run_unless_forced(
    cut_off: bool, world: ResultWorld
) -> None:
    run = begin(world.cli)
    world.write(world.cli.folder, "mine", "never committed\n")
    if cut_off:
        assert world.cli.killed_at_point("undo.restored", "undo", "--run")
    else:
        world.cli.ok("undo", "--run")
    assert not (world.cli.folder / "mine").exists()
    for words in (("--yes",), ("--dry-run",)):
        answer = world.cli("rm", run, *words)
        assert (answer.code, "--undo" in answer.err) == (2, True), answer
    world.cli.ok("undo", "--undo")
    assert (world.cli.folder / "mine").read_text() == "never committed\n"
    world.cli.ok("undo", "--run")
    world.cli.ok("rm", run, "--yes", "--force")


def test_where_the_folder_is_gone_it_says_that_the_saves_are_alone(world: ResultWorld) -> None:
    world.begin(b="b\n")
    world.write(world.tree, "new", "new\n")
    run = world.finish()
    world.cli.ok("clean", "1411")
    assert f"{world.tree} is gone" in world.cli.ok("rm", run, "--dry-run").err


def test_a_part_of_a_run_goes_with_it_only(world: ResultWorld) -> None:
    run = begin(world.cli)
    child = world.cli.ok("show", run, "--json").json["children"][0]["run"]
    answer = world.cli("rm", child, "--yes")
    assert f"is part of run {run}" in answer.complaint
