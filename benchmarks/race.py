"""Many runs at once: they start together, and the clock stops when the last one has finished."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.measure import Channel, Snapshot


class Race:
    """One batch. Opening the runs and one warm-up step each come before the start, so they are not timed."""

    def __init__(self, number: int, runs: int, beats: int) -> None:
        self.number = number
        self.runs = runs
        self.beats = beats
        self._at_line = 0
        self._home = 0
        self._gun = asyncio.Event()
        self._start: Snapshot | None = None
        self.spent: dict[str, float] = {}

    def name(self, runner: int) -> str:
        return f"race-{self.number}-{runner}"

    async def line(self) -> None:
        self._at_line += 1
        if self._at_line == self.runs:
            self.start()
            self._gun.set()
        await self._gun.wait()

    def start(self) -> None:
        self._start = Snapshot()

    def home(self) -> None:
        self._home += 1
        if self._home == self.runs:
            self.stop()

    def stop(self) -> None:
        assert self._start is not None, "a race stops only after its start"
        self.spent = Snapshot().since(self._start)


def races(channel: Channel, runs: int) -> Iterator[Race]:
    """One race per go, whose number is the beats of a run; the report follows when the subject has finished."""
    channel.report(ready=True)
    number = 0
    while True:
        race = Race(number, runs, channel.wait_for_go())
        yield race
        channel.report(steps=runs * race.beats, **race.spent)
        number += 1
