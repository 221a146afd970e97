"""Effects: performed once, replayed, settled by their policy. The world is a plain list outside of outlast."""

import asyncio
import functools
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.core import events as ev
from outlast.core.recovery import effect_key
from outlast.core.state import EFFECTS_OPEN_MAX
from outlast.runs.beat import beat_engine
from outlast.runs.run import run_engine
from tests.support import inprocess, processes
from tests.support.inprocess import at_point, attempt, command, head_of, journal_of, tags

Start = Callable[..., Run]


class Lost(Exception):
    """The answer did not come; the act may have happened."""


class World:
    """The far side: what was done to it, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: set[str] = set()

    def post(self, body: str = "hello") -> dict[str, Any]:
        self.done.append(body)
        return {"id": len(self.done), "body": body}

    def post_then_lost(self, body: str = "hello") -> None:
        self.post(body)
        raise Lost("connection reset")

    def pay(self, amount: int = 1, *, idempotency_key: str) -> dict[str, int]:
        """Dedupes by key."""
        if idempotency_key not in self.keys:
            self.keys.add(idempotency_key)
            self.done.append(amount)
        return {"paid": amount}

    def look(self, body: str = "hello") -> object:
        return outlast.Happened({"found": body}) if body in self.done else outlast.DidNotHappen("not there")


NOW = 0.0


def probe(look: Callable[..., Any]) -> outlast.Probe:
    return outlast.Probe(look, settle_s=NOW)


def one_beat(act: Callable[[outlast.Beat], Any], results: list[Any]) -> Callable[[Run], None]:
    """A run of one beat with one act."""

    def body(run: Run) -> None:
        for beat in run.beats():
            results.append(act(beat))
            beat.finish(results[-1])
            beat.done(results[-1])

    return body


# -- replay ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.confirmed", "beat.before_done"])
def test_a_confirmed_act_is_replayed_and_not_performed_again(start: Start, point: str) -> None:
    world, got = World(), []
    body = one_beat(lambda beat: beat.act("post", world.post, "x"), got)
    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert world.done == ["x"]
    assert got[-1] == {"id": 1, "body": "x"}


@pytest.mark.parametrize("point", ["act.before_intent", "beat.begun"])
def test_an_act_without_an_intent_is_performed(start: Start, point: str) -> None:
    world, got = World(), []
    body = one_beat(lambda beat: beat.act("post", world.post), got)
    assert not attempt(start(), body, at_point(point))
    assert world.done == []
    assert attempt(start(), body)
    assert world.done == ["hello"]


def test_other_arguments_on_replay_are_a_mismatch_and_nothing_is_performed(start: Start) -> None:
    world, got = World(), []
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
    world = World()
    with pytest.raises(outlast.NotEncodable), start() as run:
        for beat in run.beats():
            beat.act("post", world.post, object())
    assert world.done == []
    assert "effect_intended" not in tags(store)


def test_a_result_that_cannot_be_written_is_confirmed_then_raises_now_and_on_replay(
    start: Start, store: Any
) -> None:
    world = World()

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


# -- certain failure and retries ---------------------------------------------------------------------------------


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
    world = World()

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


# -- in doubt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.intended", "act.performed"])
def test_a_blind_act_without_an_outcome_stops_in_doubt_and_is_never_repeated(
    start: Start, store: Any, point: str
) -> None:
    world, got = World(), []
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
    world, got = World(), []

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
            beat.act("post", World().post_then_lost)
    assert isinstance(raised.value.__cause__, Lost)
    assert "connection reset" in head_of(store).effects_open[0].evidence
    assert head_of(store).status == "in_doubt"


def test_the_same_name_again_settles_the_doubtful_one_and_never_opens_a_new_key(start: Start) -> None:
    """DESIGN §4: `act` with the name of an occurrence in doubt settles that one."""
    world = World()
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
                beat.act("post", World().post_then_lost)
            beat.done()
    assert head_of(store).status == "in_doubt"


def test_effects_that_are_not_reached_again_are_refused_in_doubt_and_listed_otherwise(
    start: Start, store: Any
) -> None:
    world = World()

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
            beat.act("post", World().post_then_lost)
    try:
        with start() as run:
            run.finish("all is well")
    except outlast.OutlastError:
        pass
    assert head_of(store).status != "done"


# -- policies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.intended", "act.performed", "act.doubted", "reissue.before"])
def test_a_keyed_act_is_reissued_and_the_far_side_dedupes(start: Start, point: str) -> None:
    world, got = World(), []
    lost = [1]

    def pay(*, idempotency_key: str) -> dict[str, int]:
        paid = world.pay(5, idempotency_key=idempotency_key)
        if lost and point in ("act.doubted", "reissue.before"):
            lost.pop()
            raise Lost
        return paid

    body = one_beat(lambda beat: beat.act("pay", pay), got)
    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert world.done == [5]
    assert got == [{"paid": 5}]


def test_a_key_that_is_too_old_is_not_reissued(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    world, got = World(), []
    body = one_beat(lambda beat: beat.act("pay", world.pay), got)
    assert not attempt(start(), body, at_point("act.performed"))
    monkeypatch.setenv("OUTLAST_KEY_TTL_S", "0")
    with pytest.raises(outlast.EffectInDoubt, match="too old"):
        attempt(start(), body)
    assert world.done == [1]


def test_a_reissue_that_never_answers_ends_in_doubt(start: Start) -> None:
    calls = []

    def pay(*, idempotency_key: str) -> None:
        calls.append(idempotency_key)
        raise Lost

    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("pay", pay)
    assert 1 < len(calls) < 10
    assert len(set(calls)) == 1


@pytest.mark.parametrize(
    "point", ["act.intended", "act.performed", "probe.before", "probe.answered", "settle.recorded"]
)
@pytest.mark.parametrize("happened", [True, False])
def test_a_probe_settles_what_happened_and_what_did_not(start: Start, point: str, happened: bool) -> None:
    world, got = World(), []
    calls: list[int] = []

    def post(body: str) -> Any:
        calls.append(1)
        if len(calls) == 1 and point.startswith(("probe", "settle")):
            if happened:
                world.post(body)
            raise Lost
        return world.post(body)

    body = one_beat(lambda beat: beat.act("post", post, "x", probe=probe(world.look)), got)
    assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert world.done == ["x"]


def test_a_probe_gets_the_arguments_of_the_act_and_its_key(start: Start) -> None:
    seen: list[Any] = []

    def look(a: int, *, b: int, idempotency_key: str) -> object:
        seen.append((a, b, idempotency_key))
        return outlast.Happened("r")

    def lost(a: int, *, b: int) -> None:
        raise Lost

    with start() as run:
        for beat in run.beats():
            assert beat.act("x", lost, 1, b=2, probe=probe(look)) == "r"
            beat.finish()
            beat.done()
    assert seen == [(1, 2, effect_key(run.id, 1, "x", 1))]


@pytest.mark.parametrize(
    "answer",
    [outlast.CannotTell("no idea"), "nonsense", None, ZeroDivisionError("the probe broke")],
    ids=["cannot tell", "nonsense", "nothing", "raises"],
)
def test_a_probe_that_cannot_tell_leaves_it_in_doubt(start: Start, store: Any, answer: Any) -> None:
    world = World()

    def look() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("post", world.post_then_lost, probe=probe(look))
    assert world.done == ["hello"]
    assert head_of(store).status == "in_doubt"


def test_a_probe_may_raise_did_not_happen_too(start: Start) -> None:
    world, calls = World(), []

    def look() -> None:
        raise outlast.DidNotHappen

    def post() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise Lost
        world.post()
        return "ok"

    with start() as run:
        for beat in run.beats():
            assert beat.act("post", post, probe=probe(look)) == "ok"
            break
    assert world.done == ["hello"]


def test_a_probe_waits_until_the_far_side_has_settled(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is waited for through the drivers' own step; its length is the contract."""
    from outlast.runs.engine import drivers

    waited: list[float] = []
    monkeypatch.setattr(drivers.time, "sleep", waited.append)
    world = World()
    with start() as run:
        for beat in run.beats():
            beat.act("post", world.post_then_lost, probe=outlast.Probe(world.look, settle_s=7))
            break
    assert sum(waited) == pytest.approx(7, abs=0.5)


