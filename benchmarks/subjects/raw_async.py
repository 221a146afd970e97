"""Raw group commit for async code: tasks hand over a row and wait; a thread commits all waiting rows.

The event loop never waits for the disk. No run, no fence, no encoding: what is left is the price of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import apsw

from benchmarks.measure import Place
from benchmarks.race import Race
from benchmarks.subjects.raw_sqlite import BODY, INSERT, connect


class Committer:
    """Commits the rows that gathered during the last commit."""

    def __init__(self, database: apsw.Connection, thread: ThreadPoolExecutor) -> None:
        self._database = database
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._busy = False

    def insert(self) -> asyncio.Future[None]:
        durable = self._loop.create_future()
        self._waiting.append(durable)
        if not self._busy:
            # Not at once: tasks that are ready to run now belong to the same commit.
            self._busy = True
            self._loop.call_soon(self._begin)
        return durable

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        self._thread.submit(self._commit, batch)

    def _commit(self, batch: list[asyncio.Future[None]]) -> None:
        with self._database:
            self._database.executemany(INSERT, ((BODY,) for _ in batch))
        self._loop.call_soon_threadsafe(self._wake, batch)

    def _wake(self, batch: list[asyncio.Future[None]]) -> None:
        for durable in batch:
            durable.set_result(None)
        self._busy = bool(self._waiting)
        if self._busy:
            self._loop.call_soon(self._begin)


def race_all(place: Place, races: Iterator[Race]) -> None:
    database = connect(place)
    with ThreadPoolExecutor(1) as thread:
        for race in races:
            asyncio.run(_race(race, database, thread))


async def _race(race: Race, database: apsw.Connection, thread: ThreadPoolExecutor) -> None:
    committer = Committer(database, thread)

    async def runner() -> None:
        await committer.insert()
        await race.line()
        for _ in range(race.beats):
            await committer.insert()
        race.home()

    await asyncio.gather(*(runner() for _ in range(race.runs)))
