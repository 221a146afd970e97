import itertools
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outlast
from tests.cli.conftest import Cli, LiveAgent, work
from tests.support.environment import TIMEOUT_S


def parent_with_child(beats: int = 1) -> None:
    """A run whose first beat has a child with a large result, left after some beats."""
    with outlast.run("1411", goal="g", budget="500k") as run:
        run.plan(["one", "two", "three"])
        for beat in run.beats():
            if beat.number > beats:
                break
            with beat.run("child") as child:
                child.plan(["inner"])
                for inner in child.beats():
                    inner.act("comment", lambda text: text, "x" * 9_000)
                    inner.done("y" * 9_000)
            beat.spend(input=1000)
            beat.done(beat.number)


def comparable(shown: dict[str, Any]) -> dict[str, Any]:
    """What must be the same wherever the run goes on."""
    names = (
        "run",
        "task",
        "goal",
        "plan",
        "cursor",
        "beats",
        "completed",
        "effects",
        "memory",
        "budget",
        "children",
    )
    return {name: shown[name] for name in names}


# -- fork --------------------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_past_and_has_keys_of_its_own_afterwards(cli: Cli) -> None:
    source = work(beats=4)
    answer = cli.ok("fork", "1411", "--at", "2", "--task", "other", "--yes")
    shown, old = cli.show("other"), cli.show(source)
    assert answer.out.split() == ["other", shown["run"]]
    assert (shown["status"], shown["beats"], shown["attempts"]) == ("interrupted", 2, [])
    assert (shown["fork"]["run"], shown["fork"]["beat"]) == (source, 2)
    assert shown["completed"] == old["completed"][:2]
    assert shown["effects"] == old["effects"][:2]
    performed = []
    work("other", act=lambda **given: performed.append(given["issue"]))
    assert performed == [3, 4, 5]
    new = cli.show("other")
    assert new["status"] == "done"
    assert not {effect["key"] for effect in new["effects"][2:]} & {effect["key"] for effect in old["effects"]}
    assert cli.show(source) == old


def test_a_fork_before_the_first_beat_has_only_the_plan(cli: Cli) -> None:
    work(beats=2)
    cli.ok("fork", "1411", "--at", "0", "--yes")
    shown = cli.show("1411-fork-1")
    assert (shown["beats"], shown["effects"], shown["plan_total"]) == (0, [], 5)
    work("1411-fork-1")
    assert cli.show("1411-fork-1")["status"] == "done"


def test_later_effects_are_listed_and_asked_about(cli: Cli) -> None:
    work(beats=4, doubt_at=4)
    before = cli.rows()
    answer = cli("fork", "1411", "--at", "2")
    assert answer.code == 2
    assert answer.err.splitlines()[1:3] == ["  3.1  comment  confirmed", "  4.1  comment  in doubt"]
    assert "--yes" in answer.err.splitlines()[-1]
    assert cli.rows() == before
    assert _typed(cli, "n\n", "fork", "1411", "--at", "2") == 2
    assert cli.rows() == before
    assert _typed(cli, "y\n", "fork", "1411", "--at", "2") == 0
    assert cli.show("1411-fork-1")["beats"] == 2


