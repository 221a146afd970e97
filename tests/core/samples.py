"""One of every event, and strategies for histories of them."""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from outlast.core import events as ev
from outlast.core.state import EFFECTS_OPEN_MAX
from outlast.core.values import (
    Allowance,
    Check,
    Contract,
    ForkPoint,
    MemoryRef,
    Origin,
    Parent,
    Payload,
    SessionMark,
    Usage,
    Window,
)

AT = datetime(2026, 11, 15, 12, 30, 15, 123456, tzinfo=UTC)
CLASSES: tuple[Any, ...] = get_args(ev.AnyEvent)


def payload(text: str = '{"a":[1,2.5,null,true,"ä"]}') -> Payload:
    return Payload(v=msgspec.Raw(text.encode()))


BLOB = Payload(blob="ab" * 32, size=5000)
USAGE = Usage(1, 2, 3, 4, 5, True)
STEPS = payload('[["one",[["two"]]]]')

# Every field of every event has a value other than its default, so that each one is seen to survive.
ALL: tuple[ev.AnyEvent, ...] = (
    ev.RunOpened(
        at=AT, run="abc", task="t", project="/p", contract=Contract("g", ("c",), ("i",)), budget=Allowance(1, 2, 3, 4, 5),
        parent=Parent("r", 2, "root"), fork=ForkPoint("f", 3, 9), files="keep", workspace="/w",
        launch=payload('{"argv":["a"]}'), origin=Origin("/f", 5, "/f/job.py", True),
    ),
    ev.ContractAmended(at=AT, contract=Contract("h", ("d",), ("j",)), budget=Allowance(tokens=7), by="ada"),
    ev.PlanSet(at=AT, steps=STEPS, total=1),
    ev.PlanExtended(at=AT, steps=STEPS, added=2, after=(0, 1)),
    ev.BeatBegun(at=AT, beat=1, step="s", cursor=(0, 2)),
    ev.BeatDone(
        at=AT, beat=1, step="s", cursor=(0, 3), over=True, result=payload(), evidence=BLOB,
        extended=(ev.Extension(STEPS, 1, (0,)),), remembered=(MemoryRef("n", "file:x", "d"),), unreached=("1.1",),
        stage="st", spent=USAGE, session=SessionMark("claude", "s1", "/t", 10, "dd"), save="abc123", finish=payload("8"),
        reserved=USAGE, window=Window(42.5, AT, "five_hour"),
    ),
    ev.Decided(at=AT, beat=1, name="d", occurrence=2, value=payload(), usage=USAGE, question="q1"),
    ev.EffectIntended(
        at=AT, beat=1, n=3, name="e", occurrence=2, key="k", own_key=True, args=payload("[]"), digest="dd",
        policy="reissue", attempt=2, uptime_s=99, approved="a1",
    ),
    ev.EffectConfirmed(at=AT, beat=1, n=3, result=payload(), unencodable=True, save="abc"),
    ev.EffectFailed(at=AT, beat=1, n=3, error="403", final=True),
    ev.EffectInDoubt(at=AT, beat=1, n=3, evidence="reset", asks=True),
    ev.EffectSettled(at=AT, beat=1, n=3, finding="did_not", by="ada", result=payload(), evidence="looked"),
    ev.AttemptStarted(at=AT, epoch=4, host="h", pid=5, boot_id="b", version="0.1", code="c0de", command=("a", "b"), launch=payload('{"argv":["a"]}'), reserved=USAGE, uptime_s=7, finishes=True, guarded=True, within="r0", host_id="h0"),
    ev.AttemptEnded(at=AT, epoch=4, status="interrupted", cause="crash", evidence="e", exit_code=3, wanted=True, progress=True, spent=USAGE, ended_well=True),
    ev.SaveMade(at=AT, kind="emergency", commit="c", ref="r", beat=2, reason="why", left_out=("big",)),
    ev.SessionKnown(at=AT, session=SessionMark("codex", "s2", "/u", 20, "ee")),
    ev.SpendReserved(at=AT, key="k", usage=USAGE),
    ev.SpendSettled(at=AT, key="k", usage=USAGE, source="gateway"),
    ev.Warned(at=AT, level="75", text="careful"),
    ev.Parked(at=AT, until=AT, cause="auth", evidence="login", account="a", waits=("a1",)),
    ev.Woken(at=AT, by="timer"),
    ev.StageSet(at=AT, stage="half", names={"ISSUE_NUMBER": "7"}),
    ev.Remembered(at=AT, ref=MemoryRef("m", "https://x", "")),
    ev.Requested(at=AT, id=7, by="ada", what="pause", args=payload('{"why":1}')),
    ev.QuestionAsked(
        at=AT, id="a1", kind="approval", text="git push", choices=("v1",), subject=payload("[]"), digest="dd",
        kind_of_call="push", target="github.com/o/r", beat=1, n=3, deadline=AT,
    ),
    ev.QuestionAnswered(at=AT, id="a1", answer="rejected", text="not on a Friday", by="ada"),
    ev.Finished(at=AT, result=payload("7"), checks=(Check("make", 0, "ok"),)),
)  # fmt: skip

# What costs most when it is written: plain, two bytes, four bytes, escaped to six, escaped to two.
LONG = st.builds(
    lambda char, count: char * count,
    st.sampled_from(["x", "ä", "🧪", "\x01", '"', "\\"]),
    st.sampled_from([0, 1, 30, 500, 5_000, 200_000]),
)
NAME = st.builds(lambda char, count: char * count, st.sampled_from(["x", "🧪", "\x01"]), st.integers(1, 200))
PLACE = st.sampled_from(["/p", "/p" * 2000])  # a path has at most 4,096 bytes
SMALL = st.integers(1, 70)


