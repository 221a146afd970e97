"""Texts for people: on one line that steers no terminal, with commands that can be pasted, and the nearest known name."""

import re
from collections.abc import Iterable

_COMMAND = re.compile(r"`outlast (?=[a-z])")


def safe(text: object) -> str:
    """The text on one line, with control characters, newlines and direction overrides as escapes."""
    return "".join(char if char.isprintable() else _escaped(char) for char in str(text))


def _escaped(char: str) -> str:
    # A lone surrogate cannot be written to a terminal; its escape can.
    return char.encode("unicode_escape", "surrogatepass").decode()


def short(text: object, chars_max: int) -> str:
    """The beginning of a text, safe and on one line."""
    line = safe(text)
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def pasteable(text: str, options: str) -> str:
    """The text with these options added to its `outlast …` commands, so that they work when pasted elsewhere.

    `options` is quoted for the shell, or empty if the commands work as they are. A command that has one is not changed.
    """
    return _COMMAND.sub(lambda found: f"{found[0]}{options} ", text) if options else text


NEAREST_MAX = 3
_BEGINNING_MIN = 3
_NEAR = 0.6  # of 1, by difflib's measure: `shwo` is 0.75 of `show`


def nearest(word: str, known: Iterable[str], at_most: int = NEAREST_MAX) -> list[str]:
    """The known names that a mistyped word is most like, the best first."""
    import difflib

    names = {name.casefold(): name for name in reversed(list(known))}
    given = word.casefold()
    close = difflib.get_close_matches(given, names, n=at_most, cutoff=_NEAR)
    if len(given) >= _BEGINNING_MIN:
        close += [name for name in names if name.startswith(given) and name not in close]
    return [names[name] for name in close[:at_most]]


def did_you_mean(
    word: str, known: Iterable[str], then: str = "", *, form: str = "{}", at_most: int = 1
) -> str:
    """The hint for a word that is not among the known ones: `did you mean x?`, if one is like it; `then` follows."""
    found = [form.format(name) for name in nearest(word, known, at_most)]
    near = f"did you mean {' or '.join(found)}?" if found else ""
    return " ".join(filter(None, (near, then)))
