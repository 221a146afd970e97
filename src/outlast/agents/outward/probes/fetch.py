"""One bounded HTTP GET for probes: bounded in time and bytes, never redirected to another host.
A token comes from the environment and only goes to the host that it is for; it is neither stored nor shown.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

if TYPE_CHECKING:
    import http.client

BYTES_MAX = 4 << 20
REDIRECTS_MAX = 3
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Unreachable(Exception):
    """No answer that can be used: the words say why, without what was sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of the far side."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the whole of a probe must have ended, by the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    def left_s(self) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise Unreachable("no answer in time")
        return left


def get(url: str, environment: Mapping[str, str], deadline: Deadline, headers: Mapping[str, str]) -> Reply:
    """The reply to a GET. Raises Unreachable, at the latest at the deadline."""
    origin = _split(url)
    for _ in range(REDIRECTS_MAX + 1):
        reply = _one(url, environment, deadline, headers)
        if reply.status not in (301, 302, 303, 307, 308):
            return reply
        url = urljoin(url, reply.headers.get("location", ""))
        target = _split(url)
        upgraded = (
            (origin.scheme, target.scheme) == ("http", "https")
            and origin.port is None
            and target.port is None
        )
        same = (target.scheme, target.port) == (origin.scheme, origin.port) or upgraded
        if target.hostname != origin.hostname or not same:
            raise Unreachable("redirected to another host")
    raise Unreachable("redirected too often")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError as error:
        raise Unreachable("not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unreachable("not an HTTP URL")
    return parts


def _one(url: str, environment: Mapping[str, str], deadline: Deadline, headers: Mapping[str, str]) -> Reply:
    """In a thread of its own: resolving a name, and a far side that sends a byte now and then, keep no timeout."""
    exchange = _Exchange(url, dict(headers), environment, deadline.left_s())
    thread = threading.Thread(target=exchange.run, name="outlast-probe", daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    if thread.is_alive():
        exchange.give_up()
        raise Unreachable("no answer in time")
    if exchange.reply is None:
        raise Unreachable(exchange.problem)
    return exchange.reply


class _Exchange:
    def __init__(
        self, url: str, headers: dict[str, str], environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self.parts = _split(url)
        self.headers, self.environment, self.timeout_s = headers, environment, timeout_s
        self.reply: Reply | None = None
        self.problem = "no answer"
        self.connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        import http.client  # with ssl behind it: most agents end without a probe

        try:
            self.reply = self._exchange()
        except (OSError, http.client.HTTPException, ValueError, Unreachable) as error:
            self.problem = (
                f"no answer: {type(error).__name__}" if not isinstance(error, Unreachable) else str(error)
            )
        finally:
            self.give_up()

    def give_up(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def _exchange(self) -> Reply:
        import http.client

        parts = self.parts
        assert parts.hostname, "asserted when it was split"
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if proxy := self._proxy():
            connection = make(proxy.hostname or "", proxy.port or 3128, timeout=self.timeout_s)
            if parts.scheme == "https":
                connection.set_tunnel(parts.hostname, parts.port or 443)
            else:
                path = f"http://{parts.netloc.rpartition('@')[2]}{path}"
        else:
            connection = make(parts.hostname, parts.port, timeout=self.timeout_s)
        self.connection = connection
        connection.request(
            "GET", path, headers={"User-Agent": "outlast", "Cache-Control": "no-cache", **self.headers}
        )
        response = connection.getresponse()
        body = response.read(BYTES_MAX + 1)
        if len(body) > BYTES_MAX:
            raise Unreachable(f"an answer of more than {BYTES_MAX} bytes")
        if (length := response.headers.get("Content-Length", "")).isdigit() and len(body) < int(length):
            raise Unreachable("an answer that was cut")
        return Reply(response.status, body, {name.lower(): value for name, value in response.getheaders()})

    def _proxy(self) -> SplitResult | None:
        name = f"{self.parts.scheme}_proxy"
        value = self.environment.get(name) or self.environment.get(name.upper()) or ""
        excluded = self.environment.get("no_proxy") or self.environment.get("NO_PROXY") or ""
        host = self.parts.hostname or ""
        ends = [end.strip().lstrip("*.").lower() for end in excluded.split(",")]
        direct = "*" in excluded.split(",") or any(end and f".{host}".endswith(f".{end}") for end in ends)
        if not value or host in _LOOPBACK or direct:
            return None
        return urlsplit(value if "://" in value else f"http://{value}")


def host_of(url: str) -> str:
    """Host and port as written in a URL, without user."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def may_carry_secrets(url: str) -> bool:
    """Whether a token may be sent there: encrypted, or to this machine."""
    parts = _split(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK
