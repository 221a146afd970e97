"""What calls must not cost: a beat its end, a budget its limit, a hook its answer, and a question its truth when it is late."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from outlast.agents.events import BatchEnd, Response, UsageReport
from outlast.core import values
from outlast.errors import AgentStopped, BudgetReached
from outlast.supervisor.agent.calls import outward as agent_outside
from outlast.supervisor.agent.calls.record import CallRecord
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.socket import connection
from outlast.supervisor.socket.script_calls import ScriptCalls
from outlast.supervisor.socket.wire import Order, Output, Report, Shim, ShimAnswer
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import (
    LOCAL,
    MARK,
    POST,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    minded,
    run_in,
)
from tests.support.environment import TIMEOUT_S

SPENT = values.Usage(input=3, output=4)
WORDS = tuple(POST.split())


def beat(there: Minded, number: int) -> None:
    """A response with one call, which ends, as the hooks and the transcript tell it."""
    there.take(Response(f"msg_{number}"))
    there.take(UsageReport(SPENT, "response", f"msg_{number}"))
    assert there.allows(before("claude", LOCAL, f"call_{number}"))
    there.ask(after("claude", LOCAL, f"call_{number}"))
    there.take(BatchEnd())
    there.attempt.responses.written(f"call_{number}")


# --- a program that runs on keeps no beat from ending -----------------------------------------------------------------


def opened(folder: Path, budget: str) -> None:
    """The run of `minded` with a budget, before its first attempt."""
    with pytest.raises(AttemptDies), run_in(folder, budget):
        raise AttemptDies


def test_beats_end_and_are_counted_while_a_program_runs_that_only_a_shim_saw(tmp_path: Path) -> None:
    with minded(tmp_path) as there:

        def perform() -> Output:
            for number in (1, 2):
                beat(there, number)
                assert there.run.state.beats == number
                assert there.run.state.spent.tokens == number * SPENT.tokens
            assert [each.name for each in there.run.state.effects_open] == [SIGNATURE]
            return Output(0)

        assert there.attempt.hooks.shim(Shim(words=WORDS, cwd=str(there.work)), perform) == ShimAnswer()
        assert there.run.state.effects_open == ()
        raise AttemptDies


def test_no_program_that_runs_on_gets_an_agent_past_its_budget(tmp_path: Path) -> None:
    opened(tmp_path, "beats=2")
    with minded(tmp_path) as there:

        def perform() -> Output:
            for number in (1, 2):
                beat(there, number)
            there.attempt.close()  # else the answer is held back: the agent is being stopped
            assert not there.allows(before("claude", LOCAL, "call_3"))
            return Output(0)

        there.attempt.hooks.shim(Shim(words=WORDS, cwd=str(there.work)), perform)
        assert isinstance(there.attempt.failure, AgentStopped)
        assert (there.attempt.failure.cause, there.run.state.beats) == ("budget", 2)
        raise AttemptDies


# --- what is asked after the last beat --------------------------------------------------------------------------------


def test_every_call_after_the_last_beat_is_told_why_there_is_no_other(tmp_path: Path) -> None:
    opened(tmp_path, "beats=1")
    with minded(tmp_path) as there:
        beat(there, 1)
        for _ in range(3):
            answer = there.attempt.hooks.shim(Shim(words=WORDS, cwd=str(there.work)), lambda: Output(0))
            assert "1 of 1 beats done" in answer.reason
        there.attempt.responses._used = True
        with pytest.raises(BudgetReached):
            there.attempt.responses.finish(None)
        raise AttemptDies


def test_of_steps_at_once_those_after_the_last_beat_are_told_why_and_are_on_record(tmp_path: Path) -> None:
    opened(tmp_path, "beats=1")
    at_once = threading.Barrier(3)
    met: list[BaseException | None] = []

    def step(desk: ScriptCalls, name: str) -> None:
        def perform(_key: str, _occurrence: int) -> Output:
            at_once.wait(TIMEOUT_S)
            return Output(0)

        try:
            desk.step(name, perform)
            met.append(None)
        except BaseException as error:
            met.append(error)

    with pytest.raises(AttemptDies), run_in(tmp_path) as run:
        desk = ScriptCalls(BeatInFlight(run))
        threads = [threading.Thread(target=step, args=(desk, f"s{number}")) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert sorted(type(each).__name__ for each in met) == ["BudgetReached", "BudgetReached", "NoneType"]
        assert isinstance(desk.failure, BudgetReached)
        raise AttemptDies
    with pytest.raises(AttemptDies), run_in(tmp_path) as run:
        assert len(list(run.journal.events("decided"))) == 3
        raise AttemptDies


# --- the world before several calls is asked side by side -------------------------------------------------------------


class Slow(BaseHTTPRequestHandler):
    """Answers nobody before everybody has asked."""

    all_there: ClassVar[threading.Barrier]

    def do_GET(self) -> None:
        try:
            self.all_there.wait(2.0)
            status = 404
        except threading.BrokenBarrierError:
            status = 503
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[str]:
    Slow.all_there = threading.Barrier(3)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_call_that_does_several_things_outside_waits_for_all_far_sides_at_once(slow: str) -> None:
    outside = agent_outside.OutwardCalls({})
    command = "; ".join(f"curl -X DELETE {slow}/{name}" for name in "abc")
    outward = outside.of_tool("Bash", {"command": command}, "/")
    assert len(outward) == 3
    told = outside.with_facts(CallRecord("Bash", outward=outward))
    assert [each.facts for each in told.outward] == [{"before": "absent"}] * 3
    assert [each.signature for each in told.outward] == [each.signature for each in outward]


def test_of_more_than_can_be_asked_at_once_none_is_lost() -> None:
    outside = agent_outside.OutwardCalls({})
    many = agent_outside.FACTS_AT_ONCE + 2
    command = "; ".join(f"curl -X POST http://127.0.0.1:9/{number}" for number in range(many))
    outward = outside.of_tool("Bash", {"command": command}, "/")
    assert outside.with_facts(CallRecord("Bash", outward=outward)).outward == outward
    assert len(outward) == many


# --- a shim that was asked too long ago --------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False])
def test_what_a_shim_asked_too_long_ago_is_refused_and_not_on_record(tmp_path: Path, late: bool) -> None:
    with minded(tmp_path) as there:
        sent_ns = time.monotonic_ns() - (int(Timing().shim_waits_s * 1e9) if late else 0)
        asking = connection.connect(str(there.server.path), TIMEOUT_S)
        asking.send(Shim(attempt=MARK, words=WORDS, cwd=str(there.work), sent_ns=sent_ns))
        order = asking.receive()
        assert isinstance(order, Order)
        assert order.do == ("refuse" if late else "run")
        if not late:
            asking.send(Report(exit_code=0))
            asking.receive()
        asking.close()
        assert there.intended() == ([] if late else [(SIGNATURE, "tell")])
        raise AttemptDies
