"""What a person and a program are told while a real agent works: beat lines, JSON lines, what a resume resumes, a status line."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script, Step, Usage, bash
from tests.agents.test_person_at_terminal import START_S, Person, interactive
from tests.support.processes import wait_for

SPENT = Usage(input=1000, cache_read=0, cache_write=0, output=4)
UNTIL_GO = "touch begun.txt; while [ ! -e go ]; do sleep 0.05; done"
OWN_LINE = "status of my own"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version"), [("claude", "2.1.325"), ("codex", None)], ids=["claude", "codex"]
)
def test_a_killed_agent_is_told_of_line_by_line_and_its_resume_says_what_was_cut_off(
    world: AgentWorld, name: str, version: str | None
) -> None:
    under, feed = Under(world, name, version), world.folder / "feed.jsonl"
    world.model.script = Script(
        [Step("One.", (bash("echo made > one.txt"),), SPENT), Step("Two.", (bash(UNTIL_GO),), SPENT), Step("All done.", (), SPENT)]
    )  # fmt: skip
    flags = ("--budget", "400k", "--json-lines", str(feed))
    first = under.start(*flags)
    wait_for((world.work / "begun.txt").exists, limit_s=START_S, what="the second call")
    wait_for(
        lambda: any(each["event"] == "beat" for each in lines(feed)), limit_s=START_S, what="the first beat"
    )
    under.kill_all(first)
    (world.work / "go").touch()
    again = under.run(*flags)
    assert again.returncode == 0, again.stderr
    assert first.stderr is not None
    said = first.stderr.read().decode()
    assert "outlast: beat 1  " in said, said
    assert "echo made > one.txt" in said
    assert "1,004 of 400,000 tokens" in said

    session = under.shown()["session"]["session"]
    begun = again.stderr.splitlines()[0]
    assert re.match(
        rf"outlast: resumes t: attempt 2, beat [23] in session {session[:8]} of {name}; attempt 1 ended: ",
        begun,
    )
    assert "touch begun.txt" in begun
    assert "; files kept" in begun
    assert "; before: killed without warning" in begun
    told = lines(feed)
    kinds = [each["event"] for each in told]
    assert (kinds[0], kinds.count("resumed"), kinds[-1]) == ("started", 1, "ended")
    [resumed] = [each for each in told if each["event"] == "resumed"]
    assert any("touch begun.txt" in call["what"] for call in resumed["cut_off"])
    assert [each["beat"] for each in told if each["event"] == "beat"] == list(
        range(1, under.shown()["beats"] + 1)
    )
    assert told[-1]["tokens"] == under.shown()["budget"]["spent"]["tokens"]


# -- Claude Code's status line -----------------------------------------------------------------------------------------


@pytest.fixture
def person(world: AgentWorld) -> Iterator[Person]:
    made = Person(Under(world, "claude", "2.1.325"))
    yield made
    made.close()


@pytest.mark.slow
def test_at_a_terminal_claude_shows_budget_and_beat_and_nothing_else_of_outlast(person: Person) -> None:
    screen, world = person.screen, person.under.world
    world.model.script = Script(
        [Step("I look.", (bash("echo made > one.txt"),), SPENT), Step("All is said.", (), SPENT)]
    )
    person.outlast("run", "--task", "t", "--budget", "400k", "--", *interactive(person, "do the task"))
    screen.see("All is said.", limit_s=START_S)
    screen.see("outlast t: beat 2, 2,008 of 400,000 tokens", limit_s=START_S)
    assert "outlast: beat" not in screen.text(), "the terminal is the agent's"
    person.leaves()
    screen.see("code=0")
    settings = world.home / ".claude/settings.json"
    assert not settings.exists() or "statusLine" not in settings.read_text(), (
        "nothing of the user's is written"
    )


@pytest.mark.slow
@pytest.mark.parametrize("where", ["user", "flag"])
def test_a_status_line_of_the_users_own_stays(person: Person, where: str) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    own = json.dumps({"statusLine": {"type": "command", "command": f"echo {shlex.quote(OWN_LINE)}"}})
    more: list[str] = []
    if where == "user":
        (world.home / ".claude").mkdir(exist_ok=True)
        (world.home / ".claude/settings.json").write_text(own)
    else:
        more = ["--settings", own]
    world.model.script = Script([Step("All is said.", (), SPENT)])
    person.outlast("run", "--task", "t", "--", *interactive(person, *more, "do the task"))
    screen.see("All is said.", limit_s=START_S)
    screen.see(OWN_LINE, limit_s=START_S)
    assert "outlast t: beat" not in screen.text()
    person.leaves()
    screen.see("code=0")
    assert under.shown()["beats"] == 1


@pytest.mark.slow
def test_a_status_file_that_is_gone_never_fails_the_session(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    remove = f"rm -f {world.root}/runs/*/agent/status-line"
    world.model.script = Script([Step("I look.", (bash(remove),), SPENT), Step("All is said.", (), SPENT)])
    person.outlast("run", "--task", "t", "--", *interactive(person, "do the task"))
    screen.see("All is said.", limit_s=START_S)
    person.leaves()
    screen.see("code=0")
    assert under.shown()["beats"] == 2
