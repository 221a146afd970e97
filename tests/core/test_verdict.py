"""The one verdict on a run: a table over every status, cause and open effect, and who is woken by `resume --all` and at boot.

Each state is folded from the events that lead there.
"""

from datetime import timedelta
from itertools import product
from typing import get_args

import msgspec
import pytest

from outlast.core import events as ev, restarts, state as fold, statuses, verdict
from outlast.core.state import RunState
from outlast.core.values import Contract, ForkPoint
from tests.core.samples import AT, payload

LATER = AT + timedelta(hours=1)


def requested(what: str) -> ev.Requested:
    return ev.Requested(at=AT, id=0, by="someone", what=what)


def ended(cause: ev.Cause, status: ev.EndStatus = "interrupted", *, wanted: bool = False) -> ev.AttemptEnded:
    return ev.AttemptEnded(at=AT, epoch=1, status=status, cause=cause, wanted=wanted)


def intended(policy: ev.Policy) -> ev.EffectIntended:
    return ev.EffectIntended(at=AT, beat=1, n=1, name="pay", occurrence=1, key="k", policy=policy)


BEGUN = ev.BeatBegun(at=AT, beat=1)
DOUBT = ev.EffectInDoubt(at=AT, beat=1, n=1)
LOOKED = ev.EffectSettled(at=AT, beat=1, n=1, finding="cannot_tell", by="probe")


def after(*events: ev.AnyEvent, supervised: bool = True, guarded: bool = False) -> RunState:
    opened = ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract())
    launch = payload('{"argv":["a"]}') if supervised else None
    started = ev.AttemptStarted(at=AT, epoch=1, boot_id="b", launch=launch, guarded=guarded)
    return fold.fold(RunState(), [opened, started, *events])


def judged(
    state: RunState, *, lives: bool = False, limits: restarts.Limits | None = None
) -> tuple[bool, str]:
    """Whether it is woken, and why or why not."""
    shown = statuses.shown_status(state.status, holder_lives=lives, in_doubt=bool(state.in_doubt))
    found = verdict.of(state, shown, LATER, facts=verdict.HostFacts(limits=limits))
    return found.wakes, found.why


WOKEN: dict[str, list[ev.AnyEvent]] = {
    "SIGKILL, power: no word at all": [],
    "crash": [ended("crash")],
    "oom": [ended("oom")],
    "host": [ended("host")],
    "shutdown: SIGTERM of the init process": [ended("host")],
    "SIGHUP: the terminal went": [ended("signal")],
    "network": [ended("network")],
    "checks failed, and the next round never came": [ended("checks")],
    "parked past its reset": [ended("quota"), ev.Parked(at=AT, until=AT + timedelta(minutes=59))],
    "killed before it was parked": [ended("quota")],
    "killed inside an effect with a probe": [BEGUN, intended("probe")],
    "killed inside an effect that may be sent again": [BEGUN, intended("reissue")],
    "killed before the probe of a failed effect": [BEGUN, intended("probe"), DOUBT, ended("oom", "in_doubt")],
    "shut down inside an effect with a probe": [BEGUN, intended("probe"), ended("host", "in_doubt")],
    "killed inside an effect that may be given up": [BEGUN, intended("give_up")],
}
NOT_WOKEN: dict[str, tuple[list[ev.AnyEvent], str]] = {
    "paused": ([ended("operator", "paused", wanted=True)], "paused"),
    "Ctrl-C, SIGTERM by a person": ([ended("signal", wanted=True)], "stopped: signal"),
    "outlast kill": ([ended("operator", wanted=True)], "stopped: operator"),
    "outlast kill of one that was dead": ([ended("crash"), requested("kill")], "stopped: operator"),
    "cancelled": ([ended("operator", "cancelled", wanted=True)], "cancelled"),
    "budget": ([ended("budget")], "stopped: budget"),
    "disk": ([ended("disk")], "stopped: disk"),
    "stall": ([ended("stall")], "stopped: stall"),
    "quarantined": ([ended("crash"), ended("quarantine", "failed", wanted=True)], "quarantined"),
    "failed": ([ended("checks", "failed", wanted=True)], "failed"),
    "in doubt: a person was asked": (
        [BEGUN, intended("probe"), DOUBT, LOOKED, ended("crash", "in_doubt")],
        "in doubt: settle it first",
    ),
    "in doubt: sent again by its key, and again without an answer": (
        [BEGUN, intended("reissue"), DOUBT, ended("crash", "in_doubt")],
        "in doubt: settle it first",
    ),
    "somebody stopped it inside an effect with a probe": (
        [BEGUN, intended("probe"), ended("signal", "in_doubt", wanted=True)],
        "stopped: signal",
    ),
    "killed inside an effect that only a person can settle": (
        [BEGUN, intended("ask")],
        "in doubt: settle it first",
    ),
    "parked for ever": (
        [ended("auth"), ev.Parked(at=AT, cause="auth")],
        "parked until a person looks: auth",
    ),
    "parked until later": (
        [ended("quota"), ev.Parked(at=AT, until=LATER + timedelta(minutes=1))],
        f"parked until {LATER + timedelta(minutes=1):%Y-%m-%d %H:%M} UTC",
    ),
    "done": ([ev.Finished(at=AT), ended("done", "done")], "done"),
    "handed off": ([ended("handed_off", "handed_off", wanted=True)], "handed off"),
}


