"""Resume: let a run go on, with more budget where that is asked for. Waking all is `supervisor.control.wake`."""

import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from outlast.acts.budget import limit_now, limit_words, require_limit, rest_words
from outlast.acts.plan import RESTING, WRITES, ActOutcome, about_child, called, effects, name, root_of, stands
from outlast.acts.timing import Timing
from outlast.core import questions as qs, verdict
from outlast.core.secrets import mask
from outlast.core.state import Status
from outlast.core.text import short
from outlast.core.values import Allowance
from outlast.errors import RunRefused
from outlast.inspect import find
from outlast.inspect.questions import answer_command
from outlast.inspect.standing import settle_command, settle_hint
from outlast.operations import requests
from outlast.runs.inbox import STOPS
from outlast.store.protocol import Request, Store, Summary
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.control import resume as control, takeover, wake
from outlast.supervisor.control.wake import Sleeper
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.workspace.types import raw

COMMAND_CHARS = 300


@dataclass(frozen=True, slots=True)
class ResumeWish:
    """How a run is to go on. `limit_was` is the allowance that the amounts were chosen for.

    `agent` is another one that goes on, with its usual command or with `agent_command`. `background`: nobody watches it.
    """

    amounts: tuple[str, ...] = ()
    until: str | None = None
    limit_was: str = ""
    accept_rewind: bool = False
    agent: str | None = None
    agent_command: tuple[str, ...] = ()
    background: bool = True

    @property
    def changes_budget(self) -> bool:
        """Whether another budget is asked for."""
        return bool(self.amounts) or self.until is not None


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """A resume worked out. `launch` is how its command is started; None for a program of somebody's own.

    `notes` tell the person about the budget and the agent, `hindrances` about what may stop it soon;
    the sentences have both.
    """

    store: Store
    run: Summary
    root: Summary
    wish: ResumeWish
    launch: Launch | None
    budget: Allowance | None
    before: Allowance | None
    notes: tuple[str, ...]
    hindrances: tuple[str, ...]
    sentences: tuple[str, ...]
    asks: bool = False  # it would stop again, until a person has settled what is in doubt

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        options = [word for text in self.wish.amounts for word in ("--budget", text)]
        options += ["--until", self.wish.until] if self.wish.until is not None else []
        options += ["--accept-rewind"] if self.wish.accept_rewind else []
        options += ["--agent", self.wish.agent] if self.wish.agent is not None else []
        options += ["--", *self.wish.agent_command] if self.wish.agent_command else []
        detach = ("--detach",) if self.launch is not None and self.wish.background else ()
        return ("resume", self.root.run, *detach, *options)

    def apply(self, by: str = "") -> ActOutcome:
        """Allow it, and start its command in the background; a program of somebody's own is theirs to start."""
        run = self.root.run
        with requests.alone(self.store, run, "resume"):
            _let_leave(self.store, run)
            root = requests.summary_of(self.store, run)
            status = find.shown_status(self.store, root.state, run)
            if status == "running" or root.state.attempts > self.root.state.attempts:
                return self._went_on(root, status)
            allowed = plan(self.store, self.run, self.wish).allow(by)
            if self.launch is None:
                return allowed
            root = requests.summary_of(self.store, run)
            outcome = _started(wake.wake_one(self.store, root, Timing.current().started_within_s), root)
        if outcome.ok or self.budget is None:
            return outcome
        limit = limit_words(root.state.budget)
        return msgspec.structs.replace(
            outcome, says=f"{outcome.says} Its budget is already {limit}, although it did not start."
        )

    def allow(self, by: str = "") -> ActOutcome:
        """Record that a person wants it to go on, and with which budget. The caller starts its command."""
        store, run, wish = self.store, self.root.run, self.wish
        if self.launch is not None:
            _let_leave(store, run)
            control.refuse_watched(store, self.root)
        with requests.alone(store, run, WRITES):
            require_limit(wish.limit_was if wish.changes_budget else "", limit_now(store, run))
            outcome = control.allow_again(
                store, self.root, wish.amounts, wish.until, accept_rewind=wish.accept_rewind, by=by
            )
        says = f"{name(self.root)} may be started again"
        if self.launch is not None:
            says += "."
        elif self.asks:
            says += ": settle what is in doubt, then start its program."
        else:
            says += f": start its program, and it goes on at beat {self._beat}."
        if wish.changes_budget:
            after = requests.summary_of(store, run).state.budget
            says += f" Its budget is now {limit_words(after)}."
        return ActOutcome(says=says, changed=outcome.changed or wish.changes_budget, link=self.run.run)

    @property
    def _beat(self) -> int:
        return self.root.state.beats + 1

    def _went_on(self, root: Summary, status: Status) -> ActOutcome:
        """Somebody else resumed it since this was worked out. Raises RunRefused where budget was asked for: it has none of it."""
        if self.wish.changes_budget:
            raise _not_with_budget(root, "went on meanwhile", self.wish)
        says = f"{name(root)} went on already: it is {stands(self.store, root)}, in attempt {root.state.attempts:,}."
        return ActOutcome(says=says, changed=False, link=self.run.run)


