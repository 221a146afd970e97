"""A program under outlast against a plain model of it: killed, robbed, paused, forked and settled at random.

The program is deterministic, as outlast asks of an open beat: `script` is what its open beat has called so far, and a
resumed attempt calls the same again. The world is outside of outlast: plain counters of what was really done.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import outlast
from outlast import Run, faults
from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.operations import fork, requests
from outlast.runs import reader
from outlast.runs.engine.beat import open_beat
from outlast.runs.run import run_engine
from outlast.settings import TIMING
from outlast.store import open_store
from outlast.store.protocol import RunFilter
from tests.support import inprocess, sweeps
from tests.support.inprocess import Killed, abandon

EXAMPLES, STEPS = 120, 25
CRASH = st.none() | st.integers(
    1, 12
)  # at which crash point met inside a rule the process dies, if it gets that far
MEMORY = Path("/dev/shm")  # deaths here are of processes, not of disks: flushes need not cost anything
EFFECTS = ("keyed", "probed", "blind", "own key", "shared key", "stubborn")
FATES = ("ok", "ok", "lost before", "lost after", "refused")


@dataclass(frozen=True)
class Op:
    """One call of the program in its open beat."""

    kind: str
    token: str
    fate: str = "ok"


SHARED = Op(
    "shared key", "the one order", "refused"
)  # refused the first time; done once, whichever beat asks


class NoAnswer(Exception):
    """No answer came."""


@dataclass
class ModelledWorld:
    """What was really done, by token; and who dedupes by key."""

    done: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    keys: dict[str, str] = field(default_factory=dict)

    def act(self, op: Op, key: str | None = None) -> dict[str, str]:
        self.calls[op.token] += 1
        fate = op.fate if self.calls[op.token] == 1 else "ok"
        if fate == "refused":
            raise outlast.DidNotHappen("403")
        if fate == "lost before":
            raise NoAnswer
        if key is None or key not in self.keys:
            self.done[op.token] += 1
        if key is not None:
            assert self.keys.setdefault(key, op.token) == op.token, "one key for two acts"
        if fate == "lost after":
            raise NoAnswer
        return {"token": op.token}

    def look(self, token: str) -> object:
        return outlast.Happened({"token": token}) if self.done[token] else outlast.DidNotHappen()


class Program(RuleBasedStateMachine):
    """Rules are what may befall a run; `self.model` is what must be true of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-model-", dir=MEMORY if MEMORY.is_dir() else None))
        self.path = self.folder / "store"
        self.world = ModelledWorld()
        self.run: Run | None = None
        self.beat: Any = None
        self.beats: Iterator[Any] = iter(())
        self.script: list[Op] = []
        self.results: list[str] = []  # the model: what each beat done ended with
        self.answers: dict[str, Any] = {}  # the model: what each recorded call returned
        self.recorded: set[str] = set()  # decisions that the journal holds, as of the last look
        self.asked = False
        self.paused = False
        self.count = 0
        os.environ[TIMING] = "store.wakeup_grace_s=0"
        self.person = open_store(self.path)  # another user of the same store: asks, settles, forks and reads

    # -- what the program does -----------------------------------------------------------------------------------

    def new(self, kind: str, fate: str = "ok") -> Op:
        self.count += 1
        return Op(kind, f"{kind} {self.count}", fate)

    def call(self, op: Op, beat: Any) -> Any:
        match op.kind:
            case "decide" | "lazy":
                return beat.decide(op.token, self.answer, op.token, lazy=op.kind == "lazy")
            case "keyed":
                return beat.act(op.token, lambda *, idempotency_key: self.world.act(op, idempotency_key))
            case "own key":
                return beat.act(op.token, lambda: self.world.act(op), key=f"own {op.token}")
            case "shared key":
                return beat.act(
                    SHARED.token, lambda: self.world.act(SHARED), key="order 7", retry=beat.number
                )
            case "stubborn":
                return self.insist(
                    lambda: beat.act(op.token, lambda: self.world.act(op)), outlast.EffectInDoubt
                )
            case "flaky":
                return self.insist(lambda: beat.decide(op.token, self.answer, op.token, "flaky"), NoAnswer)
            case "probed":
                looking = outlast.Probe(lambda: self.world.look(op.token), settle_s=0)
                return beat.act(op.token, lambda: self.world.act(op), probe=looking)
            case "blind":
                return beat.act(op.token, lambda: self.world.act(op))
            case "child":
                return self.child(op, beat)
            case _:
                raise AssertionError(op)

    @staticmethod
    def insist(call: Callable[[], Any], error: type[Exception]) -> Any:
        """The retry loop that every program has somewhere."""
        for _ in range(2):
            with contextlib.suppress(error):
                return call()
        return call()

    def answer(self, token: str, kind: str = "") -> str:
        assert token not in self.recorded, f"{token} is recorded and was asked for again"
        self.world.calls[token] += 1
        if kind == "flaky" and self.world.calls[token] == 1:
            raise NoAnswer
        return f"answer {self.world.calls[token]} to {token}"

    def child(self, op: Op, beat: Any) -> str:
        with beat.run(op.token) as child:
            child.plan(["one", "two"])
            for inner in child.beats():
                self.call(Op("keyed", f"{op.token} {inner.step}", op.fate), inner)
                inner.done(inner.step)
        return str(child.status)

    def perform(self, op: Op) -> None:
        """One call; what it returns is what it returned before."""
        try:
            result = self.call(op, self.beat)
        except outlast.EffectFailed:
            result = "failed"
            assert self.world.done[op.token] == 0
            assert op.kind != "shared key" or not self.world.done[SHARED.token]
        if op.kind == "lazy":
            return  # durable with the next event only
        assert self.answers.setdefault(op.token, result) == result
        if op.kind not in ("decide", "flaky", "child") and result != "failed":
            token = SHARED.token if op.kind == "shared key" else op.token
            assert result == {"token": token}
            assert self.world.done[token] == 1

    # -- an attempt ----------------------------------------------------------------------------------------------

    def start(self) -> Run:
        return outlast.run("t", store=self.path, project="p")

    def live(self, crash: int | None, body: Callable[[], None]) -> None:
        """Carry out part of an attempt; when it dies or is stopped, the run is down."""
        if crash is not None:
            faults.arm(faults.nth(crash, inprocess.die))
        try:
            body()
        except Killed:
            faults.arm(None)
            if self.run is not None:
                abandon(self.run)
            self.down()
        except (outlast.EffectInDoubt, outlast.RunPaused) as stopped:
            self.leave(stopped)
        finally:
            faults.arm(None)

    def leave(self, error: BaseException | None) -> None:
        """The program leaves its block, and may be killed while it does."""
        assert self.run is not None
        if isinstance(error, outlast.EffectInDoubt):
            settled_alone = ("'keyed", "'probed", "'child")
            assert not any(kind in str(error) for kind in settled_alone), "its policy could have settled it"
        if isinstance(error, outlast.RunPaused):
            assert self.asked, "nobody asked for a pause"
            self.asked, self.paused = False, True
        try:
            self.run.__exit__(type(error) if error else None, error, None)
        except Killed:
            faults.arm(None)
            abandon(self.run)
        self.down()

    def down(self) -> None:
        open_beat.set(None)
        self.run = self.beat = None
        self.look()
        if self.asked and self.head().status == "paused":  # taken in, and killed before it could say so
            self.asked, self.paused = False, True

    def look(self) -> None:
        """Read the journal as a stranger does: which decisions it holds."""
        events = self.journal()
        self.recorded |= {event.name for event in events if isinstance(event, ev.Decided)}
        self.catch_up(events)

    def journal(self, task: str = "t") -> list[ev.AnyEvent]:
        found = self.person.list(RunFilter(task=task))
        return [item.event for item in self.person.read(found[0].run, after=0).events] if found else []

    def head(self) -> RunState:
        return reader.head(self.person, inprocess.newest(self.person, "t"))

    def catch_up(self, events: list[ev.AnyEvent]) -> None:
        """A beat's end may have become durable although the program was never told."""
        done = [msgspec.json.decode(event.result.v) for event in events if isinstance(event, ev.BeatDone)]
        assert done[: len(self.results)] == self.results, "a beat that was done is lost or changed"
        assert len(done) <= len(self.results) + 1
        if len(done) > len(self.results):
            assert self.ending == done[-1], "a beat was done that nobody ended"
            self.results, self.script = done, []

    ending: str | None = None

    def open(self) -> None:
        """Start, and repeat what the open beat had called."""
        self.run = self.start()
        self.run.__enter__()
        self.beats = iter(self.run.beats())
        self.beat = next(self.beats)
        assert self.beat.number == len(self.results) + 1
        for op in list(self.script):
            self.perform(op)

    # -- rules ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.live(None, self.open)

    @precondition(lambda self: self.run is None and not self.paused)
    @rule(crash=CRASH)
    def resume(self, crash: int | None) -> None:
        self.live(crash, self.open)

    @precondition(lambda self: self.run is not None)
    @rule(kind=st.sampled_from(["decide", "decide", "lazy", "flaky"]), crash=CRASH)
    def decide(self, kind: str, crash: int | None) -> None:
        self.script.append(self.new(kind))
        self.live(crash, lambda: self.perform(self.script[-1]))

    @precondition(lambda self: self.run is not None)
    @rule(kind=st.sampled_from(EFFECTS), fate=st.sampled_from(FATES), crash=CRASH)
    def act(self, kind: str, fate: str, crash: int | None) -> None:
        self.script.append(self.new(kind, fate))
        self.live(crash, lambda: self.perform(self.script[-1]))

    @precondition(lambda self: self.run is not None)
    @rule(fate=st.sampled_from(["ok", "lost after"]), crash=CRASH)
    def have_a_child(self, fate: str, crash: int | None) -> None:
        self.script.append(self.new("child", fate))
        self.live(crash, lambda: self.perform(self.script[-1]))

    @precondition(lambda self: self.run is not None)
    @rule(crash=CRASH)
    def end_the_beat(self, crash: int | None) -> None:
        self.count += 1
        self.ending = f"result {self.count}"
        self.live(crash, self.end)

    def end(self) -> None:
        self.beat.done(self.ending)
        self.results.append(str(self.ending))
        self.script = []
        self.beat = next(self.beats)

    @precondition(lambda self: self.run is not None)
    @rule()
    def walk_out(self) -> None:
        self.leave(None)

    @precondition(lambda self: self.run is not None)
    @rule()
    def die_between_two_calls(self) -> None:
        assert self.run is not None
        abandon(self.run)
        self.down()

    @precondition(lambda self: self.run is not None)
    @rule(again=st.sampled_from(["decide", "act", "done"]))
    def be_robbed(self, again: str) -> None:
        """The lease runs out and somebody else takes the run over; the zombie wakes up afterwards."""
        zombie, beat = self.run, self.beat
        assert zombie is not None
        held = run_engine(zombie).journal
        held.store.renew([held.lease], ttl_s=-1000)
        open_beat.set(None)
        before = dict(self.world.done)
        self.live(None, self.open)
        after = dict(self.world.done)
        journal = len(self.journal())
        op = Op("blind", "zombie's act")
        try:
            match again:
                case "decide":
                    beat.decide("zombie's decision", lambda: 1)
                case "act":
                    beat.act("zombie's act", lambda: self.world.act(op))
                case "done":
                    beat.done("zombie's end")
            raise AssertionError("a zombie wrote to the journal")
        except (outlast.StoreError, outlast.UnreachedEffect, outlast.RunPaused):
            pass
        assert self.world.done["zombie's act"] == 0
        assert len(self.journal()) == journal
        assert before.keys() <= after.keys()
        abandon(zombie)

    @precondition(lambda self: not self.paused and not self.asked)
    @rule()
    def pause(self) -> None:
        outcome = requests.pause(self.person, inprocess.newest(self.person, "t"))
        self.asked, self.paused = outcome.in_inbox, not outcome.in_inbox
        assert outcome.in_inbox == (self.run is not None)

    @precondition(lambda self: self.run is None and self.paused)
    @rule()
    def be_refused_then_unpause(self) -> None:
        try:
            with self.start():
                raise AssertionError("a paused run was started")
        except outlast.RunRefused:
            pass
        requests.resume(self.person, inprocess.newest(self.person, "t"))
        self.paused = False

    @precondition(lambda self: self.run is None and not self.paused)
    @rule()
    def settle(self) -> None:
        """A person looks at the world and says what is true."""
        head = self.head()
        for effect in head.in_doubt:
            happened = self.world.done[effect.name] > 0
            result = msgspec.json.encode({"token": effect.name}) if happened else b"null"
            requests.settle(self.person, head.run, effect.id, "happened" if happened else "did_not", result)

    @precondition(lambda self: self.run is None and self.results)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(1, len(self.results)))
        self.count += 1
        task, op = f"fork {self.count}", self.new("keyed")
        before = [ev.encode(event) for event in self.journal()]
        source = self.person.list(RunFilter(task="t"))[0]
        made = fork.make(self.person, fork.prepare(self.person, source, at=at, task=task))
        with outlast.run(task, store=self.path, project="p") as run:
            assert run.id == made
            beat = next(iter(run.beats()))
            assert beat.number == at + 1
            assert self.call(op, beat) == {"token": op.token}
            beat.done("of the fork")
        forked = [event for event in self.journal(task) if isinstance(event, ev.BeatDone)]
        assert [msgspec.json.decode(event.result.v) for event in forked][:at] == self.results[:at]
        now = [ev.encode(event) for event in self.journal()]
        assert now[: len(before)] == before
        assert self.head().beats == len(self.results)

    # -- what is always true -------------------------------------------------------------------------------------

    @invariant()
    def nothing_was_done_twice(self) -> None:
        assert all(count <= 1 for count in self.world.done.values()), self.world.done

    @invariant()
    def the_journal_tells_the_same_as_the_model(self) -> None:
        if self.run is None:
            self.look()
        events = self.journal()
        decided = Counter((event.beat, event.name) for event in events if isinstance(event, ev.Decided))
        assert all(count == 1 for count in decided.values()), "a decision was recorded twice"
        done = [msgspec.json.decode(event.result.v) for event in events if isinstance(event, ev.BeatDone)]
        assert done == self.results
        for event in events:
            if isinstance(event, ev.Decided) and event.name in self.answers:
                assert msgspec.json.decode(event.value.v) == self.answers[event.name]

    def teardown(self) -> None:
        """Whatever befell it, the run comes to its end, with every act done at most once and no beat lost."""
        try:
            if sys.exc_info()[0] is None:  # a rule that failed has told its story already
                self.come_to_an_end()
        finally:
            faults.arm(None)
            open_beat.set(None)
            os.environ.pop(TIMING)
            if self.run is not None:
                abandon(self.run)
            self.person.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def come_to_an_end(self) -> None:
        for _ in range(6 + 2 * len(self.script)):
            if self.run is not None:
                self.live(None, self.finish)
            elif self.paused:
                self.be_refused_then_unpause()
            else:
                self.settle()
                self.live(None, self.open)
            if self.run is None and self.head().status == "done":
                break
        head = self.head()
        assert (head.status, head.beats) == ("done", len(self.results))
        self.nothing_was_done_twice()

    def finish(self) -> None:
        assert self.run is not None
        self.ending = "the end"
        self.beat.finish("finished")
        self.beat.done(self.ending)
        self.results.append(self.ending)
        self.script = []
        self.leave(None)


Program.TestCase.settings = hypothesis.settings(
    max_examples=sweeps.examples(EXAMPLES),
    stateful_step_count=STEPS,
    report_multiple_bugs=False,
    phases=[
        Phase.reuse,
        Phase.generate,
        Phase.shrink,
    ],  # explaining a failure would take longer than finding it
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestProgram = Program.TestCase
