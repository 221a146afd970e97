"""A run: opened or resumed, carried beat by beat, and closed so that the next attempt can continue.

There is no recovery mode. Every start is a resume, at beat 0 or 140: claim, fold the journal, load the open beat."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from outlast import faults, settings
from outlast.core import budget as budgets, events as ev, plan as plans, state as st
from outlast.core.context import TOKENS_MIN
from outlast.core.values import Contract
from outlast.errors import BeatNotDone, DiskFull, UsageError
from outlast.runs import inbox, reader
from outlast.runs.budget import Meter
from outlast.runs.engine.beat import BeatEngine, check_memory, make_ref
from outlast.runs.engine.children import Children
from outlast.runs.engine.claim import ChildClaim, Claim
from outlast.runs.engine.drivers import NOTHING, AwaitableText, awaiting, blocking
from outlast.runs.engine.finish import finish, leave
from outlast.runs.engine.plan import PlanBody
from outlast.runs.engine.start import start
from outlast.runs.engine.steps import Steps, append
from outlast.runs.engine.supervision import Supervision
from outlast.runs.journal import Journal
from outlast.runs.opening.terms import Terms

if TYPE_CHECKING:
    from outlast.runs.files import Files


class RunEngine:
    """Does the work of a run in this process. Entered with `async with`, its methods return something to await."""

    def __init__(
        self,
        terms: Terms,
        parent: "tuple[RunEngine, BeatEngine] | None" = None,
        supervision: Supervision | None = None,
    ) -> None:
        self.terms = terms
        self.folder = Path(terms.workspace) if terms.workspace else Path.cwd()
        self.settings = settings.load(self.folder)
        self.parent = parent
        self.root: RunEngine = self if parent is None else parent[0].root
        self.supervision = supervision or Supervision()
        self.is_async = False
        self.closed = True
        self.claim: Claim | ChildClaim | None = None
        self.files: Files | None = None
        self.beat: BeatEngine | None = None
        self.result: Any = None  # what the run finished with, None before
        self.plan_body = PlanBody(self)
        self.children = Children(self)
        self.meter = Meter(self)
        self._journal: Journal | None = None
        self._contract: tuple[int, Contract] | None = None

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """The open journal."""
        if self._journal is None:
            raise UsageError(
                f"the run of task {self.terms.task} was not opened", hint="use it with `with` or `async with`"
            )
        return self._journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        self._journal = journal

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
    def budget(self) -> budgets.Left:
        """The rest of the allowance, which a child shares with its root."""
        return self.root.meter.left()

    @property
    def contract(self) -> Contract:
        """Goal, checks and invariants in force."""
        seq = self.journal.standing.contract_seq
        if self._contract is None or self._contract[0] != seq:
            self._contract = (seq, reader.contract(self.journal.store, self.state))
        return self._contract[1]

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that must hold at the end of each beat."""
        return self.contract.invariants

    def context(self, tokens_max: int | None = None) -> Any:
        """All that the agent must know to go on, rebuilt from the journal; the same for the same journal and files."""
        text = reader.context(
            self.journal, self.contract, self.plan_body.steps(), self.folder, self._limit(tokens_max)
        )
        return AwaitableText(text) if self.is_async else text

    def _limit(self, tokens_max: int | None) -> int:
        limit: object = self.settings["context_tokens_max"] if tokens_max is None else tokens_max
        if not isinstance(limit, int) or limit < TOKENS_MIN:
            raise UsageError(
                f"tokens_max must be at least {TOKENS_MIN}, got {limit!r}", hint="give a number of tokens"
            )
        return limit

    # -- doing ---------------------------------------------------------------------------------------------------

    def plan(self, steps: object, *args: Any) -> Any:
        """Set the plan once: a list or tree, or a callable whose result is recorded. Later calls change nothing."""
        return self.drive(self.plan_body.make(steps, args))

    def remember(self, name: str, uri: str, *, digest: str = "") -> Any:
        """Remember a pointer: with the open beat's end, or at once outside a beat."""
        if self.beat is not None and not self.beat.closed:
            return self.beat.remember(name, uri, digest=digest)
        self.check_open()
        ref = make_ref(name, uri, digest, self.folder)
        check_memory(self.state.memory, (ref,))
        return self.drive(append(ev.Remembered(at=self.journal.now(), ref=ref)))

    def finish(self, result: object = None) -> Any:
        """End the run if its checks pass: with the open beat's end, or at once outside a beat."""
        if self.beat is not None and not self.beat.closed:
            return self.beat.finish(result)
        return self.drive(finish(self, result))

    def drive(self, steps: Steps) -> Any:
        """Carry out steps: at once, or as something to await."""
        return awaiting(self.journal, steps) if self.is_async else blocking(self.journal, steps)

    def staged(self) -> Any:
        """The result of a staging call: nothing, or an awaitable of nothing."""
        return NOTHING if self.is_async else None

    # -- beats ---------------------------------------------------------------------------------------------------

    def beats(self) -> Iterator[BeatEngine]:
        """The beats from the cursor on, blocking, each to be ended with `done`."""
        while (beat := self.beat_at_hand() or blocking(self.journal, self.next_beat())) is not None:
            yield beat

    def beat_at_hand(self) -> BeatEngine | None:
        """The next beat when nothing stands before it, which is nearly always; else `next_beat` finds out."""
        beat, journal = self.beat, self._journal
        if beat is None or not beat.closed or journal is None or journal.lease.request_waits():
            return None
        if self.has_ended or journal.over:
            return None
        return self._open_beat()

    def next_beat(self) -> Steps:
        """Open the beat at the cursor, or None at the end."""
        if self.is_done:
            return None
        self.check_open()
        if self.beat is not None and not self.beat.closed:
            raise BeatNotDone(
                f"beat {self.beat.number} of run {self.id} was left without done()",
                hint="call beat.done(…) at the end of the loop's body",
            )
        if self.beat is None:
            self.journal.load_open_beat("")
        if self.beat is None or self.journal.lease.request_waits():
            yield from self.take_requests()
        if self.journal.over:
            return None
        return self._open_beat()

    def _open_beat(self) -> BeatEngine:
        """The beat at the cursor, if there is budget and room for it."""
        journal = self.journal
        number = journal.beats + 1
        self.children.may_exist = self.beat is None  # an earlier attempt may have left some
        if self.root.journal.standing.budget is not None:
            self.root.meter.check()
        if journal.store.disk_is_full:
            raise DiskFull(f"the disk under {journal.store.url} is full", hint="make room, then start again")
        steps = self.plan_body.steps() if journal.standing.plan_total is not None else ()
        path = (journal.cursor or plans.first_leaf(steps) or ()) if steps else ()
        step = plans.step_at(steps, path) if steps else None
        name = step.name if step else f"beat {number}"
        if self.beat is None:
            journal.step = name
        else:
            journal.next_beat(name)
        self.beat = BeatEngine(self, number, name, path)
        faults.point("beat.begun")
        return self.beat

    # -- requests ------------------------------------------------------------------------------------------------

    def take_requests(self, *, if_rung: bool = False) -> Steps:
        """Take in what people asked of the run; a child looks into its root's inbox. A request to stop may have to wait.

        `if_rung`: look into the inbox only where somebody has put something in since the last look. A store that cannot be
        used says so when it is asked, and before an intent is in anybody's memory.
        """
        is_rung = not if_rung or self.root.journal.lease.request_waits() or not self.journal.store.usable
        if is_rung and not self.supervision.may_stop and inbox.stop_request(self.journal):
            return
        if self.journal.store.disk_is_full:
            raise DiskFull(
                f"the disk under {self.journal.store.url} is full", hint="make room, then start again"
            )
        root = self.root
        inbox.require_open(root.journal, self.journal)
        if is_rung:
            yield from inbox.take_in(root.journal, self.journal, root.meter.at_end(root.beat))

    def take_findings(self) -> Steps:
        """Take in waiting findings about effects, and no other request: they may decide about the very next call."""
        yield from inbox.take_in_findings(self.root.journal, self.journal)

    # -- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> "RunEngine":
        self.is_async = False
        blocking(None, start(self))
        return self

    async def __aenter__(self) -> "RunEngine":
        self.is_async = True
        await awaiting(None, start(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        blocking(self.journal, leave(self, error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await awaiting(self.journal, leave(self, error))

    def forget(self) -> None:
        """Another attempt begins: what was read for an earlier one is read again."""
        self.beat = self._contract = self.result = None
        self.plan_body.forget()
        self.children.may_exist = False

    def give_back(self) -> None:
        """Let go of the files and of the claim."""
        self.closed = True
        if self.files is not None:
            self.files.close()
            self.files = None
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.give_back()

    def check_open(self) -> None:
        """Raise unless this attempt may still write: inside its block, and not stopped on request."""
        if self.closed:
            raise UsageError(
                f"the run of task {self.terms.task} is not open", hint="use it inside its `with` block"
            )
        if self.has_ended:
            raise UsageError(f"this attempt of task {self.terms.task} has ended", hint="start the run again")

    @property
    def has_ended(self) -> bool:
        """Whether this attempt has recorded its end, or left its block."""
        return self.closed or self.journal.uncertain or self.root.journal.standing.attempt is None

    def in_doubt(self) -> bool:
        """Whether an effect of this run or of one of its children is in doubt."""
        return bool(self.state.in_doubt) or self.children.in_doubt()

    @property
    def saves_effects(self) -> bool:
        """Whether the files go back with the run, so that each confirmed effect names a save of them."""
        return self.files is not None and self.terms.files == "rewind"

    def save_effect(self) -> str:
        """The save that a confirmed effect names."""
        assert self.files is not None, "only a run with a workspace has files"
        return self.files.save_effect(self.journal)

    def save_beat(self) -> str:
        """The save that the end of the open beat names."""
        assert self.files is not None, "only a run with a workspace has files"
        commit = self.files.save_beat(self.state)
        if self.files.warning:
            at, level = self.journal.now(), f"save {commit[:12]}"
            self.journal.later(ev.Warned(at=at, level=level, text=self.files.warning))
        return commit
