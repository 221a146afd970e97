"""One random trial of a real agent under outlast: started, killed as its plan says, started again until it rests.

Every wait has a limit, and nothing of a trial is left running. trial_judge.py says whether it was good.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from outlast.processes import proc
from outlast.supervisor.launch import environment
from tests.agents.agent_under_outlast import Under
from tests.agents.agent_world import AgentWorld
from tests.agents.script import Script
from tests.agents.trial_judge import Outcome, judge
from tests.agents.trial_plan import Kill, Modelled, Plan
from tests.support.processes import kill_at_once, wait_for

LIMIT_S = 240.0  # a trial comes to rest within this
LEFT_S = 10.0  # what is still there when it is done ends within this
ENDING_S = 60.0  # what outlives the process that a person started ends within this
STARTS_MAX = 14
LOOK_EVERY_S = 0.2  # all processes are many
EXIT_PERSON = 3
PROMPT = "do the task"
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
        self._flags = flags  # of `outlast run`
        self.world = AgentWorld(folder, Script([]))
        self.under = Under(self.world, plan.agent, plan.version)
        self.model = Modelled(plan, self.world.witness.url, str(folder), str(self.world.work))
        self.world.model.script = Script(self.model.choose)
        self.out = Outcome(plan)
        self._kills = list(plan.kills)
        self._fires_s: dict[Kill, float] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor: proc.Proc | None = None
        self._began_s = time.monotonic()
        self._started_s = self._began_s
        self._looked_s = 0.0
        self._hurries = plan.hasty
        (folder / "hold.sh").write_text(HOLD)
        held = {kill.at for kill in plan.kills if kill.when == "hold"}
        for name in plan.tasks:
            if name not in held:
                (folder / f"go-{name}").touch()

    # -- carrying it out -------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Until it rests or its time is up; judged."""
        try:
            self._carry()
            self._rest()
            self.out.told.append(f"batches that were asked for: {self.model.served}")
            judge(self.plan, self.under, self.out)
        except TimeoutError as error:
            self.out.failures.append(f"no rest: {error}")
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.out.failures.append(f"{type(error).__name__}: {error}")
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
            if code == EXIT_PERSON or self._status() == "in_doubt":
                self._settle()
            if self.out.starts >= STARTS_MAX:
                raise TimeoutError(f"{STARTS_MAX} starts; the last words: {self._said()[-600:]}")
            way = self.plan.ways[self.out.starts % len(self.plan.ways)]
            self._start("resume" if self._status() == "failed" else way)

    def _start(self, way: str) -> None:
        """The same line once more, or `outlast resume`."""
        self.out.starts += 1
        words = ["resume", "t"] if way == "resume" and self._exists() else self._line()
        said = self.world.folder / f"said-{self.out.starts}"
        with open(f"{said}.out", "wb") as out, open(f"{said}.err", "wb") as err:
            self._process = self.world.begin(
                self.under.outlast(*words), env=self.under.environ(), stdout=out, stderr=err
            )
        self._started_s = time.monotonic()

    def _line(self) -> list[str]:
        return ["run", "--task", "t", *self._flags, "--", *self.under.words(PROMPT)]

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
        left_s = min(limit_s, self._began_s + LIMIT_S - time.monotonic())
        try:
            wait_for(condition, left_s, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; start {self.out.starts}: {self._said()[-600:]}") from None

    def _is_due(self) -> bool:
        if self.world.model.hanging and not any(kill.when == "hang" for kill in self._kills):
            self.world.model.release()  # a response that nobody is to be killed in
        return self._fired() is not None or self._is_over()

    def _is_over(self) -> bool:
        """Whether it is to be started again. A hasty person does that at once when its process is gone, unless refused."""
        code = self._code()
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
                return any(act.name == kill.at for act in self.world.performed())
            case _:
                return int(kill.at) in self.model.served

    # -- killing ---------------------------------------------------------------------------------------------------

    def _strike(self, kill: Kill) -> None:
        """Kill them at one instant, and let go what was held for it."""
        pids = self._victims(kill.victims) or self._victims(("supervisor", "agent"))
        if not pids and kill.when == "start":  # nobody is there: at the next start, then
            self._started_s = math.inf
            return
        self._kills.remove(kill)
        self._started_s = time.monotonic()  # from now on it resumes, by itself or at the next start
        if kill.number == signal.SIGKILL:
            kill_at_once(pids, wait=True)
        else:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, kill.number)
        if kill.when == "hold":
            (self.world.folder / f"go-{kill.at}").touch()
        if kill.when == "hang":
            self.world.model.release()
        if pids:
            self.out.kills.append(f"{kill} at {time.monotonic() - self._began_s:.1f}s: {len(pids)} processes")

    def _victims(self, names: tuple[str, ...]) -> list[int]:
        there = self.world.processes()
        roles = self._roles(there)
        found: set[int] = set()
        for name in names:
            match name:
                case "all":
                    found |= set(there)
                case "agent group":
                    groups = {there[pid].pgid for pid in roles["agent"]}
                    found |= {pid for pid, each in there.items() if each.pgid in groups}
                case "outer group":
                    groups = {there[pid].pgid for pid in roles["guardian"]}
                    found |= {pid for pid, each in there.items() if each.pgid in groups}
                case _:
                    found |= set(roles[name])
        return sorted(found)

    def _roles(self, there: dict[int, proc.Proc]) -> dict[str, list[int]]:
        """Who is the guardian, the supervisor and the agent among those that are there."""
        assert self._process is not None, "it was started"
        guardian = [pid for pid in (self._process.pid,) if pid in there]
        below = [each for each in there.values() if each.ppid in guardian and not _marked(each.pid)]
        if below:
            self._supervisor = min(below, key=lambda each: each.start_ticks)
        known = self._supervisor
        lives = known is not None and known.pid in there and there[known.pid].identity == known.identity
        supervisor = [known.pid] if known is not None and lives else []
        agent = [pid for pid, each in there.items() if each.ppid in supervisor and _is_agent(pid)]
        return {"guardian": guardian, "supervisor": supervisor, "agent": agent}

    def _rest(self) -> None:
        """Nothing runs on when it is done."""
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not self.world.processes(), "what was left", LEFT_S)
        left = self.world.processes()
        if left:
            self.out.failures.append(f"left running: {[proc.command(pid) for pid in left]}")

    # -- a person --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What is in doubt is settled by asking the world."""
        self._wait(lambda: not self.world.processes(), "the end of what was left", ENDING_S)
        performed = {act.name for act in self.world.performed()}
        for effect in self.under.effects():
            if effect["state"] == "in_doubt":
                names = [name for name in self.plan.tasks if name in effect["name"]]
                word = "--happened" if names and set(names) <= performed else "--did-not"
                done = self.under.call("settle", "t", effect["id"], word)
                self.out.told.append(f"settle {effect['id']} {effect['name']} {word}: {done.returncode}")
                self.out.settled += 1


def _marked(pid: int) -> bool:
    return proc.environ_value(pid, environment.ATTEMPT.encode()) is not None


def _is_agent(pid: int) -> bool:
    """Marked as one, or with an environment that it has overwritten; what works for the supervisor is neither."""
    return _marked(pid) or proc.environ_value(pid, b"HOME") is None


def replayed(plan: Plan) -> str:
    """What to type to carry out this trial again."""
    return f"./dev chaos-agents --seed {plan.seed} --only {plan.trial}"


def described(out: Outcome) -> str:
    """A trial for a person who looks into it."""
    plan = out.plan
    lines = [f"trial {plan.trial}, {plan.key}: {replayed(plan)}"]
    lines += [f"  {failure}" for failure in out.failures]
    lines += [f"  plan: repeats {plan.repeats}, {'hasty' if plan.hasty else 'patient'}; kills:"]
    lines += [f"    {kill}" for kill in plan.kills]
    lines += ["  batches: " + json.dumps([[f"{t.name}:{t.kind}:{t.hold}" for t in b] for b in plan.batches])]
    lines += [f"  {line}" for line in (*out.kills, *out.told)]
    return "\n".join(lines)
