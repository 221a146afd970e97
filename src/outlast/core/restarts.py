"""What a supervisor does after an attempt of a command: again, after a wait; park; or stop. Decisions as data, bounded.

Nothing restarts for ever: attempts without progress, attempts in all, rounds of failing checks and waits at a quota wall
each have a limit.
"""

import hashlib
from datetime import datetime, timedelta

import msgspec

from outlast.core.events import Cause, EndStatus

# Causes that the next attempt may not meet again.
PASSING: tuple[Cause, ...] = ("crash", "oom", "network", "signal", "context", "host")
# Causes that the agent itself may mend when it is shown what failed.
MENDABLE: tuple[Cause, ...] = ("checks", "invariant")
# Causes that only time or a person removes: the run waits, and nothing polls.
WAITING: tuple[Cause, ...] = ("quota", "auth", "program_missing")

# A wall whose end nobody named: the first wait, doubled at each further one without progress, up to the last.
PARK_FIRST, PARK_LAST = timedelta(minutes=30), timedelta(hours=8)
JITTER_MAX_MS = 60_000  # so that not all the world comes back in the second of the reset
RATE_WALL = timedelta(minutes=2)  # a rate limit that stands longer is a wall too
RATE_TRIES = 3  # so many attempts in a row that came to nothing by a rate limit, and it is one


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long in between."""

    wait_s: float = 5.0
    wait_max_s: float = 300.0
    fruitless_max: int = 3
    attempts_max: int = 50
    rounds_max: int = 5
    parks_max: int = 6


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the attempts so far came to: in all, without progress in a row, rounds of failing checks, and walls since progress."""

    attempts: int = 0
    fruitless: int = 0
    rounds: int = 0
    parks: int = 0

    def after(self, cause: Cause, *, progress: bool) -> "Past":
        """With one more attempt that ended. One that met a wall is counted as that, not as one that failed."""
        at_wall = cause == "quota"
        return Past(
            attempts=self.attempts + 1,
            fruitless=0 if progress else self.fruitless + (not at_wall),
            rounds=self.rounds + 1 if cause in MENDABLE else self.rounds,
            parks=(0 if progress else self.parks) + at_wall,
        )


class Again(msgspec.Struct, frozen=True):
    """Start once more after so many seconds."""

    wait_s: float


class Park(msgspec.Struct, frozen=True):
    """Wait for a moment in time or for a person; nothing polls."""

    cause: Cause


class Stop(msgspec.Struct, frozen=True):
    """No more attempts by itself, and why."""

    status: EndStatus
    cause: Cause
    why: str = ""


Decision = Again | Park | Stop


def after(cause: Cause, past: Past, limits: Limits, *, jitter: float) -> Decision:
    """What comes after an attempt that `past` already counts; `jitter` is from 0 to 1."""
    if cause == "quota" and past.parks > limits.parks_max:
        return Stop("failed", cause, _still_walled(past.parks))
    if cause in WAITING:
        return Park(cause)
    if cause in MENDABLE:
        if past.rounds >= limits.rounds_max:
            return Stop("failed", cause, _still_failing(cause, past.rounds))
        return Again(0.0) if past.attempts < limits.attempts_max else _quarantine(past, limits)
    if cause not in PASSING:
        return Stop("interrupted", cause)
    if past.fruitless >= limits.fruitless_max or past.attempts >= limits.attempts_max:
        return _quarantine(past, limits)
    return Again(wait_s(past.fruitless, limits, jitter=jitter))


def against(cause: Cause | None, past: Past, limits: Limits) -> Stop | None:
    """The limit that forbids one more attempt, also to a supervisor that was not there when it was reached; else None."""
    decision = after(cause, past, limits, jitter=0.0) if cause is not None else None
    return decision if isinstance(decision, Stop) and decision.status == "failed" else None


def _still_failing(cause: Cause, rounds: int) -> str:
    """The last round was one too many; with `--rounds 0` the first."""
    what = "checks" if cause == "checks" else "an invariant"
    return f"{what} failed" if rounds == 1 else f"{what} still failed after {rounds} rounds"


def wait_s(fruitless: int, limits: Limits, *, jitter: float) -> float:
    """How long to wait: doubling with each attempt that came to nothing, up to a limit, spread by a quarter."""
    exact_s = min(limits.wait_max_s, limits.wait_s * 2.0 ** min(max(0, fruitless - 1), 30))
    return exact_s * (0.875 + 0.25 * jitter)


def _still_walled(parks: int) -> str:
    """The last wall was one too many; with `--parks 0` the first."""
    return "a limit was met" if parks == 1 else f"a limit was met {parks} times without progress in between"


# -- walls ---------------------------------------------------------------------------------------------------------


def rate_limited(
    reset_at: datetime | None, now: datetime, past: Past, *, progress: bool
) -> tuple[Cause, datetime | None]:
    """What an attempt ended by a rate limit is: a passing failure, or a wall; and when that is gone where it is known.

    `past` does not count this attempt yet.
    """
    if reset_at is not None and reset_at - now >= RATE_WALL:
        return "quota", reset_at
    if not progress and past.fruitless + 1 >= RATE_TRIES:
        return "quota", None
    return "network", reset_at


def reset_of(reset_at: datetime | None, now: datetime, parks: int) -> tuple[datetime, bool]:
    """When to try a wall again that was met `parks` times since progress, and whether somebody named that time."""
    if reset_at is not None and reset_at > now:
        return reset_at, True
    return now + min(PARK_LAST, PARK_FIRST * 2 ** min(max(0, parks - 1), 30)), False


def wake_at(reset: datetime, first: str, place: int, apart_s: float) -> datetime:
    """When a run is woken: a moment after the reset that its `first` run decides, and then one after the other."""
    digest = hashlib.blake2b(f"{first} {reset.isoformat()}".encode(), digest_size=8).digest()
    jitter = timedelta(milliseconds=int.from_bytes(digest) % (JITTER_MAX_MS + 1))
    return reset + jitter + timedelta(seconds=apart_s * place)


# -- limits reached ------------------------------------------------------------------------------------------------


def _quarantine(past: Past, limits: Limits) -> Stop:
    if past.fruitless >= limits.fruitless_max:
        return Stop("failed", "quarantine", f"{past.fruitless} attempts in a row came to nothing")
    return Stop(
        "failed", "quarantine", f"{past.attempts} attempts were made, of at most {limits.attempts_max}"
    )
