"""Requests for an answer: recognises them by path, reads them, adds words to them, and refuses them."""

import re
from urllib.parse import unquote_to_bytes

import msgspec

from outlast import decoders
from outlast.gateway.answers import TOKENS_MAX, Number, decoded
from outlast.gateway.values import Kind

MODEL_MAX_CHARS = 200
SCANNED_BYTES = 64 * 1024  # of a body that is too large to be held: where its model is looked for

_Object = dict[str, msgspec.Raw]

# In small letters: a lenient server takes any.
_ENDINGS: tuple[tuple[bytes, Kind], ...] = (
    (b"/messages", "anthropic"),
    (b":rawpredict", "anthropic"),  # Claude on Vertex
    (b":streamrawpredict", "anthropic"),
    (b"/responses", "responses"),
    (b"/responses/compact", "responses"),
    (b"/completions", "chat"),
    (b":generatecontent", "gemini"),
    (b":streamgeneratecontent", "gemini"),
)
_MODEL_IN_PATH = re.compile(rb"/models/([^/:]{1,200}):[A-Za-z]+$")
_MODEL_IN_BODY = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
_DOTS = (b".", b"..")
_PARAMETERS = re.compile(rb";[^/]*")  # of a path's parts, which a lenient server leaves out
_BLANKS = bytes(range(0x21)) + b"/"


def path_of(target: bytes) -> bytes:
    """The path of a target, decoded, without query and slashes at its end."""
    return unquote_to_bytes(target.partition(b"?")[0].partition(b"#")[0]).rstrip(b"/")


def crooked(target: bytes) -> bool:
    """Whether a server could read another path in it than we do."""
    path = path_of(target)
    return b"\\" in path or any(part in _DOTS for part in path.split(b"/"))


def kind_of(method: bytes, target: bytes) -> Kind | None:
    """The protocol of a request for an answer; None for everything else, which is passed on and not counted."""
    if method != b"POST":
        return None
    path = _PARAMETERS.sub(b"", path_of(target)).rstrip(_BLANKS).lower()
    return next((kind for ending, kind in _ENDINGS if path.endswith(ending)), None)


class RequestSummary(msgspec.Struct, frozen=True):
    """The readable facts of a request."""

    model: str = ""
    output_max: int | None = None
    tools: bool = False


class _Generation(msgspec.Struct):
    maxOutputTokens: Number = None  # noqa: N815


class _Request(msgspec.Struct):
    model: str | None = None
    max_tokens: Number = None
    max_completion_tokens: Number = None
    max_output_tokens: Number = None
    generationConfig: _Generation | None = None  # noqa: N815
    tools: msgspec.Raw = msgspec.Raw(b"")
    request: "_Request | None" = None  # how Code Assist wraps Gemini's


_REQUEST = decoders.of_json(_Request)
_OBJECT = decoders.of_json(_Object)
_ARRAY = decoders.of_json(list[msgspec.Raw])
_TEXT = decoders.of_json(str)


def summary(target: bytes, body: bytes) -> RequestSummary:
    """The summary of a request. `body` may be the beginning of one that is too large."""
    named = _MODEL_IN_PATH.search(path_of(target))
    in_path = named[1].decode("utf-8", "replace") if named else ""
    request = decoded(body, _REQUEST)
    if request is None:
        found = _MODEL_IN_BODY.search(body[:SCANNED_BYTES])
        return RequestSummary(in_path or (found[1].decode("utf-8", "replace") if found else ""))
    inner = request.request or request
    limits = (inner.max_output_tokens, inner.max_completion_tokens, inner.max_tokens)
    limit = next((limit for limit in limits if limit is not None), None)
    if inner.generationConfig is not None and inner.generationConfig.maxOutputTokens is not None:
        limit = inner.generationConfig.maxOutputTokens
    tools = bytes(inner.tools).strip() not in (b"", b"[]", b"null", b"{}")
    bounded = None if limit is None else int(min(max(0, limit), TOKENS_MAX))
    return RequestSummary((in_path or request.model or "")[:MODEL_MAX_CHARS], bounded, tools)


_OPERATORS = ("system", "developer")  # whose words may stand after the newest user's


# --- words ----------------------------------------------------------------------------------------------------


