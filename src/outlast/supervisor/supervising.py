"""A command carried to its end: attempt after attempt, within limits, each with its cause named.

claim → reap what the last attempt left → save what is found → start → record, save → checks; or: save, stop, reap,
save again, say why, and decide what comes next (`core.restarts`).
"""

import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from outlast.core import events as ev
from outlast.core import restarts, waking
from outlast.effects.ops import Append
from outlast.errors import (
    AgentStopped,
    BudgetReached,
    ContractError,
    EffectError,
    OutlastError,
    RunKilled,
    Stopped,
    StoreError,
    UnreachedEffect,
)
from outlast.processes import spawning
from outlast.runs import acts, stores
from outlast.supervisor import background, beginning, guarding, notices
from outlast.supervisor.attempt import Attempt, stopped_by, write_state
from outlast.supervisor.hearing import Ears
from outlast.supervisor.launching import Launch
from outlast.supervisor.link import Link, Told
from outlast.supervisor.supervised import SupervisedRun

GUARDED_S = 5.0
EXIT_DONE, EXIT_FAILED, EXIT_PERSON, EXIT_BUDGET, EXIT_PARKED = 0, 1, 3, 4, 5


class Supervisor:
    """One command and its run."""

    def __init__(
        self,
        run: SupervisedRun,
        launch: Launch,
        variables: dict[str, str],
        link: Link,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._launch, self._variables, self._say = run, launch, variables, say
        self._ears = Ears(link)
        self._limits = restarts.Limits(
            wait_s=run.settings["restart_wait_s"],
            attempts_max=max(1, launch.restarts),
            rounds_max=launch.rounds,
        )
        run.launch = msgspec.to_builtins(launch)
        run.on_claimed = self._prepare
        self._guardian = os.getppid()
        spawning.become_subreaper()  # what leaves its parents stays below us, with or without a mark
        run.while_checking = self._heed_signals
        self._tell = background.telling()
        self.on_run: Callable[[str], None] = _nobody
        self._root = Path()

    def carry(self) -> int:
        """Until the run is done, stopped, parked or given up; the exit code."""
        while True:
            code, decision = self._once()
            if decision is None:
                return code
            match decision:
                case restarts.Again(wait_s=wait_s):
                    if wait_s:
                        self._say(f"{self._run.state.evidence}; again in {wait_s:.0f} s")
                    stopped = self._wait(wait_s)
                    if stopped is not None:
                        return stopped
                case restarts.Park(cause=cause):
                    self._park(cause)
                    return EXIT_PARKED
                case restarts.Stop(status=status):
                    if status == "failed":
                        self._fail(decision)
                        return EXIT_PERSON if decision.cause == "quarantine" else EXIT_FAILED
                    return code

    def _once(self) -> tuple[int, restarts.Decision | None]:
        """One attempt, from claim to release; its exit code, and what comes next if that is to be decided."""
        run = self._run
        run.may_stop = False
        try:
            with run:
                if run.is_done:
                    self._say(f"task {run.task} is done already: {run.id}")
                    return EXIT_DONE, None
                write_state(run, self._launch)
                beginning.take_up_note(run)
                self._tell(run.id, run.task)
                self.on_run(run.id)
                Attempt(run, self._launch, self._variables, self._ears, self._say).carry()
                run.finish()
            self._told("done")
            return EXIT_DONE, None
        except (AgentStopped, ContractError) as error:
            return self._judge(error)
        except (EffectError, UnreachedEffect) as error:
            self._told("needs a person", str(error))
            return EXIT_PERSON, None
        except (Stopped, StoreError) as error:
            return self._ended(error), None
        finally:
            with contextlib.suppress(OutlastError):
                write_state(run, self._launch)

    def _heed_signals(self) -> None:
        """Called while checks run: a signal ends them too."""
        self._ears.listen()
        if self._ears.got:
            raise stopped_by(self._ears.got[0], progress=False)

    def _judge(self, error: AgentStopped | ContractError) -> tuple[int, restarts.Decision | None]:
        state = self._run.state
        if isinstance(error, AgentStopped) and error.exit_code >= 128:
            self._say(f"stopped: {error}; `outlast resume {state.task}` goes on")
            return error.exit_code, None
        if state.status == "in_doubt" and not waking.settles_itself(state):
            self._told("needs a person", "an effect is in doubt")
            return EXIT_PERSON, None
        if self._launch.interactive and isinstance(error, AgentStopped):
            self._say(f"{error}; `outlast resume {state.task}` goes on")
            return EXIT_FAILED, None
        cause = state.cause or "crash"
        decision = restarts.after(cause, state.past, self._limits, jitter=random.random())
        code = EXIT_FAILED
        if isinstance(decision, restarts.Stop) and decision.status != "failed":  # `_fail` tells of those
            self._told("failed", decision.why or state.evidence)
        return code, decision

    def _ended(self, error: OutlastError) -> int:
        """A stop on request, a spent budget, a lost store: said, and not tried again."""
        self._say(f"{error}" + (f"; {error.hint}" if error.hint else ""))
        if isinstance(error, BudgetReached):
            return EXIT_BUDGET
        return 128 + signal.SIGTERM if isinstance(error, RunKilled) else error.exit_code

    # -- before an attempt -----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """The run is ours: nothing of an earlier attempt may run on, and the guardian learns what it guards."""
        run = self._run
        root = self._root = run.journal.store.root
        beginning.stop_earlier(run, self._say, guardian=self._guardian)
        workspace = str(run.folder) if run.terms.workspace else ""
        epoch = run.journal.lease.epoch
        self._ears.link.say(
            Told(what="claimed", run=run.id, root=str(root), workspace=workspace, epoch=epoch, task=run.task)
        )
        self._wait_guarded()

    def _wait_guarded(self) -> None:
        """Until the guardian holds its lock; one that is gone is not waited for."""
        until_s = guarding.monotonic_s() + GUARDED_S
        while not self._ears.link.closed and guarding.monotonic_s() < until_s:
            self._ears.wait(0.1)
            if "guarded" in self._ears.others():
                return

    # -- after one -------------------------------------------------------------------------------------------------

    def _wait(self, wait_s: float) -> int | None:
        """The time between two attempts; an exit code if somebody ends it meanwhile."""
        until_s = guarding.monotonic_s() + wait_s
        while (left_s := until_s - guarding.monotonic_s()) > 0:
            self._ears.wait(min(left_s, 0.5))
            if self._ears.got:
                self._say(f"{self._ears.got[0].evidence}: no more attempts")
                return 128 + self._ears.got[0].number
        return None

    def _park(self, cause: ev.Cause) -> None:
        self._write(lambda at: ev.Parked(at=at, cause=cause, evidence=self._run.state.evidence))
        self._told("parked", f"{cause}: {self._run.state.evidence}")

    def _fail(self, stop: restarts.Stop) -> None:
        """No more attempts by itself: on record, so that nothing wakes it before a person looks."""
        evidence = f"{stop.why}; the last: {self._run.state.evidence}"
        self._write(
            lambda at: ev.AttemptEnded(
                at=at, epoch=0, status=stop.status, cause=stop.cause, evidence=evidence, wanted=True
            )
        )
        self._told("quarantined" if stop.cause == "quarantine" else "failed", evidence)

    def _write(self, make: Callable[..., ev.AnyEvent]) -> None:
        """One event in a run that rests."""
        store = stores.acquire(self._run.terms.store or self._run.settings["store"] or None)
        try:
            with acts.claimed(store, self._run.id) as journal:
                journal.store.append(journal.batch(Append((make(journal.now()),))))
                self._run.journal.restart(journal.state)
        finally:
            stores.give_back(store)

    def _told(self, what: str, why: str = "") -> None:
        state = self._run.state
        self._say(f"{what}" + (f": {why}" if why else ""))
        if what in notices.KINDS:
            folder = guarding.folder_of(self._root, state.run)
            notices.send(self._run.settings["notify"], notices.Notice.of(what, why, state), folder)


def _nobody(_: str) -> None:
    """Nobody is to be told which run it is."""
