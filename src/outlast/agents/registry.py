"""Which agent a command starts. An agent is imported when it is asked for: most commands need none of them."""

import importlib
import os
import re
import shlex
from collections.abc import Sequence
from functools import cache

from outlast.agents import KnownAgent

# In the order in which they are asked. Each module names its agent AGENT.
MODULES = {
    "claude": "outlast.agents.claude.agent",
    "codex": "outlast.agents.codex.agent",
    "kimi-code": "outlast.agents.kimi.code.agent",
    "kimi-cli": "outlast.agents.kimi.cli.agent",
    "gemini": "outlast.agents.gemini.agent",
    "opencode": "outlast.agents.opencode.agent",
    "aider": "outlast.agents.aider",
    "mini-swe-agent": "outlast.agents.mini_swe",
}
NAMES = tuple(MODULES)
# What stands somewhere in every command of an agent, or in its program's path: a command without it is not that agent,
# and that agent is not even imported. Too short a word costs milliseconds, too long a one the agent.
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
def by_name(name: str) -> KnownAgent | None:
    """The agent of that name, or None."""
    module = MODULES.get(name)
    if module is None:
        return None
    try:
        agent: KnownAgent = importlib.import_module(module).AGENT
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None  # not part of this build
    return agent


def recognise(words: Sequence[str], program: str) -> KnownAgent | None:
    """The agent that a command starts; None for any other command.

    `program` is the absolute path behind the first word.
    """
    if not words:
        return None
    text = "\n".join(word[:HINT_CHARS_MAX] for word in (program, _real(program), *words[:HINT_WORDS_MAX]))
    for name in NAMES:
        agent = by_name(name) if HINTS[name] in text else None
        if agent is not None and agent.cli.detect(words, program):
            return agent
    return None


def start(agent: KnownAgent, words: Sequence[str], program: str) -> int:
    """How many words stand before the agent's own: a runner's, a wrapper's, and its name."""
    from outlast.agents.common import launch

    return launch.start(words, program, agent.release.names) or 1


def env_assignments(words: Sequence[str]) -> dict[str, str]:
    """The variables that `env` in front of an agent's command sets."""
    from outlast.agents.common import launch

    return launch.env_assignments(words)


# What starts another program in a way, or in a place, that nobody sees through.
_HIDING = frozenset(
    "sudo doas su env setsid chrt taskset xargs systemd-run unbuffer script strace ltrace tmux screen dtach abduco".split()
)
_SHELLS = frozenset("sh bash dash zsh ksh fish".split())
_PARTS = re.compile(r"[;&|()\n]+")


def hidden_agent(words: Sequence[str]) -> tuple[str, str] | None:
    """The agent that a command starts below another program which hides it from us, and that program; None for most."""
    if not any(hint in word[:HINT_CHARS_MAX] for hint in HINTS.values() for word in words[:HINT_WORDS_MAX]):
        return None
    from outlast.agents.common import launch

    words = words[launch.prefix(words) :]
    name = _hidden(words)
    return (name, os.path.basename(words[0])) if name else None


def _hidden(words: Sequence[str]) -> str:
    first = os.path.basename(words[0]) if words else ""
    if first in _SHELLS:
        script = next(
            (words[at + 1] for at in range(1, len(words) - 1) if re.fullmatch(r"-[a-z]*c", words[at])), ""
        )
        return next((name for part in _PARTS.split(script[:HINT_CHARS_MAX]) if (name := _named(part))), "")
    if first not in _HIDING:
        return ""
    found = (recognise(words[at:], "") for at in range(1, min(len(words), HINT_WORDS_MAX)))
    return next((agent.name for agent in found if agent is not None), "")


def _named(command: str) -> str:
    """The agent that one command of a shell starts."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    while words and (words[0] in ("exec", "command") or re.match(r"[A-Za-z_]\w*=", words[0])):
        words = words[1:]
    agent = recognise(words, "")
    return agent.name if agent is not None else ""


def _real(program: str) -> str:
    try:
        return os.path.realpath(program) if program else ""
    except (OSError, ValueError):
        return ""
