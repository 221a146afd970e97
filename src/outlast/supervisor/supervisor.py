"""Run a command to its end: attempt after attempt, within limits, each with a recorded cause.

One attempt is in `attempt/attempt.py`; `core/restarts.py` decides what follows an attempt that is not done."""

import contextlib
import math
import os
import random
import shlex
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

from outlast import settings
from outlast.core import budget as budgets, events as ev, restarts, verdict
from outlast.core.state import RunState
from outlast.core.verdict import EXIT_BUDGET, EXIT_DONE, EXIT_FAILED, Verdict, is_own_limit
from outlast.errors import (
    AgentStopped,
    BudgetReached,
    ContractError,
    DiskFull,
    EffectError,
    OutlastError,
    RunHeld,
    RunKilled,
    SaveError,
    Stopped,
    StoreError,
    UnreachedEffect,
    WaitsForPerson,
)
from outlast.inspect import find, standing
from outlast.operations import prices, requests
from outlast.processes import spawn
from outlast.runs import attempts
from outlast.runs.engine import stores
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import Append
from outlast.store import notices
from outlast.store.protocol import Store
from outlast.supervisor.attempt import limits as attempt_limits, stop as attempt_stop
from outlast.supervisor.attempt.attempt import Attempt
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.budget.enforce import NO_PRICE, WrapsUp
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import Link
from outlast.supervisor.guardian.signals import Signalled, StopSignals
from outlast.supervisor.guardian.workspace_lock import Occupied
from outlast.supervisor.launch import background
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing


