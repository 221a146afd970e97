"""Acts that a person approves first, and questions, in one process: what is recorded, raised and replayed."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.core import events as ev, questions, verdict
from outlast.operations import requests
from outlast.runs.engine.questions import AnswerArgs
from tests.runs.effect_world import EffectWorld
from tests.support import inprocess
from tests.support.inprocess import ask, head_of, journal_of, tags

Start = Callable[..., Run]


def answer(store: Path, word: ev.Answer, text: str = "", question: str = "") -> None:
    """What a person does from another terminal, while nobody holds the run."""
    with inprocess.reading(store) as opened:
        head = head_of(store)
        wanted = question or questions.open_among(head.questions)[0].id
        requests.answer(opened, head.run, AnswerArgs(wanted, word, text), by="ada")


def pay(world: EffectWorld, amount: int = 1, **how: Any) -> Callable[[Run], Any]:
    def body(run: Run) -> Any:
        for beat in run.beats():
            paid = beat.act("pay", world.pay, amount, **{"approve": True, **how})
            beat.finish(paid)
            beat.done(paid)
        return run.result

    return body


def attempt(start: Start, body: Callable[[Run], Any]) -> Any:
    with start() as run:
        return body(run)


# -- approvals -------------------------------------------------------------------------------------------------------


def test_an_act_is_performed_once_and_only_after_its_approval_is_on_record(start: Start, store: Path) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.WaitsForPerson) as caught:
        attempt(start, pay(world, 7))
    assert (world.done, caught.value.questions) == ([], ("a1",))
    head = head_of(store)
    assert (head.status, head.cause, head.waits) == ("parked", "person", ("a1",))
    found = verdict.of(head, head.status, head.updated_at)  # type: ignore[arg-type]
    assert (found.word, found.need, found.wakes) == ("waiting", "person", False)
    assert verdict.exit_code(found.word, head.cause) == verdict.EXIT_PERSON
    assert "pay(7)" in head.questions[0].text

    with pytest.raises(outlast.WaitsForPerson):  # started again: the same question, and no second one
        attempt(start, pay(world, 7))
    assert [each.id for each in head_of(store).questions] == ["a1"]

    answer(store, "approved")
    assert (world.done, head_of(store).status) == ([], "interrupted")
    attempt(start, pay(world, 7))
    assert world.done == [7]
    [intent] = [event for event in journal_of(store) if isinstance(event, ev.EffectIntended)]
    assert intent.approved == "a1"
    assert head_of(store).questions == (), "the approval is used up"


def test_an_approval_counts_for_these_arguments_alone(start: Start, store: Path) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, pay(world, 7))
    answer(store, "approved")
    with pytest.raises(outlast.WaitsForPerson) as caught:  # the code changed meanwhile
        attempt(start, pay(world, 7_000))
    assert (world.done, caught.value.questions) == ([], ("a2",))


def test_the_same_act_in_the_next_beat_asks_again(start: Start, store: Path) -> None:
    world = EffectWorld()

    def body(run: Run) -> None:
        run.plan(["one", "two"])
        for beat in run.beats():
            beat.act("pay", world.pay, 1, approve=True)
            beat.done()

    for count in (0, 1):
        with pytest.raises(outlast.WaitsForPerson):
            attempt(start, body)
        assert len(world.done) == count
        answer(store, "approved")
    attempt(start, body)
    assert len(world.done) == 2


def test_a_rejected_act_is_never_performed_and_the_program_reads_why(start: Start, store: Path) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, pay(world))
    answer(store, "rejected", "not on a Friday")
    for _ in range(2):
        with pytest.raises(outlast.NotApproved, match="not on a Friday") as caught:
            attempt(start, pay(world))
        assert (caught.value.reason, caught.value.by) == ("not on a Friday", "ada")
    assert world.done == []


def test_nobody_in_time_is_a_rejection_at_the_next_start(start: Start, store: Path) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, pay(world, approve="1h"))
    head = head_of(store)
    [question] = head.questions
    assert question.deadline == question.since + timedelta(hours=1) == head.parked_until
    late = question.deadline + timedelta(seconds=1)
    assert verdict.of(head, "parked", late).word == "ready"
    [event] = questions.overdue(head.questions, late)
    assert (event.answer, event.text) == ("expired", "nobody answered within 1h")
    with inprocess.reading(store) as opened, requests.claimed(opened, head.run) as journal:
        requests._write(journal, event)
    with pytest.raises(outlast.NotApproved, match="nobody answered within 1h"):
        attempt(start, pay(world, approve="1h"))
    assert world.done == []
    with inprocess.reading(store) as opened:
        requests.pause(opened, head.run)
        requests.resume(opened, head.run)  # a person is there now: it may ask again
    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, pay(world, approve="1h"))


def test_only_the_first_answer_counts(start: Start, store: Path) -> None:
    world = EffectWorld()
    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, pay(world))
    answer(store, "rejected")
    answer(store, "approved", question="a1")
    with pytest.raises(outlast.NotApproved):
        attempt(start, pay(world))
    assert world.done == []


def test_what_surely_did_not_happen_is_tried_again_under_its_approval(start: Start, store: Path) -> None:
    tries: list[int] = []

    def act(amount: int) -> str:
        tries.append(amount)
        if len(tries) == 1:
            raise outlast.DidNotHappen("refused")
        return "ok"

    def body(run: Run) -> None:
        for beat in run.beats():
            beat.act("pay", act, 1, approve=True, retry=1)
            beat.finish()
            beat.done()

    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, body)
    answer(store, "approved")
    attempt(start, body)
    intents = [event for event in journal_of(store) if isinstance(event, ev.EffectIntended)]
    assert [(event.attempt, event.approved) for event in intents] == [(1, "a1"), (2, "a1")]


def test_a_program_that_works_on_takes_the_answer_from_its_inbox(start: Start, store: Path) -> None:
    world = EffectWorld()

    def body(run: Run) -> None:
        for beat in run.beats():
            with pytest.raises(outlast.WaitsForPerson):
                beat.act("pay", world.pay, 1, approve=True)
            ask(store, "answer", question="a1", answer="approved")
            assert beat.act("pay", world.pay, 1, approve=True) == {"paid": 1}
            beat.finish()
            beat.done()

    attempt(start, body)
    assert world.done == [1]
    assert head_of(store).status == "done"


def test_several_wait_together_and_the_run_goes_on_with_the_last_answer(start: Start, store: Path) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            for name in ("one", "two"):
                try:
                    beat.act(name, lambda: None, approve=True)
                except outlast.WaitsForPerson as error:
                    waits = error
            raise waits

    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, body)
    assert head_of(store).waits == ("a1", "a2")
    answer(store, "approved")
    assert (head_of(store).status, head_of(store).waits) == ("parked", ("a2",))
    answer(store, "approved")
    assert (head_of(store).status, head_of(store).waits) == ("interrupted", ())


async def _async_pay(start: Start, world: EffectWorld) -> None:
    async with start() as run:  # type: ignore[attr-defined]
        async for beat in run.beats():
            chosen = await beat.ask("how much?", choices=["1", "2"])
            await beat.act("pay", world.pay, int(chosen), approve=True)
            await beat.finish()
            await beat.done()


def test_in_an_async_run_too(start: Start, store: Path) -> None:
    import asyncio

    world = EffectWorld()
    for word, text in (("answered", "2"), ("approved", "")):
        with pytest.raises(outlast.WaitsForPerson):
            asyncio.run(_async_pay(start, world))
        answer(store, word, text)  # type: ignore[arg-type]
    asyncio.run(_async_pay(start, world))
    assert world.done == [2]


def test_a_child_run_asks_nobody(start: Start) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            with beat.run("part") as child:
                for inner in child.beats():
                    inner.act("pay", lambda: None, approve=True)

    with pytest.raises(outlast.UsageError, match="only a root run asks a person"):
        attempt(start, body)


# -- questions -------------------------------------------------------------------------------------------------------


def test_an_answer_is_recorded_and_replayed(start: Start, store: Path) -> None:
    answers: list[str] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            answers.append(beat.ask("which API?", choices=["v1", "v2"]))
            if len(answers) == 1:
                raise RuntimeError("died")
            beat.finish()
            beat.done()

    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, body)
    answer(store, "answered", "v2")
    with pytest.raises(RuntimeError):
        attempt(start, body)
    attempt(start, body)
    assert answers == ["v2", "v2"]
    assert tags(store).count("question_asked") == 1


def test_a_long_answer_comes_whole(start: Start, store: Path) -> None:
    found: list[str] = []

    def body(run: Run) -> None:
        for beat in run.beats():
            found.append(beat.ask("what next?"))
            beat.finish()
            beat.done()

    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, body)
    answer(store, "answered", "ä" * 3_000)
    attempt(start, body)
    assert found == ["ä" * 3_000]


def test_a_refused_question_says_why(start: Start, store: Path) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.ask("may I?")

    with pytest.raises(outlast.WaitsForPerson):
        attempt(start, body)
    answer(store, "rejected", "decide yourself")
    with pytest.raises(outlast.NotAnswered, match="decide yourself"):
        attempt(start, body)


@pytest.mark.parametrize(
    ("text", "choices"), [("", ()), ("x" * 5_000, ()), ("q", "v1"), ("q", ["a", "a"]), ("q", ["x" * 200])]
)
def test_a_question_that_nobody_could_answer_is_refused(
    start: Start, store: Path, text: str, choices: Any
) -> None:
    def body(run: Run) -> None:
        for beat in run.beats():
            beat.ask(text, choices=choices)

    with pytest.raises(outlast.UsageError):
        attempt(start, body)
    assert "question_asked" not in tags(store)
