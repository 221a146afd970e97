"""What kimi-cli's hook has of a call's result: the text of a Python object, cut off after 2,000 characters.
Its PostToolUse comes after a failure too."""

import re

from outlast.agents.common import background, exit_codes
from outlast.agents.events import ToolEnd

_TEXT = r"(?P<{0}_quote>['\"])(?P<{0}>(?:(?!(?P={0}_quote))[^\\]|\\.)*)"
_RETURNED = re.compile(
    rf"\Ais_error=(?P<error>True|False) output=(?:\[|{_TEXT.format('output')}"
    rf"(?:(?P=output_quote) message={_TEXT.format('message')}(?P<whole>(?P=message_quote) display=)?)?)",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-f]{2})|u(?P<u>[0-9a-f]{4})|U(?P<U>00(?:0[0-9a-f]|10)[0-9a-f]{4})|(?P<other>.))",
    re.DOTALL,
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}


def ended(call: str, text: str) -> ToolEnd | None:
    """The end of a call; None where this text does not tell it, and the transcript will."""
    found = _RETURNED.match(text)
    if found is None:
        return None
    output = _plain(found["output"]) if found["output"] is not None else text
    message = _plain(found["message"] or "")
    if found["error"] == "False":
        return ToolEnd(call, True, output or message, task=background.kimi(output))
    if not found["whole"]:  # what is cut off says how it failed
        return None
    words = f"{output}\n{message}".strip()
    return ToolEnd(call, False, words, code=exit_codes.kimi(words))


def _plain(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(escape: "re.Match[str]") -> str:
    code = escape["x"] or escape["u"] or escape["U"]
    if code is None:
        return _LETTERS.get(escape["other"], escape["other"])
    return chr(int(code, 16)).encode("utf-8", "replace").decode()