def test_given_up_it_returns_nothing_and_goes_on_now_and_on_replay(start: Start) -> None:
    world, got = World(), []
    body = one_beat(lambda beat: beat.act("post", world.post_then_lost, unknown="give_up"), got)
    assert not attempt(start(), body, at_point("settle.recorded"))
    assert attempt(start(), body)
    assert (world.done, got) == (["hello"], [None])


def test_told_to_ask_a_keyed_act_is_not_reissued(start: Start) -> None:
    world, got = World(), []
    body = one_beat(lambda beat: beat.act("pay", world.pay, unknown="ask"), got)
    assert not attempt(start(), body, at_point("act.performed"))
    with pytest.raises(outlast.EffectInDoubt):
        attempt(start(), body)


@pytest.mark.parametrize(
    "options", [{"unknown": "hope"}, {"unknown": "probe"}, {"probe": 7}, {"key": ""}, {"key": "k" * 10_000}]
)
def test_options_that_make_no_sense_are_refused_before_anything_happens(
    start: Start, store: Any, options: Any
) -> None:
    world = World()
    with start() as run:
        for beat in run.beats():
            beat.act("other", world.post)
            with pytest.raises((outlast.UsageError, TypeError)):
                beat.act("post", world.post, **options)
            break
    assert world.done == ["hello"]
    assert tags(store).count("effect_intended") == 1


