"""Hook inputs, as far as the supervisor itself reads them, and the refusals of our own hooks and shims in a call's output."""

import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from outlast import decoders
from outlast.agents.events import ToolStart
from outlast.agents.values import Hook

# What our hooks say of a call that they denied by themselves (`client/hook.py`, `client/hook.sh`, the plugin of opencode), and
# what those of an earlier outlast said.
OURS = re.compile(
    r"outlast denied .{1,4000}?: its supervisor did not put the call on record \(.{0,1000}?\)\. (?:This call was not made now|Nothing was done)\b"
    r"|outlast did not (?:let this call through|put this call on record): its (?:hook|Python) .{1,4000}?\. (?:This call was not made now|Nothing was done)\b"
    r"|\A(?:PreToolUse:\S{1,200} hook error: )?\[http://127\.0\.0\.1:\d{1,5}/outlast-hook\]: .{1,400}?; blocking because onFailure is \"block\""
    r"|outlast (?:could not be asked, so this was not done|did not allow this, so it was not done)",
    re.DOTALL,
)

# What Claude Code says of a hook that its settings do not let it send.
FORBIDDEN = "allowedHttpHookUrls"

_REFUSED = re.compile(
    r"outlast: `([^`\n]{1,255})` was not run: .*"
)  # what a shim says (`client/shim.py`, `shims.py`)


def refused_by_shims(output: str, programs: Sequence[str]) -> str:
    """The shims' words, if `output` shows that they refused each of `programs` and no other program; else empty.

    `programs` are those that shims stand before and that none of them let run. What else the call ran may print what it
    likes. One line too few or too many is not understood, and the result counts as the agent tells it.
    """
    found = [match for line in output.splitlines() if (match := _REFUSED.fullmatch(line.strip()))]
    is_each = bool(programs) and sorted(match[1] for match in found) == sorted(programs)
    return "\n".join(match[0] for match in found) if is_each else ""


class _Named(msgspec.Struct, frozen=True):
    hook_event_name: str


def is_understood(hook: Hook, data: bytes) -> bool:
    """Whether it is certain that no call is about to happen unseen: one that cannot be read may reach outside."""
    if hook.kind == "pre" or not hook.events:
        starts = [event for event in hook.events if isinstance(event, ToolStart)]
        if starts:
            return all(start.id for start in starts)
        try:
            return decoders.decode(data, _Named).hook_event_name not in (
                "",
                "PreToolUse",
                "BeforeTool",
            )
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
    return True


def cwd_of(data: bytes) -> str:
    try:
        cwd = msgspec.json.decode(data).get("cwd", "")
    except (msgspec.DecodeError, AttributeError, RecursionError, UnicodeDecodeError):
        return ""
    return cwd if isinstance(cwd, str) and os.path.isabs(cwd) else ""


def decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return bytes(raw).decode(errors="replace")
