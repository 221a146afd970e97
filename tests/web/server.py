"""A server in this process on a port of its own, and clients that say exactly what they are told to say."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.store import locate
from outlast.web.http import server
from outlast.web.http.guard import Guard
from outlast.web.http.server import Handler, Server

TIMEOUT_S = 60.0


@dataclass
class Heard:
    """An answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes
    cookies: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A connection on which anything can be said."""

    def __init__(self, port: int, host: str = "127.0.0.1", source: str = "") -> None:
        self.host, self.port = host, port
        self.socket = socket.create_connection(
            (host, port), timeout=TIMEOUT_S, source_address=(source, 0) if source else None
        )
        self._held = b""

    def say(self, data: bytes | str) -> "Client":
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())
        return self

    def hear(self, *, head_only: bool = False) -> Heard:
        """The next answer."""
        while b"\r\n\r\n" not in self._held:
            self._more()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(": ")[::2] for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        size = 0 if head_only else int(headers.get("content-length", "0"))
        while len(self._held) < size:
            self._more()
        body, self._held = self._held[:size], self._held[size:]
        cookies = [value for name, value in pairs if name.lower() == "set-cookie"]
        return Heard(int(first.split()[1]), headers, body, cookies)

    def _more(self) -> None:
        came = self.socket.recv(65536)
        if not came:
            raise EOFError(f"the server has ended the connection; held {self._held[:200]!r}")
        self._held += came

    def line(self) -> str:
        """The next line of a stream."""
        while b"\n" not in self._held:
            self._more()
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    def ended(self) -> bool:
        """Whether the server has nothing more to say and has hung up."""
        try:
            return not self._held and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Served:
    """A server that runs. `ask` asks one thing on a connection of its own."""

    server: Server
    guard: Guard | None = None
    site: Any = None
    clients: list[Client] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.server.port

    def client(self) -> Client:
        """A connection, closed with the server at the latest."""
        made = Client(self.port)
        self.clients.append(made)
        return made

    def hang_up(self) -> None:
        for client in self.clients:
            client.close()

    def ask(
        self, target: str, *, method: str = "GET", body: bytes | str = b"", host: str | None = None, **headers: str
    ) -> Heard:  # fmt: skip
        """Ask one thing; underscores in the names of headers are hyphens."""
        body = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body or method == "POST":
            named.setdefault("Content-Length", str(len(body)))
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {host or f'127.0.0.1:{self.port}'}",
            "Connection: close",
        ]
        lines += [f"{name}: {value}" for name, value in named.items()]
        with self.client() as client:
            client.say("\r\n".join([*lines, "", ""]).encode() + body)
            return client.hear(head_only=method == "HEAD")

    def post(self, target: str, document: object, **headers: str) -> Heard:
        """Post a document to the API."""
        return self.ask(
            target,
            method="POST",
            body=json.dumps(document),
            **{"Content-Type": "application/json", **headers},
        )


@contextlib.contextmanager
def served(handle: Handler, **limits: Any) -> Iterator[Served]:
    """Serve this and nothing else."""
    listening, _ = server.listen("127.0.0.1", 0)
    running = Server(listening, handle, **limits)
    running.start()
    made = Served(running)
    try:
        yield made
    finally:
        running.stop()
        made.hang_up()


@contextlib.contextmanager
def ui(root: Path, *, token: str = "", read_only: bool = False, host: str = "127.0.0.1") -> Iterator[Served]:
    """The whole page on a store, as `outlast ui` serves it. What goes wrong unexpectedly fails the test."""
    from outlast.web.app import App
    from outlast.web.site import Site

    traces: list[BaseException] = []
    listening, _ = server.listen(host, 0)
    guard = Guard(host, listening.getsockname()[1], token=token, read_only=read_only)
    site = Site(locate(root), guard, by="tester via ui")
    running = Server(listening, App(site, traces.append).handle, is_stranger=guard.is_stranger)
    site.start()
    running.start()
    made = Served(running, guard, site)
    try:
        yield made
    finally:
        made.hang_up()
        site.live.stop()
        running.stop()
        site.stop()
        for trace in traces:
            raise trace
