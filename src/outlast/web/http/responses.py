"""Answers: what is sent back, and the errors that become one. Headers that every answer has are put on here."""

import gzip
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from outlast.errors import (
    AmbiguousRun,
    OutlastError,
    RunRefused,
    SaveError,
    StoreError,
    UnknownRun,
    UsageError,
)

if TYPE_CHECKING:
    from outlast.web.http.server import Connection

HTML = "text/html; charset=utf-8"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
GZIP_MIN_BYTES = 1024
GZIP_LEVEL = 3

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SAFETY = (
    ("Content-Security-Policy", CSP),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
)
REASONS = {
    200: "OK", 303: "See Other", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 411: "Length Required",
    413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 417: "Expectation Failed",
    421: "Misdirected Request", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
}  # fmt: skip

Headers = tuple[tuple[str, str], ...]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The content of every refusal: the error, and what to do next."""

    error: str
    hint: str


class Refused(Exception):
    """The request is answered with this status, one line and a hint."""

    def __init__(self, status: int, words: str, hint: str = "", *, headers: Headers = ()) -> None:
        super().__init__(words)
        self.status, self.hint, self.headers = status, hint, headers


class Answer:
    """A whole answer, or with `stream` one that goes on for as long as both sides like."""

    def __init__(
        self, body: bytes = b"", kind: str = HTML, status: int = 200, *, headers: Headers = (),
        keep: bool = False, stream: "Callable[[Connection, bytes], None] | None" = None,
    ) -> None:  # fmt: skip
        self.body, self.kind, self.status = body, kind, status
        self.headers, self.keep, self.stream = headers, keep, stream
        self._packed: bytes | None = None

    def packed(self) -> bytes:
        """The body as gzip has it. Made once, however many ask for it."""
        if self._packed is None:
            self._packed = gzip.compress(self.body, GZIP_LEVEL, mtime=0)
        return self._packed

    def parts(
        self, *, accepts: str = "", head_only: bool = False, lasts: bool = False
    ) -> tuple[bytes, bytes]:
        """Head and body as they go over the wire."""
        body, headers = self.body, [("Content-Type", self.kind), *self.headers, *SAFETY]
        if len(body) >= GZIP_MIN_BYTES:
            headers.append(("Vary", "Accept-Encoding"))
            if _takes_gzip(accepts):
                body = self.packed()
                headers.append(("Content-Encoding", "gzip"))
        headers.append(("Cache-Control", "public, max-age=31536000, immutable" if self.keep else "no-store"))
        if self.stream is None:
            headers.append(("Content-Length", str(len(body))))
        headers.append(("Connection", "keep-alive" if lasts else "close"))
        lines = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Status')}"]
        lines += [f"{name}: {_one_line(value)}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace"), b"" if head_only else body


def _one_line(value: str) -> str:
    """Nothing in a value begins another header."""
    return "".join(char if char.isprintable() else "?" for char in value)


def _takes_gzip(accepts: str) -> bool:
    for offer in accepts.lower().split(","):
        coding, _, quality = offer.strip().partition(";")
        if coding.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def page(text: str, status: int = 200, headers: Headers = ()) -> Answer:
    """A page."""
    return Answer(text.encode("utf-8", "backslashreplace"), HTML, status, headers=headers)


def document(value: object, status: int = 200, headers: Headers = ()) -> Answer:
    """A document as JSON."""
    return Answer(msgspec.json.encode(value), JSON, status, headers=headers)


def line(text: str, status: int = 200, headers: Headers = ()) -> Answer:
    """A line of plain text."""
    return Answer(f"{text}\n".encode("utf-8", "backslashreplace"), TEXT, status, headers=headers)


def see(place: str, headers: Headers = ()) -> Answer:
    """Look there instead, with GET."""
    return Answer(status=303, kind=TEXT, headers=(("Location", place), *headers))


def refused(error: OutlastError) -> Refused:
    """How an error of ours is answered."""
    match error:
        case UnknownRun() | AmbiguousRun():
            status = 404
        case UsageError():
            status = 400
        case RunRefused():
            status = 409
        case StoreError() | SaveError():
            status = 503
        case _:
            status = 409
    return Refused(status, str(error), error.hint)
