"""A pen that writes runs straight into a store, event after event, for tests of the index."""

from datetime import UTC, datetime, timedelta

from outlast.core import events as ev
from outlast.core.values import NOTHING, Allowance, Contract, Parent, SessionMark, Usage
from outlast.dashboard.documents import Ask, Overview, Row
from outlast.dashboard.overview.index import Index
from outlast.store.protocol import Batch, Lease, RunFilter, Store

AT = datetime(2026, 11, 15, 22, 0, tzinfo=UTC)


HOUR = timedelta(hours=1)


class Pen:
    """Writes journals through leases, as the runs' own processes would."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._leases: dict[str, Lease] = {}

    def open(
        self, task: str, *events: ev.AnyEvent, project: str = "/src/app/.git", goal: str = "mend it", agent: str = "",
        parent: Parent | None = None, budget: Allowance | None = None, model: str = "", at: datetime = AT,
    ) -> str:  # fmt: skip
        opened = ev.RunOpened(
            at=at, run=f"r{task}{len(self.store.list(RunFilter()))}x", task=task, project=project, contract=Contract(goal),
            parent=parent, budget=budget,
        )  # fmt: skip
        session = SessionMark(agent, f"session of {task}", model=model)
        known = [ev.SessionKnown(at=at, session=session)] if agent else []
        return self.store.create(opened, [*known, *events])

    def write(self, run: str, *events: ev.AnyEvent) -> None:
        """Append to a run, which is held from now on."""
        summary = self.store.list(RunFilter(runs=(run,)))[0]
        lease = self._leases.get(summary.root) or self.store.claim(summary.root)
        self._leases[summary.root] = lease
        self.store.append(Batch(lease, run, summary.state.seq, events))

    def release(self, *roots: str) -> None:
        for root in roots or tuple(self._leases):
            self.store.release(self._leases.pop(root))


def started(at: datetime = AT, epoch: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(at=at, epoch=epoch, host="here", pid=7, boot_id="b")


def ended(status: ev.EndStatus, cause: ev.Cause, at: datetime = AT, evidence: str = "why") -> ev.AttemptEnded:
    return ev.AttemptEnded(at=at, epoch=1, status=status, cause=cause, evidence=evidence)


def beat(number: int, at: datetime = AT, tokens: int = 100) -> ev.BeatDone:
    return ev.BeatDone(at=at, beat=number, step=f"step {number}", cursor=(number,), spent=Usage(input=tokens))


def intended(beat: int = 1, n: int = 1, policy: ev.Policy = "ask", at: datetime = AT) -> ev.EffectIntended:
    return ev.EffectIntended(
        at=at, beat=beat, n=n, name="push", key=f"k{beat}.{n}", policy=policy, args=NOTHING, occurrence=n
    )


def runs_of(overview: Overview) -> list[str]:
    return [row.run for row in overview.rows]


def tasks(index: Index, **asked: object) -> list[str]:
    return [row.task for row in index.overview(Ask(**asked)).rows]  # type: ignore[arg-type]


def looked(index: Index, run: str) -> Row:
    index._looked_s = float("-inf")
    return index.row(run)
