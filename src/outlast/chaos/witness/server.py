"""The external witness, server half: stands for the outside world and counts what was done to it. See `Server`.

It shares no code with what it judges: stdlib only, started by file (no import of outlast), a log of its own."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

CLASSES = ("keyed", "probed", "blind")

MODES = {
    "lose_reply": "do it, close the connection without a reply",
    "drop": "do not do it, close the connection without a reply (to the caller the same as lose_reply)",
    "late": "do it and answer after late_ms, or at /release",
    "late_reply": "do it at once, answer after late_ms, or at /release",
    "error_after": "do it, answer 500",
    "error_before": "do not do it, answer 500 (to the caller the same as error_after)",
    "refuse": "do not do it, answer 403: a definite no",
}

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
REQUEST_LIMIT_S = 30.0
EXIT_LOG_FAILED = 74


class Performance(NamedTuple):
    """One thing that happened to the world."""

    n: int
    cls: str
    name: str
    identity: str
    key: str | None
    marker: str | None
    body: Any
    result: Any


# The log


def performances(log: Path) -> list[Performance]:
    """Everything performed so far, from the log alone: the server may run, be dead, or be writing a line."""
    whole, _ = _whole_lines(log)
    return [_performance(line) for line in whole if line["what"] == "performed"]


def _performance(line: dict[str, Any]) -> Performance:
    return Performance(*(line[field] for field in Performance._fields))


def _whole_lines(log: Path) -> tuple[list[dict[str, Any]], int]:
    """The log's complete lines and their size in bytes. Raises ValueError on damage before the last line."""
    if not log.exists():
        return [], 0
    raw = log.read_bytes()
    lines: list[dict[str, Any]] = []
    size = 0
    for text in raw.splitlines(keepends=True):
        try:
            line = json.loads(text) if text.endswith(b"\n") else None
        except ValueError:
            line = None
        if line is None:
            if size + len(text) == len(raw):
                break
            raise ValueError(f"witness log {log} is damaged at byte {size} of {len(raw)}")
        lines.append(line)
        size += len(text)
    return lines, size


class WitnessLog:
    """The acts done, in memory and in the log. The server's threads take turns through one lock.

    To perform an act is to append one JSON line and fdatasync it. A torn last line was not performed, and is cut off on
    reload. Three classes of service: `keyed` dedupes by `Idempotency-Key`, `probed` can be looked up by marker, `blind`
    neither. A `Witness-Id` header labels the logical effect, so that performances can be counted; nothing dedupes by it.
    """

    def __init__(self, log: Path) -> None:
        self._lock = threading.Lock()
        self._performed: list[Performance] = []
        self._by_key: dict[tuple[str, str], Performance] = {}
        self._deduped = 0
        self._reworded = 0
        self._fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lines, size = _whole_lines(log)
        for line in lines:
            self._take_in(line)
        os.ftruncate(self._fd, size)
        os.fsync(self._fd)
        _fsync_folder(log.parent)

    def _take_in(self, line: dict[str, Any]) -> None:
        if line["what"] == "deduped":
            self._deduped += 1
            self._reworded += line["reworded"]
            return
        done = _performance(line)
        self._performed.append(done)
        if done.cls == "keyed" and done.key is not None:
            self._by_key.setdefault((done.name, done.key), done)

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            whole = os.write(self._fd, text) == len(text)
            os.fdatasync(self._fd)
        except OSError:
            whole = False
        if not whole:
            os._exit(
                EXIT_LOG_FAILED
            )  # A witness that cannot write must stop; reloading cuts the torn line off.
        self._take_in(line)

    def perform(
        self, cls: str, name: str, *, identity: str, key: str | None, marker: str | None, body: Any
    ) -> Any:
        """Perform an act, or recognise it by its key; the result is durable in the log when this returns."""
        with self._lock:
            first = self._by_key.get((name, key)) if cls == "keyed" and key is not None else None
            if first is not None:
                reworded = first.body != body
                self._append(
                    {"what": "deduped", "n": first.n, "name": name, "key": key, "reworded": reworded}
                )
                return first.result
            n = len(self._performed) + 1
            result = {"url": f"https://world.example/{name}/{n}", "n": n}
            done = Performance(n, cls, name, identity, key, marker, body, result)
            self._append({"what": "performed", **done._asdict()})
            return result

    def find(self, marker: str) -> dict[str, Any]:
        with self._lock:
            for done in self._performed:
                if done.cls == "probed" and done.marker == marker:
                    return {"found": True, "result": done.result}
        return {"found": False}

    def counts(self, waiting: int) -> dict[str, Any]:
        times: dict[tuple[str, str, str], int] = {}
        with self._lock:
            for done in self._performed:
                label = (done.cls, done.name, done.identity)
                times[label] = times.get(label, 0) + 1
            return {
                "performed": len(self._performed),
                "duplicates": sum(n - 1 for n in times.values()),
                "deduped": self._deduped,
                "reworded": self._reworded,
                "waiting": waiting,
                "by_identity": [[*label, n] for label, n in times.items()],
            }


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# The server


class _Fault:
    """A coming fault: which requests it hits, and how many more of them (None: all)."""

    def __init__(self, mode: str, times: int | None, name: str | None, cls: str | None, late_ms: int | None):
        if mode not in MODES:
            raise ValueError(f"unknown fault mode {mode!r}, expected one of {', '.join(MODES)}")
        self.mode, self.times, self.name, self.cls, self.late_ms = mode, times, name, cls, late_ms

    def takes(self, cls: str, name: str) -> bool:
        fits = self.name in (None, name) and self.cls in (None, cls) and self.times != 0
        if fits and self.times is not None:
            self.times -= 1
        return fits


