"""Which runs `outlast resume --all` wakes, also at boot: those that died without anybody's request. Data only."""

from datetime import datetime

import msgspec

from outlast.core import restarts
from outlast.core.events import Cause
from outlast.core.state import OpenEffect, RunState, Status

# Interrupted for one of these causes, without a request: the supervisor would have gone on, had it not died too.
WOKEN: tuple[Cause, ...] = (*restarts.PASSING, *restarts.MENDABLE, *restarts.WAITING)
START_ITS_PROGRAM = "not started by `outlast run`: start its program"
NEVER_STARTED = "ended before its first attempt was on record: type its command again, or start its program"
DIED = "its attempt died without a word"  # as JSON has it
_RESTING: dict[Status, str] = {
    "paused": "paused",
    "failed": "failed",
    "done": "done",
    "cancelled": "cancelled",
    "handed_off": "handed off",
    "running": "running",
}


class Wake(msgspec.Struct, frozen=True):
    """Whether to wake a run, and why or why not."""

    yes: bool
    why: str


def judge(state: RunState, shown: Status, now: datetime, limits: restarts.Limits | None = None) -> Wake:
    """Whether a run should go on by itself. `shown` is its status for readers: it takes a dead holder into account.

    What an attempt that was killed without warning achieved is found out by the next start, which checks `limits` too.
    """
    if shown in _RESTING:
        why = "quarantined" if shown == "failed" and state.cause == "quarantine" else _RESTING[shown]
        return Wake(False, why)
    if not state.supervised:
        if shown == "parked" and state.parked_until is not None and state.parked_until > now:
            return Wake(False, f"{_until(state.parked_until)}: start its program then")
        return Wake(False, START_ITS_PROGRAM if state.attempts else NEVER_STARTED)
    if shown == "in_doubt" and not needs_no_person(state):
        return Wake(False, "in doubt: settle it first")
    if shown == "parked":
        return _judge_parked(state, now)
    if not state.attempts and state.cause is None:
        return Wake(True, "died before its first attempt was on record")
    if state.attempt is not None:
        return Wake(True, DIED)
    if limits is not None and limit_reached(state, limits) is not None:
        return Wake(False, "quarantined")
    if state.wanted or state.cause not in WOKEN:
        return Wake(False, f"stopped: {state.cause}")
    return Wake(True, f"died: {state.cause}")


def in_words(why: str) -> str:
    """`why` as a person reads it: programs rely on the value that JSON has."""
    return why.replace(DIED, "its attempt was killed without warning (no exit recorded)")


def limit_reached(state: RunState, limits: restarts.Limits) -> restarts.Stop | None:
    """The limit that the run's attempts reached while its supervisor was dead, or None."""
    return None if state.wanted else restarts.limit_reached(state.cause, state.past, limits)


def needs_no_person(state: RunState) -> bool:
    """Whether the next attempt settles everything in doubt, so that no person has to."""
    return bool(state.in_doubt) and all(map(next_attempt_settles, state.in_doubt))


def next_attempt_settles(effect: OpenEffect) -> bool:
    """Whether the next attempt settles this effect: by a probe not asked yet, by reissuing it, or by giving it up."""
    match effect.policy:
        case "probe":
            return not effect.looked
        case "reissue":
            return effect.state == "intended"
        case "give_up" | "tell":  # the next attempt tells the agent what it cannot find out, and goes on
            return True
        case "ask":
            return False


def _judge_parked(state: RunState, now: datetime) -> Wake:
    if state.parked_until is None:
        return Wake(False, f"parked until a person looks: {state.cause}")
    if state.parked_until > now:
        return Wake(False, _until(state.parked_until))
    return Wake(True, "parked, and the time has come")


def _until(moment: datetime) -> str:
    return f"parked until {moment:%Y-%m-%d %H:%M} UTC"
