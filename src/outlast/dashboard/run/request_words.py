"""Requests to a run in words: those on record, whose arguments are JSON."""

from collections.abc import Callable, Iterable

import msgspec

from outlast import decoders
from outlast.acts.plan import TAKEN_IN
from outlast.acts.restore import RestoreArgs
from outlast.acts.settle import clause
from outlast.core import events as ev
from outlast.core.secrets import mask
from outlast.core.state import Status
from outlast.core.values import Allowance, Payload, shorten
from outlast.inspect.inbox import PendingRequest
from outlast.operations.fork import ForkArgs, Forked
from outlast.operations.saves.find import SHORT_CHARS
from outlast.runs.inbox import STOPS, BudgetArgs, SettleArgs
from outlast.runs.opening.terms import in_words
from outlast.store.protocol import Request, Store

SAYS_CHARS = 300


def pending_by_run(store: Store) -> dict[str, tuple[PendingRequest, ...]]:
    """The requests that wait for each run, oldest first."""
    found: dict[str, tuple[PendingRequest, ...]] = {}
    for request in store.inbox.all_pending():
        found[request.run] = (*found.get(request.run, ()), pending(request))
    return found


def pending(request: Request) -> PendingRequest:
    """A request that waits, in words."""
    args = Payload(v=msgspec.Raw(request.args))
    says = words(ev.Requested(at=request.at, id=request.id, by=request.by, what=request.what, args=args))
    sentence = shorten(mask(says)[0], SAYS_CHARS)
    return PendingRequest(what=request.what, by=request.by, at=request.at, says=sentence)


def pending_clauses(pending: Iterable[PendingRequest], asks: str = "") -> list[str]:
    """What waits for a run, each within a sentence. `asks`: the budget that its agent asked a person for."""
    clauses = [
        f"asked to {each.what} by {each.by}" if each.what in STOPS else f"asked by {each.by}: {each.says}"
        for each in pending
    ]
    return [*clauses, *(["asks for more budget"] if asks else [])]


def taken_in(status: Status) -> str:
    """When what waits for a run takes effect."""
    return TAKEN_IN if status == "running" else "its next start takes it in"


def words(event: ev.Requested) -> str:
    """A request in words, to be read after `asked for by …:`. An unknown request is shown in its recorded form."""
    plain = _PLAIN.get(event.what, event.what.replace("_", " "))
    if event.args.blob:
        return plain
    args = bytes(event.args.v)
    wording = _WORDINGS.get(event.what)
    try:
        if wording is not None:
            return wording(args)
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
    settling = decoders.decode(args, SettleArgs)
    of = f" of run {settling.run}" if settling.run else ""
    result = bytes(settling.result).decode(errors="replace")
    return f"effect {settling.effect}{of} {clause(settling.finding)}" + (
        f", with {result} as its result" if result != "null" else ""
    )


def _fork(args: bytes) -> str:
    point = decoders.decode(args, ForkArgs)
    return f"a fork of run {point.run} after beat {point.beat:,}"


def _forked(args: bytes) -> str:
    return f"a fork, which is run {decoders.decode(args, Forked).run}"


def _restore(args: bytes) -> str:
    restoring = decoders.decode(args, RestoreArgs)
    return f"save {restoring.save[:SHORT_CHARS]} restored into {restoring.to}"


_PLAIN = {
    "amend": "another contract", "handoff": "a hand-off to another store", "take_back": "the hand-off taken back",
    "accept_rewind": "going on although the store was rewound", "open": "the agent, at a terminal", "kill": "an end at once",
}  # fmt: skip
_WORDINGS: dict[str, Callable[[bytes], str]] = {
    "more": _more, "less": _less, "budget": _budget, "settle": _settle, "fork": _fork, "forked": _forked, "restore": _restore,
}  # fmt: skip
