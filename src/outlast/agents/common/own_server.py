"""Our own MCP server, as an agent's settings name it for one run. What it serves is `outlast.mcp`; its calls stay inside."""

from collections.abc import Mapping
from typing import Any

from outlast.agents.values import McpServer

NAME = "outlast"
TOOLS = ("budget", "context", "effects", "stage", "remember", "settle", "ask", "save")


def entry(server: McpServer) -> dict[str, Any]:
    """The server in a list of `mcpServers`, as most CLIs have it."""
    return {"command": server.command[0], "args": list(server.command[1:]), "env": dict(server.variables)}


def listed(theirs: Mapping[str, object], server: McpServer) -> dict[str, object]:
    """A list of servers with ours. One of theirs by our name steps aside for this run."""
    return {**theirs, NAME: entry(server)}
