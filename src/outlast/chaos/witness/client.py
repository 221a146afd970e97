"""The external witness, client half: tell the world to do something, ask it what was done, make it fail.

`Client` needs only the url and works in any process; `Witness` also owns the server's process (`server.py`)."""

from __future__ import annotations

import json
import select
import socket
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

from outlast.chaos.witness import server
from outlast.chaos.witness.server import REQUEST_LIMIT_S, Performance, performances

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "Client",
    "Counts",
    "Performance",
    "Refused",
    "ServerError",
    "Unanswered",
    "Witness",
    "WitnessError",
    "performances",
]


class Counts(NamedTuple):
    """The counts of the world. `duplicates` counts performances beyond the first of each identity."""

    performed: int
    duplicates: int
    deduped: int
    reworded: int  # the deduped ones that had another body than the first
    waiting: int  # late ones that still wait
    by_identity: dict[tuple[str, str, str], int]  # (cls, name, identity)

    def repeated(self) -> dict[tuple[str, str, str], int]:
        return {identity: times for identity, times in self.by_identity.items() if times > 1}


class WitnessError(Exception):
    """The witness gave no usable answer."""


class Unanswered(WitnessError):
    """No reply: lost, late or never received. The act may or may not have been done."""


class ServerError(WitnessError):
    """The witness answered 500. The act may or may not have been done."""


class Refused(WitnessError):
    """The witness answered 4xx: the act was certainly not done."""


class Client:
    """The world, for anybody who knows its url.

    Calls `on_sent` when a request is out and its reply is not read yet: an instant worth dying at.
    """

    def __init__(self, url: str, *, on_sent: Callable[[], None] | None = None) -> None:
        self.url = url
        self._on_sent = on_sent

    def act(
        self,
        cls: str,
        name: str,
        body: Any,
        key: str | None = None,
        *,
        marker: str | None = None,
        identity: str | None = None,
        timeout_s: float = REQUEST_LIMIT_S,
    ) -> dict[str, Any]:
        """Do something to the world. Raises Refused (not done), Unanswered or ServerError (unknown)."""
        headers = {"Idempotency-Key": key, "Witness-Id": identity}
        document = {"body": body, "marker": marker}
        path = f"/act/{cls}/{quote(name, safe='')}"
        result: dict[str, Any] = self._call(
            "POST", path, document, headers=headers, timeout_s=timeout_s, on_sent=self._on_sent
        )
        return result

    def find(self, marker: str, *, timeout_s: float = REQUEST_LIMIT_S) -> dict[str, Any] | None:
        """The result of the probed act with that marker, or None if there is none so far."""
        answer = self._call("GET", f"/find?marker={quote(marker, safe='')}", timeout_s=timeout_s)
        return answer["result"] if answer["found"] else None

    def counts(self) -> Counts:
        answer = self._call("GET", "/counts")
        by_identity = {(cls, name, identity): n for cls, name, identity, n in answer.pop("by_identity")}
        return Counts(by_identity=by_identity, **answer)

    def fault(
        self,
        mode: str,
        *,
        times: int | None = 1,
        match: str | None = None,
        cls: str | None = None,
        late_ms: int | None = None,
    ) -> None:
        """Let the next `times` acts (None: all from now on) of that name and class go wrong. See MODES.

        `late_ms=None` holds the late ones until `release`, so that no test has to guess a time.
        """
        document = {"mode": mode, "times": times, "match": match, "cls": cls, "late_ms": late_ms}
        self._call("POST", "/faults", document)

    def release(self) -> None:
        """Let every late one continue."""
        self._call("POST", "/release", {})

    def _call(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        headers: dict[str, str | None] | None = None,
        timeout_s: float = REQUEST_LIMIT_S,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: witness", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {text}" for name, text in (headers or {}).items() if text is not None]
        request = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        try:
            status, answer = _exchange(self.url, request, timeout_s, on_sent)
        except OSError as error:
            raise Unanswered(f"{method} {path}: {type(error).__name__}: {error}") from error
        if status >= 500:
            raise ServerError(f"{method} {path}: {status}")
        if status >= 400:
            raise Refused(f"{method} {path}: {status} {answer.decode(errors='replace')}")
        return json.loads(answer)


def _exchange(
    url: str, request: bytes, timeout_s: float, on_sent: Callable[[], None] | None
) -> tuple[int, bytes]:
    host, _, port = url.removeprefix("http://").partition(":")
    got = b""
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(request)
        if on_sent is not None:
            on_sent()
        while more := connection.recv(65536):
            got += more
    head, _, body = got.partition(b"\r\n\r\n")
    if f"content-length: {len(body)}\r\n".encode() not in head.lower():
        raise ConnectionResetError("closed without a whole reply")
    return int(head.split(b" ", 2)[1]), body


class Witness(Client):
    """A running witness and its process, which ends with this one: it watches its standard input.

    `kill` and `restart` are for tests in which the witness dies too: same log, same url, nothing forgotten.
    """

    def __init__(self, log: Path, process: subprocess.Popen[str], url: str) -> None:
        super().__init__(url)
        self.log = log
        self._process = process

    @classmethod
    def start(cls, log: Path, *, port: int = 0) -> Self:
        """Start a witness on that log; it accepts requests when this returns. Port 0 is any free one."""
        process, url = _spawn(log, port)
        return cls(log, process, url)

    @property
    def pid(self) -> int:
        return self._process.pid

    def performances(self) -> list[Performance]:
        return performances(self.log)

    def kill(self) -> None:
        """SIGKILL, reaped when this returns."""
        _end(self._process)

    def restart(self) -> None:
        """Kill it if it lives, and start it again on the same log and url; its faults are forgotten."""
        self.kill()
        self._process, self.url = _spawn(self.log, int(self.url.rpartition(":")[2]))

    def stop(self) -> None:
        """Kill it. Nothing is buffered: what was answered is in the log."""
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _spawn(log: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    import subprocess  # here, because agents under test import this module and only the test spawns

    from outlast.chaos.timing import Timing

    command = [sys.executable, "-I", "-S", str(Path(server.__file__).resolve())]
    command += ["--log", str(log), "--port", str(port), "--until-stdin-closes"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "stdout is a pipe"
    url = _first_line(process.stdout, Timing.current().witness_start_s)
    if not url.startswith("http://"):
        _end(process)
        raise WitnessError(f"the witness on {log} did not start, exit code {process.returncode}")
    return process, url


def _first_line(stream: IO[str], limit_s: float) -> str:
    ready, _, _ = select.select([stream], [], [], limit_s)
    return stream.readline().strip() if ready else ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
