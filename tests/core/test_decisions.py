"""Tables: what recovery decides, which command does what in which status, budgets, replay."""

import itertools
from typing import Any, get_args

import pytest

from outlast.core import budget, events as ev, recovery, state as fold, statuses
from outlast.core.recovery import Ask, Facts, Fail, GiveUp, Perform, Probe, Reissue, Replay
from outlast.core.replay import BeatRecord, EffectRecord, RecordState
from outlast.core.state import RunState, Status
from outlast.core.values import Allowance, Contract, Usage
from outlast.errors import BadSetting, UsageError
from tests.core.samples import AT, payload

# -- recovery ----------------------------------------------------------------------------------------------------

STATES: tuple[RecordState, ...] = get_args(RecordState)
POLICIES: tuple[ev.Policy, ...] = get_args(ev.Policy)
RESULT = payload('"r"')


def record(state: RecordState, failures: int = 0) -> EffectRecord:
    made = EffectRecord(ev.EffectIntended(at=AT, beat=1, n=1, name="e", occurrence=1, key="k"))
    made.state, made.result, made.failures, made.evidence = state, RESULT, failures, "why"
    return made


AGES: tuple[int | None, ...] = (None, -1, 0, 50, 99, 100, 1000)


def expected(state: RecordState | None, failures: int, facts: Facts) -> type:
    """DESIGN §4, written a second time and plainly."""
    if state is None:
        return Perform
    if state == "did_not":
        if facts.leftovers:
            return Ask
        return Perform if facts.denied <= max(2, facts.retries) else Fail
    if state == "confirmed":
        return Replay
    if state == "given_up":
        return GiveUp
    if state == "failed":
        return Perform if failures <= facts.retries else Fail
    young = facts.age_s is not None and 0 <= facts.age_s < 100
    if facts.policy == "reissue" and young and facts.reissued < 2 and not facts.leftovers:
        return Reissue
    if facts.has_probe and not facts.probed:
        return Probe
    return GiveUp if facts.policy == "give_up" else Ask


def test_what_is_done_about_an_effect_in_every_case() -> None:
    cases = itertools.product(
        (None, *STATES),
        (0, 1, 2, 3),
        POLICIES,
        (False, True),
        (0, 1),
        AGES,
        (False, True),
        (0, 1, 2),
        (False, True),
        (0, 3),
        ("", "pid 7"),
    )
    for state, failures, policy, has_probe, retries, age_s, lives, reissued, probed, denied, left in cases:
        facts = Facts(policy, has_probe, retries, age_s, 100, lives, reissued, probed, denied, left)
        made = recovery.decide(record(state, failures) if state else None, facts)
        assert type(made) is expected(state, failures, facts), (state, failures, facts)
        match made:
            case Replay(result=result):
                assert result is RESULT
            case GiveUp(recorded=recorded):
                assert recorded == (state == "given_up")
            case Probe(did_not_counts=counts):
                assert counts == (not lives and not left)
            case Fail(error=error) | Ask(why=error):
                assert "why" in error
            case _:
                pass


def test_nothing_open_is_ever_performed_blindly() -> None:
    """The rule behind the table: an intent without an outcome leads to Perform in no case at all."""
    for state, policy, has_probe, age_s, lives, reissued, probed in itertools.product(
        ("intended", "in_doubt"), POLICIES, (False, True), AGES, (False, True), (0, 1, 2), (False, True)
    ):
        facts = Facts(policy, has_probe, 99, age_s, 100, lives, reissued, probed)
        assert not isinstance(recovery.decide(record(state), facts), Perform)


@pytest.mark.parametrize(
    ("unknown", "takes_key", "has_probe", "policy"),
    [
        (None, True, True, "reissue"),
        (None, True, False, "reissue"),
        (None, False, True, "probe"),
        (None, False, False, "ask"),
        ("ask", True, True, "ask"),
        ("give_up", False, False, "give_up"),
        ("probe", True, True, "probe"),
        ("reissue", False, False, "reissue"),
    ],
)
def test_the_policy_of_an_effect(unknown: str | None, takes_key: bool, has_probe: bool, policy: str) -> None:
    assert recovery.policy_for(unknown, takes_key=takes_key, has_probe=has_probe) == policy


@pytest.mark.parametrize("unknown", ["", "hope", "tell", "REISSUE"])
def test_an_unknown_policy_is_refused(unknown: str) -> None:
    with pytest.raises(UsageError):
        recovery.policy_for(unknown, takes_key=True, has_probe=True)


def test_a_probe_is_needed_to_probe() -> None:
    with pytest.raises(UsageError):
        recovery.policy_for("probe", takes_key=True, has_probe=False)


