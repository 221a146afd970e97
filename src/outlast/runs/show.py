"""Everything about a run as one document, joined from head and journal. Field names are a contract: only added to.

`full` reads the whole journal; `glance` reads the head and as many of the last beats as are wanted.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from outlast.core import budget as budgets
from outlast.core import events as ev
from outlast.core import plan as plans
from outlast.core import state as st
from outlast.core.replay import EffectRecord
from outlast.core.values import (
    Allowance,
    ForkPoint,
    MemoryRef,
    Parent,
    Payload,
    SessionMark,
    Usage,
)
from outlast.errors import StoreCorrupt
from outlast.runs import endings, find, gather
from outlast.store.protocol import Summary, Where
from outlast.store.sqlite import SqliteStore

BLOB_SHOWN_MAX_BYTES = 1 << 20
WINDOW_EVENTS = 2_000

EffectWord = Literal["confirmed", "failed", "in_doubt", "given_up", "open"]
StepWord = Literal["done", "next", "to_do"]


class PlanStep(msgspec.Struct, frozen=True):
    """A step of the plan and how far it is."""

    name: str
    state: StepWord
    steps: tuple["PlanStep", ...] = ()


class Completed(msgspec.Struct, frozen=True):
    """A beat that is done."""

    beat: int
    step: str
    result: msgspec.Raw
    evidence: msgspec.Raw
    at: datetime


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect from its intent to its outcome. `settled_by` is empty where its own outcome ended it."""

    id: str
    key: str
    name: str
    state: EffectWord
    policy: str
    args: msgspec.Raw
    result: msgspec.Raw
    evidence: str
    intended_at: datetime
    settled_by: str
    attempts: int
    beat: int


class Spent(msgspec.Struct, frozen=True):
    """What the run has cost so far."""

    tokens: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_microusd: int
    estimated: bool
    beats: int
    time_ms: int = 0
    subscription: bool = False
    unpriced: bool = False


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits (null where there is none), what is spent, and what is left."""

    tokens: int | None = None
    cost_microusd: int | None = None
    time_s: int | None = None
    beats: int | None = None
    window_pct: int | None = None
    until: datetime | None = None
    reserve_pct: int = budgets.RESERVE_PCT
    spent: Spent
    left: budgets.Left


class Save(msgspec.Struct, frozen=True):
    """A save of the workspace."""

    commit: str
    kind: str
    beat: int
    at: datetime


class AttemptShown(msgspec.Struct, frozen=True, kw_only=True):
    """One process that worked on the run."""

    epoch: int
    host: str
    pid: int
    started_at: datetime
    ended_at: datetime | None = None
    status: str | None = None
    cause: str | None = None
    evidence: str = ""
    exit_code: int | None = None
    version: str = ""
    code: str = ""
    command: tuple[str, ...] = ()


class Child(msgspec.Struct, frozen=True):
    """A child run of a beat."""

    run: str
    task: str
    beat: int
    status: st.Status


class HolderShown(msgspec.Struct, frozen=True):
    """The living process that holds the run."""

    host: str
    pid: int
    since: datetime


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A run, whole."""

    run: str
    task: str
    project: str
    generation: int
    status: st.Status
    cause: ev.Cause | None
    evidence: str
    goal: str
    checks: tuple[str, ...]
    invariants: tuple[str, ...]
    plan: tuple[PlanStep, ...] | None
    plan_total: int | None
    cursor: ev.Path
    beats: int
    completed: tuple[Completed, ...]
    effects: tuple[Effect, ...]
    memory: tuple[MemoryRef, ...]
    budget: Budget
    saves: tuple[Save, ...]
    session: SessionMark | None
    attempts: tuple[AttemptShown, ...]
    children: tuple[Child, ...]
    parent: Parent | None
    fork: ForkPoint | None
    workspace: str
    holder: HolderShown | None
    stage: str
    parked_until: datetime | None
    created_at: datetime | None
    updated_at: datetime | None


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run: str
    task: str
    project: str
    generation: int
    status: st.Status
    cause: ev.Cause | None
    goal: str
    beats: int
    plan_total: int | None
    in_doubt: int
    tokens_spent: int
    created_at: datetime | None
    updated_at: datetime | None
    parked_until: datetime | None = None


def full(store: SqliteStore, summary: Summary) -> Shown:
    """The whole run: every completed beat, every effect, every save."""
    ends = list(gather.beats_done(store, summary.run))
    completed = [_completed(store, event) for _, event in ends]
    saves = [Save(event.save, "beat", event.beat, event.at) for _, event in ends if event.save]
    return _shown(store, summary, completed, effects(store, summary), saves)


def glance(store: SqliteStore, summary: Summary, *, last: int) -> Shown:
    """The run with its `last` completed beats, and of its effects only those in doubt or open."""
    ends = last_beats(store, summary.state, last)
    completed = [_completed(store, event) for event in ends]
    saves = [Save(event.save, "beat", event.beat, event.at) for event in ends if event.save]
    return _shown(store, summary, completed, open_effects(store, summary), saves)


