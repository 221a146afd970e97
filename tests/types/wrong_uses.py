"""Wrong uses of the API: mypy and pyright report an error on each line that says so, and on no other. Never run."""

from dataclasses import dataclass
from pathlib import Path

import outlast


@dataclass
class Issue:
    number: int


def text() -> str:
    return ""


def numbers() -> tuple[int, int]:
    return 1, 2


def issue() -> Issue:
    return Issue(1)


def path() -> Path:
    return Path()


async def later() -> str:
    return ""


def look() -> bool:
    return True


def what_comes_back(beat: outlast.Beat) -> None:
    number: int = beat.decide("d", text)  # error
    couple: tuple[int, int] = beat.decide("d", numbers)  # error
    found: Issue = beat.decide("d", issue)  # error
    print(beat.decide("d", issue).number)  # error
    print(beat.act("a", text).number)  # error
    length = len(beat.act("a", text, unknown="give_up"))  # error
    print(number, couple, found, length)


def what_goes_in(beat: outlast.Beat) -> None:
    beat.decide("d", path)  # error
    beat.decide("d", text())  # error
    beat.decide(text)  # error
    beat.decide("d", later)  # error
    beat.act("a", later)  # error
    beat.act("a", text, unknown="hope")  # error
    beat.act("a", text, retry="twice")  # error
    beat.act("a", text, probe=look)  # error
    beat.act("a", text, key=7)  # error
    beat.extend("step")  # error
    beat.extend(["step"], where="before")  # error
    beat.remember("notes", Path("notes.md"))  # error
    beat.stage(3)  # error
    beat.spend("many")  # error
    beat.run("part", budget="400k")  # error
    beat.nothing()  # error


def of_a_run() -> None:
    with outlast.run("t", files="forget") as run:  # error
        run.plan("read")  # error
        run.plan([1, 2])  # error
        run.plan(later)  # error
        run.context(tokens_max="8k")  # error
        print(run.journal)  # error
        print(run.beats().number)  # error
    outlast.run("t", budgets="400k")  # error
    outlast.run("t", budget=2.5)  # error
    outlast.run(None)  # error


async def blocking_where_it_is_awaited() -> None:
    async with outlast.run("t") as run:
        run.plan(["a"])  # error
        for _ in run.beats():  # error
            pass
        async for each in run.beats():
            each.decide("d", text)  # error
            each.done()  # error
            said: str = each.act("a", later)  # error
            number: int = await each.decide("d", later)  # error
            found: Issue = await each.decide("d", issue)  # error
            with each.run("part") as child:
                async for _ in child.beats():  # error
                    pass
            print(said, number, found)


async def awaited_where_it_blocks() -> None:
    with outlast.run("t") as run:
        async for _ in run.beats():  # error
            pass
        for each in run.beats():
            await each.done()  # error
            await each.decide("d", text)  # error


class BlockingAgent:
    def reason(self, beat: outlast.Beat, context: str) -> str:
        return context

    def act(self, beat: outlast.Beat, decision: str) -> str:
        return decision

    def observe(self, beat: outlast.Beat, outcome: str) -> str:
        return outcome


class HalfAnAgent:
    def reason(self, beat: outlast.Beat, context: str) -> str:
        return context


async def driven() -> None:
    with outlast.run("t") as run:
        outlast.drive(run, HalfAnAgent())  # error
    async with outlast.run("t") as later_run:
        await outlast.drive(later_run, BlockingAgent())  # error
