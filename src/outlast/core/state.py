"""The fold: computes a run's head from its events. `apply` is pure and total over all events.

The head has a size limit: results, closed effects and the plan's body stay in the journal and are read by index."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, assert_never

import msgspec

from outlast import decoders
from outlast.core import events as ev, questions as qs, restarts
from outlast.core.values import (
    Allowance,
    ForkPoint,
    MemoryRef,
    Origin,
    Parent,
    Payload,
    SessionMark,
    Usage,
    Window,
    clip,
)

RECENT_MAX, RECENT_BYTES_MAX = 32, 400
LABEL_BYTES_MAX = 120
EVIDENCE_BYTES_MAX = 600
WRAP_UP = "wrap-up"  # how the level of the wrap-up warning begins
BEAT = "beat"  # the key under which the next beat's cost is set aside
GATEWAY = "gateway"  # the key under which the cost of calls in flight through a gateway is set aside
MEMORY_MAX = 256
MEMORY_BYTES_MAX = 14_336
EFFECTS_OPEN_MAX = 32
WARNED_MAX = 32
RESERVED_MAX = 32
NAMES_MAX, NAME_BYTES_MAX = 8, 600
SNAPSHOT_MAX_BYTES = 65_536

Status = Literal[
    "running", "paused", "interrupted", "in_doubt", "parked", "done", "failed", "cancelled", "handed_off"
]
EffectState = Literal["intended", "in_doubt"]
# Whether somebody has asked to start the run here. `awaited`: it was imported, and nobody has; `asked`: a person has.
Start = Literal["", "awaited", "asked"]
NO_USAGE = Usage()


class OpenEffect(msgspec.Struct, frozen=True, omit_defaults=True):
    """An effect of the open beat that is not confirmed. `looked`: no probe can tell: one was asked since, or there is none."""

    beat: int
    n: int
    name: str
    key: str
    policy: ev.Policy
    state: EffectState
    at: datetime
    evidence: str = ""
    looked: bool = False

    @property
    def id(self) -> str:
        return f"{self.beat}.{self.n}"


class OpenBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The beat in flight, and where in the journal it begins."""

    beat: int
    seq: int
    step: str = ""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attempt that has started and not ended. `pardoned`: a person resumed the run since, so it no longer counts.

    `owed`: how much of the open beat's cost was recorded when the attempt started.
    """

    epoch: int
    seq: int
    started_at: datetime
    host: str = ""
    pid: int = 0
    boot_id: str = ""
    beats: int = 0
    pardoned: bool = False
    uptime_s: int = 0
    owed: Usage = Usage()


class Recent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completed beat, shortened for overviews and for the agent's context."""

    beat: int
    step: str
    text: str
    evidence: str = ""


