"""`outlast fork`: a past is shared, keys and budget are not; killed anywhere it is made once."""

import itertools
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import Cli, LiveAgent, work
from tests.support.environment import TIMEOUT_S
from tests.support.sweeps import Sweep


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
    assert answer.err.splitlines()[-4:-2] == ["3.1 comment: confirmed", "4.1 comment: in doubt"]
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


def test_a_fork_killed_anywhere_moves_its_budget_once(cli: Cli, tmp_path: Path, sweep: Sweep) -> None:
    work(beats=3, budget=1000)
    words = ("fork", "1411", "--at", "1", "--yes", "--budget", "600")
    for nth in sweep:
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, *words)
        if died:
            assert world.forked(*words).code == 0, f"killed at crash point {nth}"
        assert world.tasks() == ["1411-fork-1", "1411"], f"killed at crash point {nth}"
        assert world.show()["budget"]["left"]["tokens"] == 100, f"killed at crash point {nth}"
        assert world.show("1411-fork-1")["budget"]["left"]["tokens"] == 600
        sweep.met(died)
    assert sweep.total > 5
    again = cli.copied(tmp_path / "again")
    again.forked("fork", "1411", "--at", "1", "--yes", "--budget", "300")
    again.forked("fork", "1411", "--at", "1", "--yes", "--budget", "200")
    assert again.show("1411-fork-2")["budget"]["left"]["tokens"] == 200
    assert again.show()["budget"]["left"]["tokens"] == 200


def test_an_unnamed_fork_killed_anywhere_is_made_once(cli: Cli, tmp_path: Path, sweep: Sweep) -> None:
    work(beats=3)
    words = ("fork", "1411", "--at", "1", "--yes")
    for nth in sweep:
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, *words)
        answer = world.forked(*words)
        assert answer.out.split() == ["1411-fork-1", world.show("1411-fork-1")["run"]], f"crash point {nth}"
        assert world.tasks() == ["1411-fork-1", "1411"], f"killed at crash point {nth}"
        sweep.met(died)
    assert sweep.total > 2
    assert "was made before" in answer.err
    assert world.forked(*words, "--json").json["made"] is False
    assert world.forked("fork", "1411", "--at", "2", "--yes", "--json").json["task"] == "1411-fork-2"


@pytest.mark.parametrize("touch", ["started", "paused", "cancelled"])
def test_a_fork_that_somebody_has_touched_is_not_taken_for_that_of_the_same_command(
    cli: Cli, touch: str
) -> None:
    work(beats=3, budget=1000)
    words = ("fork", "1411", "--at", "1", "--yes", "--budget", "200")
    cli.ok(*words)
    if touch == "started":
        work("1411-fork-1", beats=1)
    else:
        cli.ok("pause" if touch == "paused" else "cancel", "1411-fork-1")
    cli.ok(*words)
    assert cli.tasks() == ["1411-fork-2", "1411-fork-1", "1411"]
    assert cli.show()["budget"]["left"]["tokens"] == 300


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
