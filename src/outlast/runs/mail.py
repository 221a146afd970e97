"""Requests: put into a run's inbox by anybody, taken in by its holder in the same commit as their effect."""

from typing import Any

import msgspec

from outlast.core import events as ev
from outlast.core.values import NULL, Payload
from outlast.effects.ops import Append, Steps
from outlast.errors import OutlastError, RunCancelled, RunHandedOff, RunPaused
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
    """What a person found out about an effect."""

    effect: str
    finding: ev.Finding
    result: msgspec.Raw = NULL


class AmendArgs(msgspec.Struct, frozen=True):
    """A contract changed on purpose."""

    contract: ev.Contract


def take_in(root: Journal, here: Journal) -> Steps:
    """Take in everything that waits for the run; raises when it was asked to stop.

    `here` is the journal that is being written, the root's own or a child's. A stop ends both attempts.
    """
    root.mail_waits = False
    for request in root.store.inbox.pending(root.run):
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


def _write(root: Journal, here: Journal, append: Append) -> Steps:
    """Through the driver for the journal it drives; directly for the root of a child."""
    if root is here:
        yield append
        return
    from outlast.effects.ops import Block

    yield Block(lambda: root.store.append(root.batch(append)))


def requested(request: Request, journal: Journal) -> ev.Requested:
    """The record that somebody asked."""
    args = Payload(v=msgspec.Raw(request.args))
    return ev.Requested(at=journal.now(), id=request.id, by=request.by, what=request.what, args=args)


def effect_of(request: Request, journal: Journal) -> list[ev.AnyEvent]:
    """What a request does to the journal besides being noted."""
    if request.what == "settle":
        return settled(journal, msgspec.json.decode(request.args, type=SettleArgs), request.by)
    if request.what == "amend":
        args = msgspec.json.decode(request.args, type=AmendArgs)
        return [ev.ContractAmended(at=journal.now(), contract=args.contract, by=request.by)]
    return []


def settled(journal: Journal, args: SettleArgs, by: str) -> list[ev.AnyEvent]:
    """The event that settles an effect, or none when it is not in doubt any more."""
    effect = next((item for item in journal.state.in_doubt if item.id == args.effect), None)
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