class RunState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The head of a run after `seq` events."""

    run: str = ""
    task: str = ""
    project: str = ""
    title: str = ""
    seq: int = 0
    status: Status = "interrupted"
    unsealed: Status = "interrupted"
    cause: ev.Cause | None = None
    evidence: str = ""
    contract_seq: int = 0
    contract_digest: str = ""
    budget: Allowance | None = None
    workspace: str = ""
    origin: Origin | None = None
    parent: Parent | None = None
    fork: ForkPoint | None = None
    plan_seq: int = 0
    plan_total: int | None = None
    cursor: ev.Path = ()
    over: bool = False
    finish_seq: int = 0
    beats: int = 0
    open_beat: OpenBeat | None = None
    effects_open: tuple[OpenEffect, ...] = ()
    effects_total: int = 0
    attempt: Attempt | None = None
    attempts: int = 0
    spent: Usage = Usage()
    open_spent: Usage = Usage()  # the part of `spent` since the last beat ended
    spent_inside: Usage = (
        Usage()
    )  # by runs inside of this one, whose own heads tell it too: only the budget counts it here
    reserved: tuple[tuple[str, Usage], ...] = ()
    window: Window | None = None
    until_since: datetime | None = None  # when the budget's `until` was set
    wrap_beat: int | None = None  # how many beats were done when the agent was asked to wrap up
    memory: tuple[MemoryRef, ...] = ()
    recent: tuple[Recent, ...] = ()
    last_save: str = ""
    save_point: str = ""
    session: SessionMark | None = None
    stage: str = ""
    names: tuple[tuple[str, str], ...] = ()
    supervised: bool = False
    guarded: bool = False  # its last attempt was a plain command under guard
    within: str = ""  # the run that its last attempt was started in
    wanted: bool = False
    start: Start = ""
    start_known: bool = False  # False: an older outlast made this head, which did not tell how it was started
    ended_well: bool = False  # its agent had finished: only effects in doubt kept the run from being done
    past: restarts.Past = restarts.Past()
    parked_until: datetime | None = None
    warned: tuple[str, ...] = ()
    questions: qs.Questions = ()  # open ones, and answers that nobody used yet
    questions_total: int = 0
    waits: tuple[str, ...] = ()  # the questions that it is parked for
    asks: str = ""  # options of `outlast budget` that its own agent asked a person for
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def in_doubt(self) -> tuple[OpenEffect, ...]:
        """Effects with an unknown outcome, according to the journal."""
        return tuple(effect for effect in self.effects_open if effect.state in ("intended", "in_doubt"))

    @property
    def awaits_start(self) -> bool:
        """Whether nobody has started it: a fork, or an archive that was imported here. Nothing wakes such a run."""
        return self.start == "awaited" or (
            self.fork is not None and not self.attempts and self.start != "asked"
        )

    @property
    def blocking(self) -> tuple[OpenEffect, ...]:
        """The effects in doubt that keep a beat from ending: all except an agent's calls (the agent gets a message)."""
        return tuple(effect for effect in self.in_doubt if effect.policy != "tell")


def fold(state: RunState, journal: list[ev.AnyEvent]) -> RunState:
    """Apply many events."""
    for event in journal:
        state = apply(state, event)
    return state


START_TAGS = ("requested", "attempt_started")


def with_start(head: RunState, journal: list[ev.AnyEvent]) -> RunState:
    """A head that an older outlast made, with whether somebody asked to start the run here. `journal`: its events of START_TAGS."""
    start = fold(RunState(fork=head.fork), journal).start
    return msgspec.structs.replace(head, start=start, start_known=True)


def apply(state: RunState, event: ev.AnyEvent) -> RunState:
    """The head after one more event."""
    seq = state.seq + 1
    match event:
        case ev.BeatDone():
            return _beat_done(state, event, seq)
        case ev.Decided():
            used = {"questions": qs.after_use(state.questions, event.question)} if event.question else {}
            return _set(state, event, **used, **(_spent(state, event.usage) if event.usage else {}))
        case ev.BeatBegun():
            return _set(state, event, open_beat=OpenBeat(event.beat, seq, clip(event.step, LABEL_BYTES_MAX)))
        case ev.EffectIntended() | ev.EffectConfirmed() | ev.EffectFailed() | ev.EffectInDoubt() | ev.EffectSettled():  # fmt: skip
            return _effect(state, event)
        case ev.RunOpened() | ev.ContractAmended() | ev.PlanSet() | ev.PlanExtended():
            return _opened(state, event, seq)
        case ev.AttemptStarted() | ev.AttemptEnded() | ev.Finished() | ev.Parked() | ev.Woken() | ev.Requested():  # fmt: skip
            return _course(state, event, seq)
        case ev.QuestionAsked() | ev.QuestionAnswered():
            return _question(state, event)
        case ev.SaveMade() | ev.SessionKnown() | ev.StageSet() | ev.Remembered() | ev.Warned():
            return _noted(state, event)
        case ev.SpendReserved():
            if event.key == GATEWAY:
                return _set(state, event, reserved=_for_calls(state, event.usage))
            reserved = (*state.reserved, (clip(event.key, LABEL_BYTES_MAX), event.usage))
            return _set(state, event, reserved=reserved[-RESERVED_MAX:])
        case ev.SpendSettled():
            rest = tuple(item for item in state.reserved if item[0] != clip(event.key, LABEL_BYTES_MAX))
            if event.source == ev.INSIDE:
                return _set(state, event, spent_inside=state.spent_inside.plus(event.usage))
            return _set(state, event, reserved=rest, **_spent(state, event.usage))
        case _:
            assert_never(event)