def _payloads() -> st.SearchStrategy[Payload]:
    return st.builds(lambda text: Payload(v=msgspec.Raw(msgspec.json.encode(text))), LONG) | st.just(BLOB)


PAYLOAD = _payloads()
SESSION = st.builds(SessionMark, st.just("claude"), NAME, NAME, SMALL, st.just("d" * 32))
USED = st.builds(Usage, SMALL, SMALL, SMALL, SMALL, SMALL)
BEAT = st.integers(1, 3)

EVENT = st.one_of(
    st.builds(ev.ContractAmended, at=st.just(AT), contract=st.builds(Contract, LONG), by=LONG),
    st.builds(ev.PlanSet, at=st.just(AT), steps=PAYLOAD, total=SMALL),
    st.builds(ev.PlanExtended, at=st.just(AT), steps=PAYLOAD, added=SMALL),
    st.builds(ev.BeatBegun, at=st.just(AT), beat=BEAT, step=LONG),
    st.builds(ev.BeatDone, at=st.just(AT), beat=SMALL, step=LONG, result=PAYLOAD, evidence=PAYLOAD, stage=LONG, spent=USED),
    st.builds(ev.Decided, at=st.just(AT), beat=BEAT, name=NAME, occurrence=SMALL, value=PAYLOAD, usage=USED),
    st.builds(
        ev.EffectIntended, at=st.just(AT), beat=st.just(1), n=st.integers(1, EFFECTS_OPEN_MAX), name=NAME, occurrence=SMALL,
        key=st.just("ol1_" + "a" * 32),
    ),
    st.builds(ev.EffectConfirmed, at=st.just(AT), beat=BEAT, n=SMALL, result=PAYLOAD),
    st.builds(ev.EffectFailed, at=st.just(AT), beat=BEAT, n=SMALL, error=LONG),
    st.builds(ev.EffectInDoubt, at=st.just(AT), beat=BEAT, n=SMALL, evidence=LONG),
    st.builds(
        ev.EffectSettled, at=st.just(AT), beat=BEAT, n=SMALL,
        finding=st.sampled_from(["happened", "did_not", "cannot_tell", "give_up"]), evidence=LONG,
    ),
    st.builds(ev.AttemptStarted, at=st.just(AT), epoch=SMALL, host=NAME, boot_id=st.just("b" * 36)),
    st.builds(
        ev.AttemptEnded, at=st.just(AT), epoch=SMALL, status=st.sampled_from(["interrupted", "paused", "in_doubt"]),
        cause=st.just("crash"), evidence=LONG,
    ),
    st.builds(ev.SaveMade, at=st.just(AT), kind=st.just("beat"), commit=st.just("c" * 40)),
    st.builds(ev.SessionKnown, at=st.just(AT), session=SESSION),
    st.builds(ev.SpendReserved, at=st.just(AT), key=st.builds(lambda n: f"call {n}", st.integers(0, 10**6)), usage=USED),
    st.builds(ev.SpendSettled, at=st.just(AT), key=st.builds(lambda n: f"call {n}", st.integers(0, 10**6)), usage=USED),
    st.builds(ev.Warned, at=st.just(AT), level=st.builds(lambda n: f"level {n}", st.integers(0, 10**6)), text=LONG),
    st.builds(ev.Parked, at=st.just(AT), evidence=LONG),
    st.builds(ev.Woken, at=st.just(AT), by=LONG),
    st.builds(ev.StageSet, at=st.just(AT), stage=LONG, names=st.dictionaries(NAME, LONG, max_size=3)),
    st.builds(ev.Requested, at=st.just(AT), id=SMALL, by=LONG, what=st.sampled_from(["pause", "cancel", "handoff", "dance"])),
    st.builds(
        ev.QuestionAsked, at=st.just(AT), id=NAME, kind=st.sampled_from(["approval", "question"]), text=LONG, digest=NAME,
        choices=st.lists(NAME, max_size=20).map(tuple), subject=PAYLOAD, kind_of_call=NAME, target=LONG, beat=BEAT, n=SMALL,
    ),
    st.builds(ev.QuestionAnswered, at=st.just(AT), id=NAME, answer=st.sampled_from(["approved", "answered"]), text=LONG, by=LONG),
    st.builds(ev.Finished, at=st.just(AT), result=PAYLOAD),
)  # fmt: skip


class SampleJournal(list[ev.AnyEvent]):
    """A journal that is shown by its tags and sizes, for its texts are long."""

    def __repr__(self) -> str:
        return f"[{', '.join(f'{ev.tag_of(event)}:{len(ev.encode(event))}' for event in self[:60])}]"


@st.composite
def histories(draw: st.DrawFn, max_size: int = 40) -> SampleJournal:
    """A run's journal: opened, then anything; each event may be repeated, as in a long run."""
    first = ev.RunOpened(
        at=AT, run="r" * 12, task=draw(NAME), project=draw(PLACE), contract=Contract(draw(LONG), (draw(LONG),)),
        workspace=draw(PLACE),
    )  # fmt: skip
    journal = SampleJournal([first])
    for event in draw(st.lists(EVENT, max_size=max_size)):
        journal += [event] * draw(st.sampled_from([1, 1, 1, 40]))
    return journal