@pytest.mark.parametrize(
    ("last", "marks", "found"),
    [(5, [], None), (5, [5, 3], None), (5, [6], 6), (5, [4, 9, 7], 9), (0, [], None)],
)
def test_a_journal_shorter_than_a_mark_was_rewound(last: int, marks: list[int], found: int | None) -> None:
    assert recovery.missing_event(last, marks) == found


# -- statuses ----------------------------------------------------------------------------------------------------

NO = None  # refused

# Rows: the status; columns in the order of COMMANDS. Written after DESIGN §1, §3, §7, not after the table.
#              start      pause     resume         cancel       handoff       take_back
#              settle     fork      export         amend        kill     answer
MEANT: dict[Status, tuple[Status | None, ...]] = {
    "running":     (NO,        "paused", NO,            "cancelled", "handed_off", NO,
                    "running", "running", NO,           "running", "interrupted", "running"),
    "paused":      (NO,        "paused", "interrupted", "cancelled", "handed_off", NO,
                    "paused",  "paused", "handed_off",  "paused", NO, "paused"),
    "interrupted": ("running", "paused", "interrupted", "cancelled", "handed_off", NO,
                    "interrupted", "interrupted", "handed_off", "interrupted", "interrupted", "interrupted"),
    "in_doubt":    ("running", "paused", "in_doubt",    "cancelled", "handed_off", NO,
                    "interrupted", "in_doubt", "handed_off", "in_doubt", "in_doubt", "in_doubt"),
    "parked":      ("running", "paused", "interrupted", "cancelled", "handed_off", NO,
                    "parked",  "parked", "handed_off",  "parked", NO, "parked"),
    "done":        ("done",    NO,       NO,            NO,          NO,           NO,
                    NO,        "done",   "handed_off",  NO, NO, NO),
    "failed":      (NO,        NO,       "interrupted", "cancelled", "handed_off", NO,
                    "failed",  "failed", "handed_off",  "failed", NO, "failed"),
    "cancelled":   (NO,        NO,       NO,            "cancelled", NO,           NO,
                    "cancelled", "cancelled", "handed_off", NO, NO, NO),
    "handed_off":  (NO,        NO,       NO,            NO,          "handed_off", "interrupted",
                    NO,        NO,       "handed_off",  NO, NO, NO),
}  # fmt: skip
CELLS = [(status, command) for status in statuses.STATUSES for command in statuses.COMMANDS]


def test_the_table_has_every_cell() -> None:
    assert set(statuses.STATUSES) == set(get_args(Status)) == set(MEANT)
    assert set(statuses.COMMANDS) == set(get_args(statuses.Command))
    for status in statuses.STATUSES:
        assert set(statuses.TABLE[status]) == set(statuses.COMMANDS)


@pytest.mark.parametrize(("status", "command"), CELLS)
def test_each_command_in_each_status(status: Status, command: statuses.Command) -> None:
    meant = MEANT[status][statuses.COMMANDS.index(command)]
    found = statuses.after(status, command)
    if meant is NO:
        assert isinstance(found, statuses.Refusal)
        assert found.why
        assert found.hint
        assert "{" not in found.hint.format(run="abc")
    else:
        assert found == meant


INTENT = ev.EffectIntended(at=AT, beat=1, n=1, name="e", occurrence=1, key="k")
STARTED = ev.AttemptStarted(at=AT, epoch=1)


def in_status(status: Status) -> RunState:
    """A run brought into a status by events, with one effect in doubt."""
    opened = ev.RunOpened(at=AT, run="r", task="t", project="p", contract=Contract("g"))
    last: list[ev.AnyEvent]
    match status:
        case "running":
            last = []
        case "done":
            ended = ev.AttemptEnded(at=AT, epoch=1, status="done", cause="done")
            last = [ev.BeatDone(at=AT, beat=1), ev.Finished(at=AT), ended]
        case "parked":
            last = [ev.AttemptEnded(at=AT, epoch=1, status="parked", cause="quota"), ev.Parked(at=AT)]
        case _:
            last = [ev.AttemptEnded(at=AT, epoch=1, status=status, cause="operator")]
    state = fold.fold(RunState(), [opened, STARTED, ev.BeatBegun(at=AT, beat=1), INTENT, *last])
    assert state.status == status
    return state