def _spent(state: RunState, usage: Usage) -> dict[str, Usage]:
    return {"spent": state.spent.plus(usage), "open_spent": state.open_spent.plus(usage)}


def _reserved(state: RunState, usage: Usage | None) -> tuple[tuple[str, Usage], ...]:
    """The reservations with this amount as the only one for the next beat."""
    others = tuple(item for item in state.reserved if item[0] != BEAT)
    return others if usage is None else ((BEAT, usage), *others)


def _for_calls(state: RunState, usage: Usage) -> tuple[tuple[str, Usage], ...]:
    """The reservations with this amount as the only one for calls in flight."""
    others = tuple(item for item in state.reserved if item[0] != GATEWAY)
    return (*others, (GATEWAY, usage))[-RESERVED_MAX:] if usage.tokens or usage.cost_microusd else others


def is_plain(event: ev.BeatDone) -> bool:
    """Whether a beat's end only moves the cursor and adds a result."""
    return not (
        event.extended or event.finish or event.remembered or event.spent or event.stage or event.session or event.save
        or event.reserved or event.window
    )  # fmt: skip


def fold_plain(state: RunState, ends: Sequence[ev.BeatDone], seq: int) -> RunState:
    """The head at `seq`, after the ends of plain beats only: the same as `fold` gives. The last few ends are enough."""
    last = ends[-1]
    return msgspec.structs.replace(
        state,
        seq=seq,
        updated_at=last.at,
        beats=last.beat,
        cursor=last.cursor,
        over=last.over,
        open_beat=None,
        effects_open=open_after_beat(state.effects_open),
        questions=qs.after_beat(state.questions, last.beat),
        recent=(*state.recent, *map(_recent, ends))[-RECENT_MAX:],
        open_spent=NO_USAGE,
    )


def open_after_beat(effects: tuple[OpenEffect, ...]) -> tuple[OpenEffect, ...]:
    """The effects that stay open after a beat's end: agents' calls in doubt. All others keep the beat from ending."""
    return tuple(effect for effect in effects if effect.policy == "tell") if effects else effects


def _set(state: RunState, event: ev.AnyEvent, **changes: object) -> RunState:
    return msgspec.structs.replace(state, seq=state.seq + 1, updated_at=event.at, **changes)


def _beat_done(state: RunState, event: ev.BeatDone, seq: int) -> RunState:
    changes: dict[str, object] = {}
    if event.extended:
        total = event.beat if state.plan_total is None else state.plan_total
        changes["plan_total"] = total + sum(item.added for item in event.extended)
    if event.finish is not None:
        changes["finish_seq"] = seq
    if event.remembered:
        changes["memory"] = _remember(state.memory, event.remembered)
    if event.spent:
        changes["spent"] = state.spent.plus(event.spent)
        if (
            held := dict(state.reserved).get(GATEWAY)
        ) is not None:  # this much of the reservation is now spent
            state = msgspec.structs.replace(state, reserved=_for_calls(state, held.minus(event.spent)))
    if event.stage:
        changes["stage"] = clip(event.stage, LABEL_BYTES_MAX)
    if event.session:
        changes["session"] = event.session
    if event.save:
        changes["last_save"] = changes["save_point"] = event.save
    if event.reserved is not None:
        changes["reserved"] = _reserved(state, event.reserved)
    if event.window:
        changes["window"] = event.window
    head = fold_plain(state, (event,), seq)
    return msgspec.structs.replace(head, **changes) if changes else head


def _recent(event: ev.BeatDone) -> Recent:
    return Recent(
        event.beat,
        clip(event.step, LABEL_BYTES_MAX),
        _glance(event.result, RECENT_BYTES_MAX),
        _glance(event.evidence, LABEL_BYTES_MAX),
    )


def _glance(payload: Payload | None, bytes_max: int) -> str:
    if payload is None:
        return ""
    if payload.blob:
        return f"({payload.size:,} bytes, blob {payload.blob[:12]})"
    raw = bytes(payload.v)
    return "" if raw == b"null" else clip(raw[: bytes_max * 2].decode(errors="replace"), bytes_max)


