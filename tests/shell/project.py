"""A project in which scripts are started, killed and started again; it waits until their keepers are through."""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.core.state import RunState
from tests.support.environment import ROOT, TIMEOUT_S, isolate, need_tool
from tests.support.place import Place
from tests.support.processes import wait_for, words

BEGIN = 'set -eu -o pipefail\neval "$(outlast shell-init)"\n'
SHELLS = ("bash", "zsh")


@dataclass
class Project(Place):
    """A git repository with scripts in it, run by one shell, and stand-ins for programs."""

    task: str = "loop.sh"
    shell: str = "bash"

    def make(self) -> None:
        self.shell = need_tool(self.shell)
        self.bin.mkdir(parents=True)
        self.work.mkdir()
        self.git("init", "-q")
        self.git("commit", "-q", "--allow-empty", "-m", "begin")

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def work(self) -> Path:
        return self.folder / "project"

    def environ(self, **more: str) -> dict[str, str]:
        path = f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return super().environ(**{"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | more)

    # -- scripts -------------------------------------------------------------------------------------------------

    def script(self, text: str, name: str = "loop.sh") -> Path:
        """A script that joins a run in its first line."""
        path = self.work / name
        path.write_text(BEGIN + text)
        return path

    def program(self, name: str, text: str) -> None:
        """A stand-in on the PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, *words: str, stdin: str = "", **more: str) -> "subprocess.Popen[bytes]":
        """Start a command; what it says goes to a file."""
        given = self.folder / "stdin"
        given.write_text(stdin)
        with open(self.output, "ab") as said, open(given, "rb") as read:
            return self.begin(words, env=self.environ(**more), stdin=read, stdout=said, stderr=said)

    def start_script(self, name: str = "loop.sh", **more: str) -> "subprocess.Popen[bytes]":
        return self.start(self.shell, name, **more)

    def run(self, name: str = "loop.sh", **more: str) -> int:
        """One start of a script to its end, and until that is on record."""
        code = self.start_script(name, **more).wait(TIMEOUT_S)
        self.settled(name)
        return code

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    # -- waiting -------------------------------------------------------------------------------------------------

    def saw(self, name: str) -> Path:
        """Wait for a file that a script makes in the folder above."""
        path = self.folder / name
        wait_for(path.exists, TIMEOUT_S, f"{name}; it said: {self.said[-2000:]}")
        return path

    def settled(self, task: str = "") -> RunState:
        """The newest run of a task, once its keeper or supervisor is through with it."""

        def resting() -> RunState | None:
            head = self.head(task)
            return head if head.run and head.attempt is None and not self.keepers() else None

        return wait_for(resting, TIMEOUT_S, f"{task or self.task} to rest; it said: {self.said[-2000:]}")

    def keepers(self) -> Sequence[int]:
        """The living keepers here. A child that one has forked looks like it until it is another program."""
        found = {pid: each for pid, each in self.processes().items() if "__keep" in words(pid)}
        return [pid for pid, each in found.items() if each.ppid not in found]

    # -- the record ----------------------------------------------------------------------------------------------

    def ends(self, task: str = "") -> list[ev.AttemptEnded]:
        return [event for event in self.events(task) if isinstance(event, ev.AttemptEnded)]

    def saves(self, kind: str, task: str = "") -> list[str]:
        made = [event for event in self.events(task) if isinstance(event, ev.SaveMade)]
        return [event.commit for event in made if event.kind == kind]


def project(base: Path, shell: str = "bash") -> Project:
    """With a home of its own. Used in a `with` block."""
    return Project(base, isolate(base), shell=shell)


def need_examples() -> Path:
    """The folder of the examples that are shipped."""
    folder = ROOT / "examples"
    if not folder.is_dir():
        pytest.fail("the examples are missing")
    return folder
