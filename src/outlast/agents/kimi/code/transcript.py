"""Kimi Code's `wire.jsonl`: where it is, what its lines mean, how it is mended, and why the agent stopped."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from outlast import decoders
from outlast.agents.common import background, endings, exit_codes, json_lines, launch, providers, repair
from outlast.agents.events import (
    AgentEvent,
    BatchEnd,
    Final,
    Response,
    Retry,
    Text,
    ToolEnd,
    ToolStart,
    UsageReport,
)
from outlast.agents.kimi import common, provider
from outlast.agents.values import Ask, Companions, Cut
from outlast.core import values

NAME = "kimi-code"
TAIL_LINES_MAX = 40
ALIASES_MAX = 256
SESSION = re.compile(r"[A-Za-z0-9][\w-]{0,127}")


# --- the shapes of its lines; what is not named is skipped unread --------------------------------------------


class _Tokens(msgspec.Struct, frozen=True, rename="camel"):
    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class _Part(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    output: msgspec.Raw = values.NULL
    is_error: bool | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    uuid: str = ""
    turn_id: str = ""
    step: int = 0
    step_uuid: str = ""
    tool_call_id: str = ""
    name: str = ""
    args: msgspec.Raw = values.NULL
    part: _Part | None = None
    result: _Result | None = None


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str = ""
    status: str = ""
    exit_code: int | None = None


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    info: _Task | None = None
    agent_id: str = ""
    event: _Event | None = None
    model: str = ""
    model_alias: str = ""
    usage: _Tokens | None = None
    time: int = 0
    failed_attempt: int = 0
    error_message: str = ""


_line: "msgspec.json.Decoder[_Line]" = decoders.of_json(_Line)
_WANTED = re.compile(
    rb'"type":\s?"(?:context\.append_loop_event|usage\.record|llm\.request|task\.terminated|turn\.(?:ended|step\.retrying))"'
)


class KimiCodeTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock
        self._models: dict[str, str] = {}  # by the names that the user's settings give them

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        home = launch.home(ask.environment, *provider.CODE_HOME)
        if home is None or not SESSION.fullmatch(session):
            return None
        return next(iter(sorted(home.glob(f"sessions/*/{session}/agents/main/wire.jsonl"))), None)

    def place(self, session: str, ask: Ask) -> Path | None:
        return None

    def beside(self, transcript: Path) -> Companions:
        found = sorted(transcript.parent.parent.glob("*/wire.jsonl"))
        return Companions(
            tuple(path for path in found if path != transcript), (transcript.parents[2] / "state.json",)
        )

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        if not _WANTED.search(line):
            return
        read = json_lines.decode(line, _line)
        if read is None:
            return
        lane = "" if read.agent_id in ("", "main") else read.agent_id
        match read.type:
            case "context.append_loop_event" if read.event is not None:
                yield from _looped(read.event, lane)
            case "llm.request":
                if read.model_alias and len(self._models) < ALIASES_MAX:
                    self._models[read.model_alias] = read.model
            case "usage.record" if read.usage is not None:
                # The step's end tells the same once more, with its provider's id; a kill can come before that.
                model = providers.bare(self._models.get(read.model, read.model))
                yield UsageReport(_usage(read.usage), "response", f"{read.agent_id}@{read.time}", model, lane)
            case "turn.step.retrying":
                yield Retry(json_lines.number(read.failed_attempt), endings.short(read.error_message))
            case "turn.ended":
                yield BatchEnd(lane)
            case "task.terminated" if read.info is not None:
                task, status, code = read.info.task_id, read.info.status, read.info.exit_code
                if status in ("completed", "failed") and code is not None:  # else it was killed
                    yield background.kimi_end(task, status, code)
            case _:
                return

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """Each cut call gets its result, and its step an end; a call that the file lost is written again."""
        calls, ended, agent, time = _calls(transcript)
        cut_off = {cut.id: cut for cut in cuts if cut.id not in ended}
        here = [(calls[known], cut) for known, cut in cut_off.items() if known in calls]
        events: list[object] = [_result(call, cut) for call, cut in here]
        steps = {call.step_uuid: call for call, _ in here if call.step_uuid not in ended}
        events += [_ended(step, call.turn_id, call.step) for step, call in steps.items()]
        lost = [cut for known, cut in cut_off.items() if known not in calls]
        if lost:
            events += _lost_step(lost)
        return repair.append(transcript, [_record(agent, time, event) for event in events])

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        words = endings.last_words(tail)
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            read = json_lines.record(line) if b'"turn.ended"' in line else None
            if read is None or json_lines.text(read, "type") != "turn.ended":
                continue
            final = self._by_turn(read)
            if final is not None:
                return final
            break
        return self._by_exit(exit_code, words)

    def _by_turn(self, turn: json_lines.Record) -> Final | None:
        match json_lines.text(turn, "reason"):
            case "cancelled":
                return Final("crashed", "interrupted")
            case "failed":
                code, name, message = (
                    json_lines.text(turn, "error", key) for key in ("code", "name", "message")
                )
                status = json_lines.number(turn, "error", "details", "statusCode")
                return endings.by_status(status, f"{code}: {name}: {message}", NAME, self._clock())
            case "filtered":
                return Final("refused", "the answer was filtered")
            case _:
                return None

    def _by_exit(self, exit_code: int, words: str) -> Final:
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        return endings.by_exit(exit_code, words, NAME, self._clock())


def _usage(tokens: _Tokens) -> values.Usage:
    return common.usage(
        tokens.input_other, tokens.output, tokens.input_cache_read, tokens.input_cache_creation
    )


def _looped(event: _Event, lane: str) -> Iterator[AgentEvent]:
    match event.type:
        case "step.begin":
            yield Response(event.uuid, lane)
        case "content.part" if event.part is not None and event.part.type == "text":
            yield Text(event.part.text, lane)
        case "tool.call" if event.tool_call_id:
            yield ToolStart(event.tool_call_id, event.name, event.args, lane)
        case "tool.result" if event.tool_call_id:
            result = event.result or _Result()
            output = common.output_text(result.output)
            failed = result.is_error is True
            yield ToolEnd(
                event.tool_call_id, not failed, output, lane, task=background.kimi(output),
                code=exit_codes.kimi(output) if failed else None,
            )  # fmt: skip
        case "step.end":
            yield BatchEnd(lane)
        case _:
            return


def _calls(transcript: bytes) -> tuple[dict[str, _Event], set[str], str, int]:
    """The calls by their id, what ended (calls and steps), whose transcript it is, and when it was last written to."""
    calls: dict[str, _Event] = {}
    ended: set[str] = set()
    agent, time = "main", 0
    for line in json_lines.lines(transcript):
        read = json_lines.decode(line, _line) if b'"context.append_loop_event"' in line else None
        if read is None or read.event is None:
            continue
        agent, time = read.agent_id or agent, max(read.time, time)
        if read.event.type == "tool.call":
            calls[read.event.tool_call_id] = read.event
        elif read.event.type == "tool.result":
            ended.add(read.event.tool_call_id)
        elif read.event.type == "step.end":
            ended.add(read.event.uuid)
    return calls, ended, agent, time


def _record(agent: str, time: int, event: object) -> object:
    return {"type": "context.append_loop_event", "agentId": agent, "event": event, "time": time}


def _result(call: _Event, cut: Cut) -> object:
    # No error: Kimi would put before it that the execution failed, which nobody knows.
    return {
        "type": "tool.result",
        "parentUuid": call.uuid,
        "toolCallId": cut.id,
        "result": {"output": cut.text},
    }


def _ended(step: str, turn: str, number: int) -> object:
    return {"type": "step.end", "uuid": step, "turnId": turn, "step": number, "finishReason": "tool_use"}


def _lost_step(cuts: Sequence[Cut]) -> Iterator[object]:
    """A step with the calls that the file lost."""
    step = repair.stable("step", *(cut.id for cut in cuts))
    place = {"turnId": "0", "step": 1}
    yield {"type": "step.begin", "uuid": step, **place}
    calls = {cut.id: repair.stable("call", cut.id) for cut in cuts}
    for cut in cuts:
        call = {"type": "tool.call", "uuid": calls[cut.id], **place, "stepUuid": step, "toolCallId": cut.id}
        yield {**call, "name": cut.name, "args": repair.plain(cut.input)}
    for cut in cuts:
        yield _result(_Event(uuid=calls[cut.id]), cut)
    yield _ended(step, "0", 1)