@pytest.mark.parametrize("row", WOKEN)
def test_who_died_without_anybodys_wish_is_woken(row: str) -> None:
    assert judged(after(*WOKEN[row]))[0]


@pytest.mark.parametrize("row", NOT_WOKEN)
def test_whom_somebody_stopped_or_who_needs_somebody_is_not_woken(row: str) -> None:
    events, why = NOT_WOKEN[row]
    assert judged(after(*events)) == (False, why)


def test_who_is_alive_is_not_woken() -> None:
    assert judged(after(), lives=True) == (False, "running")


@pytest.mark.parametrize("row", WOKEN)
def test_a_program_of_somebodys_own_is_theirs_to_start(row: str) -> None:
    wake = judged(after(*WOKEN[row], supervised=False))
    assert wake == (False, verdict.START_ITS_PROGRAM)


def opened(launch: bool) -> ev.RunOpened:
    how = payload('{"argv":["a"]}') if launch else None
    return ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract(), launch=how)


def test_a_run_that_was_opened_and_never_started_is_not_woken() -> None:
    assert judged(fold.fold(RunState(), [opened(False)])) == (False, verdict.NEVER_STARTED)


def test_a_command_killed_before_its_first_attempt_is_woken_unless_somebody_stopped_it() -> None:
    assert judged(fold.fold(RunState(), [opened(True)]))[0]
    assert not judged(fold.fold(RunState(), [opened(True), requested("kill")]))[0]


def test_one_whose_attempts_reached_a_limit_unseen_is_not_woken() -> None:
    state = after(*[ended("crash")] * 2)
    assert judged(state, limits=restarts.Limits(attempts_max=3))[0]
    assert judged(state, limits=restarts.Limits(attempts_max=2)) == (False, "quarantined")
    fruitless = after(*[ended("crash")] * 3)
    assert not judged(fruitless, limits=restarts.Limits())[0]


def test_an_attempt_that_came_to_a_question_was_not_in_vain() -> None:
    """Killed twice before it, and once after the answer: that is no row of three."""
    state = after(*[ended("crash")] * 2, ended("person"), ended("crash"))
    assert (state.past.fruitless, state.past.attempts) == (1, 3)
    assert judged(state, limits=restarts.Limits())[0]


def test_a_persons_word_ends_the_count_also_of_an_attempt_that_died_without_one() -> None:
    counted = after(*[ended("crash")] * 3)
    assert counted.past.fruitless == 3
    pardoned = fold.apply(counted, requested("resume"))
    assert (pardoned.past, pardoned.status, pardoned.cause) == (restarts.Past(), "interrupted", "crash")
    started = ev.AttemptStarted(at=AT, epoch=2, launch=payload('{"argv":["a"]}'))
    died = fold.fold(counted, [started, requested("resume")])
    assert died.status == "running"
    assert fold.apply(died, ended("crash")).past == restarts.Past()


def step_done(beat: int, *codes: int) -> ev.BeatDone:
    steps = [f'{{"step":"s","exit_code":{code}}}' for code in codes]
    return ev.BeatDone(
        at=AT, beat=beat, result=payload(steps[0] if len(steps) == 1 else f"[{','.join(steps)}]")
    )


