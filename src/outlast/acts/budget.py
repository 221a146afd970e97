"""More budget for a run, on top of what it has. `resume` sets a new limit; `fork` moves budget to a fork."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from outlast.acts.plan import TAKEN_IN, WRITES, ActOutcome, about_child, name, next_act, root_of, stands
from outlast.core import budget as budgets
from outlast.core.events import ASKS
from outlast.core.state import RunState
from outlast.core.text import short
from outlast.core.values import Allowance
from outlast.errors import RunRefused, UsageError
from outlast.operations import requests
from outlast.runs import attempts
from outlast.runs.opening.terms import NO_LIMIT, NotEnough, in_words, topped, unit_of
from outlast.store.protocol import Store, Summary

INSIDE = "the run itself"  # who asked
_LIKE = {"tokens": "400k", "usd": "usd=12", "time": "time=8h", "beats": "beats=500", "window": "window=80%"}


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """More budget worked out: `more` is put on top of `before`, which makes `after`."""

    store: Store
    run: Summary
    root: Summary
    amounts: tuple[str, ...]
    limit_was: str
    before: Allowance | None
    more: Allowance
    after: Allowance
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        adds = [word for text in self.amounts for word in ("--add", text.replace("+", ""))]
        return ("budget", self.root.run, *adds)

    def apply(self, by: str = "") -> ActOutcome:
        """Put it on top of whatever the run has then."""
        run = self.root.run
        with requests.alone(self.store, run, WRITES):
            now = plan(self.store, self.run, self.amounts, limit_was=self.limit_was)
            outcome = requests.add_budget(self.store, run, now.more, by=by)
            after = limit_now(self.store, run)
        when = f"; {TAKEN_IN}" if outcome.in_inbox else ""
        says = f"{name(self.root)}: its budget is {limit_words(after)} now{when}."
        if outcome.in_inbox:
            return ActOutcome(says=says, link=self.run.run)
        then, hint = next_act(self.store, run)
        return ActOutcome(says=says, hint=hint, link=run, next=then)


def plan(store: Store, summary: Summary, amounts: Sequence[str], *, limit_was: str = "") -> BudgetPlan:
    """Work out the budget after an increase and all earlier requests that the run has not applied yet.

    `limit_was` is the allowance that the amounts were chosen for. Raises RunRefused where it is another one by now, and
    UsageError for a unit that has no limit.
    """
    root, status = root_of(store, summary)
    requests.allow(root.state, status, "amend")
    before = limit_now(store, root.run)
    require_limit(limit_was, before)
    head = msgspec.structs.replace(root.state, budget=before)
    more, after = _topped(head, amounts)
    sentences = [
        f"{name(root)} gets more: its budget becomes {limit_words(after)}; it was {limit_words(before)}.",
        f"Then there is: {rest_words(msgspec.structs.replace(head, budget=after))}.",
        f"It is running: {TAKEN_IN}." if status == "running"
        else f"It is {stands(store, root)}, and is not started by this: resume it.",
    ]  # fmt: skip
    return BudgetPlan(
        store, summary, root, tuple(amounts), limit_was, before, more, after, (*about_child(summary, root), *sentences)
    )  # fmt: skip


def ask_a_person(store: Store, root: Summary, amounts: Sequence[str]) -> ActOutcome:
    """Put on record that somebody inside the run wants more, for a person to grant. Nothing is changed by that.

    An agent that could raise its own budget would have none. Raises as `plan` does.
    """
    wanted = plan(store, root, amounts)
    words = shlex.join(wanted.command[2:])
    requests.note(store, root.run, ASKS, msgspec.json.encode(words), by=INSIDE)
    return ActOutcome(
        says=f"{name(root)} asks a person for more budget: a run cannot raise its own; nothing was changed.",
        hint=f"a person grants it outside the run: `outlast {shlex.join(wanted.command)}`",
        link=root.run,
        changed=False,
    )


def _topped(head: RunState, given: Sequence[str]) -> tuple[Allowance, Allowance]:
    """The amount on top of a budget, and the budget after it. Raises UsageError for a unit that has no limit."""
    units, sets = units_of(head.budget), f"`outlast resume {head.run} {_set_too(head, given)}` sets one"
    try:
        return topped(head, given)
    except NotEnough as error:
        amounts = [*(text for text in given if unit_of(text) not in _spent(head)), *_spent(head).values()]
        adds = " ".join(f"--add {text.replace('+', '')}" for text in amounts)
        raise UsageError(str(error), hint=f"`outlast budget {head.run} {adds}` is enough") from None
    except UsageError as error:
        limited = error.hint != NO_LIMIT
        if not units and (not given or not limited):
            raise UsageError(
                f"run {head.run} has no limit to raise: it may go on as it is", hint=sets
            ) from None
        if limited:
            raise
        raise UsageError(str(error), hint=f"it has limits of {', '.join(units)}; {sets}") from None


def _spent(head: RunState) -> dict[str, str]:
    """The amount to add to each limit that is spent, by its unit."""
    return {each.unit: budgets.half_of(each, head) for each in _lines(head) if each.is_reached}


def _set_too(head: RunState, given: Sequence[str]) -> str:
    """The options that set a missing limit, and raise each that is spent."""
    spent, limited = _spent(head), units_of(head.budget)
    missing = [unit for unit in dict.fromkeys(map(unit_of, given)) if unit in _LIKE and unit not in limited]
    until = ["--until +8h"] if spent.pop("until", "") else []
    amounts = [*(_new_limit(head, unit) for unit in missing or ["tokens"]), *spent.values()]
    return " ".join([*(f"--budget {text}" for text in amounts), *until])


def _new_limit(head: RunState, unit: str) -> str:
    """A limit of a unit that has none, above what is spent."""
    limited = msgspec.structs.replace(head, budget=budgets.parse(_LIKE[unit]))
    reached = [each for each in _lines(limited) if each.is_reached]
    return budgets.limit_above(reached[0]) if reached else _LIKE[unit]


# -- a limit, as it is shown and compared ----------------------------------------------------------------------------


def limit_words(budget: Allowance | None) -> str:
    """An allowance in words."""
    return "no limit" if budget is None else in_words(budget)


def limit_now(store: Store, run: str) -> Allowance | None:
    """The allowance of a root run with what its holder was asked for and has not taken in yet."""
    return requests.standing(store, run).state.budget


def require_limit(was: str, now: Allowance | None) -> None:
    """Refuse what was worked out from an allowance that is another one by now: somebody else has changed it."""
    if was and was != limit_words(now):
        raise RunRefused(
            f"the budget is {limit_words(now)} by now, and was {short(was, 100)}",
            hint="look at it and ask again",
        )


def units_of(budget: Allowance | None) -> list[str]:
    """The units of a budget that have a limit, which can be added to."""
    limits = budget or Allowance()
    return [unit for field, unit in budgets.UNITS.items() if getattr(limits, field) is not None]


def rest_words(state: RunState) -> str:
    """The rest of a run's budget, in words."""
    rest = [each.rest() for each in budgets.lines(state, budgets.Live(attempts.now()))]
    return ", ".join(rest) if rest else "it has no limit"


def needed(state: RunState) -> str:
    """The amount that a run without any rest needs on top; nothing if it has a rest."""
    return " ".join(budgets.half_of(each, state) for each in _lines(state) if each.is_reached)


def suggested(state: RunState) -> str:
    """Half as much again of the limit that is nearest."""
    amounts = [each for each in _lines(state) if each.unit not in ("window", "until")]
    return budgets.half_of(max(amounts, key=lambda each: each.share), state) if amounts else ""


def _lines(state: RunState) -> Iterator[budgets.Line]:
    yield from budgets.lines(state, budgets.Live(attempts.now()))
