"""`outlast mcp` as a client sees it: lines to its input, lines from its output."""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.commands import ARGV
from tests.support.environment import TIMEOUT_S

NEWEST_SHAKEN, NEWEST = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
MODERN = {"_meta": {f"{META}protocolVersion": NEWEST, f"{META}clientCapabilities": {}}}


@dataclass
class RawClient:
    """A client that sends what it likes. Each line that it receives must be JSON."""

    process: "subprocess.Popen[bytes]"
    rest: bytes = b""
    seen: list[Any] = field(default_factory=list)
    numbers: int = 0

    @classmethod
    def start(cls, env: Mapping[str, str], cwd: Any, command: Sequence[str] = (*ARGV, "mcp")) -> Self:
        return cls(
            subprocess.Popen(
                list(command), env=dict(env), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for each in messages:
            line = each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n"
            self.process.stdin.write(line)
        self.process.stdin.flush()

    def receive(self, limit_s: float = TIMEOUT_S) -> Any:
        """The next line. Raises EOFError at the end, TimeoutError if none comes."""
        assert self.process.stdout is not None
        until_s = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0.0, until_s - time.monotonic()))[0]:
                raise TimeoutError("nothing came")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError(self.rest)
            self.rest += chunk
        line, _, self.rest = self.rest.partition(b"\n")
        self.seen.append(json.loads(line))
        return self.seen[-1]

    def ask(self, method: str, params: Mapping[str, Any] | None = None, limit_s: float = TIMEOUT_S) -> Any:
        """A request, and its response."""
        self.numbers += 1
        more = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "id": self.numbers, "method": method} | more)
        while (found := self.receive(limit_s)).get("id") != self.numbers:
            pass
        return found

    def shake(self, revision: str = NEWEST_SHAKEN) -> Any:
        about = {"name": "test", "version": "1"}
        found = self.ask("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": about})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return found["result"]

    def call(self, tool: str, limit_s: float = TIMEOUT_S, **given: Any) -> Any:
        """The result of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": given}, limit_s)["result"]

    def refused(self, tool: str, limit_s: float = TIMEOUT_S, **given: Any) -> str:
        """Why a tool refuses."""
        result = self.call(tool, limit_s, **given)
        assert result["isError"] is True, result
        [content] = result["content"]
        text: str = content["text"]
        return text

    def end(self) -> int:
        """Its exit code after the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(TIMEOUT_S)
