"""`outlast demo`: kills an agent with -9 between an act and its record, resumes it, and counts its acts.

The same agent also runs without outlast. Whether the story came true is checked, not assumed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outlast.chaos.demo.agent import COMMENT, STEPS
from outlast.chaos.eval.world import lines
from outlast.chaos.timing import Timing
from outlast.chaos.witness.client import Witness

ACTS = (COMMENT, "pull request", "close")
Say = Callable[[str], None]


class StoryWentWrong(Exception):
    """The demo did not go as its story says."""


@dataclass(frozen=True, slots=True)
class SeenByWitness:
    """The world's view of one agent: its acts from the witness, its questions from the model's own log."""

    acts: Counter[str]
    model_calls: int


def play(say: Say, *, pace_s: float) -> bool:
    """Play the story; True if it came true. Everything happens in a throw-away folder."""
    with tempfile.TemporaryDirectory(prefix="outlast-demo-") as base:
        say(
            f"A scripted agent works through {len(STEPS)} steps. It comments on an issue, opens a pull request and"
        )
        say("closes the issue. The world it acts on is a separate server that keeps its own count.")
        say("")
        say("1. With outlast")
        ours = _agent(Path(base) / "with", "outlast", say, pace_s)
        say("")
        say("2. The same agent without outlast: it acts, then saves its state.json")
        theirs = _agent(Path(base) / "without", "act-then-save", say, pace_s)
    say("")
    for line in _counted(ours, theirs):
        say(line)
    return _came_true(ours, theirs)


def _came_true(ours: SeenByWitness, theirs: SeenByWitness) -> bool:
    once = Counter(dict.fromkeys(ACTS, 1))
    return (ours, theirs) == (SeenByWitness(once, 3), SeenByWitness(once + Counter({COMMENT: 1}), 4))


def _counted(ours: SeenByWitness, theirs: SeenByWitness) -> list[str]:
    rows = [(f"{act}s" if act != "close" else "closings", ours.acts[act], theirs.acts[act]) for act in ACTS]
    rows.append(("model asked", ours.model_calls, theirs.model_calls))
    found = ["What the world saw   with outlast   without"]
    return found + [f"  {what:<18} {mine:>12}   {others:>7}" for what, mine, others in rows]


def _agent(folder: Path, design: str, say: Say, pace_s: float) -> SeenByWitness:
    """One agent: started, killed at the worst instant, started again with the same command."""
    folder.mkdir()
    with Witness.start(folder / "witness.log") as world:
        arguments = [str(folder), world.url, design, str(pace_s)]
        first = _Process([*arguments, "pause"], say)
        if first.listen() != "paused":
            raise StoryWentWrong("the agent ended before it could be killed")
        say(f"  $ kill -9 {first.pid}          after the comment was posted, before that was written down")
        if first.kill() != -signal.SIGKILL:
            raise StoryWentWrong("the agent was not killed by -9")
        say("  the same command again, in a new process:")
        second = _Process(arguments, say)
        if second.listen() != "ended" or second.wait() != 0:
            raise StoryWentWrong(f"the resumed agent failed with exit code {second.wait()}")
        say("  finished")
        acts = Counter(done.name.removeprefix("demo.") for done in world.performances())
    return SeenByWitness(acts, len(lines(folder / "model.jsonl")))


class _Process:
    """An agent's process, and its lines in plain words."""

    def __init__(self, arguments: list[str], say: Say) -> None:
        command = [sys.executable, "-m", "outlast.chaos.demo.agent", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=arguments[0]
        )
        self.pid = self._process.pid
        self._say = say

    def listen(self) -> str:
        """Report the agent's acts, until it waits to be killed (`paused`) or is done (`ended`)."""
        assert self._process.stdout is not None, "stdout is a pipe"
        try:
            for line in self._process.stdout:
                what, about = json.loads(line)
                if what == "paused":
                    return "paused"
                self._tell(what, about)
        except BaseException:
            self.kill()
            raise
        return "ended"

    def _tell(self, what: str, about: str) -> None:
        words = {
            "begin": f"step {about}: {STEPS[int(about) - 1]}" if what == "begin" else "",
            "asked": "        asks the model",
            "sent": f"        sends: {about}",
            "looked": f"        was it posted? looks: it is {about}; not posted again",
        }
        self._say(f"  pid {self.pid}  {words[what]}")

    def kill(self) -> int:
        """SIGKILL, and gone when this returns."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(Timing.current().agent_limit_s)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code
