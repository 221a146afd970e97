"""A store that is written to while others look at it."""

import threading
from datetime import UTC, datetime
from pathlib import Path

from outlast.core import events as ev
from outlast.core.values import Contract
from outlast.store import open_store
from outlast.store.protocol import Batch


class Writer:
    """Holds one run of a store and writes to it, as a running agent does."""

    def __init__(self, root: Path, task: str = "1411") -> None:
        self.root = root
        self._store = open_store(root)
        opened = ev.RunOpened(
            at=datetime.now(UTC), run=f"r{task}abcdef", task=task, project="p", contract=Contract("goal")
        )
        self.run = self._store.create(opened)
        self._lease = self._store.claim(self.run)
        self.seq = 1
        self._lock = threading.Lock()

    def write(self, events: int) -> None:
        """So many events in one commit."""
        with self._lock:
            now = datetime.now(UTC)
            made = tuple(ev.StageSet(at=now, stage=f"{self.seq + n}") for n in range(events))
            self._store.append(Batch(self._lease, self.run, self.seq, made))
            self.seq += events

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.release(self._lease)
        self._store.close()
