"""A command under `outlast run` in a test: its guardian, supervisor and agent by pid, and what outlived whom."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.place import Place
from tests.support.processes import kill_at_once, wait_for
from tests.support.vaults import vault_of

# One attempt: says who it is and who of the one before still lives, makes the tree dirty, and waits to be let go.
AGENT = """
import os, subprocess, sys, time
from pathlib import Path
place = Path(sys.argv[1])
old = [int(line) for line in (place / "pids").read_text().split()] if (place / "pids").exists() else []
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
with open(place / "outlived", "a") as file:
    file.write("".join(f"{pid}\\n" for pid in old if lives(pid)))
child = subprocess.Popen(["setsid", "sleep", "1000"])
with open(place / "pids", "a") as file:
    file.write(f"{os.getpid()} {child.pid}\\n")
with open("work.txt", "a") as file:
    file.write(f"attempt {len(old) // 2 + 1}\\n")
(place / f"ready-{len(old) // 2 + 1}").touch()
while not (place / "go").exists():
    time.sleep(0.01)
"""


def outlast(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "outlast", *words]


@dataclass
class Night(Place):
    """One repository, one home, and the commands that run there."""

    def make(self) -> None:
        self.repository("work")
        (self.folder / "agent.py").write_text(AGENT)

    def environ(self, **more: str) -> dict[str, str]:
        return self.isolated.environ(
            **{"OUTLAST_RESTART_WAIT_S": "0.05", "OUTLAST_TIMING": self.timing} | more
        )

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """`outlast run` of these words, in a session of its own."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.begin(outlast("run", *words), **how | more)

    def start_agent(self) -> subprocess.Popen[bytes]:
        return self.start(
            "--task", "t", "--", sys.executable, "-P", str(self.folder / "agent.py"), str(self.folder)
        )

    def ready(self, attempt: int) -> tuple[int, int]:
        """The agent of this attempt is at work: its pid and that of the grandchild that left its session."""
        wait_for(lambda: (self.folder / f"ready-{attempt}").exists() or None, what=f"attempt {attempt}")
        agent, grandchild = (self.folder / "pids").read_text().splitlines()[attempt - 1].split()
        return int(agent), int(grandchild)

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def ask(self, *words: str) -> Any:
        """What a command prints as JSON."""
        answer = self(*words, "--json")
        assert answer.code in (0, 3), answer.err
        if words[0] == "log":
            return [json.loads(line) for line in answer.out.splitlines()]
        return answer.json

    def attempts(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [entry["event"] for entry in self.ask("log", "t")]
        return [event for event in events if event["t"] == "attempt_ended"]

    def saved(self) -> list[str]:
        """What `work.txt` is in every save of the repository."""
        listed = self.git("for-each-ref", "--format=%(objectname)", "refs/outlast/").split()
        vault = f"--git-dir={vault_of(self.work)}"
        commits = set(listed) | set(self.git(vault, "rev-list", *listed).split()) if listed else set()
        found = (self.git(vault, "show", f"{commit}:work.txt", ok=False) for commit in commits)
        return [text for text in found if text]

    def outlived(self) -> str:
        """Processes of an attempt that lived when the next one began."""
        return (self.folder / "outlived").read_text()

    def close(self) -> None:
        if (self.folder / "pids").exists():
            kill_at_once([int(word) for word in (self.folder / "pids").read_text().split()])
        super().close()


def supervisor_of(guardian: int) -> int:
    """The one child of a guardian that leads a process group of its own."""

    def found() -> int | None:
        children = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
        return next((int(pid) for pid in children if os.getpgid(int(pid)) == int(pid)), None)

    return wait_for(found, what="a supervisor")
