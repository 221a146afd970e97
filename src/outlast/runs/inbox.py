"""Requests: put into a run's inbox by anybody, taken in by its holder in the same commit as their effect."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from outlast import decoders
from outlast.core import budget as budgets, events as ev
from outlast.core.state import OpenEffect
from outlast.core.values import NULL, PAYLOAD_INLINE_MAX_BYTES, Allowance, Contract, Payload, Usage
from outlast.errors import (
    BeatClosed,
    OutlastError,
    RunCancelled,
    RunHandedOff,
    RunKilled,
    RunPaused,
    UnknownRun,
)
from outlast.runs import reader
from outlast.runs.engine.questions import ANSWER, AnswerArgs, answered
from outlast.runs.engine.steps import Append, Steps
from outlast.runs.journal import Journal
from outlast.runs.timing import Timing
from outlast.store.protocol import Lease, Request

# When a holder first saw a cancel that had to wait for an act, by its lease and the request's id. By the monotonic
# clock: when it was asked is told by another's wall clock.
_waiting: "WeakKeyDictionary[Lease, dict[int, float]]" = WeakKeyDictionary()

_STOPS: dict[str, tuple[type[OutlastError], ev.EndStatus, ev.Cause]] = {
    "pause": (RunPaused, "paused", "operator"),
    "cancel": (RunCancelled, "cancelled", "operator"),
    "handoff": (RunHandedOff, "handed_off", "handed_off"),
    "open": (RunPaused, "interrupted", "operator"),
    "kill": (RunKilled, "interrupted", "operator"),
}
WAITING = ("pause", "handoff", "open")  # requests to stop that wait for what is under way
FINDINGS = ("settle", "another", ANSWER)  # requests that say something of an effect or answer a question
STOPS = tuple(_STOPS)  # the requests that end an attempt
_AFTERWARDS = {
    "pause": "`outlast resume {run}`, then start it again",
    "cancel": "start the task with `again` for a new run",
    "handoff": "`outlast export {run}`, or `outlast handoff {run} --take-back`",
    "open": "`outlast resume {run}` goes on when it is left",
    "kill": "`outlast resume {run}` goes on",
}


class SettleArgs(msgspec.Struct, frozen=True):
    """A person's finding about an effect; `run` names its child, empty for the root's own."""

    effect: str
    finding: ev.Finding
    result: msgspec.Raw = NULL
    run: str = ""


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fork that budget was moved to: which run, and what was asked for."""

    run: str
    task: str
    beat: int
    budget: Allowance


class BudgetArgs(Allowance, frozen=True, forbid_unknown_fields=True):
    """A new allowance, or with "less" the amount to take off. `fork` is where that went; the fold reads the limits and skips it."""

    fork: Move | None = None


class AmendArgs(msgspec.Struct, frozen=True):
    """A contract changed on purpose."""

    contract: Contract


def take_in(root: Journal, here: Journal, spent: Usage | None) -> Steps:
    """Apply all requests that wait for the run; raises if somebody asked it to stop, or if it has stopped meanwhile.

    `here` is the journal that is being written, the root's own or a child's. A stop ends both attempts, and the root's is
    charged what it has `spent`. It waits for the acts under way; a cancel waits for its grace period only.
    """
    root.lease.clear_request_flag()
    waiting: list[Request] = []
    for request in root.store.inbox.pending(root.run):
        if request.what not in _STOPS:
            if (yield from settle_child(root, here, request)):
                events = (requested(request, root), *effect_of(request, root))
                yield from _write(root, here, Append(events, takes=(request.id,)))
        elif root.lease.acting() and not _grace_is_over(root, request):
            root.lease.set_request_flag()
            waiting.append(request)
        else:
            yield from _stop(root, here, spent, (*waiting, request))


def take_in_findings(root: Journal, here: Journal) -> Steps:
    """Apply the waiting findings about effects. Leaves all other requests for `take_in`."""
    for request in root.store.inbox.pending(root.run):
        if request.what in FINDINGS and (yield from settle_child(root, here, request)):
            events = (requested(request, root), *effect_of(request, root))
            yield from _write(root, here, Append(events, takes=(request.id,)))


