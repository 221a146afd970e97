"""The outward classes as data (classes.toml, and what the user adds), and how a call's words are held against them."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal, get_args

RULES_MAX = 512
LOOPBACK: Mapping[str, object] = {"loopback": "outward"}  # among the tables: this machine counts as outside
# What another content for the same target is while the first call is in doubt: held like the first one, for the target names
# the act; held until the agent says by name that it is another call; or simply another call.
Another = Literal["held", "named", "free"]
HELD: Final = "held"
NAMED: Final = "named"
PATTERN_WORDS_MAX = 8
RESOLVES = frozenset(
    "words ssh copy bucket gradle bq-query mail database far-database production git-push forge http package image".split()
)  # ways of naming a target that `classify` knows
_PROGRAM = re.compile(r"[^\s/\x00-\x1f]+")
_END = "# end of the classes\n"  # the last line of classes.toml: a file that was cut off has it not
_OFF = ("false", "none", "no", "off", "0")  # `--dry-run=false` is no dry run


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[outward]]` table; classes.toml says what each field means."""

    kind: str
    programs: tuple[str, ...] = ()
    commands: tuple[
        tuple[tuple[str, ...], ...], ...
    ] = ()  # alternatives of words, of which each is alternatives
    values: Mapping[str, str] = field(default_factory=dict)  # option -> the name of its alias group
    targets: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    folder: bool = False
    words: int = PATTERN_WORDS_MAX
    resolve: str = "words"
    triggers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    reading: frozenset[str] = frozenset()
    acting: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    local: bool = False
    another: Another = HELD
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """The words of a call, by their kinds."""

    positionals: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]  # by the name of the alias group, without dashes
    flags: frozenset[str]
    harmless: frozenset[str] = frozenset()  # those of them that no later `--no-…` takes back

    def option(self, name: str, default: str = "") -> str:
        """The last value given, which is the one that counts."""
        return self.options.get(name, (default,))[-1]


@dataclass(frozen=True, slots=True)
class Rules:
    """All of them, and where to look first."""

    all: tuple[Rule, ...]
    by_program: Mapping[str, tuple[Rule, ...]]
    loopback: bool = False  # whether what goes to this machine itself counts, as through a tunnel

    @classmethod
    def of(cls, every: Iterable[Rule], *, loopback: bool = False) -> "Rules":
        every = tuple(every)
        names = {name for rule in every for name in rule.programs}
        by_program = {name: tuple(rule for rule in every if name in rule.programs) for name in names}
        return cls(every, by_program, loopback)

    @property
    def programs(self) -> frozenset[str]:
        return frozenset(self.by_program)

    def of_program(self, program: str) -> tuple[Rule, ...]:
        return self.by_program.get(program, ())


