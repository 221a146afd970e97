"""Gemini CLI, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.common.launch import fresh_id as new_id, now
from outlast.agents.common.login import LoginBilling
from outlast.agents.gemini.cli import NAMES, PACKAGES, GeminiCli, read_login
from outlast.agents.gemini.transcript import NAME, GeminiTranscript
from outlast.agents.release import Caps, Release

RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(
        intent=("hooks", "shims", "transcript"), resume=True, preassigned_session=True, mends=True, tells=True
    ),
    oldest=(0, 50),
    newest=(0, 61),
    upgrade=f"`npm install -g {PACKAGES[0]}`",
    packages=PACKAGES,
)


def agent(clock: Callable[[], datetime] = now, fresh_id: Callable[[], str] = new_id) -> KnownAgent:
    """Gemini CLI with this clock and this maker of session ids."""
    return KnownAgent(GeminiCli(fresh_id), GeminiTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
