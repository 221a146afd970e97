"""opencode, put together."""

from collections.abc import Callable
from datetime import datetime

from outlast.agents import KnownAgent
from outlast.agents.common.launch import now
from outlast.agents.common.login import LoginBilling
from outlast.agents.opencode.cli import NAMES, PACKAGES, OpencodeCli, read_login
from outlast.agents.opencode.transcript import NAME, OpencodeTranscript
from outlast.agents.release import Caps, OwnTools, Release

# A server's tool is called SERVER_TOOL.
OWN_TOOLS = OwnTools(
    frozenset(
        """apply_patch bash batch codesearch edit glob grep invalid list lsp multiedit patch plan_enter plan_exit question read
        skill StructuredOutput task todoread todowrite webfetch websearch write""".split()
    ),
    prefix="mcp_",
)
RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(intent=("hooks", "shims"), resume=True, tells=True),
    oldest=(1, 0),
    newest=(1, 18),
    upgrade="see `opencode upgrade`",
    packages=PACKAGES,
    own_tools=OWN_TOOLS,
)


def agent(clock: Callable[[], datetime] = now) -> KnownAgent:
    """opencode with this clock."""
    return KnownAgent(OpencodeCli(), OpencodeTranscript(clock), LoginBilling(read_login), RELEASE)


AGENT = agent()
