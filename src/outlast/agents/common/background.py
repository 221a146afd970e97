"""Processes that calls leave running when they return: how each CLI's results name them, and how their end is recognised.
A result is a tool's own words, so these patterns only ever make a call less certain.
"""

import re
from collections.abc import Iterator

from outlast.agents.common import exit_codes, json_lines
from outlast.agents.events import AgentEvent, TaskEnd

SESSIONS_MAX = 256

# Whatever its status: of a task that ended at once the end is told too.
_KIMI = re.compile(r"\Atask_id: ([\w-]{1,64})\n(?:pid|kind|status): ")
_GEMINI = re.compile(r"\A(?:<untrusted_context>\s*)?Command moved to background \(PID: (\d{1,10})\)")
_CODEX = re.compile(
    r"\A(?:Chunk ID: [^\n]{0,40}\n)?(?:Wall time: [^\n]{0,40}\n)?"
    r"Process (?:running with session ID (?P<running>\d{1,10})|exited with code (?P<code>-?\d{1,10}))(?:\n|\Z)"
)


def kimi(output: str) -> str:
    """The task that a result of Kimi's shell names, empty where the command has ended."""
    found = _KIMI.match(output)
    return found[1] if found else ""


def kimi_end(task: str, status: str, code: int) -> TaskEnd:
    """The end of a task of Kimi's, by the exit code of its shell."""
    return TaskEnd(task, code == 0, f"{status}, exit code {code}", code=exit_codes.as_shell(code))


def gemini(output: str) -> str:
    """The background task that a call of Gemini's shell left running. Gemini never says how such a command ended."""
    found = _GEMINI.match(output)
    return found[1] if found else ""


def codex(output: str) -> str:
    """The background task that a call of Codex's shell left running: it returns before a long command has ended."""
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
            code = exit_codes.as_shell(int(found["code"]))
            yield TaskEnd(session_id, code == 0, output, code=code)
