"""A host in a test: some repositories, one home, scripts under `outlast run` in each, and a world that counts effects.

A script is `outlast step` after `outlast step`, each noted by its own command, and waits where it is told to.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlast.core import events as ev
from tests.support import commands
from tests.support.place import Place
from tests.support.processes import wait_for

STEPS = 6

# Does it, and says whether it was done: `act.py URL NAME do|look [FILE to wait for after it was done]`.
ACT = """
import os, sys, time
from pathlib import Path
from outlast.chaos.witness.client import Client
url, name, what, *rest = sys.argv[1:]
if what == "look":
    sys.exit(0 if Client(url).find(name) else 1)
Client(url).act("probed", name, {"for": name}, marker=name)
Path(rest[0] + ".acted").touch()
while not Path(rest[0]).exists():
    time.sleep(0.01)
"""


@dataclass
class Host(Place):
    """Each task has a repository of its name."""

    # -- commands ------------------------------------------------------------------------------------------------

    @property
    def work(self) -> Path:
        return self.folder

    def environ(self, **more: str) -> dict[str, str]:
        return super().environ(**{"USER": "tester", "PYTHONDONTWRITEBYTECODE": "1"} | more)

    def start(
        self, task: str, *words: str, options: Sequence[str] = (), within: Sequence[str] = (), **more: str
    ) -> subprocess.Popen[bytes]:
        """`outlast run` of these words in a repository of the task's name."""
        argv = [*within, *commands.ARGV, "run", "--task", task, *options, "--", *words]
        with open(self.folder / f"{task}.said", "ab") as said:
            return self.begin(
                argv, cwd=self.repository(task), env=self.environ(**more), stdout=said, stderr=said
            )

    # -- a script that waits -------------------------------------------------------------------------------------

    def script(self, task: str, *, hold: str) -> list[str]:
        """Six noted steps with one payment after the third; it waits in `hold`: a step's number, or "pay"."""
        act = self.folder / "act.py"
        act.write_text(ACT)
        done = f"{sys.executable} -P {act} {self.witness.url} pay-{task}"
        lines = ["set -eu", "stop() { touch ../$1.ready; while [ ! -e ../go ]; do sleep 0.02; done; }"]
        lines += ["step() { echo $1 >> ../$2.notes; if [ $1 = $3 ]; then stop $2; fi; echo $1 >> work.txt; }"]
        lines += ["export -f step stop"]
        for number in range(1, STEPS + 1):
            lines.append(f"outlast step s{number} -- bash -c 'step {number} {task} {hold}'")
            if number == 3:
                gate = "../go" if hold == "pay" else "."
                lines.append(f"outlast effect pay --probe '{done} look' -- {done} do {gate}")
        path = self.folder / f"{task}.sh"
        path.write_text("\n".join(lines) + "\n")
        return ["bash", str(path)]

    def at_hold(self, task: str, hold: str) -> None:
        mark = self.folder / ("go.acted" if hold == "pay" else f"{task}.ready")
        wait_for(lambda: mark.exists() or None, what=f"{task} in {hold}: {self.said(task)}")

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def notes(self, task: str) -> Counter[str]:
        """How often each step was begun."""
        path = self.folder / f"{task}.notes"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def said(self, task: str) -> str:
        path = self.folder / f"{task}.said"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- the store -----------------------------------------------------------------------------------------------

    def events_if(self, task: str) -> list[ev.AnyEvent]:
        """Its events; none while there is no such run yet."""
        return self.events(task) if self.runs(task) else []

    def has_ended(self, task: str) -> bool:
        """Whether an attempt of it is over."""
        runs = self.runs(task)
        return bool(runs) and bool(self.store.read(runs[0].run, after=0, tags=("attempt_ended",)).events)

    def log(self, task: str) -> str:
        """What the supervisor of a woken run said."""
        return (self.root / "runs" / self.summary(task).run / "supervisor.log").read_text()
