"""DBOS on SQLite: one workflow that calls one step for ever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from itertools import count

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.measure import RESULT, RUN, Lap, Place
from benchmarks.race import Race


def settings(url: str) -> DBOSConfig:
    # A fixed version, because a workflow is recovered only by the version of the code that began it.
    return {"name": "bench", "system_database_url": url, "application_version": "1", "log_level": "ERROR"}


def sqlite_url(place: Place) -> str:
    return "sqlite:///" + place.path("dbos.db")


def steps(place: Place, lap: Lap) -> None:
    resuming = os.path.exists(place.path("dbos.db"))
    forever(sqlite_url(place), lap, resuming=resuming)


def forever(url: str, lap: Lap, *, resuming: bool) -> None:
    DBOS(config=settings(url))
    performed = False

    @DBOS.step()
    def work(number: int) -> str:
        nonlocal performed
        performed = True
        return RESULT

    @DBOS.workflow()
    def workflow() -> None:
        for number in count():
            work(number)
            if performed:  # and not replayed
                lap()

    DBOS.launch()
    if resuming:
        threading.Event().wait()  # launching has set a thread of DBOS to recover the workflow
    with SetWorkflowID(RUN):
        workflow()


def race_all(place: Place, races: Iterator[Race]) -> None:
    DBOS(config=settings(sqlite_url(place)))
    entered: dict[int, Race] = {}

    @DBOS.step()
    async def work() -> str:
        return RESULT

    @DBOS.workflow()
    async def workflow(number: int) -> None:
        race = entered[number]
        await work()
        await race.line()
        for _ in range(race.beats):
            await work()
        race.home()

    async def one(race: Race) -> None:
        handles = []
        for runner in range(race.runs):
            with SetWorkflowID(race.name(runner)):
                handles.append(await DBOS.start_workflow_async(workflow, race.number))
        for handle in handles:
            await handle.get_result()

    async def all_of_them() -> None:
        for race in races:
            entered[race.number] = race
            await one(race)

    DBOS.launch()
    asyncio.run(all_of_them())
