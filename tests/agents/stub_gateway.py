"""A dumb stand-in for a gateway: passes requests under a secret path on to the upstream that the path stands for.

What an agent's routes are tried with: it writes down which paths came, and may add headers to the answers.
"""

from __future__ import annotations

import http.client
import socket
import threading
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.agents.agent_world import AgentWorld

SECRET = "0123456789abcdef"
LIMIT_S = 60.0


class Passing:
    """The server, where the world's agents can reach it; `route` gives an upstream its local address."""

    def __init__(self, world: AgentWorld, headers: dict[str, str] | None = None) -> None:
        self.world = world
        self.headers = headers or {}
        self.upstreams: list[str] = []
        self.paths: list[str] = []  # of what came, as it came
        self._listener: socket.socket = world.inside(lambda: socket.create_server(("127.0.0.1", 0)))
        self._thread = threading.Thread(target=self._serve, name="passing", daemon=True)
        self._thread.start()

    def route(self, upstream: str) -> str:
        if upstream not in self.upstreams:
            self.upstreams.append(upstream)
        port = self._listener.getsockname()[1]
        return f"http://127.0.0.1:{port}/{SECRET}/{self.upstreams.index(upstream)}"

    def beyond(self, upstream: str) -> str:
        """Where an upstream really is: on this machine, the scripted model in place of all others."""
        return upstream if upstream.startswith("http://127.0.0.1") else f"{self.world.model.url}/v1"

    def asked(self) -> list[str]:
        """The paths of the requests for a response."""
        return [path for path in self.paths if not path.startswith("GET ")]

    def connect(self, host: str, port: int) -> socket.socket:
        made: socket.socket = self.world.inside(lambda: socket.create_connection((host, port), LIMIT_S))
        return made

    def _serve(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: Any) -> None:
        try:
            with connection:
                _Handler(connection, address, self)
        except OSError:
            pass  # the agent is gone

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, address: Any, passing: Passing) -> None:
        self.passing = passing
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        pass

    def do_POST(self) -> None:
        self.passing.paths.append(f"{self.command} {self.path}")
        _, secret, number, rest = [*self.path.split("/", 3), "", "", ""][:4]
        assert secret == SECRET, f"a request for {self.path} came without the secret"
        base = urlsplit(self.passing.beyond(self.passing.upstreams[int(number)]))
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("upgrade"):
            self.send_error(426)
            return
        upstream = http.client.HTTPConnection(base.hostname or "", base.port)
        upstream.sock = self.passing.connect(base.hostname or "", base.port or 80)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        upstream.request(self.command, f"{base.path}/{rest}", body, kept)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in {**dict(answer.getheaders()), **self.passing.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = answer.getheader("content-length") is None
        while piece := answer.read1(1 << 16):
            self.wfile.write(piece)
        upstream.close()

    do_GET = do_POST  # noqa: N815  # its name there
    do_HEAD = do_POST  # noqa: N815
