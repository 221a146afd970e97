"""The beginning of an attempt: claim the run, bring its files to where it goes on, record who took it up."""

import sys
from typing import TYPE_CHECKING

from outlast import faults, settings
from outlast._version import __version__
from outlast.core import budget as budgets, events as ev
from outlast.errors import NestedRun, UsageError
from outlast.runs import attempts
from outlast.runs.engine.beat import open_beat
from outlast.runs.engine.claim import claim
from outlast.runs.engine.steps import Append, Block, Steps
from outlast.runs.journal import Journal
from outlast.runs.opening import admission

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine


def start(run: "RunEngine") -> Steps:
    """Open a run that is not open. Whatever was taken is given back where that fails."""
    if not run.closed:
        raise UsageError(f"run {run.terms.task!r} is already open")
    _refuse_nesting(run)
    run.forget()
    try:
        yield Block(lambda: claim(run))
        if not run.is_done:
            prepare = run.supervision.on_claimed
            lost = (yield Block(prepare)) if prepare is not None else None
            yield from _record(run, lost)
    except BaseException:
        run.give_back()
        raise


def _refuse_nesting(run: "RunEngine") -> None:
    beat = open_beat.get()
    if beat is not None and not beat.closed and not beat.owner.closed and run.parent is None:
        raise NestedRun(
            f"outlast.run({run.terms.task!r}) inside the open beat {beat.number} of task {beat.owner.task!r}",
            hint="use `beat.run(task)` for a child run",
        )


def _record(run: "RunEngine", lost: ev.AttemptEnded | None) -> Steps:
    """Record that this process took the run up, and how the last one was lost if it said nothing."""
    journal, head = run.journal, run.state
    events: list[ev.AnyEvent] = []
    recorded = run.contract
    given = admission.asked(run.terms, recorded)
    budget = run.terms.budget if run.terms.amend else budgets.anew(head.budget, run.terms.budget)
    if given != recorded or budget not in (None, head.budget):
        by = settings.user_name()
        events.append(ev.ContractAmended(at=journal.now(), contract=given, budget=budget, by=by))
    found: list[ev.AnyEvent] = (yield Block(lambda: _arrive(run))) if run.files is not None else []
    if head.attempt is not None:
        seen_s = journal.lease.last_seen_s
        events.insert(0, lost or attempts.lost(head, journal.now(), last_seen_s=seen_s))
    launch = run.supervision.launch
    kept = None if launch is None else (yield from journal.keep(launch))
    first = run.meter.first_reserved(head)
    events += (
        *found,
        attempts.started(journal.lease, journal.now(), __version__, sys.argv, kept, first),
    )
    yield from _through(journal, Append(tuple(events)))
    run.closed = False
    run.meter.begin()
    faults.point("run.started")


def _arrive(run: "RunEngine") -> list[ev.AnyEvent]:
    """Save the files that are found, and bring them to where this attempt begins."""
    assert run.files is not None, "only a run with a workspace has files"
    terms, journal, kept = run.terms, run.journal, run.files
    if terms.files == "rewind":
        journal.save_effect = lambda: kept.save_effect(journal)
    alive_until_s = journal.lease.last_seen_s
    return kept.arrive(run.state, terms.files, alive_until_s=alive_until_s, moved_is_fine=terms.moved)


def _through(journal: Journal, append: Append) -> Steps:
    """Append while the driver does not know the journal yet."""
    batch = journal.batch(append)
    yield Block(lambda: journal.store.append(batch))
