"""The official client against `outlast mcp` inside of a real run, by each way in which it can open."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from outlast.mcp import tools
from tests.mcp.conftest import Around
from tests.support.commands import ARGV
from tests.support.environment import TIMEOUT_S

MODES = ["legacy", "auto", "2026-07-28"]


def with_client(around: Around, mode: str, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Talk to a server of our own in the run."""
    server = StdioServerParameters(
        command=ARGV[0], args=[*ARGV[1:], "mcp"], env=around.environ(), cwd=around.night.work
    )

    async def whole() -> None:
        with anyio.fail_after(TIMEOUT_S):
            async with Client(stdio_client(server, sys.__stderr__), mode=mode) as client:  # type: ignore[arg-type]
                await talk(client)

    anyio.run(whole)


@pytest.mark.parametrize("mode", MODES)
def test_each_tool_is_listed_and_gives_what_its_schema_says(around: Around, mode: str) -> None:
    (around.night.work / "new.txt").write_text("new")
    given: dict[str, dict[str, Any]] = {
        "stage": {"name": "reviewing"},
        "remember": {"name": "notes", "path": "notes.md"},
        "save": {"message": "by hand"},
    }

    async def talk(client: Client) -> None:
        listed = await client.list_tools()
        assert [each.name for each in listed.tools] == [each.name for each in tools.TOOLS]
        assert {each.name for each in listed.tools if each.annotations and each.annotations.read_only_hint} == {
            "budget", "context", "effects",
        }  # fmt: skip
        found = {}
        for each in tools.TOOLS:
            if each.name not in ("settle", "ask"):
                result = await client.call_tool(each.name, given.get(each.name, {}))  # it checks the schema
                assert not result.is_error, result
                found[each.name] = result.structured_content
        assert found["budget"]["run"] == around.run
        assert [each["text"] for each in found["budget"]["limits"]] == ["0 of 500 beats"]
        assert found["stage"] == {"stage": "reviewing"}
        assert found["remember"]["uri"] == f"file:{around.night.work / 'notes.md'}"
        assert "500 of 500 beats left" in found["context"]["context"]
        assert found["save"]["commit"] == around.events("save_made")[-1]["commit"]
        refused = await client.call_tool("settle", {"effect": "9.9", "finding": "happened"})
        assert refused.is_error
        assert "has no effect 9.9" in refused.content[0].text  # type: ignore[union-attr]

    with_client(around, mode, talk)
    assert around.events("stage_set")[-1]["stage"] == "reviewing"
    assert around.end() == 0


@pytest.mark.filterwarnings("ignore:ping is removed")
def test_it_speaks_the_revision_that_each_way_of_opening_asks_for(around: Around) -> None:
    spoken = {}

    async def talk(client: Client) -> None:
        spoken[mode] = client.protocol_version
        assert client.server_info is None or client.server_info.name == "outlast"
        if mode == "legacy":
            await client.send_ping()  # type: ignore[deprecated]

    for mode in MODES:
        with_client(around, mode, talk)
    assert spoken == {"legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}


@pytest.mark.parametrize("mode", MODES)
def test_an_unknown_tool_is_an_error_and_wrong_arguments_are_told_to_the_model(
    around: Around, mode: str
) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(MCPError, match="no such tool: fly"):
            await client.call_tool("fly", {})
        wrong = await client.call_tool("stage", {"name": 5})
        assert wrong.is_error
        assert "stage takes name" in wrong.content[0].text  # type: ignore[union-attr]

    with_client(around, mode, talk)


def test_outside_of_a_run_it_has_no_tools_and_says_how_to_get_them(tmp_path: Path, around: Around) -> None:
    for name in list(around.inside):
        around.inside[name] = ""

    async def talk(client: Client) -> None:
        assert (await client.list_tools()).tools == []
        assert "outlast run" in (client.instructions or "")
        refused = await client.session.call_tool("budget", {})
        assert refused.is_error  # type: ignore[union-attr]

    with_client(around, "auto", talk)