def _remember(memory: tuple[MemoryRef, ...], refs: tuple[MemoryRef, ...]) -> tuple[MemoryRef, ...]:
    named = {ref.name: ref for ref in (*memory, *refs)}
    return tuple(named.values())


def _opened(
    state: RunState, event: ev.RunOpened | ev.ContractAmended | ev.PlanSet | ev.PlanExtended, seq: int
) -> RunState:
    match event:
        case ev.RunOpened():
            return _set(
                state, event, run=event.run, task=event.task, project=event.project, title=event.contract.title,
                contract_seq=seq, contract_digest=event.contract.digest, budget=event.budget,
                workspace=event.workspace, origin=event.origin, parent=event.parent, fork=event.fork, created_at=event.at,
                supervised=event.launch is not None, until_since=event.at, start_known=True,
            )  # fmt: skip
        case ev.ContractAmended():
            return _set(
                state, event, contract_seq=seq, contract_digest=event.contract.digest,
                title=event.contract.title, ended_well=False, **(_limits(state, event, event.budget) if event.budget else {}),
            )  # fmt: skip
        case ev.PlanSet():
            over = event.total == 0
            return _set(state, event, plan_seq=seq, plan_total=event.total, over=over)
        case ev.PlanExtended():
            return _set(state, event, plan_total=(state.plan_total or 0) + event.added)
        case _:
            assert_never(event)


def _effect(
    state: RunState,
    event: ev.EffectIntended | ev.EffectConfirmed | ev.EffectFailed | ev.EffectInDoubt | ev.EffectSettled,
) -> RunState:
    others = tuple(item for item in state.effects_open if (item.beat, item.n) != (event.beat, event.n))
    known = next((item for item in state.effects_open if (item.beat, item.n) == (event.beat, event.n)), None)
    match event:
        case ev.EffectIntended():
            name, key = clip(event.name, LABEL_BYTES_MAX), clip(event.key, LABEL_BYTES_MAX)
            opened = OpenEffect(event.beat, event.n, name, key, event.policy, "intended", at=event.at)
            total = state.effects_total + (event.attempt == 1)
            left = qs.after_use(state.questions, event.approved)
            return _set(state, event, effects_open=(*others, opened), effects_total=total, questions=left)
        case ev.EffectConfirmed():
            save = event.save
            saved = {"last_save": save, "save_point": save} if save else {}
            return _set(state, event, effects_open=others, **saved)
        case ev.EffectFailed():
            return _set(state, event, effects_open=others)
        case ev.EffectInDoubt():
            return _mark(state, event, others, known, event.evidence, looked=event.asks)
        case ev.EffectSettled():
            if event.finding != "cannot_tell":
                well = state.ended_well and event.finding != "did_not"  # its agent may have to do it again
                return _clear_doubt(_set(state, event, effects_open=others, ended_well=well))
            return _mark(state, event, others, known, event.evidence, looked=True)
        case _:
            assert_never(event)


def _question(state: RunState, event: ev.QuestionAsked | ev.QuestionAnswered) -> RunState:
    """A run that was parked for answers may go on when it has the last of them."""
    if isinstance(event, ev.QuestionAsked):
        more = qs.with_question(state.questions, event)
        return _set(state, event, questions=more, questions_total=state.questions_total + 1)
    state = _set(state, event, questions=qs.after_answered(state.questions, event))
    if not state.waits:
        return state
    left = qs.waited_for(state.questions, state.waits)
    waits, until = tuple(each.id for each in left), qs.first_deadline(left)
    state = msgspec.structs.replace(state, waits=waits, parked_until=until)
    if left or state.status != "parked":
        return state
    return msgspec.structs.replace(state, status="interrupted", evidence=qs.in_words(event))


def _clear_doubt(state: RunState) -> RunState:
    """A stopped run whose last doubt was settled becomes interrupted."""
    if state.status != "in_doubt" or state.in_doubt:
        return state
    return msgspec.structs.replace(state, status="interrupted", wanted=False)


def _mark(
    state: RunState, event: ev.AnyEvent, others: tuple[OpenEffect, ...], known: OpenEffect | None, evidence: str,
    *, looked: bool = False,
) -> RunState:  # fmt: skip
    if known is None:
        return _set(state, event)
    changed = msgspec.structs.replace(
        known, state="in_doubt", evidence=clip(evidence, LABEL_BYTES_MAX), looked=known.looked or looked
    )
    return _set(state, event, effects_open=(*others, changed))