class Supervisor:
    """One command and its run. Create it before starting threads: it blocks the signals that it reads."""

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        variables: dict[str, str],
        link: Link,
        person: Person,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._run, self._launch, self._variables, self._person = run, launch, variables, person
        self._signals = StopSignals(link)
        notices.listen(notices.Listener(self._waits_for_store, person.say))
        self._limits = attempt_limits.limits_of(launch, wait_s=run.settings["restart_wait_s"])
        self._guardian = os.getppid()
        spawn.become_subreaper()  # what leaves its parents stays below us, with or without a mark
        self._announcement = background.Announcement()
        self._reset_at: datetime | None = None
        self._last_notice_s = -math.inf
        self._wraps_up = False  # it is started once more, only to come to its ending
        run.meter.pays_first = launch.gateway or known_agent(launch) is not None

    def carry(self, workspace: Occupied | None = None) -> int:
        """Until the run is done, stopped, parked or given up; the exit code. `workspace`: the folder that it has for itself."""
        while True:
            code, decision = self._once(workspace)
            if decision is None:
                return code
            match decision:
                case restarts.Again(wait_s=wait_s):
                    if wait_s:
                        self._person.say(f"{self._run.state.evidence}; again in {wait_s:.0f} s")
                    stopped = self._wait(wait_s)
                    if stopped is not None:
                        return stopped
                case restarts.Park(cause=cause):
                    return self._park(cause)
                case restarts.Stop(status=status):
                    return self._fail(decision) if status == "failed" else code

    def _once(self, workspace: Occupied | None) -> tuple[int, restarts.Decision | None]:
        """One attempt, from claim to release; its exit code, and what comes next if that is to be decided."""
        attempt = Attempt(
            self._run, self._launch, self._variables, self._signals, self._person,
            guardian=self._guardian, announcement=self._announcement, workspace=workspace,
            wraps_up=self._wraps_up,
        )  # fmt: skip
        try:
            if attempt.carry():
                self._tell("done", attempt.left_undone())
            else:
                self._person.say(f"task {self._run.task} is done already: {self._run.id}")
            return EXIT_DONE, None
        except (AgentStopped, ContractError) as error:
            return self._judge(error)
        except (EffectError, UnreachedEffect) as error:
            return self._leave(f"{error}" + (f"; {error.hint}" if error.hint else "")), None
        except WaitsForPerson as error:
            return self._waits(error)
        except attempt_limits.GivenUp as error:
            return self._given_up(str(error)), None
        except attempt_limits.HeldBack as error:
            return self._leave(self._wait_words(str(error), error.until)), None
        except (Stopped, StoreError) as error:
            return self._ended(error), None
        except (
            OSError
        ) as error:  # a log, a transcript's copy, a state file: whatever we write may find no room
            full = DiskFull.of(error)
            if full is None:
                raise
            return self._ended(full), None
        except SaveError as error:
            self._refuse_first(error)
            raise
        finally:
            self._launch = attempt.launch  # with the account whose limits it meets
            with contextlib.suppress(
                OutlastError, OSError
            ):  # the state file is for people; it is written again
                attempt.beat_ended()

    def _judge(self, error: AgentStopped | ContractError) -> tuple[int, restarts.Decision | None]:
        state = self._run.state
        if isinstance(error, AgentStopped) and error.exit_code >= 128:
            self._person.say(f"stopped: {error}; {self._way_on('goes on')}")
            return error.exit_code, None
        if isinstance(error, WrapsUp):
            self._wraps_up = True
            return EXIT_BUDGET, restarts.Again(0.0)
        word = self._verdict().word
        if word == "in_doubt":
            return self._leave(self._doubt(state)), None
        if word == "waiting":
            return self._waits(error)
        if isinstance(error, attempt_stop.LeftByPerson):
            self._person.say(f"{error}; {self._ways_on()}")
            return EXIT_DONE, None
        if self._launch.interactive and isinstance(error, AgentStopped) and state.cause != "budget":
            self._person.say(f"{error}; {self._way_on('goes on')}")
            return EXIT_FAILED, None
        if isinstance(error, AgentStopped) and error.wanted and error.cause == "crash":
            # It would be the same at every try.
            self._tell("failed", f"{error}; fix the command and run it again")
            return EXIT_FAILED, None
        cause = state.cause or "crash"
        self._reset_at = error.reset_at if isinstance(error, AgentStopped) else None
        if word == "stalled":
            return self._leave(state.evidence), None
        decision = restarts.after(cause, state.past, self._limits, jitter=random.random())
        if isinstance(decision, restarts.Again) and self._reset_at is not None:
            left_s = (self._reset_at - datetime.now(UTC)).total_seconds()
            decision = restarts.Again(max(decision.wait_s, min(left_s, restarts.RATE_WALL.total_seconds())))
        code = EXIT_BUDGET if cause == "budget" else EXIT_FAILED
        if isinstance(decision, restarts.Stop) and decision.status != "failed":  # `_fail` tells of those
            more = self._more(state) if cause == "budget" else ""
            self._tell("budget" if cause == "budget" else "failed", (decision.why or state.evidence) + more)
        self._wraps_up = False
        return code, decision

    def _waits(self, error: OutlastError) -> tuple[int, restarts.Decision | None]:
        """Leave the run to a person; or go on at once with an answer that came while the attempt was ending."""
        with self._store() as store:
            came = False
            with contextlib.suppress(RunHeld):  # whoever has it just now goes on with it
                came = requests.take_answers(store, self._run.id)
            if came:
                self._run.journal.restart(requests.summary_of(store, self._run.id).state)
        word = self._verdict().word
        heard = came or (isinstance(error, WaitsForPerson) and not error.questions)
        if heard and word not in ("waiting", "in_doubt", "paused", "cancelled"):
            return EXIT_FAILED, restarts.Again(0.0)
        words = f"{error}" if isinstance(error, WaitsForPerson) else self._run.state.evidence
        return self._leave(
            words + (f"; {error.hint}" if error.hint else f"; {self._way_on('lets it go on')}")
        ), None

    def _more(self, state: RunState) -> str:
        """The command that goes on with a run whose limit is reached: our limit, or one that the command line gives the agent."""
        resume = f"outlast resume {shlex.quote(state.task)}"
        if is_own_limit(state.evidence):
            return f"; `{resume}` goes on for as much again; for more, raise the limit in its command"
        if state.evidence.startswith(NO_PRICE):
            where = settings.user_folder() / prices.OWN
            return f"; put its price into {where}, then `{resume}` goes on where it was"
        return f"; `{resume} {budgets.increase_hint(state, self._run.meter.live())}` goes on where it was"

    def _ways_on(self) -> str:
        """The commands that go on with a run that a person left at the terminal."""
        task = shlex.quote(self._run.task)
        if self._launch.opened:
            return f"`outlast resume {task}` goes on without you, `outlast open {task}` opens it again"
        return f"`outlast resume {task}` or `outlast open {task}` goes on in it"

    def _ended(self, error: OutlastError) -> int:
        """Say why the run ended (a request to stop, a spent budget, a lost store). It is not tried again."""
        self._person.say(f"{error}" + (f"; {error.hint}" if error.hint else ""))
        if isinstance(error, BudgetReached):
            return EXIT_BUDGET
        return 128 + signal.SIGTERM if isinstance(error, RunKilled) else error.exit_code

    # -- after one -------------------------------------------------------------------------------------------------

    def _waits_for_store(self, words: str) -> bool:
        """A living agent is not stopped because the store is busy; a person may stop the wait."""
        if threading.current_thread() is threading.main_thread():
            self._signals.listen()
        if self._signals.got:
            return False
        now_s = lock.monotonic_s()
        if now_s - self._last_notice_s >= self._timing.busy_notice_s:
            self._last_notice_s = now_s
            self._person.say(f"{words}; waiting for it")
        return True

    def _wait(self, wait_s: float) -> int | None:
        """Wait between two attempts; an exit code where a signal ends the wait."""
        until_s = lock.monotonic_s() + wait_s
        while (left_s := until_s - lock.monotonic_s()) > 0:
            self._signals.wait(min(left_s, self._timing.restart_tick_s))
            if self._signals.got:
                return self._waited_enough(self._signals.got[0])
        return None

    def _waited_enough(self, why: Signalled) -> int:
        """Record a person's signal, so that nothing wakes the run. The end of a host or terminal is not recorded as a wish."""
        if why.wanted:
            with contextlib.suppress(OutlastError):  # the guardian left word of it too
                self._write(
                    ev.AttemptEnded(
                        at=attempts.now(),
                        epoch=0,
                        status="interrupted",
                        cause="signal",
                        evidence=why.evidence,
                        wanted=True,
                    )
                )
        self._person.say(f"{why.evidence}: no more attempts; {self._way_on('goes on')}")
        return 128 + why.number

    def _park(self, cause: ev.Cause) -> int:
        """Park the run: at a quota wall until it falls, otherwise until a person mends the cause."""
        state = self._run.state
        if cause != "quota":
            self._write(ev.Parked(at=attempts.now(), cause=cause, evidence=state.evidence))
            return self._leave(f"{cause}: {state.evidence}; {self._way_on('goes on when that is mended')}")
        with self._store() as store:
            stay = quota_walls.meet(
                store.shelf, self._launch.account, state.run, reset_at=self._reset_at, parks=state.past.parks,
                evidence=state.evidence, apart_s=self._run.settings["wake_apart_s"],
            )  # fmt: skip
        account = self._launch.account
        self._write(ev.Parked(at=attempts.now(), until=stay.until, evidence=stay.why, account=account))
        return self._leave(self._wait_words(f"{cause}: {stay.why}", stay.until))

    def _wait_words(self, why: str, until: datetime) -> str:
        return f"{why}; trying again at {quota_walls.clock(until)}; {self._way_on('goes on at once')}"

    def _fail(self, stop: restarts.Stop) -> int:
        evidence = f"{stop.why}; the last: {self._run.state.evidence}"
        self._write(attempt_limits.given_up(stop, evidence, attempts.now()))
        return self._given_up(evidence)

    def _given_up(self, why: str) -> int:
        """Tell the person that there are no more attempts before they look; that is on record already."""
        return self._leave(f"{why}; {self._way_on('allows another try')}")

    def _leave(self, why: str) -> int:
        """Tell the person how the run is left; the exit code that says the same."""
        word, cause = self._verdict().word, self._run.state.cause
        self._tell(verdict.notice(word, cause), why)
        return verdict.exit_code(word, cause)

    def _way_on(self, does: str) -> str:
        """The command to type next, and what it does: first settle, then add the missing budget."""
        state = self._run.state
        with self._store() as store:
            command = standing.go_on_command(state, datetime.now(UTC), find.children_in(store))
        if command.startswith("outlast settle"):
            return standing.settle_hint(command)
        return f"`{command.replace(state.run, shlex.quote(state.task), 1)}` {does}"

    def _verdict(self) -> Verdict:
        """How the run stands between two attempts."""
        state = self._run.state
        with self._store() as store:
            return verdict.of(state, state.status, datetime.now(UTC), find.children_in(store))

    def _doubt(self, state: RunState) -> str:
        """The effects that a person settles, and the command to type after looking."""
        with self._store() as store:
            children = find.children_in(store)
            found = verdict.to_settle(children, state)
            command = standing.settle_command(children, state)
        names = ", ".join(f"{effect.id} {effect.name!r}" for _, effect in found)
        return f"in doubt: {names}; {standing.settle_hint(command)}"

    def _refuse_first(self, error: SaveError) -> None:
        """Record that a command was refused because its files could not be saved before its first attempt: nothing wakes it."""
        with contextlib.suppress(OutlastError):
            if not self._run.state.attempts:
                self._write(
                    ev.AttemptEnded(
                        at=attempts.now(),
                        epoch=0,
                        status="interrupted",
                        cause="crash",
                        evidence=str(error),
                        wanted=True,
                    )
                )

    def _write(self, event: ev.AnyEvent) -> None:
        """Record one event in the run between two attempts."""
        with self._store() as store, requests.claimed(store, self._run.id) as journal:
            journal.store.append(journal.batch(Append((event,))))
            self._run.journal.restart(journal.state)

    @contextlib.contextmanager
    def _store(self) -> Iterator[Store]:
        """The store, between two attempts."""
        store = stores.acquire(self._run.terms.store or self._run.settings["store"] or None)
        try:
            yield store
        finally:
            stores.give_back(store)

    def _tell(self, what: str, why: str = "") -> None:
        self._person.tell(self._run, self._run.journal.store.local.run_folder(self._run.state.run), what, why)
