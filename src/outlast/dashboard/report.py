"""The morning page: what each run did since a time, why it stopped, and what to type if it needs a person."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from outlast import settings
from outlast.core import budget as budgets, events as ev
from outlast.core.state import RunState, Status
from outlast.core.text import without_class
from outlast.core.values import Usage
from outlast.core.verdict import (
    Children,
    Need,
    Verdict,
    Word,
    doubts_among,
    has_ended_in_doubt,
    in_words,
    to_settle,
    with_children,
)
from outlast.dashboard.run import request_words
from outlast.errors import UsageError
from outlast.inspect import find, show, standing
from outlast.inspect.inbox import PendingRequest
from outlast.inspect.questions import WaitsFor, waits_for
from outlast.inspect.standing import Standing
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.control import standing as control_standing
from outlast.workspace import worktree_marker
from outlast.workspace.worktree_marker import WorktreePlace

Kind = Literal["needs you", "stopped", "running", "done"]
KINDS: tuple[Kind, ...] = ("needs you", "stopped", "running", "done")
_SETTLES = "; the next attempt settles it"
WINDOW_EVENTS = 2_000
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Beats, saves and spending are those since the page's time; `command` is the one to type next."""

    run: str
    task: str
    project: str
    goal: str
    what: Kind
    status: Status
    cause: ev.Cause | None
    why: str
    command: str | None
    beats: int
    beats_since: int
    attempts_since: int
    tokens: int
    cost_microusd: int
    estimated: bool
    saves: int
    last_save: str | None
    updated_at: datetime | None
    standing: Word | None = None
    needs: Need | None = None
    pending: tuple[PendingRequest, ...] = ()
    asks: str = ""
    worktree: WorktreePlace | None = None
    waits_for: tuple[WaitsFor, ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All runs that did something, those that need a person first."""

    since: datetime
    until: datetime
    tokens: int
    cost_microusd: int
    saves: int
    runs: tuple[ReportRow, ...]


def since(text: str, now: datetime) -> datetime:
    """The moment that a person means: the last 22:00 of their clock, an age, or a date with its time."""
    try:
        return _moment(text.strip(), now).astimezone(UTC)
    except (UsageError, ValueError, OverflowError):
        raise UsageError(
            f"the time {text!r:.40} cannot be read", hint="like 22:00, 8h, 2d or 2026-11-15T22:00"
        ) from None


def _moment(text: str, now: datetime) -> datetime:
    clock = _CLOCK.fullmatch(text)
    if clock:
        today = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return today if today <= now else today - timedelta(days=1)
    return now - settings.age(text) if text[-1:].isalpha() else datetime.fromisoformat(text)


def page(store: Store, since: datetime, now: datetime, project: str = "") -> Page:
    """The page of one project, or of all."""
    runs = find.all_runs(store, RunFilter(project=project, parent=""), unreadable=True)
    met = [summary for summary in runs if summary.state.updated_at and summary.state.updated_at >= since]
    waiting = request_words.pending_by_run(store)
    return summed(
        since, now, [_row(store, summary, since, now, waiting.get(summary.run, ())) for summary in met]
    )


def summed(since: datetime, now: datetime, rows: list[ReportRow]) -> Page:
    """A page of these rows, with its sums."""
    ordered = sorted(rows, key=lambda row: KINDS.index(row.what))
    return Page(
        since=since, until=now, tokens=sum(row.tokens for row in rows),
        cost_microusd=sum(row.cost_microusd for row in rows), saves=sum(row.saves for row in rows),
        runs=tuple(ordered),
    )  # fmt: skip


def _row(
    store: Store, summary: Summary, since: datetime, now: datetime, waiting: tuple[PendingRequest, ...]
) -> ReportRow:
    state = summary.state
    shown = state.status if summary.problem else find.shown_status(store, state, summary.run)
    stands = control_standing.of(store, summary, shown, now)
    what, why, command = judged(find.children_in(store), state, stands, now)
    if summary.problem:
        what, why, command = "needs you", f"cannot be read here: {summary.problem}", None
    did = _Did() if summary.problem else _did(store, state, since)
    return ReportRow(
        run=summary.run, task=summary.task, project=summary.project, goal=state.title, what=what, status=shown,
        cause=show.cause_of(state), why=why, command=command, beats=state.beats, beats_since=did.beats,
        attempts_since=did.attempts, tokens=did.spent.tokens, cost_microusd=did.spent.cost_microusd,
        estimated=did.spent.estimated, saves=len(did.saves), last_save=state.last_save or None,
        updated_at=state.updated_at,
        standing=None if summary.problem else stands.word, needs="person" if summary.problem else stands.need,
        pending=waiting, asks=state.asks, waits_for=waits_for(state), worktree=worktree_marker.place_of(state.workspace),
    )  # fmt: skip


# -- what it needs -----------------------------------------------------------------------------------------------


def judged(
    children: Children, state: RunState, stands: Standing, now: datetime
) -> tuple[Kind, str, str | None]:
    """Under which heading a run comes, why it is there, and what to type."""
    what = kind_of(stands.verdict)
    match stands.word:
        case "done" | "handed_off":
            return what, "handed off to another store" if stands.word == "handed_off" else "", None
        case "running":
            return what, state.stage, None
        case "cancelled":
            return what, f"cancelled: {state.evidence}", None
        case "restarting":  # nobody has to do anything, and `outlast resume` would be refused
            why = _reason(children, state, stands, now) or stands.verdict.why
            return what, f"{why}; its supervisor starts it again", None
        case _:
            pass
    command = standing.go_on_command(state, now, children)
    return what, _reason(children, state, stands, now) or stands.verdict.why, command


def kind_of(found: Verdict) -> Kind:
    """The heading of a verdict."""
    if found.needs_somebody:
        return "needs you"
    match found.word:
        case "running" | "done":
            return found.word
        case "handed_off":
            return "done"
        case _:
            return "stopped"


def _reason(children: Children, state: RunState, stands: Standing, now: datetime) -> str:
    """Why a run that rests is where it is; empty where nothing is on record."""
    why = f"{state.cause}: {state.evidence}" if state.cause else state.evidence
    match stands.word:
        case "in_doubt":
            rests = f"; {_IT_IS[state.status]}: {why}" if state.status in _IT_IS else ""
            return _doubts(children, state) + rests
        case "unsettled" | "restarting" if doubts_among(children, state):
            return f"{_doubts(children, state)}{_SETTLES}"
        case "failed" | "quarantined" if state.status == "failed":
            return f"failed: {why}"
        case "not_started" if state.awaits_start:
            return stands.verdict.why
        case "blocked":
            return f"parked: {why}"
        case "parked" | "due":
            return f"{stands.verdict.why}: {why}"
        case "paused":
            return f"paused: {why}"
        case "waiting":
            return state.evidence
        case "out_of_budget" if state.cause != "budget":
            return budgets.limit_reached(with_children(state, children), budgets.Live(now)) or why
        case "out_of_budget" | "stalled" | "disk_full" | "quarantined":
            return why
        case "ready" if has_ended_in_doubt(state):
            return "what was in doubt is settled"
        case "ready" if state.cause == "budget":
            return _has_budget_again(children, state, budgets.Live(now))
        case _:
            return f"interrupted: {why}" if why else ""


_IT_IS: dict[Status, str] = {
    "failed": "failed",
    "paused": "paused",
    "parked": "parked",
}  # beside what is in doubt


def _has_budget_again(children: Children, state: RunState, live: budgets.Live) -> str:
    """Why a run that spent its budget may go on: the limit was raised since, or the time limit or usage window is over."""
    head = with_children(state, children)
    nearest = max(budgets.lines(head, live), key=lambda line: line.share, default=None)
    left = f": {nearest.rest()}" if nearest is not None else ""
    return f"its budget was spent, and there is some again{left}"


def _doubts(children: Children, state: RunState) -> str:
    """The effects in doubt, in words."""
    found = to_settle(children, state) or doubts_among(children, state)
    names = [f"{effect.id} {effect.name}" for _, effect in found]
    return f"in doubt: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"


def why_words(why: str, status: Status) -> str:
    """`why` as a person reads it, beside the word for how the run stands. In JSON it keeps the value it always had."""
    words = why.removeprefix(f"{status}: ")
    if status == "failed":
        # The word beside it is `quarantined`, or `in doubt` where that comes first.
        words = words.removeprefix("quarantine: ").replace("; failed: quarantine: ", "; quarantined: ")
    if status == "in_doubt" and _SETTLES in words:
        words = words.replace("in doubt: ", "no outcome: ", 1)  # the word beside it is `unsettled`
    return without_class(in_words(words))


# -- what it did -------------------------------------------------------------------------------------------------


class _Did(msgspec.Struct):
    """The sums over the events since a time."""

    beats: int = 0
    attempts: int = 0
    spent: Usage = Usage()
    saves: set[str] = msgspec.field(default_factory=set)


def _did(store: Store, state: RunState, since: datetime) -> _Did:
    did = _Did()
    for event in _backwards(store, state):
        if event.at < since:
            break
        match event:
            case ev.BeatDone():
                did.beats += 1
                did.spent = did.spent.plus(event.spent) if event.spent else did.spent
                did.saves |= {event.save} - {""}
            case ev.AttemptStarted():
                did.attempts += 1
            case ev.SaveMade():
                did.saves.add(event.commit)
            case ev.Decided(usage=usage) if usage:
                did.spent = did.spent.plus(usage)
            case ev.SpendSettled() if event.source != ev.INSIDE:
                did.spent = did.spent.plus(event.usage)
            case ev.AttemptEnded(spent=spent) if (
                spent
            ):  # the beat in flight; of a killed one, what was set aside for it
                did.spent = did.spent.plus(spent)
            case _:
                pass
    return did


def _backwards(store: Store, state: RunState) -> Iterator[ev.AnyEvent]:
    """The events of a run, newest first, read no further than they are wanted."""
    end = state.seq
    while end > 0:
        start = max(0, end - WINDOW_EVENTS)
        page = store.read(state.run, after=start, limit=end - start).events
        yield from (item.event for item in reversed(page))
        end = start