def _course(
    state: RunState,
    event: ev.AttemptStarted | ev.AttemptEnded | ev.Finished | ev.Parked | ev.Woken | ev.Requested,
    seq: int,
) -> RunState:
    match event:
        case ev.AttemptStarted():
            host, boot = clip(event.host, LABEL_BYTES_MAX), clip(event.boot_id, LABEL_BYTES_MAX)
            attempt = Attempt(
                event.epoch, seq, event.at, host, event.pid, boot, state.beats, uptime_s=event.uptime_s,
                owed=state.open_spent,
            )  # fmt: skip
            return _set(
                state, event, status="running", cause=None, evidence="", attempt=attempt, wanted=False,
                attempts=state.attempts + 1, parked_until=None, waits=(), supervised=event.launch is not None, start="",
                ended_well=state.ended_well and event.finishes, guarded=event.guarded,
                within=clip(event.within, LABEL_BYTES_MAX),
                **({"reserved": _reserved(state, event.reserved)} if event.reserved else {}),
            )  # fmt: skip
        case ev.AttemptEnded():
            evidence = clip(event.evidence, EVIDENCE_BYTES_MAX)
            status = state.status if state.status == "done" else event.status
            return _set(
                state, event, status=status, cause=event.cause, evidence=evidence, attempt=None,
                wanted=event.wanted, past=_past(state, event), reserved=_for_calls(state, NO_USAGE),
                ended_well=event.ended_well,
                **(_spent(state, event.spent) if event.spent else {}),
            )  # fmt: skip
        case ev.Finished():
            return _set(state, event, status="done", cause="done", evidence="", over=True)
        case ev.Parked():
            return _set(
                state, event, status="parked", cause=event.cause, parked_until=event.until,
                evidence=clip(event.evidence, EVIDENCE_BYTES_MAX), waits=event.waits[: qs.QUESTIONS_MAX],
            )  # fmt: skip
        case ev.Woken():
            return _set(state, event, status="interrupted", parked_until=None, waits=())
        case ev.Requested():
            return _requested(state, event)
        case _:
            assert_never(event)


_NO_FAILURE: tuple[ev.Cause, ...] = ("host", "operator", "budget")


def _past(state: RunState, event: ev.AttemptEnded) -> restarts.Past:
    """A stop on request and a lost host do not count as failures, pardoned attempts not at all. One that asked a person got on."""
    attempt = state.attempt
    if event.cause == "person":
        return msgspec.structs.replace(state.past, fruitless=0)
    if event.wanted or event.cause in _NO_FAILURE or (attempt and attempt.pardoned):
        return state.past
    began = attempt.beats if attempt is not None else state.beats
    return state.past.after(event.cause, progress=event.progress or _has_new_beats(state, began))


def _has_new_beats(state: RunState, began: int) -> bool:
    """Whether any beat since `began` has more than failed steps in it. Only the most recent beats are looked at."""
    news = [recent for recent in state.recent if recent.beat > began]
    return any(not restarts.holds_only_failed_steps(recent.text) for recent in news)


_WISHES: dict[str, tuple[Status, ev.Cause]] = {
    "pause": ("paused", "operator"),
    "cancel": ("cancelled", "operator"),
    "handoff": ("handed_off", "handed_off"),
    "resume": ("interrupted", "operator"),
    "kill": ("interrupted", "operator"),
    "take_back": ("interrupted", "operator"),
}


