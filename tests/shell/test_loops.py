"""The shipped loops: killed at any line, of any part, and started again, they do every issue once.

The world outside is the external witness. Lines are counted by a DEBUG trap that also fires inside of our own shell
functions; the n-th command of the script is where the blow falls.
"""

import itertools
import os
import random
import sys
from pathlib import Path

import pytest

from tests.shell.project import Project, need_examples, project
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = [pytest.mark.sampled(0.5), pytest.mark.sampled(0.5, of="file")]

ISSUES = ["7", "12"]
STARTS_MAX = 8
COMMANDS = 300  # that a whole run of the loop executes, ours included
WHOM = ("script", "group", "keeper", "script+keeper", "group+keeper")
PLACES = ("agent.middle", "gh.before", "gh.after")
COUNTING = """
set -o functrace
__struck() {
    __lines=$((__lines + 1))
    [ "$__lines" != "$LINE" ] || SCRIPT=$$ strike || :
    echo "$__lines $BASH_COMMAND" >> "$COUNT"
}
__lines=0
trap __struck DEBUG
"""


class Loop:
    """One world: a loop, its list, and the witness of its comments."""

    def __init__(self, work: Project, name: str, supervised: bool) -> None:
        self.work = work
        work.task = name
        script = str(need_examples() / name)
        self._words = ["bash", script, "issues.txt"]
        if supervised:
            self._words = ["outlast", "run", "--task", name, "--", *self._words]
        self._base = work.folder
        (self._base / "counting.sh").write_text(COUNTING)
        # Not by an agent's name: what is killed here is the loop; tests/agents runs it with the real agents.
        for tool in ("fixer", "gh", "strike"):
            work.program(tool, f"#!{sys.executable}\n" + Path(__file__).with_name("standin.py").read_text())
        (work.work / "issues.txt").write_text("\n".join([*ISSUES, "", ISSUES[0]]) + "\n")
        work.git("add", "-A")
        work.git("commit", "-q", "-m", "list")

    def start(self, blow: str = "", line: int = 0) -> int:
        counted = {
            "BASH_ENV": str(self._base / "counting.sh"),
            "LINE": str(line),
            "COUNT": str(self._base / "count"),
        }
        process = self.work.start(
            *self._words, WITNESS=self.work.witness.url, WITNESS_LOG=str(self.work.witness.log), BLOW=blow or "- - -",
            ONCE=str(self._base / "once"), OUTLAST_RESTART_WAIT_S="0.1", CLAUDE="fixer", KIMI="fixer", **(counted if line else {}),
        )  # fmt: skip
        return process.wait(TIMEOUT_S)

    def carry(self, blow: str, line: int = 0) -> bool:
        """Start it until it is done; whether the blow fell."""
        once = self._base / "once"
        once.touch()
        for _ in range(STARTS_MAX):
            if self.start(blow, line) == 0 and self._is_done():
                break
        else:
            raise AssertionError(
                f"not done after {STARTS_MAX} starts, {blow} at {line}: {self.work.said[-3000:]}"
            )
        return not once.exists()

    def _is_done(self) -> bool:
        """Also a loop whose keeper was killed ends with 0; that nobody recorded, and the next start makes up for it."""
        wait_for(lambda: not self.work.keepers(), TIMEOUT_S, "the keeper to be through")
        return self.work.head().status == "done"

    def check(self, what: str) -> None:
        """Every issue was done once, whatever happened on the way."""
        story = f"{what}: {self.work.said[-3000:]}"
        state = self.work.settled()
        assert state.status == "done", story
        # Killed in its last line, when its run is done already, it is begun anew, and finds nothing to do.
        assert len(self.work.runs()) <= 2, story
        assert [item.identity for item in self.work.performed()] == ISSUES, story
        subjects = self.work.git("log", "--reverse", "--format=%s").split("\n")
        assert [s for s in subjects if s.startswith("Issue")] == [f"Issue {n}" for n in ISSUES], story
        for number in ISSUES:
            assert self.work.git("show", f"HEAD:fix-{number}") == f"fixed {number}\n", story


def played(base: Path, name: str, supervised: bool, blow: str, line: int = 0) -> bool:
    """A whole story with one blow; whether it fell."""
    with project(base) as work:
        loop = Loop(work, name, supervised)
        fell = loop.carry(blow, line)
        loop.check(f"{name}, {'outlast run' if supervised else 'by itself'}, {blow} at {line}")
        return fell


@pytest.mark.parametrize("supervised", [False, True], ids=["by itself", "outlast run"])
@pytest.mark.parametrize("name", ["claude-loop.sh", "kimi-loop.sh"])
def test_a_loop_that_nobody_disturbs_does_every_issue_once(
    tmp_path: Path, name: str, supervised: bool
) -> None:
    assert not played(tmp_path, name, supervised, "nowhere script KILL")


@pytest.mark.parametrize("place", PLACES)
def test_killed_around_the_act_it_is_looked_up_and_not_repeated(tmp_path: Path, place: str) -> None:
    for number, whom in enumerate(("script+keeper", "group+keeper")):
        assert played(tmp_path / str(number), "claude-loop.sh", False, f"{place} {whom} KILL"), (
            "the blow fell"
        )


def chosen(rng: random.Random, count: int) -> list[tuple[str, str, int]]:
    """Whom, with what, at which command."""
    return [(rng.choice(WHOM), rng.choice(("KILL", "TERM")), rng.randint(1, COMMANDS)) for _ in range(count)]


@pytest.mark.parametrize("supervised", [False, True], ids=["by itself", "outlast run"])
def test_killed_at_any_line_every_issue_is_done_once(
    tmp_path: Path, rng: random.Random, supervised: bool
) -> None:
    for whom, name, line in chosen(rng, 3):
        played(tmp_path / f"{whom}-{line}", "claude-loop.sh", supervised, f"line {whom} {name}", line)


@pytest.mark.campaign
@pytest.mark.parametrize("whom", WHOM)
@pytest.mark.parametrize("name", ["KILL", "TERM"])
@pytest.mark.parametrize("supervised", [False, True], ids=["by itself", "outlast run"])
def test_killed_at_every_line_in_turn(
    tmp_path: Path, rng: random.Random, whom: str, name: str, supervised: bool
) -> None:
    """From the first command to the last, in strides that differ from seed to seed."""
    stride = int(os.environ.get("OUTLAST_LINE_STRIDE", "9"))
    for line in itertools.count(1 + rng.randrange(stride), stride):
        if not played(tmp_path / str(line), "claude-loop.sh", supervised, f"line {whom} {name}", line):
            return
