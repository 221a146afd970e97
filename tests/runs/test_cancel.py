"""A cancel waits for the acts under way, but only for its grace period; what it leaves running is in doubt."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import outlast
from outlast import Run
from outlast.chaos.witness.client import Unanswered, Witness
from outlast.core import events as ev
from outlast.operations import requests
from outlast.runs.run import run_engine
from outlast.runs.timing import Timing
from outlast.settings import TIMING
from outlast.store.protocol import RunFilter
from tests.support.inprocess import ask, head_of, journal_of, reading
from tests.support.processes import wait_for

Start = Callable[..., Run]
Post = Callable[[], Awaitable[str]]
LIMIT_S = 30.0


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """A world in which what is slow is done when it is let go."""
    with Witness.start(tmp_path / "witness.log") as witness:
        witness.fault("late", match="slow")
        yield witness


@pytest.fixture
def post(witness: Witness) -> Post:
    async def post() -> str:
        await asyncio.to_thread(witness.act, "blind", "slow", "text", identity="slow")
        return "posted"

    return post


@pytest.fixture
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMING, "runs.cancel_grace_s=0.2")


async def begun(run: Run, act: Awaitable[str]) -> asyncio.Task[str]:
    """The act, performed in a task of its own; it is under way when this returns."""
    task = asyncio.ensure_future(act)
    while not run_engine(run).journal.lease.acting():
        await asyncio.sleep(0)
    return task


def let_go(witness: Witness) -> None:
    """Let go what is slow, once it is asked for: the act begins before its request is there."""
    wait_for(lambda: witness.counts().waiting, what="the slow one")
    witness.release()


async def act_until_stopped(beat: outlast.Beat) -> None:
    """One quick act after the other, until one of them is refused."""
    deadline = time.monotonic() + LIMIT_S
    for number in itertools.count():
        assert time.monotonic() < deadline, "nobody stopped it"
        await beat.act(f"quick-{number}", int)


def performed(witness: Witness) -> list[str]:
    return [item.identity for item in witness.performances()]


def doubts(store: Path, task: str = "t") -> list[tuple[int, int, str]]:
    return [
        (event.beat, event.n, event.evidence)
        for event in journal_of(store, task)
        if isinstance(event, ev.EffectInDoubt)
    ]


@pytest.mark.usefixtures("_short_grace")
def test_after_the_grace_period_a_cancel_leaves_the_act_under_way_in_doubt(
    start: Start, store: Path, witness: Witness, post: Post
) -> None:
    left: list[asyncio.Task[str]] = []

    async def main() -> None:
        with pytest.raises(outlast.RunCancelled, match="leaving in doubt") as raised:
            async with start() as run:
                async for beat in run.beats():
                    left.append(await begun(run, beat.act("post", post)))
                    await asyncio.to_thread(ask, store, "cancel")
                    await act_until_stopped(beat)
        assert "outlast effects" in raised.value.hint
        await asyncio.to_thread(let_go, witness)
        with pytest.raises(outlast.EffectInDoubt, match="it happened") as late:
            await left[0]
        assert "1.1 --happened --result '\"posted\"'" in late.value.hint

    asyncio.run(main())
    assert performed(witness) == ["slow"]
    assert doubts(store) == [(1, 1, "cancelled while it ran")]
    head = head_of(store)
    assert (head.status, head.cause, [effect.id for effect in head.in_doubt]) == (
        "cancelled",
        "operator",
        ["1.1"],
    )
    assert "ada" in head.evidence
    with reading(store) as opened:
        assert opened.inbox.pending(head.run) == []
        requests.settle(opened, head.run, "1.1", "happened", b'"posted"')
    assert (head_of(store).status, head_of(store).in_doubt) == ("cancelled", ())


@pytest.mark.usefixtures("_short_grace")
def test_an_outcome_that_comes_while_the_run_is_still_held_is_recorded(
    start: Start, store: Path, witness: Witness, post: Post
) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                left = await begun(run, beat.act("post", post))
                await asyncio.to_thread(ask, store, "cancel")
                with pytest.raises(outlast.RunCancelled):
                    await act_until_stopped(beat)
                await asyncio.to_thread(let_go, witness)
                assert await left == "posted"
                with pytest.raises(outlast.BeatClosed):
                    await beat.act("late", int)
                break

    asyncio.run(main())
    assert performed(witness) == ["slow"]
    head = head_of(store)
    assert (head.status, head.in_doubt) == ("cancelled", ())
    assert len(doubts(store)) == 1


@pytest.mark.usefixtures("_short_grace")
def test_an_act_that_fails_after_the_cancel_is_not_performed_again(
    start: Start, store: Path, witness: Witness
) -> None:
    """Its key would allow that, were the run not over."""
    tried: list[str] = []

    async def pay(idempotency_key: str) -> None:
        tried.append(idempotency_key)
        await asyncio.to_thread(witness.act, "keyed", "slow", "text", idempotency_key, identity="slow")
        raise Unanswered("the reply was lost")

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                left = await begun(run, beat.act("pay", pay))
                await asyncio.to_thread(ask, store, "cancel")
                with pytest.raises(outlast.RunCancelled):
                    await act_until_stopped(beat)
                await asyncio.to_thread(let_go, witness)
                with pytest.raises(outlast.RunCancelled, match="has ended"):
                    await left
                break

    asyncio.run(main())
    assert len(tried) == 1
    assert performed(witness) == ["slow"]
    assert [effect.evidence for effect in head_of(store).in_doubt] == ["Unanswered: the reply was lost"]


@pytest.mark.usefixtures("_short_grace")
def test_an_act_of_a_child_is_left_in_doubt_too(
    start: Start, store: Path, witness: Witness, post: Post
) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                async with beat.run("c") as child:
                    async for inner in child.beats():
                        left = await begun(run, inner.act("post", post))
                        await asyncio.to_thread(ask, store, "cancel")
                        try:
                            await act_until_stopped(inner)
                        finally:
                            await asyncio.to_thread(let_go, witness)
                            await asyncio.wait([left])

    with pytest.raises(outlast.RunCancelled, match="leaving in doubt: "):
        asyncio.run(main())
    assert performed(witness) == ["slow"]
    assert doubts(store, "c") == [(1, 1, "cancelled while it ran")]
    assert doubts(store) == []
    assert head_of(store).status == "cancelled"
    with reading(store) as opened:
        (child,) = opened.list(RunFilter(task="c"))
    assert (child.state.status, child.state.in_doubt) == ("cancelled", ())


def test_within_the_grace_period_a_cancel_waits_for_the_outcome(
    start: Start, store: Path, witness: Witness, post: Post
) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                slow = await begun(run, beat.act("post", post))
                await asyncio.to_thread(ask, store, "cancel")
                assert await beat.act("quick", int) == 0
                await asyncio.to_thread(let_go, witness)
                assert await slow == "posted"
                await beat.done()

    with pytest.raises(outlast.RunCancelled):
        asyncio.run(main())
    head = head_of(store)
    assert (head.status, head.beats, doubts(store)) == ("cancelled", 1, [])
    assert performed(witness) == ["slow"]


@pytest.mark.usefixtures("_short_grace")
def test_a_pause_has_no_grace_period_and_a_cancel_after_it_overtakes_it(
    start: Start, store: Path, witness: Witness, post: Post
) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                left = await begun(run, beat.act("post", post))
                await asyncio.to_thread(ask, store, "pause")
                await beat.act("first", int)
                past = time.monotonic() + 2 * Timing.current().cancel_grace_s
                for number in itertools.count():
                    await beat.act(f"second-{number}", int)
                    if time.monotonic() > past:
                        break
                await asyncio.to_thread(ask, store, "cancel")
                try:
                    await act_until_stopped(beat)
                finally:
                    await asyncio.to_thread(let_go, witness)
                    await left

    with pytest.raises(outlast.RunCancelled):
        asyncio.run(main())
    wishes = [event.what for event in journal_of(store) if isinstance(event, ev.Requested)]
    assert wishes == ["pause", "cancel"]
    with reading(store) as opened:
        run = head_of(store).run
        assert opened.inbox.pending(run) == []
        assert not requests.cancel(opened, run).changed
    assert head_of(store).status == "cancelled"