def with_words(kind: Kind, body: bytes, words: str) -> bytes | None:
    """The request with words at the end of its newest user content; every other byte of its contents stays.

    None where there is no such place: it is no request of that protocol, or the model is to continue its own text.
    """
    request = decoded(body, _OBJECT)
    if request is None:
        return None
    match kind:
        case "anthropic":
            changed = _in_messages(request, words, after_tools="content")
        case "chat":
            changed = _in_messages(request, words, after_tools="message")
        case "responses":
            changed = _in_input(request, words)
        case "gemini":
            changed = _in_contents(request, words)
    return msgspec.json.encode(request) if changed else None


def _in_messages(request: _Object, words: str, *, after_tools: str) -> bool:
    messages = decoded(request.get("messages"), _ARRAY) or []
    for at in reversed(range(len(messages))):
        message = decoded(messages[at], _OBJECT)
        role = decoded(message.get("role"), _TEXT) if message is not None else None
        if message is None or role not in (*_OPERATORS, "user", "tool"):
            return False
        if role == "tool" and after_tools == "message":
            messages.append(_raw({"role": "user", "content": words}))
        elif role != "user":
            continue
        elif (content := _appended(message.get("content"), words)) is not None:
            message["content"] = content
            messages[at] = _raw(message)
        else:
            return False
        request["messages"] = _raw(messages)
        return True
    return False


def _in_input(request: _Object, words: str) -> bool:
    given = request.get("input")
    items = decoded(given, _ARRAY)
    if items is None:
        text = decoded(given, _TEXT)
        if text is None:
            return False
        request["input"] = _raw(f"{text}\n\n{words}")
        return True
    content = [{"type": "input_text", "text": words}]
    items.append(_raw({"type": "message", "role": "user", "content": content}))
    request["input"] = _raw(items)
    return True


def _in_contents(request: _Object, words: str) -> bool:
    inner = decoded(request.get("request"), _OBJECT)
    if inner is not None:
        changed = _in_contents(inner, words)
        request["request"] = _raw(inner)
        return changed
    contents = decoded(request.get("contents"), _ARRAY)
    last = decoded(contents[-1], _OBJECT) if contents else None
    if not contents or last is None or decoded(last.get("role", _raw("user")), _TEXT) == "model":
        return False
    parts = decoded(last.get("parts"), _ARRAY)
    if parts is None:
        return False
    if any("functionResponse" in (decoded(part, _OBJECT) or {}) for part in parts):
        # Answers to calls are counted against the calls: the words are a turn of their own.
        contents.append(_raw({"role": "user", "parts": [{"text": words}]}))
    else:
        last["parts"] = _raw([*parts, _raw({"text": words})])
        contents[-1] = _raw(last)
    request["contents"] = _raw(contents)
    return True


def _appended(content: msgspec.Raw | None, words: str) -> msgspec.Raw | None:
    text = decoded(content, _TEXT)
    if text is not None:
        return _raw(f"{text}\n\n{words}")
    blocks = decoded(content, _ARRAY)
    return None if blocks is None else _raw([*blocks, _raw({"type": "text", "text": words})])


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


# --- refusals -------------------------------------------------------------------------------------------------

# Measured with the real CLIs: a 400 ends the turn within seconds, in all but mini-swe-agent, which tries any status again
# for minutes (the supervisor stops it). 402 and 403 are tried six times by Codex.
REFUSED = 400
_GEMINI_STATUS = {400: "FAILED_PRECONDITION", 404: "NOT_FOUND", 502: "UNAVAILABLE"}


def error(kind: Kind | None, status: int, words: str) -> bytes:
    """An error as the protocol's own server would say it."""
    match kind:
        case "anthropic":
            name = "invalid_request_error" if status < 500 else "api_error"
            return msgspec.json.encode({"type": "error", "error": {"type": name, "message": words}})
        case "gemini":
            named = _GEMINI_STATUS.get(status, "UNKNOWN")
            return msgspec.json.encode({"error": {"code": status, "message": words, "status": named}})
        case _:
            name = "invalid_request_error" if status < 500 else "server_error"
            fields = {"message": words, "type": name, "code": "outlast", "param": None}
            return msgspec.json.encode({"error": fields})
