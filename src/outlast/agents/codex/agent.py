"""Codex, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.codex.cli import NAMES, PACKAGES, CodexCli, read_login
from outlast.agents.codex.transcript import NAME, CodexTranscript
from outlast.agents.common.launch import now
from outlast.agents.common.login import LoginBilling
from outlast.agents.release import Caps, Release

RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(
        intent=("hooks", "shims", "transcript"), resume=True, mends=True, tells=True, response_ids=True
    ),
    oldest=(0, 160),
    newest=(0, 166),
    upgrade="see `codex update`",
    packages=PACKAGES,
)


def agent(clock: Callable[[], datetime] = now) -> KnownAgent:
    """Codex with this clock."""
    return KnownAgent(CodexCli(), CodexTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
