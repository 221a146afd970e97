"""Kimi Code, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.common.launch import now
from outlast.agents.common.login import LoginBilling
from outlast.agents.kimi.code.cli import NAMES, PACKAGES, KimiCodeCli, read_login
from outlast.agents.kimi.code.transcript import NAME, KimiCodeTranscript
from outlast.agents.release import Caps, Release

RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(intent=("hooks", "shims", "transcript"), resume=True, mends=True, tells_steps=True),
    oldest=(2, 0),
    newest=(2, 1),
    title="Kimi Code",
    upgrade="see `kimi upgrade`",
    packages=PACKAGES,
)


def agent(clock: Callable[[], datetime] = now) -> KnownAgent:
    """Kimi Code with this clock."""
    return KnownAgent(KimiCodeCli(), KimiCodeTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
