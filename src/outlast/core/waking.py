"""Who is woken by `outlast resume --all` and at boot: those that died without anybody's wish. One table, as data."""

from datetime import datetime

import msgspec

from outlast.core import restarts
from outlast.core.events import Cause
from outlast.core.state import OpenEffect, RunState, Status

# Interrupted for one of these, and nobody wanted it: its supervisor would have gone on, had it not died too.
WOKEN: tuple[Cause, ...] = (*restarts.PASSING, *restarts.MENDABLE, *restarts.WAITING)
START_ITS_PROGRAM = "not started by `outlast run`: start its program"
_RESTING: dict[Status, str] = {
    "paused": "paused",
    "failed": "failed",
    "done": "done",
    "cancelled": "cancelled",
    "handed_off": "handed off",
    "running": "running",
}


class Wake(msgspec.Struct, frozen=True):
    """Whether a run is woken, and why or why not."""

    yes: bool
    why: str


def judge(state: RunState, shown: Status, now: datetime) -> Wake:
    """Whether a run goes on by itself; `shown` is its status with the life of its holder taken into account."""
    if shown in _RESTING:
        why = "quarantined" if shown == "failed" and state.cause == "quarantine" else _RESTING[shown]
        return Wake(False, why)
    if not state.supervised:
        return Wake(False, START_ITS_PROGRAM)
    if shown == "in_doubt" and not settles_itself(state):
        return Wake(False, "in doubt: settle it first")
    if shown == "parked":
        return _judge_parked(state, now)
    if state.attempt is not None:
        return Wake(True, "its attempt died without a word")
    if state.wanted or state.cause not in WOKEN:
        return Wake(False, f"stopped: {state.cause or 'not started yet'}")
    return Wake(True, f"died: {state.cause}")


def settles_itself(state: RunState) -> bool:
    """Whether the next attempt settles all that is in doubt, so that no person has to."""
    return bool(state.in_doubt) and all(map(_is_settled_by_the_next, state.in_doubt))


def _is_settled_by_the_next(effect: OpenEffect) -> bool:
    """It looks where nobody looked yet, does again by its key what was only begun, and gives up what may be given up."""
    match effect.policy:
        case "probe":
            return not effect.looked
        case "reissue":
            return effect.state == "intended"
        case "give_up":
            return True
        case "ask" | "tell":
            return False


def _judge_parked(state: RunState, now: datetime) -> Wake:
    if state.parked_until is None:
        return Wake(False, f"parked until a person looks: {state.cause}")
    if state.parked_until > now:
        return Wake(False, f"parked until {state.parked_until:%Y-%m-%d %H:%M} UTC")
    return Wake(True, "parked, and the time has come")
