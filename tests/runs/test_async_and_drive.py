"""The same names awaited; many runs sharing commits; and `outlast.drive`."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.runs.beat import beat_engine
from outlast.runs.run import run_engine
from tests.support import inprocess, processes, strace
from tests.support.environment import skip_or_fail
from tests.support.inprocess import at_point, attempt, head_of, tags

Start = Callable[..., Run]


def test_the_snippet_of_the_readme_works_awaited(start: Start, store: Path) -> None:
    async def ask_model(context: str, step: str) -> str:
        await asyncio.sleep(0)
        return f"{step}: {len(context) > 0}"

    async def post_comment(*, issue: int, body: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"url": f"u/{issue}/{body}"}

    async def make_plan() -> list[str]:
        return ["one", "two"]

    async def main() -> None:
        async with start(goal="g", done=["true"]) as run:
            await run.plan(make_plan)
            async for beat in run.beats():
                draft = await beat.decide("draft", ask_model, await run.context(tokens_max=8_000), beat.step)
                posted = await beat.act("comment", post_comment, issue=7, body=draft)
                await beat.remember("notes", "file:notes.md")
                await beat.stage("s")
                await beat.spend(3)
                await beat.extend(["three"]) if beat.step == "two" else None
                await beat.done(result=posted["url"], evidence={"url": posted["url"]})
            await run.remember("late", "x:y")
        assert run.is_done

    asyncio.run(main())
    head = head_of(store)
    assert [item.step for item in head.recent] == ["one", "two", "three"]
    assert head.status == "done"


def test_plain_functions_work_in_an_async_run_and_errors_come_through(start: Start, store: Path) -> None:
    class Boom(Exception):
        pass

    async def main() -> None:
        async with start() as run:
            await run.plan(["a"])
            async for beat in run.beats():
                assert await beat.decide("d", lambda: 5) == 5
                raise Boom

    with pytest.raises(Boom):
        asyncio.run(main())
    assert head_of(store).cause == "crash"


def test_fifty_async_runs_share_commits(start: Start, store: Path) -> None:
    """Counted where commits are made: fewer of them than appends."""
    commits: list[int] = []

    async def one(number: int) -> None:
        async with start(f"t{number}") as run:
            await run.plan(["a", "b", "c"])
            async for beat in run.beats():
                await beat.decide("d", lambda: number)
                await beat.act("a", lambda: number)
                await beat.done(number)
        assert run.is_done

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(50)))

    with inprocess.armed(lambda name: commits.append(1) if name == "store.after_commit" else None):
        asyncio.run(main())
    appends = 50 * (1 + 3 * 4 + 2)
    assert len(commits) < appends / 2
    for number in range(50):
        head = head_of(store, f"t{number}")
        assert (head.status, head.beats, head.effects_total) == ("done", 3, 3)


MANY = """
import asyncio, sys, outlast
async def one(number):
    async with outlast.run(f"t{number}", store=sys.argv[1], project="p") as run:
        await run.plan([str(n) for n in range(20)])
        async for beat in run.beats():
            await beat.done(number)
async def main():
    await asyncio.gather(*(one(number) for number in range(50)))
asyncio.run(main())
"""


@pytest.mark.strace
def test_fifty_async_runs_share_fsyncs(store: Path) -> None:
    reason = strace.available()
    if reason is not None:
        skip_or_fail(reason)
    store.mkdir()
    trace = strace.Traced(processes.python_command(MANY, str(store)), store, strace.SYNCS).run()
    assert trace.returncode == 0, trace.output
    assert trace.count() < 50 * 20 / 2


def test_a_sibling_that_outlives_the_block_gets_an_error_and_does_not_hang(start: Start) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        late: list[asyncio.Task[Any]] = []
        async with start() as run:
            async for beat in run.beats():
                late.append(asyncio.create_task(beat.act("slow", gate.wait)))
                while not beat_engine(beat)._in_flight:
                    await asyncio.sleep(0)
                for _ in range(200):
                    await asyncio.sleep(0)
                break
        gate.set()
        with pytest.raises(outlast.OutlastError):
            await asyncio.wait_for(late[0], 5)

    asyncio.run(main())


# -- drive -------------------------------------------------------------------------------------------------------


class SixPhases:
    """An agent in six phases that does nothing but note what it was asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.world: list[str] = []

    def plan(self) -> list[str]:
        self.calls.append("plan")
        return ["one", "two"]

    def context(self, beat: outlast.Beat) -> str:
        self.calls.append("context")
        return beat.step

    def reason(self, beat: outlast.Beat, context: str) -> str:
        self.calls.append("reason")
        return f"do {context}"

    def act(self, beat: outlast.Beat, decision: str) -> Any:
        self.calls.append("act")
        return beat.act("post", self.post, decision)

    def post(self, text: str) -> str:
        self.world.append(text)
        return f"did {text}"

    def observe(self, beat: outlast.Beat, outcome: str) -> str:
        self.calls.append("observe")
        return outcome.upper()

    def learn(self, beat: outlast.Beat, observation: str) -> None:
        self.calls.append("learn")
        beat.remember("last", f"x:{observation}")


