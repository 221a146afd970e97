"""Who is woken by `resume --all` and at boot: each row of DESIGN's table, folded from the events that lead there."""

from datetime import timedelta

import pytest

from outlast.core import events as ev, restarts, state as fold, statuses, wakeups
from outlast.core.state import RunState
from outlast.core.values import Contract
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


def after(*events: ev.AnyEvent, supervised: bool = True) -> RunState:
    opened = ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract())
    launch = payload('{"argv":["a"]}') if supervised else None
    started = ev.AttemptStarted(at=AT, epoch=1, boot_id="b", launch=launch)
    return fold.fold(RunState(), [opened, started, *events])


def judged(state: RunState, *, lives: bool = False) -> wakeups.Wake:
    shown = statuses.shown_status(state.status, holder_lives=lives, in_doubt=bool(state.in_doubt))
    return wakeups.judge(state, shown, LATER)


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
    assert judged(after(*WOKEN[row])).yes


@pytest.mark.parametrize("row", NOT_WOKEN)
def test_whom_somebody_stopped_or_who_needs_somebody_is_not_woken(row: str) -> None:
    events, why = NOT_WOKEN[row]
    assert judged(after(*events)) == wakeups.Wake(False, why)


def test_who_is_alive_is_not_woken() -> None:
    assert judged(after(), lives=True) == wakeups.Wake(False, "running")


@pytest.mark.parametrize("row", WOKEN)
def test_a_program_of_somebodys_own_is_theirs_to_start(row: str) -> None:
    wake = judged(after(*WOKEN[row], supervised=False))
    assert wake == wakeups.Wake(False, wakeups.START_ITS_PROGRAM)


def opened(launch: bool) -> ev.RunOpened:
    how = payload('{"argv":["a"]}') if launch else None
    return ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract(), launch=how)


def test_a_run_that_was_opened_and_never_started_is_not_woken() -> None:
    assert judged(fold.fold(RunState(), [opened(False)])) == wakeups.Wake(False, wakeups.NEVER_STARTED)


def test_a_command_killed_before_its_first_attempt_is_woken_unless_somebody_stopped_it() -> None:
    assert judged(fold.fold(RunState(), [opened(True)])).yes
    assert not judged(fold.fold(RunState(), [opened(True), requested("kill")])).yes


def test_one_whose_attempts_reached_a_limit_unseen_is_not_woken() -> None:
    state = after(*[ended("crash")] * 2)
    shown = statuses.shown_status(state.status, holder_lives=False, in_doubt=False)
    assert wakeups.judge(state, shown, LATER, restarts.Limits(attempts_max=3)).yes
    assert wakeups.judge(state, shown, LATER, restarts.Limits(attempts_max=2)) == wakeups.Wake(
        False, "quarantined"
    )
    fruitless = after(*[ended("crash")] * 3)
    assert not wakeups.judge(fruitless, shown, LATER, restarts.Limits()).yes


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
