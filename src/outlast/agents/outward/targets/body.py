"""The body of an HTTP call as a digest, which tells two calls to one address apart. Reads small files."""

import json
import os
import re
import stat
from collections.abc import Sequence
from urllib.parse import urlsplit

from outlast.agents.outward.shell.programs import Call
from outlast.agents.outward.targets.base import Matched, digest_of, is_known

FILE_MAX = 8 << 20
_WHOLE = ("upload-file", "body-file", "post-file", "input")  # the value is the name of a file
_LITERAL = ("data-raw", "form-string", "raw-field")
_STRIPPED = re.compile(rb"[\r\n\0]+")  # what curl takes out of a file that `--data` names


def content(matched: Matched, urls: Sequence[str], data: Sequence[tuple[str, str]]) -> str:
    """The digest of queries and body. Empty where a part of them is not known before the program runs."""
    queries = [_query(matched, url) for url in urls]
    parts = [_part(matched, name, value) for name, value in data]
    if any(query is None for query in queries) or any(part is None for part in parts):
        return ""
    known = [part for part in parts if part is not None]
    if all(name in _BODY for name, _ in data):
        separator = b"" if all(name == "json" for name, _ in data) else b"&"
        body = [_plain(separator.join(known))]
    else:  # fields of a form, in whatever order
        body = sorted(known)
    return digest_of(*sorted(query for query in queries if query is not None), *body)


_BODY = ("data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json", *_WHOLE)


def _query(matched: Matched, url: str) -> bytes | None:
    if not _is_given(matched.call, url):
        return None
    try:
        return urlsplit(url).query.encode("utf-8", "surrogatepass")
    except ValueError:
        return None


def _is_given(call: Call, value: str) -> bool:
    """Whether a value stands in the command as it will be, be it a word of its own or the rest of one."""
    alone = [word.known for word in call.words if word == value]
    return all(alone) if alone else is_known(call, value)


def _part(matched: Matched, name: str, value: str) -> bytes | None:
    """The content that one option sends; None if it is not known now."""
    if value and not _is_given(matched.call, value):
        return None
    text = value.encode("utf-8", "surrogatepass")
    if name in _LITERAL:
        return text
    if name in _WHOLE:
        return file_content(matched, value)
    if name == "data-urlencode":
        named, at, _ = value.partition("=")[0].partition("@")
        return _named_file(matched, named, value.partition("@")[2]) if at else text
    if name in ("form", "item", "field"):
        return _field(matched, value, text)
    if not value.startswith("@"):
        return text
    found = file_content(matched, value[1:])
    return _STRIPPED.sub(b"", found) if found is not None and name in ("data", "data-ascii") else found


def _named_file(matched: Matched, name: str, path: str) -> bytes | None:
    """`name@file`, as `--data-urlencode` has it."""
    found = file_content(matched, path)
    return None if found is None else f"{name}@".encode("utf-8", "surrogatepass") + found


_FILE_MARK = re.compile(r"[^=@:]*(?::=@|=@|=<|@)")


def _field(matched: Matched, value: str, text: bytes) -> bytes | None:
    """A field of a form, as curl, httpie and gh write it: `name=text`, `name=@file`, `name@file`."""
    mark = _FILE_MARK.match(value)
    if mark is None:
        return text
    found = file_content(matched, value[mark.end() :].partition(";")[0])
    return None if found is None else mark[0].encode("utf-8", "surrogatepass") + found


def file_content(matched: Matched, path: str) -> bytes | None:
    """The present content of a file, unless a command before the call may change it."""
    if path == "-" and matched.call.sent is not None:
        return matched.call.sent.encode("utf-8", "surrogatepass")
    if path in ("", "-", ".") or matched.call.moved or not matched.call.cwd:
        return None
    try:
        with open(os.path.join(matched.call.cwd, path), "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            found = file.read(FILE_MAX + 1)
    except (OSError, ValueError):
        return None
    return found if len(found) <= FILE_MAX else None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _plain(body: bytes) -> bytes:
    """JSON without the spaces and the order in which it was written."""
    if body[:1] not in (b"{", b"["):
        return body
    try:
        return json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return body
