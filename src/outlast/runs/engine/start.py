"""The beginning of an attempt: claim the run, put its files in the state it continues from, record the start.

A Python program takes these steps in one call (`start`); a supervisor takes them one by one (`supervision.held`)."""

import sys
from typing import TYPE_CHECKING

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import budget as budgets, events as ev, questions
from outlast.runs import attempts
from outlast.runs.engine.claim import claim
from outlast.runs.engine.steps import Append, Block, Steps
from outlast.runs.opening import admission

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine


def start(run: "RunEngine") -> Steps:
    """Open a run that is not open. Where that fails, everything taken is given back."""
    yield from claim(run)
    try:
        if not run.is_done:
            found = yield from arrive(run)
            yield from record_start(run, found)
    except BaseException:
        run.give_back()
        raise


def arrive(run: "RunEngine") -> Steps:
    """Save the files as they are found, then bring them to where this attempt begins. Returns the events that say so.

    Durable when it returns, but for the events: `record_start` takes them. A run without a workspace has none.
    """
    if run.files is None:
        return []
    files, terms = run.files, run.terms
    seen_s = run.journal.lease.last_seen_s
    return (
        yield Block(
            lambda: files.arrive(run.state, terms.files, alive_until_s=seen_s, moved_is_fine=terms.moved)
        )
    )


def record_start(run: "RunEngine", found: list[ev.AnyEvent], lost: ev.AttemptEnded | None = None) -> Steps:
    """Record that this process took the run up; durable when it returns, and the run is open.

    `found` is what `arrive` returned. `lost` is how the last attempt ended, if it recorded no end and the caller knows more
    than this function finds out.
    """
    journal, head = run.journal, run.state
    if head.attempt is not None and lost is None:
        lost = attempts.lost(head, journal.now(), last_seen_s=journal.lease.last_seen_s)
    amended = _amended(run)
    launch = run.supervision.launch
    launch_payload = None if launch is None else (yield from journal.keep(launch))
    first = run.meter.first_reserved(head)
    started = attempts.started(
        journal.lease, journal.now(), __version__, sys.argv, launch_payload, first,
        finishes=run.supervision.finishes, guarded=run.supervision.guarded, within=run.supervision.within,
    )  # fmt: skip
    late = questions.overdue(head.questions, journal.now())
    events = (*((lost,) if lost is not None else ()), *amended, *found, *late, started)
    batch = journal.batch(Append(events))
    yield Block(lambda: journal.store.append(batch))  # whoever drives this may not know the journal yet
    journal.committed(batch)
    run.closed = False
    run.meter.begin()
    faults.point("run.started")


def _amended(run: "RunEngine") -> tuple[ev.ContractAmended, ...]:
    """The change of contract or budget that this start asks for, if it asks for one."""
    recorded, budget = run.contract, run.state.budget
    contract = admission.contract_of(run.terms, recorded)
    allowed = run.terms.budget if run.terms.amend else budgets.with_until(budget, run.terms.budget)
    if contract == recorded and allowed in (None, budget):
        return ()
    by = settings.user_name()
    return (ev.ContractAmended(at=run.journal.now(), contract=contract, budget=allowed, by=by),)
