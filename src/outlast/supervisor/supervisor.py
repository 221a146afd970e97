"""A command carried to its end: attempt after attempt, within limits, each with its cause named.

claim → reap what the last attempt left → save what is found → start → record, save → checks; or: save, stop, reap,
save again, say why, and decide what comes next (`core.restarts`).
"""

import contextlib
import os
import random
import shlex
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import settings
from outlast.agents.events import is_own_limit
from outlast.agents.values import Ask
from outlast.core import budget as budgets, events as ev, restarts, wakeups
from outlast.core.state import RunState
from outlast.core.values import shorten
from outlast.errors import (
    AgentStopped,
    BudgetReached,
    ContractError,
    EffectError,
    OutlastError,
    RunKilled,
    SaveError,
    Stopped,
    StoreError,
    UnreachedEffect,
)
from outlast.operations import prices, requests
from outlast.processes import spawn
from outlast.runs.engine import stores
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import Append
from outlast.store.protocol import Store
from outlast.supervisor.attempt import leftovers, limits as attempt_limits, stop as attempt_stop
from outlast.supervisor.attempt.attempt import Attempt, write_state
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.budget.enforce import NO_PRICE, WrapsUp
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import GuardianMessage, Link
from outlast.supervisor.guardian.signals import Signalled, StopSignals
from outlast.supervisor.launch import background
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing
from outlast.workspace.types import raw

SETUP = "worktree setup"  # the step that an attempt begins with where there is one
EXIT_DONE, EXIT_FAILED, EXIT_PERSON, EXIT_BUDGET, EXIT_PARKED = 0, 1, 3, 4, 5