def listed(store: SqliteStore, summary: Summary) -> Listed:
    """One line of a list."""
    state = summary.state
    status = find.shown_status(store, state, summary.root)
    cause, _ = _why(state, status)
    return Listed(
        run=summary.run, task=summary.task, project=summary.project, generation=summary.generation, status=status,
        cause=cause, goal=state.title, beats=state.beats, plan_total=state.plan_total,
        in_doubt=len(find.doubts(store, state)) if status == "in_doubt" else 0,
        tokens_spent=state.spent.tokens, created_at=state.created_at, updated_at=state.updated_at,
        parked_until=state.parked_until,
    )  # fmt: skip


def _shown(
    store: SqliteStore,
    summary: Summary,
    completed: list[Completed],
    listed_effects: list[Effect],
    saves: list[Save],
) -> Shown:
    state = summary.state
    status = find.shown_status(store, state, summary.root)
    cause, evidence = _why(state, status)
    contract = gather.contract(store, state)
    steps = gather.plan_of(store, state) if state.plan_seq else None
    return Shown(
        run=state.run, task=state.task, project=state.project, generation=summary.generation, status=status, cause=cause,
        evidence=evidence, goal=contract.goal, checks=contract.checks, invariants=contract.invariants,
        plan=None if steps is None else _plan(steps, state), plan_total=state.plan_total, cursor=state.cursor,
        beats=state.beats, completed=tuple(completed), effects=tuple(listed_effects), memory=state.memory,
        budget=_budget(state), saves=tuple(sorted([*saves, *_saves(store, state)], key=lambda save: save.at)),
        session=state.session, attempts=tuple(_attempts(store, state, status)), children=_children(store, summary),
        parent=state.parent, fork=state.fork, workspace=state.workspace, holder=_holder(store, summary),
        stage=state.stage, parked_until=state.parked_until, created_at=state.created_at, updated_at=state.updated_at,
    )  # fmt: skip


def _why(state: st.RunState, status: st.Status) -> tuple[ev.Cause | None, str]:
    """The cause; for an attempt that could not record its own end, the one its successor will record."""
    if state.attempt is not None and status in ("interrupted", "in_doubt"):
        lost = endings.lost(state, state.attempt.started_at)
        return lost.cause, lost.evidence
    return state.cause, state.evidence


# -- payloads ----------------------------------------------------------------------------------------------------------


def raw(store: SqliteStore, payload: Payload | None) -> msgspec.Raw:
    """A recorded value as JSON. One that is very large or lost is shown by its name and size."""
    if payload is None:
        return msgspec.Raw(b"null")
    if not payload.blob:
        return payload.v
    if payload.size <= BLOB_SHOWN_MAX_BYTES:
        try:
            return msgspec.Raw(store.blobs.get(payload.blob))
        except StoreCorrupt:
            return msgspec.Raw(
                msgspec.json.encode({"blob": payload.blob, "size": payload.size, "lost": True})
            )
    return msgspec.Raw(msgspec.json.encode({"blob": payload.blob, "size": payload.size}))


def _completed(store: SqliteStore, event: ev.BeatDone) -> Completed:
    return Completed(event.beat, event.step, raw(store, event.result), raw(store, event.evidence), event.at)


def last_beats(store: SqliteStore, state: st.RunState, count: int) -> list[ev.BeatDone]:
    """The last completed beats, oldest first, read from the end so that a long run costs no more."""
    wanted = min(count, state.beats)
    found: list[ev.BeatDone] = []
    before = state.seq
    while wanted > len(found) and before > 0:
        after = max(0, before - WINDOW_EVENTS)
        page = store.read(state.run, after=after, limit=before - after).events
        found = [item.event for item in page if isinstance(item.event, ev.BeatDone)] + found
        before = after
    return found[len(found) - wanted :] if wanted else []


# -- effects -----------------------------------------------------------------------------------------------------------


class _Seen:
    """One effect while its events are read, and where in the journal it was intended last."""

    __slots__ = ("intended_at", "record", "seq", "settled_by")

    def __init__(self, intent: ev.EffectIntended, seq: int) -> None:
        self.record = EffectRecord(intent)
        self.seq = seq
        self.intended_at = intent.at
        self.settled_by = ""


def effects(store: SqliteStore, summary: Summary) -> list[Effect]:
    """All effects of a run in the order of their first intents."""
    return _effects_after(store, summary, 0)


def open_effects(store: SqliteStore, summary: Summary) -> list[Effect]:
    """The effects of the beat in flight."""
    opened = summary.state.open_beat
    return [] if opened is None else _effects_after(store, summary, opened.seq - 1)


def _effects_after(store: SqliteStore, summary: Summary, after: int) -> list[Effect]:
    """Every effect intended after a place in the journal."""
    seen: dict[tuple[int, int], _Seen] = {}
    while page := store.read(summary.run, after=after, tags=gather.EFFECT_TAGS).events:
        for item in page:
            _take(seen, item.event, item.seq)
        after = page[-1].seq
    attempt = summary.state.attempt
    live_since = attempt.seq if attempt is not None and store.holder_lives(summary.root) else None
    return [_effect(store, each, live_since) for each in seen.values()]


