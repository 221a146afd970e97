"""What a subject's process gets: its place, and the laps it calls after each durable step.

Imports as little as possible: every import here is part of the start that the resume benchmark measures."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

RESULT = "x" * 200
RUN = "bench"

Lap = Callable[[], None]


class Place:
    """Where a subject may write: a folder of its own, a PostgreSQL URL if it wants one, the page size to use."""

    __slots__ = ("folder", "page_bytes", "postgres_url")

    def __init__(self, folder: str, postgres_url: str, page_bytes: int) -> None:
        self.folder = folder
        self.postgres_url = postgres_url
        self.page_bytes = page_bytes

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


class Channel:
    """Talks to the driver over the original stdin and stdout; what a library prints goes to the log instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def report(self, **values: Any) -> None:
        import json

        self._out.write(json.dumps(values) + "\n")
        self._out.flush()

    def wait_for_go(self) -> int:
        """The size of the next slice. For anything else the process ends at once: all of it is throw-away."""
        word, _, count = sys.stdin.readline().strip().partition(" ")
        if word != "go":
            os._exit(0)
        return int(count)


class Snapshot:
    """CPU and bytes of this process, all its threads included."""

    __slots__ = ("at_ns", "cpu_s", "user_s", "written_bytes")

    def __init__(self) -> None:
        # A call that nothing else makes: it marks the edges of the slice in an strace.
        os.getpriority(os.PRIO_PROCESS, 0)
        # The sum is exact; its split into user and system is sampled by the kernel's tick.
        self.cpu_s = time.process_time()
        self.user_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        self.written_bytes = _written_bytes()
        self.at_ns = time.perf_counter_ns()

    def since(self, start: Snapshot) -> dict[str, float]:
        return {
            "wall_s": (self.at_ns - start.at_ns) / 1e9,
            "user_s": self.user_s - start.user_s,
            "cpu_s": self.cpu_s - start.cpu_s,
            "written_bytes": self.written_bytes - start.written_bytes,
        }


def _written_bytes() -> int:
    """Bytes given to write calls, by this process."""
    try:
        with open("/proc/self/io") as io:
            return next(int(line.split()[1]) for line in io if line.startswith("wchar"))
    except OSError:
        return 0


class Laps:
    """Times each step; at the end of a slice it reports and holds the process until the driver says go."""

    def __init__(self, channel: Channel, warm_up: int) -> None:
        self._channel = channel
        self._until = warm_up
        self._times: list[int] = []
        self._start: Snapshot | None = None

    def lap(self) -> None:
        times = self._times
        times.append(time.perf_counter_ns())
        if len(times) == self._until:
            self._end_of_slice()

    def _end_of_slice(self) -> None:
        if self._start is None:
            self._channel.report(ready=True)
        else:
            spent = Snapshot().since(self._start)
            starts = [self._start.at_ns, *self._times]
            laps_ns = [end - begin for begin, end in zip(starts, self._times, strict=False)]
            self._channel.report(steps=len(laps_ns), laps_ns=laps_ns, **spent)
        self._until = self._channel.wait_for_go()
        self._times = []
        self._start = Snapshot()


class FirstThenDie:
    """Reports when the first new step is durable, makes a few more, and dies by SIGKILL in the middle of one."""

    def __init__(self, channel: Channel, steps: int) -> None:
        self._channel = channel
        self._left = steps
        self._first_at_ns = 0

    def lap(self) -> None:
        self._first_at_ns = self._first_at_ns or time.monotonic_ns()
        self._left -= 1
        if self._left <= 0:
            self._channel.report(first_at_ns=self._first_at_ns)
            os.kill(os.getpid(), signal.SIGKILL)
