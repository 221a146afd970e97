"""What every harness has: a folder, a store to look into, and a witness of what was done to the world outside.

Nothing is started here but the witness; tests/support/place.py adds a home and commands."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from outlast.chaos.witness.client import Performance, Witness
from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.store.protocol import RunFilter, Store, Summary
from tests.support.inprocess import reading


class StoreAndWitness:
    """Used in a `with` block: what was entered into `at_end` is over after it."""

    folder: Path
    root: Path  # of the store
    url = ""  # of the store, where it is in a database
    task: str  # whose run is looked at where none is named

    @functools.cached_property
    def at_end(self) -> contextlib.ExitStack:
        return contextlib.ExitStack()

    def close(self) -> None:
        self.at_end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the store -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Store]:
        """The store, opened by the test itself and closed again: its disk may be cut off, or its files damaged."""
        with reading(self.url or self.root) as store:
            yield store

    def runs(self, task: str = "") -> list[Summary]:
        """Newest first; none while there is no store."""
        if not self.url and not self.root.exists():
            return []
        with self.reading() as store:
            return store.list(RunFilter(task=task or self.task))

    def summary(self, task: str = "") -> Summary:
        """The newest run of a task."""
        return self.runs(task)[0]

    def head(self, task: str = "") -> RunState:
        """The same, folded; an empty one while there is none."""
        return next((summary.state for summary in self.runs(task)), RunState())

    def events(self, task: str = "") -> list[ev.AnyEvent]:
        """Its journal."""
        run = self.summary(task).run
        with self.reading() as store:
            return [item.event for item in store.read(run, after=0).events]

    # -- the world outside ---------------------------------------------------------------------------------------

    @functools.cached_property
    def witness(self) -> Witness:
        """It counts what is done to it. Started when it is asked for first."""
        return self.at_end.enter_context(self.start_witness(self.folder / "witness.log"))

    def start_witness(self, log: Path) -> Witness:
        return Witness.start(log)

    def performed(self) -> list[Performance]:
        """What was done to the world, by the witness's log, in this order."""
        return self.witness.performances()
