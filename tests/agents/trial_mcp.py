"""An MCP server with one tool that does something to the world, and how each agent CLI is told of it.

As a program it is that server, on stdin and stdout; it needs nothing but the standard library."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SERVER, TOOL = "world", "post_note"
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "body": {"type": "string"}},
    "required": ["name", "body"],
}


# --- settings -------------------------------------------------------------------------------------------------------


def set_up(
    agent: str, home: Path, config_home: Path, witness: str, folder: Path, holds: Mapping[str, str]
) -> list[str]:
    """Tell that CLI of the server; returns the words that its command needs."""
    words = [
        sys.executable,
        "-I",
        str(Path(__file__).resolve()),
        witness,
        str(folder),
        json.dumps(dict(holds)),
    ]
    listed = {"mcpServers": {SERVER: {"command": words[0], "args": words[1:], "env": {}}}}
    own = folder / "mcp.json"
    own.write_text(json.dumps(listed))
    match agent:
        case "claude":
            return ["--mcp-config", str(own)]
        case "codex":
            with (home / ".codex/config.toml").open("a") as settings:
                args = json.dumps(words[1:])
                settings.write(f'\n[mcp_servers.{SERVER}]\ncommand = "{words[0]}"\nargs = {args}\n')
        case "gemini":
            listed["mcpServers"][SERVER]["trust"] = True
            _change(home / ".gemini/settings.json", lambda found: found | listed)
        case "kimi-code":
            (home / ".kimi-code/mcp.json").write_text(json.dumps(listed))
        case "kimi-cli":
            (home / ".kimi/mcp.json").write_text(json.dumps(listed))
        case "opencode":
            server = {"type": "local", "command": words, "enabled": True}
            _change(config_home / "opencode/opencode.json", lambda found: found | {"mcp": {SERVER: server}})
    return []


def _change(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


# --- the server -----------------------------------------------------------------------------------------------------


def serve(witness: str, folder: str, holds: Mapping[str, str]) -> None:
    """Answer one request a line until stdin ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": _answered(asked, witness, folder, holds)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answered(asked: dict[str, Any], witness: str, folder: str, holds: Mapping[str, str]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            version = asked["params"].get("protocolVersion", "2025-06-18")
            about = {"name": SERVER, "version": "1.0.0"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": TOOL, "description": "Post a note.", "inputSchema": _SCHEMA}]}
        case "tools/call":
            text = _post(asked["params"]["arguments"], witness, folder, holds)
            return {"content": [{"type": "text", "text": text}], "isError": False}
        case _:
            return {}


def _post(given: dict[str, str], witness: str, folder: str, holds: Mapping[str, str]) -> str:
    name = given["name"]
    hold = ["sh", f"{folder}/hold.sh", name]
    if holds.get(name) == "before":
        subprocess.run(hold, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    body = json.dumps({"body": given["body"]}).encode()
    request = urllib.request.Request(f"{witness}/act/blind/{name}", body, {"Witness-Id": name}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as reply:
        reply.read()
    if holds.get(name) == "after":
        subprocess.run(hold, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return f"done-{name}"


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
