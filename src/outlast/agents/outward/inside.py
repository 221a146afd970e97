"""Tables that a shim's own shell decides by: which beginnings of a call surely cannot reach outside.
They are derived from what `classify` reads; every doubt is left to the client, which classifies.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from outlast.agents.outward.rules import Rule, Rules
from outlast.agents.outward.shell import aliases, runners, tasks

_PATTERN = re.compile(r"[A-Za-z0-9_.:=+/@%,*?-]+")
# Commands that start others, which may find no shim: their words are looked at one by one.
_STARTERS = frozenset("submodule bisect rebase filter-branch difftool mergetool subtree".split())
_OPTIONS_OF_CURL = (".curlrc", "curlrc", ".config/curlrc")


@dataclass(frozen=True, slots=True)
class Beginnings:
    """How a call begins that surely stays inside, whatever follows. All are patterns of sh.

    Before the command stand only options of `values` (each with the word after it) and those with a `=` in them.
    """

    values: tuple[str, ...]
    inside: tuple[str, ...]  # commands that stay inside
    mixed: tuple[str, ...]  # those that do with some second words
    outside: tuple[str, ...]  # FIRST:SECOND of the calls that may not
    hidden: tuple[str, ...] = ()  # words among the first three that say that something else is started


def files(program: str, home: str) -> tuple[str, ...]:
    """The files that make any call of a program an outward one, as `classify` looks for them. Words of sh, between `"`.

    `home`: where these programs look when no variable names a home.
    """
    escaped = re.sub(r'([\\"$`}])', r"\\\1", home)
    own = f"${{HOME-{escaped}}}"
    match program:
        case "curl":
            given = [
                f"${{{name}:+${name}/{file}}}"
                for name in ("CURL_HOME", "XDG_CONFIG_HOME")
                for file in _OPTIONS_OF_CURL
            ]
            return (*given, *(f"{own}/{file}" for file in _OPTIONS_OF_CURL))
        case "wget":
            return (f"${{WGETRC:-{own}/.wgetrc}}",)
        case "aws":
            return (f"{own}/.aws/cli/alias",)
        case _:
            return ()


def beginnings(program: str, known: Rules) -> Beginnings | None:
    """None where no word says by its place alone that a call stays inside."""
    every = [rule for rule in known.of_program(program) if not rule.local]
    if (
        program in _OTHERS
        or program in runners.WRAPPERS
        or any(not rule.commands or _floats(rule) for rule in every)
    ):
        return None
    pairs = {pair for rule in every for pair in _pairs(rule)} | set(_runners(program))
    outside = {f"{first}:{second}" for first, second in pairs}
    mixed = {first for first, _ in pairs}
    if any(not _PATTERN.fullmatch(each) for each in outside):
        return None
    commands = _commands(program)
    inside: Iterable[str] = ("[A-Za-z]*",)
    if commands is not None:
        inside = {each for each in commands - _STARTERS if each not in mixed}
        mixed = mixed & commands
    hidden = ("exec", "x", "dlx") if program in ("npm", "pnpm") else ()
    return Beginnings(
        _values(program, every), tuple(sorted(inside)), tuple(sorted(mixed)), tuple(sorted(outside)), hidden
    )


# Here it is a file of the project, or any of the words, that says what is started.
_OTHERS = (tasks.PROGRAMS - {"npm", "pnpm", "yarn", "bun"}) | frozenset(
    "nix env sudo doas php node ruby deno npx pnpx bunx uvx aws".split()
)


def _floats(rule: Rule) -> bool:
    """Whether its command may stand anywhere among the words."""
    return any(not command or command[0] == ("**",) or "*" in command[0] for command in rule.commands)


def _pairs(rule: Rule) -> Iterable[tuple[str, str]]:
    for command in rule.commands:
        seconds = command[1] if len(command) > 1 and command[1] != ("**",) else ("*",)
        yield from ((first, second) for first in command[0] for second in seconds)


def _runners(program: str) -> Iterable[tuple[str, str]]:
    """What `runners` and `tasks` take for the start of something else."""
    for name in runners.WRAPPERS:
        first, _, rest = name.partition(" ")
        if first == program:
            yield rest.partition(" ")[0], "*"
    if program in runners.CONTAINERS:
        yield from ((each, "*") for each in ("run", "exec", "compose", "container"))
    if program in tasks.PROGRAMS:
        yield from ((each, "*") for each in tasks.STARTING)


def _commands(program: str) -> frozenset[str] | None:
    """The names that are commands of the program's own, where any other may be an alias or a script; None: no other is."""
    if program in ("pnpm", "yarn", "bun"):
        return tasks.OWN
    return aliases.own(program) if program in aliases.COMMANDS else None


def _values(program: str, every: list[Rule]) -> tuple[str, ...]:
    """The options of which all who read the words know that a value follows."""
    sets = [frozenset(rule.values) for rule in every]
    sets += [frozenset(table[program]) for table in (aliases.VALUES, tasks.VALUES) if program in table]
    if program in runners.BEFORE:
        sets.append(frozenset(runners.BEFORE[program].split()))
    if program in runners.CONTAINERS:
        sets.append(runners.CONTAINER_VALUES)
    found = reduce(frozenset.__and__, sets) if sets else frozenset()
    return tuple(sorted(each for each in found if _PATTERN.fullmatch(each)))