def _take(seen: "dict[tuple[int, int], _Seen]", event: ev.AnyEvent, seq: int) -> None:
    assert isinstance(
        event, ev.EffectIntended | ev.EffectConfirmed | ev.EffectFailed | ev.EffectInDoubt | ev.EffectSettled
    ), "only events of effects were asked for"
    known = seen.get((event.beat, event.n))
    if known is None:
        if isinstance(event, ev.EffectIntended):
            seen[event.beat, event.n] = _Seen(event, seq)
        return
    known.record.take(event)
    if isinstance(event, ev.EffectIntended):
        known.seq = seq
    if isinstance(event, ev.EffectSettled):
        known.settled_by = event.by
    elif not isinstance(event, ev.EffectInDoubt):
        known.settled_by = ""


def _effect(store: SqliteStore, seen: _Seen, live_since: int | None) -> Effect:
    record, intent = seen.record, seen.record.intent
    return Effect(
        id=record.id, key=intent.key, name=intent.name, state=_word(seen, live_since), policy=intent.policy,
        args=raw(store, intent.args), result=raw(store, record.result), evidence=record.evidence,
        intended_at=seen.intended_at, settled_by=seen.settled_by, attempts=intent.attempt, beat=intent.beat,
    )  # fmt: skip


def _word(seen: _Seen, live_since: int | None) -> EffectWord:
    """An intent without an outcome is open while the attempt that wrote it lives, and in doubt when it does not."""
    match seen.record.state:
        case "intended":
            return "open" if live_since is not None and seen.seq > live_since else "in_doubt"
        case "did_not":
            return "failed"
        case "in_doubt" | "failed" | "confirmed" | "given_up":
            return seen.record.state


# -- the other parts ---------------------------------------------------------------------------------------------------


def _plan(steps: Iterable[plans.Step], state: st.RunState, path: ev.Path = ()) -> tuple[PlanStep, ...]:
    cursor = state.cursor or (0,) * (plans.DEPTH_MAX + 1)  # no cursor yet: the first leaf, however deep
    shown = []
    for index, step in enumerate(steps):
        here = (*path, index)
        word: StepWord = "to_do"
        if state.over or here < cursor[: len(here)]:
            word = "done"
        elif here == cursor[: len(here)]:
            word = "next"
        shown.append(PlanStep(step.name, word, _plan(step.steps, state, here)))
    return tuple(shown)


def _budget(state: st.RunState) -> Budget:
    limits = msgspec.structs.asdict(state.budget or Allowance())
    limits["reserve_pct"] = (
        limits["reserve_pct"] if limits["reserve_pct"] is not None else budgets.RESERVE_PCT
    )
    return Budget(**limits, spent=spent_of(state.spent, state.beats), left=budgets.left(state.budget, state))


def spent_of(usage: Usage, beats: int) -> Spent:
    """Usage as it is shown."""
    return Spent(
        usage.tokens, usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost_microusd,
        usage.estimated, beats, usage.time_ms, usage.subscription, usage.unpriced,
    )  # fmt: skip


def _saves(store: SqliteStore, state: st.RunState) -> list[Save]:
    found: list[Save] = []
    after = 0
    while page := store.read(state.run, after=after, tags=("save_made",)).events:
        events = [item.event for item in page]
        found += [Save(e.commit, e.kind, e.beat, e.at) for e in events if isinstance(e, ev.SaveMade)]
        after = page[-1].seq
    return found


def _attempts(store: SqliteStore, state: st.RunState, status: st.Status) -> list[AttemptShown]:
    found: list[AttemptShown] = []
    after = 0
    while page := store.read(state.run, after=after, tags=("attempt_started", "attempt_ended")).events:
        for item in page:
            _attempt(found, item.event)
        after = page[-1].seq
    if found and found[-1].ended_at is None and status in ("interrupted", "in_doubt"):
        cause, evidence = _why(state, status)
        found[-1] = msgspec.structs.replace(found[-1], cause=cause, evidence=evidence)
    return found


def _attempt(found: list[AttemptShown], event: ev.AnyEvent) -> None:
    if isinstance(event, ev.AttemptStarted):
        found.append(
            AttemptShown(
                epoch=event.epoch,
                host=event.host,
                pid=event.pid,
                started_at=event.at,
                version=event.version,
                code=event.code,
                command=event.command,
            )
        )
    elif isinstance(event, ev.AttemptEnded) and found and found[-1].ended_at is None:
        found[-1] = msgspec.structs.replace(
            found[-1], ended_at=event.at, status=event.status, cause=event.cause, evidence=event.evidence,
            exit_code=event.exit_code,
        )  # fmt: skip


def _children(store: SqliteStore, summary: Summary) -> tuple[Child, ...]:
    found = [
        Child(child.run, child.task, child.parent_beat, find.shown_status(store, child.state, summary.root))
        for child in find.every(store, Where(parent=summary.run))
    ]
    return tuple(reversed(found))


def _holder(store: SqliteStore, summary: Summary) -> HolderShown | None:
    holder = summary.holder
    if holder is None or not store.holder_lives(summary.root):
        return None
    return HolderShown(holder.host, holder.pid, holder.since)
