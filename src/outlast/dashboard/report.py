"""The morning page: what became of each run since a time, why it stopped, and what to type where it needs a person."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from outlast import settings
from outlast.core import budget as budgets, events as ev, wakeups
from outlast.core.state import RunState, Status
from outlast.core.values import Usage
from outlast.errors import UsageError
from outlast.inspect import find, standing
from outlast.inspect.standing import Word, is_other_limit, with_children
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.control import standing as control_standing

Kind = Literal["needs you", "stopped", "running", "done"]
KINDS: tuple[Kind, ...] = ("needs you", "stopped", "running", "done")
WINDOW_EVENTS = 2_000
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
# Stopped for one of these, nothing wakes it, and the same again would stop it again.
_NEED_A_PERSON: tuple[ev.Cause, ...] = ("budget", "disk", "stall", "quarantine")


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Beats, saves and what was spent are those since the page's time; `command` is what to type next."""

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
    return summed(since, now, [_row(store, summary, since, now) for summary in met])


def summed(since: datetime, now: datetime, rows: list[ReportRow]) -> Page:
    """A page of these rows, with its sums."""
    ordered = sorted(rows, key=lambda row: KINDS.index(row.what))
    return Page(
        since=since, until=now, tokens=sum(row.tokens for row in rows),
        cost_microusd=sum(row.cost_microusd for row in rows), saves=sum(row.saves for row in rows),
        runs=tuple(ordered),
    )  # fmt: skip


def _row(store: Store, summary: Summary, since: datetime, now: datetime) -> ReportRow:
    state = summary.state
    shown = state.status if summary.problem else find.shown_status(store, state, summary.run)
    what, why, command = judged(find.children_in(store), state, shown, now)
    if summary.problem:
        what, why, command = "needs you", f"cannot be read here: {summary.problem}", None
    did = _Did() if summary.problem else _did(store, state, since)
    return ReportRow(
        run=summary.run, task=summary.task, project=summary.project, goal=state.title, what=what, status=shown,
        cause=state.cause, why=why, command=command, beats=state.beats, beats_since=did.beats,
        attempts_since=did.attempts, tokens=did.spent.tokens, cost_microusd=did.spent.cost_microusd,
        estimated=did.spent.estimated, saves=len(did.saves), last_save=state.last_save or None,
        updated_at=state.updated_at,
        standing=None if summary.problem else control_standing.of(store, summary, shown, now).word,
    )  # fmt: skip


# -- what it needs -----------------------------------------------------------------------------------------------


def judged(
    children: find.Children, state: RunState, shown: Status, now: datetime
) -> tuple[Kind, str, str | None]:
    """Under which heading a run comes, why it is there, and what to type."""
    if shown in ("done", "handed_off"):
        return "done", "handed off to another store" if shown == "handed_off" else "", None
    if shown == "running":
        return "running", state.stage, None
    why = f"{state.cause}: {state.evidence}" if state.cause else state.evidence
    if shown == "cancelled":
        return "stopped", f"cancelled: {state.evidence}", None
    wake, command = wakeups.judge(state, shown, now), standing.go_on_command(state, now, children)
    if shown == "in_doubt" and not wakeups.needs_no_person(state):
        return "needs you", *_doubts(children, state)
    if shown == "in_doubt":
        return (
            "stopped",
            f"{_doubts(children, state)[0]}; the next attempt settles it",
            command,
        )
    if shown == "failed" or (shown == "parked" and state.parked_until is None):
        return "needs you", f"{shown}: {why}", command
    if shown == "parked":
        return "stopped", f"{wake.why}: {why}", command
    if shown == "interrupted" and state.cause == "budget" and not is_other_limit(state.evidence):
        return *_out_of_budget(children, state, why, budgets.Live(now)), command
    if shown == "interrupted" and state.cause in _NEED_A_PERSON:
        return "needs you", why, command
    return "stopped", f"{shown}: {why}" if why else wake.why, command


def _out_of_budget(
    children: find.Children, state: RunState, why: str, live: budgets.Live
) -> tuple[Kind, str]:
    """A run that met its budget: what it met then may have been raised since, or be a moment or a window that has passed."""
    head = with_children(state, children)
    if budgets.is_spent(head, live):
        return "needs you", why
    nearest = max(budgets.lines(head, live), key=lambda line: line.share, default=None)
    left = f": {nearest.rest()}" if nearest is not None else ""
    return "stopped", f"its budget was spent, and there is some again{left}"


def _doubts(children: find.Children, state: RunState) -> tuple[str, str]:
    """What is in doubt, and how the first of it is settled. Not to be pasted as it is: a person looks first."""
    doubts = find.doubts_among(children, state)
    found = [item for item in doubts if not wakeups.next_attempt_settles(item[1])] or doubts
    names = [f"{effect.id} {effect.name}" for _, effect in found]
    told = f"in doubt: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
    return told, standing.settle_command(children, state)


def why_words(why: str, status: Status) -> str:
    """`why` as a person reads it, beside the word for how the run stands. In JSON it keeps the value it always had."""
    told = why.removeprefix(f"{status}: ") if status in ("interrupted", "paused") else why
    return wakeups.in_words(told)


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
            case ev.SpendSettled():
                did.spent = did.spent.plus(event.usage)
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
