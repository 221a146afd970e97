"""Requests to a live run, budgets, memory and the context."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.core import events as ev
from outlast.operations import requests
from outlast.runs.run import run_engine
from tests.support import inprocess
from tests.support.inprocess import ask, at_point, attempt, command, head_of, journal_of, tags

Start = Callable[..., Run]
STOPS = [
    ("pause", outlast.RunPaused, "paused"),
    ("cancel", outlast.RunCancelled, "cancelled"),
    ("handoff", outlast.RunHandedOff, "handed_off"),
]


# -- stops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "error", "status"), STOPS)
@pytest.mark.parametrize("moment", ["before an intent", "at a beat's end", "at the start"])
def test_a_request_to_stop_is_taken_in_with_its_effect_in_one_commit(
    start: Start, store: Path, what: str, error: type[Exception], status: str, moment: str
) -> None:
    done: list[str] = []
    if moment == "at the start":
        with start():
            pass
        ask(store, what)
    with pytest.raises(error, match="ada"), start() as run:
        run.plan(["a", "b", "c"])
        for beat in run.beats():
            done.append(beat.step)
            if moment == "at a beat's end":
                ask(store, what)
                beat.done()
                continue
            beat.act("first", lambda: 1)
            ask(store, what)
            beat.act("second", lambda: done.append("second"))
    assert done == {"before an intent": ["a"], "at a beat's end": ["a"], "at the start": []}[moment]
    assert tags(store)[-2:] == ["requested", "attempt_ended"]
    assert head_of(store).status == status
    with inprocess.reading(store) as opened:
        assert opened.inbox.pending(head_of(store).run) == []


def test_a_kill_before_the_commit_of_a_request_leaves_it_to_the_next_attempt(
    start: Start, store: Path
) -> None:
    with start():
        pass
    ask(store, "pause")

    def body(run: Run) -> None:
        next(iter(run.beats()))

    assert not attempt(start(), body, at_point("store.before_commit", 2))
    assert "requested" not in tags(store)
    with pytest.raises(outlast.RunPaused):
        attempt(start(), body)
    assert tags(store).count("requested") == 1


def test_a_program_that_catches_the_stop_cannot_go_on_writing(start: Start, store: Path) -> None:
    done: list[int] = []
    try:
        with start() as run:
            run.plan(["a", "b", "c"])
            for beat in run.beats():
                ask(store, "pause")
                beat.done()
                break
            try:
                next(iter(run.beats()))
            except outlast.RunPaused:
                pass
            for beat in run.beats():
                beat.act("post", lambda: done.append(1))
                beat.done()
    except outlast.OutlastError:
        pass
    assert done == []
    assert head_of(store).status == "paused"


def test_pause_waits_for_the_outcome_of_the_act_under_way(start: Start, store: Path) -> None:
    with pytest.raises(outlast.RunPaused), start() as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            beat.act("slow", lambda: ask(store, "pause"))
            beat.done()
    head = head_of(store)
    assert (head.status, head.beats, head.effects_open) == ("paused", 1, ())


def test_an_unknown_request_is_noted_and_nothing_else(start: Start, store: Path) -> None:
    with start() as run:
        ask(store, "dance")
        for beat in run.beats():
            beat.finish()
            beat.done()
    assert run.is_done
    assert "requested" in tags(store)


@pytest.mark.parametrize("what", ["settle", "budget", "amend"])
def test_a_request_with_nonsense_does_not_keep_the_run_from_ever_starting(
    start: Start, store: Path, what: str
) -> None:
    with start():
        pass
    ask(store, what, nonsense=7)
    for _ in range(2):
        try:
            with start() as run:
                for beat in run.beats():
                    beat.done()
                    break
        except outlast.OutlastError:
            pass
    assert head_of(store).beats > 0


# -- settle, amend -----------------------------------------------------------------------------------------------


def lose() -> None:
    raise ConnectionError("reset")


def test_a_settlement_that_waits_in_the_inbox_is_taken_in_at_the_next_start(
    start: Start, store: Path
) -> None:
    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("post", lose)
    ask(store, "settle", effect="1.1", finding="happened", result="seen")
    with start() as run:
        for beat in run.beats():
            assert beat.act("post", lose) == "seen"
            beat.finish()
            beat.done()
    assert run.is_done
    settled = [event for event in journal_of(store) if isinstance(event, ev.EffectSettled)]
    assert [(event.finding, event.by) for event in settled] == [("happened", "ada")]


def test_a_settlement_reaches_a_live_run_that_waits_for_it(start: Start, store: Path) -> None:
    with start() as run:
        for beat in run.beats():
            with pytest.raises(outlast.EffectInDoubt):
                beat.act("post", lose)
            ask(store, "settle", effect="1.1", finding="happened", result="seen")
            assert beat.act("post", lose) == "seen"
            beat.finish()
            beat.done()
    assert run.is_done


def test_settled_twice_only_the_first_counts(start: Start, store: Path) -> None:
    with pytest.raises(outlast.EffectInDoubt), start() as run:
        for beat in run.beats():
            beat.act("post", lose)
    command(store, "settle", effect="1.1", finding="happened", result=1)
    command(store, "settle", effect="1.1", finding="did_not")
    assert tags(store).count("effect_settled") == 1


def test_an_amended_contract_takes_hold_in_the_live_run(start: Start, store: Path) -> None:
    with start(done=["false"], invariants=["true"]) as run:
        run.plan(["a", "b"])
        for beat in run.beats():
            if beat.step == "a":
                ask(store, "amend", contract={"goal": "g", "checks": ["true"], "invariants": []})
            else:
                assert run.contract.goal == "g"
            beat.done()
    assert run.is_done


# -- budgets -----------------------------------------------------------------------------------------------------


def spend(run: Run, tokens: int) -> int:
    beats = 0
    for beat in run.beats():
        beat.decide("d", lambda: outlast.Answer(1, outlast.Usage(output=tokens)))
        beat.done()
        beats += 1
    return beats


@pytest.mark.parametrize(
    ("budget", "beats"), [(25, 3), ("beats=2", 2), ({"tokens": 100, "beats": 4}, 4), (["20", "usd=5"], 2)]
)
def test_a_budget_stops_the_run_and_a_resume_does_not_get_past_it(
    start: Start, store: Path, budget: Any, beats: int
) -> None:
    for _ in range(3):
        with pytest.raises(outlast.BudgetReached), start(budget=budget) as run:
            spend(run, 10)
    head = head_of(store)
    assert (head.beats, head.status, head.cause) == (beats, "interrupted", "budget")


def test_what_was_spent_survives_a_kill(start: Start) -> None:
    def body(run: Run) -> None:
        spend(run, 10)

    assert not attempt(start(budget=100), body, at_point("decide.recorded", 3))
    with start(budget=100) as run:
        assert run.budget.tokens == 70


def test_more_budget_by_request_holds_also_when_the_program_still_names_the_old_one(
    start: Start, store: Path
) -> None:
    with pytest.raises(outlast.BudgetReached), start(budget=20) as run:
        spend(run, 10)
    command(store, "budget", tokens=40)
    with pytest.raises(outlast.BudgetReached), start(budget=20) as run:
        assert run.budget.tokens == 20
        spend(run, 10)
    assert head_of(store).beats == 4
    assert head_of(store).budget == outlast.Allowance(tokens=40)


def test_a_budget_can_be_lifted(start: Start, store: Path) -> None:
    with pytest.raises(outlast.BudgetReached), start(budget=20) as run:
        spend(run, 10)
    with inprocess.reading(store) as opened:
        requests.set_budget(opened, run.id, None)
    assert head_of(store).budget is None
    with start() as run:
        run.finish()
    assert run.is_done


def test_more_budget_on_top_lets_the_run_go_on(start: Start, store: Path) -> None:
    with pytest.raises(outlast.BudgetReached), start(budget=["20", "beats=9"]) as run:
        spend(run, 10)
    with inprocess.reading(store) as opened:
        requests.add_budget(opened, run.id, outlast.Allowance(tokens=10, cost_microusd=5))
    assert head_of(store).budget == outlast.Allowance(tokens=30, beats=9), (
        "a unit without a limit stays without one"
    )
    with pytest.raises(outlast.BudgetReached), start() as run:
        spend(run, 10)
    assert head_of(store).beats == 3


def test_more_budget_reaches_a_live_run(start: Start, store: Path) -> None:
    with start(budget=20) as run:
        for beat in run.beats():
            beat.spend(10)
            if beat.number == 1:
                ask(store, "budget", tokens=1000)
            if beat.number == 5:
                beat.finish()
            beat.done()
    assert run.is_done


@pytest.mark.parametrize(
    "budget", ["", "-3", "4x", "usd=", "euro=3", 0, "window=120%", 3.5, [None], {"tokens": "a"}]
)
def test_a_budget_that_makes_no_sense_is_refused(start: Start, budget: Any) -> None:
    with pytest.raises(outlast.BadSetting):
        start(budget=budget)


# -- memory ------------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_in_the_context_with_its_state(start: Start) -> None:
    Path("same.md").write_text("1")
    Path("other.md").write_text("1")
    Path("gone.md").write_text("1")
    with start() as run:
        run.remember("link", "https://example.invalid/x")
        for beat in run.beats():
            for name in ("same", "other", "gone"):
                beat.remember(name, f"file:{name}.md")
            beat.done()
            break
    Path("other.md").write_text("2")
    Path("gone.md").unlink()
    with start() as run:
        text = run.context()
    assert "same: file:same.md (unchanged)" in text
    assert "other: file:other.md (changed since)" in text
    assert "gone: file:gone.md (missing)" in text
    assert "link: https://example.invalid/x" in text


@pytest.mark.parametrize("uri", ["file:my%20notes.md", "file:./my%20notes.md", "file:my notes.md"])
def test_a_file_is_found_however_its_uri_is_written(start: Start, uri: str) -> None:
    Path("my notes.md").write_text("1")
    with start() as run:
        run.remember("n", uri)
        assert "(unchanged)" in run.context()
        run.remember("n", (Path.cwd() / "my notes.md").as_uri())
        assert "(unchanged)" in run.context()


def test_a_ref_of_the_same_name_replaces_the_old_one(start: Start, store: Path) -> None:
    with start() as run:
        run.remember("a", "x:1")
        run.remember("b", "x:2")
        run.remember("a", "x:3")
    assert sorted((ref.name, ref.uri) for ref in head_of(store).memory) == [("a", "x:3"), ("b", "x:2")]


@pytest.mark.parametrize(
    "uri", ["notes.md", "", "data:text/plain,payload", "not a uri: just text", ":x", "x:" + "y" * 2000, 7]
)
def test_only_pointers_are_remembered(start: Start, uri: Any) -> None:
    with start() as run:
        with pytest.raises((outlast.UsageError, TypeError)):
            run.remember("n", uri)
        for beat in run.beats():
            with pytest.raises((outlast.UsageError, TypeError)):
                beat.remember("n", uri)
            break


@pytest.mark.parametrize("inside", [True, False])
def test_memory_is_bounded_in_number_and_size_and_the_run_goes_on(
    start: Start, store: Path, inside: bool
) -> None:
    with start() as run:
        for beat in run.beats():
            if not inside:
                beat.done()
            remember = beat.remember if inside else run.remember
            for number in range(256):
                remember(f"n{number}", f"x:{number}")
            with pytest.raises(outlast.MemoryFull):
                remember("one more", "x:1")
            for number in range(10):
                remember(f"n{number}", "y:" + "z" * 700)
            with pytest.raises(outlast.MemoryFull):
                for number in range(40):
                    remember(f"n{number}", "y:" + "z" * 1000)
            if inside:
                beat.done()
            break
    with start() as run:
        assert len(run_engine(run).state.memory) == 256


def test_memory_in_any_script_does_not_make_the_run_unusable(start: Start, store: Path) -> None:
    """The limit is in bytes as they are written: 16,384 control characters are 98 KB of JSON."""
    for _ in range(2):
        with start() as run:
            for number in range(16):
                try:
                    run.remember(f"n{number}", "x:" + "\x01🧪" * 500)
                except outlast.OutlastError:
                    break
    assert head_of(store).status == "interrupted"


# -- the context -------------------------------------------------------------------------------------------------


def test_the_context_tells_everything_that_was_and_is_the_same_twice(start: Start) -> None:
    with (
        pytest.raises(outlast.EffectInDoubt),
        start(goal="Trap exit signals", done=["make test"], budget="400k") as run,
    ):
        run.plan([("group", ["one", "two"]), "three"])
        for beat in run.beats():
            beat.stage("testing")
            beat.act("comment", lambda: {"url": "u/1"})
            if beat.step == "two":
                beat.act("push", lose)
            beat.done("found the cause", evidence={"file": "a.c"})
    with start() as run:
        text = run.context()
        assert text == run.context()
    for expected in (
        "Trap exit signals", "make test", "found the cause", "a.c", "1.1 comment", "u/1", "2.2 push", "Do not repeat",
        "[x]   one", "[>]   two", "[ ] three", "400,000 tokens left", "Stage: testing", "1 of 3 beats are done",
    ):  # fmt: skip
        assert expected in text, text


def test_the_step_to_do_is_in_the_context_however_long_the_plan(start: Start) -> None:
    with start(goal="g") as run:
        run.plan([f"step number {number}" for number in range(1000)])
        for beat in run.beats():
            beat.done("ok")
            if beat.number == 500:
                break
        assert "step number 500" in run.context(tokens_max=1_000)


def test_a_long_goal_is_never_cut_where_it_fits(start: Start) -> None:
    goal = "\n".join(f"line {number} of the goal" for number in range(100))
    with start(goal=goal, done=["make test"]) as run:
        run.plan([f"step {number}" for number in range(1000)])
        text = run.context(tokens_max=2_000)
    assert goal in text
    assert "make test" in text
    assert len(text) <= 6_000


def test_an_act_reads_the_inbox_only_when_somebody_has_put_something_in(
    start: Start, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    with pytest.raises(outlast.RunCancelled), start() as run:
        inbox, looks = run_engine(run).journal.store.inbox, list[str]()
        pending = inbox.pending
        monkeypatch.setattr(inbox, "pending", lambda run: looks.append(run) or pending(run))
        for beat in run.beats():
            before = len(looks)
            for number in range(5):
                beat.act("post", done.append, number, key=f"k{number}")
            assert len(looks) == before, "nobody asked anything"
            ask(store, "cancel")
            beat.act("post", done.append, 5, key="k5")
    assert done == [0, 1, 2, 3, 4]
    assert head_of(store).status == "cancelled"
