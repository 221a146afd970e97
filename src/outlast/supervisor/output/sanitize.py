"""Making output harmless: lines with time and stream, control characters escaped and secrets masked.

Works on many lines at once, for output may come at hundreds of megabytes a second."""

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from outlast.core import secrets

Stream = Literal["out", "err"]
LINE_BYTES = 64 << 10
NOTHING: Mapping[str, str] = MappingProxyType({})
_TOKEN_BYTES = 8 << 10
_KEY_CHARS = 64 << 10
_CUTS_TRIED = 8

_STEERING = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]+"
)
# After an escape a secret begins afresh: without this mark, the m of a colour or the n of a \n would hide its beginning.
_MARK = "\0"
_COLOUR = re.compile(r"\\x1b\0\[[0-9;:?]*[A-Za-z]")
_THEIRS = re.compile(r"\\(?:[nrtbf]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})(?!\0)")
_RUN_CHARS = 64
_LEADING = re.compile(rb"(?i)(?:authorization|bearer|basic|token)[\s\"':=]*\Z")
_BEGIN_KEY = "-----BEGIN PRIVATE KEY-----"
_KEY_BODY = re.compile(
    r"(?:[ \t]*(?:[A-Za-z0-9+/=]{0,256}|(?:Proc-Type|DEK-Info): [^\n]{0,200})[ \t]*(?:\\r\0?)?\n)*"
)


class _Escapes(dict[str, str]):
    """How each character that steers is written. Filled as they come."""

    def __missing__(self, char: str) -> str:
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
            escape = f"\\x{code - 0xDC00:02x}"
        else:
            escape = char.encode("unicode_escape", "surrogatepass").decode()
        self[char] = escape + _MARK
        return self[char]


_escapes = _Escapes()


def _escaped(found: re.Match[str]) -> str:
    run = found[0]
    if len(run) <= _RUN_CHARS:
        return "".join([_escapes[char] for char in run])
    return "".join([_escapes[char] for char in run[:_RUN_CHARS]]) + f"[and {len(run) - _RUN_CHARS:,} more]"


def _harmless(data: bytes) -> str:
    """Text in which nothing steers a terminal: control characters and invalid UTF-8 as escapes, each with a mark."""
    text = _STEERING.sub(_escaped, data.decode("utf-8", "surrogateescape"))
    if "\\" in text:
        text = _THEIRS.sub(rf"\g<0>{_MARK}", text)
    if "\\x1b" in text:
        text = _COLOUR.sub(rf"\g<0>{_MARK}", text)
    return text


def hidden(text: str, known: Mapping[str, str]) -> str:
    """The text without these secrets, each a value with its name; the longest first, for one may be in another."""
    for value in sorted(known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, secrets.MARK.format(known[value]))
    return text


def stamp(at: datetime) -> str:
    """A time as the person's own clock shows it, to a tenth of a second."""
    local = at.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 100_000}"


class Cleaner:
    """One stream as harmless lines. A line is held back until it ends, or grows too long, so that secrets are whole."""

    def __init__(self, stream: Stream, known: Mapping[str, str] = NOTHING) -> None:
        self._stream, self._known = stream, known
        self._held = b""
        self._continues = False
        self._in_key = False
        self.since: datetime | None = None  # when what is held back came

    def take(self, data: bytes, at: datetime) -> str:
        """The lines that are whole now, as the log has them."""
        data = self._held + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > LINE_BYTES:
            end = _cut(data)
        since = self.since if end == 0 else None
        self._hold(data[end:], since or at)
        return self._lines(data[:end], at)

    def flush(self, at: datetime, *, all_of_it: bool) -> str:
        """The text held back so far; else only its whole words, for the last one may go on and be a secret."""
        data = self._held
        end = len(data) if all_of_it else _last_space(data)
        self._hold(data[end:], at)
        if all_of_it:
            self._in_key = False
        return self._lines(data[:end], at)

    def _hold(self, data: bytes, at: datetime) -> None:
        self._held = data
        self.since = at if data else None

    def _lines(self, data: bytes, at: datetime) -> str:
        if not data:
            return ""
        text = self._masked(_harmless(data))
        ended = text.endswith("\n")
        if self._continues and text.startswith("\n"):
            text = text[1:]  # the end of a line that was shown in pieces
        first = f"{stamp(at)} {self._stream}{'+' if self._continues else '|'} "
        body = text.removesuffix("\n")
        was_continued, self._continues = self._continues, not ended
        if was_continued and not text:
            return ""
        return f"{first}{body}\n".replace("\n", f"\n{stamp(at)} {self._stream}| ", body.count("\n"))

    def _masked(self, text: str) -> str:
        if self._in_key:
            text = self._go_on_in_key(text)
        if "PRIVATE KEY-----" in text:
            self._in_key = text.rfind("-----BEGIN ") > text.rfind("-----END ")
        return hidden(secrets.mask(text)[0].replace(_MARK, ""), self._known)

    def _go_on_in_key(self, text: str) -> str:
        """The rest of a key whose beginning was in earlier lines: up to its end, or as far as it looks like one."""
        if text.find("-----END ", 0, _KEY_CHARS) >= 0:
            return _BEGIN_KEY + text
        found = _KEY_BODY.match(text)
        end = found.end() if found else 0
        self._in_key = end == len(text)
        return (secrets.MARK.format("private key") + "\n" if end else "") + text[end:]


def _cut(data: bytes) -> int:
    """Where a line that is too long is cut: after its last space, for a secret has none in it; never in a character."""
    space = _last_space(data[-_TOKEN_BYTES:])
    if space:
        return max(0, len(data) - _TOKEN_BYTES) + space
    end = len(data)
    while end > len(data) - 4 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if data[end - 1] >= 0xC0 else len(data)


def _last_space(data: bytes) -> int:
    """Where a cut hides no secret: after a space, but for one that the secret comes after, as in `Bearer …`."""
    end = len(data)
    for _ in range(_CUTS_TRIED):
        end = max(data.rfind(b" ", 0, end), data.rfind(b"\t", 0, end), data.rfind(b"\n", 0, end))
        if end < 0 or not _LEADING.search(data, max(0, end - 40), end):
            return end + 1
    return 0
