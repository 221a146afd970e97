"""What a run asks a person, folded: what is open, which answer counts, and what an approval lets pass."""

from datetime import timedelta

import pytest

from outlast.core import events as ev, questions, restarts, state as fold, verdict
from outlast.core.state import RunState
from outlast.core.values import Contract
from tests.core.samples import AT

LATER = AT + timedelta(hours=1)


def asked(name: str = "a1", *, beat: int = 0, within: timedelta | None = None) -> ev.QuestionAsked:
    deadline = None if within is None else AT + within
    return ev.QuestionAsked(
        at=AT, id=name, kind="approval", text="push", digest="d", beat=beat, deadline=deadline
    )


def answered(answer: ev.Answer, name: str = "a1") -> ev.QuestionAnswered:
    return ev.QuestionAnswered(at=AT, id=name, answer=answer, text="why", by="ada")


def intended(approved: str = "a1", n: int = 1) -> ev.EffectIntended:
    return ev.EffectIntended(at=AT, beat=1, n=n, name="e", occurrence=1, key=f"k{n}", approved=approved)


def after(*events: ev.AnyEvent) -> RunState:
    opened = ev.RunOpened(at=AT, run="r", task="t", project="/p", contract=Contract("g"))
    started = ev.AttemptStarted(at=AT, epoch=1)
    return fold.fold(RunState(), [opened, started, ev.BeatBegun(at=AT, beat=1), *events])


@pytest.mark.parametrize(
    ("events", "passes"),
    [
        ((), False),
        ((asked(),), False),
        ((asked(), answered("approved")), True),
        ((asked(), answered("rejected")), False),
        ((asked(), answered("expired")), False),
        ((asked(), answered("withdrawn")), False),
        ((asked(), answered("rejected"), answered("approved")), False),
        ((asked(), answered("approved"), answered("rejected")), True),
        ((asked(), answered("approved", "a2")), False),
        ((asked(), answered("approved"), intended()), False),
        ((asked(), answered("approved"), intended("a2")), True),
        ((asked(), answered("approved"), intended(), asked("a2")), False),
        ((asked(), answered("approved"), intended(), asked("a2"), answered("approved")), False),
        ((asked(), answered("approved"), intended(), asked("a2"), answered("approved", "a2")), True),
        ((asked(beat=1), answered("approved"), ev.BeatDone(at=AT, beat=1)), False),
        ((asked(), answered("approved"), ev.BeatDone(at=AT, beat=1)), True),
    ],
)
def test_a_call_passes_by_the_first_answer_and_once(events: tuple[ev.AnyEvent, ...], passes: bool) -> None:
    found = questions.usable(after(*events).questions, "d")
    assert (found is not None) == passes
    assert questions.usable(after(*events).questions, "another") is None


def test_an_answer_that_a_decision_used_is_gone() -> None:
    used = ev.Decided(at=AT, beat=1, name="ask", occurrence=1, value=ev.Payload(), question="a1")
    assert after(asked(), answered("answered"), used).questions == ()


def parked(*waits: str) -> tuple[ev.AnyEvent, ...]:
    ended = ev.AttemptEnded(at=AT, epoch=1, status="interrupted", cause="person")
    return ended, ev.Parked(at=AT, cause="person", waits=waits)


def test_a_run_goes_on_with_the_last_answer_that_it_waits_for() -> None:
    state = after(asked("a1"), asked("a2", within=timedelta(minutes=1)), asked("a3"), *parked("a1", "a2"))
    assert (state.status, state.waits) == ("parked", ("a1", "a2"))
    state = fold.apply(state, answered("approved", "a3"))
    state = fold.apply(state, answered("approved", "a1"))
    assert (state.status, state.waits) == ("parked", ("a2",))
    assert state.parked_until == AT + timedelta(minutes=1)
    state = fold.apply(state, answered("rejected", "a2"))
    assert (state.status, state.waits, state.parked_until) == ("interrupted", (), None)
    assert state.evidence == "a2 rejected by ada: why"


def test_waiting_is_neither_a_failure_nor_an_attempt_that_counts() -> None:
    assert after(asked(), *parked("a1")).past == restarts.Past()


def test_it_waits_for_a_person_until_the_last_deadline_is_over() -> None:
    state = after(
        asked("a1", within=timedelta(minutes=1)),
        asked("a2", within=timedelta(minutes=90)),
        *parked("a1", "a2"),
    )
    assert verdict.of(state, "parked", LATER).word == "waiting"
    assert verdict.of(state, "parked", AT + timedelta(minutes=90)).word == "ready"
    late = questions.overdue(state.questions, LATER)
    assert [(each.id, each.text) for each in late] == [("a1", "nobody answered within 1m")]


def test_old_answers_make_room_and_open_questions_stay() -> None:
    state = after(
        *(asked(f"a{n}") for n in range(1, questions.QUESTIONS_MAX + 1)), answered("rejected", "a5")
    )
    state = fold.apply(state, asked("a99"))
    assert len(state.questions) == questions.QUESTIONS_MAX
    assert {each.id for each in state.questions if not each.is_open} == set()
    assert "a99" in {each.id for each in state.questions}


def test_a_person_who_resumes_lets_it_ask_again_what_nobody_answered() -> None:
    state = after(
        asked("a1"), asked("a2"), answered("expired", "a1"), answered("rejected", "a2"), *parked("a1")
    )
    state = fold.apply(state, ev.Requested(at=AT, id=1, by="ada", what="resume"))
    assert [each.id for each in state.questions] == ["a2"]


@pytest.mark.parametrize(
    ("kind", "target", "wanted"),
    [("push", "x", True), ("deploy", "x", False), ("deploy", "eu-prod-1", True), ("", "", False)],
)
def test_a_call_asks_by_its_class_or_its_target(kind: str, target: str, wanted: bool) -> None:
    assert questions.Approvals(kinds=("push",), targets=("*prod*",)).wants(kind, target) == wanted
    assert questions.Approvals(kinds=("all",)).wants(kind, target)
