"""The fold: total, exact, bounded, and the same from any snapshot."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from outlast.core import events as ev, state as fold
from outlast.core.state import RunState, apply
from outlast.core.values import Allowance, Contract, MemoryRef, SessionMark, Usage, Window
from outlast.errors import MemoryFull
from outlast.runs.engine.beat import check_memory
from tests.core.samples import ALL, AT, histories, payload
from tests.support import sweeps

OPENED = ev.RunOpened(
    at=AT, run="r", task="t", project="p", contract=Contract("goal\nmore"), budget=Allowance(tokens=5)
)


def after(*events: ev.AnyEvent) -> RunState:
    return fold.fold(RunState(), [OPENED, *events])


def intended(n: int = 1, **more: Any) -> ev.EffectIntended:
    return ev.EffectIntended(at=AT, beat=1, n=n, name="e", occurrence=n, key=f"k{n}", **more)


# -- every event -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ALL, ids=ev.tag_of)
def test_every_event_moves_the_head_on_by_one_and_changes_nothing_else_in_place(event: ev.AnyEvent) -> None:
    before = after()
    kept = fold.snapshot(before)
    state = apply(before, event)
    assert state.seq == before.seq + 1
    assert state.updated_at == event.at
    assert fold.snapshot(before) == kept
    assert fold.restore(fold.snapshot(state)) == state


def test_a_run_that_was_opened() -> None:
    state = after()
    assert (state.run, state.task, state.project, state.title, state.seq) == ("r", "t", "p", "goal", 1)
    assert (state.status, state.contract_seq, state.contract_digest) == (
        "interrupted",
        1,
        OPENED.contract.digest,
    )
    assert (state.budget, state.created_at) == (Allowance(tokens=5), AT)


def test_an_amended_contract_keeps_the_budget_unless_it_brings_one() -> None:
    state = after(ev.ContractAmended(at=AT, contract=Contract("new")))
    assert (state.title, state.contract_seq, state.budget) == ("new", 2, Allowance(tokens=5))
    state = after(ev.ContractAmended(at=AT, contract=Contract("new"), budget=Allowance(tokens=9)))
    assert state.budget == Allowance(tokens=9)


def test_a_plan_and_its_extensions_are_counted() -> None:
    state = after(ev.PlanSet(at=AT, steps=payload("[]"), total=3))
    assert (state.plan_seq, state.plan_total, state.over) == (2, 3, False)
    state = apply(state, ev.PlanExtended(at=AT, steps=payload("[]"), added=2))
    extension = ev.Extension(payload("[]"), 4)
    state = apply(state, ev.BeatDone(at=AT, beat=1, extended=(extension, extension)))
    assert state.plan_total == 13
    assert after(ev.PlanSet(at=AT, steps=payload("[]"), total=0)).over


def test_a_beat_begins_and_ends() -> None:
    state = after(ev.BeatBegun(at=AT, beat=1, step="s"), intended())
    assert state.open_beat == fold.OpenBeat(1, 2, "s")
    session = ALL[5].session  # type: ignore[union-attr]
    done = ev.BeatDone(
        at=AT, beat=1, step="s", cursor=(0, 3), over=True, result=payload('"r"'), evidence=payload("[1]"), stage="st",
        spent=Usage(output=3), session=session, save="c0", remembered=(MemoryRef("n", "x:y"),),
    )  # fmt: skip
    state = apply(state, done)
    assert (state.beats, state.cursor, state.over, state.open_beat, state.effects_open) == (
        1,
        (0, 3),
        True,
        None,
        (),
    )
    assert state.recent == (fold.Recent(1, "s", '"r"', "[1]"),)
    assert (state.stage, state.spent.tokens, state.session, state.last_save) == ("st", 3, session, "c0")
    assert state.memory == (MemoryRef("n", "x:y"),)
    kept = apply(state, ev.BeatDone(at=AT, beat=2))
    assert (kept.stage, kept.session, kept.last_save, kept.memory) == ("st", session, "c0", state.memory)


def test_only_the_last_results_are_kept_and_shortened() -> None:
    state = after(*(ev.BeatDone(at=AT, beat=n, result=payload(f'"{"x" * 9999}{n}"')) for n in range(1, 100)))
    assert [item.beat for item in state.recent] == list(range(68, 100))
    assert all(100 < len(item.text) <= fold.RECENT_BYTES_MAX for item in state.recent)


EFFECT_COURSES: list[tuple[list[ev.AnyEvent], list[str]]] = [
    ([], ["intended"]),
    ([ev.EffectConfirmed(at=AT, beat=1, n=1)], []),
    ([ev.EffectFailed(at=AT, beat=1, n=1, error="no")], []),
    ([ev.EffectInDoubt(at=AT, beat=1, n=1, evidence="?")], ["in_doubt"]),
    ([ev.EffectInDoubt(at=AT, beat=1, n=1), ev.EffectSettled(at=AT, beat=1, n=1, finding="happened")], []),
    ([ev.EffectInDoubt(at=AT, beat=1, n=1), ev.EffectSettled(at=AT, beat=1, n=1, finding="give_up")], []),
    (
        [ev.EffectInDoubt(at=AT, beat=1, n=1), ev.EffectSettled(at=AT, beat=1, n=1, finding="did_not")],
        [],
    ),
    (
        [ev.EffectInDoubt(at=AT, beat=1, n=1), ev.EffectSettled(at=AT, beat=1, n=1, finding="cannot_tell")],
        ["in_doubt"],
    ),
    ([ev.EffectFailed(at=AT, beat=1, n=1), intended(attempt=2)], ["intended"]),
]


@pytest.mark.parametrize(("events", "states"), EFFECT_COURSES, ids=lambda value: str(len(value)))
def test_the_course_of_an_effect(events: list[ev.AnyEvent], states: list[str]) -> None:
    state = after(intended(), *events)
    assert [effect.state for effect in state.effects_open] == states
    assert len(state.in_doubt) == sum(name in ("intended", "in_doubt") for name in states)
    assert state.effects_total == 1
    other = fold.fold(after(intended(2)), [intended(), *events])
    assert other.effects_open[0].n == 2, "the others are left alone"


def test_a_run_in_doubt_is_interrupted_when_its_last_doubt_is_settled() -> None:
    ended = ev.AttemptEnded(at=AT, epoch=1, status="in_doubt", cause="crash")
    state = after(intended(1), intended(2), ended)
    assert state.status == "in_doubt"
    state = apply(state, ev.EffectSettled(at=AT, beat=1, n=1, finding="happened"))
    assert state.status == "in_doubt"
    assert apply(state, ev.EffectSettled(at=AT, beat=1, n=2, finding="cannot_tell")).status == "in_doubt"
    assert apply(state, ev.EffectSettled(at=AT, beat=1, n=2, finding="did_not")).status == "interrupted"


def test_an_attempt_starts_and_ends() -> None:
    state = after(ev.AttemptStarted(at=AT, epoch=3, host="h", pid=7, boot_id="b"))
    assert (state.status, state.cause, state.attempts) == ("running", None, 1)
    assert state.attempt == fold.Attempt(3, 2, AT, "h", 7, "b")
    state = apply(
        state, ev.AttemptEnded(at=AT, epoch=3, status="interrupted", cause="signal", evidence="SIGTERM")
    )
    assert (state.status, state.cause, state.evidence, state.attempt) == (
        "interrupted",
        "signal",
        "SIGTERM",
        None,
    )
    done = fold.fold(
        state, [ev.Finished(at=AT), ev.AttemptEnded(at=AT, epoch=4, status="interrupted", cause="crash")]
    )
    assert done.status == "done", "nothing that happens to the attempt afterwards undoes the end of a run"


def test_parked_and_woken() -> None:
    until = AT + timedelta(hours=1)
    state = after(ev.Parked(at=AT, until=until, cause="quota"))
    assert (state.status, state.cause, state.parked_until) == ("parked", "quota", until)
    assert apply(state, ev.Woken(at=AT)).status == "interrupted"
    assert apply(state, ev.Woken(at=AT)).parked_until is None


def test_spend_is_reserved_then_settled_once() -> None:
    state = after(
        ev.SpendReserved(at=AT, key="a", usage=Usage(output=9)),
        ev.SpendReserved(at=AT, key="b", usage=Usage(output=1)),
    )
    assert [key for key, _ in state.reserved] == ["a", "b"]
    state = apply(state, ev.SpendSettled(at=AT, key="a", usage=Usage(output=4)))
    assert ([key for key, _ in state.reserved], state.spent.output) == (["b"], 4)


def test_a_wish_takes_hold_at_once_only_without_an_open_attempt() -> None:
    asked = ev.Requested(at=AT, id=1, by="ada", what="pause")
    assert after(asked).status == "paused"
    assert after(ev.AttemptStarted(at=AT, epoch=1), asked).status == "running"


# -- the limit ---------------------------------------------------------------------------------------------------


def small_enough(state: RunState) -> int:
    size = len(msgspec.json.encode(state))
    assert size <= fold.SNAPSHOT_MAX_BYTES, f"{size:,} bytes"
    return size


@settings(
    max_examples=sweeps.examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(journal=histories())
def test_the_head_is_bounded_whatever_the_history(journal: list[ev.AnyEvent]) -> None:
    small_enough(fold.fold(RunState(), journal))


def full_memory(char: str) -> tuple[MemoryRef, ...]:
    """As many refs as a run may remember, by the very check that guards it."""
    refs: tuple[MemoryRef, ...] = ()
    for number in range(fold.MEMORY_MAX):
        ref = MemoryRef(f"n{number}", "x:" + char * (number % 20), "d" * 32)
        try:
            check_memory(refs, (ref,))
        except MemoryFull:
            break
        refs = (*refs, ref)
    return refs


@pytest.mark.parametrize(
    "char", ["x", "ä", "🧪", "\x01", '"'], ids=["ascii", "latin", "emoji", "control", "quote"]
)
def test_a_run_with_everything_at_its_limit_still_fits(char: str) -> None:
    """All effects open with long evidence, 32 long results, a full memory: what a program can really reach."""
    text = msgspec.json.encode(char * 10_000).decode()
    journal: list[ev.AnyEvent] = [
        ev.RunOpened(
            at=AT, run="r" * 12, task=char * 200, project="/p" * 100, contract=Contract(char * 100_000)
        ),
        *(ev.Remembered(at=AT, ref=ref) for ref in full_memory(char)),
        *(
            ev.BeatDone(at=AT, beat=n, step=char * 200, result=payload(text), evidence=payload(text))
            for n in range(40)
        ),
        ev.AttemptStarted(at=AT, epoch=1, host="h" * 64, pid=1, boot_id="b" * 36),
        *(
            ev.EffectIntended(at=AT, beat=41, n=n, name=char * 200, occurrence=1, key="k" * 36)
            for n in range(fold.EFFECTS_OPEN_MAX)
        ),
        *(
            ev.EffectInDoubt(at=AT, beat=41, n=n, evidence=char * 10_000)
            for n in range(fold.EFFECTS_OPEN_MAX)
        ),
        ev.AttemptEnded(at=AT, epoch=1, status="in_doubt", cause="crash", evidence=char * 10_000),
    ]
    small_enough(fold.fold(RunState(), journal))


@pytest.mark.parametrize(
    "more",
    [
        [ev.StageSet(at=AT, stage="x" * 100_000)],
        [ev.BeatBegun(at=AT, beat=1, step="x" * 100_000)],
        [ev.Warned(at=AT, level=f"level {n}") for n in range(10_000)],
        [ev.SpendReserved(at=AT, key=f"call {n}", usage=Usage(output=1)) for n in range(10_000)],
        [ev.Requested(at=AT, id=1, by="x" * 100_000, what="pause")],
        [ev.AttemptStarted(at=AT, epoch=1, host="x" * 100_000)],
    ],
    ids=["stage", "step", "warnings", "reservations", "who asked", "host"],
)
def test_no_single_thing_swells_the_head(more: list[ev.AnyEvent]) -> None:
    small_enough(after(*more))


# -- plain beats -------------------------------------------------------------------------------------------------

PLAIN_FIELDS = {"at", "beat", "step", "cursor", "over", "result", "evidence", "unreached"}
STAGED: dict[str, Any] = {
    "extended": (ev.Extension(payload("[]"), 1),),
    "remembered": (MemoryRef("n", "x:y", ""),),
    "finish": payload("null"),
    "stage": "tests",
    "spent": Usage(1),
    "session": SessionMark("claude", "s"),
    "save": "c" * 40,
    "reserved": Usage(1),
    "window": Window(50.0),
}


@pytest.mark.parametrize("field", sorted(set(ev.BeatDone.__struct_fields__) - PLAIN_FIELDS))
def test_a_beat_that_staged_anything_is_not_plain(field: str) -> None:
    assert fold.is_plain(ev.BeatDone(at=AT, beat=1))
    assert not fold.is_plain(ev.BeatDone(at=AT, beat=1, **{field: STAGED[field]}))


@settings(
    max_examples=sweeps.examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(journal=histories(12), count=st.integers(1, 80), data=st.data())
def test_folding_plain_beats_at_once_gives_the_same(
    journal: list[ev.AnyEvent], count: int, data: st.DataObject
) -> None:
    before = fold.fold(RunState(), journal)
    over = data.draw(st.booleans())
    ends = [
        ev.BeatDone(
            at=AT + timedelta(seconds=n),
            beat=n,
            step=f"s{n}",
            cursor=(n,),
            over=over,
            result=payload(f'"{n}"'),
        )
        for n in range(1, count + 1)
    ]
    at_once = fold.fold_plain(before, ends[-fold.RECENT_MAX :], before.seq + count)
    assert at_once == fold.fold(before, list(ends))


# -- snapshots ---------------------------------------------------------------------------------------------------


@settings(
    max_examples=sweeps.examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_folding_from_any_snapshot_gives_the_same(data: st.DataObject) -> None:
    journal = data.draw(histories(12))
    cut = data.draw(st.integers(0, len(journal)))
    whole = fold.fold(RunState(), journal)
    head = msgspec.json.decode(msgspec.json.encode(fold.fold(RunState(), journal[:cut])), type=RunState)
    assert fold.fold(head, journal[cut:]) == whole
    assert whole.seq == len(journal)


def test_a_snapshot_of_an_older_or_newer_version_is_read() -> None:
    older = b'{"run":"r","task":"t","seq":4,"status":"paused"}'
    assert fold.restore(older).status == "paused"
    newer = b'{"run":"r","task":"t","seq":4,"status":"paused","mood":"good"}'
    assert fold.restore(newer) == fold.restore(older)