def events_of(command: statuses.Command, state: RunState) -> list[ev.AnyEvent]:
    """What carrying out a command appends."""
    asked = ev.Requested(at=AT, id=1, by="ada", what="handoff" if command == "export" else command)
    match command:
        case "start":
            return [] if state.status == "done" else [STARTED]
        case "fork":
            return []
        case "settle":
            return [asked, ev.EffectSettled(at=AT, beat=1, n=1, finding="happened", by="ada")]
        case "answer":
            return [asked, ev.QuestionAnswered(at=AT, id="a1", answer="approved", by="ada")]
        case "amend":
            return [asked, ev.ContractAmended(at=AT, contract=Contract("h"), by="ada")]
        case "pause" | "cancel" | "handoff" if state.status == "running":
            ended: Any = {"pause": "paused", "cancel": "cancelled", "handoff": "handed_off"}[command]
            return [asked, ev.AttemptEnded(at=AT, epoch=1, status=ended, cause="operator")]
        case "kill" if state.status == "running":
            return [asked, ev.AttemptEnded(at=AT, epoch=1, status="interrupted", cause="operator")]
        case "resume" | "kill" if statuses.after(state.status, command) == state.status:
            return []  # nothing to change, so nothing is recorded
        case _:
            return [asked]


@pytest.mark.parametrize(
    ("status", "command"), [cell for cell in CELLS if MEANT[cell[0]][statuses.COMMANDS.index(cell[1])]]
)
def test_the_fold_comes_to_the_status_that_the_table_says(status: Status, command: statuses.Command) -> None:
    state = in_status(status)
    if command == "take_back":
        interrupted = in_status("interrupted")
        state = fold.apply(interrupted, ev.Requested(at=AT, id=1, by="ada", what="handoff"))
    assert fold.fold(state, events_of(command, state)).status == statuses.after(status, command)


@pytest.mark.parametrize("status", ["done", "paused", "in_doubt", "cancelled", "parked"])
def test_taken_back_a_run_is_what_it_was(status: Status) -> None:
    state = in_status(status)
    for what in ("handoff", "handoff", "take_back"):
        state = fold.apply(state, ev.Requested(at=AT, id=1, by="ada", what=what))
    assert state.status == status


@pytest.mark.parametrize("status", statuses.STATUSES)
@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("doubt", [True, False])
def test_the_status_shown_knows_whether_the_holder_lives(status: Status, lives: bool, doubt: bool) -> None:
    shown = statuses.shown_status(status, holder_lives=lives, in_doubt=doubt)
    resting = status in ("interrupted", "in_doubt")
    if resting or (status == "running" and not lives):
        assert shown == ("in_doubt" if doubt else "interrupted")
    else:
        assert shown == status


# -- budgets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "allowance"),
    [
        (None, None),
        (400_000, Allowance(tokens=400_000)),
        ("400k", Allowance(tokens=400_000)),
        ("1.5m", Allowance(tokens=1_500_000)),
        ("400_000", Allowance(tokens=400_000)),
        ("usd=12", Allowance(cost_microusd=12_000_000)),
        ("usd=$0.25", Allowance(cost_microusd=250_000)),
        ("USD = 1", Allowance(cost_microusd=1_000_000)),
        ("time=8h", Allowance(time_s=28_800)),
        ("time=90", Allowance(time_s=90)),
        ("time=1.5m", Allowance(time_s=90)),
        ("beats=500", Allowance(beats=500)),
        ("window=80%", Allowance(window_pct=80)),
        (["400k", "time=8h"], Allowance(tokens=400_000, time_s=28_800)),
        ({"tokens": 5, "usd": "0.5"}, Allowance(tokens=5, cost_microusd=500_000)),
        (Allowance(beats=3), Allowance(beats=3)),
    ],
)
def test_budgets_as_people_write_them(given: Any, allowance: Allowance | None) -> None:
    assert budget.parse(given) == allowance


@pytest.mark.parametrize(
    "given",
    [
        "", "k", "-5", "4x", "1e9", "usd=", "=5", "usd=1k", "euro=3", "time=3w", "window=0", "window=101", "beats=0", 0, -1,
        "usd=0.0000001", 3.5, True, object(), [[]], ["400k", "500k"], {"tokens": None}, {"colour": 5}, "٣", b"400k",
    ],
)  # fmt: skip
def test_a_budget_that_makes_no_sense_is_refused(given: Any) -> None:
    with pytest.raises(BadSetting):
        budget.parse(given)


def test_money_is_exact() -> None:
    assert budget.parse("usd=0.1") == Allowance(cost_microusd=100_000)
    assert budget.parse("usd=19.99") == Allowance(cost_microusd=19_990_000)


def spent(**more: Any) -> RunState:
    return RunState(spent=Usage(10, 20, 30, 40, 500), beats=3, **more)


def test_what_is_left_counts_what_is_reserved() -> None:
    state = spent(
        budget=Allowance(tokens=150, cost_microusd=400, beats=4), reserved=(("a", Usage(output=20)),)
    )
    left = budget.left(state.budget, state)
    assert (left.tokens, left.cost_microusd, left.beats, left.wraps_up) == (30, 0, 1, True)
    assert "of $0.00 spent" in budget.limit_reached(state)
    assert budget.left(None, state) == budget.Left()
    assert budget.limit_reached(spent()) == ""


