"""The runs that were started inside of a run: by `outlast run` in its script or below its agent, or as a step's agent.

They are runs of their own, unlike children, which are parts of a beat."""

from collections.abc import Mapping

import msgspec

from outlast.core import state as st
from outlast.inspect import find
from outlast.store.protocol import RunFilter, Store


class RunInside(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose last start was inside of another one. `standing` is filled in by those who can look at its supervisor."""

    run: str
    task: str
    project: str
    status: st.Status
    beats: int
    standing: str | None = None


def runs_inside(
    store: Store, run: str, *, last: int = 0, statuses: Mapping[str, st.Status] | None = None
) -> tuple[RunInside, ...]:
    """The last runs inside of this one (0: all), in the order in which they were made."""
    where, known = RunFilter(within=run), statuses or {}
    found = store.list(where, limit=last) if last else list(find.all_runs(store, where))
    return tuple(
        RunInside(
            run=each.run, task=each.task, project=each.project, beats=each.state.beats,
            status=known.get(each.run) or find.shown_status(store, each.state, each.root),
        )
        for each in reversed(found)
    )  # fmt: skip
