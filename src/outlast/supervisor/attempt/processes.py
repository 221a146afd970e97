"""The processes of one attempt: found by descent and by the run's mark, stopped with grace, frozen and thawed."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from typing import Protocol

from outlast.processes import proc, reap
from outlast.runs.engine.run import RunEngine
from outlast.supervisor.guardian.signals import StopSignals
from outlast.supervisor.person import Person
from outlast.workspace.git import command


class Search(Protocol):
    """Where the processes of an attempt are found."""

    def find(self) -> Iterable[proc.Proc]:
        """All of them, as they are now."""


class AttemptProcesses:
    """Stops what `search` finds. A second signal to us ends the grace; a third changes nothing."""

    def __init__(
        self,
        run: RunEngine,
        person: Person,
        search: Search,
        signals: StopSignals | None = None,
    ) -> None:
        self._run, self._person, self._search, self._signals = run, person, search, signals

    def stop(self, grace_s: float) -> None:
        """Stop all processes of the attempt. A process that cannot be stopped is recorded.

        Never with SIGINT: Claude Code and Gemini exit 0 then and say that the call under way was rejected, Codex writes
        that the user interrupted it on purpose, aider only asks whether to go on.
        """
        reaped = reap.stop(self._search.find, first=signal.SIGTERM, grace_s=grace_s, on_wait=self._is_hurried)
        for name in reaped.escaped:
            self._person.warn(
                self._run, f"escaped {name}"[:100], f"{name} of the attempt could not be stopped"
            )

    def _is_hurried(self) -> bool:
        if self._signals is None:
            return False
        self._signals.listen()
        return len(self._signals.got) > 1

    def send(self, number: int) -> None:
        """A signal to each of them."""
        for there in self._search.find():
            with contextlib.suppress(OSError):
                os.kill(there.pid, number)


class BelowUs:
    """The processes of a supervised command: all below this process, with or without a mark, but for our own helpers."""

    def __init__(self, run: str) -> None:
        self._run = run

    def find(self) -> Iterator[proc.Proc]:
        """All of them, as they are now."""
        for there in reap.search(self._run, roots=[os.getpid()], spare={os.getppid()}):
            if proc.environ_value(there.pid, command.HELPER.encode()) is None:
                yield there