@pytest.mark.parametrize(
    ("allowance", "word"),
    [(Allowance(tokens=100), "tokens"), (Allowance(cost_microusd=500), "$"), (Allowance(beats=3), "beats")],
)
def test_a_limit_that_is_used_up_is_named(allowance: Allowance, word: str) -> None:
    assert word in budget.limit_reached(spent(budget=allowance))
    assert budget.limit_reached(spent(budget=budget.with_more(allowance, allowance))) == ""


def test_more_on_top_leaves_a_unit_without_a_limit_without_one() -> None:
    assert budget.with_more(None, Allowance(tokens=5)) == Allowance(tokens=5)
    assert budget.with_more(Allowance(tokens=5), Allowance(tokens=2, beats=3)).tokens == 7
    assert budget.with_more(Allowance(tokens=5), Allowance(beats=3)).beats is None


@pytest.mark.parametrize("given", ["x", [1], {"input": "many"}, 1.5])
def test_usage_that_makes_no_sense_is_refused(given: Any) -> None:
    with pytest.raises(BadSetting):
        budget.usage_of(given)


def test_usage_as_people_write_it() -> None:
    assert budget.usage_of(5) == Usage(output=5)
    assert budget.usage_of({"input": 1, "output": 2}) == Usage(1, 2)
    assert budget.usage_of(Usage(3)) == Usage(3)


# -- replay ------------------------------------------------------------------------------------------------------


def intent(n: int, **more: Any) -> ev.EffectIntended:
    fields: dict[str, Any] = {"name": "e", "occurrence": n, "key": f"k{n}"} | more
    return ev.EffectIntended(at=AT, beat=2, n=n, **fields)


def test_a_beat_finds_its_own_records_by_name_occurrence_and_key() -> None:
    beat = BeatRecord(2)
    decided = ev.Decided(at=AT, beat=2, name="d", occurrence=1, value=payload())
    for event in (
        ev.BeatBegun(at=AT, beat=2),
        decided,
        intent(1),
        intent(2),
        intent(3, own_key=True, key="own"),
        ev.Decided(at=AT, beat=1, name="d", occurrence=2, value=payload()),
        ev.EffectConfirmed(at=AT, beat=2, n=1, result=RESULT),
        ev.StageSet(at=AT, stage="s"),
    ):
        beat.take(event)
    assert beat.begun
    assert beat.decisions == {("d", 1): decided}
    first = beat.effect("e", 1, None)
    assert first is not None
    assert (first.state, first.result, first.id) == ("confirmed", RESULT, "2.1")
    own = beat.effect("anything", 9, "own")
    assert own is not None
    assert own.intent.n == 3
    assert beat.effect("e", 3, None) is None
    assert [item.intent.n for item in beat.unsettled()] == [2, 3]
    assert beat.next_n() == 4


@pytest.mark.parametrize(
    ("events", "state", "failures"),
    [
        ([], "intended", 0),
        ([ev.EffectFailed(at=AT, beat=2, n=1)], "failed", 1),
        ([ev.EffectFailed(at=AT, beat=2, n=1), intent(1, attempt=2)], "intended", 1),
        (
            [ev.EffectFailed(at=AT, beat=2, n=1), intent(1, attempt=2), ev.EffectFailed(at=AT, beat=2, n=1)],
            "failed",
            2,
        ),
        ([ev.EffectInDoubt(at=AT, beat=2, n=1)], "in_doubt", 0),
        ([ev.EffectSettled(at=AT, beat=2, n=1, finding="happened")], "confirmed", 0),
        ([ev.EffectSettled(at=AT, beat=2, n=1, finding="did_not")], "did_not", 0),
        ([ev.EffectSettled(at=AT, beat=2, n=1, finding="cannot_tell")], "in_doubt", 0),
        ([ev.EffectSettled(at=AT, beat=2, n=1, finding="give_up")], "given_up", 0),
    ],
)
def test_the_state_of_a_record(events: list[ev.AnyEvent], state: str, failures: int) -> None:
    beat = BeatRecord(2)
    for event in (intent(1), *events):
        beat.take(event)
    assert (beat.effects[1].state, beat.effects[1].failures) == (state, failures)


def test_an_outcome_without_its_intent_does_not_break_the_reading() -> None:
    """What a damaged or partly loaded journal may show: it is left alone, not a KeyError."""
    beat = BeatRecord(2)
    beat.take(ev.EffectSettled(at=AT, beat=2, n=1, finding="happened"))
    assert beat.unsettled() == []
