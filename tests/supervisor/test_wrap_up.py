"""An agent whose budget runs out, as its supervisor sees it: told once, bounded after that, counted once whoever saw it."""

import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from outlast import faults
from outlast.agents.claude.transcript import dashed
from outlast.agents.events import Response
from outlast.core import events as ev, state as st
from outlast.core.values import Usage
from outlast.errors import AgentStopped, BudgetReached
from outlast.runs.engine.steps import append
from outlast.supervisor.budget.enforce import BudgetWatch
from outlast.supervisor.budget.gateway import Gate
from outlast.supervisor.person import Person
from outlast.supervisor.socket.connection import Connection
from outlast.supervisor.socket.delivery import Delivery
from tests.supervisor.hook_driver import LOCAL, AttemptDies, Minded, after, before, line, minded, response

NEAR = b"nearly spent"
COST = 100


def beat(there: Minded, number: int) -> tuple[bool, bytes]:
    """One response that costs COST, with a call: whether that was let through, and what the agent read."""
    there.attempt.responses.response(Response(f"m{number}"))
    there.run.meter.count(f"m{number}", Usage(output=COST))
    call = f"call_{number}"
    _, denied = there.ask(before(there.agent, f"{LOCAL} {number}", call))
    if there.attempt.failure is not None or b"deny" in denied:
        return False, denied
    return True, there.ask(after(there.agent, f"{LOCAL} {number}", call))[1]


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_it_reads_the_word_once_with_the_result_of_a_call(agent: str, tmp_path: Path) -> None:
    with minded(tmp_path, agent, budget=1000) as there:
        there.start()
        read = [beat(there, number) for number in range(1, 9)]
        assert [allowed for allowed, _ in read] == [True] * 8
        assert [NEAR in said for _, said in read].count(True) == 1
        assert there.run.state.wrap_beat == 6, "600 are spent, and four more like these fit"
        raise AttemptDies


def test_a_word_that_a_killed_hook_did_not_pass_on_is_told_again(tmp_path: Path) -> None:
    with minded(tmp_path, budget=1000) as there:
        there.start()
        said, number = b"", 0
        while NEAR not in said:
            number += 1
            there.attempt.responses.response(Response(f"m{number}"))
            there.run.meter.count(f"m{number}", Usage(output=COST))
            assert there.allows(before("claude", f"{LOCAL} {number}", f"call_{number}"))
            ours, theirs = socket.socketpair()
            with ours, theirs:
                delivery = Delivery(Connection(ours), acknowledges=True)
                told = after("claude", f"{LOCAL} {number}", f"call_{number}")
                said, _ = there.attempt.hooks.hook(told, delivery)
                theirs.close()
        assert NEAR in there.ask(told)[1]
        assert NEAR not in there.ask(told)[1], "it was heard"
        raise AttemptDies


def test_one_that_can_only_be_refused_is_told_by_one_refusal(tmp_path: Path) -> None:
    with minded(tmp_path, "kimi-code", budget=1000) as there:
        there.start()
        read = [beat(there, number) for number in range(1, 9)]
        assert [allowed for allowed, _ in read].count(False) == 1
        assert [NEAR in said for _, said in read].count(True) == 1
        raise AttemptDies


def test_one_that_does_not_stop_is_stopped_within_its_budget(tmp_path: Path) -> None:
    with minded(tmp_path, "claude", budget=10_000) as there:
        there.start()
        there.attempt.responses.response(Response("m0"))
        for number in range(1, 200):
            there.attempt.responses.response(Response(f"m{number}"))
            there.run.meter.count(f"m{number}", Usage(output=COST))
            if there.attempt.failure is not None:
                break
        failure = there.attempt.failure
        assert isinstance(failure, AgentStopped)
        assert failure.cause == "budget"
        assert there.run.state.spent.tokens <= 9_500, "four turns after it was told"
        raise AttemptDies


def test_killed_while_it_wraps_up_the_next_start_says_nothing_else(tmp_path: Path) -> None:
    with minded(tmp_path, "claude", budget=1000) as there:
        there.start()
        for number in range(1, 8):
            beat(there, number)
        raise AttemptDies
    with minded(tmp_path, "claude", budget=1000) as there:
        assert NEAR.decode() in " ".join(there.start().command)
        raise AttemptDies


def test_nothing_starts_on_a_budget_that_is_spent(tmp_path: Path) -> None:
    with minded(tmp_path, "claude", budget=100) as there:
        there.attempt.responses.response(Response("m1"))
        there.run.meter.count("m1", Usage(output=COST))
        there.attempt.responses.end_now()
        with pytest.raises(BudgetReached):
            there.attempt.responses.response(Response("m2"))
            there.attempt.responses.end_now()
        with pytest.raises(BudgetReached):  # and again, from whichever thread
            there.attempt.responses.end_now()
        raise AttemptDies


@pytest.mark.parametrize("gateway", [False, True])
def test_what_goes_through_the_gateway_is_not_counted_from_the_transcript_too(
    gateway: bool, tmp_path: Path
) -> None:
    with minded(tmp_path, "claude", gateway=gateway) as there:
        session = there.start().session
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"}) + response(session, 0, LOCAL)
        )
        there.attempt.look()
        assert there.run.meter.unsettled().tokens == (0 if gateway else 7)
        raise AttemptDies


def test_what_is_being_put_on_record_counts_at_every_instant(tmp_path: Path) -> None:
    """The gateway's thread asks meanwhile whether another call fits."""
    with minded(tmp_path, "claude") as there:
        gate = Gate(there.run, there.attempt._agent.budget, {})
        there.run.meter.count("call", Usage(output=COST))
        seen: list[int] = []

        def looking(frame: FrameType, event: str, _: object) -> Any:
            """Before every line of it, and at every crash point below."""
            if frame.f_code is not Gate.settle.__code__:
                return None
            seen.append(there.run.meter.head().spent.tokens)
            return looking

        faults.arm(lambda _: seen.append(there.run.meter.head().spent.tokens))
        before = sys.gettrace()
        sys.settrace(looking)
        try:
            assert gate.settle()
        finally:
            sys.settrace(before)
            faults.arm(None)
        assert len(seen) > 10
        assert set(seen) <= {COST, 2 * COST}, "for an instant rather twice than not at all"
        assert seen.count(2 * COST) <= 2
        assert there.run.meter.head().spent.tokens == COST
        gate.close()
        raise AttemptDies


def test_what_the_end_of_an_attempt_is_on_record_with_does_not_count_again_from_its_transcript(
    tmp_path: Path,
) -> None:
    with minded(tmp_path, "claude") as there:
        session = there.start().session
        path = there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(
            line(session, type="user", message={"role": "user", "content": "x"}) + response(session, 0, LOCAL)
        )
        there.attempt.look()
        raise AttemptDies
    with minded(tmp_path, "claude") as there:
        assert there.run.state.spent.tokens == 7
        there.start()
        assert there.run.meter.unsettled().tokens == 0
        raise AttemptDies


def test_the_text_at_the_start_counts_what_no_event_says_yet_as_the_ledger_will(tmp_path: Path) -> None:
    """What a transcript told of a killed attempt is counted before its agent is asked to wrap up."""
    with minded(tmp_path, budget=10_000) as agent:
        warned = ev.Warned(
            at=agent.run.journal.now(), level=f"{st.WRAP_UP} of tokens", text="told to wrap up"
        )
        agent.run.drive(append(warned))
        agent.run.meter.count("m1", Usage(output=9_512))
        watch = BudgetWatch(agent.run, tmp_path / "place", Person(lambda _: None))
        assert "9,512 of 10,000 tokens" in watch.wrap_up()