def stop_request(journal: Journal) -> str:
    """The first request to stop that waits in the run's inbox, empty for none."""
    waiting = (request.what for request in journal.store.inbox.pending(journal.run))
    return next((what for what in waiting if what in STOPS), "")


def require_open(root: Journal, here: Journal) -> None:
    """Raise if the run has stopped: another task may have taken a stop in while this one was at its act."""
    for journal in (root, here):
        if journal.state.attempt is None:
            kinds: dict[str, type[OutlastError]] = {status: kind for kind, status, _ in _STOPS.values()}
            kind = kinds.get(journal.state.status, BeatClosed)
            raise kind(
                f"run {journal.run}: this attempt has ended: {journal.state.evidence or journal.state.status}",
                hint=f"see `outlast show {journal.run}`",
            )


def _grace_is_over(root: Journal, request: Request) -> bool:
    """Whether a stop has waited long enough for the acts under way. Pause and handoff wait as long as it takes."""
    now = time.monotonic()
    since = _waiting.setdefault(root.lease, {}).setdefault(request.id, now)
    return request.what in ("cancel", "kill") and now - since >= Timing.current().cancel_grace_s


def _stop(root: Journal, here: Journal, spent: Usage | None, taken: Sequence[Request]) -> Steps:
    """End the attempt as the last request asks, in the commit that takes them in; always raises.

    An act that is still under way is in doubt from here on. The stops that the last one overtook are only noted.
    """
    request = taken[-1]
    kind, status, cause = _STOPS[request.what]
    left = [] if here is root else (yield from _leave_in_doubt(here))
    # Held from the look at the open effects to the commit: one that another thread confirms meanwhile is not in doubt.
    with root.mutex:
        doubts = _left_running(root)
        left += [f"{root.run} {doubt.beat}.{doubt.n}" for doubt in doubts]
        evidence = f"{request.what} asked by {request.by}"
        evidence += f", leaving in doubt: {', '.join(left)}" if left else ""
        end = ev.AttemptEnded(
            at=root.now(), epoch=root.lease.epoch, status=status, cause=cause, evidence=evidence, wanted=True, spent=spent
        )  # fmt: skip
        events: list[ev.AnyEvent] = [*doubts, *(requested(item, root) for item in taken), end]
        yield from _write(root, here, Append(tuple(events), takes=tuple(item.id for item in taken)))
    hint = f"see `outlast effects {root.run}`" if left else _AFTERWARDS[request.what].format(run=root.run)
    raise kind(f"run {root.run}: {evidence}, at beat {root.state.beats + 1}", hint=hint)


def _leave_in_doubt(child: Journal) -> Steps:
    """Record in a child what its root's end leaves in doubt; the effects, as `settle` takes them."""
    with child.mutex:
        doubts = _left_running(child)
        if doubts:
            yield Append(tuple(doubts))
    return [f"{child.run} {doubt.beat}.{doubt.n}" for doubt in doubts]


def _left_running(journal: Journal) -> list[ev.EffectInDoubt]:
    """The acts under way that this attempt intended, when a stop does not wait for them any longer."""
    attempt = journal.state.attempt
    if attempt is None or not journal.lease.acting():
        return []
    return [
        ev.EffectInDoubt(at=journal.now(), beat=effect.beat, n=effect.n, evidence="cancelled while it ran")
        for effect in journal.state.effects_open
        if effect.state == "intended" and effect.at >= attempt.started_at
    ]


def _write(journal: Journal, here: Journal, append: Append) -> Steps:
    """Through the driver for the journal it drives; directly for the root of a child, or for another child."""
    yield append if journal is here else msgspec.structs.replace(append, target=journal)


