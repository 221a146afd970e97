"""Shell text as the simple commands in it, in the order in which they would run. Runs nothing."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlast.agents.outward.targets import git_config

TEXT_MAX = 1 << 20
DEPTH_MAX = 24
COMMANDS_MAX = 4096
WORDS_MAX = 20_000
ARITHMETIC_MAX = 4096
OPEN_MAX = 100

_PLAIN = re.compile(r"[^ \t\r\n;&|()<>'\"`$\\]+")
_QUOTED_PLAIN = re.compile(r"[^\"`$\\]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\+?=(.*)", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SUBSTITUTION = re.compile(r"\\.|\$\(|`", re.DOTALL)
_BACKTICKS = re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL)
_BRACES = re.compile(r"\\.|[{}]|'[^']*'", re.DOTALL)
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[@*]\])?(?::?-[^$`]*)?")
_ANSI_QUOTED = re.compile(r"\$'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_REDIRECTION = re.compile(r"<<<|<<-|<<|<>|<&|<|&>>|&>|>>|>&|>\||>")
_FUNCTION_HEAD = re.compile(r"\([ \t]*\)")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}

# Words that may stand before a command without being one.
_RESERVED = frozenset("if then else elif fi do done while until ! { } esac coproc function".split())
# What tells where a program lies, and which branch is checked out.
_WHICH = (["which"], ["command", "-v"], ["type", "-p"], ["type", "-P"])
_BRANCH = (
    ["git", "branch", "--show-current"],
    ["git", "rev-parse", "--abbrev-ref", "HEAD"],
    ["git", "symbolic-ref", "--short", "HEAD"],
)


class Unparsable(Exception):
    """The text is no shell that we understand, or is nested or long beyond reason."""


class Word(str):
    """One word of a command. Not `known`: it has an expansion in it that only the shell could make."""

    known: bool = True

    @classmethod
    def of(cls, text: str, known: bool) -> "Word":
        word = cls(text)
        word.known = known
        return word


@dataclass(slots=True)
class Simple:
    """A simple command: its words without assignments and redirections, and where and how it would run."""

    words: list[Word]
    cwd: str | None  # None: it went to a folder that we cannot name
    environment: dict[
        str, str
    ]  # what is known of it: what the caller gave, the text set, stood before the command
    piped: bool = False  # reads what the command before it writes
    stdin: bool = False  # reads a file or a here-document
    body: str = ""  # its here-document or here-string
    literal: bool = False  # the body stands as it is written
    writes: bool = False  # into a file, by redirection
    apart: bool = False  # it stands before a `&`: the text may end before it has begun


@dataclass(slots=True)
class Allowance:
    """How many characters may be read in all, so that texts within texts stay bounded together."""

    characters: int = 4 * TEXT_MAX

    def charge(self, text: str) -> None:
        self.characters -= len(text)
        if self.characters < 0:
            raise Unparsable("texts within texts are too long")


@dataclass(slots=True)
class _State:
    """The common state of all scanners of one text."""

    cwd: str | None
    environment: Mapping[str, str]
    allowance: Allowance
    found: list[Simple] = field(default_factory=list)
    variables: dict[str, Sequence[str] | None] = field(default_factory=dict)  # None: set, to we know not what
    words: int = 0
    scanners: int = 0


@dataclass(slots=True)
class _Pending:
    delimiter: str
    strip: bool
    literal: bool
    command: Simple


def simples(text: str, cwd: str | None, environment: Mapping[str, str], allowance: Allowance) -> list[Simple]:
    """The simple commands of the text. Raises Unparsable; takes time in proportion to the text.

    Quotes, substitutions, subshells, here-documents, redirections, loops and functions are understood as far as it takes
    to say which programs are called with which words. A body of a here-document is data. What a variable holds is known
    if the text set it or the caller said so; what a few commands print is known too; other expansions stay as they are
    written. A branch that might not be taken counts as taken.
    """
    if len(text) > TEXT_MAX:
        raise Unparsable(f"longer than {TEXT_MAX} characters")
    allowance.charge(text)
    state = _State(cwd, environment, allowance)
    _Scanner(text, state, 0, 0).run("")
    return state.found


class _Scanner:
    """Reads commands from a place in a text to its end, or to the parenthesis that closes a substitution."""

    def __init__(self, text: str, state: _State, at: int, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise Unparsable(f"nested deeper than {DEPTH_MAX}")
        self.text, self.state, self.at, self.depth = text, state, at, depth
        self.open: list[str | None] = []  # the folder to go back to at the end of each subshell
        self.cases = 0
        self.in_array = False
        state.scanners += 1
        if state.scanners > COMMANDS_MAX:
            raise Unparsable(f"more than {COMMANDS_MAX} substitutions")
        self.pending: list[_Pending] = []
        self._begin(piped=False)

    def _begin(self, *, piped: bool) -> None:
        self.command = Simple([], self.state.cwd, {}, piped=piped)

    # --- commands -----------------------------------------------------------------------------------------------

    def run(self, closing: str) -> int:
        """Read to the end, or past `closing`; where that is."""
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter in " \t\r":
                self.at += 1
            elif letter == "\n":
                self.at += 1
                self._end()
                self._read_bodies()
            elif letter == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif letter in ";|" or (letter == "&" and text[self.at + 1 : self.at + 2] != ">"):
                self._operator(letter)
            elif letter == "(":
                self._open_parenthesis()
            elif letter == ")":
                self.at += 1
                self._end()
                if self.open:
                    self.state.cwd = self.open.pop()
                elif not self.cases and closing == ")":
                    return self.at
                self._begin(piped=False)
            elif letter in "<>&":
                self._redirection()
            else:
                self._take_word()
        self._end()
        if closing:
            raise Unparsable("a substitution is not closed")
        return self.at

    def _operator(self, letter: str) -> None:
        run = 1
        while self.text[self.at + run : self.at + run + 1] == letter:
            run += 1
        if letter == "|" and self.text[self.at + run : self.at + run + 1] == "&":
            run += 1
        doubled = self.text[self.at : self.at + 2] == "||"
        self.at += run
        self._end(piped=letter == "|" and not doubled)
        if letter == "&" and run == 1:
            for each in self.state.found:  # where the part begins that runs apart is not followed
                each.apart = True

    def _open_parenthesis(self) -> None:
        after = _FUNCTION_HEAD.match(self.text, self.at)
        if (
            after and len([word for word in self.command.words if word != "function"]) == 1
        ):  # its body counts as run
            self.at = after.end()
            self._begin(piped=False)
        elif (
            self.text.startswith("((", self.at)
            and not self.command.words
            and (end := self._arithmetic(self.at))
        ):
            self.at = end
        else:
            self.at += 1
            self._end()
            self.open.append(self.state.cwd)
            if len(self.open) > OPEN_MAX:
                raise Unparsable(f"more than {OPEN_MAX} subshells in one another")

    def _arithmetic(self, at: int) -> int:
        """Where the `((` at this place ends, 0 if it is not arithmetic."""
        depth = 0
        for place in range(at, min(len(self.text), at + ARITHMETIC_MAX)):
            letter = self.text[place]
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return place + 1 if self.text[place - 1] == ")" else 0
        return 0

    def _take_word(self) -> None:
        start = self.at
        fields = self._word()
        if self.at < len(self.text) and self.text[self.at] in "<>" and self.text[start : self.at].isdigit():
            return  # the descriptor of a redirection
        if not self.command.words and fields and fields[0] in ("case", "esac"):
            self.cases += 1 if fields[0] == "case" else -min(1, self.cases)
        self.state.words += len(fields)
        if self.state.words > WORDS_MAX:
            raise Unparsable(f"more than {WORDS_MAX} words")
        self.command.words += fields

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
        assert match, "only called at an operator"
        operator = match[0]
        if operator in ("<", ">") and self.text[match.end() : match.end() + 1] == "(":
            self.at = _Scanner(self.text, self.state, match.end() + 1, self.depth + 1).run(")")
            self.command.words.append(Word.of("/dev/fd/63", False))
            return
        self.at = match.end()
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        start = self.at
        fields = self._word() if self.at < len(self.text) else []
        if operator.startswith("<"):
            self.command.stdin = True
        elif not (fields and (fields[0] == "/dev/null" or (operator == ">&" and fields[0].isdigit()))):
            self.command.writes = True
        if operator == "<<<":
            self.command.body += " ".join(fields) + "\n"
        elif operator in ("<<", "<<-"):
            raw = self.text[start : self.at]
            literal = any(mark in raw for mark in "'\"\\")
            self.pending.append(_Pending("".join(fields), operator == "<<-", literal, self.command))

    def _read_bodies(self) -> None:
        for waiting in self.pending:
            lines = []
            while True:
                if self.at >= len(self.text):
                    raise Unparsable(f"the here-document {waiting.delimiter!r} does not end")
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if waiting.strip else line).rstrip("\r") == waiting.delimiter:
                    break
                lines.append(line)
            body = "\n".join(lines) + "\n"
            waiting.command.body += body
            waiting.command.literal = waiting.literal or not any(mark in body for mark in "$`\\")
            if not waiting.literal:
                self._substitutions(body)
        self.pending = []

    def _substitutions(self, text: str) -> None:
        """The commands that a text in double quotes would run."""
        at = 0
        while match := _SUBSTITUTION.search(text, at):
            at = match.end()
            if match[0] == "$(":
                at = _Scanner(text, self.state, at, self.depth + 1).run(")")
            elif match[0] == "`":
                at = self._backticks(text, at)

    def _backticks(self, text: str, at: int) -> int:
        match = _BACKTICKS.match(text, at)
        assert match, "an empty match is a match"
        if text[match.end() : match.end() + 1] != "`":
            raise Unparsable("a backtick is not closed")
        inner = re.sub(r"\\([`$\\])", r"\1", match[0])
        _Scanner(inner, self.state, 0, self.depth + 1).run("")
        return match.end() + 1

    # --- words --------------------------------------------------------------------------------------------------

    def _word(self) -> list[Word]:
        """One word, or the fields that it splits into."""
        text, parts, fields = self.text, _Parts(), []
        while self.at < len(text):
            if plain := _PLAIN.match(text, self.at):
                parts.add(plain[0])
                self.at = plain.end()
                continue
            letter = text[self.at]
            if letter == "\\":
                parts.add("" if text[self.at + 1 : self.at + 2] == "\n" else text[self.at + 1 : self.at + 2])
                self.at += 2
            elif letter == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise Unparsable("a quote is not closed")
                parts.add(text[self.at + 1 : end], quoted=True)
                self.at = end + 1
            elif letter == '"':
                self.at += 1
                fields += self._double_quoted(parts)
            elif letter == "`":
                self._backticked(parts)
            elif letter == "$":
                fields += self._dollar(parts, splits=True)
            elif letter == "(" and not self.in_array and _ARRAY.fullmatch("".join(parts.texts)):
                self._array("".join(parts.texts).rstrip("+="))
                return []
            else:
                break
        return fields + parts.words()

    def _double_quoted(self, parts: "_Parts") -> list[Word]:
        text = self.text
        fields: list[Word] = []
        parts.add("", quoted=True)
        while self.at < len(text):
            if plain := _QUOTED_PLAIN.match(text, self.at):
                parts.add(plain[0])
                self.at = plain.end()
                continue
            letter = text[self.at]
            if letter == '"':
                self.at += 1
                return fields
            if letter == "\\":
                following = text[self.at + 1 : self.at + 2]
                parts.add({"\n": ""}.get(following, following if following in '$`"\\' else "\\" + following))
                self.at += 2
            elif letter == "`":
                self._backticked(parts)
            else:
                fields += self._dollar(parts, splits=False)
        raise Unparsable("a quote is not closed")

    def _dollar(self, parts: "_Parts", *, splits: bool) -> list[Word]:
        """Take an expansion that begins with `$`. Returns the completed fields, if the value splits."""
        text, at = self.text, self.at
        if text.startswith("$((", at) and (end := self._arithmetic(at + 1)):
            self.at = end
            parts.unknown("$((…))")
        elif text.startswith("$(", at):
            before = len(self.state.found)
            self.at = _Scanner(text, self.state, at + 2, self.depth + 1).run(")")
            self._substituted(parts, self.state.found[before:])
        elif text.startswith("${", at):
            return self._braced(parts, splits=splits)
        elif splits and text.startswith("$'", at):
            self._ansi_quoted(parts)
        elif name := _NAME.match(text, at + 1):
            self.at = name.end()
            return self._expand(parts, name[0], f"${name[0]}", splits=splits)
        elif text[at + 1 : at + 2] and text[at + 1] in "@*#?-$!0123456789":
            self.at = at + 2
            parts.unknown(text[at : at + 2])
        else:
            self.at = at + 1
            if not text.startswith('$"', at):
                parts.add("$")
        return []

    def _backticked(self, parts: "_Parts") -> None:
        before = len(self.state.found)
        self.at = self._backticks(self.text, self.at + 1)
        self._substituted(parts, self.state.found[before:])

    def _substituted(self, parts: "_Parts", commands: list[Simple]) -> None:
        """`$(cat <<'END' …)` is how long texts are written: that one is known, and `$(echo words)`, and a few more."""
        only = commands[0] if len(commands) == 1 else None
        words = only.words if only else []
        if only and only.literal and [str(word) for word in words] == ["cat"]:
            text = only.body.rstrip("\n")
        elif (
            only
            and words[:1] == ["echo"]
            and all(word.known and word[:1] not in ("-", "\\") for word in words)
        ):
            text = " ".join(words[1:])
        elif only and (output := self._known_output(only, [str(word) for word in words if word.known])):
            text = output
        else:
            parts.unknown("$(…)")
            return
        self.state.allowance.charge(text)
        parts.add(text, quoted=True)

    def _known_output(self, only: Simple, words: list[str]) -> str:
        """The output of `which PROGRAM` and `git branch --show-current`, empty if unknown."""
        if words[:-1] in _WHICH and len(words) == len(only.words):
            return words[-1]
        gone = any(
            {"checkout", "switch", "branch", "init", "worktree"} & set(each.words)
            for each in self.state.found
            if each is not only and each.words[:1] == ["git"]
        )
        repository = git_config.find(only.cwd, only.environment) if words in _BRANCH and not gone else None
        return repository.branch if repository else ""

    def _braced(self, parts: "_Parts", *, splits: bool) -> list[Word]:
        start, depth, at = self.at, 0, self.at + 1
        for match in _BRACES.finditer(self.text, at):
            depth += (match[0] == "{") - (match[0] == "}")
            if depth == 0:
                at = match.end()
                break
        else:
            raise Unparsable("a brace is not closed")
        inner = self.text[start + 2 : at - 1]
        self.at = at
        self._substitutions(inner)
        simple = _BRACED.fullmatch(inner)
        if simple:
            return self._expand(parts, simple[1], f"${simple[1]}", splits=splits, each="[@]" in inner)
        parts.unknown(self.text[start:at])
        return []

    def _expand(
        self, parts: "_Parts", name: str, written: str, *, splits: bool, each: bool = False
    ) -> list[Word]:
        if name in self.state.variables:
            value = self.state.variables[name]
        else:
            value = [self.state.environment[name]] if name in self.state.environment else None
        if value is None:
            parts.unknown(written)
            return []
        for item in value:
            self.state.allowance.charge(item)
        if splits:
            pieces = [piece for item in value for piece in item.split()]
        else:
            pieces = list(value) if each else [" ".join(value)]
        self.state.words += len(pieces)
        if self.state.words > WORDS_MAX:
            raise Unparsable(f"more than {WORDS_MAX} words")
        done: list[Word] = []
        for number, piece in enumerate(pieces):
            if number:
                done += parts.words()
            parts.add(piece)
        return done

    def _ansi_quoted(self, parts: "_Parts") -> None:
        match = _ANSI_QUOTED.match(self.text, self.at)
        if not match:
            raise Unparsable("a quote is not closed")
        plain = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), match[1], flags=re.DOTALL)
        parts.add(plain, quoted=True)
        self.at = match.end()

    def _array(self, name: str) -> None:
        values: list[Word] = []
        self.at += 1
        self.in_array = True
        while self.at < len(self.text) and self.text[self.at] != ")":
            before = self.at
            values += self._word()
            if self.at == before:
                self.at += 1  # blanks, newlines, and what has no place in a list
        self.at += 1
        self.in_array = False
        known = all(value.known for value in values)
        self.state.variables[name] = values if known and len(values) < COMMANDS_MAX else None

    # --- the end of a command -----------------------------------------------------------------------------------

    def _end(self, *, piped: bool = False) -> None:
        """The command is whole: remember its variables, its folder, and the command itself."""
        command, words = self.command, self.command.words
        command.cwd = self.state.cwd
        while words and words[0] in _RESERVED:
            command.apart = command.apart or words[0] == "coproc"
            del words[: 2 if words[0] == "function" else 1]
        own: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            if words[0].known:
                own[match[1]] = match[2]
            else:
                self.state.variables[match[1]] = None
            del words[0]
        if words or command.body:
            self._note(words)
            known = {
                name: value[0] for name, value in self.state.variables.items() if value and len(value) == 1
            }
            given = {k: v for k, v in self.state.environment.items() if k not in self.state.variables}
            command.environment = {**given, **known, **own}
            if len(self.state.found) >= COMMANDS_MAX:
                raise Unparsable(f"more than {COMMANDS_MAX} commands")
            self.state.found.append(command)
        else:
            self.state.variables.update({name: [value] for name, value in own.items()})
        self._begin(piped=piped)

    def _note(self, words: list[Word]) -> None:
        """Note the changes of a builtin for the commands after it."""
        match [str(word) for word in words]:
            case ["cd" | "pushd", *arguments]:
                self.state.cwd = _gone_to(self.state.cwd, arguments, words, self.state.environment)
            case ["popd", *_]:
                self.state.cwd = None
            case ["export" | "declare" | "local" | "readonly" | "typeset", *_]:
                for word in words[1:]:
                    if match := _ASSIGNMENT.fullmatch(word):
                        self.state.variables[match[1]] = [match[2]] if word.known else None
            case ["for" | "select" | "read", *arguments]:
                for name in arguments[: 1 if words[0] != "read" else None]:
                    self.state.variables[name] = None
            case _:
                pass


def _gone_to(
    cwd: str | None, arguments: list[str], words: list[Word], environment: Mapping[str, str]
) -> str | None:
    places = [word for word in arguments if not word.startswith("-") or word == "-"]
    if len(places) != 1 or places[0] in ("-", "") or not all(word.known for word in words):
        return None
    place = places[0]
    if place.startswith("~"):
        home = environment.get("HOME", "")
        if not home or not place.startswith("~/"):
            return None
        place = os.path.join(home, place[2:])
    if os.path.isabs(place):
        return os.path.normpath(place)
    return os.path.normpath(os.path.join(cwd, place)) if cwd else None


class _Parts:
    """A word while it is read."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.known = True
        self.quoted = False

    def add(self, text: str, *, quoted: bool = False) -> None:
        self.texts.append(text)
        self.quoted = self.quoted or quoted

    def unknown(self, written: str) -> None:
        self.texts.append(written)
        self.known = False

    def words(self) -> list[Word]:
        """The word so far, if there is one; reading goes on with an empty one."""
        text = "".join(self.texts)
        words = [Word.of(text, self.known)] if text or self.quoted else []
        self.texts, self.known, self.quoted = [], True, False
        return words
