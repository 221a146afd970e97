"""Every way a run can stop has one word, one sentence and one next step; no two situations share a word."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest

from outlast.core import events as ev, state as st
from outlast.core.values import Allowance, Contract, Payload, Usage
from outlast.inspect import find, standing
from outlast.runs.attempts import boot_id
from tests.support.journals.scribe import payload

AT = datetime(2026, 11, 16, 7, 0, tzinfo=UTC)
RUN = "kx3fkx3fkx3f"
RESUME = f"outlast resume {RUN}"
PROGRAM = "start its program"


def opened(budget: Allowance | None = None) -> ev.AnyEvent:
    return ev.RunOpened(at=AT, run=RUN, task="1411", project="/src/app", contract=Contract(), budget=budget)


def started(*, own: bool = False, boot: str = "", guarded: bool = False) -> ev.AnyEvent:
    launch: Payload | None = None if own else payload({})
    return ev.AttemptStarted(
        at=AT,
        epoch=1,
        host="owl",
        pid=7,
        boot_id=boot or boot_id(),
        version="1",
        code="",
        command=(),
        launch=launch,
        guarded=guarded,
    )


def ended(cause: ev.Cause, evidence: str = "said so", *, status: ev.EndStatus = "interrupted", wanted: bool = False) -> ev.AnyEvent:  # fmt: skip
    return ev.AttemptEnded(at=AT, epoch=1, status=status, cause=cause, evidence=evidence, wanted=wanted)


def wish(what: str) -> ev.AnyEvent:
    return ev.Requested(at=AT, id=1, what=what, by="anna")


def parked(cause: ev.Cause, until: timedelta | None) -> ev.AnyEvent:
    return ev.Parked(at=AT, cause=cause, until=None if until is None else AT + until, evidence="a wall")


def intended(policy: ev.Policy) -> Sequence[ev.AnyEvent]:
    return (
        ev.BeatBegun(at=AT, beat=1, step=""),
        ev.EffectIntended(at=AT, beat=1, n=1, name="push", occurrence=1, key="k", policy=policy),
    )


@dataclass(frozen=True)
class Situation:
    """What happened to a run; `kind` is the situation, of which there may be several ways in."""

    kind: str
    events: Sequence[ev.AnyEvent]
    word: str
    next: str
    lives: bool = False
    waits: bool = False
    was_signalled: bool = False


def asks(name: str, kind: ev.QuestionKind, within: timedelta | None = None) -> tuple[ev.AnyEvent, ...]:
    until = None if within is None else AT + within
    return (
        ev.QuestionAsked(at=AT, id=name, kind=kind, deadline=until),
        ended("person"),
        ev.Parked(at=AT, until=until, cause="person", waits=(name,)),
    )


SPENT = Allowance(tokens=1_000)
ALL = (
    Situation("at work", (started(),), "running", f"outlast output {RUN} -f", lives=True),
    Situation("at work", (started(own=True),), "running", f"outlast log {RUN} --follow", lives=True),
    Situation("waits for its restart", (started(), ended("crash")), "restarting", f"outlast output {RUN} -f", waits=True),
    Situation("waits for its restart", (started(),), "restarting", f"outlast output {RUN} -f", waits=True),
    Situation("never started", (), "not_started", PROGRAM),
    Situation("kill -9, nobody restarts it", (started(),), "killed", RESUME),
    Situation("kill -9, nobody restarts it", (started(own=True),), "killed", PROGRAM),
    Situation("machine went down", (started(boot="another"),), "rebooted", RESUME),
    Situation("machine went down", (started(), ended("host")), "rebooted", RESUME),
    *(
        Situation("agent failed, no supervisor left", (started(), ended(cause)), "died", RESUME)
        for cause in ("crash", "oom", "network", "context", "signal", "auth", "program_missing")
    ),
    Situation("agent failed, no supervisor left", (started(own=True), ended("crash")), "died", PROGRAM),
    Situation("Ctrl-C or SIGTERM", (started(), ended("signal", "SIGINT", wanted=True)), "signalled", RESUME),
    Situation("Ctrl-C or SIGTERM", (started(),), "signalled", RESUME, was_signalled=True),
    Situation("stopped by a person", (started(), ended("operator", "kill asked by anna", wanted=True)), "stopped", RESUME),
    Situation("stopped by a person", (started(), ended("operator", "open asked by anna", wanted=True)), "stopped", RESUME),
    Situation("stopped by a person", (started(), ended("crash"), wish("kill")), "stopped", RESUME),
    Situation("left before done", (started(own=True), ended("operator", "the program left the run after beat 2", wanted=True)), "left", PROGRAM),
    Situation("left before done", (started(), ended("operator", "left by the person at the terminal", wanted=True)), "left", RESUME),
    Situation("checks failed", (started(own=True), ended("checks")), "checks_failed", PROGRAM),
    Situation("checks failed", (started(), ended("invariant")), "checks_failed", RESUME),
    Situation("stalled", (started(), ended("stall")), "stalled", RESUME),
    Situation("disk full", (started(), ended("disk")), "disk_full", RESUME),
    Situation("paused by a person", (started(), ended("operator", status="paused")), "paused", RESUME),
    Situation("paused by a person", (started(own=True), ended("operator", status="paused")), "paused", RESUME),
    Situation("waits for quota", (started(), ended("quota"), parked("quota", timedelta(hours=1))), "parked", RESUME),
    Situation("quota is back", (started(), ended("quota"), parked("quota", -timedelta(hours=1))), "due", RESUME),
    Situation("something is missing", (started(), ended("auth"), parked("auth", None)), "blocked", RESUME),
    Situation("in doubt, a person must look", (started(), *intended("ask")), "in_doubt", f"outlast settle {RUN} 1.1"),
    Situation("in doubt, the next attempt looks", (started(), *intended("probe")), "unsettled", RESUME),
    Situation("in doubt, a person must look", (started(), *intended("tell"), ended("crash", "EffectInDoubt: push", status="in_doubt", wanted=True)), "in_doubt", f"outlast settle {RUN} 1.1"),
    Situation("in doubt, the next attempt looks", (started(), *intended("tell")), "unsettled", RESUME),
    Situation("in doubt, the next attempt looks", (started(), *intended("tell"), ended("network", status="in_doubt")), "unsettled", RESUME),
    Situation("stalled", (started(), *intended("tell"), ended("stall", status="in_doubt")), "stalled", RESUME),
    Situation("never started", (started(), ended("crash"), wish("import")), "not_started", RESUME),
    Situation("never started", (started(), ended("quota"), parked("quota", -timedelta(hours=1)), wish("import")), "not_started", RESUME),
    Situation("a person is asked", (started(), *asks("a1", "approval")), "waiting", f"outlast approve {RUN} a1"),
    Situation("a person is asked", (started(own=True), *asks("q1", "question")), "waiting", f"outlast answer {RUN} --id q1"),
    Situation("may start again", (started(), *asks("a1", "approval"), ev.QuestionAnswered(at=AT, id="a1", answer="approved")), "ready", RESUME),
    Situation("may start again", (started(), *asks("a1", "approval", -timedelta(hours=1))), "ready", RESUME),
    Situation("failed", (started(), ended("checks", status="failed")), "failed", RESUME),
    Situation("failed", (started(), ended("quota", status="failed")), "failed", RESUME),
    Situation("quarantined", (started(), ended("quarantine", status="failed")), "quarantined", RESUME),
    Situation("may start again", (started(), ended("operator", status="paused"), wish("resume")), "ready", RESUME),
    Situation("may start again", (started(own=True), ended("crash", "EffectInDoubt: push")), "ready", PROGRAM),
    Situation("may start again", (started(), ended("budget")), "ready", RESUME),
    Situation("done", (started(), ev.Finished(at=AT)), "done", ""),
    Situation("cancelled", (started(), ended("operator", status="cancelled")), "cancelled", ""),
    Situation("handed off", (started(), ended("handed_off", status="handed_off")), "handed_off", f"outlast handoff {RUN} --take-back"),
)  # fmt: skip


def stands(
    events: Sequence[ev.AnyEvent], situation: Situation, budget: Allowance | None = None
) -> standing.Standing:
    state = st.fold(st.RunState(run=RUN), [opened(budget), *events])
    status = find.status_among(_childless, state, situation.lives)
    return standing.of(
        state, status, AT, _childless, waits=situation.waits, was_signalled=situation.was_signalled
    )


def _childless(state: st.RunState) -> Sequence[st.RunState]:
    return ()


@pytest.mark.parametrize("situation", ALL, ids=lambda each: each.kind)
def test_a_run_that_stopped_has_its_word_its_sentence_and_its_next_step(situation: Situation) -> None:
    found = stands(situation.events, situation)
    assert (found.word, found.next) == (situation.word, situation.next)
    assert found.says.startswith(standing.MEANINGS[found.word])


@pytest.mark.parametrize("held_by", ["its policy", "a guard"])
@pytest.mark.parametrize("situation", ALL, ids=lambda each: each.kind)
def test_what_a_person_settles_comes_before_everything_else(situation: Situation, held_by: str) -> None:
    begun, *rest = situation.events or (None,)
    moves_alone = situation.word in ("running", "restarting", "done", "cancelled", "handed_off")
    if begun is None or moves_alone or any(isinstance(each, ev.EffectIntended) for each in rest):
        return
    assert isinstance(begun, ev.AttemptStarted)
    doubt = intended("ask" if held_by == "its policy" else "tell")
    looked = ev.EffectSettled(at=AT, beat=1, n=1, finding="cannot_tell", by="probe")
    guarded = msgspec.structs.replace(begun, guarded=held_by == "a guard")
    if guarded.guarded and begun.launch is None:
        return  # outlast does not guard a program of somebody's own
    found = stands([guarded, *doubt, looked, *rest], situation)
    assert found.next == f"outlast settle {RUN} 1.1"


def test_a_spent_budget_says_what_to_add_until_there_is_more() -> None:
    events = [
        started(),
        ev.SpendSettled(at=AT, key="k", usage=Usage(input=2_000)),
        ended("budget", "1,000 tokens spent"),
    ]
    case = Situation("budget is spent", events, "out_of_budget", "")
    found = stands(events, case, SPENT)
    assert found.word == "out_of_budget"
    assert found.next.startswith(f"{RESUME} --budget +")
    raised = ev.Requested(at=AT, id=1, what="budget", by="anna", args=payload({"tokens": 9_000}))
    assert stands([*events, raised], case, SPENT).word == "ready"


def test_no_two_situations_share_a_word_and_no_situation_has_two() -> None:
    kinds = {each.kind: each.word for each in ALL} | {"budget is spent": "out_of_budget"}
    assert all(kinds[each.kind] == each.word for each in ALL), "a situation has two words"
    assert len(set(kinds.values())) == len(kinds), "two situations share a word"
    assert set(kinds.values()) == set(get_args(standing.Word)) == set(standing.MEANINGS)
    assert len(set(standing.MEANINGS.values())) == len(standing.MEANINGS)
    assert "interrupted" not in kinds.values()
