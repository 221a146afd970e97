"""The cursor, the plan, and what is in a beat: recorded once, replayed, ended in one event."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import outlast
from outlast import Run
from outlast.core import events as ev
from outlast.core.state import RunState, fold
from outlast.runs.beat import beat_engine
from outlast.runs.run import run_engine
from tests.support import inprocess, sweeps
from tests.support.inprocess import at_point, attempt, head_of, journal_of, tags

Start = Callable[..., Run]


class Stop(Exception):
    """The body's own error."""


def steps_of(run: Run, most: int = 100) -> list[str]:
    """Work up to `most` beats; the steps met."""
    met = []
    for beat in run.beats():
        met.append(beat.step)
        beat.done(len(met))
        if len(met) == most:
            break
    return met


# -- plans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "leaves"),
    [
        (["a", "b"], ["a", "b"]),
        ([("a", ["a1", "a2"]), "b"], ["a1", "a2", "b"]),
        ({"a": ["a1", {"a2": ["deep"]}], "b": []}, ["a1", "deep", "b"]),
        ([{"step": "a", "steps": ["a1"]}, {"step": "b"}], ["a1", "b"]),
        (lambda: ["made"], ["made"]),
        ([], []),
    ],
    ids=["list", "pairs", "mapping", "records", "callable", "empty"],
)
def test_a_plan_is_walked_leaf_by_leaf_and_its_end_ends_the_run(start: Start, plan: Any, leaves: Any) -> None:
    with start() as run:
        run.plan(plan)
        assert steps_of(run) == leaves
    assert run.is_done


@pytest.mark.parametrize("plan", ["abc", 7, None, [7], [""], [("a", "b", "c")], [("a", 3)], {"": []}])
def test_a_plan_that_makes_no_sense_is_refused_and_nothing_is_recorded(
    start: Start, store: Any, plan: Any
) -> None:
    with pytest.raises(outlast.UsageError), start() as run:
        run.plan(plan)
    assert "plan_set" not in tags(store)


def test_a_plan_callable_is_asked_once_whatever_later_calls_give(start: Start) -> None:
    asked: list[int] = []

    def make(count: int) -> list[str]:
        asked.append(count)
        return [f"s{number}" for number in range(count)]

    with start() as run:
        run.plan(make, 3)
        assert steps_of(run, 1) == ["s0"]
    with start() as run:
        run.plan(make, 7)
        run.plan(["other"])
        assert steps_of(run) == ["s1", "s2"]
    assert asked == [3]


def test_a_plan_callable_killed_before_it_is_recorded_is_asked_again(start: Start) -> None:
    asked: list[int] = []

    def body(run: Run) -> None:
        run.plan(lambda: [asked.append(1), ["a"]][1])
        steps_of(run)

    assert not attempt(start(), body, at_point("plan.made"))
    assert attempt(start(), body)
    assert len(asked) == 2


def test_a_resumed_run_goes_on_at_the_cursor_also_in_a_tree(start: Start) -> None:
    met: list[str] = []
    for _ in range(5):
        with start() as run:
            run.plan([("a", ["a1", "a2"]), ("b", [("c", ["c1"]), "b2"]), "d"])
            met += steps_of(run, 1)
    assert met == ["a1", "a2", "c1", "b2", "d"]
    with start() as run:
        assert run.is_done
        assert steps_of(run) == []


