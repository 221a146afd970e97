"""Processes that calls leave running when they return: how each CLI's results name them, and how their end is recognised.
A result is a tool's own words, so these patterns only ever make a call less certain.
"""

import re
from collections.abc import Iterator

from outlast.agents.common import json_lines
from outlast.agents.events import AgentEvent, TaskEnd

SESSIONS_MAX = 256

_KIMI = re.compile(
    r"\Atask_id: ([\w-]{1,64})\n(?:[a-z_]{1,20}: [^\n]{0,4000}\n){0,4}?status: (?:starting|running)\b"
)
_GEMINI = re.compile(r"\A(?:<untrusted_context>\s*)?Command moved to background \(PID: (\d{1,10})\)")
_CODEX = re.compile(
    r"\A(?:Chunk ID: [^\n]{0,40}\n)?(?:Wall time: [^\n]{0,40}\n)?"
    r"Process (?:running with session ID (?P<running>\d{1,10})|exited with code (?P<code>-?\d{1,10}))(?:\n|\Z)"
)


def kimi(output: str) -> str:
    """The task that a result of Kimi's shell names, empty where the command has ended."""
    found = _KIMI.match(output)
    return found[1] if found else ""


def gemini(output: str) -> str:
    """The same for Gemini's shell. Gemini never says how such a command ended."""
    found = _GEMINI.match(output)
    return found[1] if found else ""


def codex(output: str) -> str:
    """The same of Codex's shell, which returns before a command that takes long has ended."""
    found = _CODEX.match(output)
    return (found["running"] or "") if found else ""


class Sessions:
    """Codex's commands that run on: which call looks at which command, to find the end of the command in the call's result."""

    def __init__(self) -> None:
        self._looked_at: dict[str, str] = {}  # by the call that looks

    def take(self, payload: json_lines.Record) -> Iterator[AgentEvent]:
        """One item of a rollout."""
        call = json_lines.text(payload, "call_id")
        if json_lines.text(payload, "name") == "write_stdin":
            given = json_lines.record(bytes(json_lines.raw_from_text(json_lines.text(payload, "arguments"))))
            session = json_lines.number(given, "session_id")
            if call and session:
                self._looked_at[call] = str(session)
                if len(self._looked_at) > SESSIONS_MAX:
                    self._looked_at.pop(next(iter(self._looked_at)))
            return
        session_id = (
            self._looked_at.pop(call, "") if json_lines.text(payload, "type").endswith("_output") else ""
        )
        output = json_lines.text(payload, "output")
        found = _CODEX.match(output) if session_id else None
        if found and found["code"]:
            yield TaskEnd(session_id, found["code"] == "0", output)
