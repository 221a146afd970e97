"""The four wire formats that coding agents speak: each reads a request into a `History` and says an `Answer`.

Anthropic Messages, OpenAI Responses, OpenAI Chat Completions, Gemini. No sockets here, and no choice of what to say.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tests.agents.script import Call, Fault, History, Result, SeenCall, Turn, Usage

CHUNKS = 3  # a text is streamed in so many pieces, so that there is a middle to be killed in
CREATED_AT = 1_767_225_600  # no clock: the same script says the same bytes

Event = tuple[str | None, Any]  # the name that some protocols send along, and the data


@dataclass(frozen=True, slots=True)
class Answered:
    """A call as it goes out."""

    id: str
    name: str
    input: Any  # an object; a text for a free-form tool

    @property
    def arguments(self) -> str:
        return self.input if isinstance(self.input, str) else json.dumps(self.input)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A response, before it is put into a protocol's words."""

    id: str
    model: str
    text: str
    calls: tuple[Answered, ...]
    usage: Usage
    input_tokens: int


class Wire(Protocol):
    """One wire format."""

    name: str

    def read(self, body: Mapping[str, Any]) -> History: ...
    def events(self, answer: ModelAnswer) -> list[Event]: ...
    def whole(self, answer: ModelAnswer) -> dict[str, Any]: ...
    def refusal(self, status: int, code: str, message: str, fault: Fault) -> dict[str, Any]: ...


# --- calls in the words of the CLI that asks ----------------------------------------------------------------

SHELLS = ("Bash", "bash", "Shell", "exec_command", "shell_command", "shell", "run_shell_command", "terminal")
WRITERS = ("Write", "write", "WriteFile", "write_file")
COMMANDS = ("command", "cmd")
PATHS = ("file_path", "filePath", "path")


