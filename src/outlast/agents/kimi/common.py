"""The common parts of Kimi Code and kimi-cli: their hooks, the text of a call's output, and counts of tokens."""

from collections.abc import Callable

import msgspec

from outlast import decoders
from outlast.agents.common import background, exit_codes, hook_reply, json_lines
from outlast.agents.events import BatchEnd, Session, ToolEnd, ToolStart
from outlast.agents.values import Answer, Hook
from outlast.core import values


class HookInput(msgspec.Struct, frozen=True):
    """A hook's input."""

    hook_event_name: str = ""
    session_id: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_input: msgspec.Raw = values.NULL
    tool_output: msgspec.Raw = values.NULL
    error: msgspec.Raw = values.NULL


_hook_input: "msgspec.json.Decoder[HookInput]" = decoders.of_json(HookInput)


def ended(call: str, output: str) -> ToolEnd | None:
    """The end of a call that went well, by its result's words."""
    return ToolEnd(call, True, output, task=background.kimi(output))


def hook(data: bytes, ended: Callable[[str, str], ToolEnd | None] = ended) -> Hook:
    """A hook's input, as Kimi Code and kimi-cli write it. `ended`: of PostToolUse, what its words tell of a call's end."""
    read = json_lines.decode(data, _hook_input)
    if read is None:
        return Hook("other")
    known = read.tool_call_id
    match read.hook_event_name:
        case "PreToolUse" if known:
            return Hook("pre", (ToolStart(known, read.tool_name, read.tool_input),))
        case "PostToolUse" if known:
            end = ended(known, output_text(read.tool_output))
            return Hook("post", (end,) if end is not None else ())
        case "PostToolUseFailure" if known:
            return Hook("post", (_failed(known, output_text(read.error)),))
        case "PreToolUse":
            return Hook("pre")
        case "SessionStart" if read.session_id:
            return Hook("other", (Session(read.session_id),))
        case "Stop" | "StopFailure":
            return Hook("other", (BatchEnd(),))
        case _:
            return Hook("other")


def _failed(call: str, output: str) -> ToolEnd:
    return ToolEnd(call, False, output, code=exit_codes.kimi(output))


def answer(data: bytes, answer: Answer) -> tuple[bytes, int]:
    """A denial counts before a tool, a prompt or a stop; the other hooks are not waited for."""
    if answer.allowed:
        return b"", 0
    denial = {"permissionDecision": "deny", "permissionDecisionReason": answer.reason or hook_reply.DENIED}
    return msgspec.json.encode({"hookSpecificOutput": denial}), 0


def output_text(output: msgspec.Raw) -> str:
    """A result's words: a text, or the texts among its parts."""
    try:
        value: object = msgspec.json.decode(output) if output else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return ""
    if isinstance(value, str):
        return json_lines.text(value)
    parts = value if isinstance(value, list) else [value]
    return "".join(json_lines.text(part, "text") or json_lines.text(part, "message") for part in parts)


def usage(input_other: int, output: int, cache_read: int, cache_creation: int) -> values.Usage:
    """Tokens as they may be recorded: never below 0, and never absurd."""
    counts = (input_other, output, cache_read, cache_creation)
    sent, received, read, write = (json_lines.number(count) for count in counts)
    return values.Usage(sent, received, read, write)
