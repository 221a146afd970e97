"""A run's row of the overview, computed from its head alone: no query, no file. The caller says whether its holder lives."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from outlast.core import budget as budgets
from outlast.core.state import RunState, Status
from outlast.core.statuses import CLOSED
from outlast.core.verdict import Children, with_children
from outlast.dashboard import report
from outlast.dashboard.documents import ActName, Meter, Quiet, Row
from outlast.dashboard.report import Kind
from outlast.dashboard.run import request_words
from outlast.inspect import find, ledger, show, standing
from outlast.inspect.inbox import PendingRequest
from outlast.inspect.questions import waits_for
from outlast.inspect.standing import Standing
from outlast.store.protocol import Summary

# An agent that lives and neither wrote a line nor ended a beat for so long. A build or a long test is quiet for some
# minutes; nothing that goes well is quiet for twenty.
IDLE_AFTER = timedelta(minutes=5)
STUCK_AFTER = timedelta(minutes=20)
WAIT_MAX = timedelta(hours=1)  # a supervisor that waits to start its command again does not wait for longer
# What is about to start, or to be woken by the service, is given so long before it is said that nobody does it.
GRACE = timedelta(minutes=2)


class Seen(msgspec.Struct, frozen=True):
    """Facts that no journal has: whether the holder lives, when the run last did something, how many children it has.

    `waits`: nobody holds it, and its supervisor is about to start it again. `was_signalled`: its guardian noted that
    somebody had told it to stop before it died.
    """

    lives: bool = False
    waits: bool = False
    was_signalled: bool = False
    pending: tuple[PendingRequest, ...] = ()
    heard_at: datetime | None = None
    children: int = 0
    root_rests: bool = True


def make(summary: Summary, seen: Seen, children: Children, now: datetime) -> Row:
    """The row of a run. `children` gives the runs of an open beat."""
    state = summary.state
    lives = seen.lives and state.status == "running"
    status = find.status_among(children, state, seen.lives)
    cause, _ = show.why(state, status)
    stands = standing.of(state, status, now, children, waits=seen.waits, was_signalled=seen.was_signalled)
    what, why, command = _judged(summary, seen, children, stands, now)
    if summary.problem:
        what, why, command = "needs you", summary.problem, None
    head = with_children(state, children)
    live = ledger.live_of(head, status, now)
    usage = msgspec.structs.replace(head.spent, time_ms=head.spent.time_ms + live.lived_ms)
    quiet, quiet_s = _quiet(seen.heard_at if lives else None, now)
    session = state.session
    return Row(
        run=summary.run, task=summary.task, project=summary.project, project_name=find.project_name(summary.project),
        generation=summary.generation, parent=summary.parent, root=summary.root, what=what, status=status, cause=cause,
        why=why, command=command, act=_act(command), goal=state.title, agent=session.agent if session else "",
        model=session.model if session else "", stage=state.stage, step=state.open_beat.step if state.open_beat else "",
        beats=state.beats, plan_total=state.plan_total, attempts=state.attempts,
        in_doubt=find.doubtful(children, state, status),
        spent=show.spent_of(usage, state.beats), meters=_meters(head, live, usage.time_ms, status),
        last_save=state.last_save or None, lives=lives, active_at=seen.heard_at, quiet=quiet, quiet_s=quiet_s,
        parked_until=state.parked_until if status == "parked" else None, created_at=state.created_at,
        updated_at=state.updated_at, children=seen.children, stranded=_is_stranded(summary, seen, stands, now),
        own_program=not state.supervised and not summary.parent,
        standing=None if summary.problem else stands.word, needs="person" if summary.problem else stands.need,
        pending=seen.pending, asks=state.asks, within=state.within, waits_for=waits_for(state),
    )  # fmt: skip


def _is_stranded(summary: Summary, seen: Seen, stands: Standing, now: datetime) -> bool:
    """Whether it stopped against anybody's wish, and nothing that lives starts it again. Children go on with their root."""
    state = summary.state
    if not stands.verdict.unasked or summary.parent or summary.problem or seen.waits:
        return False
    if stands.word == "due":
        grace = GRACE if state.supervised else timedelta()  # nobody wakes a program of somebody's own
        return state.parked_until is not None and now - state.parked_until > grace
    if stands.word == "not_started":
        return state.updated_at is not None and now - state.updated_at > GRACE
    return True


