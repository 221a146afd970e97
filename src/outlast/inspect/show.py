"""Everything about a run as one document, joined from head and journal. Field names are a contract: only added to.

`full` reads the whole journal; `glance` reads the head and as many of the last beats as are wanted."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from outlast.core import budget as budgets, events as ev, plan as plans, secrets, state as st, text as texts
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
from outlast.core.verdict import Need, has_ended_in_doubt
from outlast.errors import StoreCorrupt, StoreTooNew
from outlast.inspect import find
from outlast.inspect.inbox import PendingRequest
from outlast.inspect.questions import WaitsFor, waits_for
from outlast.inspect.runs_inside import RunInside, runs_inside
from outlast.runs import attempts as runs_attempts, reader
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.workspace import worktree_marker
from outlast.workspace.worktree_marker import WorktreePlace

BLOB_SHOWN_MAX_BYTES = 1 << 20
LISTED_MAX_BYTES = 16 << 10  # the largest value shown in a list on a page
BEGUN_MAX_BYTES = 256 << 10  # the largest value whose beginning is shown there
BEGINS_CHARS = 2_000

EffectWord = Literal["confirmed", "failed", "in_doubt", "given_up", "open"]
StepWord = Literal["done", "next", "to_do"]


class PlanStep(msgspec.Struct, frozen=True):
    """A step of the plan, and how far it is."""

    name: str
    state: StepWord
    steps: tuple["PlanStep", ...] = ()


class Completed(msgspec.Struct, frozen=True):
    """A completed beat."""

    beat: int
    step: str
    result: msgspec.Raw
    evidence: msgspec.Raw
    at: datetime


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect from its intent to its outcome. `settled_by` is empty if its own outcome ended it."""

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


def act_words(effect: Effect) -> str:
    """An effect's act: its name and arguments; of an agent's call, the text that it runs."""
    return texts.act_words(effect.name, bytes(effect.args))


class Spent(msgspec.Struct, frozen=True):
    """The cost of the run so far."""

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
    """Limits (null: none), spending and rest."""

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
    """A child run of a beat. `standing` as in `Shown`."""

    run: str
    task: str
    beat: int
    status: st.Status
    standing: str | None = None


