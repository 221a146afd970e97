"""Admits a start, or refuses it before any claim if the status or the contract forbids it."""

import shlex

import msgspec

from outlast.core import budget as budgets, events as ev, state as st, statuses
from outlast.core.text import short
from outlast.core.values import PAYLOAD_INLINE_MAX_BYTES, Allowance, Contract, Parent, Payload
from outlast.errors import ContractChanged, RunRefused
from outlast.runs import attempts, reader
from outlast.runs.journal import encode
from outlast.runs.opening.terms import Terms, new_id
from outlast.store.protocol import Lease, RunFilter, Store

VALUE_CHARS_MAX = 120


def make(terms: Terms, store: Store, launch: object, *, after: str = "") -> str:
    """The id of the task's run; makes a run if there is none, or if the last one is over.

    The first event records how a supervised command is started: a kill may come before its first attempt.
    """
    where = RunFilter(task=terms.task, project=terms.project, parent="")
    is_new = launch is not None and (bool(after) or not store.list(where, limit=1))
    return store.create(opened(terms, None, _launch_payload(store, launch) if is_new else None), after=after)


def _launch_payload(store: Store, launch: object) -> Payload:
    data = encode(launch)
    if len(data) <= PAYLOAD_INLINE_MAX_BYTES:
        return Payload(v=msgspec.Raw(data))
    return Payload(blob=store.blobs.put(data), size=len(data))


def opened(terms: Terms, parent: Parent | None, launch: Payload | None = None) -> ev.RunOpened:
    """The first event of a new run."""
    return ev.RunOpened(
        at=attempts.now(), run=new_id(), task=terms.task, project=terms.project, contract=contract_of(terms, Contract()),
        budget=terms.budget, parent=parent, workspace=terms.workspace, files=terms.files if terms.workspace else "",
        launch=launch, origin=terms.origin,
    )  # fmt: skip


def may_come_back(terms: Terms, store: Store) -> bool:
    """Whether a workspace that is gone belongs to a run that has a save of it."""
    known = store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
    return bool(known) and bool(known[0].state.save_point)


def contract_of(terms: Terms, recorded: Contract) -> Contract:
    """The contract that the terms ask for; whatever they leave open is as recorded."""
    return Contract(
        recorded.goal if terms.goal is None else terms.goal,
        recorded.checks if terms.checks is None else terms.checks,
        recorded.invariants if terms.invariants is None else terms.invariants,
    )


def refused(state: st.RunState, verdict: statuses.Refusal) -> RunRefused:
    """The error for a command that makes no sense now. The hint for a supervised run is a command line."""
    live = budgets.Live(attempts.now())
    more = f" {budgets.increase_hint(state, live)}" if budgets.limit_reached(state, live) else ""
    hint = verdict.hint.format(run=state.run)
    hint = hint.replace(f"`outlast resume {state.run}`", f"`outlast resume {state.run}{more}`")
    if state.supervised:
        hint = hint.replace(statuses.AGAIN, f"`outlast run --task {shlex.quote(state.task)} --again -- CMD`")
    is_quarantined = verdict.why == statuses.HAS_FAILED and state.cause == "quarantine"
    why = "is quarantined" if is_quarantined else verdict.why
    return RunRefused(f"run {state.run} of task {state.task} {why}", hint=hint)


def refuse_other_host(store: Store, lease: Lease) -> None:
    """Refuse to go on with a run whose files and saves are on another host of a shared store."""
    here = lease.holder.host_id
    if not here:
        return
    newest = store.read(lease.run, after=0, tags=("attempt_started",), newest=True, limit=1).events
    started = newest[0].event if newest else None
    if isinstance(started, ev.AttemptStarted) and started.host_id not in ("", here):
        raise RunRefused(
            f"run {lease.run} works on host {started.host}: its files and their saves are there",
            hint=f"type there `outlast resume {lease.run}`, or bring it here with `outlast export` and `outlast import`",
        )


def admit(terms: Terms, store: Store, head: st.RunState, *, is_child: bool) -> None:
    """Refuse a start that the status or the contract forbids."""
    status = head.status if head.status != "running" else "interrupted"
    if is_child and status != "done":
        status = "interrupted"  # a child is paused, cancelled and handed off with its root
    verdict = statuses.after(status, "start")
    if isinstance(verdict, statuses.Refusal):
        raise refused(head, verdict)
    if head.status == "done" or terms.amend:
        return
    recorded = reader.contract(store, head)
    changed = contract_of(terms, recorded) != recorded
    known = (None, reader.opened(store, head).budget, head.budget)
    if changed or (head.fork is None and not any(budgets.same_limits(terms.budget, each) for each in known)):
        first = (
            _contract_words(contract_of(terms, recorded), recorded)
            if changed
            else _budget_words(head.budget, terms.budget)
        )
        raise ContractChanged(
            f"run {head.run} of task {head.task} was started with {first}",
            hint="give the same as at first, or amend=True to change it on purpose",
        )


def _contract_words(wanted: Contract, recorded: Contract) -> str:
    """The difference of two contracts: as it was at first, and as asked for now."""
    names = [name for name in Contract.__struct_fields__ if getattr(wanted, name) != getattr(recorded, name)]
    differences = [
        f"{_value(getattr(recorded, name))}, not {_value(getattr(wanted, name))}" for name in names
    ]
    return "another contract: " + "; ".join(
        f"{name} {each}" for name, each in zip(names, differences, strict=True)
    )


def _budget_words(recorded: Allowance | None, wanted: Allowance | None) -> str:
    before, now = (msgspec.structs.asdict(each or Allowance()) for each in (recorded, wanted))
    differences = [
        f"{name} {_value(before[name])}, not {_value(now[name])}" for name in now if before[name] != now[name]
    ]
    return "another budget: " + "; ".join(differences)


def _value(given: object) -> str:
    match given:
        case None | "" | ():
            return "none"
        case tuple():
            return short(" and ".join(map(repr, given)), VALUE_CHARS_MAX)
        case int() | float():
            return f"{given:,}"
        case _:
            return short(repr(given) if isinstance(given, str) else str(given), VALUE_CHARS_MAX)
