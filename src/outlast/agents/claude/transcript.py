"""Claude Code's transcript and its end: where the file is, and why the agent stopped. What a line means is in lines.py."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from outlast.agents.claude import lines
from outlast.agents.common import endings, json_lines, launch
from outlast.agents.events import AgentEvent, Final, ModelCost
from outlast.agents.values import Ask, Companions, Cut
from outlast.core import values

NAME = lines.NAME
TAIL_LINES_MAX = 40
MODELS_MAX = 64  # of its bill that are read


class ClaudeTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        path = self.place(session, ask)
        if path is None or path.is_file():
            return path
        return next(iter(sorted(path.parents[1].glob(f"*/{path.name}"))), None)

    def place(self, session: str, ask: Ask) -> Path | None:
        """The session's file in the folder's project: Claude Code looks nowhere else."""
        if not re.fullmatch(r"[\w.-]{1,128}", session) or session.startswith("."):
            return None
        home = ask.environment.get("HOME", "")
        config = ask.environment.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")
        if not config:
            return None
        cwds = (str(ask.cwd), os.path.realpath(ask.cwd))
        paths = [Path(config) / "projects" / dashed(cwd) / f"{session}.jsonl" for cwd in cwds]
        return next((path for path in paths if path.is_file()), paths[-1])

    def beside(self, transcript: Path) -> Companions:
        return Companions(lanes=tuple(sorted(transcript.with_suffix("").glob("subagents/agent-*.jsonl"))))

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        """Also reads its stream-json output: only there stand the windows of a subscription."""
        if b'"rate_limit_event"' in line:
            return lines.windows(line)
        if b'"queue-operation"' in line:
            return lines.task_ends(line)
        if b'"hook_deferred_tool"' in line and (aside := lines.put_aside(line)):
            return aside
        read = lines.read(line)
        return lines.events(read, self._written_at(read)) if read is not None else ()

    def _written_at(self, line: lines.TranscriptLine) -> datetime:
        return json_lines.moment(line.timestamp) or self._clock()

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        return lines.mend(transcript, cuts)

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        result = _result(tail)
        final = self._final(exit_code, tail, transcript, result)
        return msgspec.structs.replace(final, bill=_bill(result)) if result is not None else final

    def _final(
        self, exit_code: int, tail: bytes, transcript: bytes, result: json_lines.Record | None
    ) -> Final:
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        if result is not None:
            final = self._by_result(result, exit_code)
            if final is not None:
                exact = self._by_transcript(transcript) if final.ending == "usage_limit" else None
                return exact if exact is not None and exact.ending == final.ending else final
        last = self._by_transcript(transcript)
        if last is not None:
            return last
        return endings.by_exit(exit_code, endings.last_words(tail), NAME, self._clock())

    def _by_result(self, result: json_lines.Record, exit_code: int) -> Final | None:
        words = json_lines.text(result, "result")
        words = words or " ".join(
            error for error in json_lines.items(result, "errors") if isinstance(error, str)
        )
        reason = json_lines.text(result, "terminal_reason")
        subtype = json_lines.text(result, "subtype")
        if subtype == "error_max_turns":
            return Final("turns", endings.short(words))
        if subtype == "error_max_budget_usd":
            return Final("budget", endings.short(words))
        if subtype == "error_during_execution":
            return Final("crashed", "interrupted" if reason.startswith("aborted") else endings.short(words))
        if reason == "hook_stopped":
            return Final("hook_stopped", endings.short(words))
        if reason == "prompt_too_long":
            return Final("context", endings.short(words))
        if json_lines.text(result, "stop_reason") == "refusal":
            return Final("refused", endings.short(words))
        if json_lines.flag(result, "is_error"):
            return endings.by_status(
                json_lines.number(result, "api_error_status"), words, NAME, self._clock()
            )
        return Final("done", endings.short(words)) if exit_code == 0 else None

    def _by_transcript(self, transcript: bytes) -> Final | None:
        """The ending by the last words in the transcript, where they are an error."""
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            if b'"hook_stopped_continuation"' in line:
                return Final("hook_stopped")
            read = lines.read(line)
            if read is None or read.message is None or read.type not in ("assistant", "user"):
                continue
            words = lines.text_of(read.message.content)
            if read.type == "user":
                return Final("crashed", "interrupted") if lines.INTERRUPTED in words else None
            if read.is_api_error_message:
                return lines.error_ending(read, words, self._written_at(read))
            return Final("refused", endings.short(words)) if read.message.stop_reason == "refusal" else None
        return None


def dashed(path: str) -> str:
    """How a folder's path names its project: every character but letters and digits a dash."""
    return re.sub(r"[^a-zA-Z0-9]", "-", path)


def _result(tail: bytes) -> json_lines.Record | None:
    """The result line among the last ones that it printed; with `--verbose`, json is one line with a list of all."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        if b'"result"' not in line:
            continue
        printed: list[object] = [json_lines.record(line)] if line.startswith(b"{") else []
        if line.startswith(b"["):
            printed = json_lines.items(json_lines.record(b'{"all":' + line + b"}"), "all")[-1:]
        for one in printed:
            if json_lines.text(one, "type") == "result":
                return json_lines.inner(one)
    return None


def _bill(result: json_lines.Record) -> tuple[ModelCost, ...]:
    """Its own bill, by model. Without `modelUsage` nothing says which tokens the total is for."""
    rows = json_lines.inner(result, "modelUsage")
    return tuple(
        ModelCost(
            model,
            values.Usage(
                input=json_lines.number(rows, model, "inputTokens"),
                output=json_lines.number(rows, model, "outputTokens"),
                cache_read=json_lines.number(rows, model, "cacheReadInputTokens"),
                cache_write=json_lines.number(rows, model, "cacheCreationInputTokens"),
                cost_microusd=json_lines.microusd(json_lines.at(rows, model, "costUSD")),
            ),
        )
        for model in list(rows)[:MODELS_MAX]
    )
