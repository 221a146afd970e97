"""Codex's rollout and its end: where the file is, and why the agent stopped. What a line means is in rollout.py."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from outlast.agents.codex import rollout
from outlast.agents.codex.cli import ID
from outlast.agents.common import background, endings, json_lines, launch
from outlast.agents.events import AgentEvent, BatchEnd, Final, Limit, Retry, Session, Text
from outlast.agents.values import Ask, Companions, Cut

NAME = "codex"
TAIL_LINES_MAX = 40
_V7 = re.compile(r"(0[0-9a-f]{7})-([0-9a-f]{4})-7[0-9a-f]{3}(?:-[0-9a-f]+){2}")


class CodexTranscript:
    """The clock is an argument."""

    def __init__(self, clock: Callable[[], datetime] = launch.now) -> None:
        self._clock = clock
        self._models = rollout.Models()
        self._sessions = background.Sessions()

    # --- its files ---

    def find(self, session: str, ask: Ask) -> Path | None:
        folder = _sessions(session, ask)
        return None if folder is None else max(folder.glob(f"*/*/*/rollout-*-{session}.jsonl"), default=None)

    def place(self, session: str, ask: Ask) -> Path | None:
        """The id holds the moment at which the session began, and that names the file."""
        folder, found = _sessions(session, ask), self.find(session, ask)
        made = _V7.fullmatch(session)
        if folder is None or found is not None or made is None:
            return found
        at = datetime.fromtimestamp(int(made[1] + made[2], 16) // 1000, UTC)
        return folder / f"{at:%Y/%m/%d}" / f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"

    def beside(self, transcript: Path) -> Companions:
        return Companions()

    # --- what it did ---

    def parse(self, line: bytes) -> Iterable[AgentEvent]:
        read = rollout.read(line)
        if read is None:
            return ()
        head, payload = read
        match head.type:
            case "session_meta":
                session = json_lines.text(payload, "id")
                return (Session(session),) if session else ()
            case "response_item":
                return (*rollout.item(payload), *self._sessions.take(payload))
            case "turn_context":
                self._models.learn(payload)
                return ()
            case "token_usage_record":
                return rollout.usage(payload, self._models.of(payload))
            case "event_msg":
                return self._event(payload, head)
            case _:
                return ()

    def _event(self, payload: json_lines.Record, line: rollout.RolloutLine) -> Iterator[AgentEvent]:
        kind = json_lines.text(payload, "type")
        if kind == "token_count":  # written once a response and its calls are over
            limits = json_lines.inner(payload, "rate_limits")
            yield from rollout.windows(limits, self._written_at(line))
            limit = rollout.limit(limits)
            if limit is not None:
                yield limit
            yield BatchEnd()
        elif kind in ("task_complete", "turn_aborted"):
            words = json_lines.text(payload, "error", "message")
            if words:
                yield Text(words)
                final = self._failed(payload, words, self._written_at(line))
                if final.ending in ("usage_limit", "rate_limit"):
                    yield Limit(final.reset_at, final.text)
            yield BatchEnd()
        elif kind == "stream_error":
            yield Retry(0, json_lines.text(payload, "message"))

    def _written_at(self, line: rollout.RolloutLine) -> datetime:
        return json_lines.moment(line.timestamp) or self._clock()

    def mend(self, transcript: bytes, cuts: Sequence[Cut]) -> bytes:
        """A last line that is torn goes; to mend twice changes nothing more."""
        return rollout.mend(transcript, cuts)

    # --- how it ended ---

    def ending(self, exit_code: int, tail: bytes, transcript: bytes) -> Final:
        killed = endings.by_signal(exit_code)
        if killed is not None:
            return killed
        for line in json_lines.backwards(transcript, TAIL_LINES_MAX):
            read = rollout.read(line)
            if read is None or read[0].type != "event_msg":
                continue
            head, payload = read
            kind = json_lines.text(payload, "type")
            if kind == "turn_aborted":
                return Final("crashed", json_lines.text(payload, "reason") or "interrupted")
            words = json_lines.text(payload, "error", "message")
            if kind == "task_complete" and words:
                final = self._failed(payload, words, self._written_at(head))
                full = rollout.full_until(transcript) if final.ending == "usage_limit" else None
                return Final(final.ending, final.text, full) if full is not None else final
            if kind in ("task_complete", "task_started"):
                break
        return endings.by_exit(exit_code, _last_words(tail), NAME, self._clock())

    def _failed(self, payload: json_lines.Record, words: str, now: datetime) -> Final:
        info = json_lines.at(payload, "error", "codex_error_info")
        named = info if isinstance(info, str) else next(iter(info), "") if isinstance(info, dict) else ""
        if named == "usage_limit_exceeded":
            return Final("usage_limit", endings.short(words), endings.reset_at(words, now))
        if named == "context_window_exceeded":
            return Final("context", endings.short(words))
        if named == "unauthorized":
            return Final("auth", endings.short(words))
        status = json_lines.number(info, named, "http_status_code") if isinstance(info, dict) else 0
        if named == "internal_server_error":
            status = 500
        return endings.by_status(status, words, NAME, now)


def _sessions(session: str, ask: Ask) -> Path | None:
    """The folder of all rollouts; None without a home, or for a name that is not an id."""
    home = ask.environment.get("HOME", "")
    codex_home = ask.environment.get("CODEX_HOME") or (os.path.join(home, ".codex") if home else "")
    return Path(codex_home) / "sessions" if codex_home and ID.fullmatch(session) else None


def _last_words(tail: bytes) -> str:
    """Its last words: the message of a JSON line, or the errors among its lines of text."""
    for line in json_lines.backwards(tail, TAIL_LINES_MAX):
        read = json_lines.record(line) if line.startswith(b"{") else None
        if read is not None:
            words = json_lines.text(read, "error", "message") or json_lines.text(read, "message")
            words = words or json_lines.text(read, "item", "text")
            if words:
                return words
    text = tail[-endings.TEXT_MAX_CHARS :].decode("utf-8", "replace")
    errors = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    return errors[-1].removeprefix("ERROR: ") if errors else text.strip()
