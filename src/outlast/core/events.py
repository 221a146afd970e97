"""All events of a run's journal, one class each; `core.state` folds them into the run's state.

Tags are frozen: never renamed, never reused. A shipped event only gains fields with defaults."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import msgspec

from outlast import decoders
from outlast.core.values import (
    NOTHING,
    Allowance,
    Check,
    Contract,
    ForkPoint,
    MemoryRef,
    Origin,
    Parent,
    Payload,
    SessionMark,
    Usage,
    Window,
)
from outlast.errors import UPGRADE, StoreTooNew

Cause = Literal[
    "done", "checks", "invariant", "signal", "crash", "oom", "quota", "auth", "network", "context", "budget",
    "stall", "quarantine", "disk", "operator", "host", "program_missing", "handed_off", "person",
]  # fmt: skip
Policy = Literal["reissue", "probe", "ask", "give_up", "tell"]
Finding = Literal["happened", "did_not", "cannot_tell", "give_up"]
EndStatus = Literal[
    "paused", "interrupted", "in_doubt", "parked", "done", "failed", "cancelled", "handed_off"
]
QuestionKind = Literal["approval", "question"]
Answer = Literal["approved", "rejected", "answered", "expired", "withdrawn"]
SaveKind = Literal["beat", "emergency", "found", "final", "pre-restore", "manual", "watch"]
Path = tuple[int, ...]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="t"):
    """Base of all events: when it was appended, for display only."""

    at: datetime


class RunOpened(Event, frozen=True, tag="run_opened"):
    """The run exists: its identity and contract. Always the first event.

    `launch` is how a supervised command is started, so that a run killed before its first attempt can still start.
    `origin` is where the run was begun; None in journals of releases that did not record it.
    """

    run: str
    task: str
    project: str
    contract: Contract
    budget: Allowance | None = None
    parent: Parent | None = None
    fork: ForkPoint | None = None
    files: str = ""
    workspace: str = ""
    launch: Payload | None = None
    origin: Origin | None = None


class ContractAmended(Event, frozen=True, tag="contract_amended"):
    """The contract or budget was changed on purpose."""

    contract: Contract
    budget: Allowance | None = None
    by: str = ""


class PlanSet(Event, frozen=True, tag="plan_set"):
    """The plan, recorded once. The body is a tree of steps."""

    steps: Payload
    total: int


class PlanExtended(Event, frozen=True, tag="plan_extended"):
    """Steps were added outside a beat. Steps added inside a beat are part of its `BeatDone`."""

    steps: Payload
    added: int
    after: Path | None = None


class Extension(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps that a beat adds to the plan: after a path, or at the end."""

    steps: Payload
    added: int
    after: Path | None = None


class BeatBegun(Event, frozen=True, tag="beat_begun"):
    """A beat is open. Written together with the first thing recorded in it."""

    beat: int
    step: str = ""
    cursor: Path = ()


class BeatDone(Event, frozen=True, tag="beat_done"):
    """The save point that ends a beat: everything the beat changed takes effect in this one event.

    `reserved`: what the next beat may cost, set aside for it if there is a budget.
    """

    beat: int
    step: str = ""
    cursor: Path = ()
    over: bool = False
    result: Payload = NOTHING
    evidence: Payload | None = None
    extended: tuple[Extension, ...] = ()
    remembered: tuple[MemoryRef, ...] = ()
    finish: Payload | None = None
    unreached: tuple[str, ...] = ()
    stage: str = ""
    spent: Usage | None = None
    session: SessionMark | None = None
    save: str = ""
    reserved: Usage | None = None
    window: Window | None = None


class Decided(Event, frozen=True, tag="decided"):
    """A recorded answer inside a beat: replayed, never asked again. `question`: the id of the question that a person answered so."""

    beat: int
    name: str
    occurrence: int
    value: Payload
    usage: Usage | None = None
    question: str = ""


