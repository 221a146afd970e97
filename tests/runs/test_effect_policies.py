"""What settles an effect in doubt: reissue, probe, give up, ask; and keys of the caller's own."""

import asyncio
from typing import Any

import pytest

import outlast
from outlast.core.recovery import effect_key
from tests.runs.effect_world import EffectWorld, Lost, Start, one_beat, probe
from tests.support.inprocess import at_point, attempt, head_of, tags

# -- policies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["act.intended", "act.performed", "act.doubted", "reissue.before"])
def test_a_keyed_act_is_reissued_and_the_far_side_dedupes(start: Start, point: str) -> None:
    world, got = EffectWorld(), []
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
    world, got = EffectWorld(), []
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
    world, got = EffectWorld(), []
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
    world = EffectWorld()

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
    world, calls = EffectWorld(), []

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
    world = EffectWorld()
    with start() as run:
        for beat in run.beats():
            beat.act("post", world.post_then_lost, probe=outlast.Probe(world.look, settle_s=7))
            break
    assert sum(waited) == pytest.approx(7, abs=0.5)


def test_given_up_it_returns_nothing_and_goes_on_now_and_on_replay(start: Start) -> None:
    world, got = EffectWorld(), []
    body = one_beat(lambda beat: beat.act("post", world.post_then_lost, unknown="give_up"), got)
    assert not attempt(start(), body, at_point("settle.recorded"))
    assert attempt(start(), body)
    assert (world.done, got) == (["hello"], [None])


def test_told_to_ask_a_keyed_act_is_not_reissued(start: Start) -> None:
    world, got = EffectWorld(), []
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
    world = EffectWorld()
    with start() as run:
        for beat in run.beats():
            beat.act("other", world.post)
            with pytest.raises((outlast.UsageError, TypeError)):
                beat.act("post", world.post, **options)
            break
    assert world.done == ["hello"]
    assert tags(store).count("effect_intended") == 1


# -- keys of the caller's own -----------------------------------------------------------------------------------------


def test_an_own_key_is_passed_on_verbatim_and_found_in_every_later_beat(start: Start) -> None:
    world = EffectWorld()
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
    world = EffectWorld()
    with pytest.raises(outlast.ReplayMismatch), start() as run:
        for beat in run.beats():
            beat.act("post", world.post, f"text {beat.number}", key="k")
            beat.done()
    assert world.done == ["text 1"]


def test_an_own_key_under_another_name_is_not_silently_taken_for_the_first(start: Start) -> None:
    world = EffectWorld()
    with start() as run:
        for beat in run.beats():
            beat.act("charge", world.post, "5", key="order 7")
            with pytest.raises(outlast.OutlastError):
                beat.act("notify", lambda text: "sent", "5", key="order 7")
            break


def test_an_own_key_performed_again_in_a_later_beat_is_replayed_after_that(start: Start) -> None:
    """Beat 1: it did not happen. Beat 2: it did. Beat 3 must find that, not the failure of beat 1."""
    world = EffectWorld()

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
    world = EffectWorld()
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
