"""A world outside of outlast for tests of effects: a plain list, and beats that act on it."""

from collections.abc import Callable
from typing import Any

import outlast
from outlast import Run

Start = Callable[..., Run]


class Lost(Exception):
    """The answer did not come; the act may have happened."""


class EffectWorld:
    """The far side: what was done to it, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: set[str] = set()

    def post(self, body: str = "hello") -> dict[str, Any]:
        self.done.append(body)
        return {"id": len(self.done), "body": body}

    def post_then_lost(self, body: str = "hello") -> None:
        self.post(body)
        raise Lost("connection reset")

    def pay(self, amount: int = 1, *, idempotency_key: str) -> dict[str, int]:
        """Dedupes by key."""
        if idempotency_key not in self.keys:
            self.keys.add(idempotency_key)
            self.done.append(amount)
        return {"paid": amount}

    def look(self, body: str = "hello") -> object:
        return outlast.Happened({"found": body}) if body in self.done else outlast.DidNotHappen("not there")


NOW = 0.0


def probe(look: Callable[..., Any]) -> outlast.Probe:
    return outlast.Probe(look, settle_s=NOW)


def one_beat(act: Callable[[outlast.Beat], Any], results: list[Any]) -> Callable[[Run], None]:
    """A run of one beat with one act."""

    def body(run: Run) -> None:
        for beat in run.beats():
            results.append(act(beat))
            beat.finish(results[-1])
            beat.done(results[-1])

    return body
