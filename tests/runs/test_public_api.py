"""What users hold: `Run` and `Beat` show what is theirs; the same object works in either block."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, NamedTuple

import pytest

import outlast
from outlast.runs.run import run_engine

Start = Callable[..., outlast.Run]

OF_A_RUN = {
    "beats", "budget", "context", "contract", "finish", "id", "is_done", "plan", "remember", "result", "status", "task",
}  # fmt: skip
OF_A_BEAT = {
    "act", "ask", "closed", "decide", "done", "extend", "finish", "number", "remember", "run", "spend", "stage", "step",
}  # fmt: skip
ATTRIBUTES_MAX = 19


def shown(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


@dataclass
class Issue:
    number: int


class Colour(StrEnum):
    RED = "red"


class TwoNumbers(NamedTuple):
    one: int
    two: int


def test_a_run_and_a_beat_show_what_users_use(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            assert (type(run), type(beat)) == (outlast.Run, outlast.Beat)
            assert (shown(run), shown(beat)) == (OF_A_RUN, OF_A_BEAT)
            beat.finish()
            beat.done()


def test_in_an_async_run_they_show_the_same(start: Start) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                assert (type(run), type(beat)) == (outlast.AsyncRun, outlast.AsyncBeat)
                assert (shown(run), shown(beat)) == (OF_A_RUN, OF_A_BEAT)
                await beat.finish()
                await beat.done()
        assert run.is_done

    asyncio.run(main())


@pytest.mark.parametrize(
    ("plain", "awaited"), [(outlast.Run, outlast.AsyncRun), (outlast.Beat, outlast.AsyncBeat)]
)
def test_both_kinds_take_the_same_arguments(plain: type, awaited: type) -> None:
    for name in shown(plain):
        if callable(getattr(plain, name)):
            one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (plain, awaited))
            assert [(each.name, each.kind, each.default) for each in one.values()] == [
                (each.name, each.kind, each.default) for each in other.values()
            ]


def test_everything_that_users_see_says_what_it_is() -> None:
    for kind in (outlast.Run, outlast.AsyncRun, outlast.Beat, outlast.AsyncBeat):
        assert [name for name in shown(kind) if not getattr(kind, name).__doc__] == []


def test_what_does_the_work_of_a_run_has_few_attributes(start: Start) -> None:
    with start() as run:
        assert len(vars(run_engine(run))) <= ATTRIBUTES_MAX
        beat = next(run.beats())
        assert not hasattr(run, "__dict__")
        assert not hasattr(beat, "__dict__")


def test_the_object_that_run_returned_is_used_inside_an_async_block(start: Start) -> None:
    async def main() -> None:
        run: Any = start()
        async with run:
            await run.plan(["a", "b"])
            async for beat in run.beats():
                assert isinstance(beat, outlast.AsyncBeat)
                assert await run.context() == run.context()
                assert await beat.decide("d", lambda: 1) == 1
                await beat.done()
        assert run.is_done

    asyncio.run(main())


def test_a_run_is_entered_the_other_way_next_time(start: Start) -> None:
    run = start()
    with run as first:
        assert first is run
        run.plan(["a", "b"])
        next(run.beats()).done(1)

    async def main() -> None:
        async with run as second:
            numbers = []
            async for beat in second.beats():
                numbers.append(beat.number)
                await beat.done()
            assert numbers == [2]

    asyncio.run(main())
    assert run.is_done


def test_a_child_may_block_inside_an_async_beat(start: Start) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                with beat.run("part") as child:
                    assert isinstance(child, outlast.Run)
                    for below in child.beats():
                        below.finish(3)
                        below.done()
                await beat.finish(child.result)
                await beat.done()
        assert run.result == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, 2), [1, 2]),
        (TwoNumbers(1, 2), [1, 2]),
        ({"a"}, ["a"]),
        ([(1, 2)], [[1, 2]]),
        ({1: "a"}, {"1": "a"}),
        (Issue(7), {"number": 7}),
        (Colour.RED, "red"),
        (date(2026, 11, 16), "2026-11-16"),
        (b"abc", "YWJj"),
        (outlast.Answer((1,)), [1]),
    ],
)
def test_what_comes_back_is_what_its_type_says(start: Start, value: object, back: object) -> None:
    """The types of `decide` and `act` say it (tests/types); here it is seen."""
    with start() as run:
        for beat in run.beats():
            got = [beat.decide("d", lambda: value)]  # type: ignore[call-overload]
            if not isinstance(value, outlast.Answer):
                got.append(beat.act("a", lambda: value))  # type: ignore[call-overload]
            assert [(type(each), each) for each in got] == [(type(back), back)] * len(got)
            break
