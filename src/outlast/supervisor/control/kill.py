"""`outlast kill`: a request to the holder to save and end; if it does not obey, signals."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from outlast.core import verdict
from outlast.core.state import RunState, Status
from outlast.errors import RunHeld, RunRefused
from outlast.inspect import find
from outlast.operations import requests
from outlast.processes import proc
from outlast.runs import attempts
from outlast.store import locks
from outlast.store.protocol import Store, Summary
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing

How = Literal["not_running", "asked", "signalled", "killed", "waits"]


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. `how`: the run was not running, obeyed the request, was signalled or killed; or has not yet read it.

    `last_save`: of a run that was running, only a save made since the kill.
    """

    run: str
    task: str
    how: How
    status: Status
    beats: int
    evidence: str
    last_save: str | None
    stopped: tuple[str, ...] = ()


def kill(store: Store, run: str, person: Person, *, timing: Timing | None = None) -> Killed:
    """Stop a run and everything of it, saved first. Safe to call again, and by two at once.

    In three steps, each with its limit: a request, a SIGTERM to the guardian, SIGKILL to guardian, supervisor and agent;
    then this process saves the files. Frozen processes get SIGCONT first, for they could not obey. Afterwards no process of
    the run is left, and it is on record that a person wanted that.
    """
    return _Kill(store, requests.root_of(store, run), person, timing or Timing.current()).carry()


class _Kill:
    def __init__(self, store: Store, root: Summary, person: Person, timing: Timing) -> None:
        self._store, self._root, self._person, self._timing = store, root, person, timing
        self._watcher = lock.of(store.local, root.run)
        self._stopped: tuple[str, ...] = ()
        self._saved_before = root.state.last_save
        self._noted_before = lock.noted(store.local, root.run)
        self._saved = ""

    def carry(self) -> Killed:
        store, run = self._store, self._root.run
        if not store.holder_lives(run) and self._watcher is None:
            return self._mark_dead("not_running")
        self._let_go_on()
        if store.holder_lives(run):
            with contextlib.suppress(RunRefused):  # it has just ended
                requests.ask(store, run, "kill", "kill")
            if self._wait(self._timing.kill_request_s, self._let_go):
                return self._after_asking()
            if not self._root.state.supervised:
                return self._outcome("waits")
        return self._force()

    def _after_asking(self) -> Killed:
        """The holder has ended. Wait for its guardian to end too; use force if it starts the command once more."""
        if self._wait(self._timing.kill_signalled_s, self._is_over):
            return self._outcome("asked")
        return self._force()

    def _force(self) -> Killed:
        """Send signals: to a run that waits to start again, hangs, or is frozen."""
        if self._watcher is not None and self._watcher.guardian:
            self._person.say(f"SIGTERM to its guardian, pid {self._watcher.guardian}")
            _signal(self._watcher.guardian, signal.SIGTERM)
            self._let_go_on()
            if self._wait(self._timing.kill_signalled_s, self._is_over) or self._wait_saved():
                return self._mark_dead("signalled")
        self._kill_all()
        return self._mark_dead("killed")

    def _kill_all(self) -> None:
        """SIGKILL the processes that could start the command again, then everything that carries the run's mark."""
        watcher = lock.of(self._store.local, self._root.run) or lock.Watcher(0, 0)
        pids = [pid for pid in (watcher.guardian, watcher.supervisor, self._holder()) if pid]
        self._person.say(f"SIGKILL to {', '.join(f'pid {pid}' for pid in pids) or 'what is left of it'}")
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none acts on the death of another
            for pid in pids:
                _signal(pid, number)
        self._wait(self._timing.killed_s, self._is_over)
        grace_s = self._timing.kill_grace_s
        note = lock.clean_up(self._charge(), spare=(), why="outlast kill", wanted=True, grace_s=grace_s)
        self._stopped, self._saved = note.stopped, note.save

    def _charge(self) -> GuardianMessage:
        """The charge as a guardian would have it."""
        state = requests.summary_of(self._store, self._root.run).state
        return GuardianMessage(
            what="claimed", run=state.run, root=str(self._store.local.folder), workspace=state.workspace, task=state.task,
            epoch=state.attempt.epoch if state.attempt is not None else 0,
        )  # fmt: skip

    def _let_go_on(self) -> None:
        """Continue processes that were frozen, by job control or by hand: they could neither save nor end."""
        watcher = lock.of(self._store.local, self._root.run) or lock.Watcher(0, 0)
        for pid in {
            watcher.guardian,
            watcher.supervisor,
            self._holder() if self._root.state.supervised else 0,
        }:
            there = proc.look(pid) if pid else None
            if there is not None and there.state in "Tt":
                _signal(pid, signal.SIGCONT)

    def _wait_saved(self) -> bool:
        """If the supervisor is dead, its guardian saves the files: wait for that."""
        watcher = lock.of(self._store.local, self._root.run)
        saves = watcher is not None and not watcher.supervisor
        return saves and self._wait(self._timing.kill_saved_s, self._is_over)

    def _holder(self) -> int:
        """The pid of the holder, if it is a process of this host and this boot that still lives."""
        holder = requests.summary_of(self._store, self._root.run).holder
        alive = holder is not None and self._store.holder_lives(self._root.run) and locks.is_here(holder)
        return holder.pid if holder is not None and alive else 0

    # -- looking -------------------------------------------------------------------------------------------------

    def _wait(self, limit_s: float, condition: Callable[[], bool]) -> bool:
        until_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until_s:
                return False
            time.sleep(self._timing.look_every_s)
        return True

    def _let_go(self) -> bool:
        return not self._store.holder_lives(self._root.run)

    def _is_over(self) -> bool:
        return self._let_go() and lock.of(self._store.local, self._root.run) is None

    # -- on record -----------------------------------------------------------------------------------------------

    def _mark_dead(self, how: How) -> Killed:
        """Record that a person killed the run, where it would otherwise go on by itself."""
        summary = requests.summary_of(self._store, self._root.run)
        shown = find.shown_status(self._store, summary.state, summary.run)
        if verdict.of(summary.state, shown, attempts.now(), find.children_in(self._store)).wakes:
            try:
                with requests.claimed(self._store, summary.run) as journal:
                    requests.drain(journal)
                    requests.take(journal, requests.own_request(journal, "kill"))
            except RunHeld:
                self._person.say(f"another process has taken over run {summary.run} meanwhile")
        return self._outcome(how)

    def _outcome(self, how: How) -> Killed:
        summary = requests.summary_of(self._store, self._root.run)
        state: RunState = summary.state
        last_save = state.last_save if how == "not_running" else self._new_save(state)
        if how in ("asked", "signalled", "killed") and not last_save and state.workspace:
            self._person.say("nothing new was saved")
        return Killed(
            run=summary.run, task=summary.task, how=how, beats=state.beats, evidence=state.evidence,
            status=find.shown_status(self._store, state, summary.run), last_save=last_save or None,
            stopped=self._stopped,
        )  # fmt: skip

    def _new_save(self, state: RunState) -> str:
        """The newest save since the kill began: made here, named by a guardian's note, or on record."""
        note = lock.noted(self._store.local, state.run)
        noted = note.save if note is not None and note != self._noted_before else ""
        return self._saved or noted or (state.last_save if state.last_save != self._saved_before else "")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
