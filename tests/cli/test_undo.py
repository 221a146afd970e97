"""`outlast undo`: a folder goes back turn by turn, and an undo that is undone leaves no trace."""

from pathlib import Path

import pytest

import outlast
from outlast import faults
from tests.cli.command_line import Cli, LiveAgent
from tests.cli.result_world import ResultWorld
from tests.support.sweeps import Sweep


def build(cli: Cli, turns: int = 3, *, commits: bool = False) -> ResultWorld:
    """A run in the repository itself, each of whose turns changes files; the last one is open and changed some, too."""
    world = ResultWorld(cli)
    for name in ("a", "b"):
        world.write(cli.folder, name, "at first\n")
    world.commit("first")
    with outlast.run("1411", workspace=cli.folder, project=str(cli.folder / ".git"), files="keep") as run:
        run.plan([f"turn {turn}" for turn in range(1, turns + 1)])
        for beat in run.beats():
            _turn(world, beat.number, commits=commits)
            if beat.number == turns and turns > 1:
                break
            beat.done()
    return world


def _turn(world: ResultWorld, number: int, *, commits: bool) -> None:
    folder = world.cli.folder
    world.write(folder, "a", f"turn {number}\n")
    world.write(folder, f"new-{number}", "x\n")
    (folder / f"new-{number}").chmod(0o750)
    if number == 2:
        (folder / "b").unlink()
    if commits:
        world.commit(f"turn {number}")
    else:
        world.git("add", "a")
    world.write(folder, "a", f"turn {number}, and not staged\n")


def text(world: ResultWorld) -> str:
    return (world.cli.folder / "a").read_text()


def test_each_undo_goes_one_turn_back_and_each_undo_of_it_one_forth(cli: Cli) -> None:
    world = build(cli)
    states = [world.all_state()]
    shown = [text(world)]
    for _ in range(3):
        cli.ok("undo")
        states.append(world.all_state())
        shown.append(text(world))
    assert shown == [
        "turn 3, and not staged\n", "turn 2, and not staged\n", "turn 1, and not staged\n", "at first\n"
    ]  # fmt: skip
    assert "every turn of it is undone" in cli("undo").complaint
    for state in reversed(states[:-1]):
        cli.ok("undo", "--undo")
        assert world.all_state() == state
    assert "nothing of run" in cli("undo", "--undo").complaint


def test_the_whole_run_is_undone_and_brought_back(cli: Cli) -> None:
    world = build(cli)
    before = world.all_state()
    done = cli.ok("undo", "1411", "--run", "--json").json
    assert (done["what"], done["beat"], text(world)) == ("run", 0, "at first\n")
    assert world.git("status", "--porcelain") == ""
    assert cli.ok("undo", "1411", "--undo", "--json").json["what"] == "undo"
    assert world.all_state() == before


def test_commits_of_a_turn_need_force_and_come_back(cli: Cli) -> None:
    world = build(cli, commits=True)
    before = world.all_state()
    answer = cli("undo")
    assert "has moved on" in answer.complaint
    assert "undo" in answer.err
    assert "--force" in answer.err
    assert world.all_state() == before
    cli.ok("undo", "--force")
    assert world.git("log", "--format=%s").split("\n")[0] == "turn 2"
    cli.ok("undo", "--undo")
    assert world.all_state() == before


def test_a_dry_run_changes_nothing_and_says_what_would_change(cli: Cli) -> None:
    world = build(cli)
    before, saves = world.all_state(), world.saves()
    foreseen = cli.ok("undo", "--dry-run", "--json").json
    assert (foreseen["written"], foreseen["deleted"], foreseen["before"]) == (["a"], ["new-3"], None)
    assert (world.all_state(), world.saves()) == (before, saves)
    done = cli.ok("undo", "--json").json
    assert (done["written"], done["deleted"]) == (["a"], ["new-3"])


def test_what_a_person_changed_since_comes_back_with_the_undo_of_it(cli: Cli) -> None:
    world = build(cli)
    world.write(cli.folder, "mine", "mine\n")
    world.git("add", "-N", "mine")
    before = world.all_state()
    cli.ok("undo")
    assert not (cli.folder / "mine").exists()
    cli.ok("undo", "--undo")
    assert world.all_state() == before


def test_a_file_that_git_ignores_now_comes_back_with_the_undo_of_it(cli: Cli) -> None:
    world = build(cli)
    world.write(cli.folder, ".gitignore", "new-2\n")
    world.write(cli.folder, "new-2", "ignored by now, and changed\n")
    before = world.all_state()
    cli.ok("undo")
    assert (cli.folder / "new-2").read_text() == "x\n"
    cli.ok("undo", "--undo")
    assert world.all_state() == before


def test_a_run_that_goes_on_ends_what_was_undone(cli: Cli) -> None:
    world = build(cli)
    cli.ok("undo")
    with outlast.run("1411", workspace=cli.folder, project=str(cli.folder / ".git"), files="keep") as run:
        for beat in run.beats():
            world.write(cli.folder, "a", "another way\n")
            beat.done()
    assert run.is_done
    assert "has gone on since" in cli("undo", "--undo").complaint
    cli.ok("undo")
    assert text(world) == "turn 2, and not staged\n"


def test_a_folder_without_a_repository_goes_back_too(cli: Cli) -> None:
    with outlast.run("1411", workspace=cli.folder) as run:
        run.plan(["one", "two"])
        for beat in run.beats():
            (cli.folder / "a").write_text(f"{beat.number}\n")
            beat.done()
    cli.ok("undo")
    assert (cli.folder / "a").read_text() == "1\n"
    cli.ok("undo", "--undo")
    assert (cli.folder / "a").read_text() == "2\n"


