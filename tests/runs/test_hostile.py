"""Programs that do odd things at once, cancel in the middle, or hand over what cannot be written."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast import Run, faults
from outlast.core import events as ev
from outlast.core.values import Contract
from outlast.runs.beat import beat_engine
from outlast.runs.engine.steps import Append
from outlast.runs.run import run_engine
from outlast.store import open_store
from outlast.store.protocol import Batch, RunFilter
from tests.support import inprocess
from tests.support.environment import Isolated
from tests.support.inprocess import ask, head_of, tags

Start = Callable[..., Run]
NOW = 0.0


def probe(look: Callable[..., Any]) -> outlast.Probe:
    return outlast.Probe(look, settle_s=NOW)


def test_an_act_that_first_runs_after_the_beats_end_began_is_refused(start: Start, store: Path) -> None:
    done: list[int] = []

    async def main() -> None:
        async with start() as run:
            run_on = run.beats()
            beat = await anext(run_on)
            late = asyncio.create_task(beat.act("post", lambda: done.append(1)))
            beat.finish()
            await beat.done()
            with pytest.raises(outlast.BeatClosed):
                await late

    asyncio.run(main())
    assert done == []
    assert head_of(store).status == "done"


def test_a_beats_end_that_is_cancelled_while_it_commits_ends_the_beat_once(start: Start, store: Path) -> None:
    async def main() -> None:
        async with start() as run:
            run_on = run.beats()
            beat = await anext(run_on)
            beat.spend(output=100)
            ending = asyncio.create_task(beat.done())
            for _ in range(3):
                await asyncio.sleep(0)
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending
            with pytest.raises(outlast.BeatClosed):
                await beat.done()
            with pytest.raises(outlast.BeatClosed):
                await beat.act("late", lambda: 1)
            await (await anext(run_on)).done()

    asyncio.run(main())
    assert tags(store).count("beat_done") == 2
    assert head_of(store).spent.tokens == 100


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_after_an_async_act_was_cut_off_a_did_not_proves_nothing(start: Start, how: str) -> None:
    """It may have left a thread at work."""
    gate, performed = threading.Event(), []

    def work() -> None:
        gate.wait(10)
        performed.append(1)

    async def main() -> None:
        began = asyncio.Event()

        async def post() -> None:
            began.set()
            await asyncio.to_thread(work)

        async with start() as run:
            async for beat in run.beats():
                look = probe(lambda: outlast.Happened() if performed else outlast.DidNotHappen())
                limit = 0.05 if how == "timed out" else None
                first = asyncio.create_task(beat.act("post", post, probe=look, timeout_s=limit))
                if how == "cancelled":
                    await began.wait()
                    first.cancel()
                with pytest.raises((asyncio.CancelledError, outlast.EffectInDoubt)):
                    await first
                with pytest.raises(outlast.EffectInDoubt):
                    await beat.act("post", post, probe=look)
                gate.set()
                break

    asyncio.run(main())
    assert len(performed) <= 1


INTERRUPTED = """
import os, signal, sys, threading, outlast
gate, performed = threading.Event(), []
def post():
    os.kill(os.getpid(), signal.SIGINT)
    gate.wait(10)
    performed.append(1)
look = outlast.Probe(lambda: outlast.Happened() if performed else outlast.DidNotHappen(), settle_s=0)
with outlast.run("t", store=sys.argv[1], project="p") as run:
    for beat in run.beats():
        try:
            beat.act("post", post, probe=look, timeout_s=30)
        except KeyboardInterrupt:
            pass
        try:
            beat.act("post", post, probe=look, timeout_s=30)
        except outlast.EffectInDoubt:
            print("in doubt")
        gate.set()
        break
