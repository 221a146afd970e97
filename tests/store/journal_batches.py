"""Runs, events and batches for the conformance suite, and for tests of one backend."""

import secrets
from datetime import UTC, datetime
from typing import Any

from outlast.core import events as ev
from outlast.core.values import Contract, Parent
from outlast.store.protocol import Batch, Lease, Store

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WAIT_S = 60.0


def opened(
    task: str = "t", *, project: str = "p", parent: Parent | None = None, run: str = ""
) -> ev.RunOpened:
    return ev.RunOpened(
        at=AT,
        run=run or f"r{secrets.token_hex(6)}",
        task=task,
        project=project,
        contract=Contract("goal"),
        parent=parent,
    )


def stage(name: object) -> ev.StageSet:
    return ev.StageSet(at=AT, stage=str(name))


def stages(store: Store, run: str) -> list[str]:
    events = [item.event for item in store.read(run, after=0).events]
    return [event.stage for event in events if isinstance(event, ev.StageSet)]


def batch(lease: Lease, run: str, after: int, *events: ev.AnyEvent, **more: Any) -> Batch:
    return Batch(lease, run, after, tuple(events), **more)


APPENDING = """
import sys
from tests.store.journal_batches import appended
store = eval(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
appended(store, sys.argv[2], int(sys.argv[3]))
"""


def appended(store: Store, task: str, count: int) -> str:
    """Open a run and append so many events to it, one by one."""
    run = store.create(opened(task))
    lease = store.claim(run)
    for number in range(count):
        store.append(batch(lease, run, number + 1, stage(number)))
    store.release(lease)
    return run
