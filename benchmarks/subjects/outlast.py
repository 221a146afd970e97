"""outlast, without a plan or a workspace: open-ended beats, each ended by one `done` with a result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import outlast
from benchmarks.measure import RESULT, RUN, Lap, Place

if TYPE_CHECKING:
    from benchmarks.race import Race


def open_run(place: Place, task: str = RUN) -> Any:
    return outlast.run(task, goal="measure", store=place.path("outlast"), project="bench")


def steps(place: Place, lap: Lap) -> None:
    with open_run(place) as run:
        for beat in run.beats():
            beat.done(result=RESULT)
            lap()


def decide_steps(place: Place, lap: Lap) -> None:
    with open_run(place) as run:
        for beat in run.beats():
            beat.done(result=beat.decide("draft", lambda: RESULT))
            lap()


def lazy_steps(place: Place, lap: Lap) -> None:
    with open_run(place) as run:
        for beat in run.beats():
            beat.done(result=beat.decide("draft", lambda: RESULT, lazy=True))
            lap()


def act_steps(place: Place, lap: Lap) -> None:
    def act(idempotency_key: str) -> str:
        return RESULT

    with open_run(place) as run:
        for beat in run.beats():
            beat.done(result=beat.act("act", act))
            lap()


def race_all(place: Place, races: Iterator[Race]) -> None:
    import asyncio  # 35 ms, which the start of a run that needs none of it must not pay

    for race in races:
        asyncio.run(_race(place, race))


async def _race(place: Place, race: Race) -> None:
    import asyncio

    async def runner(name: str) -> None:
        async with open_run(place, name) as run:
            async for beat in run.beats():
                await beat.done(result=RESULT)
                if beat.number == 1:
                    await race.line()
                if beat.number == race.beats + 1:
                    break
            race.home()

    await asyncio.gather(*(runner(race.name(number)) for number in range(race.runs)))