"""


def test_after_ctrl_c_a_call_with_a_time_limit_is_known_to_be_under_way(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, store], capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "in doubt\n"), done.stderr


def test_a_child_is_open_once_at_a_time(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            with beat.run("c"), pytest.raises(outlast.RunHeld), beat.run("c"):
                pass
            with beat.run("c") as child:
                child.finish()
            beat.finish()
            beat.done()
    assert run.is_done


def test_what_cannot_be_written_fails_alone_in_a_shared_commit(start: Start, store: Path) -> None:
    async def one(number: int) -> str:
        async with start(f"t{number}") as run:
            async for beat in run.beats():
                answer = msgspec.Raw(b"{") if number == 3 else 1
                try:
                    await beat.decide("x", lambda answer=answer: answer)
                except outlast.NotEncodable:
                    return "refused"
                beat.finish()
                await beat.done()
        return run.status

    async def main() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(8)))

    assert asyncio.run(main()) == ["done"] * 3 + ["refused"] + ["done"] * 4


@pytest.mark.parametrize(
    "odd",
    [
        lambda beat: beat.decide("d", lambda: outlast.Answer(1, outlast.Usage(cost_microusd=0.5))),
        lambda beat: (beat.stage(5), beat.done()),
        lambda beat: (beat.remember("n", "x:1", digest=7), beat.done()),
    ],
    ids=["usage", "stage", "digest"],
)
def test_what_could_not_be_read_back_is_never_written(
    start: Start, store: Path, odd: Callable[..., Any]
) -> None:
    with pytest.raises((outlast.UsageError, TypeError)), start() as run:
        for beat in run.beats():
            odd(beat)
    assert head_of(store).status == "interrupted"
    with start() as run:
        run.finish()
    assert run.is_done


def test_an_error_that_is_no_text_comes_through_and_its_failure_is_recorded(
    start: Start, store: Path
) -> None:
    def refuse() -> None:
        raise outlast.DidNotHappen("caf\udce9")

    with start() as run:
        for beat in run.beats():
            with pytest.raises(outlast.EffectFailed):
                beat.act("post", refuse)
            break
    assert "effect_failed" in tags(store)
    with pytest.raises(FileNotFoundError), start() as run:
        raise FileNotFoundError("caf\udce9.txt")
    assert "caf" in head_of(store).evidence


def test_a_pause_waits_for_every_act_under_way(start: Start, store: Path) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with start() as run:
            async for beat in run.beats():
                slow = asyncio.create_task(beat.act("slow", gate.wait))
                while not run_engine(run).journal.lease.acting():
                    await asyncio.sleep(0)
                await asyncio.to_thread(ask, store, "pause")
                assert await beat.act("quick", lambda: 7) == 7
                gate.set()
                assert await slow is True
                await beat.done()

    with pytest.raises(outlast.RunPaused):
        asyncio.run(main())
    assert head_of(store).status == "paused"
    assert head_of(store).beats == 1


def test_a_run_used_from_two_event_loops_is_refused_and_goes_on_in_its_own(start: Start, store: Path) -> None:
    async def elsewhere(beat: outlast.Beat) -> None:
        await beat.act("post", lambda: 1)

    def other_loop(beat: outlast.Beat) -> None:
        with pytest.raises(outlast.UsageError, match="two event loops"):
            asyncio.run(elsewhere(beat))

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                await beat.decide("d", lambda: 1)
                await asyncio.to_thread(other_loop, beat)
                beat.finish()
                await beat.done()

    asyncio.run(main())
    assert head_of(store).status == "done"


def test_a_store_that_a_file_names_relatively_lies_beside_the_file(tmp_path: Path, state: Isolated) -> None:
    folder = tmp_path / "repo"
    (folder / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (state.config_home / "outlast").mkdir(parents=True)
    (state.config_home / "outlast/config.toml").write_text('store = "kept"\n')
    script = "import outlast\nwith outlast.run('t') as run: print(run.id)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=place, capture_output=True, text=True, check=True
        ).stdout
        for place in (folder, folder / "sub")
    }
    assert len(seen) == 1
    assert (state.config_home / "outlast/kept/outlast.db").exists()
    assert not list(folder.glob("**/kept"))


def test_names_that_are_not_utf8_do_not_keep_a_run_from_starting(store: Path, tmp_path: Path) -> None:
    script = f"import outlast\nwith outlast.run('t', store={os.fspath(store)!r}) as run: print('fine')"
    place = os.fsencode(tmp_path) + b"/d\xe9"
    os.mkdir(place)
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-c", script.encode(), b"caf\xe9"],
        cwd=place,
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"fine\n", done.stderr
    assert json.dumps(head_of(store).project)


def test_after_ctrl_c_in_an_intents_commit_the_act_is_not_performed_without_one(
    start: Start, store: Path
) -> None:
    performed: list[str] = []

    def pay(idempotency_key: str) -> None:
        performed.append(idempotency_key)

    def interrupt(name: str) -> None:
        if name == "store.before_commit":
            faults.arm(None)
            raise KeyboardInterrupt

    with start() as run:
        for beat in run.beats():
            faults.arm(interrupt)
            with pytest.raises(KeyboardInterrupt):
                beat.act("pay", pay)
            with pytest.raises(outlast.BeatClosed):
                beat.act("pay", pay)
            break
    assert performed == []
    assert "effect_intended" not in tags(store)
    assert tags(store)[-1] == "attempt_ended"
    with start() as run:
        for beat in run.beats():
            beat.act("pay", pay)
            beat.finish()
            beat.done()
    assert len(performed) == 1


class Word(str):
    """A text that is not quite one."""


def test_a_beat_whose_end_cannot_be_written_stays_open_and_nothing_in_it_is_done_again(start: Start) -> None:
    done: list[int] = []
    with pytest.raises(outlast.BeatNotDone), start() as run:
        for beat in run.beats():
            beat.act("pay", lambda: done.append(1))
            beat_engine(beat)._stage = Word("half \udcff")
            with contextlib.suppress(outlast.NotEncodable):
                beat.done()
    assert len(done) == 1


@pytest.mark.parametrize("wrong", ["half \udcff", Word("text")])
def test_names_and_stages_that_cannot_be_written_are_refused_at_the_call(start: Start, wrong: str) -> None:
    with start() as run:
        beat = next(iter(run.beats()))
        for call in (
            lambda: beat.stage(wrong),
            lambda: beat.decide(wrong, lambda: 1),
            lambda: beat.act(wrong, lambda: 1),
        ):
            with pytest.raises(outlast.UsageError):
                call()
        beat.done()


@pytest.mark.parametrize("raw", [b'"\xff"', b"1e999", b"[" * 300 + b"]" * 300])
def test_a_result_that_could_not_be_shown_is_refused(start: Start, raw: bytes) -> None:
    with start() as run:
        beat = next(iter(run.beats()))
        with pytest.raises(outlast.NotEncodable):
            beat.done(msgspec.Raw(raw))
        beat.done("fine")


def test_no_beat_ends_over_an_effect_in_doubt_of_another_beat(start: Start, store: Path) -> None:
    """An act that slipped in behind its beat's end must not be washed away by the next one."""
    with start() as run:
        beats = iter(run.beats())
        next(beats).done()
        second = next(beats)
        intent = ev.EffectIntended(
            at=run_engine(run).journal.now(), beat=1, n=2, name="late", occurrence=1, key="k", policy="ask"
        )
        run_engine(run).drive(iter_append(intent))
        with pytest.raises(outlast.UnreachedEffect, match=r"1\.2 'late'"):
            second.done()