@pytest.mark.parametrize(
    ("beats", "fruitless"),
    [
        ([step_done(1, 1)], 1),
        ([step_done(1, 1, 2), step_done(2, 1)], 1),
        ([step_done(1, 0)], 0),
        ([step_done(1, 1, 0)], 0),
        ([step_done(1, 0), step_done(2, 1)], 0),
        ([ev.BeatDone(at=AT, beat=1)], 0),
        ([], 1),
    ],
)
def test_a_beat_that_only_holds_steps_that_failed_is_no_progress(
    beats: list[ev.AnyEvent], fruitless: int
) -> None:
    assert after(*beats, ended("crash")).past.fruitless == fruitless


# --- every status, cause and open effect --------------------------------------------------------------------------------

STATUSES: tuple[ev.EndStatus, ...] = get_args(ev.EndStatus)
CAUSES: tuple[ev.Cause, ...] = get_args(ev.Cause)
DOUBTS: dict[str, list[ev.AnyEvent]] = {
    "none": [],
    **{f"{policy}, intended": [BEGUN, intended(policy)] for policy in get_args(ev.Policy)},
    **{f"{policy}, in doubt": [BEGUN, intended(policy), DOUBT] for policy in get_args(ev.Policy)},
    **{f"{policy}, looked": [BEGUN, intended(policy), LOOKED] for policy in get_args(ev.Policy)},
}
# The effects in doubt that the next attempt settles, where the last one was cut off.
SETTLED_NEXT = ("probe, intended", "probe, in doubt", "reissue, intended", *(d for d in DOUBTS if d.startswith(("give_up", "tell"))))  # fmt: skip
NOTHING_TO_ASK = ("none", *(d for d in DOUBTS if d.startswith("give_up")))
ENDS_IN_DOUBT = "EffectInDoubt: the command ended with 0 and effect 1.1 is in doubt"


def ends(cause: ev.Cause, status: ev.EndStatus, *, wanted: bool, evidence: str) -> list[ev.AnyEvent]:
    end = ev.AttemptEnded(at=AT, epoch=1, status=status, cause=cause, wanted=wanted, evidence=evidence)
    parked = [ev.Parked(at=AT, cause=cause, until=LATER + timedelta(hours=1))] if cause == "quota" else [ev.Parked(at=AT, cause=cause)]  # fmt: skip
    return [end, *(parked if status == "parked" else [])]


@pytest.mark.parametrize("doubt", DOUBTS)
def test_one_verdict_for_every_status_cause_and_open_effect(doubt: str) -> None:
    for status, cause, wanted, supervised in product(STATUSES, CAUSES, (False, True), (False, True)):
        for evidence in ("said so", ENDS_IN_DOUBT):
            events = [*DOUBTS[doubt], *ends(cause, status, wanted=wanted, evidence=evidence)]
            state = after(*events, supervised=supervised)
            counts = any(effect.policy != "give_up" for effect in state.in_doubt)
            shown = statuses.shown_status(state.status, holder_lives=False, in_doubt=counts)
            found = verdict.of(state, shown, LATER)
            about = (status, cause, wanted, supervised, evidence, shown, found)
            assert found.need == verdict.NEEDS[found.word], about
            goes_on = shown not in ("running", *statuses.CLOSED)
            is_asked = doubt not in SETTLED_NEXT or state.evidence == ENDS_IN_DOUBT
            if goes_on and is_asked and doubt not in NOTHING_TO_ASK:
                assert (found.word, found.need, found.wakes) == ("in_doubt", "person", False), about
                assert verdict.exit_code(found.word, cause) == verdict.EXIT_PERSON, about
                assert verdict.notice(found.word, cause) == "needs a person", about
            if found.needs_somebody:
                assert not found.wakes, about
                assert verdict.exit_code(found.word, cause) != 0, about
                assert not found.unasked, about
            if found.wakes:
                assert (supervised, wanted, found.need, found.unasked) == (True, False, "start", True), about
            if shown in statuses.ENDED or shown == "paused":
                assert not found.wakes, about
            if verdict.exit_code(found.word, cause) in (verdict.EXIT_PERSON, verdict.EXIT_BUDGET):
                assert found.needs_somebody or cause == "budget", about


ASKED = ev.EffectInDoubt(at=AT, beat=1, n=1, evidence="it was not made", asks=True)


