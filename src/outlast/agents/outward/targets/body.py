"""What an HTTP client would send, part by part: two calls to one address are told apart by it. Reads small files."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from outlast.agents.outward import content as contents
from outlast.agents.outward.shell.programs import Call
from outlast.agents.outward.targets import arguments
from outlast.agents.outward.targets.base import Matched, is_known

_WHOLE = ("upload-file", "body-file", "post-file", "input")  # the value is the name of a file
_LITERAL = ("data-raw", "form-string", "raw-field")
_STRIPPED = re.compile(rb"[\r\n\0]+")  # what curl takes out of a file that `--data` names


@dataclass(slots=True)
class Sent:
    """What the words of an HTTP client say of what it sends besides its address.

    In its content, `body` is queries and body, `head` the headers and options that say what is asked, `aside` credentials,
    ids and dates of the one try, and the way that it takes: with others it may be the same call, made once more.
    """

    urls: list[str] = field(default_factory=list)
    data: list[tuple[str, str]] = field(default_factory=list)  # (option, value)
    queries: list[tuple[str, str]] = field(default_factory=list)  # besides those that stand in the URLs
    headers: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)  # more that says what is asked
    aside: list[str] = field(default_factory=list)  # who asks, and by which way
    asides: list[str] = field(default_factory=list)  # the same, in files
    one_of_many: bool = False  # of its requests only the last one's exit code is told: nobody knows which of them were accepted


def content(matched: Matched, sent: Sent) -> str:
    """The digests of all that the call sends. A part is unknown if any of it is known only once the program runs."""
    strong, weak = list(map(_option, sent.options)), list(map(_option, sent.aside))
    files: list[bytes | None] = [file_content(matched, path) for path in sent.asides]
    for header in sent.headers:
        if header.startswith("@"):
            strong.append((header, header))
            files.append(file_content(matched, header[1:]))
            continue
        name = header.replace(";", ":", 1).partition(":")[0].strip().lower()
        plain = f"{name}:{header.replace(';', ':', 1).partition(':')[2].strip()}"
        is_named = "$" not in name and "`" not in name
        if not is_named or not _WEAK_HEADER.search(name):
            strong.append((header, plain))
        if not is_named or _WEAK_HEADER.search(name):
            weak.append((header, plain))
    weak += [
        (url, urlsplit(url).netloc.rpartition("@")[0]) for url in sent.urls if "@" in url.partition("?")[0]
    ]
    aside = _packed(matched.call, weak)
    read = [each for each in files if each is not None]
    if aside is not None and files:
        aside = (
            aside + b"".join(contents.digest(each).encode() for each in read)
            if len(read) == len(files)
            else None
        )
    each: dict[str, bytes | None] = {"each": None} if sent.one_of_many else {}
    return contents.of(body=_body(matched, sent), head=_packed(matched.call, strong), aside=aside, **each)


def _option(text: str) -> tuple[str, str]:
    return text.partition(" ")[2] or text, text


# Names of headers whose values differ from try to try, or from user to user, and do not say what is asked.
_WEAK_HEADER = re.compile(
    r"auth|cookie|token|key|secret|signature|digest|date|time|request-?id|trace|correlation|nonce|session|csrf|xsrf|idempoten|"
    r"^(?:user-agent|referer|origin|accept.*|connection|expect|if-.*|content-length|host|via|forwarded|x-forwarded-.*|x-real-ip)$"
)


def _packed(call: Call, pairs: Sequence[tuple[str, str]]) -> bytes | None:
    """These texts in any order; None where one is not known. Each stands beside the word of the call that says it."""
    if not all(_is_given(call, word) for word, _ in pairs):
        return None
    return contents.packed(sorted(text for _, text in pairs))


def _body(matched: Matched, sent: Sent) -> bytes | None:
    queries = [_query(matched, url) for url in sent.urls]
    more = [_part(matched, name, value) for name, value in sent.queries]
    parts = [_part(matched, name, value) for name, value in sent.data]
    if any(each is None for each in (*queries, *more, *parts)):
        return None
    known = [part for part in parts if part is not None]
    if all(name in _BODY for name, _ in sent.data):
        separator = b"" if all(name == "json" for name, _ in sent.data) else b"&"
        body = [_plain(separator.join(known))]
    else:  # fields of a form, in whatever order
        body = sorted(known)
    added = [each for each in more if each]
    sent_queries = sorted(
        b"&".join([*([query] if query else []), *added]) for query in queries if query is not None
    )
    return b"".join(len(each).to_bytes(8, "big") + each for each in (*sent_queries, *body))


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
    return arguments.read_file(os.path.join(matched.call.cwd, path))


def _plain(body: bytes) -> bytes:
    """JSON without the spaces and the order in which it was written."""
    if body[:1] not in (b"{", b"["):
        return body
    try:
        return json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return body
