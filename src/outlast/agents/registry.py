"""Which agent a command starts. Adapters are imported when they are asked for: most commands need none of them."""

import importlib
import os
from collections.abc import Sequence
from functools import cache

from outlast.agents import Adapter

# In the order in which they are asked. Each module names its adapter ADAPTER.
MODULES = {
    "claude": "outlast.agents.claude",
    "codex": "outlast.agents.codex",
    "kimi-code": "outlast.agents.kimi_code",
    "kimi-cli": "outlast.agents.kimi_cli",
    "gemini": "outlast.agents.gemini",
    "opencode": "outlast.agents.opencode",
    "aider": "outlast.agents.aider",
    "mini-swe-agent": "outlast.agents.mini_swe",
}
NAMES = tuple(MODULES)
# What stands somewhere in every command of an agent, or in its program's path: a command without it is not that agent,
# and its adapter is not even imported. Too short a word costs milliseconds, too long a one the agent.
HINTS = {
    "claude": "claude",
    "codex": "codex",
    "kimi-code": "kimi",
    "kimi-cli": "kimi",
    "gemini": "gemini",
    "opencode": "opencode",
    "aider": "aider",
    "mini-swe-agent": "mini",
}
HINT_WORDS_MAX = 16  # a runner's own words and the agent's name; a prompt comes later
HINT_CHARS_MAX = 4096


@cache
def by_name(name: str) -> Adapter | None:
    """The adapter of that name, or None."""
    module = MODULES.get(name)
    if module is None:
        return None
    try:
        adapter: Adapter = importlib.import_module(module).ADAPTER
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None  # not part of this build
    return adapter


def recognise(words: Sequence[str], program: str) -> Adapter | None:
    """The adapter of the agent that a command starts; None for any other command.

    `program` is the absolute path behind the first word.
    """
    if not words:
        return None
    text = "\n".join(word[:HINT_CHARS_MAX] for word in (program, _real(program), *words[:HINT_WORDS_MAX]))
    for name in NAMES:
        adapter = by_name(name) if HINTS[name] in text else None
        if adapter is not None and adapter.detect(words, program):
            return adapter
    return None


def _real(program: str) -> str:
    try:
        return os.path.realpath(program) if program else ""
    except (OSError, ValueError):
        return ""
