"""`outlast mcp`: the tools of a run for its agent, by the Model Context Protocol. The server is `outlast.mcp`."""

import argparse
import os

from outlast.errors import UsageError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "mcp", help="inside a run: its tools for an agent, by MCP on stdin and stdout",
        description="Serve the tools of the run that this command is started in, by the Model Context Protocol on stdin and stdout:\n"
        "budget, context, effects, stage, remember, settle, ask, save. An agent's client starts it, not a person.",
        epilog="example: in an agent's list of MCP servers: command `outlast`, arguments `mcp`",
    )  # fmt: skip
    command.set_defaults(handler=mcp)


def mcp(arguments: argparse.Namespace) -> None:
    """`outlast mcp`"""
    from outlast.mcp import run
    from outlast.mcp.server import McpServer
    from outlast.mcp.stdio import Reader, Writer

    if os.isatty(0):
        inside = "this run's tools" if run.is_around() else "the tools of a run, and this is not inside one"
        raise UsageError(
            f"`outlast mcp` is started by an agent's MCP client, to serve {inside}",
            hint="start the agent with `outlast run -- …`; docs/mcp.md says how agents get it",
        )
    McpServer(Reader(0), Writer(1)).serve()
