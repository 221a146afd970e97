"""LangGraph with its SQLite saver and durability="sync": a graph of one node that goes to itself.

The state is the cheapest there is, one number and one result: a growing list would be rewritten at every step."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.measure import RESULT, RUN, Lap, Place
from benchmarks.race import Race

STEPS_MAX = 10**9


class State(TypedDict):
    done: int
    result: str


def graph(node: Any, saver: Any, steps: int) -> Any:
    builder = StateGraph(State)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["done"] < steps else END)
    return builder.compile(checkpointer=saver)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": STEPS_MAX}


def steps(place: Place, lap: Lap) -> None:
    first = True

    def work(state: State) -> State:
        # The saver is through with a step before the next one begins, so the lap is taken there.
        nonlocal first
        if not first:
            lap()
        first = False
        return {"done": state["done"] + 1, "result": RESULT}

    saver = SqliteSaver(sqlite3.connect(place.path("langgraph.db"), check_same_thread=False))
    app = graph(work, saver, STEPS_MAX)
    resuming = saver.get_tuple(config(RUN)) is not None
    app.invoke(None if resuming else {"done": 0, "result": ""}, config(RUN), durability="sync")


def race_all(place: Place, races: Iterator[Race]) -> None:
    for race in races:
        asyncio.run(_race(place, race))


async def _race(place: Place, race: Race) -> None:
    async def work(state: State) -> State:
        if state["done"] == 1:
            await race.line()
        return {"done": state["done"] + 1, "result": RESULT}

    async with AsyncSqliteSaver.from_conn_string(place.path("langgraph.db")) as saver:
        app = graph(work, saver, race.beats + 1)

        async def runner(name: str) -> None:
            await app.ainvoke({"done": 0, "result": ""}, config(name), durability="sync")
            race.home()

        await asyncio.gather(*(runner(race.name(number)) for number in range(race.runs)))
