"""The answer to a hook in the format of Claude Code, which Codex took over."""

import msgspec

from outlast.agents.values import Answer

DENIED = "denied by outlast"
# The agent reads no words in the answer to these.
_AT_THE_END = ("Stop", "SubagentStop", "SessionEnd")


def reply(event: str, answer: Answer) -> bytes:
    """A denial stops the call (PreToolUse), the prompt, the agent's stopping, or else the agent (PostToolUse)."""
    if answer.allowed and not answer.reason:
        return b""
    return msgspec.json.encode(_reply(event, answer))


def aside(answer: Answer) -> bytes:
    """A call is put aside: the agent ends, and asks again when it is resumed."""
    decision = {"permissionDecision": "defer", "permissionDecisionReason": answer.reason or DENIED}
    return msgspec.json.encode({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}})


def _reply(event: str, answer: Answer) -> dict[str, object]:
    if answer.allowed:
        if event in _AT_THE_END:
            return {}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer.reason}}
    reason = answer.reason or DENIED
    match event:
        case "PreToolUse":
            denial = {"permissionDecision": "deny", "permissionDecisionReason": reason}
            return {"hookSpecificOutput": {"hookEventName": event, **denial}}
        case "Stop" | "SubagentStop" | "UserPromptSubmit":
            return {"decision": "block", "reason": reason}
        case _:
            return {"continue": False, "stopReason": reason}
