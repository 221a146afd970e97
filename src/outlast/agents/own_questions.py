"""The tools with which agents ask their user: what is asked, and the answers that are offered. Where nobody is at the terminal
their own program answers them with nothing."""

import msgspec

from outlast.agents.common import json_lines

# Claude Code and Kimi, Codex, Gemini, opencode.
TOOLS = frozenset(("AskUserQuestion", "request_user_input", "ask_user", "question"))
QUESTIONS_MAX = 4
CHARS_MAX = 1_000


class OwnQuestion(msgspec.Struct, frozen=True):
    """What an agent asks. Several questions are one text, without choices."""

    text: str
    choices: tuple[str, ...] = ()


def read(tool: str, given: object) -> OwnQuestion | None:
    """The question in a call of such a tool; None for any other call, and for one that cannot be read."""
    if tool not in TOOLS:
        return None
    found = [each for each in json_lines.items(given, "questions")[:QUESTIONS_MAX] if _text(each)]
    if len(found) == 1:
        return OwnQuestion(_text(found[0]), _labels(found[0]))
    if found:
        return OwnQuestion("\n".join(f"{number}. {_line(each)}" for number, each in enumerate(found, 1)))
    return OwnQuestion(_text(given), _labels(given)) if _text(given) else None


def _text(question: object) -> str:
    return json_lines.text(question, "question")[:CHARS_MAX].strip()


def _labels(question: object) -> tuple[str, ...]:
    found = [
        json_lines.text(each, "label") if isinstance(each, dict) else each
        for each in json_lines.items(question, "options")
    ]
    return tuple(dict.fromkeys(each for each in found if isinstance(each, str) and each.strip()))


def _line(question: object) -> str:
    labels = _labels(question)
    return _text(question) + (f" ({', '.join(labels)})" if labels else "")
