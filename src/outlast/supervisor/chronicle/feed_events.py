"""The objects of `--json-lines`, one class per `event`. docs/json.md is their contract: fields are only added."""

from datetime import datetime

import msgspec

from outlast.core.events import Cause, EndStatus
from outlast.core.state import RunState
from outlast.core.verdict import Need


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Fields of every line. `seq`: how many events the run's journal had then."""

    at: datetime
    run: str
    task: str
    attempt: int
    seq: int


class FeedCall(msgspec.Struct, frozen=True):
    """A call or an effect: its id, and what it does."""

    id: str
    what: str


class FeedStarted(FeedEvent, frozen=True, kw_only=True, tag="started"):
    """The first attempt is about to start its command."""

    beat: int
    agent: str
    workspace: str
    pid: int


class FeedResumed(FeedEvent, frozen=True, kw_only=True, tag="resumed"):
    """A later attempt is about to start its command, and what it goes on from."""

    beat: int
    agent: str
    workspace: str
    pid: int
    session: str
    cause: Cause | None
    evidence: str
    cut_off: tuple[FeedCall, ...]
    in_doubt: tuple[FeedCall, ...]
    files: str  # kept, rewound, or empty without a workspace
    found_save: str  # of what was changed since the last save; empty if nothing was


class FeedBeat(FeedEvent, frozen=True, kw_only=True, tag="beat"):
    """A beat is done. Tokens and money are sums of the run so far."""

    beat: int
    step: str
    calls: tuple[str, ...]
    text: str
    exit_code: int | None
    beat_tokens: int
    tokens: int
    tokens_max: int | None
    cost_microusd: int
    cost_microusd_max: int | None
    estimated: bool
    save: str


class FeedStage(FeedEvent, frozen=True, kw_only=True, tag="stage"):
    """A script set its stage."""

    stage: str


class FeedEffect(FeedEvent, frozen=True, kw_only=True, tag="effect"):
    """An act on the outside world: intended, or its outcome."""

    id: str
    name: str
    state: str  # intended, confirmed, failed, in_doubt, happened, did_not, cannot_tell, give_up
    why: str


class FeedWarning(FeedEvent, frozen=True, kw_only=True, tag="warning"):
    """A warning that is on record."""

    level: str
    text: str


class FeedWaits(FeedEvent, frozen=True, kw_only=True, tag="waits"):
    """The run waits: `restart` for its next attempt, `person` for somebody, `time` for the end of a usage limit."""

    waits_for: str
    seconds: float | None
    why: str
    next: str


class FeedParked(FeedEvent, frozen=True, kw_only=True, tag="parked"):
    """The run rests until a time; null: until a person mends the cause."""

    until: datetime | None
    cause: Cause
    why: str


class FeedAttemptEnded(FeedEvent, frozen=True, kw_only=True, tag="attempt_ended"):
    """An attempt ended. Another one may follow."""

    status: EndStatus
    cause: Cause
    evidence: str
    exit_code: int | None
    progress: bool


class FeedEnded(FeedEvent, frozen=True, kw_only=True, tag="ended"):
    """The last line: `outlast run` or `outlast resume` ends with this exit code."""

    exit_code: int
    status: str
    standing: str
    needs: Need
    why: str
    beats: int
    time_ms: int
    tokens: int
    cost_microusd: int
    estimated: bool
    files_changed: int | None
    folder: str
    branch: str
    worktree: bool
    next: str


class FeedDropped(FeedEvent, frozen=True, kw_only=True, tag="dropped"):
    """So many lines are missing here: nobody read them in time."""

    count: int


def place_in(state: RunState, at: datetime) -> "dict[str, object]":
    """The fields of every line, for a run in this state."""
    return {"at": at, "run": state.run, "task": state.task, "attempt": state.attempts, "seq": state.seq}
