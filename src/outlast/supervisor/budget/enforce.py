"""Enforcing the budget of a supervised command: warn its agent, tell it to wrap up while the reserve lasts, then stop it.

The ledger is the journal (`core.budget`); this checks it after each beat and as time passes."""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast import settings
from outlast.core import budget as budgets, events as ev, state as st
from outlast.errors import AgentStopped
from outlast.inspect.show import Spent, spent_of
from outlast.operations import prices
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.settings import percentages
from outlast.store import durable
from outlast.supervisor.person import Person

if TYPE_CHECKING:
    from outlast.supervisor.budget.pricing import Pricing

WRAP_UP_BEATS = 4  # from the one in which that is found: a word reaches the agent with its next call
NO_PRICE = budgets.NO_PRICE
HOW_TO_LOOK = "`outlast budget` shows what is left."


class WrapsUp(AgentStopped):
    """Ends an agent that outlast cannot tell to wrap up while it works: the next start tells it."""

    def __init__(self, words: str) -> None:
        super().__init__(f"only the reserve is left of its budget: {words}", cause="budget", progress=True)


def wrap_up_words(state: st.RunState, live: budgets.Live) -> str:
    """The one clear instruction that an agent gets when all but the reserve is spent."""
    spent = budgets.wraps_up(state, live) or "all but the reserve"
    turns = max(
        1, WRAP_UP_BEATS - state.beats + (state.beats if state.wrap_beat is None else state.wrap_beat)
    )
    return (
        f"outlast: the budget of this run is nearly spent ({spent}). What is left is a reserve for your ending. Start "
        f"nothing new. Within your next {turns} turns: commit what is worth keeping, write down what is done and what "
        "comes next where the next attempt will find it, then stop. After that you are stopped; the files are saved as "
        "they are."
    )


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """One limit in the budget file. Money in micro-dollars, time in seconds, a window in hundredths of a percent."""

    limit: int
    spent: int
    reserved: int
    left: int


class BudgetFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of $OUTLAST_BUDGET_FILE, for agents and scripts that outlast cannot reach in another way."""

    run: str
    task: str
    beats: int
    limits: dict[str, Left]
    spent: Spent
    warning: str
    wraps_up: bool


class BudgetWatch:
    """Looks after the budget of one attempt."""

    def __init__(self, run: RunEngine, folder: Path, person: Person) -> None:
        self._run, self._folder, self._person = run, folder, person
        self._path = folder / "budget.json"
        self._warn_at = percentages(run.settings["warn_at"])
        self._pending: list[str] = []
        self._word = ""
        self._stale = False  # whether a warning came after the file was written
        self.can_tell = False  # whether the agent is told while it works
        self.by_gateway = False  # and whether that is done on the way to its model
        self.pricing: Pricing | None = None  # who prices what this attempt spends
        run.meter.listener = self
        self.write()

    # -- looking ---------------------------------------------------------------------------------------------------

    def beat_ended(self) -> AgentStopped | None:
        """After each beat: why the agent is to be stopped, if it is."""
        self.tell_unpriced()
        stop = self._look()
        self.write()
        return stop

    def tick(self) -> AgentStopped | None:
        """Now and then: what time alone brings, and a beat that costs more than there is."""
        stop = self._ticked()
        if self._stale:
            self.write()
        return stop

    def _ticked(self) -> AgentStopped | None:
        budget = self._run.state.budget
        if budget is None:
            return None
        self.tell_unpriced()
        head = self._run.meter.head()
        over = self.no_price() or budgets.limit_reached(head, self._run.meter.live())
        if over:
            return AgentStopped(over, cause="budget", progress=True)
        if budget.time_s is None and budget.until is None:
            return None
        return self._look()

    def no_price(self) -> str:
        """Why a run that is limited by money alone must stop: a model of this attempt has no price.

        The costs of earlier attempts may have got a price since. A run with other limits goes on; the person hears of it once.
        """
        budget = self._run.state.budget
        if (
            budget is None
            or budget.cost_microusd is None
            or self.pricing is None
            or not self.pricing.unpriced
        ):
            return ""
        if budgets.is_only_money(budget):
            return f"{NO_PRICE}, so its budget in usd cannot be kept: {self.pricing.unpriced!r:.80}"
        return ""

    def tell_unpriced(self) -> None:
        """Say once for the run that a model has no price, so that its limit in money misses what that model costs."""
        model = self.pricing.unpriced if self.pricing is not None else ""
        run, budget = self._run, self._run.state.budget
        if not model or budget is None or budget.cost_microusd is None or budgets.is_only_money(budget):
            return
        level = f"no price of {model!r:.80}"
        if level in run.state.warned or level in run.meter.warned_levels:
            return
        text = (
            f"{NO_PRICE}, so its limit in usd does not count that: {model!r:.80}; its other limits hold. "
            f"Its price can be put into {settings.user_folder() / prices.OWN}"
        )
        run.meter.warned_levels.add(level)
        self._person.warn(run, level, text)
        self._person.notify(run, "budget", text)

    def _look(self) -> AgentStopped | None:
        head, live = self._run.meter.head(), self._run.meter.live()
        budget = head.budget
        if budget is None:
            return None
        over = self.no_price() or budgets.limit_reached(head, live)
        if over:
            return AgentStopped(over, cause="budget", progress=True)
        if head.wrap_beat is not None:
            return self._after_the_word(head)
        for crossing in budgets.due_warnings(head, self._warn_at, live):
            if crossing.level not in self._run.meter.warned_levels:
                self._record(crossing)
        spent = budgets.wraps_up(head, live)
        return self._wrap_up(head, spent) if spent else None

    def _after_the_word(self, head: st.RunState) -> AgentStopped | None:
        assert head.wrap_beat is not None, "it was told"
        full = next((line for line in budgets.lines(head) if line.spent + line.reserved > line.limit), None)
        if full is not None:
            return AgentStopped(
                f"one more turn does not fit: {full.words()} spent", cause="budget", progress=True
            )
        if head.beats - head.wrap_beat < WRAP_UP_BEATS:
            return None
        return AgentStopped(
            f"all but the reserve is spent, and it did not stop within {WRAP_UP_BEATS} turns",
            cause="budget",
            progress=True,
        )

    def _wrap_up(self, head: st.RunState, spent: str) -> AgentStopped | None:
        words = wrap_up_words(head, self._run.meter.live())
        self._record(budgets.DueWarning(f"{st.WRAP_UP} of {_limits(head)}", f"told to wrap up: {spent}"))
        if self.can_tell:
            self._pending[:], self._word = [words], words
            return None
        return (
            WrapsUp(spent) if self._run.meter.pays_first else None
        )  # an agent; a plain command reads its file

    def wrap_up(self) -> str:
        """The instruction to wrap up, for an agent that is started only for that; else empty."""
        head = self._run.meter.head()  # with what no event says yet, as the ledger counts it
        return wrap_up_words(head, self._run.meter.live()) if head.wrap_beat is not None else ""

    # -- telling ---------------------------------------------------------------------------------------------------

    def words(self) -> str:
        """The warnings that the agent has not received yet; each is returned once."""
        warnings, self._pending = self._pending, []
        return "\n".join(warnings)

    def word(self) -> str:
        """Only the instruction to wrap up, for an agent that reads nothing but denials of its calls."""
        words, self._word = self._word, ""
        return words

    def _record(self, crossing: budgets.DueWarning) -> None:
        run = self._run
        run.meter.warned_levels.add(crossing.level)
        run.drive(append(ev.Warned(at=run.journal.now(), level=crossing.level, text=crossing.text)))
        self.warned(crossing)

    def warned(self, crossing: budgets.DueWarning) -> None:
        """Pass a warning on: to the person now, to the agent with the next answer it gets."""
        self._person.say(crossing.text)
        self._person.notify(self._run, "budget", crossing.text)
        self._pending.append(f"outlast: {crossing.text}. {HOW_TO_LOOK}")
        # The file is written only after all limits are checked: its reader may call its model at once, and must then get
        # the warnings that belong to what it has read.
        self._stale = True

    def write(self) -> None:
        """Write the file that scripts and agents read. It is a projection of the store, so it need not be durable."""
        self._stale = False
        head, live = self._run.meter.head(), self._run.meter.live()
        known = budgets.left(head.budget, head, live)
        content = BudgetFile(
            run=head.run, task=head.task, beats=head.beats, spent=spent_of(head.spent, head.beats),
            limits={
                each.unit: Left(limit=each.limit, spent=each.spent, reserved=each.reserved, left=each.left)
                for each in budgets.lines(head, live)
            },
            warning=known.warning, wraps_up=known.wraps_up,
        )  # fmt: skip
        with contextlib.suppress(OSError):
            new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            with open(new, "wb", opener=durable.opener) as file:
                file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
            new.rename(self._path)


def _limits(head: st.RunState) -> str:
    return ", ".join(f"{line.unit} {line.limit}" for line in budgets.lines(head)) or "time"
