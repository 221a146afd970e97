"""Texts for people: on one line that steers no terminal, with commands that can be pasted, and the nearest known name."""

import re
from collections.abc import Iterable

import msgspec

_COMMAND = re.compile(r"`outlast (?=[a-z])")


def safe(text: object) -> str:
    """The text on one line, with control characters, newlines and direction overrides as escapes."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else _escaped(char) for char in line)


def _escaped(char: str) -> str:
    # A lone surrogate cannot be written to a terminal; its escape can.
    return char.encode("unicode_escape", "surrogatepass").decode()


def short(text: object, chars_max: int) -> str:
    """The beginning of a text, safe and on one line."""
    line = safe(text)
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def count_of(number: int, what: str) -> str:
    """A number and a noun: `1 beat`, `2 beats`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def pasteable(text: str, options: str) -> str:
    """The text with these options added to its `outlast …` commands, so that they work when pasted elsewhere.

    `options` is quoted for the shell, or empty if the commands work as they are. A command that has one is not changed.
    """
    return _COMMAND.sub(lambda found: f"{found[0]}{options} ", text) if options else text


# Errors of ours whose class name stands before the sentence in what is on record.
_OWN_CLASS = re.compile(r"\b(?:CommandFailed|EffectInDoubt|UnreachedEffect): ")


def without_class(evidence: str) -> str:
    """Evidence as a person reads it: the sentence without the name of our class. On disk and in JSON both stand."""
    return _OWN_CLASS.sub("", evidence)


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


# -- what an effect does ---------------------------------------------------------------------------------------------

# Of the input of an agent's call: the field that says what it does, whatever else stands beside it.
_TELLING = ("command", "cmd", "file_path", "path", "filePath", "url", "pattern", "query")


def act_words(name: str, args: bytes) -> str:
    """The act of an intent: `args` is JSON as it was recorded. Of an agent's call, the text that it runs."""
    try:
        given = msgspec.json.decode(args)
    except msgspec.MsgspecError:
        return name
    match given:
        case None:
            parts = []
        case [list(values), dict(named)]:
            parts = [*map(_argument, values), *_named(named)]
        case {"tool": str(tool), **rest}:
            parts = ["" if tool == name else tool, _input(rest.get("input"))]
        case dict(named):
            parts = _named(named)
        case _:
            parts = [_argument(given)]
    return _masked(" ".join([name, *(part for part in parts if part and part not in name)]))


def call_words(tool: str, given: object) -> str:
    """An agent's call: its tool and its request."""
    return _masked(f"{tool} {_input(given)}".strip())


def _input(given: object) -> str:
    if not isinstance(given, dict):
        return "" if given is None else _argument(given)
    value = next((given[field] for field in _TELLING if isinstance(given.get(field), str | list)), given)
    if isinstance(value, list):
        value = " ".join(map(_argument, value))
    return _argument(value) if value != {} else ""


def _named(named: dict[str, object]) -> list[str]:
    return [f"{name}={_argument(each)}" for name, each in named.items()]


def _argument(given: object) -> str:
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _masked(text: str) -> str:
    from outlast.core.secrets import mask  # most commands need none of its tables

    return mask(text)[0]