class EffectIntended(Event, frozen=True, tag="effect_intended"):
    """An act is about to be performed: for the first time, or again because it turned out not to have happened.

    `approved`: the id of the approval that it uses up; the same act under the same intent again names it again.
    """

    beat: int
    n: int
    name: str
    occurrence: int
    key: str
    own_key: bool = False
    args: Payload = NOTHING
    digest: str = ""
    policy: Policy = "ask"
    attempt: int = 1
    uptime_s: int = 0
    approved: str = ""


class EffectConfirmed(Event, frozen=True, tag="effect_confirmed"):
    """The act happened, and this is its outcome."""

    beat: int
    n: int
    result: Payload = NOTHING
    unencodable: bool = False
    save: str = ""


class EffectFailed(Event, frozen=True, tag="effect_failed"):
    """The act reported for certain that it did not happen. `final`: its tries are used up, and the program knows that."""

    beat: int
    n: int
    error: str = ""
    final: bool = False


class EffectInDoubt(Event, frozen=True, tag="effect_in_doubt"):
    """The act raised, timed out, or its attempt died: its outcome is unknown. `asks`: only a person can tell; no probe is asked."""

    beat: int
    n: int
    evidence: str = ""
    asks: bool = False


class EffectSettled(Event, frozen=True, tag="effect_settled"):
    """The finding of a policy, a probe or a person about an effect in doubt."""

    beat: int
    n: int
    finding: Finding
    by: str = ""
    result: Payload = NOTHING
    evidence: str = ""


class AttemptStarted(Event, frozen=True, tag="attempt_started"):
    """A process took the run up under this epoch. `launch` is how a supervised command is started again.

    `reserved`: what the attempt's first beat may cost, set aside for it if there is a budget. `finishes`: the agent had
    finished before, and is started again only if a call of it turns out not to have happened. `guarded`: a plain command under
    guard; a call of it that is in doubt is held, and nobody below reads why. `within`: the run that it was started in.
    `host_id`: which host of a shared store it works on; the files and their saves are there.
    """

    epoch: int
    host: str = ""
    pid: int = 0
    boot_id: str = ""
    version: str = ""
    code: str = ""
    command: tuple[str, ...] = ()
    launch: Payload | None = None
    reserved: Usage | None = None
    uptime_s: int = 0
    finishes: bool = False
    guarded: bool = False
    within: str = ""
    host_id: str = ""


class AttemptEnded(Event, frozen=True, tag="attempt_ended"):
    """How an attempt ended, with the evidence.

    `wanted`: a person stopped it, so outlast does not wake the run by itself. `progress`: the attempt left the files in a
    state that no earlier attempt had left. `spent`: its time and the cost of the beat in flight; for an attempt that was
    killed without warning, what was set aside for that beat. `ended_well`: its agent had finished, and only effects in doubt
    kept the run from being done.
    """

    epoch: int
    status: EndStatus
    cause: Cause
    evidence: str = ""
    exit_code: int | None = None
    wanted: bool = False
    progress: bool = False
    spent: Usage | None = None
    ended_well: bool = False


class SaveMade(Event, frozen=True, tag="save_made"):
    """A save of the workspace outside a beat's end."""

    kind: SaveKind
    commit: str
    ref: str = ""
    beat: int = 0
    reason: str = ""
    left_out: tuple[str, ...] = ()


class SessionKnown(Event, frozen=True, tag="session_known"):
    """The agent CLI's own session id, and where its transcript is."""

    session: SessionMark


class SpendReserved(Event, frozen=True, tag="spend_reserved"):
    """An amount set aside before a call whose price is not known yet."""

    key: str
    usage: Usage


INSIDE = "run inside"  # the source of a cost that a run inside of this one reported


class SpendSettled(Event, frozen=True, tag="spend_settled"):
    """The real cost of a call, or an upper bound marked as estimated."""

    key: str
    usage: Usage
    source: str = ""


class Warned(Event, frozen=True, tag="warned"):
    """A warning given to a person or to the agent, once per level."""

    level: str
    text: str = ""


