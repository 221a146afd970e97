"""Real agents with a call that waits for a person, killed at random instants: before, while and after somebody approves it.

The witness says how often the call was made: never more often than it was approved, and once at the end."""

import json
import random
import re
import shlex
import subprocess
from dataclasses import dataclass, field

import pytest

from outlast.core import events as ev
from tests.agents.agent_under_outlast import LIMIT_S, Under
from tests.agents.script import Call, History, Script, Step, bash
from tests.agents.test_approvals import WAITS, made, open_ids, settle
from tests.support.processes import kill_at_once

pytestmark = pytest.mark.slow
ROUNDS_MAX = 24
BLOWS_MAX = 4
START_S, ANSWER_S = 5.0, 0.8  # within these a blow falls
SHAPES = ("plain", "file", "make", "npm", "background")
TRIALS = 20
AGAIN = re.compile(
    "make this call now|did not happen|make it (again )?if|make the call again|repeat what is missing",
    re.IGNORECASE,
)


def call_of(under: Under, shape: str) -> Call:
    """One post, as agents make it: by itself, or below what runs programs."""
    world = under.world
    post = str(world.posting("comment", body="hello").input["command"])
    match shape:
        case "file":
            (world.work / "post.sh").write_text(f"sleep 0.3\n{post}\nsleep 0.3\n")
            return bash("sh post.sh")
        case "make":
            (world.work / "Makefile").write_text(f"post:\n\t@{post}\n")
            return bash("make post")
        case "npm":
            package = {"name": "it", "version": "1.0.0", "private": True, "scripts": {"post": post}}
            (world.work / "package.json").write_text(json.dumps(package))
            return bash("npm run --silent post")
        case "background":
            # Codex kills the group of a command that has ended; what shall live on needs a session of its own.
            own = "setsid" if under.name == "codex" else ""
            return bash(f"nohup {own} sh -c {shlex.quote(post)} >/dev/null 2>&1 & sleep 1")
        case _:
            return bash(post)


@dataclass
class HostileNight:
    """A person and a hostile kernel around one agent."""

    under: Under
    rng: random.Random
    blows: int = 0
    approved: int = 0
    story: list[str] = field(default_factory=list)

    def strikes(self, process: "subprocess.Popen[bytes]", within_s: float) -> None:
        """Kill part of it at a random instant, if it has not ended by then."""
        try:
            process.wait(timeout=self.rng.uniform(0, within_s))
        except subprocess.TimeoutExpired:
            pids = self.under.pids(process)
            who = self.rng.choice(("all", "all", "guardian", "supervisor", "agent"))
            victims = {"guardian": pids[:1], "supervisor": pids[1:2], "agent": pids[2:3]}.get(who) or pids
            kill_at_once(victims)
            self.blows += 1
            self.story.append(f"killed {who}")

    def starts(self, *flags: str) -> None:
        process = self.under.start(*flags)
        if self.blows < BLOWS_MAX and self.rng.random() < 0.7:
            self.strikes(process, START_S)
        _, err = process.communicate(timeout=LIMIT_S)
        self.story.append(f"ended with {process.returncode}, made {made(self.under)}: {err.decode()[-300:]}")

    def answers(self) -> None:
        """Approve all that is open, perhaps from two shells at once, perhaps killed."""
        under, ids = self.under, open_ids(self.under)
        processes = [
            under.world.begin(under.outlast("approve", "t", each, "--no-start"), env=under.environ())
            for each in ids
            for _ in range(self.rng.choice((1, 1, 2)))
        ]
        for process in processes:
            if self.blows < BLOWS_MAX and self.rng.random() < 0.5:
                self.strikes(process, ANSWER_S)
            process.wait(timeout=LIMIT_S)
        left = open_ids(under)
        self.approved += len(ids) - len(left)
        self.story.append(f"approved {ids}, of which {left} are open")

    def goes_on(self) -> bool:
        """One round of what the run needs next; False where it is done."""
        under, shown = self.under, self.under.shown()
        status = shown.get("status")
        assert len(made(under)) <= self.approved, self.story
        if status == "in_doubt":
            settle(under)
        elif status == "failed":  # killed too often: a person looks, and lets it go on
            under.call("resume", "t")
        elif status == "parked" and open_ids(under):
            self.answers()
        elif status != "done":
            self.starts(*(() if shown else WAITS))
        return status != "done"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trial", range(TRIALS))
def test_killed_at_random_instants_it_is_made_once(under: Under, trial: int, rng: random.Random) -> None:
    call = call_of(under, SHAPES[trial % len(SHAPES)])

    heard: list[str] = []

    def says(history: History, plays: int) -> Step:
        heard.append(history.last_text[-600:])
        is_asked = AGAIN.search(history.last_text) is not None
        if not history.responses or (is_asked and not made(under)):
            return Step("Now.", (call,))
        return Step("Done.")

    under.world.model.script = Script(says)
    if rng.random() < 0.4:
        under.world.inside(lambda: under.world.witness.fault("late_reply", late_ms=1_500))
    night = HostileNight(under, rng)
    night.starts(*WAITS)
    assert any(not night.goes_on() for _ in range(ROUNDS_MAX)), night.story
    events = under.world.store.read(under.shown()["run"], after=0).events
    used = [item.event.approved for item in events if isinstance(item.event, ev.EffectIntended)]
    used = [each for each in used if each]
    assert len(used) == len(set(used)), night.story
    assert made(under) == ["comment"], "\n".join([*night.story, "-- heard:", *heard])
