"""One random trial of a real agent under outlast: started, hit as its plan says, started again until it rests.

Every wait has a limit, and nothing of a trial is left running. trial_judge.py says whether it was good.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from outlast.processes import proc
from tests.agents import trial_mcp, trial_world
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script
from tests.agents.trial_calls import Calls
from tests.agents.trial_judge import Outcome, evidence, judge, named
from tests.agents.trial_model import Modelled
from tests.agents.trial_plan import PROMPT, Kill, Plan
from tests.agents.trial_victims import Victims, programs
from tests.agents.trial_world import SmallDisk
from tests.support.processes import kill_at_once, wait_for

LIMIT_S = 240.0  # a trial comes to rest within this
LEFT_S = 10.0  # what is still there when it is done ends within this
ENDING_S = 60.0  # what outlives the process that a person started ends within this
STARTS_MAX = 14
LOOK_EVERY_S = 0.2  # all processes are many
EXIT_REFUSED, EXIT_PERSON = 2, 3
HOLD = """\
cd "$(dirname "$0")" || exit 1
touch "at-$1"
n=0
while [ ! -e "go-$1" ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n + 1)); done
"""


class Trial:
    """Carries out one plan in a folder of its own."""

    def __init__(self, plan: Plan, folder: Path, flags: tuple[str, ...] = ()) -> None:
        self.plan = plan
        self._flags = (*flags, "--worktree") if "worktree" in plan.parts else flags  # of `outlast run`
        self.world = AgentWorld(folder, Script([]))
        self.under = Under(self.world, plan.agent, plan.version)
        calls = Calls(plan, self.world.witness.url, str(folder), str(self.world.work))
        self.model = Modelled(plan, calls)
        self.world.model.script = Script(self.model.choose)
        self.out = Outcome(plan)
        self._kills = list(plan.kills)
        self._fires_s: dict[Kill, float] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._second: subprocess.Popen[bytes] | None = None  # was started while the first was stopped
        self._victims = Victims()
        self._ends: list[tuple[float, Callable[[], None]]] = []  # when a stop or a full disk is over
        self._disk: SmallDisk | None = None
        self._began_s = time.monotonic()
        self._limit_s = LIMIT_S + sum(kill.lasts_s for kill in plan.kills)
        self._started_s = self._began_s
        self._looked_s = 0.0
        self._hurries = plan.hasty
        self._lay_out(calls)

    def _lay_out(self, calls: Calls) -> None:
        """What the plan needs before the first start."""
        folder, plan, world = self.world.folder, self.plan, self.world
        (folder / "hold.sh").write_text(HOLD)
        held = {kill.at for kill in plan.kills if kill.when == "hold"}
        for name in plan.tasks:
            if name not in held:
                (folder / f"go-{name}").touch()
        calls.lay_out()
        if "worktree" in plan.parts:  # it gets what is committed
            world.git("add", "-A")
            world.git("commit", "-qm", "all", "--allow-empty")
        for kill in plan.kills:
            if kill.how == "program":
                world.inside(lambda name=kill.at: world.witness.fault("late_reply", match=name))  # type: ignore[misc]
            if kill.how == "fill":
                self._disk = SmallDisk(world.isolated.state_home)
                world.at_end.callback(self._disk.close, folder / "state")
        if "mcp" in plan.parts:
            self.under.environ()  # its settings are there from now on
            holds = {name: task.hold for name, task in plan.tasks.items() if task.hold}
            isolated = world.isolated
            self.under.more = trial_mcp.set_up(
                plan.agent, isolated.home, isolated.config_home, world.witness.url, folder, holds
            )

    # -- carrying it out -------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Until it rests or its time is up; judged."""
        try:
            self._carry()
            self._rest()
            self.out.told.append(
                f"batches that were asked for: {self.model.served}; by {sorted(self.model.used)}"
            )
            judge(self.plan, evidence(self.plan, self.under), self.out)
        except Exception as error:  # one trial that cannot be judged must not end a campaign of hours
            self.out.failures.append(f"{type(error).__name__}: {error}")
            self.out.told += traceback.format_exc().splitlines()
        finally:
            self.out.took_s = time.monotonic() - self._began_s
            self.world.close()
        return self.out

    def _carry(self) -> None:
        self._start("run")
        while True:
            self._wait(self._is_due, "an end or a kill")
            kill = self._fired()
            if kill is not None:
                self._strike(kill)
                continue
            code = self._code()
            assert code is not None, "it is due because it ended"
            self.out.told.append(f"start {self.out.starts} ended with {code}: {self._said()[-300:]}")
            if self._status() == "done":
                return
            # Killed in a call, it is in doubt too; then its agent is told, and may look or try again.
            is_asked = code == EXIT_PERSON and "quarantined" not in self._said()
            if is_asked and not self._settle() and self._disk is None:
                self.out.stuck += 1
                self.out.failures.append(
                    f"asked for a person, and nothing is in doubt: {self._said()[-300:]}"
                )
            if self.out.starts >= STARTS_MAX:
                raise TimeoutError(f"{STARTS_MAX} starts; the last words: {self._said()[-600:]}")
            if self.out.starts == 1:
                self._meddle()
            way = self.plan.ways[self.out.starts % len(self.plan.ways)]
            self._start("resume" if self._status() == "failed" else way)

    def _start(self, way: str) -> None:
        """The same line once more, or `outlast resume`."""
        self.out.starts += 1
        self._end_all()  # a person frees the disk before the next start
        self._process = self._begin(self._words(way), f"said-{self.out.starts}")
        self._started_s = time.monotonic()

    def _words(self, way: str) -> list[str]:
        if self.plan.other and self.out.starts > 1 and self._exists():
            if self._is_others():
                return ["resume", "t"]
            return [
                "resume",
                "t",
                "--agent",
                self.plan.other,
                "--",
                *Under(self.world, self.plan.other).words(PROMPT),
            ]
        if way == "resume" and self._exists():
            return ["resume", "t"]
        return ["run", "--task", "t", *self._flags, "--", *self.under.words(PROMPT)]

    def _begin(self, words: list[str], said: str) -> subprocess.Popen[bytes]:
        env = self.under.environ()
        if self.plan.other:
            is_other = self.plan.other in words or ("resume" in words and self._is_others())
            if is_other:  # the model speaks to that one now
                self.world.model.script = self.world.model.script.with_options(count="calls", finish="")
            other = Under(self.world, self.plan.other).environ()
            first, last = (other, env) if is_other else (env, other)
            env = last | first | {"PATH": f"{first['PATH']}:{last['PATH']}"}
        if "mcp" in self.plan.parts:
            env |= {"ENABLE_TOOL_SEARCH": "false"}  # Claude Code: its model sees every tool at once
        with (
            (self.world.folder / f"{said}.out").open("wb") as out,
            (self.world.folder / f"{said}.err").open("wb") as err,
        ):
            return self.world.begin(self.under.outlast(*words), env=env, stdout=out, stderr=err)

    def _is_others(self) -> bool:
        """Whether the other agent has a session already."""
        return self._exists() and (self.under.shown()["session"] or {}).get("agent") == self.plan.other

    def _exists(self) -> bool:
        return bool(self.under.shown())

    def _said(self) -> str:
        path = self.world.folder / f"said-{self.out.starts}.err"
        return path.read_text(errors="replace") if path.exists() else ""

    def _code(self) -> int | None:
        assert self._process is not None, "it was started"
        return self._process.poll()

    def _status(self) -> str:
        return str(self.under.shown().get("status", ""))

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Poll until it holds, within this limit and the trial's own."""
        left_s = min(limit_s, self._began_s + self._limit_s - time.monotonic())
        try:
            wait_for(condition, left_s, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; start {self.out.starts}: {self._said()[-600:]}") from None

    def _is_due(self) -> bool:
        for until_s, end in [each for each in self._ends if time.monotonic() >= each[0]]:
            self._ends.remove((until_s, end))
            end()
        if self.world.model.hanging and not any(kill.when == "hang" for kill in self._kills):
            self.world.model.release()  # a response that nobody is to be killed in
        return self._fired() is not None or self._is_over()

    def _is_over(self) -> bool:
        """Whether it is to be started again. A hasty person does that at once when its process is gone, unless refused."""
        code = self._code()
        if code is not None and self._second is not None:  # whoever was started meanwhile
            self._process, self._second = self._second, None
            return False
        if code is None or (self._hurries and code not in (0, 2, EXIT_PERSON)):
            return code is not None
        if time.monotonic() < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = time.monotonic()
        return not self.world.processes()

    def _fired(self) -> Kill | None:
        """The kill that is due: its instant has come, and its delay has passed since. One at a start waits for its turn."""
        for place, kill in enumerate(self._kills):
            if kill.when == "start":
                if place == 0 and time.monotonic() >= self._started_s + kill.delay_s:
                    return kill
            elif kill in self._fires_s or self._has_come(kill):
                due_s = self._fires_s.setdefault(kill, time.monotonic() + kill.delay_s)
                return kill if time.monotonic() >= due_s else None
        return None

    def _has_come(self, kill: Kill) -> bool:
        match kill.when:
            case "hold":
                return (self.world.folder / f"at-{kill.at}").exists()
            case "hang":
                return int(kill.at) in self.model.hung and self.world.model.hanging > 0
            case "act":
                return any(act.identity == kill.at for act in self.world.performed())
            case _:
                return int(kill.at) in self.model.served

    # -- killing ---------------------------------------------------------------------------------------------------

    def _strike(self, kill: Kill) -> None:
        """Hit them at one instant, and let go what was held for it."""
        pids = self._hit(kill)
        if (
            not pids and kill.when == "start" and kill.how != "fill"
        ):  # nobody is there: at the next start, then
            self._started_s = math.inf
            return
        self._kills.remove(kill)
        self._started_s = time.monotonic()  # from now on it resumes, by itself or at the next start
        match kill.how:
            case "kill" | "program" if kill.number == signal.SIGKILL:
                kill_at_once(pids, wait=True)
            case "stop" | "takeover":
                self._stop(pids, kill)
            case "fill":
                self._fill(kill.lasts_s)
            case _:
                _signal(pids, kill.number)
        if kill.how == "program":
            self.world.inside(self.world.witness.release)
        if kill.when == "hold":
            (self.world.folder / f"go-{kill.at}").touch()
        if kill.when == "hang":
            self.world.model.release()
        if pids or kill.how == "fill":
            self.out.kills.append(f"{kill} at {time.monotonic() - self._began_s:.1f}s: {len(pids)} processes")

    def _hit(self, kill: Kill) -> list[int]:
        assert self._process is not None, "it was started"
        there = self.world.processes()
        if kill.how == "program":
            return programs(kill.at, there)
        if kill.how == "fill":
            return []
        first = self._process.pid
        found = self._victims.find(kill.victims, first, there)
        return found or self._victims.find(("supervisor", "agent"), first, there)

    def _stop(self, pids: list[int], kill: Kill) -> None:
        """Until its time is over; meanwhile somebody may start it once more."""
        _signal(pids, signal.SIGSTOP)
        self._ends.append((time.monotonic() + kill.lasts_s, lambda: _signal(pids, signal.SIGCONT)))
        if kill.how == "takeover" and self._second is None:
            self._second = self._begin(self._words("run"), f"said-{self.out.starts}-meanwhile")

    def _fill(self, lasts_s: float) -> None:
        assert self._disk is not None, "the plan fills it"
        self._disk.fill()
        self._ends.append((time.monotonic() + lasts_s, self._disk.free))

    def _end_all(self) -> None:
        """End every stop and free the disk."""
        ends, self._ends = self._ends, []
        for _, end in ends:
            end()

    def _rest(self) -> None:
        """Nothing runs on when it is done."""
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not self.world.processes(), "what was left", LEFT_S)
        left = self.world.processes()
        if left:
            self.out.failures.append(f"left running: {[proc.command(pid) for pid in left]}")

    # -- between two starts ------------------------------------------------------------------------------------------

    def _meddle(self) -> None:
        """What the plan has happen before the second start."""
        agent, home, root = self.plan.agent, self.world.home, self.world.root
        match self.plan.between:
            case "torn":
                told = trial_world.tear(agent, home, random.Random(f"{self.plan.seed}:{self.plan.trial}"))
            case "deleted":
                told = trial_world.delete(agent, home)
            case "fresh":
                told = f"{trial_world.delete(agent, home)}; {trial_world.delete_copies(root)}"
            case "worktree":
                folder = Path(self.under.shown().get("workspace") or self.world.work)
                told = f"removed {folder}"
                if folder.resolve() != self.world.work.resolve():
                    shutil.rmtree(folder, ignore_errors=True)
            case "settled":
                told = "settled by a person"
                self._settle()
            case _:
                return
        self.out.told.append(told)

    # -- a person --------------------------------------------------------------------------------------------------

    def _settle(self) -> int:
        """What is in doubt is settled by asking the world; how much it was."""
        before = self.out.settled
        self._wait(lambda: not self.world.processes(), "the end of what was left", ENDING_S)
        performed = {act.name for act in self.world.performed()}
        for effect in self.under.effects():
            if effect["state"] == "in_doubt":
                names = named(effect, self.plan)
                word = "--happened" if names and set(names) <= performed else "--did-not"
                done = self.under.call("settle", "t", effect["id"], word)
                self.out.told.append(f"settle {effect['id']} {effect['name']} {word}: {done.returncode}")
                self.out.settled += 1
        return self.out.settled - before


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def replayed(plan: Plan) -> str:
    """What to type to carry out this trial again."""
    return f"./dev chaos-agents --seed {plan.seed} --only {plan.trial}"


def described(out: Outcome) -> str:
    """A trial for a person who looks into it."""
    plan = out.plan
    lines = [f"trial {plan.trial}, {plan.key}: {replayed(plan)}"]
    lines += [f"  {failure}" for failure in out.failures]
    how = [
        f"repeats {plan.repeats}",
        "hasty" if plan.hasty else "patient",
        *(["careless"] if plan.careless else []),
    ]
    lines += [
        f"  parts: {', '.join(plan.parts)}; {', '.join(how)}; {plan.other and f'then {plan.other}; '}kills:"
    ]
    lines += [f"    {kill}" for kill in plan.kills]
    lines += ["  batches: " + json.dumps([[f"{t.name}:{t.kind}:{t.hold}" for t in b] for b in plan.batches])]
    lines += [f"  {line}" for line in (*out.kills, *out.told)]
    return "\n".join(lines)
