"""Runs of a store that this process holds: they read as running, and can go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from outlast.core import events as ev, plan as plans
from outlast.core.state import RunState, fold
from outlast.runs import reader
from outlast.store.protocol import Batch, Lease, Store
from tests.support.inprocess import reading
from tests.support.journals.scribe import payload


class HeldRuns:
    """Runs of a store that are held by this process: they read as running, and can go on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.leases: dict[str, Lease] = {}

    def hold(self, run: str) -> None:
        self.leases[run] = self.store.claim(run)

    def append(self, run: str, *events: ev.AnyEvent) -> None:
        """Append to a run that is held; durable when it returns."""
        self.store.append(Batch(self.leases[run], run, self.head(run).seq, events))

    def head(self, run: str) -> RunState:
        """The run as it is now."""
        history = self.store.read(run)
        return fold(history.state, [item.event for item in history.events])

    def beat(self, run: str, said: str = "went on") -> datetime:
        """One more beat of a run, now, at the next step of its plan; when it was written."""
        head, at = self.head(run), datetime.now(UTC)
        steps = reader.plan_of(self.store, head) if head.plan_seq else ()
        following = plans.next_leaf(steps, head.cursor) if head.cursor else None
        done = ev.BeatDone(
            at=at, beat=head.beats + 1, cursor=following or (), over=bool(steps) and following is None,
            result=payload({"said": said}),
        )  # fmt: skip
        self.append(run, done)
        return at


@contextlib.contextmanager
def held(root: Path) -> Iterator[HeldRuns]:
    """The runs of a night that work, held by this process until the end of the block."""
    with reading(root) as store:
        alive = HeldRuns(store)
        for run in (root / "working").read_text().split():
            alive.hold(run)
        yield alive
