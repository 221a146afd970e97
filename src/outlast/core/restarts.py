"""What a supervisor does after an attempt of a command: again, after a wait; park; or stop. Decisions as data, bounded.

Nothing restarts for ever: attempts without progress, attempts in all and rounds of failing checks each have a limit.
"""

import msgspec

from outlast.core.events import Cause, EndStatus

# Causes that the next attempt may not meet again.
PASSING: tuple[Cause, ...] = ("crash", "oom", "network", "signal", "context", "host")
# Causes that the agent itself may mend when it is shown what failed.
MENDABLE: tuple[Cause, ...] = ("checks", "invariant")
# Causes that only time or a person removes: the run waits, and nothing polls.
WAITING: tuple[Cause, ...] = ("quota", "auth", "program_missing")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long in between."""

    wait_s: float = 5.0
    wait_max_s: float = 300.0
    fruitless_max: int = 3
    attempts_max: int = 50
    rounds_max: int = 5


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the attempts so far came to: in all, without progress in a row, and rounds of failing checks."""

    attempts: int = 0
    fruitless: int = 0
    rounds: int = 0

    def after(self, cause: Cause, *, progress: bool) -> "Past":
        """With one more attempt that ended."""
        return Past(
            attempts=self.attempts + 1,
            fruitless=0 if progress else self.fruitless + 1,
            rounds=self.rounds + 1 if cause in MENDABLE else self.rounds,
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


def _quarantine(past: Past, limits: Limits) -> Stop:
    if past.fruitless >= limits.fruitless_max:
        return Stop("failed", "quarantine", f"{past.fruitless} attempts in a row came to nothing")
    return Stop(
        "failed", "quarantine", f"{past.attempts} attempts were made, of at most {limits.attempts_max}"
    )
