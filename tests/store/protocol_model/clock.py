"""What a process of the model waits for, and the clock of its host."""

from collections.abc import Callable
from typing import Any


class Future:
    def __init__(self) -> None:
        self.value: Any = None
        self.done = False
        self.waiting: list[Callable[[], None]] = []

    def set(self, value: Any) -> None:
        if not self.done:
            self.done, self.value = True, value
            for wake in self.waiting:
                wake()


class Clock:
    """Seconds since boot as a host counts them. `stands`: a paused VM. `asleep`: a laptop; boottime goes on, monotonic not."""

    def __init__(self, rate: float) -> None:
        self.rate, self.stood, self.slept, self.since, self.kind = rate, 0.0, 0.0, None, ""

    def stop(self, now: float, kind: str) -> None:
        self.since, self.kind = now, kind

    def go(self, now: float) -> None:
        assert self.since is not None
        if self.kind == "vm":
            self.stood += now - self.since
        self.slept += now - self.since
        self.since = None

    def read(self, now: float, *, monotonic: bool = False) -> float:
        running = now - self.since if self.since is not None else 0.0
        away = self.slept + running if monotonic else self.stood + (running if self.kind == "vm" else 0.0)
        return (now - away) * self.rate
