"""Requests: put into a run's inbox by anybody, taken in by its holder in the same commit as their effect."""

from typing import Any

import msgspec

from outlast.core import events as ev
from outlast.core.values import NULL, PAYLOAD_INLINE_MAX_BYTES, Allowance, Contract, Payload
from outlast.effects.ops import Append, Steps
from outlast.errors import OutlastError, RunCancelled, RunHandedOff, RunPaused, UnknownRun
from outlast.runs import gather
from outlast.runs.journal import Journal
from outlast.store.protocol import Request

_STOPS: dict[str, tuple[type[OutlastError], ev.EndStatus, ev.Cause]] = {
    "pause": (RunPaused, "paused", "operator"),
    "cancel": (RunCancelled, "cancelled", "operator"),
    "handoff": (RunHandedOff, "handed_off", "handed_off"),
}
_AFTERWARDS = {
    "pause": "`outlast resume {run}`, then start it again",
    "cancel": "start the task with `again` for a new run",
    "handoff": "`outlast export {run}`, or `outlast handoff {run} --take-back`",
}


class SettleArgs(msgspec.Struct, frozen=True):
    """What a person found out about an effect; `run` names the child it belongs to, empty for the root's own."""

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
    """A new allowance. `fork` is where the rest went; the fold reads the limits and skips it."""

    fork: Move | None = None


class AmendArgs(msgspec.Struct, frozen=True):
    """A contract changed on purpose."""

    contract: Contract


def take_in(root: Journal, here: Journal) -> Steps:
    """Take in everything that waits for the run; raises when it was asked to stop.

    `here` is the journal that is being written, the root's own or a child's. A stop ends both attempts.
    """
    root.lease.mail_taken()
    for request in root.store.inbox.pending(root.run):
        if request.what in _STOPS and root.lease.acting():
            root.lease.mail_came()  # a stop waits for the acts under way
            continue
        if not (yield from settle_child(root, here, request)):
            continue
        events = [requested(request, root), *effect_of(request, root)]
        stop = _STOPS.get(request.what)
        if stop is None:
            yield from _write(root, here, Append(tuple(events), takes=(request.id,)))
            continue
        kind, status, cause = stop
        evidence = f"{request.what} asked by {request.by}"
        events.append(
            ev.AttemptEnded(
                at=root.now(), epoch=root.lease.epoch, status=status, cause=cause, evidence=evidence
            )
        )
        yield from _write(root, here, Append(tuple(events), takes=(request.id,)))
        hint = _AFTERWARDS[request.what].format(run=root.run)
        raise kind(f"run {root.run}: {evidence}, at beat {root.state.beats + 1}", hint=hint)


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
        args = msgspec.json.decode(request.args, type=SettleArgs)
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
    child = Journal(root.store, root.lease, gather.head(root.store, run))
    child.load_open_beat("")
    return child


def requested(request: Request, journal: Journal) -> ev.Requested:
    """The record that somebody asked."""
    args = Payload(v=msgspec.Raw(request.args))
    if len(request.args) > PAYLOAD_INLINE_MAX_BYTES:
        args = Payload(blob=journal.store.blobs.put(request.args), size=len(request.args))
    return ev.Requested(at=journal.now(), id=request.id, by=request.by, what=request.what, args=args)


def effect_of(request: Request, journal: Journal) -> list[ev.AnyEvent]:
    """What a request does to the journal besides being noted. One that cannot be read is noted with a warning."""
    try:
        return _effect(request, journal)
    except msgspec.MsgspecError as error:
        text = f"request {request.id} ({request.what}) by {request.by} cannot be read: {error}"
        return [ev.Warned(at=journal.now(), level=f"request {request.id}", text=text)]


def _effect(request: Request, journal: Journal) -> list[ev.AnyEvent]:
    if request.what == "budget":
        msgspec.json.decode(request.args, type=BudgetArgs | None)
    if request.what == "settle":
        args = msgspec.json.decode(request.args, type=SettleArgs)
        return settled(journal, args, request.by) if args.run in ("", journal.run) else []
    if request.what == "amend":
        amended = msgspec.json.decode(request.args, type=AmendArgs)
        return [ev.ContractAmended(at=journal.now(), contract=amended.contract, by=request.by)]
    return []


def settled(journal: Journal, args: SettleArgs, by: str) -> list[ev.AnyEvent]:
    """The event that settles an effect, or none when it is not in doubt any more."""
    effect = next((item for item in journal.state.in_doubt if item.id == args.effect), None)
    if effect is None:
        return []
    if effect.n not in journal.record.effects:
        journal.load_open_beat(journal.step)  # asked before the first beat of this attempt is open
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
