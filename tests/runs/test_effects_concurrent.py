"""Effects side by side in one beat, and effects that outlast their time limit."""

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.core.state import EFFECTS_OPEN_MAX
from outlast.runs.beat import beat_engine
from outlast.runs.run import run_engine
from tests.runs.effect_world import EffectWorld, Start, probe
from tests.support import processes
from tests.support.inprocess import head_of, tags

# -- concurrency inside one beat --------------------------------------------------------------------------------------


def test_two_calls_of_one_name_at_once_are_ambiguous_and_keys_tell_them_apart(start: Start) -> None:
    world = EffectWorld()

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                gate = asyncio.Event()

                async def post(body: str, gate: asyncio.Event = gate) -> str:
                    await gate.wait()
                    world.post(body)
                    return body

                first = asyncio.create_task(beat.act("post", post, "1"))
                await asyncio.sleep(0)
                with pytest.raises(outlast.AmbiguousOccurrence):
                    await beat.act("post", post, "2")
                gate.set()
                assert await first == "1"
                keyed = [beat.act("post", post, body, key=body) for body in "345"]
                assert await asyncio.gather(*keyed) == ["3", "4", "5"]
                assert await asyncio.gather(*(beat.act(name, post, name) for name in "67")) == ["6", "7"]
                beat.finish()
                await beat.done()

    asyncio.run(main())
    assert sorted(world.done) == ["1", "3", "4", "5", "6", "7"]


def test_more_open_effects_than_a_beat_may_have_are_refused(start: Start, store: Any) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                gate = asyncio.Event()
                calls = [asyncio.create_task(beat.act(f"a{number}", gate.wait)) for number in range(70)]
                while not any(call.done() for call in calls):
                    await asyncio.sleep(0)
                gate.set()
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(end) for end in ended].count(outlast.UsageError) == 70 - EFFECTS_OPEN_MAX
                beat.finish()
                await beat.done()

    asyncio.run(main())
    assert head_of(store).effects_total == EFFECTS_OPEN_MAX


def test_threads_of_one_run_may_act_at_the_same_time(start: Start, store: Any) -> None:
    world = EffectWorld()
    barrier = threading.Barrier(8)
    with start() as run:
        for beat in run.beats():

            def work(number: int, beat: outlast.Beat = beat) -> None:
                barrier.wait()
                beat.decide(f"d{number}", lambda: number)
                beat.act(f"a{number}", world.post, str(number))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            beat.finish()
            beat.done()
    assert sorted(world.done) == sorted("01234567")
    recorded = tags(store)
    assert recorded.count("beat_begun") == 1
    assert recorded.index("beat_begun") < min(recorded.index("decided"), recorded.index("effect_intended"))


def test_the_beats_beginning_comes_first_whichever_thread_commits_first(start: Start, store: Any) -> None:
    """Two threads record at once: the one that saw the beat not begun is overtaken on its way to the commit."""
    from outlast.runs.engine.drivers import blocking

    with start() as run:
        for beat in run.beats():
            slow = beat_engine(beat).steps_of_decide("slow", lambda: 1)
            held = slow.send(None)
            while not hasattr(held, "events"):
                held = slow.send(held.fn())
            beat.decide("fast", lambda: 2)
            blocking(run_engine(run).journal, _resumed(held, slow))
            break
    recorded = tags(store)
    assert recorded.index("beat_begun") < recorded.index("decided")


def _resumed(first: Any, steps: Any) -> Any:
    answer = yield first
    while True:
        try:
            answer = yield steps.send(answer)
        except StopIteration as stop:
            return stop.value


# -- time limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async", "thread in async"])
def test_an_act_that_takes_too_long_is_in_doubt(start: Start, store: Any, kind: str) -> None:
    gate = threading.Event()

    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                await beat.act("slow", forever if kind == "async" else gate.wait, timeout_s=0.02)

    try:
        with pytest.raises(outlast.EffectInDoubt, match="no answer within"):
            if kind == "sync":
                with start() as run:
                    for beat in run.beats():
                        beat.act("slow", gate.wait, timeout_s=0.02)
            else:
                asyncio.run(main())
    finally:
        gate.set()
    assert head_of(store).status == "in_doubt"


@pytest.mark.parametrize("is_async", [False, True])
def test_an_act_in_time_returns_and_its_own_errors_come_through(start: Start, is_async: bool) -> None:
    def refuse() -> None:
        raise outlast.DidNotHappen("no")

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                assert await beat.act("quick", lambda: 7, timeout_s=30) == 7
                with pytest.raises(outlast.EffectFailed):
                    await beat.act("refused", refuse, timeout_s=30)
                break

    if is_async:
        asyncio.run(main())
        return
    with start() as run:
        for beat in run.beats():
            assert beat.act("quick", lambda: 7, timeout_s=30) == 7
            with pytest.raises(outlast.EffectFailed):
                beat.act("refused", refuse, timeout_s=30)
            break


def test_a_did_not_does_not_count_while_the_timed_out_act_still_runs(start: Start, store: Any) -> None:
    world, gate = EffectWorld(), threading.Event()

    def slow() -> None:
        gate.wait()
        world.post()

    try:
        with pytest.raises(outlast.EffectInDoubt), start() as run:
            for beat in run.beats():
                beat.act("slow", slow, probe=probe(world.look), timeout_s=0.02)
    finally:
        gate.set()
    assert "may still be under way" in head_of(store).effects_open[0].evidence


def test_the_next_attempt_does_not_repeat_an_act_whose_thread_outlived_its_attempt(start: Start) -> None:
    """The attempt ended, its process did not: the old call is still under way, so a "did not" proves nothing."""
    world, gate = EffectWorld(), threading.Event()
    ended = threading.Event()

    def slow() -> None:
        gate.wait()
        world.post()
        ended.set()

    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("slow", slow, probe=probe(world.look), timeout_s=0.02)
    try:
        with start() as run:
            for beat in run.beats():
                beat.act("slow", world.post, probe=probe(world.look))
                break
    except outlast.OutlastError:
        pass
    gate.set()
    assert ended.wait(10)
    assert world.done == ["hello"]


OUTLIVING = """
import sys, threading, outlast
from pathlib import Path
store, world = sys.argv[1], Path(sys.argv[2])
go, ended = threading.Event(), threading.Event()
def slow():
    go.wait()
    with world.open("a") as file:
        file.write("done\\n")
    ended.set()
try:
    with outlast.run("t", store=store, project="p") as run:
        for beat in run.beats():
            beat.act("slow", slow, timeout_s=0.02)
except outlast.EffectInDoubt:
    pass
print("left", flush=True)
sys.stdin.readline()
go.set()
ended.wait(20)
"""


def test_a_did_not_proves_nothing_while_the_process_of_the_ended_attempt_still_acts(
    start: Start, store: Any, tmp_path: Path
) -> None:
    """The attempt ended, its thread did not, and the next attempt is another process."""
    world = tmp_path / "world"
    world.touch()

    def look() -> object:
        return outlast.Happened() if world.read_text() else outlast.DidNotHappen()

    def act() -> None:
        with world.open("a") as file:
            file.write("done\n")

    command_ = processes.python_command(OUTLIVING, str(store), str(world))
    with subprocess.Popen(command_, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"left\n"
        try:
            with start() as run:
                for beat in run.beats():
                    beat.act("slow", act, probe=probe(look))
                    break
        except outlast.OutlastError:
            pass
        process.communicate(b"go on\n", timeout=30)
    assert world.read_text() == "done\n"
