"""How a shell command ended, by what each CLI says of it: its exit code, or None where the CLI does not tell.
A result is a tool's own words, so a pattern here may make a success a failure, never the other way round.
"""

import re
import signal

SIGNALLED = 128

_CLAUDE = re.compile(r"\A(?:Error: )?Exit code (\d{1,3})(?:\s|\Z)")
_KIMI_STOPPED = re.compile(r"Command killed by timeout \([^\n]{1,40}\)\.?\s*\Z")
_KIMI = re.compile(r"Command failed with exit code:? (-?\d{1,10})\.?[^\n]{0,200}\s*\Z")
_CODEX = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,10})")
_GEMINI = re.compile(
    r"\n(?:Exit Code: (?P<code>-?\d{1,10}))?(?:\n?Signal: (?P<signal>[^\n]{1,40}))?"
    r"(?:\n?Background PIDs: [\d, ]{0,4000})?(?:\n?Process Group PGID: \d{1,10})?\s*(?:</untrusted_context>)?\s*\Z"
)


def claude(output: str) -> int | None:
    """The exit code in Claude Code's output of a failed command; None if it names none."""
    return _number(_CLAUDE.match(output))


def kimi(output: str) -> int | None:
    """The exit code in the output of Kimi Code or kimi-cli; None if it names none."""
    end = output[-600:]
    return SIGNALLED + signal.SIGKILL if _KIMI_STOPPED.search(end) else _number(_KIMI.search(end))


def codex(output: str) -> int | None:
    """The exit code in a result of Codex's transcript; None if it names none. Codex's hooks do not have it."""
    found = _CODEX.findall(output[:400])
    return as_shell(int(found[-1])) if found else None


def gemini(output: str) -> int | None:
    """The exit code in a result of Gemini's shell, which names it only after a failure. Signal N gives a shell's code for it, 128 + N."""
    found = _GEMINI.search(output[-5000:])
    if found is None:
        return None
    if found["signal"]:
        return SIGNALLED + (int(found["signal"]) if found["signal"].isdigit() else 9)
    return as_shell(int(found["code"])) if found["code"] else None


def as_shell(code: int) -> int:
    """The code of a process as a shell tells it: Python tells a signal by a negative one."""
    return code if code >= 0 else SIGNALLED - code


def _number(found: "re.Match[str] | None") -> int | None:
    return as_shell(int(found[1])) if found else None
