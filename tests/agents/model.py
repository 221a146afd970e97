"""A scripted model on loopback that real agent CLIs talk to: `Model` in this process, or `python -m tests.agents.model`.

It speaks the wire formats of `protocols`, says what a `Script` says, and logs each request before it answers it: one
JSON line, synced, so that tests can count paid calls and read what a resumed model saw. Any bytes may come in.

    POST /control/release    lets everything that hangs or waits go on
    GET  /control/state      {"requests": …, "hanging": …}
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents import script as scripts
from tests.agents.protocols import (
    ERRORS,
    Answered,
    Event,
    ModelAnswer,
    Wire,
    headers_of,
    spoken,
    translate,
    wire_for,
)
from tests.agents.script import Chosen, Fault, History, Script

BODY_BYTES_MAX = 64 * 1024 * 1024
CONNECTIONS_MAX = 128
READ_LIMIT_S = 120.0
WAIT_LIMIT_S = 600.0  # also a hang that nobody ends has an end
GEMINI_ASIDE = {
    "reasoning": "scripted",
    "model_choice": "flash",
    "complexity_reasoning": "scripted",
    "complexity_score": 1,
}


@dataclass(frozen=True, slots=True)
class Request:
    """One logged request. `step` is -1 for an aside (a title, a token count is not logged as a step at all)."""

    n: int
    path: str
    wire: str
    lane: int
    step: int
    play: int
    fault: str | None
    body: dict[str, Any]
    ended: str | None  # sent, refused, cut, gone (the client closed first); None: still under way

    @property
    def history(self) -> History:
        """What the model saw."""
        wire = wire_for(self.path)
        assert wire is not None, "only requests with a protocol are logged as such"
        return wire.read(self.body)


def requests(log: Path) -> list[Request]:
    """All requests for a response, by the log alone; a torn last line is not one yet."""
    found: dict[int, dict[str, Any]] = {}
    for line in _lines(log):
        if "wire" in line:
            found[line["n"]] = line | {"ended": None}
        elif "ended" in line and line["n"] in found:
            found[line["n"]]["ended"] = line["ended"]
    fields = Request.__slots__
    return [Request(**{name: line[name] for name in fields}) for line in found.values()]


def paid(log: Path) -> list[Request]:
    """Requests for a step of the script whose response began: what a real provider would have charged for."""
    return [request for request in requests(log) if request.step >= 0 and request.ended != "refused"]


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    if not log.exists():
        return
    for text in log.read_bytes().split(b"\n")[:-1]:
        value = json.loads(text)
        assert isinstance(value, dict), "the log holds objects"
        yield value


class _Log:
    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, len(whole) + bool(whole))
        os.lseek(self._fd, 0, os.SEEK_END)

    def write(self, line: dict[str, Any], *, sync: bool) -> None:
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._fd >= 0:
                os.write(self._fd, text)
                if sync:
                    os.fdatasync(self._fd)

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class _Gate:
    """Where hanging responses wait for `release`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._releases = 0
        self._closed = False
        self.waiting = 0

    def wait(self, limit_s: float) -> None:
        with self._changed:
            then = self._releases
            self.waiting += 1
            self._changed.wait_for(lambda: self._closed or self._releases != then, limit_s)
            self.waiting -= 1

    def release(self, *, close: bool = False) -> None:
        with self._changed:
            self._closed = self._closed or close
            self._releases += 1
            self._changed.notify_all()


