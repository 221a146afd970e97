"""outlast with its store in PostgreSQL: the same open-ended beats as in the subject `outlast`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg

import outlast
from benchmarks.measure import RESULT, Lap, Place
from benchmarks.race import Race
from outlast.store import locate

DATABASE = "outlast_bench"


def store_of(place: Place) -> str:
    """A store in a database of its own, made once."""
    with psycopg.connect(place.postgres_url, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
        if found is None:
            connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0 ENCODING 'UTF8'")
    url = f"{place.postgres_url.rpartition('/')[0]}/{DATABASE}"
    locate(url).init()  # type: ignore[attr-defined]
    return url


def open_run(url: str, task: str) -> Any:
    return outlast.run(task, goal="measure", store=url, project="bench")


def steps(place: Place, lap: Lap) -> None:
    with open_run(store_of(place), "one by one") as run:
        for beat in run.beats():
            beat.done(result=RESULT)
            lap()


def race_all(place: Place, races: Iterator[Race]) -> None:
    url = store_of(place)
    for race in races:
        asyncio.run(_race(url, race))


async def _race(url: str, race: Race) -> None:
    async def runner(name: str) -> None:
        async with open_run(url, name) as run:
            async for beat in run.beats():
                await beat.done(result=RESULT)
                if beat.number == 1:
                    await race.line()
                if beat.number == race.beats + 1:
                    break
            race.home()

    await asyncio.gather(*(runner(race.name(number)) for number in range(race.runs)))