def iter_append(event: ev.AnyEvent) -> Any:
    yield Append((event,))


def test_a_missing_workspace_leaves_no_run_behind(start: Start, store: Path, tmp_path: Path) -> None:
    with pytest.raises(outlast.UsageError), start(workspace=tmp_path / "nope"):
        pass
    with inprocess.reading(store) as opened:
        assert opened.list(RunFilter()) == []


def test_a_released_lease_in_a_group_does_not_move_the_stores_mark(tmp_path: Path) -> None:
    """The number of the last row survives a rollback, and belongs to nobody."""
    with contextlib.closing(open_store(tmp_path / "s")) as opened:
        runs = [opened.create(opening(f"t{n}")) for n in range(3)]
        released, stale, good = (opened.claim(run) for run in runs)
        writer = opened._db.writer
        writer.execute("BEGIN")
        writer.execute("INSERT INTO events(n, run, seq, data) VALUES (9000, 77, 1, '')")
        writer.execute("ROLLBACK")
        opened.release(released)
        errors: list[Exception | None] = []
        ready = threading.Event()

        def wake(error: Exception | None) -> None:
            errors.append(error)
            if len(errors) == 3:
                ready.set()

        stage = ev.StageSet(at=datetime.now(UTC), stage="x")
        with opened._db.write_lock:
            opened.append(Batch(released, runs[0], 1, (stage,)), wake)
            opened.append(Batch(stale, runs[1], 7, (stage,)), wake)
            opened.append(Batch(good, runs[2], 1, (stage,)), wake)
        assert ready.wait(20)
        assert [type(error) for error in errors] == [outlast.LeaseLost, outlast.LeaseLost, type(None)]
        opened.create(opening("another"))


def opening(task: str) -> ev.RunOpened:
    return ev.RunOpened(at=datetime.now(UTC), run=f"r{task}", task=task, project="p", contract=Contract("g"))