class _Gate:
    """Where late requests wait: for their time, or for /release."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._releases = 0
        self.waiting = 0

    def wait(self, late_ms: int | None) -> None:
        with self._changed:
            self.waiting += 1
            then = self._releases
            limit_s = None if late_ms is None else late_ms / 1000
            self._changed.wait_for(lambda: self._releases != then, limit_s)
            self.waiting -= 1

    def release(self) -> None:
        with self._changed:
            self._releases += 1
            self._changed.notify_all()


class _Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


_Reply = tuple[int, Any]


class _Act(NamedTuple):
    """One act that was asked for. Performing it twice is two performances, unless its key dedupes."""

    world: WitnessLog
    cls: str
    name: str
    identity: str
    key: str | None
    marker: str | None
    body: Any

    def perform(self) -> Any:
        return self.world.perform(
            self.cls, self.name, identity=self.identity, key=self.key, marker=self.marker, body=self.body
        )


class Server:
    """One thread per connection, one request per connection.

    POST /act/<cls>/<name>   {"body": …, "marker": …}       -> {"url": …, "n": …}
    GET  /find?marker=…                                     -> {"found": true, "result": …} | {"found": false}
    GET  /counts                                            -> `Counts` in client.py
    POST /faults             {"mode": …, "times": …, …}     -> {}; what the next acts meet, see `MODES`
    POST /release                                           -> {}; lets every `late` and `late_reply` continue
    """

    def __init__(self, log: Path, port: int) -> None:
        self._world = WitnessLog(log)
        self._gate = _Gate()
        self._faults: list[_Fault] = []
        self._faults_lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(REQUEST_LIMIT_S)
            try:
                request = _read_request(connection)
                reply = self._route(request) if request is not None else None
            except (ValueError, TypeError, KeyError) as error:
                reply = (400, {"error": f"{type(error).__name__}: {error}"})
            except OSError:
                return
            if reply is not None:
                _send_reply(connection, reply)

    def _route(self, request: _Request) -> _Reply | None:
        path, _, query = request.path.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match (request.method, *parts):
            case ("POST", "act", cls, name) if cls in CLASSES:
                return self._act(cls, name, request)
            case ("GET", "find"):
                return 200, self._world.find(parse_qs(query)["marker"][0])
            case ("GET", "counts"):
                return 200, self._world.counts(self._gate.waiting)
            case ("POST", "faults"):
                return self._set_fault(_document(request.body))
            case ("POST", "release"):
                self._gate.release()
                return 200, {}
            case _:
                return 404, {"error": f"no such place: {request.method} {request.path}"}

    def _set_fault(self, document: dict[str, Any]) -> _Reply:
        fault = _Fault(
            document["mode"],
            document.get("times", 1),
            document.get("match"),
            document.get("cls"),
            document.get("late_ms"),
        )
        with self._faults_lock:
            self._faults.append(fault)
        return 200, {}

    def _next_fault(self, cls: str, name: str) -> _Fault | None:
        with self._faults_lock:
            return next((fault for fault in self._faults if fault.takes(cls, name)), None)

    def _act(self, cls: str, name: str, request: _Request) -> _Reply | None:
        document = _document(request.body or b"{}")
        body, marker = document.get("body"), document.get("marker")
        identity = request.headers.get("witness-id") or marker or json.dumps(body, sort_keys=True)
        act = _Act(self._world, cls, name, identity, request.headers.get("idempotency-key"), marker, body)
        fault = self._next_fault(cls, name)
        return (200, act.perform()) if fault is None else self._act_badly(fault, act)

    def _act_badly(self, fault: _Fault, act: _Act) -> _Reply | None:
        match fault.mode:
            case "lose_reply":
                act.perform()
                return None
            case "drop":
                return None
            case "late":
                self._gate.wait(fault.late_ms)
                return 200, act.perform()
            case "late_reply":
                result = act.perform()
                self._gate.wait(fault.late_ms)
                return 200, result
            case "error_after":
                act.perform()
                return 500, {"error": "internal error"}
            case "error_before":
                return 500, {"error": "internal error"}
            case _:
                return 403, {"error": "refused"}


def _document(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body. Raises ValueError for any other body."""
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError(f"the body must be a JSON object, got {type(value).__name__}")
    return value


def _read_request(connection: socket.socket) -> _Request | None:
    """One request; None if the caller went away before it was complete."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65536)
        if not more or len(got) > HEAD_BYTES_MAX:
            return None
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)
    }
    length = int(headers.get("content-length", "0"))
    if length > BODY_BYTES_MAX:
        raise ValueError(f"body of {length} bytes, at most {BODY_BYTES_MAX}")
    while len(body) < length:
        more = connection.recv(65536)
        if not more:
            return None
        body += more
    return _Request(method, path, headers, body)


def _send_reply(connection: socket.socket, reply: _Reply) -> None:
    status, value = reply
    body = json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    try:
        connection.sendall(head.encode() + body)
    except OSError:
        pass  # The caller did not wait. What was done stays done.


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="witness_server", description="the external witness")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the starter ends")
    options = parser.parse_args(arguments)
    server = Server(options.log, options.port)
    if options.until_stdin_closes:
        threading.Thread(target=_exit_with_stdin, daemon=True).start()
    print(server.url, flush=True)
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
