"""A person goes on by hand: at the agent's own terminal under outlast, or without outlast; and it goes on by itself after."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.agent_world import AgentWorld, need
from tests.agents.script import Script, Step, Usage, When, bash
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for
from tests.support.screens import Screen

SPENT = Usage(input=1000, cache_read=0, cache_write=0, output=4)
UNTIL_GO = "touch begun.txt; while [ ! -e go ]; do sleep 0.05; done"
TRUSTING = {"claude": "--dangerously-skip-permissions", "codex": "--dangerously-bypass-approvals-and-sandbox"}
START_S = 90.0  # until a terminal program of that size shows something, on a machine that does much else


class Person:
    """Somebody at a terminal, with an agent and outlast."""

    def __init__(self, under: Under) -> None:
        self.under = under
        self._environ = under.environ()
        if under.name == "codex":  # else it asks whether the folder can be trusted
            work = under.world.work.resolve()
            with (under.world.home / ".codex/config.toml").open("a") as file:
                file.write(f'\n[projects."{work}"]\ntrust_level = "trusted"\n')
        ours = under.world.folder / "o"
        ours.write_text(f'#!/bin/sh\nexec {shlex.join(under.outlast())} "$@"\n')
        ours.chmod(0o755)
        self._ours = str(ours)
        self.screen = Screen(under.world.folder, under.world.work, self._environ)

    def outlast(self, *words: str) -> None:
        """Type it; its exit code shows as `code=N`."""
        self.screen.type("clear; " + shlex.join([self._ours, *words]) + "; echo code=$?")

    def says(self, words: str, answer: str) -> None:
        """To the agent: typed as a person does, for what comes with an Enter at once is taken for pasted text."""
        self.screen.keys("-l", words)
        self.screen.see(words)
        self.screen.keys("Enter")
        self.screen.see(answer, limit_s=START_S)

    def leaves(self) -> None:
        """As one leaves each of them."""
        self.says("/exit", "code=")

    def close(self) -> None:
        self.screen.close()


@pytest.fixture
def person(request: pytest.FixtureRequest, world: AgentWorld) -> Iterator[Person]:
    under = Under(world, *getattr(request, "param", ("claude", "2.1.325")))
    made = Person(under)
    yield made
    made.close()


def interactive(person: Person, *more: str) -> list[str]:
    """The agent as one types it to work with it at the terminal."""
    under = person.under
    return [*need(under.name, under.version).command, TRUSTING[under.name], *more]


each_terminal = pytest.mark.parametrize(
    "person", [("claude", "2.1.325"), ("codex", None)], indirect=True, ids=["claude", "codex"]
)


@each_terminal
def test_a_session_at_the_terminal_is_saved_and_left_and_gone_on_with(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    world.model.script = Script(
        [
            Step("I look.", (bash("echo made > one.txt"),)),
            [Step("More is said.", when=When(last="and now")), Step("All is said.")],
        ]
    )
    before = screen.modes()
    person.outlast("run", "--task", "t", "--", *interactive(person, "do the task"))
    screen.see("All is said.", limit_s=START_S)
    wait_for(lambda: under.shown().get("beats") == 2, START_S, what="two beats on record")
    assert under.shown()["status"] == "running"
    person.leaves()
    screen.see("code=0")
    assert "left by the person at the terminal" in screen.text()
    assert "`outlast resume t` or `outlast open t` goes on in it" in screen.text()
    assert screen.modes() == before

    shown = under.shown()
    assert (shown["status"], shown["cause"]) == ("interrupted", "operator")
    assert shown["beats"] == 2
    assert (world.work / "one.txt").read_text() == "made\n"
    assert "one.txt" in under.call("diff", shown["saves"][0]["commit"]).stdout
    woken = json.loads(under.call("resume", "--all", "--dry-run", "--json").stdout)
    assert [each["wake"] for each in woken] == [False]

    person.outlast("resume", "t")
    screen.see("All is said.", limit_s=START_S)
    person.says("and now?", "More is said.")
    person.leaves()
    screen.see("code=0")
    assert under.shown()["beats"] == 3


def test_left_with_checks_that_pass_it_is_done_and_else_not(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    making = Step("I make it.", (bash("touch wanted"),), when=When(last="make it"))
    world.model.script = Script([[making, Step("Hello.")], Step("It is made.")])
    person.outlast(
        "run", "--task", "t", "--done", "test -e wanted", "--", *interactive(person, "do the task")
    )
    screen.see("Hello.", limit_s=START_S)
    person.leaves()
    screen.see("code=0")
    assert under.shown()["status"] == "interrupted"
    assert "not done" in under.shown()["evidence"]
    person.outlast("open", "t")
    screen.see("Hello.", limit_s=START_S)
    person.says("make it", "It is made.")
    person.leaves()
    screen.see("code=0")
    assert under.shown()["status"] == "done"


@each_terminal
def test_a_live_headless_agent_is_opened_at_the_end_of_its_beat(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    world.model.script = Script(
        [
            Step("One.", (bash(UNTIL_GO),), SPENT),
            Step("Two.", (bash("touch second.txt"),), SPENT),
            Step("Three.", (), SPENT),
        ]
    )
    headless = under.start()
    wait_for((world.work / "begun.txt").exists, limit_s=START_S, what="the first call")
    person.outlast("open", "t")
    screen.see("asked to stop at the end of its beat")
    screen.keys("C-c")
    screen.see("it still stops at the end of its beat")
    screen.see("code=130")
    person.outlast("open", "t")
    screen.see("asked to stop at the end of its beat")
    assert headless.poll() is None, "its call is let end"
    (world.work / "go").touch()
    assert headless.wait(timeout=LIMIT_S) == 3
    assert under.shown()["beats"] == 1
    screen.see("One.", limit_s=START_S)
    assert not (world.work / "second.txt").exists(), "no call was begun after its beat"
    person.says("what now?", "Three.")
    [*_, results] = [each.history.results for each in world.model.requests() if each.history.results]
    assert "cut off" not in results[-1].text, "it was not begun"
    person.leaves()
    screen.see("code=0")
    assert "`outlast resume t` goes on without you" in screen.text()
    assert under.shown()["status"] == "interrupted"

    done = subprocess.run(
        under.outlast("resume", "t"), cwd=world.work, env=under.environ(), capture_output=True, text=True,
        timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Three." in done.stdout, "headless again, as it was started"
    said = json.dumps([turn.text for turn in world.model.requests()[-1].history.turns])
    assert "what now?" in said
    assert under.shown()["status"] == "done"
    assert under.shown()["budget"]["spent"]["input"] == 1000 * len(world.model.paid())


def test_a_killed_run_is_opened_at_once_and_held_calls_are_held_there_too(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    world.inside(lambda: world.witness.fault("late_reply"))
    world.model.script = Script([Step("One.", (world.posting("comment", body="hello"),))])
    headless = under.start()
    wait_for(lambda: bool(world.performed()), what="the comment", limit_s=START_S)
    under.kill_all(headless)
    world.model.script = Script(
        [
            Step("One."),
            Step("Again.", (world.posting("comment", body="in other words"),)),
            Step("It is held."),
        ]
    )
    person.outlast("open", "t")
    screen.see("One.", limit_s=START_S)
    person.says("say it", "It is held.")
    person.leaves()
    screen.see("code=3")
    assert [act.name for act in world.performed()] == ["comment"]
    assert under.shown()["status"] == "in_doubt"


def test_killed_at_the_terminal_it_waits_for_a_person(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    world.model.script = Script([Step("Hello.")])
    before = screen.modes()
    person.outlast("run", "--task", "t", "--", *interactive(person, "do the task"))
    screen.see("Hello.", limit_s=START_S)
    supervisor = wait_for(
        lambda: under.shown()["beats"] and under.shown()["holder"]["pid"], START_S, what="a beat"
    )
    os.kill(supervisor, signal.SIGKILL)
    screen.see("code=137", limit_s=START_S)
    assert screen.modes() == before
    [asleep] = json.loads(under.call("resume", "--all", "--dry-run", "--json").stdout)
    assert (asleep["wake"], "a session at a terminal" in asleep["why"]) == (False, True)
    person.outlast("open", "t")
    screen.see("Hello.", limit_s=START_S)
    person.leaves()
    screen.see("code=0")


def test_what_cannot_be_opened_is_refused_in_one_line(person: Person) -> None:
    under, screen, world = person.under, person.screen, person.under.world
    person.outlast("run", "--task", "plain", "--headless", "--restarts", "1", "--", "false")
    screen.see("code=3")
    person.outlast("open", "plain")
    screen.see("does not run an agent, so it has no session to open")
    screen.see("code=2")

    world.model.script = Script([Step("Hello.")])
    person.outlast("run", "--task", "t", "--", *interactive(person, "do the task"))
    screen.see("Hello.", limit_s=START_S)
    away = under.call("open", "t")
    assert (away.returncode, "`outlast open` needs a terminal" in away.stderr) == (2, True), away.stderr
    beside = Screen(_made(world, "beside"), world.work, under.environ())
    try:
        beside.type(f"{person._ours} open t; echo code=$?")
        beside.see("is open at a terminal already")
        beside.see("code=2")
    finally:
        beside.close()
    person.leaves()
    screen.see("code=0")
    done = under.call("resume", "t")
    assert (done.returncode, "is a session at a terminal" in done.stderr) == (2, True), done.stderr


def test_turns_that_a_person_made_without_outlast_are_adopted(person: Person) -> None:
    under, world = person.under, person.under.world
    world.model.script = Script(
        [
            Step("One.", (bash("echo first-result"),), SPENT),
            Step("Two.", (bash(UNTIL_GO),), SPENT),
            Step("Three.", (bash("echo by-hand > hand.txt"),), SPENT),
            Step("Four.", (), SPENT),
        ]
    )
    headless = under.start()
    wait_for((world.work / "begun.txt").exists, limit_s=START_S, what="the second call")
    headless.terminate()
    assert headless.wait(timeout=LIMIT_S) == 143
    shown = under.call("show", "t").stdout
    by_hand = under.shown()["by_hand"]
    assert f"cd {world.work} && {shlex.join(by_hand['command'])}" in shown
    assert "calls recorded first, by hooks, shims, transcript" in shown

    program = need(under.name, under.version).command
    for words in ("by my own hand", "and once more"):
        done = subprocess.run(
            world.namespaced([*program, *by_hand["command"][1:], "-p", words, "--dangerously-skip-permissions"]),
            cwd=by_hand["folder"], env=under.environ(), capture_output=True, text=True, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert "made whole" not in done.stderr
    history = world.model.requests()[-1].history
    said = json.dumps([*(turn.text for turn in history.turns), *(result.text for result in history.results)])
    for told in ("first-result", "by my own hand", "and once more", "You were interrupted"):
        assert told in said, said
    assert under.shown()["budget"]["spent"]["input"] == 1000 * len(world.model.paid())


def _made(world: AgentWorld, name: str) -> Path:
    folder = world.folder / name
    folder.mkdir()
    return folder