def _requested(state: RunState, event: ev.Requested) -> RunState:
    """A request takes effect at once if no attempt is open. Otherwise the attempt's end sets the new status."""
    if event.what == "budget":
        return _set(state, event, **_limits(state, event, _allowance(event.args, state.budget)))
    if event.what == "more":
        more = _allowance(event.args, None)
        budget = more if state.budget is None else state.budget.plus(more or Allowance())
        return _set(state, event, **_limits(state, event, budget))
    if event.what == "less":
        less = _allowance(event.args, None) or Allowance()
        return _set(state, event, budget=state.budget and state.budget.minus(less))
    if event.what == "import":
        return _set(state, event, start="awaited")
    if event.what == "another":  # a call that was held may be made: its agent goes on
        return _set(state, event, ended_well=False)
    if event.what == "resume":
        state = _pardoned(state)
    wish = _WISHES.get(event.what)
    is_ready = event.what == "resume" and state.status in ("interrupted", "in_doubt")
    if wish is None or state.attempt is not None or is_ready:
        asks = _glance(event.args, LABEL_BYTES_MAX).strip('"') if event.what == ev.ASKS else state.asks
        return _set(state, event, asks=asks)
    status, cause = wish
    unsealed = state.unsealed
    if event.what == "handoff" and state.status != "handed_off":
        unsealed = state.status
    if event.what == "take_back":
        status, cause = unsealed, "done" if unsealed == "done" else cause
    evidence = clip(f"{event.what} by {event.by}", EVIDENCE_BYTES_MAX)
    return _set(state, event, status=status, unsealed=unsealed, cause=cause, evidence=evidence)


def _limits(state: RunState, event: ev.AnyEvent, budget: Allowance | None) -> dict[str, object]:
    """The changes for a new budget: the run need not wrap up any more, and a new `until` counts from now."""
    until = budget.until if budget is not None else None
    since = state.until_since if state.budget is not None and until == state.budget.until else event.at
    return {"budget": budget, "wrap_beat": None, "until_since": since, "asks": ""}


def _pardoned(state: RunState) -> RunState:
    """A person resumed the run: earlier attempts no longer count, nor does the open one if it was killed."""
    attempt = state.attempt and msgspec.structs.replace(state.attempt, pardoned=True)
    start: Start = "asked" if state.awaits_start else state.start
    left = qs.without_expired(state.questions)  # a person is there now: the run may ask again
    return msgspec.structs.replace(state, past=restarts.Past(), attempt=attempt, start=start, questions=left)


def _allowance(args: Payload, budget: Allowance | None) -> Allowance | None:
    """The budget in a request: null removes it. An unreadable one changes nothing, or it would break the run for good."""
    try:
        return decoders.decode(args.v, Allowance | None)
    except msgspec.MsgspecError:
        return budget


def _noted(
    state: RunState, event: ev.SaveMade | ev.SessionKnown | ev.StageSet | ev.Remembered | ev.Warned
) -> RunState:
    match event:
        case ev.SaveMade():
            point = event.commit if event.kind == "beat" else state.save_point
            return _set(state, event, last_save=event.commit, save_point=point)
        case ev.SessionKnown():
            return _set(state, event, session=event.session)
        case ev.StageSet():
            return _set(
                state, event, stage=clip(event.stage, LABEL_BYTES_MAX), names=_names(state.names, event)
            )
        case ev.Remembered():
            return _set(state, event, memory=_remember(state.memory, (event.ref,)))
        case ev.Warned():
            level = clip(event.level, LABEL_BYTES_MAX)
            warned = state.warned if level in state.warned else (*state.warned, level)[-WARNED_MAX:]
            begins = level.startswith(WRAP_UP) and state.wrap_beat is None
            return _set(state, event, warned=warned, wrap_beat=state.beats if begins else state.wrap_beat)
        case _:
            assert_never(event)


def _names(names: tuple[tuple[str, str], ...], event: ev.StageSet) -> tuple[tuple[str, str], ...]:
    """A script's names with their values. An empty value removes the name."""
    merged = dict(names) | event.names
    named = [
        (clip(name, LABEL_BYTES_MAX), clip(value, NAME_BYTES_MAX)) for name, value in merged.items() if value
    ]
    return tuple(named[-NAMES_MAX:])


_encoder = msgspec.json.Encoder()


def snapshot(state: RunState) -> bytes:
    """The head as it is stored: at most 64 KiB, however long the run is."""
    data = _encoder.encode(state)
    assert len(data) <= SNAPSHOT_MAX_BYTES, f"the head of run {state.run} is {len(data)} bytes"
    return data


def restore(data: bytes) -> RunState:
    """The head from a stored snapshot."""
    return decoders.decode(data, RunState)
