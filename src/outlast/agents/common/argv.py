"""A command line, split by the few flags of its CLI that must be known, and changed without touching the rest.
`joined(split(words, table))` is `words`, whatever they are.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

END = "--"


@dataclass(frozen=True, slots=True)
class Table:
    """The flags that take values. All others take none."""

    valued: frozenset[str] = frozenset()  # one: the next word, or what follows `=`
    optional: frozenset[str] = frozenset()  # the next word, unless that looks like a flag
    listed: frozenset[str] = frozenset()  # every word up to the next flag
    bare: frozenset[str] = frozenset()  # none; known, so that a word after it is not doubtful
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # `-p` → `--print`

    def name(self, spelled: str) -> str:
        return self.aliases.get(spelled, spelled)

    def takes(self, name: str) -> str:
        for kind in ("valued", "optional", "listed", "bare"):
            if name in getattr(self, kind):
                return kind
        return ""


@dataclass(frozen=True, slots=True)
class Part:
    """One flag with its values, several short ones in one word, or a positional word (no names)."""

    words: tuple[str, ...]
    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # of the last name
    doubtful: bool = False  # a word after a flag that we do not know: perhaps its value
    literal: bool = False  # behind `--`


Parts = tuple[Part, ...]


def split(words: Sequence[str], table: Table) -> Parts:
    """The words behind the program, in parts."""
    parts: list[Part] = []
    index, unknown = 0, False
    while index < len(words):
        word = words[index]
        if word == END:
            parts.append(Part((END,), (END,)))
            parts.extend(Part((later,), values=(later,), literal=True) for later in words[index + 1 :])
            break
        if not _is_flag(word):
            parts.append(Part((word,), values=(word,), doubtful=unknown))
            index, unknown = index + 1, False
            continue
        part = _flag(words, index, table)
        parts.append(part)
        index += len(part.words)
        unknown = not part.values and "=" not in word and not table.takes(part.names[-1])
    return tuple(parts)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _flag(words: Sequence[str], index: int, table: Table) -> Part:
    word = words[index]
    if word.startswith("--"):
        spelled, equals, value = word.partition("=")
        name = table.name(spelled)
        if equals:
            return Part((word,), (name,), (value,))
        return _with_values(words, index, (name,), table)
    names: list[str] = []
    for at, letter in enumerate(word[1:], start=1):
        name = table.name("-" + letter)
        takes = table.takes(name)
        if not takes:
            return Part((word,), (table.name(word),)) if at == 1 else Part((word,), (*names, name))
        names.append(name)
        if takes != "bare" and word[at + 1 :]:
            return Part((word,), tuple(names), (word[at + 1 :].removeprefix("="),))
    return _with_values(words, index, tuple(names), table)


def _with_values(words: Sequence[str], index: int, names: tuple[str, ...], table: Table) -> Part:
    takes, end = table.takes(names[-1]), index + 1
    if takes == "valued":
        end = min(index + 2, len(words))
    elif takes == "optional":
        end += end < len(words) and not _is_flag(words[end])
    elif takes == "listed":
        while end < len(words) and not _is_flag(words[end]):
            end += 1
    return Part(tuple(words[index:end]), names, tuple(words[index + 1 : end]))


def with_word(name: str, value: str) -> Part:
    """A flag with its value as two words."""
    return Part((name, value), (name,), (value,))


def with_equals(name: str, value: str) -> Part:
    """A flag with its value in one word, so that no value passes for a flag."""
    return Part((f"{name}={value}",), (name,), (value,))


def literal(prompt: str) -> Parts:
    """A prompt behind `--`: it is never taken for a flag or for one's value."""
    return (Part((END,), (END,)), Part((prompt,), values=(prompt,), literal=True))


def joined(parts: Iterable[Part]) -> tuple[str, ...]:
    return tuple(word for part in parts for word in part.words)


def has(parts: Parts, *names: str) -> bool:
    return any(name in part.names for part in parts for name in names)


def value(parts: Parts, *names: str) -> str | None:
    """The last value of any of these flags, if any."""
    found = [part.values[-1] for part in parts if part.values and part.names and part.names[-1] in names]
    return found[-1] if found else None


def without(parts: Parts, *names: str) -> Parts:
    """The parts without these flags and their values. Short ones are taken out of their word."""
    return tuple(rest for part in parts if (rest := _less(part, names)) is not None)


def _less(part: Part, names: Sequence[str]) -> Part | None:
    gone = [name for name in part.names if name in names]
    if not gone:
        return part
    if len(gone) == len(part.names):
        return None
    letters, names_left = part.words[0][1:], tuple(name for name in part.names if name not in names)
    if part.names[-1] in names:  # with all that belonged to it
        short = "".join(
            letter for letter, name in zip(letters, part.names, strict=False) if name in names_left
        )
        return Part(("-" + short,), names_left)
    dropped = {at for at, name in enumerate(part.names) if name in names}
    short = "".join(letter for at, letter in enumerate(letters) if at not in dropped)
    return replace(part, words=("-" + short, *part.words[1:]), names=names_left)


def positionals(parts: Parts) -> tuple[str, ...]:
    return tuple(part.words[0] for part in parts if not part.names)


def opens_session(parts: Parts, commands: Container[str], elsewhere: Sequence[str]) -> bool:
    """Whether these words start a session here: no subcommand that does something else, no flag that does it elsewhere."""
    first = positionals(parts)[:1]
    return not (first and first[0] in commands) and not has(parts, *elsewhere)


def prompt_at(parts: Parts, skipped: int = 0) -> int | None:
    """Where the prompt stands: the first positional word (after so many) that is not perhaps a flag's value."""
    found = [at for at, part in enumerate(parts) if not part.names][skipped:]
    certain = [at for at in found if not parts[at].doubtful]
    return next(iter(certain or found), None)


def with_prompt(parts: Parts, prompt: str, skipped: int = 0) -> Parts:
    """The parts with another prompt, at the end behind `--`: it is never taken for a flag or for one's value."""
    at = prompt_at(parts, skipped)
    rest = parts if at is None else parts[:at] + parts[at + 1 :]
    if has(rest, END):
        return (*rest, Part((prompt,), values=(prompt,), literal=True))
    return (*rest, *literal(prompt))
