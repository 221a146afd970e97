"""Agents write their transcripts behind their hooks: each response is one beat and costs once, in whichever order both tell."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from outlast.agents.claude.transcript import dashed
from outlast.errors import AgentStopped
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import LOCAL, AttemptDies, Minded, after, before, line, minded

TOKENS = 100  # what a response costs
AT_ONCE = replace(Timing(), transcript_behind_s=0.0)  # no hook waits for the transcript
PATIENT = replace(Timing(), transcript_behind_s=60.0, hook_hold_s=0.1)
ORDERS = 40


def hook(name: str) -> bytes:
    return json.dumps({"hook_event_name": name, "session_id": "session_1"}).encode()


@dataclass(frozen=True)
class AgentStep:
    """One thing that happens in an agent: a line of its transcript, or a hook. `waits`: the agent waits for its answer."""

    written: bytes = b""
    told: bytes = b""
    waits: bool = True


def wrote(**record: Any) -> AgentStep:
    return AgentStep(written=json.dumps(record).encode() + b"\n")


# --- what each agent does for a response, in its own order ----------------------------------------------------------------


def kimi_code(session: str, number: int, call: str) -> Iterator[AgentStep]:
    step = f"step-{number}"

    def loop(kind: str, **event: Any) -> AgentStep:
        told = {"type": kind, "uuid": step, "stepUuid": step} | event
        return wrote(type="context.append_loop_event", agentId="main", event=told, time=number)

    usage = {"inputOther": TOKENS - 4, "output": 4, "inputCacheRead": 0, "inputCacheCreation": 0}
    yield loop("step.begin")
    yield wrote(type="usage.record", agentId="main", model="m", usage=usage, time=number)
    yield loop("content.part", part={"type": "text", "text": f"said {number}"})
    if call:
        yield AgentStep(told=before("kimi-code", LOCAL, call))
        yield loop("tool.call", toolCallId=call, name="Bash", args={"command": LOCAL})
        yield AgentStep(told=after("kimi-code", LOCAL, call), waits=False)
        yield loop("tool.result", toolCallId=call, result={"output": "ok"})
    yield loop("step.end")
    if not call:
        yield AgentStep(told=hook("Stop"))
        yield wrote(type="turn.ended", agentId="main", reason="completed", time=number)


def claude(session: str, number: int, call: str) -> Iterator[AgentStep]:
    def said(*blocks: dict[str, Any], stop: str | None = None) -> AgentStep:
        usage = {"input_tokens": TOKENS - 4, "output_tokens": 4}
        message = {"id": f"msg_{number}", "role": "assistant", "content": blocks, "usage": usage}
        return AgentStep(line(session, type="assistant", message=message | {"stop_reason": stop}))

    yield said({"type": "thinking", "thinking": "hm"})
    if not call:
        yield said({"type": "text", "text": f"said {number}"}, stop="end_turn")
        yield AgentStep(told=hook("Stop"))
        return
    yield said({"type": "tool_use", "id": call, "name": "Bash", "input": {"command": LOCAL}})
    yield AgentStep(told=before("claude", LOCAL, call))
    yield AgentStep(told=after("claude", LOCAL, call))
    result = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
    yield AgentStep(line(session, type="user", message={"role": "user", "content": [result]}))
    yield AgentStep(told=hook("PostToolBatch"))


def codex(session: str, number: int, call: str) -> Iterator[AgentStep]:
    def item(**payload: Any) -> AgentStep:
        return wrote(timestamp="2026-11-15T17:50:52.677Z", type="response_item", payload=payload)

    usage = {"input_tokens": TOKENS - 4, "output_tokens": 4}
    words = [{"type": "output_text", "text": f"said {number}"}]
    yield item(type="message", role="assistant", content=words)
    if call:
        yield item(
            type="function_call", name="exec_command", arguments=json.dumps({"cmd": LOCAL}), call_id=call
        )
    yield wrote(type="token_usage_record", payload={"response_id": f"resp_{number}", "usage": usage})
    if call:
        yield AgentStep(told=before("codex", LOCAL, call))
        yield AgentStep(told=after("codex", LOCAL, call))
        yield item(type="function_call_output", call_id=call, output="Process exited with code 0\nok")
    yield wrote(type="event_msg", payload={"type": "token_count"})
    if not call:
        yield AgentStep(told=hook("Stop"))
        yield wrote(type="event_msg", payload={"type": "task_complete"})


AGENTS: dict[str, Callable[[str, int, str], Iterator[AgentStep]]] = {
    "kimi-code": kimi_code,
    "claude": claude,
    "codex": codex,
}


# --- an agent whose transcript comes late ----------------------------------------------------------------------------------


class LateTranscript:
    """The transcript of an agent that is minded: lines wait until somebody lets them through."""

    def __init__(self, there: Minded) -> None:
        session = there.start().session or "session_1"
        self.session = session
        self.path = {
            "kimi-code": there.home / f".kimi-code/sessions/wd_x/{session}/agents/main/wire.jsonl",
            "claude": there.home / ".claude/projects" / dashed(str(there.work)) / f"{session}.jsonl",
            "codex": there.home / f".codex/sessions/2026/11/15/rollout-2026-11-15T17-50-52-{session}.jsonl",
        }[there.agent]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        told = {"hook_event_name": "SessionStart", "session_id": session, "transcript_path": str(self.path)}
        there.ask(json.dumps(told).encode())
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._waiting.append(data)

    def let_through(self, count: int | None = None) -> None:
        """Write the oldest lines; all without a number."""
        count = len(self._waiting) if count is None else count
        with self.path.open("ab") as file:
            file.write(b"".join(self._waiting[:count]))
        del self._waiting[:count]

    def let_some_through(self, rng: random.Random) -> None:
        self.let_through(rng.randint(0, len(self._waiting)))


def turn(agent: str, session: str, calls: int, first: int = 1) -> list[AgentStep]:
    """Responses that make one call each, and one that ends the turn."""
    numbers = range(first, first + calls)
    steps = [step for number in numbers for step in AGENTS[agent](session, number, f"call_{number}")]
    return [*steps, *AGENTS[agent](session, first + calls, "")]


def play(there: Minded, writer: LateTranscript, steps: list[AgentStep], rng: random.Random) -> None:
    """Hooks come in their order, but for those that the agent does not wait for. The transcript is behind as chance has it."""
    held: list[bytes] = []
    for step in steps:
        if step.written:
            writer.write(step.written)
            continue
        writer.let_some_through(rng)
        if rng.random() < 0.5:
            there.attempt.look()
        if not step.waits and rng.random() < 0.5:
            held.append(step.told)
            continue
        there.ask(step.told)
        while held:
            there.ask(held.pop(0))
    writer.let_through()


@pytest.mark.parametrize("agent", AGENTS)
def test_each_response_is_one_beat_and_costs_once_however_late_the_transcript_is(
    agent: str, tmp_path: Path, rng: random.Random
) -> None:
    for order in range(ORDERS):
        folder = tmp_path / str(order)
        folder.mkdir()
        with minded(folder, agent, timing=AT_ONCE) as there:
            writer = LateTranscript(there)
            play(there, writer, turn(agent, writer.session, 3), rng)
            there.attempt.look()
            there.attempt.finish()
            state, unsettled = there.run.state, there.run.meter.unsettled()
            assert state.beats == 4, f"order {order}"
            assert state.spent.tokens + unsettled.tokens == 4 * TOKENS, f"order {order}"
            assert there.attempt.failure is None
            raise AttemptDies


def test_a_call_waits_until_the_transcript_tells_what_the_beat_before_it_cost(tmp_path: Path) -> None:
    """Else the agent would spend one response more than its budget allows."""
    with minded(tmp_path, "kimi-code", budget=TOKENS, timing=PATIENT) as there:
        writer = LateTranscript(there)
        for step in kimi_code(writer.session, 1, "call_1"):
            if step.written:
                writer.write(step.written)
            else:
                there.ask(step.told)
        asking = threading.Thread(target=there.ask, args=(before("kimi-code", LOCAL, "call_2"),))
        asking.start()
        asking.join(timeout=1.0)
        assert asking.is_alive(), "the transcript has told nothing yet"
        writer.let_through()
        asking.join(timeout=60)
        failure = there.attempt.failure
        assert isinstance(failure, AgentStopped)
        assert failure.cause == "budget"
        assert [intent.key for intent in there.intents()] == ["call_1"]
        raise AttemptDies


def test_a_transcript_that_never_tells_is_waited_for_once(tmp_path: Path) -> None:
    """A sub-agent of Kimi Code has a transcript of its own, and its hooks do not say whose they are."""
    with minded(tmp_path, "kimi-code", timing=replace(Timing(), transcript_behind_s=1.0)) as there:
        LateTranscript(there)
        began_s = time.monotonic()
        for number in range(20):
            command = f"{LOCAL} {number}"
            assert there.allows(before("kimi-code", command, f"call_{number}"))
            there.ask(after("kimi-code", command, f"call_{number}"))
        assert time.monotonic() - began_s < 10.0, "20 calls"
        raise AttemptDies


def test_killed_between_two_lines_of_a_response_it_costs_once(tmp_path: Path) -> None:
    with minded(tmp_path, "claude") as there:
        writer = LateTranscript(there)
        first, second, stop = claude(writer.session, 1, "")
        writer.write(first.written)
        writer.let_through()
        there.ask(stop.told)
        assert there.run.state.beats == 1
        raise AttemptDies
    with writer.path.open("ab") as file:
        file.write(second.written)
    with minded(tmp_path, "claude") as there:
        there.start()
        there.attempt.look()
        assert there.run.state.spent.tokens + there.run.meter.unsettled().tokens == TOKENS
        raise AttemptDies
