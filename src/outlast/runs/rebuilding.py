"""The context of a run that nobody holds: what its next attempt will be told, for those who only look at it."""

from pathlib import Path

from outlast.runs import endings, gather
from outlast.runs.journal import Journal
from outlast.store.protocol import Summary
from outlast.store.sqlite import SqliteStore


def context(store: SqliteStore, summary: Summary, here: Path, tokens_max: int) -> str:
    """The text that an attempt which began now would get. Memory refs of a run without a workspace are meant from `here`."""
    journal = Journal(store, endings.NO_LEASE, gather.head(store, summary.run))
    state = summary.state
    folder = Path(state.workspace) if state.workspace else here
    contract, steps = gather.contract(store, state), gather.plan_of(store, state)
    return gather.context(journal, contract, steps, folder, tokens_max)