def may_wait(summary: Summary, now: datetime) -> bool:
    """Whether a supervisor may be waiting to start it again: worth a look, while it is not long ago."""
    state = summary.state
    if not state.supervised or summary.parent or state.status not in ("running", "interrupted", "in_doubt"):
        return False
    return state.updated_at is not None and now - state.updated_at < WAIT_MAX


def moves(summary: Summary, row: Row, now: datetime) -> bool:
    """Whether the row changes without an event, so that it has to be computed again though nothing was written."""
    state = summary.state
    until = state.budget.until if state.budget is not None else None
    if state.status == "running" or row.parked_until is not None or may_wait(summary, now):
        return True
    window = state.budget is not None and state.budget.window_pct is not None and row.cause == "budget"
    return (until is not None or window) and row.what != "done"


def _judged(
    summary: Summary, seen: Seen, children: Children, stands: Standing, now: datetime
) -> tuple[Kind, str, str | None]:
    """The heading, why, and what to type. A child goes on and stops with its root, so of a child only a doubt is for a
    person, and only while the root rests: else its program deals with it.
    """
    what, why, command = report.judged(children, summary.state, stands, now)
    if not summary.parent:
        return what, why, command
    settles = command is not None and command.startswith("outlast settle")
    if what == "needs you" and not (settles and seen.root_rests):
        what = "stopped"
    return what, why, command if settles and seen.root_rests else None


def _act(command: str | None) -> ActName | None:
    if command is None:
        return None
    if command.startswith("outlast approve"):
        return "approve"
    if command.startswith("outlast answer"):
        return "answer"
    return "settle" if command.startswith("outlast settle") else "resume"


def _meters(head: RunState, live: budgets.Live, lived_ms: int, status: Status) -> tuple[Meter, ...]:
    """The units that are limited, the one nearest to its limit first; then what else was spent."""
    if head.budget is None and not head.spent.tokens and not head.spent.cost_microusd:
        return ()
    made = [
        Meter(
            unit=unit.unit, limit=unit.limit, spent=unit.spent, left=unit.left, used_pct=unit.used_pct,
            forecast=unit.forecast, wraps_up=unit.wraps_up,
        )
        for unit in ledger.units(head, live, lived_ms, None, status)
        if unit.limit is not None or (unit.spent and unit.unit in ("tokens", "usd"))
    ]  # fmt: skip
    return tuple(
        sorted(made, key=lambda meter: -1.0 if meter.used_pct is None else meter.used_pct, reverse=True)
    )


def _quiet(active_at: datetime | None, now: datetime) -> tuple[Quiet, int]:
    if active_at is None:
        return "", 0
    age = now - active_at
    word: Quiet = "stuck" if age >= STUCK_AFTER else "idle" if age >= IDLE_AFTER else ""
    return word, max(0, int(age.total_seconds()))


def haystack(row: Row) -> str:
    """All that a search looks at, without case."""
    words: Iterable[str] = (
        row.task, row.goal, row.project_name, row.agent, row.model, row.stage, row.step, row.status.replace("_", " "),
        row.cause or "", row.quiet, row.what, row.why, standing.words(row.standing or ""),
        *request_words.pending_clauses(row.pending, row.asks),
    )  # fmt: skip
    return "\n".join((*words, row.status)).casefold()


def is_over(status: Status) -> bool:
    """Whether nothing of it goes on by itself."""
    return status in CLOSED
