"""The night with real agents: four Claude Codes and all of outlast die at one instant, and one command has all go on."""

import json
import subprocess
from collections import Counter
from typing import Any

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Fault, History, Script, Step
from tests.agents.trial import HOLD
from tests.agents.trial_calls import Calls
from tests.agents.trial_model import Modelled
from tests.agents.trial_plan import Plan, Repeats, Task
from tests.support.processes import gone, kill_at_once, wait_for

LIMIT_S = 120.0
CLAUDE = ("claude", "2.1.325")
# Where each of the four is when all die: in a local call, in an outward one before and after the act, in a response.
HELD = {"a": "x1n1e", "b": "x2n1e", "c": "x3n1e"}
STREAMING = "d"


def planned(number: int, held: Task, repeats: Repeats) -> Plan:
    batches = ((Task(f"x{number}n0e", "local"),), (held,), (Task(f"x{number}n2e", "post"),))
    return Plan(0, number, *CLAUDE, batches, (), repeats, hasty=False, ways=())


PLANS = {
    "a": planned(1, Task("x1n1e", "local", "before"), "never"),
    "b": planned(2, Task("x2n1e", "post", "before"), "settles"),
    "c": planned(3, Task("x3n1e", "post", "after"), "verbatim"),
    "d": planned(4, Task("x4n1e", "post"), "flags"),
}


class FourTasks:
    """Four tasks, each in a worktree of its own, with one home, one model and one witness."""

    def __init__(self, world: AgentWorld) -> None:
        self.world, self.under = world, Under(world, *CLAUDE)
        self.folders = {task: world.folder / task for task in PLANS}
        self.models = {
            task: Modelled(plan, Calls(plan, world.witness.url, str(world.folder), str(self.folders[task])))
            for task, plan in PLANS.items()
        }
        self.hangs = {STREAMING}
        world.model.script = Script(self.choose)
        (world.folder / "hold.sh").write_text(HOLD)
        for task, folder in self.folders.items():
            world.git("worktree", "add", "-q", "-b", f"work-{task}", str(folder))

    def choose(self, history: History, plays: int) -> Step:
        """Each conversation has its own model; the last response of one of them hangs, once."""
        task = next(task for task in PLANS if f"work on {task}" in history.prompt)
        step = self.models[task].choose(history, plays)
        if task in self.hangs and self.models[task].served[-1:] == [1]:
            self.hangs.discard(task)
            return Step(step.text, step.calls, step.usage, Fault(hang_after=2, times=None))
        return step

    def outlast(self, task: str, *words: str) -> "subprocess.CompletedProcess[str]":
        env = self.under.environ() | {"PWD": str(self.folders[task])}
        return self.world.finish(self.under.outlast(*words), cwd=self.folders[task], env=env, text=True)

    def start(self, task: str) -> None:
        words = ["run", "--task", task, "--", *self.under.words(f"work on {task}")]
        env = self.under.environ() | {"PWD": str(self.folders[task])}
        with open(self.world.folder / f"said-{task}", "wb") as said:
            self.world.begin(
                self.under.outlast(*words), cwd=self.folders[task], env=env, stdout=said, stderr=said
            )

    def shown(self, task: str) -> dict[str, Any]:
        found = self.outlast(task, "show", task, "--json")
        return json.loads(found.stdout) if found.returncode == 0 else {}

    def effects(self, task: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.outlast(task, "effects", task, "--json").stdout)
        return found

    def kill_everything(self) -> int:
        """At one instant: nothing of it can react to the death of another."""
        pids = list(self.world.processes())
        kill_at_once(pids)
        for process in self.world.started:
            process.wait(LIMIT_S)
        gone(pids)
        return len(pids)

    def comes_to_rest(self, task: str) -> dict[str, Any]:
        return wait_for(
            lambda: (
                shown if (shown := self.shown(task))["status"] in ("done", "in_doubt", "failed") else None
            ),
            limit_s=LIMIT_S,
            what=f"the rest of {task}",
        )

    def settle(self, task: str) -> None:
        """As a person would: look at the world, then say what was found."""
        performed = {act.name for act in self.world.performed()}
        for effect in self.effects(task):
            if effect["state"] == "in_doubt":
                happened = any(name in effect["name"] for name in performed)
                assert (
                    self.outlast(
                        task, "settle", task, effect["id"], "--happened" if happened else "--did-not"
                    ).returncode
                    == 0
                )


@pytest.fixture
def night(world: AgentWorld) -> FourTasks:
    return FourTasks(world)


def test_four_agents_killed_at_one_instant_all_go_on_in_their_sessions_and_nothing_happens_twice(
    night: FourTasks,
) -> None:
    world = night.world
    for task in PLANS:
        night.start(task)
    for held in HELD.values():
        wait_for((world.folder / f"at-{held}").exists, limit_s=LIMIT_S, what=f"the call {held}")
    wait_for(lambda: world.model.hanging > 0, limit_s=LIMIT_S, what="a response that hangs")
    before = {task: night.shown(task) for task in PLANS}
    assert night.kill_everything() >= 4 * 3, "guardian, supervisor and agent of each, and what they started"
    world.model.release()
    for held in HELD.values():
        (world.folder / f"go-{held}").touch()

    answer = night.outlast("a", "resume", "--all")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    after = {task: night.comes_to_rest(task) for task in PLANS}
    doubts = [task for task, shown in after.items() if shown["status"] == "in_doubt"]
    assert set(doubts) <= {"c"}, "only what happened, and whose outcome nobody recorded, may need a person"
    for task in doubts:
        night.settle(task)
        assert night.outlast(task, "resume", task).returncode == 0
    assert {night.shown(task)["status"] for task in PLANS} == {"done"}

    acts = Counter(act.name for act in world.performed())
    assert set(acts.values()) == {1}, "nothing is done twice"
    assert set(acts) == {
        task.name for plan in PLANS.values() for task in plan.tasks.values() if task.kind == "post"
    }
    ran = Counter((world.folder / "ran.log").read_text().split())
    for task, plan in PLANS.items():
        sessions = before[task]["session"]["session"], after[task]["session"]["session"]
        assert sessions[0] == sessions[1], "each goes on in its session"
        assert after[task]["beats"] > before[task]["beats"]
        again = [name for name in plan.tasks if ran[name] > 1]
        assert again in ([], [HELD.get(task)]), "at most the beat in flight is done again"
