"""Claude Code, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.claude.cli import NAMES, PACKAGES, ClaudeCli, read_login
from outlast.agents.claude.transcript import NAME, ClaudeTranscript
from outlast.agents.common.launch import fresh_id as new_id, now
from outlast.agents.common.login import LoginBilling
from outlast.agents.release import Caps, Release

RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(
        intent=("hooks", "shims", "transcript"),
        resume=True,
        preassigned_session=True,
        mends=True,
        tells=True,
        http_hooks=True,
        response_ids=True,
    ),
    oldest=(2, 0),
    newest=(2, 1),
    upgrade="see `claude update`",
    packages=PACKAGES,
)


def agent(clock: Callable[[], datetime] = now, fresh_id: Callable[[], str] = new_id) -> KnownAgent:
    """Claude Code with this clock and this maker of session ids."""
    return KnownAgent(ClaudeCli(fresh_id), ClaudeTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
