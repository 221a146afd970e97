"""A place in which a test starts commands: a home, repositories, and nothing left running.

What the commands are is said by those who derive from it; docs/testing.md lists them."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from outlast.inspect import find
from outlast.processes import reap
from outlast.processes.proc import Proc
from outlast.store import open_store
from outlast.store.local import Local
from outlast.store.protocol import RunFilter, Store
from outlast.supervisor.guardian import lock
from tests.support import commands
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.home_processes import HomeProcesses
from tests.support.processes import kill_at_once, kill_group, wait_for
from tests.support.store_and_witness import StoreAndWitness
from tests.support.vaults import git_words, seeing

FIRST = "git init -q -b main && echo one > a.txt && git add -A && git commit -qm one"


@dataclass
class Place(StoreAndWitness):
    """Made when its `with` block begins; at the end every process of it is gone."""

    folder: Path
    isolated: Isolated
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    opened: Store | None = None
    timing: str = ""  # shorter waits for whatever is started from now on
    task: str = "t"  # whose run is looked at where none is named

    def make(self) -> None:
        """What is there before the first command."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as unless_made:
            unless_made.callback(self.close)
            self.make()
            unless_made.pop_all()
        return self

    # -- commands ------------------------------------------------------------------------------------------------

    @property
    def work(self) -> Path:
        """Where commands are started."""
        return self.folder / "work"

    def environ(self, **more: str) -> dict[str, str]:
        """The variables of every command; `outlast` is the one of these tests."""
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        ours = {"PATH": path, "OUTLAST_RESTART_WAIT_S": "0.05", "OUTLAST_TIMING": self.timing}
        return self.isolated.environ(**ours | more)

    def begin(self, argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, with nothing to read. It is gone at the end of the test."""
        given = {"cwd": self.work, "stdin": subprocess.DEVNULL, "start_new_session": True}
        if "env" not in how:
            given["env"] = self.environ()
        process = commands.start(argv, **given | how)
        self.started.append(process)
        return process

    def finish(
        self, argv: Sequence[str], *, limit_s: float = TIMEOUT_S, text: bool = False, **how: Any
    ) -> subprocess.CompletedProcess[Any]:
        """The same to its end, with what it said."""
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": text}
        process = self.begin(argv, **given | how)
        out, err = process.communicate(timeout=limit_s)
        self.started.remove(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def __call__(
        self, *words: str | Path, cwd: Path | None = None, limit_s: float = TIMEOUT_S, **more: str
    ) -> Answer:
        """`outlast` with these words, to its end."""
        return commands.ask(words, cwd=cwd or self.work, env=self.environ(**more), limit_s=limit_s)

    # -- repositories --------------------------------------------------------------------------------------------

    def repository(self, name: str = "work") -> Path:
        """A repository with one commit; made when it is asked for first."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            subprocess.run(["sh", "-c", FIRST], cwd=folder, env=self.environ(), check=True)
        return folder

    def git(self, *words: str, ok: bool = True) -> str:
        """What git says in the folder of the commands; nothing where it fails and need not be `ok`."""
        done = subprocess.run(
            ["git", *git_words(self.work, words), *words],
            cwd=self.work,
            env=self.environ() | seeing(self.work),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not ok, done.stderr
        return done.stdout if done.returncode == 0 else ""

    # -- the store -----------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:  # type: ignore[override]
        return self.isolated.state_home / "outlast"

    @property
    def store(self) -> Store:
        """Opened once: much here is asked again and again."""
        if self.opened is None:
            self.opened = open_store(self.root)
        return self.opened

    @contextlib.contextmanager
    def reading(self) -> Iterator[Store]:
        yield self.store

    def status(self, task: str = "") -> str:
        summary = self.summary(task)
        return find.shown_status(self.store, summary.state, summary.root)

    def comes_to(self, task: str, status: str) -> None:
        wait_for(lambda: self.status(task) == status or None, what=f"{task} to be {status}")

    # -- processes -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def home_processes(self) -> HomeProcesses:
        return HomeProcesses(self.isolated)

    def processes(self) -> dict[int, Proc]:
        """Every process that was started here and lives, by pid, whether a run knows of it or not."""
        return self.home_processes.alive([process.pid for process in self.started])

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

    def end_processes(self) -> None:
        """-9 to all of them, one after the other; they are gone when this returns."""
        self.home_processes.kill([process.pid for process in self.started])
        for process in self.started:
            kill_group(process)

    def close(self) -> None:
        """Nothing of a test runs on: what it started, what that started, and everything of its runs."""
        try:
            if self.opened is not None:
                while pids := self.pids():
                    kill_at_once(pids)
                self.opened.close()
                self.opened = None
            self.end_processes()
        finally:
            for process in self.started:
                for stream in (process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()
            super().close()
