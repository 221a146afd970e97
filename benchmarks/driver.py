"""Starts subjects as processes and lets them work in turns: each gets one slice per round while the others wait."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ANSWER_TIMEOUT_S = 900.0
REASON_CHARS_MAX = 160


class SubjectFailed(Exception):
    """A subject's process ended or hung instead of answering; the message is its last output."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a module in subjects/ and the packages it imports."""

    name: str
    label: str
    needs: tuple[str, ...] = ()
    postgres: bool = False


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("raw_append", "raw append + fdatasync"),
        Subject("raw_sqlite", "raw SQLite (apsw, WAL, FULL)", ("apsw",)),
        Subject("raw_async", "raw SQLite from 100 async tasks", ("apsw",)),
        Subject("outlast", "outlast", ("outlast",)),
        Subject("langgraph", "LangGraph, SQLite, sync", ("langgraph", "langgraph.checkpoint.sqlite")),
        Subject("dbos", "DBOS, SQLite", ("dbos",)),
        Subject("raw_postgres", "raw PostgreSQL insert", ("psycopg",), postgres=True),
        Subject("outlast_postgres", "outlast, PostgreSQL", ("outlast", "psycopg"), postgres=True),
        Subject("absurd", "absurd, PostgreSQL", ("absurd_sdk", "absurdctl"), postgres=True),
        Subject("dbos_postgres", "DBOS, PostgreSQL", ("dbos", "psycopg"), postgres=True),
    )
}


@dataclass(slots=True)
class Bench:
    """One run of the benchmarks: its options, its throw-away folder, and what cannot be measured here."""

    work: Path
    quick: bool
    rounds: int | None
    postgres_url: str = ""
    no_postgres: str = "not started"
    page_bytes: int = 4096
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)
    histories: dict[tuple[str, int], Path] = field(default_factory=dict)

    def pick(self, *, full: int, quick: int) -> int:
        return quick if self.quick else full

    def rounds_of(self, *, full: int, quick: int) -> int:
        return self.rounds or self.pick(full=full, quick=quick)

    def folder(self, prefix: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=prefix + "-", dir=self.work))

    def unavailable(self, name: str) -> str | None:
        """Why a subject cannot be measured here, or None."""
        subject = SUBJECTS[name.partition(".")[0]]
        absent = [package for package in subject.needs if not importable(package)]
        if absent:
            return f"not installed: {', '.join(absent)}"
        return self.no_postgres if subject.postgres and not self.postgres_url else None

    def history(self, name: str, beats: int) -> Path:
        """The folder of a subject that SIGKILL ended after so many durable steps; made once, never written again."""
        key = (name, beats)
        reason = self.unavailable(name)
        if reason is not None:
            raise SubjectFailed(reason)
        if key not in self.histories:
            self.say(f"  making a history of {beats:,} steps: {name}")
            self.histories[key] = make_history(self, name, beats)
        return self.histories[key]


def importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def environment(folder: Path) -> dict[str, str]:
    """The caller's environment, without what would influence a subject, and with a home of its own."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OUTLAST", "DBOS", "LANG", "PG"))
    }
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    return kept | own | {"LANG": "C.UTF-8"}


class Worker:
    """The process of one subject."""

    def __init__(
        self, bench: Bench, name: str, duty: str, number: int, folder: Path, prefix: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._log = (folder / "log.txt").open("a+")
        arguments = [name, duty, str(folder), bench.postgres_url, str(bench.page_bytes), str(number)]
        self.started_at_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-P", str(HERE / "subject.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            env=environment(folder),
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "stdout is a pipe"
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise SubjectFailed(self._last_word())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def go(self, count: int) -> dict[str, Any]:
        assert self._process.stdin is not None, "stdin is a pipe"
        try:
            self._process.stdin.write(f"go {count}\n")
            self._process.stdin.flush()
        except BrokenPipeError as gone:
            raise SubjectFailed(self._last_word()) from gone
        return self.answer()

    def _last_word(self) -> str:
        code = self._process.wait()
        self._log.flush()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return f"exit {code}: {(lines or ['no output'])[-1]}"[:REASON_CHARS_MAX]

    def died(self) -> int:
        """Wait for a process that ends by itself; return its exit code."""
        code = self._process.wait(ANSWER_TIMEOUT_S)
        self.close()
        return code

    def close(self) -> None:
        """Kill the process. Its pipes are closed first, which tells a waiting one to stop."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()
        self._log.close()


@dataclass(slots=True)
class Turns:
    """The result of a round-robin: answers by subject, one per round, and the reason for each subject without any."""

    answers: dict[str, list[dict[str, Any]]]
    absent: dict[str, str]


def take_turns(bench: Bench, slices: dict[str, int], duty: str, number: int, rounds: int) -> Turns:
    """Each subject's slice once per round, in reverse order in every second round so that a trend favours nobody."""
    turns = Turns({}, {})
    workers = start_all(bench, list(slices), duty, number, turns.absent)
    turns.answers = {name: [] for name in workers}
    try:
        for turn in range(rounds):
            order = list(workers) if turn % 2 == 0 else list(reversed(workers))
            for name in order:
                if name not in turns.absent:
                    one_turn(workers[name], slices[name], turns)
            bench.say(f"  round {turn + 1} of {rounds}")
    finally:
        for worker in workers.values():
            worker.close()
    turns.answers = {name: got for name, got in turns.answers.items() if name not in turns.absent}
    return turns


def one_turn(worker: Worker, count: int, turns: Turns) -> None:
    try:
        turns.answers[worker.name].append(worker.go(count))
    except SubjectFailed as failure:
        turns.absent[worker.name] = str(failure)


def start_all(
    bench: Bench, names: list[str], duty: str, number: int, absent: dict[str, str]
) -> dict[str, Worker]:
    """Start the subjects one after the other; each waits when it is warm."""
    workers: dict[str, Worker] = {}
    for name in names:
        reason = bench.unavailable(name)
        if reason is not None:
            absent[name] = reason
            continue
        worker = Worker(bench, name, duty, number, bench.folder(name))
        try:
            worker.answer()
        except SubjectFailed as failure:
            absent[name] = str(failure)
            worker.close()
        else:
            workers[name] = worker
    return workers


def make_history(bench: Bench, name: str, beats: int) -> Path:
    """Made in memory, where a sync costs nothing, then copied to the disk: 100,000 syncs would take minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="outlast-bench-", dir=memory if memory.is_dir() else bench.work
    ) as making:
        worker = Worker(bench, name, "die", beats, Path(making))
        try:
            worker.answer()
            worker.died()
        finally:
            worker.close()
        finished = bench.folder(f"history-{name}-{beats}")
        shutil.copytree(making, finished, dirs_exist_ok=True, symlinks=True)
    return finished
