"""The two ends around the gateway, in processes of their own: python -m benchmarks.gateway_ends upstream | client …

`upstream` streams an answer in paced chunks and prints its port. `client` calls two addresses in turn and times them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

CHUNKS = 200
PACE_S = 0.05  # as fast as large models answer
APART_S = 0.02  # between the starts of two calls, so that starts do not slow each other down
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"input_tokens": 10, "output_tokens": 200}
ASKED = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 20_000}]}
).encode()


def event(number: int) -> bytes:
    if number == 0:
        said: dict[str, object] = {"type": "message_start", "message": {"id": "m", "usage": USAGE}}
    elif number == CHUNKS - 1:
        said = {"type": "message_delta", "delta": {}, "usage": USAGE}
    else:
        said = {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "some words "},
        }
    data = b"event: x\ndata: " + json.dumps(said).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


EVENTS = [event(number) for number in range(CHUNKS)]


class Model(asyncio.Protocol):
    """Answers every request, chunk by chunk, each at its time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._left, self._read = transport, -1, b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if found and len(body) == len(ASKED):
            self._read = b""
            self._number = CHUNKS - 2 if b"/warm/" in head else 0
            self._began = asyncio.get_running_loop().time() - self._number * PACE_S
            self._say(HEAD)

    def _say(self, before: bytes = b"") -> None:
        self._transport.write(before + EVENTS[self._number])
        self._number += 1
        if self._number == CHUNKS:
            self._transport.write(b"0\r\n\r\n")
        elif not self._transport.is_closing():
            asyncio.get_running_loop().call_at(self._began + self._number * PACE_S, self._say)


async def upstream() -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until our parent is gone


class Call(asyncio.Protocol):
    """One call on an open connection, as agents keep theirs."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_s = self.last_s = 0.0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, path: str) -> None:
        lines = f"POST {path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(ASKED)}\r\n\r\n"
        self._began, self.first_s, self._tail = time.perf_counter(), 0.0, b""
        self.ended = asyncio.get_running_loop().create_future()
        self.transport.write(lines.encode() + ASKED)

    def data_received(self, data: bytes) -> None:
        if not self.first_s:
            self.first_s = time.perf_counter() - self._began
        self._tail = (self._tail + data)[-5:]
        if self._tail == b"0\r\n\r\n":
            self.last_s = time.perf_counter() - self._began
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("cut"))


async def one(url: str, start_s: float) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start_s)
    parts = urlsplit(url)
    _, call = await loop.create_connection(Call, parts.hostname, parts.port)
    try:
        for way in (
            "/warm",
            "",
        ):  # the first call, a short one, opens the connections; the second is measured
            call.ask(parts.path + way)
            await call.ended
        return call.first_s, call.last_s
    finally:
        call.transport.close()


async def client(at_once: int, urls: list[str]) -> None:
    """Half of the calls of a round go each way, mixed, so that other load on the machine affects both."""
    found = await asyncio.gather(*(one(urls[n % len(urls)], n * APART_S) for n in range(at_once * len(urls))))
    print(json.dumps([found[n :: len(urls)] for n in range(len(urls))]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        asyncio.run(upstream())
    else:
        asyncio.run(client(int(sys.argv[2]), sys.argv[3:]))
