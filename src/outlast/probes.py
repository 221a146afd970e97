"""What a probe answers about an effect in doubt, and how long the far side may still be working on it."""

from collections.abc import Callable
from typing import Any

import msgspec

from outlast.errors import DidNotHappen, UsageError

SETTLE_S = 1.0


class Happened(msgspec.Struct, frozen=True):
    """The effect happened; `result` is what the act would have returned."""

    result: object = None


class CannotTell(msgspec.Struct, frozen=True):
    """The probe looked and could not find out."""

    why: str = ""


Finding = Happened | DidNotHappen | CannotTell


class Probe(msgspec.Struct, frozen=True):
    """A probe with its own settling time: "did not" counts only so long after the act may have been in progress."""

    look: Callable[..., Any]
    settle_s: float = SETTLE_S


def as_probe(given: object) -> Probe | None:
    """The probe from what the caller passed: nothing, a function, or a Probe."""
    if given is None or isinstance(given, Probe):
        return given
    if not callable(given):
        raise UsageError(f"probe= takes a function, not {given!r:.60}", hint="pass it uncalled: probe=fn")
    return Probe(given, float(getattr(given, "settle_s", SETTLE_S)))
