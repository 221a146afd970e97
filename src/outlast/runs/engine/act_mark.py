"""The mark in our environment while an act is performed: whatever the act starts inherits it, and is found by it later."""

import contextlib
import threading
from collections.abc import Iterator

from outlast import settings
from outlast.store.protocol import Lease

NAME = "OUTLAST_ACTS"  # as `processes.reap` looks for it


class _Marks:
    """The attempts of this process that have an act under way, each with how many acts.

    The variable names attempts and not acts, so that it takes few different values: the C library keeps every value
    that a variable ever had. The start time of a process says which act it belongs to.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: dict[str, int] = {}
        self._inherited: str | None = None

    def enter(self, mark: str) -> None:
        with self._mutex:
            if self._inherited is None:
                self._inherited = settings.variable(NAME)
            self._counts[mark] = self._counts.get(mark, 0) + 1
            if self._counts[mark] == 1:
                self._show()

    def leave(self, mark: str) -> None:
        with self._mutex:
            self._counts[mark] -= 1
            if not self._counts[mark]:
                del self._counts[mark]
                self._show()

    def _show(self) -> None:
        assert self._inherited is not None, "an act was entered"
        settings.adopt({NAME: " ".join([*self._inherited.split(), *sorted(self._counts)])})


_marks = _Marks()


@contextlib.contextmanager
def marked(lease: Lease) -> Iterator[None]:
    """Inside it every process that is started carries the attempt's mark, unless it is given an environment without it."""
    mark = f"{lease.run}.{lease.epoch}"
    _marks.enter(mark)
    try:
        yield
    finally:
        _marks.leave(mark)