def _typed(cli: Cli, answer: str, *words: str) -> int:
    """The exit code of a command on a terminal where somebody types an answer."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "outlast", *words],
            cwd=cli.folder, env=cli.environ, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs,
        )  # fmt: skip
        os.write(ours, answer.encode())
        return process.wait(TIMEOUT_S)
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_budget_of_a_fork_is_moved_and_not_copied(cli: Cli) -> None:
    work(beats=3, budget={"tokens": 1000, "beats": 10})
    assert "has a budget of tokens" in cli("fork", "1411", "--at", "1", "--yes").complaint
    assert "has a budget of beats" in cli("fork", "1411", "--at", "1", "--yes", "--budget", "100").complaint
    too_much = cli("fork", "1411", "--at", "1", "--yes", "--budget", "701", "--budget", "beats=2")
    assert "has tokens=700 left" in too_much.complaint
    cli.ok("fork", "1411", "--at", "1", "--yes", "--budget", "600", "--budget", "beats=2")
    fork, source = cli.show("1411-fork-1")["budget"], cli.show()["budget"]
    assert (fork["left"]["tokens"], fork["left"]["beats"]) == (600, 2)
    assert (source["left"]["tokens"], source["left"]["beats"]) == (100, 5)


def test_a_fork_killed_anywhere_moves_its_budget_once(cli: Cli, tmp_path: Path) -> None:
    work(beats=3, budget=1000)
    words = ("fork", "1411", "--at", "1", "--yes", "--budget", "600")
    for nth in itertools.count(1):
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, *words)
        if died:
            # Only killed after its last write was durable it has nothing left to do, and is a second fork.
            answer = world.forked(*words)
            assert answer.code == 0 or "left; tokens=600 cannot be moved" in answer.complaint
        assert world.tasks() == ["1411-fork-1", "1411"], f"killed at crash point {nth}"
        assert world.show()["budget"]["left"]["tokens"] == 100, f"killed at crash point {nth}"
        assert world.show("1411-fork-1")["budget"]["left"]["tokens"] == 600
        if not died:
            break
    assert nth > 5
    again = cli.copied(tmp_path / "again")
    again.forked("fork", "1411", "--at", "1", "--yes", "--budget", "300")
    again.forked("fork", "1411", "--at", "1", "--yes", "--budget", "300")
    assert again.show("1411-fork-2")["budget"]["left"]["tokens"] == 300
    assert again.show()["budget"]["left"]["tokens"] == 100


def test_a_fork_cut_off_is_ended_before_another_is_begun(cli: Cli, tmp_path: Path) -> None:
    work(beats=3, budget=1000)
    words = ("fork", "1411", "--at", "1", "--yes", "--budget", "600")
    for nth in itertools.count(1):
        world = cli.copied(tmp_path / str(nth))
        assert world.killed_at(nth, *words)
        if world.show()["budget"]["left"]["tokens"] == 100:
            break
    answer = world.forked("fork", "1411", "--at", "2", "--yes", "--budget", "50")
    assert "was cut off after its budget was moved" in answer.complaint
    hinted = answer.err.split("`")[1].split()[1:]
    world.forked(*hinted, "--yes")
    assert world.show("1411-fork-1")["budget"]["left"]["tokens"] == 600
    world.forked("fork", "1411", "--at", "2", "--yes", "--budget", "50")


def test_a_named_fork_is_made_once(cli: Cli) -> None:
    work(beats=3)
    words = ("fork", "1411", "--at", "1", "--yes", "--task", "other")
    first = cli.ok(*words).out
    before = cli.rows()
    assert cli.ok(*words).out == first
    assert cli.rows() == before


def test_a_moved_budget_leaves_no_warning(cli: Cli) -> None:
    work(beats=3, budget=1000)
    cli.ok("fork", "1411", "--at", "1", "--yes", "--budget", "600")
    kinds = [line.split()[2] for line in cli.ok("log", "1411").out.splitlines()]
    assert kinds[-2:] == ["requested", "requested"]


def test_a_living_run_can_be_forked(cli: Cli, agent: LiveAgent) -> None:
    agent.go_on()
    agent.wait_for("acting 2")
    cli.ok("fork", "1411", "--at", "1", "--yes")
    assert cli.show("1411-fork-1")["beats"] == 1
    agent.go_on()
    agent.wait_for("acting 3")
    assert cli.show()["status"] == "running"


# -- export and import -------------------------------------------------------------------------------------------------


def test_a_run_goes_on_in_another_store_under_its_own_id_and_keys(cli: Cli, tmp_path: Path) -> None:
    parent_with_child()
    before = cli.show()
    answer = cli.ok("export", "1411", "-o", tmp_path)
    (file,) = tmp_path.glob("*.outlast.tar.gz")
    assert answer.out.strip() == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    sealed = cli.show()
    assert (sealed["status"], sealed["cause"]) == ("handed_off", "handed_off")
    with pytest.raises(outlast.RunRefused):
        parent_with_child(3)
    there = cli.empty(tmp_path)
    there.ok("import", file)
    after = there.show()
    assert comparable(after) == comparable(before)
    assert after["status"] == "interrupted"
    (child,) = after["children"]
    assert there.show(child["run"])["completed"][0]["result"] == "y" * 9_000
    os.environ.update(there.isolated.variables)
    parent_with_child(3)
    assert there.show()["status"] == "done"


@pytest.mark.parametrize("status", ["done", "paused", "cancelled", "in_doubt"])
def test_the_status_survives_the_journey(cli: Cli, tmp_path: Path, status: str) -> None:
    work(beats=5 if status == "done" else 2, doubt_at=2 if status == "in_doubt" else 0)
    if status in ("paused", "cancelled"):
        cli.ok("pause" if status == "paused" else "cancel", "1411")
    assert cli.show()["status"] == status
    cli.ok("export", "1411", "-o", "run.tar.gz")
    there = cli.empty(tmp_path)
    there.ok("import", "run.tar.gz")
    assert there.show()["status"] == status
    cli.ok("export", "1411", "-o", "again.tar.gz")
    third = cli.empty(tmp_path / "third")
    third.ok("import", "again.tar.gz")
    assert third.show()["status"] == status


def test_an_imported_run_belongs_to_the_project_where_it_was_imported(cli: Cli, tmp_path: Path) -> None:
    work(beats=2, done=["make test"])
    cli.ok("export", "1411", "-o", tmp_path / "run.tar.gz")
    clone = tmp_path / "clone"
    clone.mkdir()
    there = Cli(clone, cli.empty(tmp_path).isolated)
    assert "its contract runs here: make test" in there.ok("import", tmp_path / "run.tar.gz").err
    assert there.show()["project"] == str(clone)


def test_a_copy_leaves_the_source_live_and_is_imported_as_a_fork(
    cli: Cli, agent: LiveAgent, tmp_path: Path
) -> None:
    agent.go_on()
    agent.wait_for("acting 2")
    source = cli.show()["run"]
    cli.ok("export", "1411", "--copy", "-o", "copy.tar.gz")
    agent.go_on()
    agent.wait_for("acting 3")
    there = cli.empty(tmp_path)
    there.ok("import", "copy.tar.gz", "--task", "1411")
    shown = there.show()
    assert shown["run"] != source
    assert (shown["fork"]["run"], shown["fork"]["beat"], shown["beats"]) == (source, 1, 1)
    assert cli.ok("import", "copy.tar.gz").out.startswith("1411-fork-1  ")
    assert "only a copy" in _sealed_import(cli, tmp_path)


def _sealed_import(cli: Cli, tmp_path: Path) -> str:
    work("sealed", beats=1)
    cli.ok("export", "sealed", "-o", "sealed.tar.gz")
    return cli.empty(tmp_path / "x")("import", "sealed.tar.gz", "--task", "y").complaint


def test_an_open_run_of_the_same_task_is_not_pushed_aside(cli: Cli, tmp_path: Path) -> None:
    work(beats=2)
    cli.ok("export", "1411", "-o", "run.tar.gz")
    there = cli.empty(tmp_path)
    os.environ.update(there.isolated.variables)
    other = work(beats=1)
    before = there.rows()
    assert f"has another run that is not over: {other}" in there("import", "run.tar.gz").complaint
    assert there.rows() == before
    there.ok("cancel", "1411")
    there.ok("import", "run.tar.gz")
    assert there.show()["beats"] == 2


def test_an_export_killed_anywhere_is_ended_by_the_same_command(cli: Cli, tmp_path: Path) -> None:
    parent_with_child()
    before = cli.show()
    file = cli.folder / "run.tar.gz"
    for nth in itertools.count(1):
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, "export", "1411", "-o", file)
        if died:
            assert not file.exists() or world.show()["status"] == "handed_off", f"killed at crash point {nth}"
            world.forked("export", "1411", "-o", file)
        assert world.show()["status"] == "handed_off"
        assert sorted(path.name for path in cli.folder.iterdir()) == ["run.tar.gz"], f"crash point {nth}"
        there = cli.empty(tmp_path / f"{nth}-there")
        there.forked("import", file)
        assert comparable(there.show()) == comparable(before), f"killed at crash point {nth}"
        assert there.show()["status"] == "interrupted", f"killed at crash point {nth}"
        file.unlink()
        if not died:
            break
    assert nth > 4


def test_an_import_killed_anywhere_is_ended_by_the_same_command(cli: Cli, tmp_path: Path) -> None:
    parent_with_child()
    before = cli.show()
    cli.forked("export", "1411", "-o", "run.tar.gz")
    for nth in itertools.count(1):
        there = cli.empty(tmp_path / str(nth))
        died = there.killed_at(nth, "import", "run.tar.gz")
        if died:
            answer = there.forked("import", "run.tar.gz")
            assert answer.code == 0 or "already in this store" in answer.complaint, f"crash point {nth}"
        assert comparable(there.show()) == comparable(before), f"killed at crash point {nth}"
        if not died:
            break
    assert nth > 6


def test_a_file_that_is_no_export_of_the_run_is_never_replaced(cli: Cli) -> None:
    work(beats=2)
    work("other", beats=2)
    cli.ok("export", "1411", "-o", "run.tar.gz")
    content = (cli.folder / "run.tar.gz").read_bytes()
    assert "is no export of run" in cli("export", "other", "-o", "run.tar.gz").complaint
    assert (cli.folder / "run.tar.gz").read_bytes() == content
    assert cli.show("other")["status"] == "interrupted"
    answer = cli.ok("export", "1411", "-o", "run.tar.gz")
    assert "handed off before" in answer.err
