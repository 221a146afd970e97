"""A supervisor's decision after an attempt: start again after a wait, park, or stop. Decisions are data.

Everything is bounded: attempts without progress, attempts in all, rounds of failing checks, waits at a quota wall."""

import hashlib
from datetime import datetime, timedelta

import msgspec

from outlast import decoders
from outlast.core.events import Cause, EndStatus

# Causes that the next attempt may not meet again.
PASSING: tuple[Cause, ...] = ("crash", "oom", "network", "signal", "context", "host")
# Causes that the agent itself may fix when it sees what failed.
MENDABLE: tuple[Cause, ...] = ("checks", "invariant")
# Causes that only time or a person removes: the run is parked, and nothing polls.
WAITING: tuple[Cause, ...] = ("quota", "auth", "program_missing")

# A wall without a known end: the first wait, doubled at each further wall without progress, up to the last.
PARK_FIRST, PARK_LAST = timedelta(minutes=30), timedelta(hours=8)
JITTER_MAX_MS = 60_000  # so that not every run in the world comes back in the second of the reset
RATE_WALL = timedelta(minutes=2)  # a rate limit that lasts longer is a wall
RATE_TRIES = 3  # a rate limit that ended so many attempts in a row without progress is a wall


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts are allowed, and how long to wait in between."""

    wait_s: float = 5.0
    wait_max_s: float = 300.0
    fruitless_max: int = 3
    attempts_max: int = 50
    rounds_max: int = 5
    parks_max: int = 6


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attempts so far: in all, in a row without progress, rounds of failing checks, and walls since progress."""

    attempts: int = 0
    fruitless: int = 0
    rounds: int = 0
    parks: int = 0

    def after(self, cause: Cause, *, progress: bool) -> "Past":
        """The past with one more ended attempt. One that met a wall counts as a wall, not as a failure."""
        at_wall = cause == "quota"
        return Past(
            attempts=self.attempts + 1,
            fruitless=0 if progress else self.fruitless + (not at_wall),
            rounds=self.rounds + 1 if cause in MENDABLE else self.rounds,
            parks=(0 if progress else self.parks) + at_wall,
        )


class Again(msgspec.Struct, frozen=True):
    """Start again after so many seconds."""

    wait_s: float


class Park(msgspec.Struct, frozen=True):
    """Wait for a moment in time or for a person; nothing polls."""

    cause: Cause


class Stop(msgspec.Struct, frozen=True):
    """Make no more attempts, and why."""

    status: EndStatus
    cause: Cause
    why: str = ""


Decision = Again | Park | Stop


def after(cause: Cause, past: Past, limits: Limits, *, jitter: float) -> Decision:
    """The decision after an ended attempt, which `past` already counts. `jitter` is from 0 to 1."""
    if cause == "quota" and past.parks > limits.parks_max:
        return Stop("failed", cause, _still_walled(past.parks))
    if cause in WAITING:
        return Park(cause)
    if cause == "person":  # it has its answers: while it waits for one, nobody asks here
        return Again(0.0)
    if cause in MENDABLE:
        if past.rounds >= limits.rounds_max:
            return Stop("failed", cause, _still_failing(cause, past.rounds))
        return Again(0.0) if past.attempts < limits.attempts_max else _quarantine(past, limits)
    if cause not in PASSING:
        return Stop("interrupted", cause)
    if past.fruitless >= limits.fruitless_max or past.attempts >= limits.attempts_max:
        return _quarantine(past, limits)
    return Again(wait_s(past.fruitless, limits, jitter=jitter))


def limit_reached(cause: Cause | None, past: Past, limits: Limits) -> Stop | None:
    """The limit that forbids one more attempt, or None. A supervisor may ask that did not see the limit being reached."""
    decision = after(cause, past, limits, jitter=0.0) if cause is not None else None
    return decision if isinstance(decision, Stop) and decision.status == "failed" else None


def _still_failing(cause: Cause, rounds: int) -> str:
    """The evidence when the last round was one too many; with `--rounds 0` that is the first."""
    what = "checks" if cause == "checks" else "an invariant"
    return f"{what} failed" if rounds == 1 else f"{what} still failed after {rounds} rounds"


def wait_s(fruitless: int, limits: Limits, *, jitter: float) -> float:
    """How long to wait: doubles with each attempt without progress, up to a limit, spread by a quarter."""
    exact_s = min(limits.wait_max_s, limits.wait_s * 2.0 ** min(max(0, fruitless - 1), 30))
    return exact_s * (0.875 + 0.25 * jitter)


def _still_walled(parks: int) -> str:
    """The evidence when the last wall was one too many; with `--parks 0` that is the first."""
    return "a limit was met" if parks == 1 else f"a limit was met {parks} times without progress in between"


# -- progress ------------------------------------------------------------------------------------------------------


class _StepEnded(msgspec.Struct, frozen=True):
    """The result of a beat that a step of a script ended."""

    step: str
    exit_code: int


_steps_of = decoders.of_json(_StepEnded | list[_StepEnded]).decode


def holds_only_failed_steps(result: str) -> bool:
    """Whether a beat's result, as JSON, is that of a script's steps which all failed."""
    try:
        ended = _steps_of(result)
    except msgspec.MsgspecError:
        return False
    return all(step.exit_code for step in (ended if isinstance(ended, list) else [ended]))


# -- walls ---------------------------------------------------------------------------------------------------------


def rate_limited(
    reset_at: datetime | None, now: datetime, past: Past, *, progress: bool
) -> tuple[Cause, datetime | None]:
    """Whether a rate limit that ended an attempt is a passing failure or a wall; and when a wall ends, where known.

    `past` does not count this attempt yet.
    """
    if reset_at is not None and reset_at - now >= RATE_WALL:
        return "quota", reset_at
    if not progress and past.fruitless + 1 >= RATE_TRIES:
        return "quota", None
    return "network", reset_at


def reset_time(reset_at: datetime | None, now: datetime, parks: int) -> tuple[datetime, bool]:
    """When to try again at a wall met `parks` times since progress, and whether somebody named that time."""
    if reset_at is not None and reset_at > now:
        return reset_at, True
    return now + min(PARK_LAST, PARK_FIRST * 2 ** min(max(0, parks - 1), 30)), False


def wake_at(reset: datetime, first: str, place: int, apart_s: float) -> datetime:
    """When to wake a run: the `first` run decides a moment after the reset, and the others follow one by one."""
    digest = hashlib.blake2b(f"{first} {reset.isoformat()}".encode(), digest_size=8).digest()
    jitter = timedelta(milliseconds=int.from_bytes(digest) % (JITTER_MAX_MS + 1))
    return reset + jitter + timedelta(seconds=apart_s * place)


# -- limits reached ------------------------------------------------------------------------------------------------


def _quarantine(past: Past, limits: Limits) -> Stop:
    if past.fruitless >= limits.fruitless_max:
        return Stop("failed", "quarantine", f"{past.fruitless} attempts in a row made no progress")
    most = limits.attempts_max
    used = "the only allowed attempt is used" if most == 1 else f"all {most:,} allowed attempts are used"
    return Stop("failed", "quarantine", used)
