"""How a shell command ended, by what each CLI says of it: its exit code, or None where the CLI does not tell.
A result is a tool's own words, so a pattern here may make a success a failure, never the other way round.
"""

import re

SIGNALLED = 128

_CLAUDE = re.compile(r"\A(?:Error: )?Exit code (\d{1,3})(?:\s|\Z)")
_KIMI = re.compile(r"Command failed with exit code:? (-?\d{1,10})\.?[^\n]{0,200}\s*\Z")
_CODEX = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,10})")
_GEMINI = re.compile(
    r"\n(?:Exit Code: (?P<code>-?\d{1,10}))?(?:\n?Signal: (?P<signal>[^\n]{1,40}))?"
    r"(?:\n?Background PIDs: [\d, ]{0,4000})?(?:\n?Process Group PGID: \d{1,10})?\s*(?:</untrusted_context>)?\s*\Z"
)


def claude(output: str) -> int | None:
    """Of what Claude Code says of a command that failed."""
    return _number(_CLAUDE.match(output))


def kimi(output: str) -> int | None:
    """The same of Kimi Code and kimi-cli."""
    return _number(_KIMI.search(output[-600:]))


def codex(output: str) -> int | None:
    """Of a result in Codex's transcript. Its hooks do not tell."""
    found = _CODEX.findall(output[:400])
    return int(found[-1]) if found else None


def gemini(output: str) -> int | None:
    """Of a result of Gemini's shell, which names the code of a failure only. A signal counts as the code of a shell for it."""
    found = _GEMINI.search(output[-5000:])
    if found is None:
        return None
    if found["signal"]:
        return SIGNALLED + (int(found["signal"]) if found["signal"].isdigit() else 9)
    return int(found["code"]) if found["code"] else None


def _number(found: "re.Match[str] | None") -> int | None:
    return int(found[1]) if found else None