class HolderShown(msgspec.Struct, frozen=True):
    """The living process that holds the run."""

    host: str
    pid: int
    since: datetime


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A run, whole. `standing` is filled in by those who can look at its supervisor."""

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
    standing: str | None = None
    needs: Need | None = None
    asks: str = (
        ""  # options of `outlast budget` that were asked for from inside the run, for a person to grant
    )
    pending: tuple[PendingRequest, ...] = ()  # filled in by those who have the words for it
    within: str = ""
    inside: tuple[RunInside, ...] = ()
    worktree: WorktreePlace | None = None
    waits_for: tuple[WaitsFor, ...] = ()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list. `problem`: why it cannot be read; then the rest is as of its last readable event."""

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
    problem: str = ""
    standing: str | None = None
    needs: Need | None = None
    why: str | None = None
    asks: str = ""
    pending: tuple[PendingRequest, ...] = ()
    worktree: WorktreePlace | None = None
    waits_for: tuple[WaitsFor, ...] = ()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a glance shows at most: the last attempts, saves and children, steps around the cursor. 0: all."""

    attempts: int = 0
    saves: int = 0
    children: int = 0
    steps: int = 0
    value_bytes: int = BLOB_SHOWN_MAX_BYTES


def full(store: Store, summary: Summary) -> Shown:
    """The whole run: every completed beat, every effect, every save."""
    ends = list(reader.beats_done(store, summary.run))
    done = [completed(store, event, is_masked=masks(summary.state)) for _, event in ends]
    saves = [Save(event.save, "beat", event.beat, event.at) for _, event in ends if event.save]
    return _shown(store, summary, done, effects(store, summary), saves)


def glance(
    store: Store,
    summary: Summary,
    *,
    last: int,
    bounds: Bounds = Bounds(),  # noqa: B008  # frozen
    statuses: Mapping[str, st.Status] | None = None,
    effects: list[Effect] | None = None,
) -> Shown:
    """The run with its `last` completed beats, and with only the effects of the beat in flight, or those given.

    `statuses` are those that the caller knows, by run; the store is asked for the others.
    """
    ends = last_beats(store, summary.state, last)
    is_masked = masks(summary.state)
    done = [completed(store, event, bounds.value_bytes, is_masked=is_masked) for event in ends]
    saves = [Save(event.save, "beat", event.beat, event.at) for event in ends if event.save]
    shown = open_effects(store, summary) if effects is None else effects
    return _shown(store, summary, done, shown, saves, bounds, statuses)


def listed(store: Store, summary: Summary) -> Listed:
    """One line of a list."""
    state, problem = summary.state, summary.problem
    status, in_doubt = state.status, 0
    try:
        status = find.shown_status(store, state, summary.root)
        in_doubt = find.doubtful(find.children_in(store), state, status)
    except StoreTooNew as error:
        problem = problem or f"cannot read a run below it: {error.hint}"
    cause, _ = why(state, status)
    return Listed(
        run=summary.run, task=summary.task, project=summary.project, generation=summary.generation, status=status,
        cause=cause, goal=state.title, beats=state.beats, plan_total=state.plan_total, in_doubt=in_doubt,
        tokens_spent=state.spent.tokens, created_at=state.created_at, updated_at=state.updated_at,
        parked_until=state.parked_until, problem=problem, asks=state.asks, waits_for=waits_for(state),
        worktree=worktree_marker.place_of(state.workspace),
    )  # fmt: skip


def _shown(
    store: Store,
    summary: Summary,
    done: list[Completed],
    listed_effects: list[Effect],
    saves: list[Save],
    bounds: Bounds = Bounds(),  # noqa: B008  # frozen
    statuses: Mapping[str, st.Status] | None = None,
) -> Shown:
    state, known = summary.state, statuses or {}
    status = _status(store, summary, known)
    cause, evidence = why(state, status)
    contract = reader.contract(store, state)
    steps = reader.plan_of(store, state) if state.plan_seq else None
    return Shown(
        run=state.run, task=state.task, project=state.project, generation=summary.generation, status=status, cause=cause,
        evidence=evidence, goal=contract.goal, checks=contract.checks, invariants=contract.invariants,
        plan=None if steps is None else _plan(steps, state, bounds.steps), plan_total=state.plan_total, cursor=state.cursor,
        beats=state.beats, completed=tuple(done), effects=tuple(listed_effects), memory=state.memory,
        budget=_budget(state), saves=_latest([*saves, *_saves(store, state, bounds.saves)], bounds.saves),
        session=state.session, attempts=tuple(attempts(store, state, status, last=bounds.attempts)),
        children=_children(store, summary, known, bounds.children),
        parent=state.parent, fork=state.fork, workspace=state.workspace, holder=_holder(store, summary),
        stage=state.stage, parked_until=state.parked_until, created_at=state.created_at, updated_at=state.updated_at,
        asks=state.asks, within=state.within, waits_for=waits_for(state),
        inside=runs_inside(store, state.run, last=bounds.children, statuses=known),
        worktree=worktree_marker.place_of(state.workspace),
    )  # fmt: skip


def _status(store: Store, summary: Summary, known: Mapping[str, st.Status]) -> st.Status:
    found = known.get(summary.run)
    return found if found is not None else find.shown_status(store, summary.state, summary.root)


def why(state: st.RunState, status: st.Status) -> tuple[ev.Cause | None, str]:
    """The cause; for an attempt that could not record its own end, the one its successor will record."""
    if state.attempt is not None and status in ("interrupted", "in_doubt"):
        lost = runs_attempts.lost(state, state.attempt.started_at)
        return lost.cause, lost.evidence
    return cause_of(state), state.evidence


def cause_of(state: st.RunState) -> ev.Cause | None:
    """The recorded cause. A command that ended well, and left an effect in doubt, did not crash: it has none."""
    return None if state.supervised and has_ended_in_doubt(state) else state.cause


# -- payloads ----------------------------------------------------------------------------------------------------------


def raw(store: Store, payload: Payload | None, bytes_max: int = BLOB_SHOWN_MAX_BYTES) -> msgspec.Raw:
    """A recorded value as JSON. One that is larger than `bytes_max`, or lost, is shown by its name and size."""
    if payload is None:
        return msgspec.Raw(b"null")
    if not payload.blob:
        return payload.v
    stub: dict[str, object] = {"blob": payload.blob, "size": payload.size}
    cut = bytes_max < BLOB_SHOWN_MAX_BYTES
    if payload.size <= (BEGUN_MAX_BYTES if cut else bytes_max):
        try:
            found = store.blobs.get(payload.blob)
        except StoreCorrupt:
            return msgspec.Raw(msgspec.json.encode(stub | {"lost": True}))
        if payload.size <= bytes_max:
            return msgspec.Raw(found)
        stub["begins"] = found[: 4 * BEGINS_CHARS].decode(errors="replace")[:BEGINS_CHARS]
    return msgspec.Raw(msgspec.json.encode(stub | {"cut": True} if cut else stub))


def masks(state: st.RunState) -> bool:
    """Whether the run's records are the text of an agent or a command, and not a program's own values."""
    return state.supervised or state.session is not None


def masked(value: msgspec.Raw) -> msgspec.Raw:
    """A recorded value with secrets masked, as an agent's values are shown. A program's own values are not masked."""
    return msgspec.Raw(secrets.mask_json(bytes(value))[0])


def completed(
    store: Store, event: ev.BeatDone, bytes_max: int = BLOB_SHOWN_MAX_BYTES, *, is_masked: bool = False
) -> Completed:
    """A completed beat with its result, if that is not larger than `bytes_max`. `is_masked`: by `masks`."""
    result, evidence = (raw(store, payload, bytes_max) for payload in (event.result, event.evidence))
    if is_masked:
        result, evidence = masked(result), masked(evidence)
    return Completed(event.beat, event.step, result, evidence, event.at)


def last_beats(store: Store, state: st.RunState, count: int) -> list[ev.BeatDone]:
    """The last completed beats, oldest first, read from the end so that a long run costs no more."""
    wanted = min(count, state.beats)
    ends = store.beat_ends(state.run, before=state.seq + 1, limit=wanted) if wanted else ()
    return [item.event for item in reversed(ends) if isinstance(item.event, ev.BeatDone)]


# -- effects -----------------------------------------------------------------------------------------------------------


class EffectEvents:
    """One effect while its events are read, and where in the journal its last intent is."""

    __slots__ = ("intended_at", "record", "seq", "settled_by")

    def __init__(self, intent: ev.EffectIntended, seq: int) -> None:
        self.record = EffectRecord(intent)
        self.seq = seq
        self.intended_at = intent.at
        self.settled_by = ""


def effects(store: Store, summary: Summary, after: int = 0) -> list[Effect]:
    """All effects of a run, or those intended after a place in its journal, in the order of their first intents."""
    return _effects_after(store, summary, after)


def open_effects(store: Store, summary: Summary) -> list[Effect]:
    """The effects of the beat in flight."""
    opened = summary.state.open_beat
    return [] if opened is None else _effects_after(store, summary, opened.seq - 1)


def _effects_after(store: Store, summary: Summary, after: int) -> list[Effect]:
    """Every effect intended after a place in the journal."""
    seen: dict[tuple[int, int], EffectEvents] = {}
    while page := store.read(summary.run, after=after, tags=reader.EFFECT_TAGS).events:
        for item in page:
            take(seen, item.event, item.seq)
        after = page[-1].seq
    live_since = lives_since(store, summary)
    return [shown_effect(store, each, live_since) for each in seen.values()]


def lives_since(store: Store, summary: Summary) -> int | None:
    """Where in the journal the living attempt began; None if none lives."""
    attempt = summary.state.attempt
    return attempt.seq if attempt is not None and store.holder_lives(summary.root) else None


def take(seen: "dict[tuple[int, int], EffectEvents]", event: ev.AnyEvent, seq: int) -> None:
    """Add the next event of an effect. Effects whose intent was not read are skipped."""
    assert isinstance(
        event, ev.EffectIntended | ev.EffectConfirmed | ev.EffectFailed | ev.EffectInDoubt | ev.EffectSettled
    ), "only events of effects were asked for"
    known = seen.get((event.beat, event.n))
    if known is None:
        if isinstance(event, ev.EffectIntended):
            seen[event.beat, event.n] = EffectEvents(event, seq)
        return
    known.record.take(event)
    if isinstance(event, ev.EffectIntended):
        known.seq = seq
    if isinstance(event, ev.EffectSettled):
        known.settled_by = event.by
    elif not isinstance(event, ev.EffectInDoubt):
        known.settled_by = ""


def shown_effect(
    store: Store, seen: EffectEvents, live_since: int | None, bytes_max: int = BLOB_SHOWN_MAX_BYTES
) -> Effect:
    """An effect as far as its events were read."""
    record, intent = seen.record, seen.record.intent
    args, result = raw(store, intent.args, bytes_max), raw(store, record.result, bytes_max)
    evidence = record.evidence
    if _is_of_agent(intent, args):
        args, result, evidence = masked(args), masked(result), secrets.mask(evidence)[0]
    return Effect(
        id=record.id, key=intent.key, name=intent.name, state=_word(seen, live_since), policy=intent.policy,
        args=args, result=result, evidence=evidence,
        intended_at=seen.intended_at, settled_by=seen.settled_by, attempts=intent.attempt, beat=intent.beat,
    )  # fmt: skip


_CALL = re.compile(
    rb'\{"tool":|.{0,200}"begins":"\{\\"tool\\":', re.DOTALL
)  # how the record of a call begins, whole or cut


def _is_of_agent(intent: ev.EffectIntended, args: msgspec.Raw) -> bool:
    """Whether it is a call of an agent, whose text may hold keys; not the act of a program or a script."""
    return intent.policy == "tell" or _CALL.match(bytes(args)) is not None


def _word(seen: EffectEvents, live_since: int | None) -> EffectWord:
    """An intent without an outcome is open while the attempt that wrote it lives, else in doubt."""
    match seen.record.state:
        case "intended":
            return "open" if live_since is not None and seen.seq > live_since else "in_doubt"
        case "did_not":
            return "failed"
        case "in_doubt" | "failed" | "confirmed" | "given_up":
            return seen.record.state


# -- the other parts ---------------------------------------------------------------------------------------------------


def _plan(
    steps: Sequence[plans.Step], state: st.RunState, around: int, path: ev.Path = ()
) -> tuple[PlanStep, ...]:
    """Steps with how far they are; with `around`, only those near the cursor on each level, the others counted."""
    cursor = state.cursor or (0,) * (plans.DEPTH_MAX + 1)  # no cursor yet: the first leaf, however deep
    depth = len(path)
    at = cursor[depth] if depth < len(cursor) and cursor[:depth] == path and not state.over else 0
    first, last = (max(0, at - around), at + around) if around else (0, len(steps))
    shown = [PlanStep(f"(… {first:,} before)", "done")] if first else []
    for index in range(first, min(last, len(steps))):
        here, step = (*path, index), steps[index]
        word: StepWord = "to_do"
        if state.over or here < cursor[: len(here)]:
            word = "done"
        elif here == cursor[: len(here)]:
            word = "next"
        below = step.steps if not around or word == "next" or len(steps) <= around else ()
        shown.append(PlanStep(step.name, word, _plan(below, state, around, here)))
    if last < len(steps):
        shown.append(PlanStep(f"(… {len(steps) - last:,} after)", "done" if state.over else "to_do"))
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


def _saves(store: Store, state: st.RunState, last: int) -> list[Save]:
    made = (event for event in _events(store, state, ("save_made",), last) if isinstance(event, ev.SaveMade))
    return [Save(event.commit, event.kind, event.beat, event.at) for event in made]


def _latest(saves: list[Save], last: int) -> tuple[Save, ...]:
    return tuple(sorted(saves, key=lambda save: save.at)[-last:])


def _events(store: Store, state: st.RunState, tags: tuple[str, ...], last: int = 0) -> list[ev.AnyEvent]:
    """All events of these kinds, or the last ones, in order."""
    if last:
        page = store.read(state.run, after=0, tags=tags, limit=last, newest=True).events
        return [item.event for item in page]
    found: list[ev.AnyEvent] = []
    after = 0
    while page := store.read(state.run, after=after, tags=tags).events:
        found += [item.event for item in page]
        after = page[-1].seq
    return found


def attempts(store: Store, state: st.RunState, status: st.Status, *, last: int = 0) -> list[AttemptShown]:
    """Every attempt, or the last ones, oldest first. One that was killed has the cause its successor will record."""
    found: list[AttemptShown] = []
    for event in _events(store, state, ("attempt_started", "attempt_ended"), 2 * last):
        _attempt(found, event)
    found = found[-last:]
    if found and found[-1].ended_at is None and status in ("interrupted", "in_doubt"):
        cause, evidence = why(state, status)
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


def _children(
    store: Store, summary: Summary, statuses: Mapping[str, st.Status], last: int
) -> tuple[Child, ...]:
    where = RunFilter(parent=summary.run)
    below = store.list(where, limit=last) if last else find.all_runs(store, where)
    found = [
        Child(child.run, child.task, child.parent_beat, _status(store, child, statuses)) for child in below
    ]
    return tuple(reversed(found))


def _holder(store: Store, summary: Summary) -> HolderShown | None:
    holder = summary.holder
    if holder is None or not store.holder_lives(summary.root):
        return None
    return HolderShown(holder.host, holder.pid, holder.since)