@pytest.mark.parametrize("back", [False, True])
def test_killed_at_any_crash_point_the_same_command_ends_it(
    back: bool, tmp_path: Path, cli: Cli, sweep: Sweep
) -> None:
    for nth in sweep:
        folder = tmp_path / f"{back}-{nth}" / "app"
        folder.mkdir(parents=True)
        world = build(Cli(folder, cli.isolated), commits=True)
        before = world.all_state()
        if back:
            world.cli.ok("undo", "--force")
        words = ("undo", "--undo") if back else ("undo", "--force")
        died = world.cli.killed_at(nth, *words)
        answer = world.cli(*words)
        if back:
            assert answer.code == 0 or "nothing of run" in answer.err, (nth, answer)
        else:
            assert answer.code == 0, (nth, answer)
            assert text(world) in ("turn 2, and not staged\n", "turn 1, and not staged\n"), nth
            while "nothing of run" not in (answer := world.cli("undo", "--undo")).err:
                assert answer.code == 0, (nth, answer)
        assert world.all_state() == before, nth
        sweep.met(died)
    assert sweep.total > 8


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith("undo.")])
def test_every_named_point_is_met_and_survived(point: str, back: bool, cli: Cli) -> None:
    world = build(cli)
    before = world.all_state()
    if back:
        cli.ok("undo")
    words = ("undo", "--undo") if back else ("undo",)
    assert cli.killed_at_point(point, *words)
    assert "this ends it" in cli.ok(*words).err
    if not back:
        assert text(world) == "turn 2, and not staged\n"
        cli.ok("undo", "--undo")
    assert world.all_state() == before


def test_a_dry_run_leaves_the_note_of_a_cut_off_undo(cli: Cli) -> None:
    build(cli)
    assert cli.killed_at_point("undo.noted", "undo")
    (note,) = cli.root.glob("workspaces/*/undone")
    before = note.read_bytes()
    assert "cut off before it began" in cli("undo", "--undo", "--dry-run").err
    assert note.read_bytes() == before


def test_a_commit_since_a_cut_off_undo_is_not_moved_aside_without_force(cli: Cli) -> None:
    world = build(cli)
    assert cli.killed_at_point("undo.noted", "undo")
    world.commit("mine, after the kill")
    before = world.all_state()
    answer = cli("undo")
    assert (answer.code, "has moved on" in answer.err, "--force" in answer.err) == (3, True, True), answer
    assert world.all_state() == before
    cli.ok("undo", "--force")
    cli.ok("undo", "--undo")
    assert world.all_state() == before


def test_what_another_run_did_since_goes_too_and_is_named(cli: Cli) -> None:
    world = build(cli)
    before = cli.ok("undo", "1411", "--dry-run", "--json").json
    with outlast.run("1412", workspace=cli.folder, project=str(cli.folder / ".git"), files="keep") as later:
        later.plan(["change a"])
        for beat in later.beats():
            world.write(cli.folder, "a", "of the other run\n")
            beat.done()
    with outlast.run("1411", workspace=cli.folder, project=str(cli.folder / ".git"), files="keep"):
        pass  # its newest event is younger now, and the save that it goes back to is not
    foreseen = cli.ok("undo", "1411", "--dry-run")
    done = cli.ok("undo", "1411", "--json").json
    assert (before["later"], done["later"]) == ([], [later.id])
    assert f"What run {later.id} did there since would go too." in foreseen.err
    assert text(world) == "turn 2, and not staged\n"
    assert cli.ok("undo", "1411", "--undo", "--json").json["later"] == []
    assert text(world) == "of the other run\n"


def test_while_a_run_lives_in_the_folder_nothing_is_undone(cli: Cli, agent: LiveAgent) -> None:
    with outlast.run("other", workspace=cli.folder) as run:
        run.plan(["one"])
        for beat in run.beats():
            (cli.folder / "a").write_text("x\n")
            beat.done()
        for words in (("undo",), ("undo", "--force"), ("undo", "--run"), ("undo", "--dry-run")):
            answer = cli(*words)
            assert (answer.code, "is at work" in answer.err) == (2, True), answer
    assert (cli.folder / "a").read_text() == "x\n"


def test_where_no_run_worked_there_is_nothing_to_undo(cli: Cli, tmp_path: Path) -> None:
    build(cli)
    other = tmp_path / "other"
    other.mkdir()
    assert "no run has worked in" in Cli(other, cli.isolated)("undo").complaint


def test_everything_a_run_changed_is_shown_its_commits_too(cli: Cli) -> None:
    world = build(cli, commits=True)
    whole = cli.ok("diff", "1411", "--whole", "--json").json
    assert {each["path"]: each["change"] for each in whole["files"]} == {
        "a": "changed", "b": "deleted", "new-1": "added", "new-2": "added", "new-3": "added"
    }  # fmt: skip
    since = cli.ok("diff", "1411", "--json").json["files"]
    assert {each["path"] for each in since} < {each["path"] for each in whole["files"]}
    assert "--whole is of one RUN" in cli("diff", "1411", "1411", "--whole").complaint
    assert world.git("status", "--porcelain") != ""


def test_of_a_run_that_is_over_the_whole_ends_with_its_newest_save(cli: Cli) -> None:
    world = build(cli, turns=1)
    world.write(cli.folder, "later", "not the run's\n")
    found = {each["path"] for each in cli.ok("diff", "1411", "--whole", "--json").json["files"]}
    assert found == {"a", "new-1"}
