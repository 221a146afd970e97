"""Right uses of the API: mypy and pyright, both strict, find nothing here. It is checked, not run."""

import json
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, assert_type

import outlast
from outlast import AsyncBeat, AsyncRun, Beat, Run


@dataclass
class Issue:
    number: int


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    name: str
    again: str


def text(about: str = "") -> str:
    return about


def number() -> int:
    return 1


def maybe() -> str | None:
    return None


def word() -> Literal["yes", "no"]:
    return "yes"


def names() -> list[str]:
    return []


def rows() -> list[dict[str, int]]:
    return []


def tree() -> dict[str, list[float]]:
    return {}


def anything() -> dict[str, Any]:
    return {}


def counted(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def numbers() -> tuple[int, int]:
    return 1, 2


def many() -> tuple[str, ...]:
    return ()


def some() -> set[str]:
    return set()


def pair() -> Pair:
    return Pair("a", "b")


def pairs() -> list[tuple[int, int]]:
    return []


def by_number() -> dict[int, str]:
    return {}


def issue() -> Issue:
    return Issue(1)


def perhaps_issue() -> Issue | None:
    return None


def colour() -> Colour:
    return Colour.RED


def now() -> datetime:
    return datetime.now(UTC)


def priced() -> outlast.Answer[str]:
    return outlast.Answer("", outlast.Usage(input=1))


def priced_numbers() -> outlast.Answer[tuple[int, int]]:
    return outlast.Answer((1, 2))


async def text_later() -> str:
    return ""


async def numbers_later() -> tuple[int, int]:
    return 1, 2


async def issue_later() -> Issue:
    return Issue(1)


async def priced_later() -> outlast.Answer[str]:
    return outlast.Answer("")


def look(to: str) -> outlast.Happened | outlast.DidNotHappen | outlast.CannotTell:
    return outlast.Happened(to)


async def look_later(to: str) -> outlast.Happened | outlast.DidNotHappen:
    return outlast.Happened(to)


def decided(beat: Beat) -> None:
    assert_type(beat.decide("d", text, "about"), str)
    assert_type(beat.decide("d", number), int)
    assert_type(beat.decide("d", maybe), str | None)
    answer: Literal["yes", "no"] = beat.decide("d", word)
    assert_type(beat.decide("d", names), list[str])
    assert_type(beat.decide("d", rows), list[dict[str, int]])
    assert_type(beat.decide("d", tree), dict[str, list[float]])
    assert_type(beat.decide("d", anything), dict[str, Any])
    assert_type(beat.decide("d", numbers), list[int])
    assert_type(beat.decide("d", many), list[str])
    assert_type(beat.decide("d", some), list[str])
    assert_type(beat.decide("d", pair), list[str])
    assert_type(beat.decide("d", pairs), list[Any])
    assert_type(beat.decide("d", by_number), dict[str, Any])
    assert_type(beat.decide("d", issue), dict[str, Any])
    assert_type(beat.decide("d", perhaps_issue), Any)
    assert_type(beat.decide("d", colour), Any)
    assert_type(beat.decide("d", now), Any)
    assert_type(beat.decide("d", priced), str)
    assert_type(beat.decide("d", priced_numbers), list[int])
    assert_type(beat.decide("d", json.loads, "{}"), Any)
    assert_type(beat.decide("d", lambda: 1, lazy=True), int)
    assert answer


def acted(beat: Beat) -> None:
    assert_type(beat.act("a", text, about="x"), str)
    assert_type(beat.act("a", anything, key="k", retry=2, timeout_s=1.5), dict[str, Any])
    assert_type(beat.act("a", numbers, unknown="ask"), list[int])
    assert_type(beat.act("a", issue, unknown="reissue"), dict[str, Any])
    assert_type(beat.act("a", text, "x", unknown="give_up"), str | None)
    assert_type(beat.act("a", anything, unknown="give_up"), dict[str, Any] | None)
    assert_type(beat.act("a", pairs, unknown="give_up"), list[Any] | None)
    assert_type(beat.act("a", text, "x", probe=look), str)
    assert_type(beat.act("a", text, "x", probe=outlast.Probe(look, settle_s=5), unknown="probe"), str)


def one_run() -> None:
    with outlast.run("1411", goal="g", done=["true"], budget=["400k"], files="keep") as run:
        assert_type(run, Run)
        run.plan(["read", ("write", ["draft", "polish"]), {"step": "tell", "steps": ["them"]}])
        run.plan(names)
        run.plan(counted, 3)
        run.plan({"read": None, "write": ["draft"]})
        assert_type(run.beats(), Iterator[Beat])
        for beat in run.beats():
            assert_type(beat, Beat)
            assert_type(run.context(tokens_max=8_000), str)
            assert_type((beat.number, beat.step, beat.closed), tuple[int, str, bool])
            beat.extend(["more"], where="next")
            beat.remember("notes", "file:notes.md")
            beat.spend(output=3)
            beat.spend(outlast.Usage(output=3))
            beat.stage("half")
            with beat.run("part", done="true") as child:
                assert_type(child, Run)
            beat.finish({"all": 1})
            beat.done("result", evidence={"url": "u"})
        run.finish()
        left: outlast.Left = run.budget
    assert_type(run.is_done, bool)
    assert_type((run.id, run.task), tuple[str, str])
    assert left.tokens or run.result or run.status == "done" or run.contract.goal


def the_object_itself() -> None:
    run = outlast.run("1411", budget={"tokens": "400k"})
    assert_type(run, Run)
    with run:
        for beat in run.beats():
            beat.done()


async def decided_later(beat: AsyncBeat) -> None:
    assert_type(await beat.decide("d", text, "about"), str)
    assert_type(await beat.decide("d", numbers), list[int])
    assert_type(await beat.decide("d", issue), dict[str, Any])
    assert_type(await beat.decide("d", text_later), str)
    assert_type(await beat.decide("d", numbers_later), list[int])
    assert_type(await beat.decide("d", issue_later), dict[str, Any])
    assert_type(await beat.decide("d", priced_later), str)
    assert_type(await beat.decide("d", json.loads, "{}"), Any)
    assert_type(await beat.act("a", text_later, key="k"), str)
    assert_type(await beat.act("a", numbers_later), list[int])
    assert_type(await beat.act("a", text_later, unknown="give_up"), str | None)
    assert_type(await beat.act("a", text, "x", probe=look_later), str)
    call: Coroutine[Any, Any, str] = beat.act("a", text_later)
    await call


async def names_later() -> list[str]:
    return []


async def one_async_run() -> None:
    async with outlast.run("1411") as run:
        assert_type(run, AsyncRun)
        await run.plan(names_later)
        await run.plan(names)
        await run.plan(["a"])
        assert_type(run.beats(), AsyncIterator[AsyncBeat])
        async for beat in run.beats():
            assert_type(beat, AsyncBeat)
            context: str = run.context()
            assert_type(await run.context(), str)
            await beat.remember("notes", "file:notes.md")
            beat.spend(output=len(context))
            assert_type(beat.stage("half"), Awaitable[None])
            async with beat.run("part") as child:
                assert_type(child, AsyncRun)
            await beat.done()
        await run.remember("late", "https://example.org")
        await run.finish()
    assert run.is_done


class Driven:
    def plan(self) -> list[str]:
        return ["read"]

    def reason(self, beat: Beat, context: str) -> dict[str, str]:
        return {"say": f"{context} {beat.step}"}

    def act(self, beat: Beat, decision: dict[str, str]) -> str:
        return beat.act("note", text, decision["say"])

    def observe(self, beat: Beat, outcome: str) -> str:
        return outcome


class DrivenLater:
    async def reason(self, beat: AsyncBeat, context: str) -> str:
        return f"{context} {beat.step}"

    async def act(self, beat: AsyncBeat, decision: str) -> str:
        return await beat.act("note", text, decision)

    def observe(self, beat: AsyncBeat, outcome: str) -> str:
        return outcome


def driven() -> None:
    agent: outlast.Agent = Driven()
    with outlast.run("driven") as run:
        outlast.drive(run, agent)


async def driven_later() -> None:
    agent: outlast.AsyncAgent = DrivenLater()
    async with outlast.run("driven") as run:
        await outlast.drive(run, agent)


def hinted(error: outlast.OutlastError) -> tuple[str, int]:
    return error.hint, error.exit_code
