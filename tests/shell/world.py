"""A project in which scripts are started, killed and started again, and what its store has on record."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.store import open_store
from outlast.store.protocol import RunFilter
from tests.support import commands
from tests.support.environment import ROOT, Isolated, isolate, need_tool
from tests.support.processes import wait_for

BEGIN = 'set -eu -o pipefail\neval "$(outlast shell-init)"\n'
SHELLS = ("bash", "zsh")
LIMIT_S = 180.0


class Project:
    """A git repository with scripts in it, and a home of its own."""

    def __init__(self, base: Path, isolated: Isolated, shell: str = "bash") -> None:
        self.shell = need_tool(shell)
        self.folder = base / "project"
        self.folder.mkdir(parents=True)
        self.bin = base / "bin"
        self.bin.mkdir()
        self._isolated = isolated
        self.timing = ""  # shorter waits for whatever is started from now on
        self._started: list[subprocess.Popen[bytes]] = []
        self.store = isolated.state_home / "outlast"
        self.git("init", "-q")
        self.git("commit", "-q", "--allow-empty", "-m", "begin")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=self.environ(), capture_output=True, text=True, check=True
        )
        return done.stdout

    def environ(self, **more: str) -> dict[str, str]:
        path = f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OUTLAST_TIMING": self.timing}
        return self._isolated.environ(**ours | more)

    # -- scripts -------------------------------------------------------------------------------------------------

    def script(self, text: str, name: str = "loop.sh") -> Path:
        """A script that joins a run in its first line."""
        path = self.folder / name
        path.write_text(BEGIN + text)
        return path

    def program(self, name: str, text: str) -> None:
        """A stand-in on the PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, *words: str, stdin: str = "", **more: str) -> "subprocess.Popen[bytes]":
        """Start a command in a session of its own; what it says goes to a file."""
        given = self.folder.parent / "stdin"
        given.write_text(stdin)
        with open(self.output, "ab") as said, open(given, "rb") as read:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.environ(**more), stdin=read, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def begin(self, name: str = "loop.sh", **more: str) -> "subprocess.Popen[bytes]":
        return self.start(self.shell, name, **more)

    def run(self, name: str = "loop.sh", **more: str) -> int:
        """One start of a script to its end, and until that is on record."""
        code = self.begin(name, **more).wait(LIMIT_S)
        self.settled(name)
        return code

    @property
    def output(self) -> Path:
        return self.folder.parent / "output"

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def outlast(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return commands.outlast(words, cwd=self.folder, env=self.environ(), timeout_s=LIMIT_S)

    # -- waiting -------------------------------------------------------------------------------------------------

    def saw(self, name: str) -> Path:
        """Wait for a file that a script makes in the folder above."""
        path = self.folder.parent / name
        wait_for(path.exists, LIMIT_S, f"{name}; it said: {self.said[-2000:]}")
        return path

    def settled(self, task: str = "loop.sh") -> RunState:
        """The newest run of a task, once its keeper or supervisor is through with it."""
        return wait_for(lambda: self._resting(task), LIMIT_S, f"{task} to rest; it said: {self.said[-2000:]}")

    def _resting(self, task: str) -> RunState | None:
        state = self.state(task)
        return state if state is not None and state.attempt is None and not self.keepers() else None

    def keepers(self) -> list[int]:
        """The living keepers of this world. A child that one has forked looks like it until it is another program."""
        found = [pid for pid in self.processes() if b"__keep" in _read(pid, "cmdline")]
        return [pid for pid in found if _parent(pid) not in found]

    def processes(self) -> list[int]:
        """Every process that was started in this world."""
        mark = os.fsencode(f"XDG_STATE_HOME={self._isolated.state_home}")
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if mark in _read(pid, "environ").split(b"\0")]

    # -- the record ----------------------------------------------------------------------------------------------

    def state(self, task: str = "loop.sh") -> RunState | None:
        if not self.store.exists():
            return None
        with contextlib.closing(open_store(self.store)) as store:
            found = store.list(RunFilter(task=task), limit=1)
            return found[0].state if found else None

    def runs(self, task: str = "loop.sh") -> list[str]:
        with contextlib.closing(open_store(self.store)) as store:
            return [summary.run for summary in store.list(RunFilter(task=task))]

    def events(self, task: str = "loop.sh") -> list[ev.AnyEvent]:
        with contextlib.closing(open_store(self.store)) as store:
            run = store.list(RunFilter(task=task), limit=1)[0].run
            return [item.event for item in store.read(run, after=0).events]

    def ends(self, task: str = "loop.sh") -> list[ev.AttemptEnded]:
        return [event for event in self.events(task) if isinstance(event, ev.AttemptEnded)]

    def saves(self, kind: str, task: str = "loop.sh") -> list[str]:
        made = [event for event in self.events(task) if isinstance(event, ev.SaveMade)]
        return [event.commit for event in made if event.kind == kind]

    def clear(self) -> None:
        """End everything of this world."""
        for _ in range(100):
            left = [pid for pid in self.processes() if pid != os.getpid()]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()


def _read(pid: int, what: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


@contextlib.contextmanager
def project(base: Path, shell: str = "bash") -> Iterator[Project]:
    """A project that leaves nothing running."""
    made = Project(base, isolate(base), shell)
    try:
        yield made
    finally:
        made.clear()


def need_examples() -> Path:
    """The folder of the examples that are shipped."""
    folder = ROOT / "examples"
    if not folder.is_dir():
        pytest.fail("the examples are missing")
    return folder
