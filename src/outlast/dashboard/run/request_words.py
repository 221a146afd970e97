"""Requests to a run in words: those on record, whose arguments are JSON."""

from collections.abc import Callable

import msgspec

from outlast import decoders
from outlast.acts.restore import RestoreArgs
from outlast.acts.settle import said
from outlast.core import events as ev
from outlast.core.values import Allowance
from outlast.operations.fork import ForkArgs, Forked
from outlast.operations.saves.find import SHORT_CHARS
from outlast.runs.inbox import BudgetArgs, SettleArgs
from outlast.runs.opening.terms import in_words


def words(event: ev.Requested) -> str:
    """A request in words, to be read after `asked for by …:`. An unknown request is shown in its recorded form."""
    plain = _PLAIN.get(event.what, event.what.replace("_", " "))
    if event.args.blob:
        return plain
    args = bytes(event.args.v)
    told = _TOLD.get(event.what)
    try:
        if told is not None:
            return told(args)
    except msgspec.MsgspecError:
        pass
    return plain if args == b"null" or event.what in _PLAIN else f"{plain}: {args.decode(errors='replace')}"


def _more(args: bytes) -> str:
    return f"more budget, {in_words(decoders.decode(args, Allowance))} on top"


def _budget(args: bytes) -> str:
    budget = decoders.decode(args, BudgetArgs | None)
    if budget is None:
        return "no limit any more"
    if budget.fork is not None:
        return f"{in_words(budget.fork.budget)} moved to the fork {budget.fork.task}"
    return f"a budget of {in_words(budget)}"


def _less(args: bytes) -> str:
    less = decoders.decode(args, BudgetArgs)
    whereto = f" moved to the fork {less.fork.task}" if less.fork is not None else " less budget"
    return f"{in_words(less)}{whereto}"


def _settle(args: bytes) -> str:
    asked = decoders.decode(args, SettleArgs)
    of = f" of run {asked.run}" if asked.run else ""
    result = bytes(asked.result).decode(errors="replace")
    return f"effect {asked.effect}{of} {said(asked.finding)}" + (
        f", with {result} as its result" if result != "null" else ""
    )


def _fork(args: bytes) -> str:
    point = decoders.decode(args, ForkArgs)
    return f"a fork of run {point.run} after beat {point.beat:,}"


def _forked(args: bytes) -> str:
    return f"a fork, which is run {decoders.decode(args, Forked).run}"


def _restore(args: bytes) -> str:
    asked = decoders.decode(args, RestoreArgs)
    return f"save {asked.save[:SHORT_CHARS]} restored into {asked.to}"


_PLAIN = {
    "amend": "another contract", "handoff": "a hand-off to another store", "take_back": "the hand-off taken back",
    "accept_rewind": "going on although the store was rewound", "open": "the agent, at a terminal", "kill": "an end at once",
}  # fmt: skip
_TOLD: dict[str, Callable[[bytes], str]] = {
    "more": _more, "less": _less, "budget": _budget, "settle": _settle, "fork": _fork, "forked": _forked, "restore": _restore,
}  # fmt: skip