class Parked(Event, frozen=True, tag="parked"):
    """The run waits until a moment at which `resume --all` wakes it; nothing polls. `account`: whose limit it reached.

    `waits`: the ids of the questions whose answers it waits for; then `until` is the first of their deadlines.
    """

    until: datetime | None = None
    cause: Cause = "quota"
    evidence: str = ""
    account: str = ""
    waits: tuple[str, ...] = ()


class Woken(Event, frozen=True, tag="woken"):
    """A parked or paused run may start again."""

    by: str = ""


class StageSet(Event, frozen=True, tag="stage_set"):
    """The user's own word for how far the work is, and the names under which a script stores its values."""

    stage: str
    names: dict[str, str] = {}


class Remembered(Event, frozen=True, tag="remembered"):
    """A memory ref set outside a beat."""

    ref: MemoryRef


ASKS = "asks"  # a request that changes nothing: more budget, asked for from inside the run


class Requested(Event, frozen=True, tag="requested"):
    """The holder of the run took in a request that somebody had written to the inbox."""

    id: int
    by: str
    what: str
    args: Payload = NOTHING


class QuestionAsked(Event, frozen=True, tag="question_asked"):
    """The run asks a person: for the approval of one call, or a question.

    `text` is what the person reads, `subject` the arguments of the call, and `digest` binds the answer to this one call.
    `kind_of_call` and `target` say what it does to what, as rules name it. `beat` and `n`: of the effect, where there is one; a
    question of a beat ends with its beat. Without an answer at the `deadline` it counts as rejected.
    """

    id: str
    kind: QuestionKind
    text: str = ""
    choices: tuple[str, ...] = ()
    subject: Payload = NOTHING
    digest: str = ""
    kind_of_call: str = ""
    target: str = ""
    beat: int = 0
    n: int = 0
    deadline: datetime | None = None


class QuestionAnswered(Event, frozen=True, tag="question_answered"):
    """What became of a question. `text` is the answer, or why a person rejected the call."""

    id: str
    answer: Answer
    text: str = ""
    by: str = ""


class Finished(Event, frozen=True, tag="finished"):
    """The run is done: its checks passed."""

    result: Payload = NOTHING
    checks: tuple[Check, ...] = ()


AnyEvent = (
    RunOpened | ContractAmended | PlanSet | PlanExtended | BeatBegun | BeatDone | Decided | EffectIntended
    | EffectConfirmed | EffectFailed | EffectInDoubt | EffectSettled | AttemptStarted | AttemptEnded | SaveMade
    | SessionKnown | SpendReserved | SpendSettled | Warned | Parked | Woken | StageSet | Remembered | Requested
    | QuestionAsked | QuestionAnswered | Finished
)  # fmt: skip

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyEvent] | None = None


def tag_of(event: AnyEvent) -> str:
    """The event's tag as it is on disk."""
    tag = type(event).__struct_config__.tag
    assert isinstance(tag, str), "every event has a string tag"
    return tag


def encode(event: AnyEvent) -> bytes:
    """The event as JSON, as it is on disk."""
    return _encode(event)


def decode(data: bytes) -> AnyEvent:
    """The event in stored JSON. Raises `StoreTooNew` for an unknown tag or shape: a newer outlast wrote it."""
    global _decoder
    if _decoder is None:
        _decoder = decoders.of_json(AnyEvent)
    try:
        return _decoder.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreTooNew(
            f"cannot read an event: {error}", hint=f"a newer outlast wrote it; {UPGRADE}"
        ) from error


# -- Blobs that an event refers to: an export takes them along and a sweep keeps them.


def blobs_in(event: AnyEvent) -> Iterator[Payload]:
    """The payloads of an event that live in blobs."""
    return (payload for payload in _payloads(event) if payload.blob)


def _payloads(value: object) -> Iterator[Payload]:
    if isinstance(value, Payload):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _payloads(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _payloads(item)
