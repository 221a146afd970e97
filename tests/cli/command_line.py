"""The real command line in a project of the test's own: each call is a process, forked from a warm one in a sample.

`work` makes runs in this process; `LiveAgent` is one that lives."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import apsw
import msgspec

import outlast
from outlast import faults
from outlast.cli.main import main
from outlast.inspect import find, show
from outlast.runs.opening.project import project_of
from outlast.store.protocol import RunFilter
from tests.support import commands
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, Isolated
from tests.support.store_and_witness import StoreAndWitness


@dataclass(frozen=True)
class Cli(StoreAndWitness):
    """The command line in one project with one home."""

    folder: Path
    isolated: Isolated

    @property
    def environ(self) -> dict[str, str]:
        return self.isolated.environ(USER="tester", PYTHONDONTWRITEBYTECODE="1")

    @property
    def root(self) -> Path:  # type: ignore[override]
        return self.isolated.state_home / "outlast"

    def __call__(self, *words: str | Path, **more: str) -> Answer:
        """Run a command to its end."""
        return commands.ask(words, cwd=self.folder, env=self.environ | more)

    def ok(self, *words: str | Path) -> Answer:
        """Run a command that must succeed."""
        answer = self(*words)
        assert answer.code == 0, answer.err
        return answer

    def killed_at(self, nth: int, *words: str | Path) -> bool:
        """Run a command and kill it at its n-th crash point; False when it met fewer and ended well."""
        kill = faults.nth(nth, lambda name: os.kill(os.getpid(), signal.SIGKILL))
        answer = self.forked(*words, hook=kill)
        assert answer.code in (0, -signal.SIGKILL), answer.err
        return answer.code == -signal.SIGKILL

    def killed_at_point(self, point: str, *words: str | Path) -> bool:
        """Run a command and kill it when it first meets a named crash point; False when it never did and ended well."""
        assert point in faults.POINTS

        def hook(name: str) -> None:
            if name == point:
                os.kill(os.getpid(), signal.SIGKILL)

        answer = self.forked(*words, hook=hook)
        assert answer.code in (0, -signal.SIGKILL), answer.err
        return answer.code == -signal.SIGKILL

    def forked(self, *words: str | Path, hook: Callable[[str], None] | None = None) -> Answer:
        """Run a command in a fork of this process: as killable as any other, and started in no time."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with warnings.catch_warnings():
                # The worker has a thread of its own, which the child does not need.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                self._be_the_command([str(word) for word in words], hook, out.fileno(), err.fileno())
            _, status = os.waitpid(pid, 0)
            said = [os.pread(file.fileno(), 1 << 20, 0).decode() for file in (out, err)]
        return Answer(os.waitstatus_to_exitcode(status), *said)

    def _be_the_command(
        self, words: list[str], hook: Callable[[str], None] | None, out: int, err: int
    ) -> NoReturn:
        code = 99
        try:
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # pytest's own belong to the parent
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            os.environ.clear()
            os.environ.update(self.environ)
            os.chdir(self.folder)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
            faults.arm(hook)
            try:
                code = main(words)
            except SystemExit as leaving:
                code = int(leaving.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def program(self, *argv: str) -> Answer:
        """Run another program to its end."""
        return commands.answer_to(argv, cwd=self.folder, env=self.environ)

    @contextlib.contextmanager
    def started(self, *argv: str) -> Iterator["subprocess.Popen[str]"]:
        """A process with pipes that is certainly gone at the end of the block."""
        process = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A suite started in the background inherits an ignored Ctrl-C, and so would what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def show(self, run: str = "1411") -> Any:
        """Everything about a run: what `outlast show --json` prints, without the process."""
        with self.reading() as store:
            found = find.find(store, run, project_of(self.folder))
            return json.loads(msgspec.json.encode(show.full(store, found)))

    def tasks(self) -> list[str]:
        """The tasks of the project's runs, newest first."""
        with self.reading() as store:
            return [
                found.task
                for found in find.all_runs(store, RunFilter(project=project_of(self.folder), parent=""))
            ]

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of the store, and the names of its payloads, to see that nothing changed."""
        database = self.root / "outlast.db"
        if not database.exists():
            return {}
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found: dict[str, list[tuple[Any, ...]]] = {
                table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
                for table in ("runs", "heads", "events", "requests")
            }
        finally:
            connection.close()
        found["blobs"] = [(path.name,) for path in sorted((self.root / "blobs").glob("??/*"))]
        return found

    def copied(self, folder: Path) -> "Cli":
        """The same project with a copy of the store."""
        home = folder / "home"
        shutil.copytree(self.isolated.home, home)
        return replace(self, isolated=Isolated.at(home))

    def empty(self, folder: Path) -> "Cli":
        """The same project with a store of its own that is not there yet."""
        home = folder / "other-home"
        (home / ".config").mkdir(parents=True)
        return replace(self, isolated=Isolated.at(home))


PLAN = [("prepare", ["read", "draft"]), "post", "check", "close"]


def unknown_outcome(**_: object) -> None:
    raise TimeoutError("no answer")


def work(
    task: str = "1411",
    *,
    beats: int = 5,
    doubt_at: int = 0,
    act: Callable[..., object] = lambda **given: {"url": f"https://example.invalid/{given.get('issue')}"},
    **terms: Any,
) -> str:
    """Carry a run through some beats, each with a decision and an effect; its id."""
    try:
        with outlast.run(task, goal="Trap exit signals", **terms) as run:
            run.plan(PLAN)
            for beat in run.beats():
                if beat.number > beats:
                    break
                said = beat.decide(
                    "draft", lambda: outlast.Answer("text", outlast.Usage(input=90, output=10))
                )
                fn = unknown_outcome if beat.number == doubt_at else act
                beat.act("comment", fn, issue=beat.number, body=said, unknown="ask")
                beat.remember("notes", "file:notes.md")
                beat.done(result={"said": said}, evidence={"beat": beat.number})
    except outlast.EffectInDoubt:
        pass
    return run.id


AGENT = """
import sys
import outlast

def comment(issue):
    print("acting", issue, flush=True)
    sys.stdin.readline()
    return issue

with outlast.run("1411", goal="Trap exit signals") as run:
    run.plan(["one", "two", "three"])
    print("running", flush=True)
    for beat in run.beats():
        beat.act("comment", comment, issue=beat.number)
        beat.done(beat.number)
"""


@dataclass
class LiveAgent:
    """A living holder that performs one effect per beat, each when it is told to."""

    process: "subprocess.Popen[str]"

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr."""
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, err

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
