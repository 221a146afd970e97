"""A place in which a test starts commands: a home, repositories, a store to look into, and nothing left running.

What the commands are is said by those who derive from it: tests/supervisor, tests/shell, tests/web/browser."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.core import events as ev
from outlast.inspect import find
from outlast.processes import reap
from outlast.store import open_store
from outlast.store.local import Local
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.guardian import lock
from tests.support import commands
from tests.support.environment import Isolated
from tests.support.processes import kill_at_once, wait_for

FIRST = "git init -q -b main && echo one > a.txt && git add -A && git commit -qm one"


@dataclass
class Place:
    folder: Path
    isolated: Isolated
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    opened: Store | None = None
    timing: str = ""  # shorter waits for whatever is started from now on

    # -- commands ------------------------------------------------------------------------------------------------

    def environ(self, **more: str) -> dict[str, str]:
        """The variables of every command; `outlast` is the one of these tests."""
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        ours = {"PATH": path, "OUTLAST_RESTART_WAIT_S": "0.05", "OUTLAST_TIMING": self.timing}
        return self.isolated.environ(**ours | more)

    def repository(self, name: str = "work") -> Path:
        """A repository with one commit; made when it is asked for first."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            subprocess.run(["sh", "-c", FIRST], cwd=folder, env=self.environ(), check=True)
        return folder

    def begin(self, argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, with nothing to read. It is gone at the end of the test."""
        given = {"env": self.environ(), "stdin": subprocess.DEVNULL, "start_new_session": True}
        process = commands.start(argv, **given | how)
        self.started.append(process)
        return process

    # -- the store -----------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        return self.isolated.state_home / "outlast"

    @property
    def store(self) -> Store:
        """Opened once: much here is asked again and again."""
        if self.opened is None:
            self.opened = open_store(self.root)
        return self.opened

    def summary(self, task: str) -> Summary:
        return self.store.list(RunFilter(task=task))[0]

    def status(self, task: str) -> str:
        summary = self.summary(task)
        return find.shown_status(self.store, summary.state, summary.root)

    def comes_to(self, task: str, status: str) -> None:
        wait_for(lambda: self.status(task) == status or None, what=f"{task} to be {status}")

    def events(self, task: str) -> list[ev.AnyEvent]:
        return [item.event for item in self.store.read(self.summary(task).run, after=0).events]

    # -- processes -----------------------------------------------------------------------------------------------

    def pids(self, *, spare: str = "") -> list[int]:
        """Guardians, supervisors and everything of their attempts, of all runs but those of a task to be spared."""
        found: list[int] = []
        for summary in self.store.list(RunFilter()):
            if summary.task == spare:
                continue
            watcher = lock.of(Local(self.root), summary.run)
            found += [watcher.guardian, watcher.supervisor] if watcher is not None else []
            found += [proc.pid for proc in reap.find(summary.run)]
        return [pid for pid in found if pid]

    def kill_everything(self, *, spare: str = "") -> list[int]:
        """-9 to all at one instant. Those below first: the kernel wakes a stopped group that lost its parent."""
        pids = self.pids(spare=spare)[::-1]
        kill_at_once(pids, wait=True)
        return pids

    def close(self) -> None:
        """Nothing of a test runs on: what it started, and of runs that it looked at everything."""
        if self.opened is not None:
            while pids := self.pids():
                kill_at_once(pids)
            self.opened.close()
        for process in self.started:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
