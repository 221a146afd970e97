"""A real agent under `outlast run`, in a world with a scripted model and the external witness: started, killed, started again."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlast.processes import proc
from tests.agents.agent_world import AgentWorld
from tests.agents.cli_arguments import without_session
from tests.support.commands import ARGV
from tests.support.processes import gone, kill_at_once

LIMIT_S = 120.0


@dataclass
class Under:
    """One agent of one kind, as a task called `t`."""

    world: AgentWorld
    name: str
    version: str | None = None
    more: Sequence[str] = ()

    def words(self, prompt: str = "do the task") -> list[str]:
        """The agent's bare command."""
        made = self.world.command(self.name, prompt, version=self.version, more=self.more, namespaced=False)
        return without_session(made.argv)

    def environ(self, **more: str) -> dict[str, str]:
        tool = self.world.command(self.name, "x", version=self.version, namespaced=False)
        return {**tool.env, "OUTLAST_RESTART_WAIT_S": "0.05", "PYTHONSAFEPATH": "1", **more}

    def outlast(self, *words: str) -> list[str]:
        return self.world.namespaced([*ARGV, *words])

    def start(self, *flags: str, prompt: str = "do the task", **more: Any) -> "subprocess.Popen[bytes]":
        """`outlast run --task t FLAGS -- AGENT`, in a session of its own."""
        how = {"env": self.environ(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        return self.world.begin(self.outlast("run", "--task", "t", *flags, "--", *self.words(prompt)), **how)

    def run(self, *flags: str, prompt: str = "do the task") -> "subprocess.CompletedProcess[str]":
        """The same, to its end."""
        process = self.start(*flags, prompt=prompt)
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Any other command of ours."""
        return self.world.finish(self.outlast(*words), env=self.environ(), text=True, limit_s=LIMIT_S)

    def shown(self, task: str = "t") -> dict[str, Any]:
        done = self.call("show", task, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def effects(self) -> list[dict[str, Any]]:
        found = json.loads(self.call("effects", "t", "--json").stdout)
        return found["effects"] if isinstance(found, dict) else found

    def pids(self, process: "subprocess.Popen[bytes]") -> list[int]:
        """The guardian, the supervisor, the agent and all below."""
        found, level = [process.pid], [process.pid]
        while level:
            level = [pid for pid, there in proc.all_processes().items() if there.ppid in level]
            found += level
        return found

    def kept(self, text: str) -> bool:
        """Whether our copies of the agent's transcripts hold this."""
        folder = self.world.root / "runs"
        return any(text.encode() in path.read_bytes() for path in folder.glob("*/agent/*.jsonl"))

    def agent(self, process: "subprocess.Popen[bytes]") -> int:
        """The agent itself: the first child of the supervisor that is no helper of ours; orphans of it may be others."""
        supervisor = self.pids(process)[1]
        below = [pid for pid, there in proc.all_processes().items() if there.ppid == supervisor]
        return min(pid for pid in below if proc.environ_value(pid, b"OUTLAST_HELPER") is None)

    def kill_all(self, process: "subprocess.Popen[bytes]") -> None:
        """Everything at one instant, as a power cut would: nothing of it can react to the death of another."""
        pids = self.pids(process)
        kill_at_once(pids)
        process.wait(timeout=LIMIT_S)
        gone(pids)
