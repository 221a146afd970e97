"""Whether a run may have one more attempt: not after a limit is reached, not before a quota wall is gone."""

import contextlib
import os
import shlex
import sys
from datetime import datetime
from pathlib import Path

import msgspec

from outlast.agents.values import Ask
from outlast.core import budget as budgets, events as ev, questions as qs, restarts, state as st, verdict
from outlast.core.values import shorten
from outlast.errors import BudgetReached, RunHeld, UnknownRun
from outlast.operations import requests
from outlast.runs import attempts, inbox
from outlast.runs.engine import questions
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import Append, append
from outlast.store.protocol import Store
from outlast.supervisor.attempt import progress as attempt_progress
from outlast.supervisor.budget import quota_walls
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import last_launch
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.workspace.types import raw


def limits_of(launch: Launch, wait_s: float = 5.0) -> restarts.Limits:
    """How often a command may be started, as the person asked."""
    return restarts.Limits(
        wait_s=wait_s, attempts_max=max(1, launch.restarts), rounds_max=launch.rounds, parks_max=launch.parks
    )


def account_of(launch: Launch, variables: dict[str, str], folder: Path) -> str:
    """The account whose limits the agent will meet, as its `Billing` names it; empty for a command that is no agent."""
    agent = known_agent(launch)
    if agent is None:
        return ""
    ask = Ask(
        words=tuple(launch.words),
        environment=variables,
        cwd=Path(os.fsdecode(raw(launch.cwd))),
        folder=folder,
    )
    return shorten(agent.billing.account(ask), quota_walls.ACCOUNT_CHARS_MAX)


def refuse_spent(state: st.RunState, *, wraps_up: bool) -> None:
    """Raise BudgetReached for a run that has wrapped up: it does not start again on its reserve."""
    if state.wrap_beat is not None and state.cause == "budget" and not wraps_up:
        more = (
            f"`outlast resume {shlex.quote(state.task)} {budgets.increase_hint(state)}` goes on where it was"
        )
        raise BudgetReached(f"run {state.run}: {state.evidence}", hint=more)


class GivenUp(Exception):
    """The attempts so far have reached a limit. That is on record, and no further attempt was started."""

    def __init__(self, stop: restarts.Stop, evidence: str) -> None:
        super().__init__(evidence)
        self.stop = stop


def judge(run: RunEngine, limits: restarts.Limits) -> ev.AttemptEnded | None:
    """The end of the last attempt as an event, if it recorded none itself. Raises GivenUp, on record, if a limit is reached.

    A supervisor judges its own attempts; this judges an attempt whose supervisor died with it.
    """
    journal, lost = run.journal, _lost(run)
    events: list[ev.AnyEvent] = [lost] if lost is not None else []
    after = st.fold(run.state, events)
    if run.supervision.typed:  # attempts in all are a limit for those that nobody asked for
        limits = msgspec.structs.replace(limits, attempts_max=sys.maxsize)
    stop = verdict.limit_reached(after, limits)
    if stop is None:
        return lost
    why = f"{stop.why}; the last: {after.evidence}"
    if events and run.files is not None:  # nobody else saved what it left
        events += run.drive(run.files.ending("emergency", journal, f"{stop.cause}: {why}", None))
    events.append(given_up(stop, why, journal.now()))
    run.drive(append(*events))
    raise GivenUp(stop, why)


class HeldBack(Exception):
    """No attempt before a quota wall falls. The run is parked, and that is on record."""

    def __init__(self, why: str, until: datetime) -> None:
        super().__init__(why)
        self.until = until


def hold_back(run: RunEngine, lost: ev.AttemptEnded | None, account: str) -> None:
    """Raise HeldBack where the run is parked until later, or a quota wall of its account makes it wait.

    Raises WaitsForPerson where it waits for an answer that nobody has given: starting it again would cost, and ask the same.
    """
    journal = run.journal
    run.drive(inbox.take_in_findings(journal, journal))  # somebody may have answered meanwhile
    state = run.state
    if state.status == "parked" and verdict.is_waiting(state, journal.now()):
        raise questions.waits(run.id, qs.waited_for(state.questions, state.waits))
    if (
        state.status == "parked"
        and not state.waits
        and state.parked_until is not None
        and state.parked_until > journal.now()
    ):
        raise HeldBack(f"{state.cause}: {state.evidence}", state.parked_until)
    stay = quota_walls.join(journal.store.shelf, account, run.id, run.settings["wake_apart_s"])
    if stay is None:
        return
    events: list[ev.AnyEvent] = [lost] if lost is not None else []
    if events and run.files is not None:  # nobody else saved what it left
        events += run.drive(run.files.ending("emergency", journal, f"quota: {stay.why}", None))
    events.append(ev.Parked(at=journal.now(), until=stay.until, evidence=stay.why, account=account))
    run.drive(append(*events))
    raise HeldBack(stay.why, stay.until)


def lift_wall(store: Store, account: str, begun_at: datetime | None = None) -> None:
    """Let all runs go on that wait at an account's wall, as `quota_walls.lift` has it: their time has come."""
    for run in quota_walls.lift(store.shelf, account, begun_at):
        bring_forward(store, run)


def bring_forward(store: Store, run: str) -> None:
    """Make a run due now that is parked until later. Does nothing to a run that a process holds or that is gone."""
    with contextlib.suppress(RunHeld, UnknownRun), requests.claimed(store, run) as journal:
        state, now = journal.state, journal.now()
        waits = state.parked_until is not None and state.parked_until > now and not state.waits
        if state.status == "parked" and waits:
            account = last_launch.account_in(store, requests.summary_of(store, run))
            due = ev.Parked(
                at=now, cause=state.cause or "quota", until=now, evidence=state.evidence, account=account
            )
            journal.store.append(journal.batch(Append((due,))))


def _lost(run: RunEngine) -> ev.AttemptEnded | None:
    """The end of an attempt that recorded none: from its guardian's note, else from the files it left."""
    journal, attempt = run.journal, run.state.attempt
    if attempt is None:
        return None
    folder = journal.store.local.run_folder(run.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    progress = attempt_progress.has_progress(run, folder, run.state.save_point)
    lost = attempts.lost(run.state, journal.now(), last_seen_s=journal.lease.last_seen_s, progress=progress)
    note = lock.noted(journal.store.local, run.id)
    if note is None or not note.wanted or note.epoch != attempt.epoch:
        return lost
    return msgspec.structs.replace(lost, cause="signal", evidence=note.why, wanted=True)


def given_up(stop: restarts.Stop, why: str, at: datetime) -> ev.AttemptEnded:
    """The event that ends all attempts, so that nothing wakes the run before a person looks."""
    return ev.AttemptEnded(
        at=at, epoch=0, status=stop.status, cause=stop.cause, evidence=why, wanted=True
    )  # fmt: skip