def translate(call: Call, tools: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and input of the tool that this CLI offers for a neutral call; others go out as they are."""
    if call.tool == "bash":
        return _shell(str(call.input["command"]), tools)
    if call.tool != "write":
        return call.tool, dict(call.input)
    path, content = str(call.input["path"]), str(call.input["content"])
    for name in WRITERS:
        known = _properties(tools.get(name))
        key = next((key for key in PATHS if key in known), None)
        if key is not None and "content" in known:
            return name, _required(tools[name], {key: path, "content": content})
    return _shell(f"printf %s {shlex.quote(content)} > {shlex.quote(path)}", tools)


def _shell(command: str, tools: Mapping[str, Any]) -> tuple[str, Any]:
    for name in SHELLS:
        known = _properties(tools.get(name))
        key = next((key for key in COMMANDS if key in known), None)
        if key is not None:
            listed = isinstance(known[key], dict) and known[key].get("type") in ("array", "ARRAY")
            return name, _required(tools[name], {key: ["bash", "-lc", command] if listed else command})
    return "bash", {"command": command}


def spoken(call: Call) -> str:
    """A call in the words of a CLI without tools (aider): a whole file. What should run is in `run.sh`."""
    path = call.input.get("path", "run.sh")
    content = call.input.get("content", call.input.get("command", ""))
    return f"{path}\n```\n{content}\n```"


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


FILLERS = {"string": "as scripted", "boolean": False, "integer": 0, "number": 0, "array": [], "object": {}}


def _required(schema: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What else the tool insists on, filled with something harmless."""
    known = _properties(schema)
    for name in schema.get("required") or ():
        kind = str(known.get(name, {}).get("type", "string")).lower()
        given.setdefault(name, FILLERS.get(kind, "as scripted"))
    return given


# --- errors -------------------------------------------------------------------------------------------------

# Name to status and message. The code in the body depends on the protocol.
ERRORS: dict[str, tuple[int, str]] = {
    "overflow": (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    "bad_request": (400, "scripted: bad request"),
    "auth": (401, "invalid x-api-key"),
    "forbidden": (403, "scripted: forbidden"),
    "rate": (429, "This request would exceed your rate limit"),
    "usage": (429, "The usage limit has been reached"),
    "server": (500, "Internal server error"),
    "unavailable": (503, "Service unavailable"),
    "overloaded": (529, "Overloaded"),
}


def headers_of(fault: Fault, wire: str) -> dict[str, str]:
    """What an error's headers say about when to try again."""
    headers = {}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(fault.retry_after_s)
    if fault.resets_at is not None and wire == "anthropic":
        headers["anthropic-ratelimit-unified-status"] = "rejected"
        headers["anthropic-ratelimit-unified-reset"] = str(fault.resets_at)
        headers["anthropic-ratelimit-unified-representative-claim"] = "five_hour"
    return headers


# --- reading ------------------------------------------------------------------------------------------------


def _text(content: Any) -> str:
    """The text of a content field, whatever its form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content") or content.get("output") or "")
    return ""


def _merged(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Neighbours of the same role are one turn."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            last = merged.pop()
            text = "\n".join(filter(None, (last.text, turn.text)))
            merged.append(Turn(turn.role, text, last.calls + turn.calls, last.results + turn.results))
        else:
            merged.append(turn)
    return tuple(merged)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def _pieces(text: str) -> list[str]:
    size = -(-len(text) // CHUNKS) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]


# --- Anthropic Messages -------------------------------------------------------------------------------------


class Anthropic:
    name = "anthropic"

    def read(self, body: Mapping[str, Any]) -> History:
        turns = []
        for message in _objects(body.get("messages")):
            role, content = str(message.get("role")), message.get("content")
            blocks = list(_objects(content))
            text = (
                _text([block for block in blocks if block.get("type") == "text"])
                if blocks
                else _text(content)
            )
            calls = tuple(
                SeenCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input")))
                for block in blocks
                if block.get("type") == "tool_use"
            )
            results = tuple(
                Result(str(block.get("tool_use_id")), _text(block.get("content")))
                for block in blocks
                if block.get("type") == "tool_result"
            )
            turns.append(Turn("tool" if results else role, text, calls, results))
        tools = {str(tool.get("name")): tool.get("input_schema") for tool in _objects(body.get("tools"))}
        return History(_merged(turns), tools, _text(body.get("system")))

    def _blocks(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
        return blocks + [
            {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.input}
            for call in answer.calls
        ]

    def _usage(self, answer: ModelAnswer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "input_tokens": answer.input_tokens,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "output_tokens": usage.output,
        }

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        return {
            "id": f"msg_{answer.id}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": self._blocks(answer),
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "stop_sequence": None,
            "usage": self._usage(answer),
        }

    def events(self, answer: ModelAnswer) -> list[Event]:
        whole = self.whole(answer)
        started = {**whole, "content": [], "stop_reason": None}
        started["usage"] = {**whole["usage"], "output_tokens": 1}
        said: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
        for index, block in enumerate(whole["content"]):
            opening: dict[str, Any]
            if block["type"] == "text":
                opening = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            else:
                opening = {**block, "input": {}}
                pieces = _pieces(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            said.append({"type": "content_block_start", "index": index, "content_block": opening})
            said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            said.append({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        said.append({"type": "message_delta", "delta": ending, "usage": whole["usage"]})
        said.append({"type": "message_stop"})
        return [(str(event["type"]), event) for event in said]

    CODES: ClassVar = {
        "overflow": "invalid_request_error",
        "bad_request": "invalid_request_error",
        "auth": "authentication_error",
        "forbidden": "permission_error",
        "rate": "rate_limit_error",
        "usage": "rate_limit_error",
        "overloaded": "overloaded_error",
    }

    def refusal(self, status: int, code: str, message: str, fault: Fault) -> dict[str, Any]:
        kind = self.CODES.get(code, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


# --- OpenAI -------------------------------------------------------------------------------------------------

OPENAI_CODES = {
    "overflow": "context_length_exceeded",
    "bad_request": "invalid_request_error",
    "auth": "invalid_api_key",
    "rate": "rate_limit_exceeded",
    "usage": "usage_limit_reached",
    "overloaded": "server_overloaded",
    "server": "server_error",
}


def _openai_refusal(code: str, message: str, fault: Fault) -> dict[str, Any]:
    kind = OPENAI_CODES.get(code, "server_error")
    error: dict[str, Any] = {"type": kind, "code": kind, "message": message, "param": None}
    if fault.resets_at is not None:
        error["resets_at"] = fault.resets_at
    return {"error": error}


class Responses:
    name = "responses"
    CALLS = ("function_call", "custom_tool_call", "local_shell_call")

    def read(self, body: Mapping[str, Any]) -> History:
        items = body.get("input")
        if isinstance(items, str):
            items = [{"type": "message", "role": "user", "content": items}]
        turns = []
        for item in _objects(items):
            kind = str(item.get("type", "message"))
            if kind in self.CALLS:
                told = item.get("arguments", item.get("input", item.get("action")))
                told = told if isinstance(told, str) else json.dumps(told)
                space = f"{item['namespace']}__" if item.get("namespace") else ""
                seen = SeenCall(str(item.get("call_id")), f"{space}{item.get('name')}", told)
                turns.append(Turn("assistant", calls=(seen,)))
            elif kind.endswith("_output"):
                result = Result(str(item.get("call_id")), _text(item.get("output")))
                turns.append(Turn("tool", results=(result,)))
            elif kind == "message":
                turns.append(Turn(str(item.get("role")), _text(item.get("content"))))
        tools = {
            str(tool.get("name", tool.get("type"))): tool.get("parameters")
            for tool in _objects(body.get("tools"))
        }
        # Codex has the tools of an MCP server in a namespace of their own, which a call of one names too.
        for space in _objects(body.get("tools")):
            for tool in _objects(space.get("tools")):
                tools[f"{space.get('name')}__{tool.get('name')}"] = tool.get("parameters")
        return History(_merged(turns), tools, _text(body.get("instructions")))

    def _items(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            message = {
                "type": "message",
                "role": "assistant",
                "id": f"msg_{answer.id}",
                "status": "completed",
            }
            items.append({**message, "content": content})
        for call in answer.calls:
            space, _, name = (
                call.name.rpartition("__") if call.name.startswith("mcp__") else ("", "", call.name)
            )
            ids = {"id": f"fc_{call.id}", "call_id": f"call_{call.id}", "name": name}
            ids |= {"namespace": space} if space else {}
            if isinstance(call.input, str):
                items.append({"type": "custom_tool_call", **ids, "input": call.input, "status": "completed"})
            else:
                items.append(
                    {"type": "function_call", **ids, "arguments": call.arguments, "status": "completed"}
                )
        return items

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": CREATED_AT,
            "status": "completed",
            "model": answer.model,
            "output": self._items(answer),
            "usage": {
                "input_tokens": answer.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cache_read},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": answer.input_tokens + usage.output,
            },
        }

    def events(self, answer: ModelAnswer) -> list[Event]:
        whole = self.whole(answer)
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        said: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
        for index, item in enumerate(whole["output"]):
            at = {"item_id": item["id"], "output_index": index}
            said.append({"type": "response.output_item.added", "output_index": index, "item": item})
            if item["type"] == "message":
                kind = {"type": "response.output_text.delta", **at, "content_index": 0}
                said += [{**kind, "delta": piece} for piece in _pieces(answer.text)]
            elif item["type"] == "function_call":
                kind = {"type": "response.function_call_arguments.delta", **at}
                said += [{**kind, "delta": piece} for piece in _pieces(item["arguments"])]
            said.append({"type": "response.output_item.done", "output_index": index, "item": item})
        said.append({"type": "response.completed", "response": whole})
        return [(str(event["type"]), event) for event in said]

    def refusal(self, status: int, code: str, message: str, fault: Fault) -> dict[str, Any]:
        return _openai_refusal(code, message, fault)


class Chat:
    name = "chat"

    def read(self, body: Mapping[str, Any]) -> History:
        turns, system = [], []
        for message in _objects(body.get("messages")):
            role, text = str(message.get("role")), _text(message.get("content"))
            if role in ("system", "developer"):
                system.append(text)
            elif role == "tool":
                turns.append(Turn("tool", results=(Result(str(message.get("tool_call_id")), text),)))
            else:
                calls = []
                for call in _objects(message.get("tool_calls")):
                    asked = call.get("function") or {}
                    calls.append(
                        SeenCall(str(call.get("id")), str(asked.get("name")), str(asked.get("arguments")))
                    )
                turns.append(Turn(role, text, tuple(calls)))
        tools = {}
        for tool in _objects(body.get("tools")):
            offered = tool.get("function") or {}
            tools[str(offered.get("name"))] = offered.get("parameters")
        return History(_merged(turns), tools, "\n".join(system))

    def _calls(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{call.id}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]

    def _usage(self, answer: ModelAnswer) -> dict[str, Any]:
        return {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.usage.output,
            "total_tokens": answer.input_tokens + answer.usage.output,
            "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read},
            "completion_tokens_details": {"reasoning_tokens": answer.usage.reasoning},
            "cached_tokens": answer.usage.cache_read,
        }

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.calls:
            message["tool_calls"] = self._calls(answer)
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if answer.calls else "stop",
        }
        return {
            "id": f"chatcmpl-{answer.id}",
            "object": "chat.completion",
            "created": CREATED_AT,
            "model": answer.model,
            "choices": [choice],
            "usage": self._usage(answer),
        }

    def events(self, answer: ModelAnswer) -> list[Event]:
        base = {
            "id": f"chatcmpl-{answer.id}",
            "object": "chat.completion.chunk",
            "created": CREATED_AT,
            "model": answer.model,
        }

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        said = [chunk({"role": "assistant", "content": ""})]
        said += [chunk({"content": piece}) for piece in _pieces(answer.text)]
        for index, call in enumerate(self._calls(answer)):
            said.append(chunk({"tool_calls": [{"index": index, **call}]}))
        usage = self._usage(answer)
        said.append({**chunk({}, "tool_calls" if answer.calls else "stop"), "usage": usage})
        said.append({**base, "choices": [], "usage": usage})
        return [*((None, event) for event in said), (None, "[DONE]")]

    def refusal(self, status: int, code: str, message: str, fault: Fault) -> dict[str, Any]:
        return _openai_refusal(code, message, fault)


# --- Gemini -------------------------------------------------------------------------------------------------


class Gemini:
    name = "gemini"

    def read(self, body: Mapping[str, Any]) -> History:
        turns = []
        for content in _objects(body.get("contents")):
            parts = list(_objects(content.get("parts")))
            asked = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
            said = [
                part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)
            ]
            calls = tuple(
                SeenCall(str(call.get("id", "")), str(call.get("name")), json.dumps(call.get("args")))
                for call in asked
            )
            results = tuple(
                Result(str(result.get("id", "")), json.dumps(result.get("response"), ensure_ascii=False))
                for result in said
            )
            role = "assistant" if content.get("role") == "model" else "tool" if results else "user"
            turns.append(Turn(role, _text(parts), calls, results))
        tools = {
            str(tool.get("name")): tool.get("parametersJsonSchema", tool.get("parameters"))
            for group in _objects(body.get("tools"))
            for tool in _objects(group.get("functionDeclarations"))
        }
        return History(_merged(turns), tools, _text((body.get("systemInstruction") or {}).get("parts")))

    def _event(self, answer: ModelAnswer, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if last:
            candidate["finishReason"] = "STOP"
        usage = answer.usage
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": answer.input_tokens,
                "candidatesTokenCount": usage.output,
                "totalTokenCount": answer.input_tokens + usage.output,
                "cachedContentTokenCount": usage.cache_read,
                "thoughtsTokenCount": usage.reasoning,
            },
            "modelVersion": answer.model,
            "responseId": answer.id,
        }

    def _calls(self, answer: ModelAnswer) -> list[dict[str, Any]]:
        return [
            {
                "functionCall": {"id": f"call_{call.id}", "name": call.name, "args": call.input},
                "thoughtSignature": "c2ln",
            }
            for call in answer.calls
        ]

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        parts = [{"text": answer.text}] if answer.text else []
        return self._event(answer, [*parts, *self._calls(answer)], last=True)

    def events(self, answer: ModelAnswer) -> list[Event]:
        said = [self._event(answer, [{"text": piece}], last=False) for piece in _pieces(answer.text)]
        said.append(self._event(answer, self._calls(answer) or [{"text": ""}], last=True))
        return [(None, event) for event in said]

    STATUSES: ClassVar = {
        "overflow": "INVALID_ARGUMENT",
        "bad_request": "INVALID_ARGUMENT",
        "auth": "UNAUTHENTICATED",
        "forbidden": "PERMISSION_DENIED",
        "rate": "RESOURCE_EXHAUSTED",
        "usage": "RESOURCE_EXHAUSTED",
        "overloaded": "UNAVAILABLE",
        "unavailable": "UNAVAILABLE",
    }

    def refusal(self, status: int, code: str, message: str, fault: Fault) -> dict[str, Any]:
        error: dict[str, Any] = {
            "code": status,
            "message": message,
            "status": self.STATUSES.get(code, "INTERNAL"),
        }
        if fault.retry_after_s is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{fault.retry_after_s}s"}]
        return {"error": error}


def wire_for(path: str) -> Wire | None:
    """The protocol spoken at a path; None where nothing is."""
    if path.endswith("/messages"):
        return Anthropic()
    if path.endswith("/responses"):
        return Responses()
    if path.endswith("/chat/completions"):
        return Chat()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return Gemini()
    return None
