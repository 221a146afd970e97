"""The meter of an attempt: spent, set aside, and spent but not yet on record."""

import shlex
import threading
import time
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from outlast import settings
from outlast.core import budget as budgets, events as ev, state as st
from outlast.core.values import Usage, Window
from outlast.errors import BudgetReached

if TYPE_CHECKING:
    from outlast.runs.engine.beat import BeatEngine
    from outlast.runs.engine.run import RunEngine


LOOKS_MAX = 3


class Settling(NamedTuple):
    """A cost that is being put on record: as one sum, and by the key of each response."""

    total: Usage
    by_key: dict[str, Usage]


class HearsWarnings(Protocol):
    """Passes warnings of the budget on."""

    def warned(self, crossing: budgets.DueWarning) -> None:
        """A share of a limit is spent, or a limit is near."""


class Meter:
    """The budget of one attempt of a root run. Its child runs draw on the same budget.

    *Spent* is what events tell, in the head. *Reserved* is set aside for the next beat: a crash is charged with it.
    *Unsettled* is what the beat in flight is known to have cost and is not on record yet. `listener` hears each warning
    once; the warning is on record with the next commit.
    """

    def __init__(self, run: "RunEngine") -> None:
        self._run = run
        self._since_s = time.monotonic()
        self._lock = threading.Lock()
        self._known: dict[str, Usage] = {}  # what is unsettled, by the name of what cost it
        self._settling: dict[str, Usage] = {}  # of that, what is being put on record
        self._before: st.RunState | None = None  # the head that does not tell of it yet
        self._charged = Usage()  # of that, what the end of an earlier attempt is on record with already
        self._window: Window | None = None
        self.pays_first = False  # whether already the first beat costs something: an agent's, not a program's
        self.warned_levels: set[str] = set()  # levels that ride on the next commit, or did
        # The attempt ends while its model may be answering, and nobody sees what that costs.
        self.is_cut = False
        self.listener: HearsWarnings | None = None

    # -- unsettled -------------------------------------------------------------------------------------------------

    def count(self, key: str, spent: Usage) -> None:
        """Count one response, or one call of the model. Counted again under the same key, the last amount holds."""
        with self._lock:
            self._known[key] = spent

    def was_charged(self, owed: Usage) -> None:
        """Earlier attempts of this beat were charged this much of the cost so far: it does not count twice."""
        with self._lock:
            total = self._total()
            self._charged = total.minus(total.minus(owed))

    def unsettled(self) -> Usage:
        """The spending that is known and not on record yet.

        Spending counts at every instant, here or in the head: in the head as soon as that has spent more.
        Other events may come in between, from other threads.
        """
        # Asked for outside of the lock: whoever folds the head may hold another one.
        head = self._run.state if self._settling else None
        with self._lock:
            before = self._before
            if head is not None and before is not None and head.spent != before.spent:  # on record already
                return reduce(Usage.plus, self._counted_since().values(), Usage())
            return self._total().minus(self._charged)

    def begin_settling(self) -> Settling:
        """Begin to put the unsettled cost on record. It stays unsettled until the head has spent it."""
        head = self._run.state
        with self._lock:
            self._settling, self._before = dict(self._known), head
            return Settling(self._total().minus(self._charged), dict(self._known))

    def end_settling(self) -> None:
        """The cost is on record. Whatever was counted since `begin_settling` stays unsettled."""
        with self._lock:
            self._known = self._counted_since()
            self._settling, self._before, self._charged = {}, None, Usage()

    def stop_settling(self) -> None:
        """The cost could not be put on record: it stays unsettled, and the attempt's end is charged with it."""
        with self._lock:
            self._settling, self._before = {}, None

    def _counted_since(self) -> dict[str, Usage]:
        rest = {key: now.minus(self._settling.get(key, Usage())) for key, now in self._known.items()}
        return {key: usage for key, usage in rest.items() if usage != Usage()}

    def window(self, reading: Window) -> None:
        """Note how much of a subscription's window is used, as the agent or its provider reports it."""
        with self._lock:
            self._window = reading

    def take_window(self) -> Window | None:
        """The last such reading since the last call, if any."""
        with self._lock:
            reading, self._window = self._window, None
            return reading

    def _total(self) -> Usage:
        return reduce(Usage.plus, self._known.values(), Usage())

    def head(self) -> st.RunState:
        """The head as if what is unsettled were on record; so much less is set aside for the beat in flight."""
        for _ in range(LOOKS_MAX):  # other threads ask too, while the one becomes the other
            before = self._run.state
            head, known = self._run.children.head_with_spent(), self.unsettled()
            if self._run.state is before:
                break
        reserved = tuple(
            (key, usage.minus(known) if key == st.BEAT else usage)
            for key, usage in head.reserved
            if key != st.GATEWAY  # for a crash; who keeps the gateway knows what is under way
        )
        return msgspec.structs.replace(head, spent=head.spent.plus(known), reserved=reserved)

    # -- time and limits -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The attempt has started, and its time counts."""
        self._since_s = time.monotonic()
        self.is_cut = False
        with self._lock:
            self._known, self._settling, self._before = {}, {}, None
            self._charged, self._window = Usage(), None

    def live(self) -> budgets.Live:
        """The clocks as they are now."""
        lived_ms = 0 if self._run.closed else int((time.monotonic() - self._since_s) * 1000)
        return budgets.Live(datetime.now(UTC), lived_ms)

    def left(self) -> budgets.Left:
        return budgets.left(self._run.state.budget, self._run.children.head_with_spent(), self.live())

    def check(self) -> None:
        """Before a beat: warn of what is nearly spent. Raises BudgetReached where nothing is left."""
        run, head, live = self._run, self._run.children.head_with_spent(), self.live()
        spent = budgets.limit_reached(head, live)
        if spent:
            again = f"`outlast resume {shlex.quote(run.task)} {budgets.increase_hint(head, live)}` goes on where it was"
            ours = f"start {run.task} again with amend=True and a larger budget="
            raise BudgetReached(
                f"run {run.id}: {spent}", hint=again if run.supervision.launch is not None else ours
            )
        if head.wrap_beat is not None:
            return  # nothing louder is left to say
        for crossing in budgets.due_warnings(head, settings.percentages(run.settings["warn_at"]), live):
            if crossing.level not in self.warned_levels:
                self.warn(crossing)

    def warn(self, crossing: budgets.DueWarning) -> None:
        """Put a warning on record, with the next commit, and pass it on."""
        run = self._run
        self.warned_levels.add(crossing.level)
        run.journal.later(ev.Warned(at=run.journal.now(), level=crossing.level, text=crossing.text))
        if self.listener is not None:
            self.listener.warned(crossing)

    def reserved(self, spent: Usage) -> Usage | None:
        """How much to set aside for the next beat, after one that cost this much; None where nothing is ever spent."""
        head = self._run.state
        before = (
            dict(head.reserved).get(st.BEAT, Usage()) if head.beats else Usage()
        )  # the first one was guessed
        decided = head.open_spent.minus(head.attempt.owed) if head.attempt is not None else head.open_spent
        found = budgets.next_reserved(before, spent.plus(decided))
        return found if found != st.NO_USAGE else None

    def first_reserved(self, head: st.RunState) -> Usage | None:
        """How much to set aside for the first beat of an attempt, where nothing is set aside yet."""
        if not self.pays_first or head.budget is None or st.BEAT in dict(head.reserved):
            return None
        return budgets.first_reserved(head.budget)

    def at_end(self, beat: "BeatEngine | None") -> Usage | None:
        """The charge at an attempt's end: its time (a child's is its root's), and the cost of the beat in flight."""
        spent = beat.staged_spend if beat is not None and not beat.closed else Usage()
        if self._run.root is self._run:
            known = spent.plus(self.unsettled())
            lost = budgets.charge_for_killed(self._run.state).minus(known) if self.is_cut else Usage()
            spent = known.plus(lost if lost.tokens or lost.cost_microusd else Usage())
            spent = spent.plus(Usage(time_ms=self.live().lived_ms))
        return spent if spent != Usage() else None
