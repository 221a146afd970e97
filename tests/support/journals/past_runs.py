"""Runs that are over, or wait, put into a store as their journals would have them, without doing the work."""

from datetime import UTC, datetime, timedelta

from outlast.core import events as ev
from outlast.core.values import NOTHING, Allowance, Contract, MemoryRef, Parent, SessionMark, Usage
from outlast.store.protocol import Store

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def put(
    store: Store, n: int, *, tokens: int = 0, time_s: int = 0, goal: str = "fix the parser", project: str = "app",
    status: ev.EndStatus | None = None, budget: Allowance | None = None, agent: str = "", plan: int | None = None,
    files: tuple[str, ...] = (), parent: Parent | None = None,
) -> str:  # fmt: skip
    """The n-th run, an hour after the one before; its id. Without a status it waits."""
    at = BEGIN + timedelta(hours=n)
    end = at + timedelta(minutes=30)
    events: list[ev.AnyEvent] = []
    if plan is not None:
        events.append(ev.PlanSet(at=at, steps=NOTHING, total=plan))
    if agent:
        events.append(ev.SessionKnown(at=at, session=SessionMark(agent, f"s{n}")))
    events += [ev.Remembered(at=at, ref=MemoryRef(name, f"file:{name}")) for name in files]
    if tokens or time_s:
        usage = Usage(input=tokens, time_ms=time_s * 1000)
        events.append(ev.SpendSettled(at=end, key="all", usage=usage))
    if status == "done":
        events.append(ev.Finished(at=end))
    elif status:
        events.append(ev.AttemptEnded(at=end, epoch=1, status=status, cause="budget"))
    return store.create(
        ev.RunOpened(
            at=at, run=f"run{n:09}", task=f"t{n}", project=project, contract=Contract(goal=goal), budget=budget,
            parent=parent,
        ),
        events,
    )  # fmt: skip
