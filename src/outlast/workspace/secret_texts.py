"""Finds the first key in a text: a token of a known format, a key beside the name of its service, a private key. Pure.

Not here: `password=…` and what only looks random. In 1,000 texts without a secret these find several."""

import re
from functools import cache
from itertools import pairwise

from outlast.core import secrets
from outlast.core.secrets.formats import SERVICES

LOOKED_AT_BYTES = (
    16 << 20
)  # more than the largest untracked file that a save takes unless a person says otherwise
TEXT_PROBE_BYTES = 8 << 10  # git looks as far for a NUL before it calls a file binary
HEAD_BYTES = 4 << 10
_AHEAD_BYTES = 4 << 10  # of a chunk: a token that begins here may go on in the next chunk
_BEFORE_BYTES = 128  # what is read again before a token: the name that gives it away

PRIVATE_KEY, SERVICE_KEY = "private key", "key of a service"

# Every token has this many characters without a blank, and among them a digit or a capital.
_RUN = b"a" * 20
_TOKEN_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+/=%|:@-"
_IN_RUNS = bytes(97 if byte in _TOKEN_CHARS else 32 for byte in range(256))
_DIGIT_OR_CAPITAL = re.compile(rb"[0-9A-Z]")

_GIVEN = re.compile(
    r"(?:=>|:=|[=:])\s{0,3}[\"'`]?(?P<secret>[A-Za-z0-9_+/.~-]{20,512}+={0,2})(?![A-Za-z0-9_(\[])"
)
_GIVEN_BEFORE = 6  # characters between a name and its value
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_NAME_MAX = 80
_KEY_SHAPES = re.compile(r"[A-Za-z0-9_=-]{20,80}|.{80,90}")
_DIGEST = re.compile(r"(?i)(?:md5|sha-?\d{1,3}|integrity|digest|checksum)[\"']?[-=:~_ ]{1,3}[\"']?\Z")
_DIGEST_CHARS = 16

_PEM_HEAD = re.compile(rb"-----? ?BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?")
# Alone on its line, and not before what stands for a body: dots, crosses, `<your key>`, nothing.
_PEM_LINE = re.compile(
    rb"(?m)^[ \t]*-----? ?BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?[ \t\r]*$(?!\s{1,8}(?:[.xX*<>\[{$#]|\xe2\x80\xa6|-----END))"
)
_PEM_BODY = re.compile(rb"[A-Za-z0-9+/]{40}")
_PEM_BODY_WITHIN = 400  # after the head; headers such as `Proc-Type:` may come first
_PUTTY_HEAD = re.compile(rb"PuTTY-User-Key-File-[0-9]: [a-z]")

# What people and models write where a key would be. In small letters.
_PLACEHOLDER = re.compile(
    r"example|sample|placeholder|redacted|change_?me|dummy|foobar|invalid"
    r"|(?:fake|test|mock|your)(?:(?![a-z0-9])|(?<![a-z0-9]....))"
)
_REPEATED = re.compile(r"(.)\1{5}")
_PLACEHOLDER_CHARS = 200
_IN_SEQUENCE = (
    0.6  # of the neighbours in `0123abcd`; a random key of 32 hex digits has this once in 100 million
)
_DISTINCT_MIN = 7  # characters in a random part
# Keys in the documentation of their makers, which are copied everywhere.
_DOCUMENTED = re.compile(
    "4eC39HqLyjWDarjtT1zdp7dc|BQokikJOvBiI2HlWgH4olfQ2"  # Stripe
    "|D-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"  # Google
    "|16C7e42F292c6912E7710c838347Ae178B4a"  # GitHub
    r"|\.eyJ(?:zdWIiOiIxMjM0NTY3ODkw|zb21lIjoicGF5bG9hZCJ9|mb28iOiJiYXIi|pc3MiOiJqb2UiLA0K)"  # JSON web tokens
)


class KeySearch:
    """Looks for a key in one file while somebody reads it, chunk by chunk. It remembers at most a few KiB."""

    def __init__(self) -> None:
        self._held = b""
        self._begin = 0  # where in `_held` it was not looked at yet
        self._left = LOOKED_AT_BYTES
        self._is_first = True

    def feed(self, chunk: bytes, *, last: bool) -> str:
        """Look at the next chunk; return the kind of the first key in it, or nothing."""
        if self._is_first and b"\0" in chunk[:TEXT_PROBE_BYTES]:
            self._left = 0
        if not self._left:
            return ""
        chunk = chunk[: self._left]
        self._left -= len(chunk)
        last = last or not self._left
        data = self._held + chunk if self._held else chunk
        end = len(data) if last else max(self._begin, len(data) - _AHEAD_BYTES)
        kind = _key_between(data, self._begin, end) or (_in_head(data) if self._is_first else "")
        again = max(0, end - _BEFORE_BYTES)
        self._held, self._begin, self._is_first = data[again:], end - again, False
        return kind


