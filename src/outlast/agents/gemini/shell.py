"""How a call of Gemini's shell ended: Gemini calls every command that ran a success, and names its exit code in the words."""

import re

from outlast.agents.common import background, exit_codes
from outlast.agents.events import ToolEnd

SHELL = "run_shell_command"
_RAN = re.compile(
    r"\A(?:<untrusted_context>\s*)?Output: "
)  # to its end: one that was cancelled has other words


def ended(call: str, tool: str, ok: bool, output: str) -> ToolEnd:
    """The end of a call. A command that ended with another code than 0 failed; of one that was cancelled nothing is known."""
    task = background.gemini(output)
    if tool != SHELL or not ok or task:
        return ToolEnd(call, ok, output, task=task)
    has_ended = _RAN.match(output) is not None
    code = (exit_codes.gemini(output) or 0) if has_ended else None
    return ToolEnd(call, not code, output, sure=has_ended, code=code)
