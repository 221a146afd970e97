"""Texts of others on one line that steers nothing: control characters, newlines and direction overrides are escapes."""

import re

_COMMAND = re.compile(r"`outlast (?=[a-z])")


def safe(text: object) -> str:
    """A text on one line: control characters, newlines and direction overrides are written as escapes."""
    return "".join(char if char.isprintable() else _escaped(char) for char in str(text))


def _escaped(char: str) -> str:
    # A lone surrogate cannot be written to a terminal at all; its escape can.
    return char.encode("unicode_escape", "surrogatepass").decode()


def short(text: object, chars_max: int) -> str:
    """The beginning of a text, safe and on one line."""
    line = safe(text)
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def pasteable(text: str, options: str) -> str:
    """A text whose `outlast …` commands have these options too, so that they lead to where they were told of.

    `options` is quoted for the shell; empty where every command gets there by itself. Those that have one stay as they are.
    """
    return _COMMAND.sub(lambda found: f"{found[0]}{options} ", text) if options else text