def test_without_a_plan_beats_go_on_until_finish(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            assert beat.step == f"beat {beat.number}"
            if beat.number == 3:
                beat.finish({"answer": 42})
            beat.done()
    assert run.is_done
    with start() as again:
        assert again.result == {"answer": 42}


@pytest.mark.parametrize(
    ("where", "expected"),
    [("end", ["a1", "a2", "b", "x", "y"]), ("next", ["a1", "x", "y", "a2", "b"])],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_extended_steps_come_at_the_end_or_next(
    start: Start, where: str, expected: list[str], resumed: bool
) -> None:
    met = []
    for _ in range(2 if resumed else 1):
        with start() as run:
            run.plan([("a", ["a1", "a2"]), "b"])
            for beat in run.beats():
                met.append(beat.step)
                if beat.step == "a1":
                    beat.extend([("group", ["x"]), "y"], where=where)
                beat.done()
                if resumed and beat.step == "a1":
                    break
    assert met == expected
    assert head_of(run_engine(run).terms.store or "").plan_total == 5


def test_steps_extended_next_twice_keep_the_order_in_which_they_were_asked_for(start: Start) -> None:
    with start() as run:
        run.plan(["a", "b"])
        met = []
        for beat in run.beats():
            met.append(beat.step)
            if beat.step == "a":
                beat.extend(["x"], where="next")
                beat.extend(["y"], where="next")
            beat.done()
    assert met == ["a", "x", "y", "b"]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_without_a_plan_gets_one_by_extending_it(start: Start, resumed: bool) -> None:
    met = []
    for _ in range(2 if resumed else 1):
        with start() as run:
            for beat in run.beats():
                met.append(beat.step)
                if beat.number == 1:
                    beat.extend(["x", "y"])
                beat.done()
                if len(met) == 5 or (resumed and beat.number == 1):
                    break
    assert met == ["beat 1", "x", "y"]
    assert run.is_done


def test_an_extension_of_a_beat_that_was_lost_is_lost_with_it(start: Start) -> None:
    def body(run: Run) -> None:
        run.plan(["a"])
        for beat in run.beats():
            beat.extend(["x"])
            beat.remember("n", "https://example.invalid/n")
            beat.done()

    assert not attempt(start(), body, at_point("beat.before_done"))
    head = head_of(run_engine(start()).terms.store or "")
    assert (head.plan_total, head.memory, head.beats) == (1, (), 0)


# -- the end of a beat -------------------------------------------------------------------------------------------


def test_done_is_one_event_with_everything_the_beat_changed(start: Start, store: Any) -> None:
    with start() as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            beat.extend(["c"])
            beat.remember("n", "https://example.invalid/n")
            beat.spend(input=3, output=4)
            beat.stage("half way")
            beat.done({"r": 1}, evidence=["e"])
            break
    *_, done, _ended = journal_of(store)
    assert isinstance(done, ev.BeatDone)
    assert (done.beat, done.cursor, done.over, done.stage) == (1, (1,), False, "half way")
    assert bytes(done.result.v) == b'{"r":1}'
    assert (len(done.extended), len(done.remembered)) == (1, 1)
    head = head_of(store)
    assert (head.plan_total, head.stage, head.spent.tokens, head.memory[0].name) == (3, "half way", 7, "n")


def test_a_body_that_falls_through_is_an_error_and_never_an_implicit_done(start: Start, store: Any) -> None:
    with pytest.raises(outlast.BeatNotDone), start() as run:
        run.plan(["a", "b"])
        for _beat in run.beats():
            pass
    head = head_of(store)
    assert (head.beats, head.status) == (0, "interrupted")


def test_a_closed_beat_takes_nothing_more(start: Start) -> None:
    with start() as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            beat.done()
            for late in (
                lambda beat=beat: beat.done(),
                lambda beat=beat: beat.decide("x", lambda: 1),
                lambda beat=beat: beat.act("x", lambda: 1),
                lambda beat=beat: beat.extend(["z"]),
                lambda beat=beat: beat.remember("n", "https://example.invalid"),
                lambda beat=beat: beat.spend(1),
                lambda beat=beat: beat.stage("s"),
                lambda beat=beat: beat.finish(),
                lambda beat=beat: beat.run("child"),
            ):
                with pytest.raises(outlast.BeatClosed):
                    late()
    with pytest.raises(outlast.BeatClosed):
        beat.decide("x", lambda: 1)


def test_after_the_block_an_unfinished_beat_is_closed_too(start: Start, store: Any) -> None:
    with start() as run:
        beat = next(iter(run.beats()))
    before = tags(store)
    for late in (beat.done, lambda: beat.act("x", lambda: 1), lambda: beat.decide("x", lambda: 1)):
        with pytest.raises(outlast.BeatClosed):
            late()
    with pytest.raises(outlast.UsageError):
        next(run.beats())
    assert tags(store) == before


def test_done_refuses_while_an_act_is_under_way(start: Start) -> None:
    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                gate = asyncio.Event()
                acting = asyncio.create_task(beat.act("slow", gate.wait))
                while not beat_engine(beat)._in_flight:
                    await asyncio.sleep(0)
                with pytest.raises(outlast.UnreachedEffect, match="slow"):
                    await beat.done()
                gate.set()
                await acting
                beat.finish()
                await beat.done()
        assert run.is_done

    asyncio.run(main())


# -- decisions ---------------------------------------------------------------------------------------------------


def decide_twice(start: Start, name: str = "d", **options: Any) -> tuple[list[Any], list[Any]]:
    asked: list[Any] = []
    got: list[Any] = []

    def model(*args: Any) -> list[Any]:
        asked.append(args)
        return [len(asked), *args]

    for number in (1, 2):
        try:
            with start() as run:
                for beat in run.beats():
                    got.append(beat.decide(name, model, f"argument {number}", **options))
                    raise Stop
        except Stop:
            pass
    return asked, got


def test_a_recorded_decision_is_replayed_whatever_its_arguments_are_now(start: Start) -> None:
    asked, got = decide_twice(start)
    assert asked == [("argument 1",)]
    assert got == [[1, "argument 1"], [1, "argument 1"]]


def test_a_lazy_decision_is_durable_with_the_next_event_and_not_before(start: Start, store: Any) -> None:
    seen = []

    def body(run: Run) -> None:
        for beat in run.beats():
            beat.decide("lazy", lambda: "l", lazy=True)
            seen.append(tags(store))
            beat.decide("eager", lambda: "e")
            seen.append(tags(store))
            inprocess.die("here")

    assert not attempt(start(), body)
    assert "decided" not in seen[0]
    assert seen[1][-3:] == ["beat_begun", "decided", "decided"]


def test_a_lazy_decision_alone_is_durable_when_the_block_is_left(start: Start) -> None:
    asked, got = decide_twice(start, lazy=True)
    assert len(asked) == 1
    assert got[0] == got[1]


def test_a_lazy_decision_lost_in_a_kill_is_asked_again(start: Start) -> None:
    asked = []

    def body(run: Run) -> None:
        for beat in run.beats():
            beat.decide("lazy", lambda: asked.append(1), lazy=True)
            if len(asked) == 1:
                inprocess.die("here")
            beat.finish()
            beat.done()

    assert not attempt(start(), body)
    assert attempt(start(), body)
    assert len(asked) == 2


def test_decisions_of_one_name_are_told_apart_by_their_order(start: Start) -> None:
    count = iter(range(100))
    got: list[list[int]] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            got.append([beat.decide("d", lambda: next(count)) for _ in range(3)])
            if len(got) == 1:
                inprocess.die("here")
            beat.finish()
            beat.done()

    attempt(start(), body)
    attempt(start(), body)
    assert got == [[0, 1, 2], [0, 1, 2]]


def test_a_decision_whose_function_raised_is_not_an_occurrence(start: Start) -> None:
    """The usual retry loop around a model: what was paid for is found again, though the first try now works."""
    answers = iter([ConnectionError("down"), "paid", "paid again"])
    got: list[str] = []

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def body(run: Run) -> None:
        for beat in run.beats():
            for _ in range(3):
                try:
                    got.append(beat.decide("draft", ask))
                    break
                except ConnectionError:
                    continue
            if len(got) == 1:
                inprocess.die("here")
            beat.finish()
            beat.done()

    attempt(start(), body)
    attempt(start(), body)
    assert got == ["paid", "paid"]


def test_usage_rides_on_the_decision_and_counts_once(start: Start, store: Any) -> None:
    answer = outlast.Answer("text", outlast.Usage(input=10, output=5, cost_microusd=7))
    for _ in range(2):
        with start(budget={"tokens": 100, "usd": 1}) as run:
            for beat in run.beats():
                assert beat.decide("d", lambda: answer) == "text"
                break
    assert head_of(store).spent.tokens == 15
    assert head_of(store).spent.cost_microusd == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=sweeps.examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON)
def test_a_decision_returns_the_same_at_first_and_on_replay(start: Start, value: Any) -> None:
    got: list[Any] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            got.append(beat.decide("d", lambda: value))
            if len(got) == 2:
                beat.finish()
                beat.done()
            else:
                inprocess.die("here")

    attempt(start(again=True), body)
    attempt(start(again=True), body)
    assert repr(got[0]) == repr(got[1])


@pytest.mark.parametrize(
    "value", [object(), [object()], "\ud800", lambda: 1], ids=["object", "nested", "surrogate", "function"]
)
def test_a_decision_that_cannot_be_written_is_refused(start: Start, store: Any, value: object) -> None:
    with pytest.raises(outlast.NotEncodable), start() as run:
        for beat in run.beats():
            beat.decide("d", lambda: value)
    assert "decided" not in tags(store)


@pytest.mark.parametrize("size", [100, 4_000, 5_000, 3_000_000])
def test_payloads_of_any_size_come_back(start: Start, size: int) -> None:
    text = "ä" * size
    got = []

    def body(run: Run) -> None:
        run.plan([text[:200], "last"])
        for beat in run.beats():
            got.append(beat.decide("d", lambda: text))
            got.append(beat.act("a", lambda body: {"body": body}, text)["body"])
            if len(got) == 2:
                inprocess.die("here")
            beat.done(text, evidence=text)
        run.finish(text)

    attempt(start(), body)
    attempt(start(), body)
    assert set(got) == {text}


def test_in_an_async_run_a_large_payload_is_not_flushed_on_the_event_loop(start: Start) -> None:
    import threading

    threads: list[threading.Thread] = []

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                await beat.decide("d", lambda: "x" * 100_000)
                beat.finish()
                await beat.done("y" * 100_000)

    with inprocess.armed(
        at_point("blob.before_rename", 1, lambda _: threads.append(threading.current_thread()))
    ):
        asyncio.run(main())
    assert threads
    assert threading.main_thread() not in threads


# -- names and arguments of our own methods ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", 7, None, "x" * 201])
def test_a_recorded_call_needs_a_short_name(start: Start, name: Any) -> None:
    with start() as run:
        for beat in run.beats():
            with pytest.raises((outlast.UsageError, TypeError)):
                beat.decide(name, lambda: 1)
            with pytest.raises((outlast.UsageError, TypeError)):
                beat.act(name, lambda: 1)
            break


def test_the_functions_own_arguments_may_be_called_name_and_fn(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            assert beat.decide("d", lambda name, fn: [name, fn], name="n", fn="f") == ["n", "f"]
            assert beat.act("a", lambda name, fn: [name, fn], name="n", fn="f") == ["n", "f"]
            break


@pytest.mark.parametrize("task", ["", " ", "x" * 201, "a\nb", "\0"])
def test_a_task_needs_a_name(start: Start, task: str) -> None:
    with pytest.raises(outlast.UsageError):
        start(task)


def test_a_very_long_stage_or_step_does_not_make_the_run_unusable(start: Start, store: Any) -> None:
    """The head is bounded, so either the call is refused or the text is shortened; never a run that cannot go on."""
    for _ in range(2):
        with start() as run:
            run.plan(["s" * 3_000 + str(number) for number in range(40)])
            for beat in run.beats():
                try:
                    beat.stage("x" * 100_000)
                except outlast.UsageError:
                    pass
                beat.done()
                if beat.number == 33:
                    break
    assert head_of(store).status in ("interrupted", "done")


def test_results_in_any_script_do_not_make_the_run_unusable(start: Start, store: Any) -> None:
    """400 characters of 32 results and their evidence are 25 KB of ASCII, and 100 KB of emoji."""
    for _ in range(2):
        with start() as run:
            for beat in run.beats():
                beat.done("🧪" * 400, evidence="🔬" * 400)
                if beat.number % 40 == 0:
                    break
    assert head_of(store).beats == 80


@pytest.mark.parametrize("looked_at_every", [1, 7, 1000])
def test_the_head_in_memory_is_the_one_in_the_journal(start: Start, looked_at_every: int) -> None:
    with start("1411") as run:
        for beat in run.beats():
            if beat.number % 50 == 3:
                beat.decide("d", lambda: 1)
                beat.stage(f"at {beat.number}")
            if beat.number % looked_at_every == 0:
                assert run_engine(run).state.beats == beat.number - 1
            beat.done(result={"n": beat.number})
            if beat.number == 300:
                break
        journal = [item.event for item in run_engine(run).journal.store.read(run.id, after=0).events]
        assert run_engine(run).state == fold(RunState(), journal)
        assert run_engine(run).state.recent[-1].beat == 300


def test_json_of_the_callers_own_making_is_checked(start: Start) -> None:
    with start("1411") as run:
        beat = next(iter(run.beats()))
        with pytest.raises(outlast.NotEncodable):
            beat.done(result={"a": msgspec.Raw(b"{nonsense")})
        beat.done(result={"a": msgspec.Raw(b"[1]")})
        done = run_engine(run).journal.event_at(run_engine(run).state.seq)
        assert isinstance(done, ev.BeatDone)
        assert run_engine(run).journal.value(done.result) == {"a": [1]}