@pytest.mark.parametrize("met", [LOOKED, ASKED], ids=["looked", "asked"])
def test_a_call_that_a_guard_holds_is_settled_before_a_person_does_anything_else(met: ev.AnyEvent) -> None:
    for status, cause, wanted in product(STATUSES, CAUSES, (False, True)):
        ended_as = ends(cause, status, wanted=wanted, evidence="said so")
        state = after(BEGUN, intended("tell"), met, *ended_as, guarded=True)
        shown = statuses.shown_status(state.status, holder_lives=False, in_doubt=True)
        found = verdict.of(state, shown, LATER)
        about = (status, cause, wanted, shown, found)
        assert verdict.to_settle(verdict.childless, state), about
        assert found.word != "unsettled", about
        if found.wakes or shown in statuses.CLOSED or found.need == "time":
            assert found.word != "in_doubt", about  # its other calls pass, so it goes on without a person
            continue
        assert (found.word, found.need) == ("in_doubt", "person"), about
        assert verdict.exit_code(found.word, cause) == verdict.EXIT_PERSON, about


@pytest.mark.parametrize(
    ("guarded", "met"), [(True, DOUBT), (False, LOOKED)], ids=["a probe is asked next", "its agent is told"]
)
def test_a_call_that_the_next_attempt_deals_with_is_not_asked_about(guarded: bool, met: ev.AnyEvent) -> None:
    quarantine = ended("quarantine", "failed", wanted=True)
    state = after(BEGUN, intended("tell"), met, quarantine, guarded=guarded)
    assert verdict.of(state, state.status, LATER).word == "quarantined"
    assert not verdict.to_settle(verdict.childless, state)


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("opened_as", ["fork", "import"])
def test_what_nobody_started_is_not_woken_whatever_became_of_it(doubt: str, opened_as: str) -> None:
    for status, cause, wanted in product(STATUSES, CAUSES, (False, True)):
        if opened_as == "fork":
            point = ForkPoint("other", 0, 1)
            state = fold.fold(RunState(), [msgspec.structs.replace(opened(True), fork=point), *DOUBTS[doubt]])
        else:
            ended_as = ends(cause, status, wanted=wanted, evidence="said so")
            state = after(*DOUBTS[doubt], *ended_as, requested("import"))
        shown = statuses.shown_status(state.status, holder_lives=False, in_doubt=bool(state.in_doubt))
        found = verdict.of(state, shown, LATER + timedelta(days=9))
        about = (status, cause, wanted, found)
        assert not found.wakes, about
        assert not found.unasked, about
        if shown in ("interrupted", "parked") and found.word != "in_doubt":
            assert (found.word, found.why[:11]) == ("not_started", "not started"), about
        asked = fold.apply(state, requested("resume"))
        assert not asked.awaits_start, about


def test_a_fork_that_somebody_asked_for_and_that_died_before_its_first_attempt_is_woken() -> None:
    point = ForkPoint("other", 0, 1)
    state = fold.fold(RunState(), [msgspec.structs.replace(opened(True), fork=point), requested("resume")])
    assert judged(state) == (True, "died before its first attempt was on record")


# --- an agent that had finished -----------------------------------------------------------------------------------------

FINISHED = ev.AttemptEnded(
    at=AT, epoch=1, status="in_doubt", cause="crash", wanted=True, evidence=ENDS_IN_DOUBT, ended_well=True
)


def settled(finding: ev.Finding) -> ev.EffectSettled:
    return ev.EffectSettled(at=AT, beat=1, n=1, finding=finding, by="anna")


@pytest.mark.parametrize(("finding", "well"), [("happened", True), ("give_up", True), ("did_not", False)])
def test_a_finished_agent_goes_on_only_if_its_call_did_not_happen(finding: ev.Finding, well: bool) -> None:
    state = after(BEGUN, intended("tell"), LOOKED, FINISHED, settled(finding))
    assert state.ended_well == well
    started = ev.AttemptStarted(at=AT, epoch=2, launch=payload('{"argv":["a"]}'))
    assert not fold.apply(state, started).ended_well, (
        "another agent, or a person at a terminal, goes on in it"
    )
    finishes = msgspec.structs.replace(started, finishes=True)
    assert fold.apply(state, finishes).ended_well == well
    amended = ev.ContractAmended(at=AT, contract=Contract("more"))
    assert not fold.apply(state, amended).ended_well
