"""A run: opened or resumed, carried beat by beat, and left so that the next attempt can go on.

There is no recovery mode. Starting is resuming, at beat 0 or at beat 140: claim, fold the journal, load the open beat.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import budget as budgets
from outlast.core import events as ev
from outlast.core import plan as plans
from outlast.core import state as st
from outlast.core import statuses
from outlast.core.context import TOKENS_MIN
from outlast.core.events import SaveKind
from outlast.core.values import Contract, Parent, Usage, shorten
from outlast.effects.ops import Append, Block, Call, Steps
from outlast.errors import (
    BeatNotDone,
    ChecksFailed,
    DiskFull,
    NestedRun,
    RunHeld,
    StoreError,
    UnreachedEffect,
    UsageError,
)
from outlast.runs import admission, endings, gather, mail, stores
from outlast.runs.awaitables import NOTHING, AwaitableText
from outlast.runs.beat import Beat, check_memory, make_ref, open_beat
from outlast.runs.checks import run_checks
from outlast.runs.drivers import awaiting, blocking
from outlast.runs.heartbeat import Heartbeat
from outlast.runs.journal import Journal
from outlast.runs.purse import Purse
from outlast.runs.terms import Terms, not_a_folder
from outlast.store.protocol import Lease
from outlast.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from outlast.runs.files import Files


class Run:
    """A run in this process. Use it with `with` or `async with`; the same names are awaited in the latter."""

    def __init__(self, terms: Terms, parent: "tuple[Run, Beat] | None" = None) -> None:
        self.terms = terms
        self.folder = Path(terms.workspace) if terms.workspace else Path.cwd()
        self.settings = settings.load(self.folder)
        self._journal: Journal | None = None
        self.files: Files | None = None
        self.closed = True
        self.may_have_children = False
        self._result: Any = None
        self._parent = parent
        self.root: Run = self if parent is None else parent[0].root
        self._async = False
        self._store: SqliteStore | None = None
        self._lease: Lease | None = None
        self._steps: tuple[plans.Step, ...] | None = None
        self._contract: tuple[int, Contract] | None = None
        self._beat: Beat | None = None
        self._open_below: set[str] = set()
        self.launch: object = None  # how a supervised command is started again, as plain data
        self.while_checking: Callable[[], None] | None = None  # called now and then; may raise
        self.mark = ""  # of a supervised attempt, for the processes of its checks
        # Between the claim and the first look at the files; how an attempt that was lost ended, if that is known.
        self.on_claimed: Callable[[], ev.AttemptEnded | None] | None = None
        self._is_below = False
        self.purse = Purse(self)

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """The open journal."""
        if self._journal is None:
            raise UsageError(
                f"run {self.terms.task!r} was not opened", hint="use it with `with` or `async with`"
            )
        return self._journal

    @property
    def state(self) -> st.RunState:
        """The folded head."""
        return self.journal.state

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
        return self._result

    @property
    def budget(self) -> budgets.Left:
        """What is left of the allowance, which a child shares with its root."""
        return self.root.purse.left()

    @property
    def contract(self) -> Contract:
        """Goal, checks and invariants in force."""
        seq = self.journal.standing.contract_seq
        if self._contract is None or self._contract[0] != seq:
            self._contract = (seq, gather.contract(self.journal.store, self.state))
        return self._contract[1]

    @property
    def invariants(self) -> tuple[str, ...]:
        """What must hold at the end of each beat."""
        return self.contract.invariants

    def context(self, tokens_max: int | None = None) -> Any:
        """What the agent must know to go on, rebuilt from the journal; the same for the same journal and files."""
        text = gather.context(
            self.journal, self.contract, self.plan_steps(), self.folder, self._limit(tokens_max)
        )
        return AwaitableText(text) if self._async else text

    def _limit(self, tokens_max: int | None) -> int:
        limit: object = self.settings["context_tokens_max"] if tokens_max is None else tokens_max
        if not isinstance(limit, int) or limit < TOKENS_MIN:
            raise UsageError(
                f"tokens_max={limit!r} is no limit for a context", hint=f"give at least {TOKENS_MIN}"
            )
        return limit

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
        self.check_open()
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
        self.check_open()
        made = (yield Call(given, args)) if callable(given) else given
        steps = plans.parse(made)
        if plans.count(steps) > plans.STEPS_MAX:
            raise UsageError(f"a plan has at most {plans.STEPS_MAX:,} steps")
        payload = yield from self.journal.keep(steps)
        faults.point("plan.made")
        yield Append((ev.PlanSet(at=self.journal.now(), steps=payload, total=plans.count(steps)),))
        self._steps = steps
        faults.point("plan.recorded")

    # -- beats ---------------------------------------------------------------------------------------------------

    def _sync_beats(self) -> Iterator[Beat]:
        while (beat := self._beat_at_hand() or blocking(self.journal, self._next_beat())) is not None:
            yield beat

    async def _async_beats(self) -> AsyncIterator[Beat]:
        while (beat := self._beat_at_hand() or await awaiting(self.journal, self._next_beat())) is not None:
            yield beat

    def _beat_at_hand(self) -> Beat | None:
        """The next beat when nothing stands before it, which is nearly always; else `_next_beat` finds out."""
        beat, journal = self._beat, self._journal
        if beat is None or not beat.closed or journal is None or journal.lease.mail_waits():
            return None
        if self.has_ended or journal.over:
            return None
        return self._open_beat()

    def _next_beat(self) -> Steps:
        """Open the beat at the cursor, or None at the end."""
        if self.is_done:
            return None
        self.check_open()
        if self._beat is not None and not self._beat.closed:
            raise BeatNotDone(
                f"beat {self._beat.number} of run {self.id} was left without done()",
                hint="call beat.done(…) at the end of the loop's body",
            )
        if self._beat is None:
            self.journal.load_open_beat("")
        if self._beat is None or self.journal.lease.mail_waits():
            yield from self.mail()
        if self.journal.over:
            return None
        return self._open_beat()

    def _open_beat(self) -> Beat:
        """The beat at the cursor, if there is budget and room for it."""
        journal = self.journal
        number = journal.beats + 1
        self.may_have_children = self._beat is None  # an earlier attempt may have left some
        if self.root.journal.standing.budget is not None:
            self.root.purse.check()
        if journal.store.low:
            raise DiskFull(f"the disk under {journal.store.url} is full", hint="make room, then start again")
        steps = self.plan_steps() if journal.standing.plan_total is not None else ()
        path = (journal.cursor or plans.first_leaf(steps) or ()) if steps else ()
        step = plans.step_at(steps, path) if steps else None
        name = step.name if step else f"beat {number}"
        if self._beat is None:
            journal.step = name
        else:
            journal.next_beat(name)
        self._beat = Beat(self, number, name, path)
        faults.point("beat.begun")
        return self._beat

    # -- requests ------------------------------------------------------------------------------------------------

    def mail(self) -> Steps:
        """Take in what was asked of the run; a child looks into its root's inbox."""
        if self.journal.store.low:
            raise DiskFull(
                f"the disk under {self.journal.store.url} is full", hint="make room, then start again"
            )
        root = self.root
        yield from mail.take_in(root.journal, self.journal)

    # -- finishing -----------------------------------------------------------------------------------------------

    def _finish(self, result: object) -> Steps:
        if self.is_done:
            return
        self.check_open()
        journal = self.journal
        if self.in_doubt():
            raise UnreachedEffect(
                f"run {self.id} cannot be finished: an effect is in doubt",
                hint=f"see `outlast effects {self.id}`",
            )
        kept = yield from self._kept_result(result)
        faults.point("checks.before")
        commands, timeout_s = self.contract.checks, self.settings["check_timeout_s"]
        run = lambda: run_checks(commands, self.folder, timeout_s, self.while_checking, self.mark)  # noqa: E731 - as a Block takes it
        checks = (yield Block(run)) if commands else ()
        failed = next((check for check in checks if check.exit_code != 0), None)
        if failed is not None:
            raise ChecksFailed(
                f"check {failed.command!r} failed with {failed.exit_code}: {shorten(failed.output[-1500:], 1500)}",
                hint=f"run {self.id} is not done; mend it and start again",
            )
        faults.point("checks.passed")
        epoch, spent = journal.lease.epoch, self.purse.at_end(self._beat)
        saved = yield from self._last_save("final", "done")
        yield Append(
            (
                *saved,
                ev.Finished(at=journal.now(), result=kept, checks=checks),
                ev.AttemptEnded(at=journal.now(), epoch=epoch, status="done", cause="done", spent=spent),
            )
        )
        self._result = journal.value(kept)
        faults.point("run.finished")

    def _kept_result(self, result: object) -> Steps:
        """What the run ends with: this, or what the last beat staged, perhaps in an earlier attempt."""
        if result is None and self.state.finish_seq:
            event = self.journal.event_at(self.state.finish_seq)
            if isinstance(event, ev.BeatDone) and event.finish is not None:
                return event.finish
        return (yield from self.journal.keep(result))

    # -- children ------------------------------------------------------------------------------------------------

    def children(self) -> list[st.RunState]:
        """The child runs of the open beat."""
        if not self.may_have_children:
            return []
        return gather.children(self.journal.store, self.state)

    def spent_by_children(self) -> Usage:
        """What the open beat's children spent, which is not in this run's own sum yet."""
        return gather.spent_below(self.journal.store, self.state) if self.may_have_children else Usage()

    def with_children_spent(self) -> st.RunState:
        """The head as if the open beat were done: what its children spent is spent."""
        return msgspec.structs.replace(self.state, spent=self.state.spent.plus(self.spent_by_children()))

    def in_doubt(self) -> bool:
        """Whether an effect of this run or of one of its children is in doubt."""
        below = self.may_have_children or self._beat is None  # an earlier attempt may have left some
        return bool(self.state.in_doubt) or (below and gather.in_doubt_below(self.journal.store, self.state))

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

    def check_open(self) -> None:
        """Raise unless this attempt may still write: inside its block, and not stopped on request."""
        if self.closed:
            raise UsageError(f"run {self.terms.task!r} is not open", hint="use it inside its `with` block")
        if self.has_ended:
            raise UsageError(f"this attempt of run {self.terms.task!r} has ended", hint="start the run again")

    @property
    def has_ended(self) -> bool:
        """Whether this attempt has recorded its end, or left its block."""
        return self.closed or self.journal.uncertain or self.root.journal.standing.attempt is None

    def _open(self) -> Steps:
        if not self.closed:
            raise UsageError(f"run {self.terms.task!r} is already open")
        self._refuse_nesting()
        self._beat = self._steps = self._contract = self._result = None
        self.may_have_children = False
        try:
            yield Block(self._claim)
            if not self.is_done:
                lost = (yield Block(self.on_claimed)) if self.on_claimed is not None else None
                yield from self._start(lost)
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
        terms = self.terms = admission.in_known_project(terms, store)
        if not self.folder.is_dir() and not admission.may_come_back(terms, store):
            raise not_a_folder(self.folder)
        run = admission.make(terms, store, self.launch)
        head = gather.head(store, run)
        if terms.again and head.status in statuses.ENDED:
            run = admission.make(terms, store, self.launch, after=run)
            head = gather.head(store, run)
        self._admit(store, head)
        if head.status == "done":
            self._journal = Journal(store, endings.NO_LEASE, head)
            self._result = gather.result(store, head)
            return
        self._lease = store.claim(run, ttl_s=self.settings["lease_s"])
        head = gather.head(store, run)
        self._admit(store, head)
        self._journal = Journal(store, self._lease, head, self.mail)
        Heartbeat.add(store, self._lease, self.settings["lease_s"])
        if terms.workspace:
            from outlast.runs.files import Files

            self.files = Files(self.folder, store.root, run, terms.task, self.settings)

    def _claim_child(self, parent: "Run", beat: Beat) -> None:
        root = parent.root
        store = parent.journal.store
        parent.may_have_children = True
        run = store.create(admission.opened(self.terms, Parent(parent.id, beat.number, root.id)))
        faults.point("child.opened")
        head = gather.head(store, run)
        self._admit(store, head)
        self._journal = Journal(store, root.journal.lease, head, self.mail)
        if not self.is_done:
            self._enter_below(root)
        self._result = gather.result(store, head)

    def _enter_below(self, root: "Run") -> None:
        """A child has one writer too: it is open once at a time under its root."""
        with root.journal.mutex:
            if self.id in root._open_below:
                holder = root.journal.lease.holder
                raise RunHeld(self.id, pid=holder.pid, host=holder.host, since="this attempt's beginning")
            root._open_below.add(self.id)
            self._is_below = True

    def _admit(self, store: SqliteStore, head: st.RunState) -> None:
        admission.admit(self.terms, store, head, is_child=self._parent is not None)

    def _start(self, lost: ev.AttemptEnded | None) -> Steps:
        """Record that this process took the run up, and how the last one was lost if it said nothing."""
        journal, head = self.journal, self.state
        events: list[ev.AnyEvent] = []
        recorded = self.contract
        given = admission.asked(self.terms, recorded)
        budget = self.terms.budget if self.terms.amend else budgets.anew(head.budget, self.terms.budget)
        if given != recorded or budget not in (None, head.budget):
            by = settings.user_name()
            events.append(ev.ContractAmended(at=journal.now(), contract=given, budget=budget, by=by))
        found: list[ev.AnyEvent] = (yield Block(self._arrive)) if self.files is not None else []
        if head.attempt is not None:
            seen_s = journal.lease.last_seen_s
            events.insert(0, lost or endings.lost(head, journal.now(), last_seen_s=seen_s))
        launch = None if self.launch is None else (yield from journal.keep(self.launch))
        first = self.purse.first_reserved(head)
        events += (
            *found,
            endings.started(journal.lease, journal.now(), __version__, sys.argv, launch, first),
        )
        yield from _through(journal, Append(tuple(events)))
        self.closed = False
        self.purse.begin()
        faults.point("run.started")

    # -- files ---------------------------------------------------------------------------------------------------

    def _arrive(self) -> list[ev.AnyEvent]:
        """Save the files that are found, and bring them to where this attempt begins."""
        assert self.files is not None, "only a run with a workspace has files"
        terms, journal, kept = self.terms, self.journal, self.files
        if terms.files == "rewind":
            journal.save_effect = lambda: kept.save_effect(journal)
        alive_until_s = journal.lease.last_seen_s
        return kept.arrive(self.state, terms.files, alive_until_s=alive_until_s, moved_is_fine=terms.moved)

    def save_beat(self) -> str:
        """The save that the end of the open beat names."""
        assert self.files is not None, "only a run with a workspace has files"
        commit = self.files.save_beat(self.state)
        if self.files.warning:
            at, level = self.journal.now(), f"save {commit[:12]}"
            self.journal.later(ev.Warned(at=at, level=level, text=self.files.warning))
        return commit

    def _last_save(self, kind: SaveKind, reason: str, error: BaseException | None = None) -> Steps:
        """The save of an ending, as events."""
        return (
            (yield from self.files.ending(kind, self.journal, reason, error))
            if self.files is not None
            else ()
        )

    # -- leaving -------------------------------------------------------------------------------------------------

    def _leave(self, error: BaseException | None) -> Steps:
        """Record how the attempt ended and let the run go. Errors come through unchanged."""
        try:
            if not self.closed and not self.is_done and self.state.attempt is not None:
                yield from self._end(error)
            elif not self.closed and not self.is_done:  # it was stopped on request, which recorded its end
                saved = yield from self._last_save("emergency", f"operator: {error}", error)
                if saved:
                    yield Append(saved)
        except StoreError as failed:
            if error is None:
                raise
            error.add_note(f"outlast could not record how the run ended: {failed}")
        finally:
            if self._beat is not None:
                self._beat.close()
            yield Block(self._give_back)

    def _end(self, error: BaseException | None) -> Steps:
        if isinstance(error, StoreError):
            yield from self._last_save("emergency", f"store: {error}", error)
            return  # whatever was written last is unknown, or not ours any more: write nothing
        if self.journal.uncertain:
            self._look_again()
        if error is None and self.state.over:
            try:
                yield from self._finish(None)
            except (ChecksFailed, UnreachedEffect) as failed:
                yield from self._record_end(failed)
                raise
            if self._parent is not None:
                faults.point("child.finished")
            return
        yield from self._record_end(error)

    def _look_again(self) -> None:
        """An interrupt may have hit between handing events over and learning of their commit: ask the journal."""
        self.journal.restart(gather.head(self.journal.store, self.id))

    def _record_end(self, error: BaseException | None) -> Steps:
        faults.point("attempt.before_end")
        journal = self.journal
        end = endings.ended(journal.lease.epoch, journal.now(), self.state, error, in_doubt=self.in_doubt())
        end = msgspec.structs.replace(end, spent=self.purse.at_end(self._beat))
        saved = yield from self._last_save("emergency", f"{end.cause}: {end.evidence}", error)
        yield Append((*saved, end, *endings.parked(end, self.state, error)))
        faults.point("attempt.ended")

    def _give_back(self) -> None:
        self.closed = True
        if self.files is not None:
            self.files.close()
            self.files = None
        if self._parent is not None:
            if self._is_below:
                self.root._open_below.discard(self.id)
                self._is_below = False
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
    yield Block(lambda: journal.store.append(batch))
