"""Child runs: found again, fenced by the root, and one with it in doubt, pause and budget."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.store.protocol import RunFilter
from tests.support import inprocess
from tests.support.inprocess import ask, at_point, attempt, command, head_of, reading

Start = Callable[..., Run]


def lose() -> None:
    raise ConnectionError("reset")


def child_of(store: Path, task: str = "c") -> Any:
    with reading(store) as opened:
        return opened.list(RunFilter(task=task))[0]


@pytest.mark.parametrize("point", [None, "child.opened", "run.finished", "beat.before_done"])
def test_a_child_is_found_again_and_a_done_one_is_not_run_again(
    start: Start, store: Path, point: str | None
) -> None:
    worked: list[str] = []
    results: list[Any] = []

    def body(run: Run) -> None:
        run.plan(["a", "b"])
        for beat in run.beats():
            with beat.run("c", goal="sub") as child:
                child.plan(["c1", "c2"])
                for inner in child.beats():
                    inner.act("work", worked.append, f"{beat.step} {inner.step}")
                    inner.done()
                child.finish(f"result of {beat.step}") if not child.is_done else None
                results.append(child.result)
            beat.done()

    if point:
        assert not attempt(start(), body, at_point(point))
    assert attempt(start(), body)
    assert worked == ["a c1", "a c2", "b c1", "b c2"]
    assert results[-2:] == ["result of a", "result of b"]
    with reading(store) as opened:
        children = opened.list(RunFilter(task="c"))
        assert len(children) == 2
        assert {summary.parent for summary in children} == {head_of(store).run}
        assert {summary.root for summary in children} == {head_of(store).run}
        assert {summary.parent_beat for summary in children} == {1, 2}


def test_killed_between_the_child_and_the_end_of_its_beat_the_child_is_not_run_again(start: Start) -> None:
    worked: list[str] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            with beat.run("c") as child:
                child.plan(["c1"])
                for inner in child.beats():
                    worked.append(inner.step)
                    inner.done()
            beat.finish()
            beat.done()

    assert not attempt(start(), body, at_point("child.finished"))
    assert attempt(start(), body)
    assert worked == ["c1"]


def test_children_of_children_are_fenced_by_the_one_root(start: Start, store: Path) -> None:
    with start() as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    with inner.run("g") as grandchild:
                        grandchild.finish(7)
                    inner.finish()
                    inner.done()
            beat.finish()
            beat.done()
    assert run.is_done
    assert child_of(store, "g").root == run.id
    assert child_of(store, "g").parent == child_of(store).run


def test_a_child_of_an_attempt_that_was_robbed_cannot_write(start: Start, store: Path) -> None:
    with pytest.raises(outlast.LeaseLost), start() as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    with reading(store) as other:
                        other._db.writer.execute("UPDATE runs SET epoch = epoch + 1 WHERE run = ?", (run.id,))
                    inner.done()
    assert child_of(store).state.beats == 0


def test_a_beat_is_not_done_before_its_children(start: Start) -> None:
    with pytest.raises(outlast.UnreachedEffect, match="child c is"), start() as run:
        for beat in run.beats():
            with beat.run("c") as child:
                child.plan(["c1"])
            beat.done()


def test_a_child_in_doubt_makes_the_root_in_doubt(start: Start, store: Path) -> None:
    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    inner.act("post", lose)
    assert child_of(store).state.status == "in_doubt"
    assert head_of(store).status == "in_doubt"


def test_a_child_in_doubt_after_a_kill_makes_the_root_in_doubt_too(start: Start, store: Path) -> None:
    """A program that looks past its child must not end the root as if nothing were open."""

    def body(run: Run) -> None:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    inner.act("post", lambda: 1)

    assert not attempt(start(), body, at_point("act.performed"))
    with start() as run:
        for _beat in run.beats():
            break
    assert head_of(store).status == "in_doubt"


def test_the_roots_context_names_what_is_in_doubt_anywhere_below_its_open_beat(start: Start) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.act("mine", lambda: 1)
            with beat.run("c") as child:
                for inner in child.beats():
                    with inner.run("g") as grandchild:
                        for innermost in grandchild.beats():
                            innermost.act("push", lambda: 1)
                    inner.act("post", lose)

    assert not attempt(start(), body, at_point("act.performed", 2))
    with start() as run:
        text = run.context()
        assert text == run.context()
    (line,) = [line for line in text.splitlines() if "push" in line]
    assert "1.1 push of part g (run " in line
    assert "Do not repeat it unasked" in line
    assert "mine" in text


def test_a_settled_child_is_not_in_the_roots_context_any_more(start: Start) -> None:
    def work(act: Callable[[], Any]) -> str:
        with start() as run:
            for beat in run.beats():
                with beat.run("c") as child:
                    for inner in child.beats():
                        inner.act("post", act, unknown="give_up")
                        inner.finish()
                        inner.done()
                return str(run.context())
        return ""

    assert "in doubt" not in work(lose)


def test_a_pause_of_the_root_stops_the_child_and_both_go_on_after_resume(start: Start, store: Path) -> None:
    worked: list[str] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            with beat.run("c") as child:
                child.plan(["c1", "c2", "c3"])
                for inner in child.beats():
                    worked.append(inner.step)
                    if worked == ["c1"]:
                        ask(store, "pause")
                    inner.done()
            beat.finish()
            beat.done()

    with pytest.raises(outlast.RunPaused):
        attempt(start(), body)
    assert worked == ["c1"]
    assert head_of(store).status == "paused"
    command(store, "resume")
    assert attempt(start(), body)
    assert worked == ["c1", "c2", "c3"]
    assert head_of(store).status == "done"


def test_a_pause_is_taken_in_before_an_intent_of_the_child(start: Start, store: Path) -> None:
    done: list[int] = []
    with pytest.raises(outlast.RunPaused), start() as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    ask(store, "pause")
                    inner.act("post", lambda: done.append(1))
    assert done == []
    assert head_of(store).status == "paused"


def test_what_a_child_spent_counts_for_the_root(start: Start, store: Path) -> None:
    with start(budget=100) as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    inner.spend(30)
                    inner.finish()
                    inner.done()
            beat.spend(5)
            beat.done()
            break
        assert run.budget.tokens == 65


def test_the_roots_budget_stops_a_child(start: Start, store: Path) -> None:
    with pytest.raises(outlast.BudgetReached), start(budget=100) as run:
        for beat in run.beats():
            with beat.run("c") as child:
                for inner in child.beats():
                    inner.decide("d", lambda: outlast.Answer(1, outlast.Usage(output=60)))
                    if inner.number == 5:
                        inner.finish()
                    inner.done()
            beat.finish()
            beat.done()
    assert child_of(store).state.beats == 2


@pytest.mark.parametrize("after_a_child", [False, True])
def test_a_run_inside_an_open_beat_is_refused_and_names_what_to_use(
    start: Start, after_a_child: bool
) -> None:
    with start() as run:
        for beat in run.beats():
            if after_a_child:
                with beat.run("c") as child:
                    for inner in child.beats():
                        inner.finish()
                        inner.done()
            with pytest.raises(outlast.NestedRun) as raised, start("other"):
                pass
            assert "beat.run" in raised.value.hint
            break
    with start("other"):
        pass


def test_between_beats_another_run_may_be_opened(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            beat.done()
            with start("other") as other:
                other.finish()
            break


def test_a_failing_check_of_a_child_comes_through_and_the_child_goes_on_later(
    start: Start, store: Path
) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            with beat.run("c", done=["test -e proof"]) as child:
                child.finish()
            beat.finish()
            beat.done()

    with pytest.raises(outlast.ChecksFailed):
        attempt(start(), body)
    Path("proof").touch()
    assert attempt(start(), body)
    assert head_of(store).status == "done"


def test_async_children_of_one_beat_work_side_by_side(start: Start, store: Path) -> None:
    async def one(beat: outlast.Beat, name: str) -> str:
        async with beat.run(name) as child:
            await child.plan(["x", "y"])
            async for inner in child.beats():
                await inner.decide("d", str, inner.step)
                await inner.done()
        return str(child.status)

    async def main() -> None:
        async with start() as run:
            async for beat in run.beats():
                ended = await asyncio.gather(*(one(beat, f"c{number}") for number in range(8)))
                assert set(ended) == {"done"}
                beat.finish()
                await beat.done()
        assert run.is_done

    asyncio.run(main())


def test_killed_in_a_child_the_second_attempt_goes_on_in_the_middle_of_it(start: Start) -> None:
    asked: list[str] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            beat.decide("outer", asked.append, "outer")
            with beat.run("c") as child:
                child.plan(["c1", "c2"])
                for inner in child.beats():
                    inner.decide("inner", asked.append, inner.step)
                    if inner.step == "c2" and asked.count("died") == 0:
                        asked.append("died")
                        inprocess.die("here")
                    inner.done()
            beat.finish()
            beat.done()

    assert not attempt(start(), body)
    assert attempt(start(), body)
    assert asked == ["outer", "c1", "c2", "died"]
