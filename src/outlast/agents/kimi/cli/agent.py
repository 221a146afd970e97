"""kimi-cli, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.common.launch import fresh_id as new_id, now
from outlast.agents.common.login import LoginBilling
from outlast.agents.kimi.cli.cli import KimiCliCli, read_login
from outlast.agents.kimi.cli.release import RELEASE
from outlast.agents.kimi.cli.transcript import KimiCliTranscript


def agent(clock: Callable[[], datetime] = now, fresh_id: Callable[[], str] = new_id) -> KnownAgent:
    """kimi-cli with this clock and this maker of session names."""
    return KnownAgent(KimiCliCli(fresh_id), KimiCliTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
