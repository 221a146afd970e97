"""The MCP server: JSON-RPC 2.0 by lines. It answers what needs nobody, and passes calls of tools on to the run.

Calls that look and calls that write have a thread each: a long save keeps nobody from the budget, and writes keep their order."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from outlast import decoders
from outlast._version import __version__
from outlast.mcp import run, tools
from outlast.mcp.revisions import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META,
    METHOD_NOT_FOUND,
    NAMED,
    PARSE_ERROR,
    ProtocolError,
    Revision,
    agreed,
    of_request,
)
from outlast.mcp.stdio import LINE_MAX_BYTES, ClientGone, Reader, TooLong, Writer
from outlast.mcp.timing import Timing
from outlast.supervisor.socket.tools import RememberArguments

WAITING_MAX = 1_000  # calls of tools: with more we read no further until one has ended
BATCH_MAX = 100
_ABOUT = {"name": "outlast", "title": "outlast", "version": __version__}
_NULL = msgspec.Raw(b"null")

Fields = Mapping[str, msgspec.Raw]
Give = Callable[[bytes | None], None]  # takes the response to one message, or None for none


class _Waiting(msgspec.Struct, frozen=True):
    """A call of a tool that waits for its turn."""

    id: msgspec.Raw
    revision: Revision
    call: run.RunCall
    give: Give


class McpServer:
    """One client on one pair of streams."""

    def __init__(self, reader: Reader, writer: Writer, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.current()
        self._reader, self._writer = reader, writer
        self._is_inside = run.is_around()
        self._shaken: Revision | None = None
        self._lock = threading.Lock()
        self._open: dict[bytes, run.RunCall] = {}  # by the id of the request
        self._looking, self._writing = (queue.Queue[_Waiting | None](WAITING_MAX) for _ in range(2))

    def serve(self) -> None:
        """Answer until the client ends its input, or reads no more. Calls under way then still have a moment."""
        lanes = [
            threading.Thread(target=self._carry, args=(lane,), name="outlast-mcp", daemon=True)
            for lane in (self._looking, self._writing)
        ]
        for lane in lanes:
            lane.start()
        try:
            for line in self._reader.lines():
                self._take(line)
        except ClientGone:
            return
        until_s = time.monotonic() + self._timing.last_calls_s
        for waiting in (self._looking, self._writing):
            with contextlib.suppress(queue.Full):
                waiting.put(None, timeout=max(0.0, until_s - time.monotonic()))
        for lane in lanes:
            lane.join(max(0.0, until_s - time.monotonic()))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _take(self, line: bytes | TooLong) -> None:
        give = self._give
        if isinstance(line, TooLong):
            return give(_error(_NULL, INVALID_REQUEST, f"a message has more than {LINE_MAX_BYTES:,} bytes"))
        if not line.strip():
            return None
        if line.lstrip()[:1] != b"[":
            return self._take_one(msgspec.Raw(line), give)
        try:
            messages = decoders.decode(line, list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            return give(_error(_NULL, PARSE_ERROR, f"this is not JSON: {error}"))
        return self._take_batch(messages)

    def _give(self, response: bytes | None) -> None:
        if response is not None:
            self._writer.write(response)

    def _take_batch(self, messages: list[msgspec.Raw]) -> None:
        """Several messages in one line, which a single revision has: their responses are one line too."""
        if self._shaken is None or not self._shaken.takes_batches:
            name = "without a handshake" if self._shaken is None else f"in revision {self._shaken.name}"
            return self._give(
                _error(_NULL, INVALID_REQUEST, f"there are no batches {name}: send one message a line")
            )
        if not 0 < len(messages) <= BATCH_MAX:
            return self._give(_error(_NULL, INVALID_REQUEST, f"a batch has 1 to {BATCH_MAX} messages"))
        responses: list[bytes] = []
        left, lock = [len(messages)], threading.Lock()

        def give(response: bytes | None) -> None:
            with lock:
                responses.extend([] if response is None else [response])
                left[0] -= 1
                is_last = not left[0]
            if is_last and responses:
                self._writer.write(b"[" + b",".join(responses) + b"]")

        for message in messages:
            self._take_one(message, give, in_batch=True)
        return None

    def _take_one(self, message: msgspec.Raw, give: Give, *, in_batch: bool = False) -> None:
        """One message, for which `give` is called once: now, or when its tool has answered."""
        try:
            self._read_one(message, give, in_batch=in_batch)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            give(_error(_NULL, PARSE_ERROR, f"this is not JSON: {error}"))

    def _read_one(self, message: msgspec.Raw, give: Give, *, in_batch: bool) -> None:
        fields = _fields(message)
        if fields is None:
            return give(_error(_NULL, INVALID_REQUEST, "a message must be a JSON object"))
        known = fields.get("id")
        given_id = known if known is not None and _is_id(known) else _NULL
        method = _plain(fields.get("method"))
        if method is None and known is not None and ("result" in fields or "error" in fields):
            return give(None)  # we ask nothing, so it answers nothing
        if _plain(fields.get("jsonrpc")) != "2.0" or not isinstance(method, str):
            return give(_error(given_id, INVALID_REQUEST, 'a request needs "jsonrpc": "2.0" and a method'))
        params = _fields(fields.get("params", msgspec.Raw(b"{}")))
        if known is None:
            self._hear(method, params or {})
            return give(None)
        if given_id is _NULL:
            return give(_error(_NULL, INVALID_REQUEST, "an id must be a text or a whole number"))
        try:
            if params is None:
                raise ProtocolError(INVALID_PARAMS, "params must be an object")
            if in_batch and method == "initialize":
                raise ProtocolError(INVALID_REQUEST, "initialize must not be part of a batch")
            return self._answer(given_id, method, params, give)
        except ProtocolError as error:
            return give(_error(given_id, error.code, str(error), error.data))

    def _hear(self, method: str, params: Fields) -> None:
        """A notification. Of those that we do not know, and those that make no sense, nobody is told."""
        if method == "notifications/cancelled" and (wanted := params.get("requestId")) is not None:
            with self._lock:
                call = self._open.pop(bytes(wanted), None)
            if call is not None:
                call.cut()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _answer(self, request: msgspec.Raw, method: str, params: Fields, give: Give) -> None:
        if method == "initialize":
            self._shaken = agreed(params)
            return give(
                _result(
                    request,
                    self._shaken,
                    self._about() | {"protocolVersion": self._shaken.name, "serverInfo": _ABOUT},
                )
            )
        if method == "ping" and "_meta" not in params:
            return give(_result(request, self._shaken, {}))
        revision = of_request(params, self._shaken)
        match method:
            case "server/discover" if revision.by_request:
                found = self._about() | {
                    "supportedVersions": NAMED,
                    "ttlMs": self._timing.cached_ms,
                    "cacheScope": "private",
                }
                return give(_result(request, revision, found))
            case "tools/list":
                return give(_result(request, revision, self._listed(revision, params)))
            case "tools/call":
                return self._call(request, revision, params, give)
            case "ping" if not revision.by_request:
                return give(_result(request, revision, {}))
            case _:
                raise ProtocolError(METHOD_NOT_FOUND, f"no such method: {method[:100]}")

    def _about(self) -> dict[str, Any]:
        return {
            "capabilities": {"tools": {}},
            "instructions": tools.INSTRUCTIONS if self._is_inside else tools.OUTSIDE,
        }

    def _listed(self, revision: Revision, params: Fields) -> dict[str, Any]:
        if _plain(params.get("cursor")) is not None:
            raise ProtocolError(INVALID_PARAMS, "there is one page only, so no cursor is one of ours")
        shown = tools.listed(has_structure=revision.has_structure, has_annotations=revision.has_annotations)
        found: dict[str, Any] = {"tools": shown if self._is_inside else ()}
        return found | (
            {"ttlMs": self._timing.cached_ms, "cacheScope": "private"} if revision.by_request else {}
        )

    # -- calls of tools ------------------------------------------------------------------------------------------------

    def _call(self, request: msgspec.Raw, revision: Revision, params: Fields, give: Give) -> None:
        name = _plain(params.get("name"))
        tool = tools.BY_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ProtocolError(
                INVALID_PARAMS, f"no such tool: {str(name)[:60]}; there are {', '.join(tools.BY_NAME)}"
            )
        if not self._is_inside:
            return give(_refusal(request, revision, tools.OUTSIDE))
        given = params.get("arguments", msgspec.Raw(b"{}"))
        try:
            arguments = decoders.decode(given, tool.arguments)
        except (msgspec.MsgspecError, RecursionError) as error:
            text = f"the arguments of {tool.name} do not fit: {error}\nhint: {tools.usage(tool)}"
            return give(_refusal(request, revision, text))
        if isinstance(arguments, RememberArguments):
            arguments = msgspec.structs.replace(arguments, path=run.as_uri(arguments.path))
        call = run.RunCall(tool.name, msgspec.Raw(msgspec.json.encode(arguments)))
        with self._lock:
            if bytes(request) in self._open:
                raise ProtocolError(INVALID_REQUEST, "another request with this id is under way")
            self._open[bytes(request)] = call
        (self._looking if tool.reads else self._writing).put(_Waiting(request, revision, call, give))
        return None

    def _carry(self, lane: "queue.Queue[_Waiting | None]") -> None:
        """Make the calls of one lane, one after the other."""
        try:
            while (waiting := lane.get()) is not None:
                response = None if waiting.call.is_cut else self._called(waiting)
                with self._lock:
                    is_wanted = self._open.pop(bytes(waiting.id), None) is waiting.call
                waiting.give(response if is_wanted else None)
        except ClientGone:
            self._reader.stop()

    def _called(self, waiting: _Waiting) -> bytes:
        try:
            body = waiting.call.answer(self._timing)
        except run.Refused as error:
            return _refusal(waiting.id, waiting.revision, str(error))
        except Exception as error:  # what is wrong here must not cost the client its answer
            return _error(waiting.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        result: dict[str, Any] = {"content": [{"type": "text", "text": body.decode()}], "isError": False}
        if waiting.revision.has_structure:
            result["structuredContent"] = msgspec.Raw(body)
        return _result(waiting.id, waiting.revision, result)


# -- responses -------------------------------------------------------------------------------------------------------------


def _result(request: msgspec.Raw, revision: Revision | None, result: dict[str, Any]) -> bytes:
    if revision is not None and revision.by_request:
        result = {"resultType": "complete"} | result | {"_meta": {f"{META}serverInfo": _ABOUT}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request, "result": result})


def _refusal(request: msgspec.Raw, revision: Revision, text: str) -> bytes:
    """What a tool could not do, for the model to read."""
    return _result(request, revision, {"content": [{"type": "text", "text": text}], "isError": True})


def _error(request: msgspec.Raw, code: int, message: str, data: object = None) -> bytes:
    more = {} if data is None else {"data": data}
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message} | more}
    )


def _fields(value: msgspec.Raw) -> Fields | None:
    """The fields of an object; None for any other value. Raises msgspec.DecodeError for what is not JSON."""
    if bytes(value).lstrip()[:1] != b"{":
        decoders.decode(value, Any)
        return None
    return decoders.decode(value, dict[str, msgspec.Raw])


def _plain(value: msgspec.Raw | None) -> Any:
    return None if value is None else decoders.decode(value, Any)


def _is_id(value: msgspec.Raw) -> bool:
    found = bytes(value)
    return found[:1] == b'"' or (found.lstrip(b"-").isdigit() and len(found) <= 40)