def settle_child(root: Journal, here: Journal, request: Request) -> Steps:
    """Settle an effect of a child before the request counts as taken in; False if that must wait.

    Killed in between, the request is met again and finds nothing left to settle. A child that is open in this
    process and not at work just now has a journal of its own in memory: it takes the request in itself, later.
    """
    if request.what != "settle":
        return True
    try:
        args = decoders.decode(request.args, SettleArgs)
    except msgspec.MsgspecError:
        return True
    if args.run in ("", root.run):
        return True
    child = here
    if here.run != args.run:
        try:
            child = resting(root, args.run)
        except UnknownRun:
            return True
        if child.state.attempt is not None and child.state.attempt.epoch == root.lease.epoch:
            return False
    events = settled(child, args, request.by)
    if events:
        yield from _write(child, here, Append(tuple(events)))
    return True


def resting(root: Journal, run: str) -> Journal:
    """The journal of a child that nobody has open, under the lease of its root."""
    child = Journal(root.store, root.lease, reader.head(root.store, run))
    child.load_open_beat("")
    return child


def requested(request: Request, journal: Journal) -> ev.Requested:
    """The record that somebody asked."""
    args = Payload(v=msgspec.Raw(request.args))
    if len(request.args) > PAYLOAD_INLINE_MAX_BYTES:
        args = Payload(blob=journal.store.blobs.put(request.args), size=len(request.args))
    return ev.Requested(at=journal.now(), id=request.id, by=request.by, what=request.what, args=args)


def effect_of(request: Request, journal: Journal) -> list[ev.AnyEvent]:
    """The events that a request causes besides the record of itself. An unreadable request causes a warning."""
    try:
        return _effect(request, journal)
    except msgspec.MsgspecError as error:
        text = f"request {request.id} ({request.what}) by {request.by} cannot be read: {error}"
        return [ev.Warned(at=journal.now(), level=f"request {request.id}", text=text)]


def _effect(request: Request, journal: Journal) -> list[ev.AnyEvent]:
    if request.what == "budget":
        decoders.decode(request.args, BudgetArgs | None)
    if request.what in ("more", "less"):
        decoders.decode(request.args, Allowance)
    if request.what == "settle":
        args = decoders.decode(request.args, SettleArgs)
        return settled(journal, args, request.by) if args.run in ("", journal.run) else []
    if request.what == ANSWER:
        answer = decoders.decode(request.args, AnswerArgs)
        return answered(journal.state, answer, request.by, journal.now())
    if request.what == "amend":
        amended = decoders.decode(request.args, AmendArgs)
        return [ev.ContractAmended(at=journal.now(), contract=amended.contract, by=request.by)]
    return []


def budget_after(budget: Allowance | None, waiting: Sequence[Request]) -> Allowance | None:
    """The allowance that a run has when it has taken in what waits for it."""
    for request in waiting:
        with contextlib.suppress(msgspec.MsgspecError):
            if request.what == "budget":
                budget = decoders.decode(request.args, Allowance | None)
            elif request.what == "more":
                budget = budgets.with_more(budget, decoders.decode(request.args, Allowance))
            elif request.what == "less":
                budget = budget and budget.minus(decoders.decode(request.args, Allowance))
    return budget


def _to_settle(journal: Journal, wanted: str) -> OpenEffect | ev.EffectIntended | None:
    """The effect that a person means: in doubt, or one of the open beat that failed, for a person may know more."""
    doubt = next((item for item in journal.state.in_doubt if item.id == wanted), None)
    known = next((each for each in journal.record.effects.values() if each.id == wanted), None)
    if known is None:
        beat = journal.state.open_beat
        if doubt is None and (beat is None or not wanted.startswith(f"{beat.beat}.")):
            return None
        journal.load_open_beat(journal.step)  # asked before the first beat of this attempt is open
        known = next((each for each in journal.record.effects.values() if each.id == wanted), None)
    if doubt is not None:
        return doubt
    return known.intent if known is not None and known.state in ("did_not", "failed") else None


def settled(journal: Journal, args: SettleArgs, by: str) -> list[ev.AnyEvent]:
    """The event that settles an effect, or none when it is not in doubt any more."""
    effect = _to_settle(journal, args.effect)
    if effect is None:
        return []
    result: Any = msgspec.json.decode(args.result)
    return [
        ev.EffectSettled(
            at=journal.now(),
            beat=effect.beat,
            n=effect.n,
            finding=args.finding,
            by=by,
            result=journal.payload(result),
        )
    ]