def key_in(data: bytes) -> str:
    """The kind of the first key in a whole text; empty if there is none, or if it is not text."""
    return KeySearch().feed(data, last=True)


def _key_between(data: bytes, begin: int, end: int) -> str:
    """The kind of the first key that starts between these places."""
    runs = data.translate(_IN_RUNS)
    start, text = runs.find(_RUN), ""
    while 0 <= start < end:
        stop = runs.find(b" ", start)
        stop = stop if stop >= 0 else len(runs)
        if _DIGIT_OR_CAPITAL.search(data, start, stop):
            text = text or data.decode("latin-1")
            kind = _token(text, start, stop, begin, end) or _service_key(text, start, stop, begin, end)
            if kind:
                return kind
        start = runs.find(_RUN, stop)
    return _private_key(data, begin, end)


def _token(text: str, start: int, stop: int, begin: int, end: int) -> str:
    """The kind of a token of a known format in a run of its characters."""
    pattern, formats = secrets.formats()
    for match in pattern.finditer(text, start, stop):
        if begin <= match.start() < end:
            group = match.lastgroup
            assert group is not None, "each format has a group at its end"
            secret = f"s{group}" if f"s{group}" in pattern.groupindex else 0
            form = formats[group]
            random = match[secret] if secret else match[0][len(form.start) :]
            if not _is_digest(text, match.start()) and _looks_real(random, match[0]):
                return form.name
    return ""


def _service_key(text: str, start: int, stop: int, begin: int, end: int) -> str:
    """A key that only the name of its service before it gives away."""
    for match in _GIVEN.finditer(text, max(0, start - _GIVEN_BEFORE), stop):
        value, at = match["secret"], match.start("secret")
        if begin <= at < end and _KEY_SHAPES.fullmatch(value) and _is_mixed(value):
            before = text[max(0, match.start() - _NAME_MAX) : match.start()].rstrip(" \t]\"'`")
            name = before[len(before.rstrip(_NAME_CHARS)) :]
            if _names_service(name) and _looks_real(value, value) and not _is_digest(text, at):
                return SERVICE_KEY
    return ""


def _names_service(name: str) -> bool:
    """Whether a name has a service in it as a word of its own, as in `datadog_key` and `datadogKey`."""
    found = _services().finditer(name.lower())
    return any(not name[match.end() : match.end() + 1].islower() for match in found)


@cache
def _services() -> re.Pattern[str]:
    """The names of services in small letters, by their first letter: tried one by one they take ten times as long."""
    by_letter: dict[str, list[str]] = {}
    for name in sorted(SERVICES, key=len, reverse=True):  # `sumologic` before `sumo`
        by_letter.setdefault(name[0], []).append(re.escape(name[1:]))
    words = [f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items()]
    return re.compile(f"(?<![a-z0-9])(?:{'|'.join(words)})")


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_digest(text: str, at: int) -> bool:
    """Whether a name before says that this is a digest: any letters may be in one."""
    return _DIGEST.search(text, max(0, at - _DIGEST_CHARS), at) is not None


def _looks_real(random: str, whole: str) -> bool:
    """Whether the random part of a key is no placeholder, and the key is not one of a maker's documentation."""
    part = random[:_PLACEHOLDER_CHARS]
    lower = part.lower()
    if len(set(part)) < _DISTINCT_MIN or _PLACEHOLDER.search(lower) or _REPEATED.search(lower):
        return False
    near = sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(part))
    return near < _IN_SEQUENCE * (len(part) - 1) and not _DOCUMENTED.search(whole)


def _private_key(data: bytes, begin: int, end: int) -> str:
    """A private key with its body; its head alone is in many a source."""
    at = data.find(b"PRIVATE KEY", begin)
    while 0 <= at < end:
        head = _PEM_HEAD.search(data, max(0, at - 80), at + 30)
        if head is not None and _has_body(data[head.end() : head.end() + _PEM_BODY_WITHIN]):
            return PRIVATE_KEY
        at = data.find(b"PRIVATE KEY", at + 1)
    return ""


def _has_body(after: bytes) -> bool:
    body = _PEM_BODY.search(after.partition(b"-----END")[0])
    return body is not None and _looks_real(body[0].decode(), "")


def _in_head(data: bytes) -> str:
    """A file that begins with the head of a private key is one, also where it is cut off."""
    is_pem = data.find(b"PRIVATE KEY", 0, HEAD_BYTES) >= 0 and _PEM_LINE.search(data[:HEAD_BYTES])
    return PRIVATE_KEY if is_pem or _PUTTY_HEAD.match(data) else ""