def plan(store: Store, summary: Summary, wish: ResumeWish, *, wait: bool = False) -> ResumePlan:
    """Work out how a run would go on. Raises RunRefused, UsageError.

    With `wait` a run that was asked to stop gets a moment to do so, and so does a process that was just killed.
    """
    root, status = root_of(store, summary)
    if status == "running":
        _let_stop(store, root, Timing.current().leaves_within_s if wait else 0.0)
        if wait and not _stays(lambda: _runs(store, root.run)):
            root, status = root_of(store, summary)
        elif wish.changes_budget:
            raise _not_with_budget(root, "is running", wish)
    requests.allow(root.state, status, "resume")
    notes: list[str] = []
    launch = launch_of(store, root, wish, Person(notes.append))
    leaving: list[str] = []
    if launch is not None:
        leaving += _leaving(store, root, status)
        if wish.background:
            control.refuse_at_terminal(root, launch)
        control.refuse_homeless(store, root, launch)
    before = limit_now(store, root.run)
    budget = control.raised(store, root, wish.amounts, wish.until, Person(notes.append))
    if budget is not None:
        require_limit(wish.limit_was, before)
    head = root.state if budget is None else msgspec.structs.replace(root.state, budget=budget)
    beat = root.state.beats + 1
    children = find.children_in(store)
    asks = bool(verdict.to_settle(children, root.state))
    if asks:
        settle = settle_hint(settle_command(children, root.state))
        sentences = [
            f"{name(root)} is in doubt, and would stop at once or when it comes to that effect: {settle}."
        ]
    elif launch is None:
        sentences = [
            f"{name(root)} is {stands(store, root)} at beat {beat} and may be started again.",
            "outlast did not start its program: start it yourself, and the run goes on. outlast starts nothing.",
        ]
    else:
        command, where = mask(short(shlex.join(launch.words), COMMAND_CHARS))[0], os.fsdecode(raw(launch.cwd))
        sentences = [f"{name(root)} goes on at beat {beat} with `{command}` in {where}; {rest_words(head)}."]
    if budget is not None:
        sentences.append(f"Its budget becomes {limit_words(budget)}; it was {limit_words(before)}.")
    hindrances = tuple(_hindrances(store, root))
    sentences += [*leaving, *hindrances, *notes]
    return ResumePlan(
        store, summary, root, wish, launch, budget, before, tuple(notes), hindrances, (*about_child(summary, root), *sentences), asks
    )  # fmt: skip


def launch_of(store: Store, root: Summary, wish: ResumeWish, person: Person) -> Launch | None:
    """How the run is started: as the last time, or in another agent."""
    launch = control.launch_of(store, root)
    if wish.agent is None:
        return launch
    if launch is None:
        raise RunRefused(
            f"{called(root)} was not started by `outlast run`", hint="start its program: that goes on with it"
        )
    return takeover.in_other(store, root, launch, wish.agent, wish.agent_command, person)


def _not_with_budget(root: Summary, what: str, wish: ResumeWish) -> RunRefused:
    """A run that works is not resumed, and must not seem to have got the budget that came with the wish."""
    adds = " ".join(f"--add {text.replace('+', '')}" for text in wish.amounts)
    hint = (
        f"`outlast budget {root.run} {adds}` gives it more while it works"
        if adds
        else f"see `outlast show {root.run}`"
    )
    return RunRefused(f"{called(root)} {what}, and its budget was not changed", hint=hint)