class Model:
    """The server. It takes requests when the constructor returns; its threads end with `close`.

    `listen` makes the listening socket: in another network namespace, say.
    """

    def __init__(
        self,
        script: Script,
        log: Path,
        *,
        port: int = 0,
        listen: Callable[[int], socket.socket] | None = None,
    ) -> None:
        self.script = script
        self.log = log
        self._plays: Counter[tuple[int, int]] = Counter()
        self._requests = 0
        for line in _lines(log):
            self._requests = max(self._requests, line.get("n", 0))
            if "wire" in line:
                self._plays[line["lane"], line["step"]] += 1
        self._log = _Log(log)
        self._lock = threading.Lock()
        self._gate = _Gate()
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._listener = (listen or _listen)(port)
        self._thread = threading.Thread(target=self._serve, name="scripted model", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def hanging(self) -> int:
        """Responses that wait for `release` now."""
        return self._gate.waiting

    def requests(self) -> list[Request]:
        return requests(self.log)

    def paid(self) -> list[Request]:
        return paid(self.log)

    def release(self) -> None:
        """Let everything that hangs go on."""
        self._gate.release()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        self._gate.release(close=True)
        _shut(self._listener)
        for connection in connections:
            _shut(connection)
        self._thread.join()
        for _ in range(CONNECTIONS_MAX):
            self._places.acquire()  # every connection's thread has given its place back
        self._listener.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- connections -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            self._places.acquire()
            try:
                connection, address = self._listener.accept()
            except OSError:
                self._places.release()
                return
            with self._lock:
                self._connections.add(connection)
                closed = self._closed
            if closed:
                _shut(connection)
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: Any) -> None:
        try:
            with connection:
                connection.settimeout(READ_LIMIT_S)
                _Handler(connection, address, self)
        except (OSError, ValueError):
            pass  # the client's end of it is gone, or was never HTTP
        finally:
            with self._lock:
                self._connections.discard(connection)
            self._places.release()

    # -- what the handler asks ---------------------------------------------------------------------------------

    def state(self) -> dict[str, int]:
        return {"requests": self._requests, "hanging": self.hanging}

    def note(self, line: dict[str, Any]) -> int:
        """Log a line with a number of its own."""
        with self._lock:
            self._requests += 1
            number = self._requests
        self._log.write({"n": number, "at": time.time(), **line}, sync=True)
        return number

    def ended(self, number: int, how: str) -> None:
        """Log how a request ends, just before its last bytes go out: who has them all finds the line."""
        self._log.write({"n": number, "at": time.time(), "ended": how}, sync=False)

    def choose(self, history: History) -> tuple[Chosen, int]:
        """The step, and how often it was played before. It counts as played from now on."""
        with self._lock:
            chosen = self.script.choose(history, lambda lane, number: self._plays[lane, number])
            play = self._plays[chosen.lane, chosen.number]
            self._plays[chosen.lane, chosen.number] += 1
        return chosen, play

    def wait(self, limit_s: float) -> None:
        self._gate.wait(min(limit_s, WAIT_LIMIT_S))


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=CONNECTIONS_MAX)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was gone before