# -- keys of the caller's own ------------------------------------------------------------------------------------


def test_an_own_key_is_passed_on_verbatim_and_found_in_every_later_beat(start: Start) -> None:
    world = World()
    keys: list[str] = []

    def pay(*, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        return world.pay(3, idempotency_key=idempotency_key) and "paid"

    for _ in range(2):
        with start() as run:
            run.plan(["a", "b", "c", "d"])
            for beat in run.beats():
                assert beat.act("pay", pay, key="order 7") == "paid"
                beat.done()
                if beat.number % 2 == 0:
                    break
    assert keys == ["order 7"]


def test_an_own_key_with_other_arguments_is_a_mismatch_in_any_beat(start: Start) -> None:
    world = World()
    with pytest.raises(outlast.ReplayMismatch), start() as run:
        for beat in run.beats():
            beat.act("post", world.post, f"text {beat.number}", key="k")
            beat.done()
    assert world.done == ["text 1"]


def test_an_own_key_under_another_name_is_not_silently_taken_for_the_first(start: Start) -> None:
    world = World()
    with start() as run:
        for beat in run.beats():
            beat.act("charge", world.post, "5", key="order 7")
            with pytest.raises(outlast.OutlastError):
                beat.act("notify", lambda text: "sent", "5", key="order 7")
            break


def test_an_own_key_performed_again_in_a_later_beat_is_replayed_after_that(start: Start) -> None:
    """Beat 1: it did not happen. Beat 2: it did. Beat 3 must find that, not the failure of beat 1."""
    world = World()

    def refuse() -> None:
        raise outlast.DidNotHappen

    with start() as run:
        run.plan(["a", "b", "c", "d"])
        for beat in run.beats():
            try:
                beat.act("post", refuse if beat.number == 1 else world.post, key="k", retry=beat.number - 1)
            except outlast.EffectFailed:
                pass
            beat.done()
    assert world.done == ["hello"]


def test_two_concurrent_acts_with_one_own_key_perform_it_once(start: Start) -> None:
    world = World()
    gates: list[asyncio.Event] = []

    async def post() -> str:
        gates.append(asyncio.Event())
        world.post()
        await gates[-1].wait()
        return "ok"

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                looking = probe(lambda: outlast.DidNotHappen())
                calls = [
                    asyncio.create_task(beat.act("post", post, key="k", probe=looking)) for _ in range(2)
                ]
                done: set[Any] = set()
                while len(done) < 2:
                    await asyncio.sleep(0)
                    [gate.set() for gate in gates]
                    done = {call for call in calls if call.done()}
                kinds = [type(call.exception()) for call in calls if call.exception()]
                assert set(kinds) <= {outlast.AmbiguousOccurrence}
                break

    asyncio.run(main())
    assert world.done == ["hello"]


# -- concurrency inside one beat ---------------------------------------------------------------------------------


def test_two_calls_of_one_name_at_once_are_ambiguous_and_keys_tell_them_apart(start: Start) -> None:
    world = World()

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
    world = World()
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


# -- time limits -------------------------------------------------------------------------------------------------


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
    world, gate = World(), threading.Event()

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
    world, gate = World(), threading.Event()
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


# -- functions of every kind -------------------------------------------------------------------------------------


async def sent(world: World) -> str:
    world.post()
    return "sent"


KINDS: dict[str, Callable[[World], Callable[[], Any]]] = {
    "lambda": lambda world: lambda: sent(world),
    "partial": lambda world: functools.partial(sent, world),
    "object": lambda world: type("Sender", (), {"__call__": lambda self: sent(world)})(),
}


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("kind", KINDS)
def test_an_async_function_in_any_wrapping_is_awaited(
    start: Start, kind: str, timeout_s: float | None
) -> None:
    world = World()

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
