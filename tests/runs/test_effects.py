"""Effects: performed once, replayed, in doubt, settled by a person. The world is a plain list outside of outlast."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.core import events as ev
from outlast.core.recovery import effect_key
from tests.runs.effect_world import EffectWorld, Lost, Start, one_beat
from tests.support import inprocess
from tests.support.inprocess import at_point, attempt, command, head_of, journal_of, tags

# -- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.confirmed", "beat.before_done"])
def test_a_confirmed_act_is_replayed_and_not_performed_again(start: Start, point: str) -> None:
    world, got = EffectWorld(), []
    body = one_beat(lambda beat: beat.act("post", world.post, "x"), got)
    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert world.done == ["x"]
    assert got[-1] == {"id": 1, "body": "x"}


@pytest.mark.parametrize("point", ["act.before_intent", "beat.begun"])
def test_an_act_without_an_intent_is_performed(start: Start, point: str) -> None:
    world, got = EffectWorld(), []
    body = one_beat(lambda beat: beat.act("post", world.post), got)
    assert not attempt(start(), body, at_point(point))
    assert world.done == []
    assert attempt(start(), body)
    assert world.done == ["hello"]


def test_other_arguments_on_replay_are_a_mismatch_and_nothing_is_performed(start: Start) -> None:
    world, got = EffectWorld(), []
    assert not attempt(
        start(), one_beat(lambda beat: beat.act("post", world.post, "a"), got), at_point("act.confirmed")
    )
    with pytest.raises(outlast.ReplayMismatch):
        attempt(start(), one_beat(lambda beat: beat.act("post", world.post, "b"), got))
    assert world.done == ["a"]
    assert got == []
    assert attempt(start(), one_beat(lambda beat: beat.act("post", world.post, "a"), got))


def test_positional_and_named_arguments_in_any_order_are_compared_by_value(start: Start) -> None:
    got: list[Any] = []
    first = one_beat(lambda beat: beat.act("p", lambda **given: 1, b={"y": 1, "x": 2}, a=1), got)
    second = one_beat(lambda beat: beat.act("p", lambda **given: 2, a=1, b={"x": 2, "y": 1}), got)
    assert not attempt(start(), first, at_point("act.confirmed"))
    assert attempt(start(), second)
    assert got == [1]


def test_the_key_is_the_same_in_every_attempt_and_another_for_every_occurrence(
    start: Start, store: Any
) -> None:
    seen: list[str] = []

    def keyed(*, idempotency_key: str) -> None:
        seen.append(idempotency_key)
        if len(seen) == 2:
            inprocess.die("in the act")

    def body(run: Run) -> None:
        for beat in run.beats():
            beat.act("k", keyed)
            beat.act("k", keyed)
            beat.finish()
            beat.done()

    assert not attempt(start(), body)
    assert attempt(start(), body)
    run = head_of(store).run
    assert seen == [effect_key(run, 1, "k", 1), effect_key(run, 1, "k", 2), effect_key(run, 1, "k", 2)]


def test_arguments_that_cannot_be_written_are_refused_before_anything_happens(
    start: Start, store: Any
) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.NotEncodable), start() as run:
        for beat in run.beats():
            beat.act("post", world.post, object())
    assert world.done == []
    assert "effect_intended" not in tags(store)


def test_a_result_that_cannot_be_written_is_confirmed_then_raises_now_and_on_replay(
    start: Start, store: Any
) -> None:
    world = EffectWorld()

    def post() -> object:
        world.post()
        return object()

    for _ in range(2):
        with pytest.raises(outlast.NotEncodable), start() as run:
            for beat in run.beats():
                beat.act("post", post)
    assert world.done == ["hello"]
    confirmed = [event for event in journal_of(store) if isinstance(event, ev.EffectConfirmed)]
    assert len(confirmed) == 1
    assert confirmed[0].unencodable
    assert b"object object" in bytes(confirmed[0].result.v)


# -- certain failure and retries --------------------------------------------------------------------------------------


def test_did_not_happen_fails_for_certain_now_and_on_replay(start: Start) -> None:
    calls = []

    def refuse() -> None:
        calls.append(1)
        raise outlast.DidNotHappen("403")

    for _ in range(2):
        with pytest.raises(outlast.EffectFailed, match="403"), start() as run:
            for beat in run.beats():
                beat.act("x", refuse)
    assert len(calls) == 1


@pytest.mark.parametrize("retry", [0, 1, 2, 5])
def test_a_retry_is_as_many_more_calls_under_the_same_key(start: Start, retry: int) -> None:
    keys: list[str] = []

    def refuse_twice(*, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) <= 2:
            raise outlast.DidNotHappen("busy")
        return "ok"

    with start() as run:
        for beat in run.beats():
            if retry >= 2:
                assert beat.act("x", refuse_twice, retry=retry) == "ok"
            else:
                with pytest.raises(outlast.EffectFailed):
                    beat.act("x", refuse_twice, retry=retry)
            beat.finish()
            beat.done()
    assert len(keys) == min(retry, 2) + 1
    assert len(set(keys)) == 1


def test_a_failed_act_in_a_reissue_does_not_claim_that_the_first_one_never_happened(
    start: Start, store: Any
) -> None:
    """The first call was lost after it happened; that a second one was turned away says nothing about it."""
    world = EffectWorld()

    def pay(*, idempotency_key: str) -> None:
        if world.done:
            raise outlast.DidNotHappen("the far side is closed")
        world.post()
        raise Lost("connection reset")

    with pytest.raises(outlast.EffectError) as raised, start() as run:
        for beat in run.beats():
            beat.act("pay", pay)
    assert isinstance(raised.value, outlast.EffectInDoubt)
    assert head_of(store).in_doubt


# -- in doubt ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.intended", "act.performed"])
def test_a_blind_act_without_an_outcome_stops_in_doubt_and_is_never_repeated(
    start: Start, store: Any, point: str
) -> None:
    world, got = EffectWorld(), []
    body = one_beat(lambda beat: beat.act("post", world.post), got)
    assert not attempt(start(), body, at_point(point))
    before = list(world.done)
    for _ in range(3):
        with pytest.raises(outlast.EffectInDoubt, match=r"1\.1 'post'"):
            attempt(start(), body)
    assert world.done == before
    head = head_of(store)
    assert (head.status, head.in_doubt[0].id) == ("in_doubt", "1.1")


@pytest.mark.parametrize(
    ("finding", "done", "result"), [("happened", 1, {"id": 9}), ("did_not", 2, None), ("give_up", 1, None)]
)
def test_a_person_settles_it(start: Start, store: Any, finding: str, done: int, result: Any) -> None:
    world, got = EffectWorld(), []

    def act(beat: outlast.Beat) -> Any:
        return beat.act("post", world.post if world.done else world.post_then_lost)

    with pytest.raises(outlast.EffectInDoubt):
        attempt(start(), one_beat(act, got))
    command(
        store,
        "settle",
        effect="1.1",
        finding=finding,
        **({"result": {"id": 9}} if finding == "happened" else {}),
    )
    assert head_of(store).status == "interrupted"
    assert attempt(start(), one_beat(act, got))
    assert len(world.done) == done
    assert got == [{"id": 2, "body": "hello"} if finding == "did_not" else result]


def test_the_cause_of_the_doubt_is_the_cause_of_the_error_and_the_evidence(start: Start, store: Any) -> None:
    with pytest.raises(outlast.EffectInDoubt) as raised, start() as run:
        for beat in run.beats():
            beat.act("post", EffectWorld().post_then_lost)
    assert isinstance(raised.value.__cause__, Lost)
    assert "connection reset" in head_of(store).effects_open[0].evidence
    assert head_of(store).status == "in_doubt"


def test_the_same_name_again_settles_the_doubtful_one_and_never_opens_a_new_key(start: Start) -> None:
    """DESIGN §4: `act` with the name of an occurrence in doubt settles that one."""
    world = EffectWorld()
    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            for _ in range(3):
                try:
                    beat.act("post", world.post_then_lost)
                except outlast.EffectInDoubt:
                    continue
            beat.act("post", world.post_then_lost)
    assert world.done == ["hello"]


def test_a_beat_with_an_effect_in_doubt_cannot_be_done(start: Start, store: Any) -> None:
    with pytest.raises(outlast.UnreachedEffect, match=r"1\.1"), start() as run:
        for beat in run.beats():
            with pytest.raises(outlast.EffectInDoubt):
                beat.act("post", EffectWorld().post_then_lost)
            beat.done()
    assert head_of(store).status == "in_doubt"


def test_effects_that_are_not_reached_again_are_refused_in_doubt_and_listed_otherwise(
    start: Start, store: Any
) -> None:
    world = EffectWorld()

    def first(run: Run) -> None:
        for beat in run.beats():
            beat.act("a", world.post)
            beat.act("b", world.post)

    assert not attempt(start(), first, at_point("act.performed", 2))
    with pytest.raises(outlast.UnreachedEffect, match=r"1\.2"), start() as run:
        for beat in run.beats():
            beat.done()
    command(store, "settle", effect="1.2", finding="happened")
    with start() as run:
        for beat in run.beats():
            beat.act("b", world.post)
            beat.done()
            break
    done = [event for event in journal_of(store) if isinstance(event, ev.BeatDone)]
    assert done[0].unreached == ("1.1",)


def test_a_run_with_an_effect_in_doubt_cannot_be_finished_past_it(start: Start, store: Any) -> None:
    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("post", EffectWorld().post_then_lost)
    try:
        with start() as run:
            run.finish("all is well")
    except outlast.OutlastError:
        pass
    assert head_of(store).status != "done"


# -- functions of every kind ------------------------------------------------------------------------------------------


async def sent(world: EffectWorld) -> str:
    world.post()
    return "sent"


KINDS: dict[str, Callable[[EffectWorld], Callable[[], Any]]] = {
    "lambda": lambda world: lambda: sent(world),
    "partial": lambda world: functools.partial(sent, world),
    "object": lambda world: type("Sender", (), {"__call__": lambda self: sent(world)})(),
}


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("kind", KINDS)
def test_an_async_function_in_any_wrapping_is_awaited(
    start: Start, kind: str, timeout_s: float | None
) -> None:
    world = EffectWorld()

    async def main() -> Any:
        async with start() as run:
            async for beat in run.beats():
                return await beat.act("send", KINDS[kind](world), timeout_s=timeout_s)
        return None

    assert asyncio.run(main()) == "sent"
    assert world.done == ["hello"]


def test_an_async_function_in_a_sync_run_is_refused_with_a_hint(start: Start) -> None:
    with pytest.raises((outlast.UsageError, outlast.EffectInDoubt)) as raised, start() as run:
        for beat in run.beats():
            beat.act("send", sent, {})
    error = raised.value if isinstance(raised.value, outlast.UsageError) else raised.value.__cause__
    assert "async with" in getattr(error, "hint", "")


def test_an_act_cancelled_in_the_middle_is_in_doubt(start: Start, store: Any) -> None:
    async def main(begun: asyncio.Event) -> None:
        async def forever() -> None:
            begun.set()
            await asyncio.Event().wait()

        async with start() as run:
            async for beat in run.beats():
                await beat.act("slow", forever)

    async def cancel() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(main(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    head = head_of(store)
    assert (head.status, [effect.id for effect in head.in_doubt]) == ("in_doubt", ["1.1"])


def test_an_act_that_always_raises_and_is_never_found_is_given_up_after_its_retries(
    start: Start, store: Any
) -> None:
    """A probe's "did not" allows another try, not tries without end."""
    calls: list[int] = []

    def broken() -> None:
        calls.append(1)
        raise ConnectionError("down")

    with pytest.raises(outlast.EffectFailed), start() as run:
        for beat in run.beats():
            beat.act("post", broken, probe=outlast.Probe(lambda: outlast.DidNotHappen(), settle_s=0), retry=2)
    assert len(calls) == 3
    assert head_of(store).status == "interrupted"
    with start() as run:
        for beat in run.beats():
            with pytest.raises(
                outlast.EffectFailed
            ):  # what the program has seen is seen again, not tried again
                beat.act(
                    "post", broken, probe=outlast.Probe(lambda: outlast.DidNotHappen(), settle_s=0), retry=2
                )
            assert len(calls) == 3
            assert beat.act("another way", lambda: "posted") == "posted"
            beat.finish()
            beat.done()
    assert run.is_done