class _Refuse(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, address: Any, model: Model) -> None:
        self.model = model
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        pass

    def do_HEAD(self) -> None:
        self._head(200, {"content-length": "0"})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/control/state":
            self._json(200, self.model.state())
        elif "/models" in path:
            listed = {
                "id": "fake-model",
                "object": "model",
                "type": "model",
                "created": 0,
                "owned_by": "fake",
            }
            listed |= {
                "display_name": "fake",
                "created_at": "2026-01-01T00:00:00Z",
                "context_length": 200_000,
            }
            self._json(200, {"object": "list", "data": [listed], "models": [], "has_more": False})
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": "not scripted"}})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            raw = self._body()
            if path == "/control/release":
                self.model.release()
                self._json(200, {})
            elif path.endswith(("/count_tokens", ":countTokens")):
                tokens = len(raw) // 4
                self._json(200, {"input_tokens": tokens, "totalTokens": tokens})
            elif (wire := wire_for(path)) is not None:
                self._respond(wire, path, raw)
            else:
                self.model.note({"other": path[:200]})
                self._json(404, {"error": {"type": "not_found_error", "message": "not scripted"}})
        except _Refuse as refused:
            self.close_connection = True
            self._json(refused.status, {"error": {"type": "invalid_request_error", "message": str(refused)}})

    # -- requests ----------------------------------------------------------------------------------------------

    def _body(self) -> bytes:
        raw = self._chunked() if self.headers.get("transfer-encoding") else self._counted()
        encoding = (self.headers.get("content-encoding") or "identity").lower()
        if encoding == "identity":
            return raw
        if encoding != "gzip":
            raise _Refuse(415, f"content encoding {encoding}")
        try:
            return gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise _Refuse(400, "not gzip") from error

    def _counted(self) -> bytes:
        told = self.headers.get("content-length") or "0"
        if not told.isdecimal() or int(told) > BODY_BYTES_MAX:
            raise _Refuse(413, f"content-length {told[:40]}")
        return self.rfile.read(int(told))

    def _chunked(self) -> bytes:
        got = b""
        while True:
            told = self.rfile.readline(64).split(b";")[0].strip()
            try:
                size = int(told, 16)
            except ValueError as error:
                raise _Refuse(400, "not a chunk") from error
            if size < 0 or len(got) + size > BODY_BYTES_MAX:
                raise _Refuse(413, "too large")
            got += self.rfile.read(size)
            self.rfile.readline(64)
            if size == 0:
                return got

    def _respond(self, wire: Wire, path: str, raw: bytes) -> None:
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ValueError("not an object")
            history = wire.read(body)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise _Refuse(400, f"not a request: {type(error).__name__}") from error
        chosen, play = self.model.choose(history)
        fault = chosen.step.fault
        if fault is not None and fault.times is not None and play >= fault.times:
            fault = None
        kept = {name: value for name, value in body.items() if name != "tools"}
        number = self.model.note(
            {
                "path": path,
                "wire": wire.name,
                "lane": chosen.lane,
                "step": chosen.number,
                "play": play,
                "fault": None if fault is None else repr(fault),
                "tools": sorted(history.tools),
                "agent": self.headers.get("user-agent", "")[:200],
                "body": kept,
            }
        )
        answer = self._answer(chosen, play, history, body, len(raw))
        streamed = bool(body.get("stream")) or path.endswith(":streamGenerateContent")
        try:
            self._play(wire, answer, fault, lambda how: self.model.ended(number, how), streamed=streamed)
        except OSError:
            self.close_connection = True
            self.model.ended(number, "gone")

    def _answer(
        self, chosen: Chosen, play: int, history: History, body: dict[str, Any], size: int
    ) -> ModelAnswer:
        step, text = chosen.step, chosen.step.text
        response = scripts.response_id(self.model.script.digest, chosen.lane, max(chosen.number, 0), play)
        if chosen.number < 0:
            response = f"aside{response}"
            wanted = (body.get("generationConfig") or {}).get("responseMimeType")
            text = json.dumps(GEMINI_ASIDE) if wanted == "application/json" else text
        calls = []
        for index, call in enumerate(step.calls if history.tools else ()):
            name, given = translate(call, history.tools)
            calls.append(Answered(f"{response}c{index}", name, given))
        if not history.tools:
            text = "\n\n".join(filter(None, (text, *map(spoken, step.calls))))
        tokens = size // 4 if step.usage.input is None else step.usage.input
        model = str(body.get("model", "fake-model"))
        return ModelAnswer(response, model, text, tuple(calls), step.usage, tokens)

    # -- answers -----------------------------------------------------------------------------------------------

    def _play(
        self,
        wire: Wire,
        answer: ModelAnswer,
        fault: Fault | None,
        ended: Callable[[str], None],
        *,
        streamed: bool,
    ) -> None:
        fault = fault or Fault()
        if fault.delay_s is not None:
            self.model.wait(fault.delay_s)
        if fault.error is not None:
            status, message = ERRORS[fault.error]
            if wire.name == "gemini" and status == 529:
                status = 503
            refusal = wire.refusal(status, fault.error, fault.message or message, fault)
            ended("refused")
            self._json(status, refusal, headers_of(fault, wire.name))
        elif streamed:
            self._stream(wire.events(answer), fault, ended)
        else:
            if fault.hang_after is not None:
                self.model.wait(WAIT_LIMIT_S)
            ended("sent" if fault.cut_after is None else "cut")
            self.close_connection = fault.cut_after is not None
            if fault.cut_after is None:
                self._json(200, wire.whole(answer))

    def _stream(self, events: list[Event], fault: Fault, ended: Callable[[str], None]) -> None:
        headers = {"content-type": "text/event-stream", "cache-control": "no-cache", "connection": "close"}
        self._head(200, headers)
        self.close_connection = True
        for sent, event in enumerate(events):
            if fault.hang_after == sent:
                self.model.wait(WAIT_LIMIT_S)
            if fault.cut_after == sent:
                ended("cut")
                return
            if sent == len(events) - 1:
                ended("sent")
            self._event(*event)

    def _event(self, name: str | None, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        named = f"event: {name}\n" if name else ""
        self.wfile.write(f"{named}data: {text}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        given = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        self._head(status, given)
        self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.agents.model", description="a scripted model on loopback")
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    options = parser.parse_args(arguments)
    with Model(scripts.load(options.script), options.log, port=options.port) as model:
        print(model.url, flush=True)
        while os.read(0, 4096):  # it ends when its starter does
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