class Supervisor:
    """One command and its run."""

    def __init__(
        self,
        run: RunEngine,
        launch: Launch,
        variables: dict[str, str],
        link: Link,
        say: Callable[[str], None],
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self._run, self._launch, self._variables, self._person = run, launch, variables, Person(say)
        self._signals = StopSignals(link)
        self._limits = limits_of(launch, wait_s=run.settings["restart_wait_s"])
        run.supervision.launch = msgspec.to_builtins(launch)
        run.supervision.on_claimed = self._prepare
        self._guardian = os.getppid()
        spawn.become_subreaper()  # what leaves its parents stays below us, with or without a mark
        run.supervision.while_checking = self._heed_signals
        self._announce = background.telling()
        self.on_run: Callable[[str], None] = _nobody
        self._reset_at: datetime | None = None
        self._wraps_up = False  # it is started once more, only to come to its ending
        self._by_itself = False  # it ended without having been told to
        run.meter.pays_first = launch.gateway or known_agent(launch) is not None

    def carry(self) -> int:
        """Until the run is done, stopped, parked or given up; the exit code."""
        while True:
            code, decision = self._once()
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
                    self._park(cause)
                    return EXIT_PARKED
                case restarts.Stop(status=status):
                    return self._fail(decision) if status == "failed" else code

    def _once(self) -> tuple[int, restarts.Decision | None]:
        """One attempt, from claim to release; its exit code, and what comes next if that is to be decided."""
        run = self._run
        run.supervision.may_stop = False
        try:
            with run:
                if run.is_done:
                    self._person.say(f"task {run.task} is done already: {run.id}")
                    return EXIT_DONE, None
                write_state(run, self._launch)
                leftovers.take_up_note(run)
                leftovers.name_doubts(run, self._person.say)
                self._announce(run.id, run.task)
                self.on_run(run.id)
                self._attempt()
                self._finish()
            self._tell("done")
            return EXIT_DONE, None
        except (AgentStopped, ContractError) as error:
            return self._judge(error)
        except (EffectError, UnreachedEffect) as error:
            self._tell("needs a person", f"{error}" + (f"; {error.hint}" if error.hint else ""))
            return EXIT_PERSON, None
        except attempt_limits.GivenUp as error:
            return self._given_up(error.stop, str(error)), None
        except attempt_limits.HeldBack as error:
            self._tell("parked", self._wait_words(str(error), error.until))
            return EXIT_PARKED, None
        except (Stopped, StoreError) as error:
            return self._ended(error), None
        except SaveError as error:
            self._refuse_first(error)
            raise
        finally:
            with contextlib.suppress(OutlastError):
                write_state(run, self._launch)

    def _attempt(self) -> None:
        """The command; where its worktree could not be set up, that is why it ended."""
        try:
            attempt = Attempt(self._run, self._launch, self._variables, self._signals, self._person)
            attempt.carry()
            self._by_itself = attempt.by_itself
        except AgentStopped as error:
            if self._launch.setup and _failed_step(self._run.state) == SETUP:
                error.args = (f"the setup of its worktree failed: {error}",)
            raise

    def _finish(self) -> None:
        """The end of the run; with a person at the agent's terminal only where checks say so. Raises LeftByPerson otherwise.

        An agent that was told to wrap up and did is not done, unless checks say so.
        """
        if self._run.state.wrap_beat is not None and not self._by_itself:
            self._finish_early()
            return
        if not self._launch.interactive or known_agent(self._launch) is None:
            self._run.finish()
            return
        if not self._run.contract.checks:
            raise attempt_stop.LeftByPerson
        try:
            self._run.finish()
        except ContractError as error:
            raise attempt_stop.LeftByPerson(str(error)) from error

    def _finish_early(self) -> None:
        why = "it wrapped up when all but the reserve of its budget was spent"
        if not self._run.contract.checks:
            raise AgentStopped(why, cause="budget", progress=True)
        try:
            self._run.finish()
        except ContractError as error:
            raise AgentStopped(f"{why}; not done: {error}", cause="budget", progress=True) from error

    def _heed_signals(self) -> None:
        """Called while checks run: a signal ends them too."""
        self._signals.listen()
        if self._signals.got:
            raise attempt_stop.stopped_by(self._signals.got[0])

    def _judge(self, error: AgentStopped | ContractError) -> tuple[int, restarts.Decision | None]:
        state = self._run.state
        if isinstance(error, AgentStopped) and error.exit_code >= 128:
            self._person.say(f"stopped: {error}; `outlast resume {state.task}` goes on")
            return error.exit_code, None
        if state.status == "in_doubt" and not wakeups.settles_itself(state):
            self._tell("needs a person", _doubt(state))
            return EXIT_PERSON, None
        if isinstance(error, attempt_stop.LeftByPerson):
            self._person.say(f"{error}; {self._ways_on()}")
            return EXIT_DONE, None
        if self._launch.interactive and isinstance(error, AgentStopped) and state.cause != "budget":
            self._person.say(f"{error}; `outlast resume {state.task}` goes on")
            return EXIT_FAILED, None
        if isinstance(error, AgentStopped) and error.wanted and error.cause == "crash":
            self._tell(
                "failed", f"{error}; mend its command and run it anew"
            )  # it would be the same at every try
            return EXIT_FAILED, None
        if isinstance(error, WrapsUp):
            self._wraps_up = True
            return EXIT_BUDGET, restarts.Again(0.0)
        cause = state.cause or "crash"
        self._reset_at = error.reset_at if isinstance(error, AgentStopped) else None
        if cause == "stall":
            self._tell("needs a person", state.evidence)
            return EXIT_PERSON, None
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

    def _more(self, state: RunState) -> str:
        """How a run goes on whose limit is reached: ours, or one that its command gives the agent."""
        resume = f"outlast resume {shlex.quote(state.task)}"
        if is_own_limit(state.evidence):
            return f"; `{resume}` goes on for as much again; for more, raise the limit in its command"
        if state.evidence.startswith(NO_PRICE):
            where = settings.user_folder() / prices.OWN
            return f"; put its price into {where}, then `{resume}` goes on where it was"
        return f"; `{resume} {budgets.more(state, self._run.meter.live())}` goes on where it was"

    def _ways_on(self) -> str:
        """How a run goes on that a person left at the terminal."""
        task = shlex.quote(self._run.task)
        if self._launch.opened:
            return f"`outlast resume {task}` goes on without you, `outlast open {task}` opens it again"
        return f"`outlast resume {task}` or `outlast open {task}` goes on in it"

    def _ended(self, error: OutlastError) -> int:
        """A stop on request, a spent budget, a lost store: said, and not tried again."""
        self._person.say(f"{error}" + (f"; {error.hint}" if error.hint else ""))
        if isinstance(error, BudgetReached):
            return EXIT_BUDGET
        return 128 + signal.SIGTERM if isinstance(error, RunKilled) else error.exit_code

    # -- before an attempt -----------------------------------------------------------------------------------------

    def _prepare(self) -> ev.AttemptEnded | None:
        """The run is ours: nothing of an earlier attempt may run on, and the guardian learns what it guards.

        How an attempt ended that could not say so itself.
        """
        run = self._run
        local = run.journal.store.local
        leftovers.stop_earlier(run, self._person.say, guardian=self._guardian)
        workspace = str(run.folder) if run.terms.workspace else ""
        epoch = run.journal.lease.epoch
        self._signals.link.say(
            GuardianMessage(
                what="claimed",
                run=run.id,
                root=str(local.folder),
                workspace=workspace,
                epoch=epoch,
                task=run.task,
            )
        )
        self._wait_guarded()
        self._refuse_spent()
        self._name_account(local.run_folder(run.id))
        lost = attempt_limits.judge(run, self._limits)
        if not self._launch.interactive:  # a person who sits there sees for themselves
            attempt_limits.hold_back(run, lost, self._launch.account)
        return lost

    def _name_account(self, folder: Path) -> None:
        """Whose limits the agent will meet, on record with the attempt."""
        account = account_of(self._launch, self._variables, folder)
        self._launch = msgspec.structs.replace(self._launch, account=account)
        self._run.supervision.launch = msgspec.to_builtins(self._launch)

    def _refuse_spent(self) -> None:
        """One that has wrapped up does not start again on its reserve. Raises BudgetReached."""
        state = self._run.state
        if state.wrap_beat is not None and state.cause == "budget" and not self._wraps_up:
            more = f"`outlast resume {shlex.quote(state.task)} {budgets.more(state)}` goes on where it was"
            raise BudgetReached(f"run {state.run}: {state.evidence}", hint=more)

    def _wait_guarded(self) -> None:
        """Until the guardian holds its lock; one that is gone is not waited for."""
        until_s = lock.monotonic_s() + self._timing.guarded_s
        while not self._signals.link.closed and lock.monotonic_s() < until_s:
            self._signals.wait(self._timing.guarded_look_s)
            if "guarded" in self._signals.others():
                return

    # -- after one -------------------------------------------------------------------------------------------------

    def _wait(self, wait_s: float) -> int | None:
        """The time between two attempts; an exit code if somebody ends it meanwhile."""
        until_s = lock.monotonic_s() + wait_s
        while (left_s := until_s - lock.monotonic_s()) > 0:
            self._signals.wait(min(left_s, 0.5))
            if self._signals.got:
                return self._waited_enough(self._signals.got[0])
        return None

    def _waited_enough(self, why: Signalled) -> int:
        """A person's wish is on record, so that nothing wakes the run; the end of a host or terminal is nobody's."""
        if why.wanted:
            with contextlib.suppress(OutlastError):  # the guardian left word of it too
                self._write(
                    lambda at: ev.AttemptEnded(
                        at=at,
                        epoch=0,
                        status="interrupted",
                        cause="signal",
                        evidence=why.evidence,
                        wanted=True,
                    )
                )
        self._person.say(
            f"{why.evidence}: no more attempts; `outlast resume {shlex.quote(self._run.task)}` goes on"
        )
        return 128 + why.number

    def _park(self, cause: ev.Cause) -> None:
        """It waits, in nobody's hands: at a wall until that is gone, else until a person mends what is missing."""
        state = self._run.state
        if cause != "quota":
            self._write(lambda at: ev.Parked(at=at, cause=cause, evidence=state.evidence))
            hint = f"`outlast resume {shlex.quote(self._run.task)}` goes on when that is mended"
            self._tell("parked", f"{cause}: {state.evidence}; {hint}")
            return
        with self._store() as store:
            stay = quota_walls.meet(
                store.shelf, self._launch.account, state.run, reset_at=self._reset_at, parks=state.past.parks,
                evidence=state.evidence, apart_s=self._run.settings["wake_apart_s"],
            )  # fmt: skip
        self._write(
            lambda at: ev.Parked(at=at, until=stay.until, evidence=stay.why, account=self._launch.account)
        )
        self._tell("parked", self._wait_words(f"{cause}: {stay.why}", stay.until))

    def _wait_words(self, why: str, until: datetime) -> str:
        name = shlex.quote(self._run.task)
        return f"{why}; trying again at {quota_walls.clock(until)}; `outlast resume {name}` goes on at once"

    def _fail(self, stop: restarts.Stop) -> int:
        evidence = f"{stop.why}; the last: {self._run.state.evidence}"
        self._write(lambda at: attempt_limits.given_up(stop, evidence, at))
        return self._given_up(stop, evidence)

    def _given_up(self, stop: restarts.Stop, why: str) -> int:
        """It is on record that there are no more attempts before a person looks."""
        hint = f"; `outlast resume {shlex.quote(self._run.task)}` allows another try"
        words = {"quarantine": "quarantined", "quota": "needs a person"}
        self._tell(words.get(stop.cause, "failed"), f"{why}{hint}")
        return EXIT_PERSON if stop.cause in words else EXIT_FAILED

    def _refuse_first(self, error: SaveError) -> None:
        """A command whose files could not be saved before its first attempt was refused: nothing wakes it either."""
        with contextlib.suppress(OutlastError):
            if not self._run.state.attempts:
                self._write(
                    lambda at: ev.AttemptEnded(
                        at=at, epoch=0, status="interrupted", cause="crash", evidence=str(error), wanted=True
                    )
                )

    def _write(self, make: Callable[..., ev.AnyEvent]) -> None:
        """One event in a run that rests."""
        with self._store() as store, requests.claimed(store, self._run.id) as journal:
            journal.store.append(journal.batch(Append((make(journal.now()),))))
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


def limits_of(launch: Launch, wait_s: float = 5.0) -> restarts.Limits:
    """How often a command is started, as it was asked for."""
    return restarts.Limits(
        wait_s=wait_s, attempts_max=max(1, launch.restarts), rounds_max=launch.rounds, parks_max=launch.parks
    )


def account_of(launch: Launch, variables: dict[str, str], folder: Path) -> str:
    """Whose limits an agent meets, as its adapter names it; nobody's for a command that is no agent."""
    adapter = known_agent(launch)
    if adapter is None:
        return ""
    ask = Ask(
        words=tuple(launch.words),
        environment=variables,
        cwd=Path(os.fsdecode(raw(launch.cwd))),
        folder=folder,
    )
    return shorten(adapter.account(ask), quota_walls.ACCOUNT_CHARS_MAX)


def _doubt(state: RunState) -> str:
    """What is in doubt, and what to type when one has looked."""
    names = ", ".join(f"{effect.id} {effect.name!r}" for effect in state.in_doubt)
    first = state.in_doubt[0].id if state.in_doubt else "EFFECT"
    return f"in doubt: {names}; look whether it happened, then `outlast settle {state.run} {first} --happened` or `--did-not`"


def _failed_step(state: RunState) -> str:
    """The name of the step that ended the last beat of this attempt, if it failed."""
    began = state.attempt.beats if state.attempt is not None else state.beats
    with contextlib.suppress(msgspec.MsgspecError):
        last = state.recent[-1].text if state.beats > began else "{}"
        ended = msgspec.json.decode(last, type=dict[str, str | int])
        return str(ended.get("step", "")) if ended.get("exit_code") else ""
    return ""


def _nobody(_: str) -> None:
    """Nobody is to be told which run it is."""
