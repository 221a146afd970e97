"""A run: opened or resumed, carried beat by beat, and left so that the next attempt can go on.

There is no recovery mode. Starting is resuming, at beat 0 or at beat 140: claim, fold the journal, load the open beat.
"""

import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import budget as budgets
from outlast.core import events as ev
from outlast.core import plan as plans
from outlast.core import state as st
from outlast.core import statuses
from outlast.core.replay import EffectRecord
from outlast.core.values import Allowance, Contract, Parent, Payload, shorten
from outlast.effects.ops import Append, Block, Call, Steps
from outlast.errors import (
    BeatNotDone,
    BudgetReached,
    ChecksFailed,
    ContractChanged,
    DiskFull,
    NestedRun,
    RunRefused,
    StoreError,
    UsageError,
)
from outlast.runs import endings, gather, mail, stores
from outlast.runs.beat import Beat, check_memory, make_ref, open_beat
from outlast.runs.checks import run_checks
from outlast.runs.drivers import awaiting, blocking
from outlast.runs.heartbeat import Heartbeat
from outlast.runs.journal import Journal
from outlast.runs.project import project_of
from outlast.store.protocol import Lease
from outlast.store.sqlite import SqliteStore

_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TASK_CHARS_MAX = 200


def new_id() -> str:
    """A fresh run id: twelve characters, the first a letter, so that it is never taken for an issue number."""
    return secrets.choice(_ID_ALPHABET[:24]) + "".join(secrets.choice(_ID_ALPHABET) for _ in range(11))


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller asks for; None where nothing was said."""

    task: str
    goal: str | None = None
    checks: tuple[str, ...] | None = None
    invariants: tuple[str, ...] | None = None
    budget: Allowance | None = None
    project: str = ""
    workspace: str = ""
    store: str | None = None
    amend: bool = False
    again: bool = False


class Run:
    """A run in this process. Use it with `with` or `async with`; the same names are awaited in the latter."""

    def __init__(self, terms: Terms, parent: "tuple[Run, Beat] | None" = None) -> None:
        self.terms = terms
        self.folder = Path(terms.workspace) if terms.workspace else Path.cwd()
        self.settings = settings.load(self.folder)
        self.journal: Journal = None  # type: ignore[assignment]  # set by opening
        self.closed = True
        self.may_have_children = False
        self.result_staged: object = None
        self._parent = parent
        self._async = False
        self._store: SqliteStore | None = None
        self._lease: Lease | None = None
        self._head = st.RunState()
        self._steps: tuple[plans.Step, ...] | None = None
        self._contract: Contract | None = None
        self._beat: Beat | None = None

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> st.RunState:
        """The folded head."""
        return self.journal.state if self.journal is not None else self._head

    @property
    def id(self) -> str:
        return self.state.run

    @property
    def task(self) -> str:
        return self.terms.task

    @property
    def status(self) -> st.Status:
        return self.state.status

    @property
    def is_done(self) -> bool:
        return self.state.status == "done"

    @property
    def is_async(self) -> bool:
        return self._async

    @property
    def result(self) -> Any:
        """What the run finished with, None before."""
        finished = next(iter(self.journal.events("finished")), None)
        return self.journal.value(finished.result) if isinstance(finished, ev.Finished) else None

    @property
    def budget(self) -> budgets.Left:
        """What is left of the allowance."""
        return budgets.left(self.state.budget, self.state)

    @property
    def contract(self) -> Contract:
        """Goal, checks and invariants in force."""
        if self._contract is None:
            event = self.journal.event_at(self.state.contract_seq)
            assert isinstance(event, ev.RunOpened | ev.ContractAmended), "the contract's place is known"
            self._contract = event.contract
        return self._contract

    def context(self, tokens_max: int | None = None) -> Any:
        """What the agent must know to go on, rebuilt from the journal; the same for the same journal and files."""
        text = gather.context(
            self.journal, self.contract, self.plan_steps(), self.folder, self._limit(tokens_max)
        )
        return AwaitableText(text) if self._async else text

    def _limit(self, tokens_max: int | None) -> int:
        return self.settings["context_tokens_max"] if tokens_max is None else tokens_max

    # -- doing ---------------------------------------------------------------------------------------------------

    def plan(self, steps: object, *args: Any) -> Any:
        """Set the plan once: a list or tree, or a callable whose result is recorded. Later calls change nothing."""
        return self.drive(self._plan(steps, args))

    def beats(self) -> Any:
        """The beats from the cursor on, each to be ended with `beat.done()`."""
        return self._async_beats() if self._async else self._sync_beats()

    def remember(self, name: str, uri: str, *, digest: str = "") -> Any:
        """Remember a pointer: with the open beat's end, or at once outside a beat."""
        if self._beat is not None and not self._beat.closed:
            return self._beat.remember(name, uri, digest=digest)
        ref = make_ref(name, uri, digest, self.folder)
        check_memory(self.state.memory, (ref,))
        return self.drive(_append(ev.Remembered(at=self.journal.now(), ref=ref)))

    def finish(self, result: object = None) -> Any:
        """End the run if its checks pass: with the open beat's end, or at once outside a beat."""
        if self._beat is not None and not self._beat.closed:
            return self._beat.finish(result)
        return self.drive(self._finish(result))

    def drive(self, steps: Steps) -> Any:
        """Carry out steps: at once, or as something to await."""
        return awaiting(self.journal, steps) if self._async else blocking(self.journal, steps)

    def staged(self) -> Any:
        """What a staging call returns: nothing, or nothing that may be awaited."""
        return NOTHING if self._async else None

    # -- the plan ------------------------------------------------------------------------------------------------

    def plan_steps(self) -> tuple[plans.Step, ...]:
        """The plan's body, read from the journal once per attempt."""
        if self._steps is None:
            self._steps = gather.plan_body(self.journal)
        return self._steps

    def extended(self, extensions: tuple[ev.Extension, ...]) -> tuple[plans.Step, ...]:
        """The plan as it would be with these extensions."""
        return gather.extend(self.journal, self.plan_steps(), extensions)

    def extend_plan(self, extensions: tuple[ev.Extension, ...]) -> None:
        """The extensions took hold."""
        if extensions:
            self._steps = self.extended(extensions)

    def _plan(self, given: object, args: tuple[Any, ...]) -> Steps:
        if self.is_done or self.state.plan_seq:
            return
        self._check_open()
        made = (yield Call(given, args)) if callable(given) else given
        steps = plans.parse(made)
        if plans.count(steps) > plans.STEPS_MAX:
            raise UsageError(f"a plan has at most {plans.STEPS_MAX:,} steps")
        payload = self.journal.payload(steps)
        faults.point("plan.made")
        yield Append((ev.PlanSet(at=self.journal.now(), steps=payload, total=plans.count(steps)),))
        self._steps = steps
        faults.point("plan.recorded")

    # -- beats ---------------------------------------------------------------------------------------------------

    def _sync_beats(self) -> Iterator[Beat]:
        while (beat := blocking(self.journal, self._next_beat())) is not None:
            yield beat

    async def _async_beats(self) -> AsyncIterator[Beat]:
        while (beat := await awaiting(self.journal, self._next_beat())) is not None:
            yield beat

    def _next_beat(self) -> Steps:
        """Open the beat at the cursor, or None at the end."""
        if self.is_done:
            return None
        self._check_open()
        if self._beat is not None and not self._beat.closed:
            raise BeatNotDone(
                f"beat {self._beat.number} of run {self.id} was left without done()",
                hint="call beat.done(…) at the end of the loop's body",
            )
        if self._beat is None or self.journal.mail_waits:
            yield from self.mail()
        state = self.state
        if state.over:
            return None
        spent = budgets.reached(state)
        if spent:
            raise BudgetReached(
                f"run {self.id}: {spent}", hint=f"give it more budget, then start {self.task} again"
            )
        if self.journal.store.low:
            raise DiskFull(
                f"the disk under {self.journal.store.url} is full", hint="make room, then start again"
            )
        steps = self.plan_steps() if state.plan_seq else ()
        path = (state.cursor or plans.first_leaf(steps) or ()) if steps else ()
        step = plans.step_at(steps, path)
        name = step.name if step else f"beat {state.beats + 1}"
        if self._beat is None:
            self.journal.load_open_beat(name)
            self.may_have_children = state.open_beat is not None
        else:
            self.journal.next_beat(name)
            self.may_have_children = False
        self._beat = Beat(self, state.beats + 1, name, path)
        open_beat.set(self._beat)
        faults.point("beat.begun")
        return self._beat

    # -- acting's port -------------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        return self.id

    @property
    def since_s(self) -> float:
        return self.journal.since_s

    def now(self) -> Any:
        return self.journal.now()

    def uptime_s(self) -> int:
        return self.journal.uptime_s()

    def age_s(self, intent: ev.EffectIntended) -> int | None:
        return self.journal.age_s(intent)

    def payload(self, value: object) -> Payload:
        return self.journal.payload(value)

    def value(self, payload: Payload) -> Any:
        return self.journal.value(payload)

    def in_beat(self, event: ev.AnyEvent) -> Append:
        return self.journal.in_beat(event)

    def effect(self, n: int) -> EffectRecord | None:
        return self.journal.effect(n)

    def mail(self) -> Steps:
        """Take in what was asked of the run; a child looks into its root's inbox."""
        if self.journal.store.low:
            raise DiskFull(
                f"the disk under {self.journal.store.url} is full", hint="make room, then start again"
            )
        root = self._root()
        yield from mail.take_in(root.journal, self.journal)

    def _root(self) -> "Run":
        return self if self._parent is None else self._parent[0]._root()

    # -- finishing -----------------------------------------------------------------------------------------------

    def _finish(self, result: object) -> Steps:
        if self.is_done:
            return
        self._check_open()
        journal = self.journal
        faults.point("checks.before")
        commands, timeout_s = self.contract.checks, self.settings["check_timeout_s"]
        checks = (yield Block(lambda: run_checks(commands, self.folder, timeout_s))) if commands else ()
        failed = next((check for check in checks if check.exit_code != 0), None)
        if failed is not None:
            raise ChecksFailed(
                f"check {failed.command!r} failed with {failed.exit_code}: {shorten(failed.output[-1500:], 1500)}",
                hint=f"run {self.id} is not done; mend it and start again",
            )
        faults.point("checks.passed")
        epoch = journal.lease.epoch
        yield Append(
            (
                ev.Finished(at=journal.now(), result=journal.payload(result), checks=checks),
                ev.AttemptEnded(at=journal.now(), epoch=epoch, status="done", cause="done"),
            )
        )
        faults.point("run.finished")

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> "Run":
        self._async = False
        blocking(None, self._open())
        return self

    async def __aenter__(self) -> "Run":
        self._async = True
        await awaiting(None, self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        blocking(self.journal, self._leave(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await awaiting(self.journal, self._leave(error))

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError(f"run {self.terms.task!r} is not open", hint="use it inside its `with` block")

    def _open(self) -> Steps:
        if not self.closed:
            raise UsageError(f"run {self.terms.task!r} is already open")
        self._refuse_nesting()
        try:
            yield Block(self._claim)
            if not self.is_done:
                yield from self._start()
        except BaseException:
            self._give_back()
            raise

    def _refuse_nesting(self) -> None:
        beat = open_beat.get()
        if beat is not None and not beat.closed and not beat._run.closed and self._parent is None:
            raise NestedRun(
                f"outlast.run({self.terms.task!r}) inside the open beat {beat.number} of task {beat._run.task!r}",
                hint="use `beat.run(task)` for a child run",
            )

    def _claim(self) -> None:
        """Find or make the run and become its writer. All of it waits for the disk."""
        terms = self.terms
        if self._parent is not None:
            self._claim_child(*self._parent)
            return
        store = self._store = stores.acquire(terms.store or self.settings["store"] or None)
        run = store.create(self._opened(None))
        head = gather.head(store, run)
        if terms.again and statuses.TABLE[head.status]["pause"] != "paused":
            run = store.create(self._opened(None), again=True)
            head = gather.head(store, run)
        self._admit(store, head)
        if head.status == "done":
            self._head = head
            self.journal = Journal(store, endings.NO_LEASE, head)
            return
        self._lease = store.claim(run, ttl_s=self.settings["lease_s"])
        head = gather.head(store, run)
        self._admit(store, head)
        self.journal = Journal(store, self._lease, head)
        Heartbeat.add(store, self._lease, self.settings["lease_s"])

    def _claim_child(self, parent: "Run", beat: Beat) -> None:
        root = parent._root()
        store = parent.journal.store
        parent.may_have_children = True
        run = store.create(self._opened(Parent(parent.id, beat.number, root.id)))
        faults.point("child.opened")
        head = gather.head(store, run)
        self._admit(store, head)
        self._head = head
        self.journal = Journal(store, root.journal.lease, head)

    def _opened(self, parent: Parent | None) -> ev.RunOpened:
        terms = self.terms
        return ev.RunOpened(
            at=endings.now(), run=new_id(), task=terms.task, project=terms.project, contract=self._contract_given(Contract()),
            budget=terms.budget, parent=parent, workspace=terms.workspace,
        )  # fmt: skip

    def _contract_given(self, recorded: Contract) -> Contract:
        """The contract asked for; what was not said is as recorded."""
        terms = self.terms
        return Contract(
            recorded.goal if terms.goal is None else terms.goal,
            recorded.checks if terms.checks is None else terms.checks,
            recorded.invariants if terms.invariants is None else terms.invariants,
        )

    def _admit(self, store: SqliteStore, head: st.RunState) -> None:
        """Refuse a start that the status or the contract forbids."""
        status = head.status if head.status != "running" else "interrupted"
        verdict = statuses.after(status, "start")
        if isinstance(verdict, statuses.Refusal):
            raise RunRefused(
                f"run {head.run} of task {head.task!r} {verdict.why}", hint=verdict.hint.format(run=head.run)
            )
        if head.status == "done" or self.terms.amend:
            return
        recorded = gather.contract(store, head)
        changed = self._contract_given(recorded) != recorded
        if changed or self.terms.budget not in (None, gather.opened(store, head).budget, head.budget):
            raise ContractChanged(
                f"run {head.run} of task {head.task!r} was started with another {'contract' if changed else 'budget'}",
                hint="give the same as at first, or amend=True to change it on purpose",
            )

    def _start(self) -> Steps:
        """Record that this process took the run up, and how the last one was lost if it said nothing."""
        journal, head = self.journal, self.state
        events: list[ev.AnyEvent] = []
        if head.attempt is not None:
            events.append(endings.lost(head.attempt, journal.now()))
        recorded = self.contract
        given = self._contract_given(recorded)
        if given != recorded or (self.terms.budget and self.terms.budget != head.budget):
            events.append(
                ev.ContractAmended(
                    at=journal.now(), contract=given, budget=self.terms.budget, by=settings.user_name()
                )
            )
            self._contract = given
        events.append(endings.started(journal.lease, journal.now(), __version__, sys.argv))
        yield from _through(journal, Append(tuple(events)))
        self.closed = False
        faults.point("run.started")

    def _leave(self, error: BaseException | None) -> Steps:
        """Record how the attempt ended and let the run go. Errors come through unchanged."""
        try:
            if not self.closed and not self.is_done and self.state.attempt is not None:
                yield from self._end(error)
        finally:
            if self._beat is not None:
                self._beat.close()
            yield Block(self._give_back)

    def _end(self, error: BaseException | None) -> Steps:
        if isinstance(error, StoreError):
            return  # whatever was written last is unknown, or not ours any more: write nothing
        if error is None and self.state.over:
            try:
                yield from self._finish(self.result_staged)
            except ChecksFailed as failed:
                yield from self._record_end(failed)
                raise
            if self._parent is not None:
                faults.point("child.finished")
            return
        yield from self._record_end(error)

    def _record_end(self, error: BaseException | None) -> Steps:
        faults.point("attempt.before_end")
        journal = self.journal
        yield Append((endings.ended(journal.lease.epoch, journal.now(), self.state, error),))
        faults.point("attempt.ended")

    def _give_back(self) -> None:
        self.closed = True
        if self._parent is not None:
            return
        store, lease = self._store, self._lease
        self._store = self._lease = None
        if store is None:
            return
        try:
            if lease is not None:
                Heartbeat.remove(store, lease)
                store.release(lease)
        finally:
            stores.give_back(store)


def _append(event: ev.AnyEvent) -> Steps:
    yield Append((event,))


def _through(journal: Journal, append: Append) -> Steps:
    """Append while the driver does not know the journal yet."""
    batch = journal.batch(append)
    if (yield Block(lambda: journal.store.append(batch))):
        journal.mail_waits = True


class AwaitableText(str):
    """A text that may also be awaited, so that the same names work in an async run."""

    __slots__ = ()

    def __await__(self) -> Any:
        return str(self)
        yield


class _Nothing:
    """Nothing, which may be awaited."""

    def __await__(self) -> Any:
        return None
        yield


NOTHING = _Nothing()


def run(
    task: str | int,
    *,
    goal: str | None = None,
    done: Sequence[str] | str | None = None,
    invariants: Sequence[str] | str | None = None,
    budget: object = None,
    store: str | os.PathLike[str] | None = None,
    project: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    amend: bool = False,
    again: bool = False,
) -> Run:
    """A new run of the task, or the same one where it stopped. Enter it with `with` or `async with`.

    Raises RunHeld when a live attempt has it, ContractChanged for other terms than at first, RunRefused when it is
    paused, failed, cancelled or handed off. A run that is done is entered too, and has no more beats.
    """
    name = str(task)
    if not name.strip() or len(name) > TASK_CHARS_MAX or any(ord(char) < 32 for char in name):
        raise UsageError(f"{name!r:.60} is no name for a task", hint="use an issue number or a short slug")
    folder = Path(workspace).absolute() if workspace is not None else Path.cwd()
    if workspace is not None and not folder.is_dir():
        raise UsageError(
            f"the workspace {folder} is not a folder", hint="make it, or give another workspace="
        )
    terms = Terms(
        task=name, goal=goal, checks=_commands(done, "done"), invariants=_commands(invariants, "invariants"),
        budget=budgets.parse(budget), project=project or project_of(folder),
        workspace=str(folder) if workspace is not None else "", store=os.fspath(store) if store is not None else None,
        amend=amend, again=again,
    )  # fmt: skip
    return Run(terms)


def child(
    parent: Run, beat: Beat, task: str, *, goal: str | None = None, done: Any = None, invariants: Any = None
) -> Run:
    """A child run of an open beat; a finished one has its result and no more beats."""
    terms = Terms(
        task=str(task), goal=goal, checks=_commands(done, "done"), invariants=_commands(invariants, "invariants"),
        project=parent.terms.project, workspace=parent.terms.workspace,
    )  # fmt: skip
    return Run(terms, (parent, beat))


def _commands(given: Sequence[str] | str | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    commands = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(command, str) and command.strip() for command in commands):
        raise UsageError(f"{what}= takes shell commands", hint=f'like {what}=["make test"]')
    return commands