def _leaving(store: Store, root: Summary, status: Status) -> Iterator[str]:
    """A sentence for a supervisor that has nothing more to do. Raises RunRefused for one that has."""
    watcher = lock.of(store.local, root.run)
    if status not in RESTING:
        control.refuse_watched(store, root)
    elif watcher is not None and watcher.supervisor:
        yield f"Its supervisor, pid {watcher.supervisor}, is about to end; outlast waits for that."


def _hindrances(store: Store, root: Summary) -> Iterator[str]:
    left = qs.waited_for(root.state.questions, root.state.waits)
    if late := [each for each in left if each.is_overdue(datetime.now(UTC))]:
        ids = ", ".join(each.id for each in late)
        what_follows = "its agent is told so" if root.state.session is not None else "it asks again when it comes there"
        yield f"Nobody answered {ids} in time: {what_follows}."
    if left := tuple(each for each in left if each not in late):
        answers = " and ".join(f"`{answer_command(root.run, each)}`" for each in left)
        yield f"It waits for a person, and asks again when it comes there: {answers} is what it needs."
    doubts = find.doubts(store, root.state)
    if doubts:
        yield f"{effects(len(doubts))} in doubt, as `outlast effects {root.run}` shows: each is probed where that is possible, and never repeated unasked."
    wall = control.wall_of(store, root)
    if wall is not None:
        yield f"The usage limit may not be over (next try was {quota_walls.clock(wall)}). outlast resumes anyway."


# -- waiting for a moment --------------------------------------------------------------------------------------------


def _runs(store: Store, run: str) -> bool:
    return find.shown_status(store, requests.summary_of(store, run).state, run) == "running"


def _stays(is_so: Callable[[], bool]) -> bool:
    """Whether it is so, and still is a moment later: a process that was killed is there for a little while."""
    until_s = time.monotonic() + Timing.current().sure_after_s
    while is_so():
        if time.monotonic() > until_s:
            return True
        time.sleep(Timing.current().look_every_s)
    return False


def _let_stop(store: Store, root: Summary, within_s: float) -> None:
    """Wait a moment for a run that was asked to stop. Raises RunRefused if it works on: it would still stop."""

    def waits() -> Request | None:
        pending = [request for request in store.inbox.pending(root.run) if request.what in STOPS]
        return pending[0] if pending and _runs(store, root.run) else None

    until_s = time.monotonic() + within_s
    while (request := waits()) is not None:
        if time.monotonic() > until_s:
            raise RunRefused(
                f"{called(root)} was asked to {request.what} by {request.by}, and has not stopped yet",
                hint="wait until it stops, then resume it",
            )
        time.sleep(Timing.current().look_every_s)


def _let_leave(store: Store, run: str) -> None:
    """Wait a moment for a supervisor that was asked to stop: it outlives the attempt a little."""
    until_s = time.monotonic() + Timing.current().leaves_within_s
    while time.monotonic() < until_s:
        state = requests.summary_of(store, run).state
        if state.status in ("running", "interrupted", "in_doubt") or lock.of(store.local, run) is None:
            return
        time.sleep(Timing.current().look_every_s)


def _started(sleeper: Sleeper, root: Summary) -> ActOutcome:
    output = f"`outlast output {root.run} -f` shows what it says"
    if sleeper.started:
        return ActOutcome(says=f"{name(root)} {sleeper.why}.", hint=output, link=root.run)
    if sleeper.started is None and sleeper.wake:
        says = f"{name(root)} is being started, and has not begun within {Timing.current().started_within_s:.0f} s."
        return ActOutcome(says=says, hint=output, link=root.run)
    log = f"; its log is {sleeper.log}" if sleeper.log else ""
    why = f"{name(root)} does not go on: {sleeper.why}."
    hint = f"see `outlast show {root.run}`{log}"
    return ActOutcome(says=why, hint=hint, link=root.run, error=RunRefused(why, hint=hint))
