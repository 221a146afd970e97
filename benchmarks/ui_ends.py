"""Both ends of `outlast ui`, in processes of their own: python -m benchmarks.ui_ends writer | pages | counted …

`writer` and `pages` read one command per line and answer each with one JSON line. See `Writer`, `OpenPage`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RUNS = 8
EVENTS_A_SECOND = 16  # of eight agents together: two each, more than a model sustains
AGAIN_S = 1.0
CLIENT = "outlast-ui-client"  # the threads of requests


def now() -> datetime:
    return datetime.now(UTC)


# -- the writer ------------------------------------------------------------------------------------------------------


class Writer:
    """Eight working runs of a store. They write beats on command."""

    def __init__(self, folder: str) -> None:
        from outlast.core import events as ev
        from outlast.store import open_store
        from outlast.store.protocol import Batch
        from tests.support.journals.cast import CLAUDE
        from tests.support.journals.scribe import Scribe, payload

        self._batch, self._done = Batch, ev.BeatDone
        self._result = payload({"calls": ["Bash pytest -q"], "said": "x" * 200})
        self._store = open_store(folder)
        self._runs: list[list[Any]] = []
        rng = random.Random(time.time_ns())
        for number in range(RUNS):
            scribe = Scribe(
                rng, now(), f"writer {number} {rng.random()}", "/srv/code/written/.git", "write", CLAUDE
            ).start()
            run = self._store.create(*scribe.journal)
            self._runs.append([run, self._store.claim(run), 1 + len(scribe.events), 0])

    def beat(self, number: int) -> float:
        """One beat of a run; return how long its commit took."""
        known = self._runs[number % RUNS]
        run, lease, seq, beats = known
        event = self._done(at=now(), beat=beats + 1, result=self._result)
        began = time.perf_counter()
        self._store.append(self._batch(lease, run, seq, (event,)))
        took_s = time.perf_counter() - began
        known[2:] = seq + 1, beats + 1
        return took_s

    def paced(self, seconds: float) -> list[float]:
        """Beats at an even pace; return what each commit took."""
        began, times = time.perf_counter(), list[float]()
        while (due := began + len(times) / EVENTS_A_SECOND) < began + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            times.append(self.beat(len(times)))
        return times

    def flood(self, seconds: float) -> list[float]:
        """As many beats as possible; return what each commit took."""
        until, times = time.perf_counter() + seconds, list[float]()
        while time.perf_counter() < until:
            times.append(self.beat(len(times)))
        return times

    def spread(self, count: float) -> list[float]:
        """Some beats at odd moments; return when each was durable."""
        rng, ends = random.Random(5), list[float]()
        for number in range(int(count)):
            time.sleep(rng.uniform(0.02, 0.15))
            self.beat(number)
            ends.append(time.monotonic())
        return ends


def serve_writer(folder: str) -> None:
    writer = Writer(folder)
    answer(len(writer._runs))
    acts: dict[str, Callable[[float], list[float]]] = {
        "paced": writer.paced,
        "flood": writer.flood,
        "spread": writer.spread,
    }
    for line in sys.stdin:
        word, amount = line.split()
        answer(acts[word](float(amount)))


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


# -- the pages -------------------------------------------------------------------------------------------------------


class OpenPage:
    """One page in a browser: an event stream, and after an event the overview again, at most once a second.

    `heard` has when each event came, `seen` when the overview had come again after it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._news = asyncio.Event()
        self._number = 0
        self.heard: list[float] = []
        self.seen: list[float] = []
        self.fetched = 0

    async def live(self) -> None:
        await asyncio.gather(self._listen(), self._refetch())

    async def _ask(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        known = f"Outlast-Number: {self._number}\r\n" if self._number else ""
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAccept-Encoding: gzip\r\n{known}\r\n"
        )
        writer.write(head.encode())
        return reader, writer

    async def _listen(self) -> None:
        reader, writer = await self._ask("/api/events")
        try:
            event = ""
            while line := await reader.readline():
                if line.startswith(b"event:"):
                    event = line.split(b":", 1)[1].strip().decode()
                if line.startswith(b"data:"):
                    if event != "hello":
                        self.heard.append(time.monotonic())
                        self._number = json.loads(line[5:])["n"]
                        self._news.set()
                    event = ""
        finally:
            writer.close()

    async def _refetch(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            known = len(self.heard)
            await self.fetch("/")
            self.seen += [time.monotonic()] * (known - len(self.seen))
            await asyncio.sleep(AGAIN_S)

    async def fetch(self, path: str) -> None:
        reader, writer = await self._ask(path)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            self.fetched += 1
        finally:
            writer.close()


async def serve_pages(url: str) -> None:
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    loop = asyncio.get_running_loop()
    pages: list[OpenPage] = []
    tasks: list[asyncio.Task[None]] = []
    answer(0)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, amount = line.split()
        match word:
            case "open":
                pages = [OpenPage(place.hostname, place.port) for _ in range(int(amount))]
                await asyncio.gather(*(page.fetch("/") for page in pages))
                tasks = [loop.create_task(page.live()) for page in pages]
                await asyncio.sleep(0.3)
                answer(len(pages))
            case "close":
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                told = {"heard": [page.heard for page in pages], "seen": [page.seen for page in pages]}
                answer(told | {"fetched": sum(page.fetched for page in pages)})


# -- counting --------------------------------------------------------------------------------------------------------


def serve_counted(place: str, words: list[str]) -> None:
    """Run the command, and count in eight bytes of a file every SQL statement of a request's thread."""
    import apsw

    from outlast.cli.main import main

    Path(place).write_bytes(bytes(8))
    with open(place, "r+b") as file:
        count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")

    def trace(cursor: object, sql: str, bindings: object) -> bool:
        asked = threading.current_thread().name == CLIENT
        count[0] += asked and not sql.lstrip().upper().startswith("PRAGMA")
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    apsw.connection_hooks.append(hook)
    sys.argv = ["outlast", *words]
    sys.exit(main())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["writer", folder]:
            serve_writer(folder)
        case ["pages", url]:
            asyncio.run(serve_pages(url))
        case ["counted", place, *words]:
            serve_counted(place, words)