def tables(path: str) -> list[Mapping[str, object]]:
    """The `[[outward]]` tables of a user's file. Raises OSError, and ValueError where it holds anything else."""
    with open(path, "rb") as file:
        try:
            data = tomllib.load(file)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    loopback = data.pop("loopback", "") == LOOPBACK["loopback"]  # only in the copy that a run's clients read
    if unknown := sorted(set(data) - {"outward"}):
        raise ValueError(f"it holds {unknown[0]!r:.60}, and only [[outward]] tables mean something")
    found = data.get("outward", [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise ValueError("its tables are written [[outward]], with two brackets")
    return [*found, *([LOOPBACK] if loopback else [])]


def load(extra: Iterable[Mapping[str, object]] = ()) -> Rules:
    """The rules of classes.toml and then the user's tables. A table that is not understood raises ValueError."""
    own, values = _shipped()
    given = list(extra)
    tables = [table for table in given if table != LOOPBACK]
    if len(tables) > RULES_MAX:
        raise ValueError(f"more than {RULES_MAX} [[outward]] tables")
    added = [_rule(table, values) for table in tables]
    return Rules.of((*own.all, *added), loopback=LOOPBACK in given) if given else own


@cache
def _shipped() -> tuple[Rules, Mapping[str, Sequence[str]]]:
    with open(os.path.join(os.path.dirname(__file__), "classes.toml"), "rb") as file:
        text = file.read().decode()
    if not text.endswith(_END):
        raise ValueError("classes.toml was cut off: it does not name every call that reaches outside")
    data = tomllib.loads(text)
    return Rules.of(_rule(table, data["values"]) for table in data["outward"]), data["values"]


_LISTS = (
    "programs",
    "commands",
    "values",
    "targets",
    "unless",
    "only",
    "triggers",
    "tools",
    "reading",
    "acting",
    "identity",
)
_OTHERS = {
    "kind": str,
    "folder": bool,
    "words": int,
    "resolve": str,
    "local": bool,
    "another": str,
    "whole": bool,
}


def _rule(table: Mapping[str, object], values_of: Mapping[str, Sequence[str]]) -> Rule:
    if unknown := sorted(set(table) - set(_LISTS) - set(_OTHERS)):
        raise ValueError(_no_such("field", unknown[0], (*_LISTS, *_OTHERS)))
    for name, kind in _OTHERS.items():
        if name in table and type(table[name]) is not kind:
            raise ValueError(f"[[outward]] {name} is not a {kind.__name__}: {table[name]!r:.60}")
    lists = {name: _texts(name, table.get(name, [])) for name in _LISTS}
    if not table.get("kind") or not (lists["programs"] or lists["tools"]):
        raise ValueError("an [[outward]] table needs kind, and programs or tools")
    _check(table, lists)
    groups = [
        *lists["values"],
        *lists["targets"],
        *(v for p in lists["programs"] for v in values_of.get(p, ())),
    ]
    options = {option: _group_name(group) for group in groups for option in group.split("/")}
    commands = tuple(_pattern(text) for text in lists["commands"])
    others = {name: table[name] for name in _OTHERS if name in table and name != "kind"}
    return Rule(
        str(table["kind"]),
        programs=lists["programs"],
        commands=commands,
        values=options,
        targets=frozenset(_group_name(group) for group in lists["targets"]),
        unless=frozenset(lists["unless"]),
        only=frozenset(lists["only"]),
        triggers=lists["triggers"] or _triggers(commands),
        tools=lists["tools"],
        reading=frozenset(word for text in lists["reading"] for word in text.split("|")),
        acting=frozenset(word for text in lists["acting"] for word in text.split("|")),
        identity=lists["identity"],
        **others,  # type: ignore[arg-type]  # each was held against its type above
    )


def _no_such(what: str, name: str, known: Sequence[str]) -> str:
    from outlast.core.text import did_you_mean

    return (
        f"[[outward]] no such {what}: {name:.60}; {did_you_mean(name, known) or 'known: ' + ', '.join(known)}"
    )


def _check(table: Mapping[str, object], lists: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a rule of the right shape that would guard nothing, or something else than it says."""
    for program in lists["programs"]:
        if not _PROGRAM.fullmatch(program):
            raise ValueError(f"[[outward]] programs: {program!r:.60} is not the plain name of a program")
    if empty := [name for name in _LISTS if "" in lists[name]]:
        raise ValueError(f"[[outward]] {empty[0]} has an empty text in it")
    if table.get("resolve", "words") not in RESOLVES:
        raise ValueError(_no_such("resolve", str(table["resolve"]), sorted(RESOLVES)))
    if table.get("another", HELD) not in get_args(Another):
        raise ValueError(_no_such("another", str(table["another"]), get_args(Another)))
    words = table.get("words", 0)
    if isinstance(words, int) and words < 0:
        raise ValueError(f"[[outward]] words is less than 0: {words}")


def _texts(name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(item, str) and "\n" not in item for item in given):
        raise ValueError(f"[[outward]] {name} is not a list of lines: {given!r:.60}")
    return tuple(given)


def _pattern(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(word.split("|")) for word in text.split()[:PATTERN_WORDS_MAX])


def _group_name(group: str) -> str:
    return max(group.split("/"), key=len).lstrip("-")


def _triggers(commands: tuple[tuple[tuple[str, ...], ...], ...]) -> tuple[str, ...]:
    """A call cannot match a command unless one of its last words is there."""
    if not commands:
        return ("*",)
    last = {word for command in commands for word in (command[-1] if command else ("*",))}
    if "**" in last:
        last = (last - {"**"}) | {word for command in commands for word in command[0]}
    return tuple(sorted(last))


def parse(rule: Rule, words: Sequence[str]) -> Parsed:
    """Options, their values and flags, and the words that are neither."""
    positionals: list[str] = []
    options: dict[str, list[str]] = {}
    flags: set[str] = set()
    harmless: set[str] = set()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            positionals += words[at:]
            break
        if len(word) < 2 or not word.startswith("-"):
            positionals.append(word)
            continue
        name, equals, value = word.partition("=")
        name = whole_option(rule, name)
        given: set[str] = set()
        if equals and name in rule.values:
            options.setdefault(rule.values[name], []).append(value)
            given = {word} if value.lower() in _OFF else {name, word}
        elif not equals and name in rule.values:
            options.setdefault(rule.values[name], []).append(words[at] if at < len(words) else "")
            given = {name, f"{name}={words[at]}"} if at < len(words) else {name}
            at += 1
        elif not word.startswith("--") and word[:2] in rule.values:
            options.setdefault(rule.values[word[:2]], []).append(word[2:])
            given = {word[:2], f"{word[:2]}={word[2:].removeprefix('=')}"}
        else:
            given = {word} if equals and value.lower() in _OFF else {word, name}
        flags |= given
        harmless = set() if _takes_back(rule, word, words[at : at + 1]) else harmless | given
    return Parsed(
        tuple(positionals),
        {name: tuple(values) for name, values in options.items()},
        frozenset(flags),
        frozenset(harmless),
    )


def _takes_back(rule: Rule, word: str, following: Sequence[str]) -> bool:
    """Whether it undoes a flag that makes the call harmless: `--no-dry-run`, a beginning of it, `--dry-run=false`, `--dry-run false`."""
    name, equals, value = word.partition("=")
    if name in rule.unless:
        given = value if equals else following[0] if following else ""
        return given.lower() in _OFF
    no = name.removeprefix("--no-")
    return no not in ("", name) and any(flag.lstrip("-").startswith(no) for flag in rule.unless)


# Programs that take the beginning of an option's name for it, as getopt_long and argparse do.
_ABBREVIATING = frozenset(
    "psql pg_restore mysql mysqlimport mariadb mongorestore twine ansible ansible-playbook ansible-galaxy hg mike ghp-import "
    "kafka-topics kafka-topics.sh aws mongosh mongo mongoimport redis-cli sqlcmd clickhouse-client cqlsh".split()
)
_BEGINNING_MIN = 3


def whole_option(rule: Rule, name: str) -> str:
    """The option with a value that a beginning stands for, where its program takes beginnings and only one has it."""
    if not name.startswith("--") or name in rule.values or len(name) < 2 + _BEGINNING_MIN - 1:
        return name
    if not _ABBREVIATING.issuperset(rule.programs):
        return name
    longer = [option for option in rule.values if option.startswith(name)]
    return longer[0] if len({rule.values[option] for option in longer}) == 1 else name


def matched(rule: Rule, parsed: Parsed) -> int | None:
    """How many of the positionals are the command, None if the rule does not speak of this call."""
    if _excused(rule, parsed) or (rule.only and not any(_is_flag(rule, flag, parsed) for flag in rule.only)):
        return None
    if not rule.commands:
        return 0
    lengths = [_matches(command, parsed.positionals) for command in rule.commands]
    return max((length for length in lengths if length is not None), default=None)


def _excused(rule: Rule, parsed: Parsed) -> bool:
    """Whether a flag says that the rule does not hold. One that excuses from a local rule also does by its beginning."""
    if rule.local:
        return any(_is_flag(rule, flag, parsed, begun=True) for flag in rule.unless)
    return bool(parsed.harmless & rule.unless)


def _is_flag(rule: Rule, flag: str, parsed: Parsed, *, begun: bool = False) -> bool:
    """Whether a flag is there. Where it makes a call outward, so does its beginning, and `*` is as in file names."""
    if flag in parsed.flags:
        return True
    if rule.local and not begun:
        return False
    if "*" in flag:
        return any(fnmatchcase(given[:200], flag) for given in parsed.flags)
    return flag.startswith("--") and any(
        given.startswith("--") and len(given) >= 2 + _BEGINNING_MIN and flag.startswith(given)
        for given in parsed.flags
    )


def _matches(command: tuple[tuple[str, ...], ...], words: Sequence[str]) -> int | None:
    """The length of the shortest beginning of `words` that the pattern matches."""
    places = {0}  # how many words may have been used so far
    for alternatives in command:
        if alternatives == ("**",):
            places = set(range(min(places), min(len(words), PATTERN_WORDS_MAX) + 1))
        else:
            places = {n + 1 for n in places if n < len(words) and _is_one_of(words[n], alternatives)}
        if not places:
            return None
    return min(places)


def _is_one_of(word: str, alternatives: Iterable[str]) -> bool:
    return any(
        word == pattern or ("*" in pattern and fnmatchcase(word[:200], pattern)) for pattern in alternatives
    )


@cache
def mention(programs: frozenset[str]) -> re.Pattern[str]:
    """Finds the name of one of the programs in a text: without one, nothing in it can be outward."""
    longest_first = sorted(programs, key=lambda name: (-len(name), name))
    names = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"(?<![\w.-])(?:{names})(?![\w-])")
