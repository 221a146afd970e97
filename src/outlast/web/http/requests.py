"""A request as it comes over the wire: read with limits on size and time. What can be read in two ways is refused."""

import re
import socket
import time
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from outlast.gateway import heads
from outlast.web.timing import Timing

LINE_BYTES_MAX = 8 << 10
HEADERS_MAX = 100
HEAD_BYTES_MAX = 32 << 10
BODY_BYTES_MAX = 64 << 10
FIELDS_MAX = 64
SEGMENTS_MAX = 12
_READ_BYTES = 16 << 10

_LIMITS = heads.Limits(LINE_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX)
_METHOD = re.compile("[A-Z]{1,16}")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ONCE = {"host", "content-length", "content-type", "origin", "authorization", "transfer-encoding"}


class Malformed(Exception):
    """This is no request that can be answered as usual. It gets this status, and the connection ends."""

    def __init__(self, status: int, words: str, target: str = "") -> None:
        super().__init__(words)
        self.status, self.target = status, target


class Hung(Exception):
    """The other side is gone, or never began: nothing is answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `segments` are the decoded parts of the path; `fields` those of the query, in their order."""

    method: str
    target: str
    segments: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    headers: dict[str, str]
    body: bytes
    lasts: bool

    @property
    def path(self) -> str:
        """The path as the client wrote it, without the query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str:
        """A header by its lower-case name; empty if it is missing."""
        return self.headers.get(name, "")

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name. If a name occurs twice the first counts, because browsers send the more specific one first."""
        found: dict[str, str] = {}
        for pair in self.header("cookie").split(";"):
            name, mark, value = pair.strip().partition("=")
            if mark:
                found.setdefault(name, value)
        return found

    def cookies_named(self, name: str) -> list[str]:
        """All cookies with one name: others on this host may have set some, and theirs may come first."""
        pairs = (pair.strip().partition("=") for pair in self.header("cookie").split(";"))
        return [value for found, mark, value in pairs if mark and found == name]

    @property
    def wants_json(self) -> bool:
        """Whether it speaks to the API and not to a page."""
        return wants_json(self.target)


def wants_json(target: str) -> bool:
    """Whether an address, even one that cannot be read, is one of the API."""
    return target.startswith("/api/")


class Wire:
    """Reads requests from a connection one after the other; what came too early stays for the next."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._held = b""
        self._deadline_s = 0.0

    def next(self, idle_s: float, receive_s: float | None = None) -> Request:
        """The next request. Raises Malformed, or Hung at the end of the connection."""
        self._deadline_s = time.monotonic() + idle_s
        self._await_first_byte()
        self._deadline_s = time.monotonic() + (Timing.current().receive_s if receive_s is None else receive_s)
        head = self._head()
        method, target, headers = head.method.decode(), head.target.decode(), _headers(head.fields)
        if _METHOD.fullmatch(method) is None:
            raise Malformed(400, "a method is written in capital letters")
        _check_framing(method, headers)
        try:
            segments, fields = read_target(target)
        except Malformed as problem:
            raise Malformed(problem.status, str(problem), target) from problem
        return Request(
            method, target, segments, fields, headers, self._body(headers), _lasts(head.minor, headers)
        )

    def _await_first_byte(self) -> None:
        """Wait for a request to begin; empty lines before it are skipped."""
        try:
            while True:
                self._held = self._held[heads.skip_empty_lines(self._held) :]
                if self._held not in (b"", b"\r"):
                    return
                self._more(begun=False)
        except heads.BadHead as bad:
            raise Malformed(bad.status, str(bad)) from bad

    def _more(self, *, begun: bool) -> None:
        left_s = self._deadline_s - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            came = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            if begun:
                raise Malformed(408, "the request did not come in time") from None
            raise Hung from None
        except OSError:
            raise Hung from None
        if not came:
            raise Hung
        self._held += came

    def _head(self) -> heads.RequestHead:
        try:
            scanned = 0
            while (stop := heads.end_of_request_head(self._held, _LIMITS, scanned)) < 0:
                scanned = len(self._held)
                self._more(begun=True)
            block, self._held = self._held[:stop], self._held[stop + len(heads.END) :]
            return heads.request_head(block, _LIMITS)
        except heads.BadHead as bad:
            raise Malformed(bad.status, str(bad)) from bad

    def _body(self, headers: dict[str, str]) -> bytes:
        size = int(headers.get("content-length", "0"))
        if size > len(self._held) and headers.get("expect", "").lower() == "100-continue":
            try:
                self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            except OSError:
                raise Hung from None
        while len(self._held) < size:
            self._more(begun=True)
        body, self._held = self._held[:size], self._held[size:]
        return body


def _headers(fields: heads.Fields) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in fields.lines:
        name, value = line.name.decode(), line.value.decode("latin-1")
        if name in found and name in _ONCE:
            raise Malformed(400, f"{name} is there twice")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _check_framing(method: str, headers: dict[str, str]) -> None:
    """Where one request ends and the next begins must be beyond doubt."""
    if "transfer-encoding" in headers:
        if "content-length" in headers:
            raise Malformed(400, "Content-Length and Transfer-Encoding contradict each other")
        raise Malformed(411, "Content-Length is missing; no other transfer coding is accepted")
    length = headers.get("content-length")
    if length is None and method in ("POST", "PUT", "PATCH"):
        raise Malformed(411, "Content-Length is missing")
    if length is not None and re.fullmatch("[0-9]{1,12}", length) is None:
        raise Malformed(400, "Content-Length is not a number")
    if length is not None and int(length) > BODY_BYTES_MAX:
        raise Malformed(413, f"the body is larger than {BODY_BYTES_MAX:,} bytes")
    if "host" not in headers:
        raise Malformed(400, "the Host header is missing")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Malformed(417, "only 100-continue can be expected")


def _lasts(minor: int, headers: dict[str, str]) -> bool:
    words = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    return "close" not in words if minor == 1 else "keep-alive" in words


def read_target(target: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Path and query of an address, decoded once. Raises Malformed for what could be read in another way elsewhere."""
    path, _, query = target.partition("?")
    if not path.startswith("/") or "#" in target:
        raise Malformed(400, "an address begins with / and has no #")
    parts = path[1:].split("/") if path != "/" else []
    if len(parts) > SEGMENTS_MAX:
        raise Malformed(400, "the path has too many parts")
    segments = tuple(_decoded(part) for part in parts)
    if any(segment in ("", ".", "..") or re.search(r"[/\\]", segment) for segment in segments):
        raise Malformed(400, "this address has an empty part, dots or slashes in it")
    return segments, form(query)


def form(text: str) -> tuple[tuple[str, str], ...]:
    """The fields of a query or of a posted form. Raises Malformed."""
    pairs = [pair for pair in text.split("&") if pair]
    if len(pairs) > FIELDS_MAX:
        raise Malformed(400, f"there are more than {FIELDS_MAX} fields")
    found = []
    for pair in pairs:
        name, _, value = pair.replace("+", " ").partition("=")
        found.append((_decoded(name), _decoded(value, anything=True)))
    return tuple(found)


def _decoded(text: str, *, anything: bool = False) -> str:
    """Decode once. The reader of a field checks its content; a name or a part of a path has no controls in it."""
    if _PERCENT.search(text):
        raise Malformed(400, "a % is not followed by two hexadecimal digits")
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Malformed(400, "the address is not UTF-8") from None
    if not anything and _CONTROL.search(decoded):
        raise Malformed(400, "there is a control character in the address")
    return decoded