class Awaited(SixPhases):
    """The same, with async phases."""

    async def reason(self, beat: outlast.Beat, context: str) -> str:
        await asyncio.sleep(0)
        return super().reason(beat, context)

    async def act(self, beat: outlast.Beat, decision: str) -> Any:
        return await super().act(beat, decision)

    async def post(self, text: str) -> str:
        await asyncio.sleep(0)
        return super().post(text)


PHASES = ["context", "reason", "act", "observe", "learn"]


def test_an_agent_is_carried_through_its_six_phases(start: Start, store: Path) -> None:
    agent = SixPhases()
    with start() as run:
        outlast.drive(run, agent)
    assert run.is_done
    assert agent.calls == ["plan", *PHASES, *PHASES]
    assert agent.world == ["do one", "do two"]
    head = head_of(store)
    assert [item.text for item in head.recent] == ['"DID DO ONE"', '"DID DO TWO"']
    assert head.memory[0].uri == "x:DID DO TWO"


def test_an_async_agent_is_carried_through_its_six_phases(start: Start) -> None:
    agent = Awaited()

    async def main() -> None:
        async with start() as run:
            await outlast.drive(run, agent)
        assert run.is_done

    asyncio.run(main())
    assert agent.calls == ["plan", *PHASES, *PHASES]
    assert agent.world == ["do one", "do two"]


@pytest.mark.parametrize(
    "point", ["plan.recorded", "decide.recorded", "act.confirmed", "beat.before_done", "beat.done"]
)
def test_a_killed_agent_goes_on_without_asking_or_acting_twice(start: Start, point: str) -> None:
    agent = SixPhases()

    def body(run: Run) -> None:
        outlast.drive(run, agent)

    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert agent.calls.count("plan") == 1
    assert agent.calls.count("reason") == 2
    assert agent.world == ["do one", "do two"]


def test_an_agent_may_leave_out_phases_and_end_its_beat_and_run_itself(start: Start, store: Path) -> None:
    class Small:
        def reason(self, beat: outlast.Beat, context: str) -> str:
            return context

        def act(self, beat: outlast.Beat, decision: str) -> str:
            if beat.number == 2:
                beat.finish("enough")
            return decision

        def observe(self, beat: outlast.Beat, outcome: str) -> str:
            beat.done("by myself")
            return outcome

    with start(goal="the goal") as run:
        outlast.drive(run, Small())
        assert run.is_done or run_engine(run).state.over
    assert head_of(store).beats == 2
    assert tags(store).count("beat_done") == 2


# -- the package -------------------------------------------------------------------------------------------------


def test_importing_makes_no_thread_no_file_and_no_output(tmp_path: Path) -> None:
    script = "import threading, outlast; assert threading.active_count() == 1"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr, list(tmp_path.iterdir())) == (0, "", "", [])


def test_everything_exported_is_there_and_every_error_has_its_place() -> None:
    for name in outlast.__all__:
        assert hasattr(outlast, name), name
    errors = [getattr(outlast, name) for name in outlast.__all__ if isinstance(getattr(outlast, name), type)]
    ours = [error for error in errors if issubclass(error, BaseException)]
    assert len(ours) > 30
    assert all(issubclass(error, outlast.OutlastError) for error in ours)
