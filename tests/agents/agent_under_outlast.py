"""A real agent under `outlast run`, in a world with a scripted model and the external witness: started, killed, started again."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outlast.processes import proc
from tests.agents.world import World
from tests.support.processes import gone, kill_at_once

LIMIT_S = 120.0


@dataclass
class Under:
    """One agent of one kind, as a task called `t`."""

    world: World
    name: str
    version: str | None = None
    more: Sequence[str] = ()
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def words(self, prompt: str = "do the task") -> list[str]:
        """The agent's bare command."""
        made = self.world.command(self.name, prompt, version=self.version, more=self.more, namespaced=False)
        return self._without_session(made.argv)

    def _without_session(self, argv: list[str]) -> list[str]:
        """As a person types it: without a session of its own."""
        for flag in ("--session-id", "--session"):
            if flag in argv:
                at = argv.index(flag)
                argv = argv[:at] + argv[at + 2 :]
        return argv

    def environ(self, **more: str) -> dict[str, str]:
        tool = self.world.command(self.name, "x", version=self.version, namespaced=False)
        return {**tool.env, "OUTLAST_RESTART_WAIT_S": "0.05", "PYTHONSAFEPATH": "1", **more}

    def outlast(self, *words: str) -> list[str]:
        return self.world.namespaced([sys.executable, "-P", "-m", "outlast", *words])

    def start(self, *flags: str, prompt: str = "do the task", **more: Any) -> "subprocess.Popen[bytes]":
        """`outlast run --task t FLAGS -- AGENT`, in a session of its own."""
        process = subprocess.Popen(
            self.outlast("run", "--task", "t", *flags, "--", *self.words(prompt)), cwd=self.world.work,
            start_new_session=True, **{"env": self.environ(), "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE} | more,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *flags: str, prompt: str = "do the task") -> "subprocess.CompletedProcess[str]":
        """The same, to its end."""
        process = self.start(*flags, prompt=prompt)
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Any other command of ours."""
        return subprocess.run(
            self.outlast(*words), cwd=self.world.work, env=self.environ(), capture_output=True, text=True, timeout=60
        )  # fmt: skip

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
        folder = self.world.home / ".local/state/outlast/runs"
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

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                self.kill_all(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
