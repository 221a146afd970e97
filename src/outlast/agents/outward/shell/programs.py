"""The programs that a text, or a list of words, would call: wrappers, runners and shells taken off, named scripts followed.
Not followed: scripts in files of their own, and what a program calls by itself.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from outlast.agents.outward.shell import aliases, parser, runners, tasks
from outlast.agents.outward.shell.parser import Allowance, Simple, Unparsable, Word
from outlast.agents.outward.shell.recipes import Task

CALLS_MAX = 4096
NESTED_MAX = 8

_ADD_WORDS = ("xargs", "parallel")  # to the words of what they start, or put others into them
SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish".split())
_SHELL_VALUES = ("-o", "+o", "-O", "--rcfile", "--init-file")

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_PYTHON_VALUES = frozenset(["-W", "-X", "--check-hash-based-pycs"])


@dataclass(frozen=True, slots=True)
class Call:
    """A program and its words (the first is its plain name), where it would run and with what environment."""

    words: tuple[Word, ...]
    cwd: str | None
    environment: Mapping[str, str]
    fed: bool = False  # something is piped or redirected into it
    sent: str | None = None  # what that is, where it is known
    moved: bool = False  # a command before it may change what it would act with: a commit, a build
    apart: bool = False  # nobody waits for it: what started it may end before it has begun

    @property
    def program(self) -> str:
        return self.words[0]


# What may stand before a call in the same text and leaves files and refs as they are.
_STILL = frozenset(
    "cd pushd popd echo printf true false : test [ [[ set export unset ls cat pwd which type command sleep date head "
    "tail wc grep rg stat file id whoami uname env printenv umask trap exit return wait jobs shopt ulimit".split()
)
_STILL_GIT = frozenset(
    "status log diff show fetch remote ls-remote ls-files rev-parse branch config describe blame cat-file".split()
)


def from_text(text: str, cwd: str | None, environment: Mapping[str, str]) -> list[Call]:
    """The calls in a shell text, in order. Raises Unparsable."""
    return _from_text(text, cwd, environment, _Nesting(0, Allowance()))


@dataclass(frozen=True, slots=True)
class _Nesting:
    depth: int
    allowance: Allowance
    followed: set[Task] = field(default_factory=set)  # named scripts of the whole text: each is read once

    def deeper(self) -> "_Nesting":
        if self.depth >= NESTED_MAX:
            raise Unparsable(f"shells nested deeper than {NESTED_MAX}")
        return replace(self, depth=self.depth + 1)


def _from_text(text: str, cwd: str | None, environment: Mapping[str, str], nesting: _Nesting) -> list[Call]:
    found: list[Call] = []
    before: Simple | None = None
    moved = False
    for simple in parser.simples(text, cwd, environment, nesting.allowance):
        fed = simple.piped or simple.stdin
        fed_text = simple.body or (_printed(before) if simple.piped and before else "")
        sent = _sent(simple, before)
        for call in _unwrapped(simple.words, simple.cwd, simple.environment, fed, fed_text, nesting):
            apart = call.apart or simple.apart or _sets_apart(simple.words)
            found.append(replace(call, moved=moved, sent=sent if call.fed else None, apart=apart))
            moved = moved or not _leaves_still(call)
        moved = moved or simple.writes
        if len(found) > CALLS_MAX:
            raise Unparsable(f"more than {CALLS_MAX} calls")
        before = simple
    return found


def from_words(
    words: Iterable[str],
    cwd: str | None,
    environment: Mapping[str, str],
    *,
    fed: bool = False,
    sent: str | None = None,
) -> list[Call]:
    """The calls behind a list of words: one, unless it is a shell with a text. Raises Unparsable.

    `sent` is what comes through the standard input. Nobody knows which of several calls reads it.
    """
    found = _unwrapped([Word(word) for word in words], cwd, environment, fed, "", _Nesting(0, Allowance()))
    return [replace(call, sent=sent) for call in found] if fed and len(found) == 1 else found


def _sent(simple: Simple, before: Simple | None) -> str | None:
    """A command's standard input, if the text alone decides it."""
    if simple.body:
        return simple.body if simple.literal else None
    if (
        not simple.piped
        or before is None
        or before.piped
        or [str(word) for word in before.words[:1]] != ["echo"]
    ):
        return None
    is_plain = all(word.known and not word.startswith("-") and "\\" not in word for word in before.words[1:])
    return " ".join(before.words[1:]) + "\n" if is_plain else None


def _sets_apart(words: list[Word]) -> bool:
    """Whether a command starts another and does not wait for it."""
    name = os.path.basename(words[0]) if words else ""
    return name in ("systemd-run", "screen", "tmux") or (
        "setsid" in words and any(word in ("-f", "--fork") for word in words)
    )


def _leaves_still(call: Call) -> bool:
    if call.program == "git":
        words = [word for word in call.words[1:] if not word.startswith("-")]
        return bool(words) and words[0] in _STILL_GIT and not _changes_refs(words, call.words)
    return call.program in _STILL


_WRITES_REMOTE = frozenset("add set-url remove rm rename set-branches update prune set-head".split())
_WRITES_BRANCH = frozenset("-f -m -M -c -C -d -D --force --move --copy --delete".split())
_LEADING_KEY = re.compile(r"(?:remote|url|branch|push)\.", re.IGNORECASE)


def _changes_refs(words: list[Word], every: tuple[Word, ...]) -> bool:
    """Whether a git command that mostly only looks changes what a later one would push, or where to."""
    match words[0]:
        case "remote":
            return any(word in _WRITES_REMOTE for word in words[1:])
        case "config":
            return any(map(_LEADING_KEY.match, words[1:]))
        case "branch":
            return any(word in _WRITES_BRANCH for word in every)
        case "fetch":
            return any(":" in word and "/" not in word.partition(":")[0] for word in words[1:])
        case _:
            return False


def _printed(simple: Simple) -> str:
    """The known output of a command in front of a pipe."""
    if simple.body:
        return simple.body
    if simple.words and simple.words[0] in ("echo", "printf"):
        return " ".join(word for word in simple.words[1:] if not word.startswith("-")).replace("\\n", "\n")
    return ""


def _unwrapped(
    words: list[Word],
    cwd: str | None,
    environment: Mapping[str, str],
    fed: bool,
    fed_text: str,
    nesting: _Nesting,
) -> list[Call]:
    variables = dict(environment)
    for _ in range(len(words) + 1):
        if not words:
            return []
        name = os.path.basename(words[0])
        if name in SHELLS:
            script = _script(words[1:], fed_text)
            return _from_text(script, cwd, variables, nesting.deeper()) if script else []
        if name == "eval":
            return _from_text(" ".join(words[1:]), cwd, variables, nesting.deeper())
        if command := _shell_text(name, words):
            return _from_text(command, cwd, variables, nesting.deeper())
        if name == "find":
            return _from_find(words, cwd, variables, nesting)
        if name == "cargo" and words[1:2] and words[1].startswith("+"):  # a toolchain of rustup's
            words = [words[0], *words[2:]]
        if longer := aliases.whole(words, name):
            words = longer
            continue
        if meant := aliases.meant(words, name, cwd, variables):
            return _from_text(meant, cwd, variables, nesting.deeper())
        if started := tasks.started(words, name, cwd):
            if started.tasks:
                own = Call((Word.of(name, words[0].known), *words[1:]), cwd, variables, fed)
                return [own, *_from_tasks(started.tasks, variables, nesting)]
            if started.words:
                return _unwrapped(
                    list(started.words), started.cwd, variables, fed, fed_text, nesting.deeper()
                )
        if _PYTHON.fullmatch(name) and (module := _module(words)):
            words = module
        elif tool := _interpreted(name, words):
            words = tool
        elif rest := runners.wrapped(words, name, variables):
            if name == "flock" and len(rest) > 1 and rest[0] in ("-c", "--command"):
                return _from_text(rest[1], cwd, variables, nesting.deeper())
            words = rest if name not in _ADD_WORDS else [Word.of(word, False) for word in rest]
        else:
            return [Call((Word.of(name, words[0].known), *words[1:]), cwd, variables, fed)]
    return []


def _from_tasks(found: Iterable[Task], variables: Mapping[str, str], nesting: _Nesting) -> list[Call]:
    """The calls of named scripts. One that is no shell we understand is looked at word by word, line by line."""
    calls: list[Call] = []
    for task in found:
        if task in nesting.followed or len(calls) > CALLS_MAX:
            continue
        nesting.followed.add(task)
        try:
            calls += _from_text(task.text, task.cwd, variables, nesting.deeper())
        except Unparsable:
            for part in re.split(r"[;&|()\n`{}]+", task.text[: parser.TEXT_MAX])[:CALLS_MAX]:
                if words := [Word(word.strip("'\"$@")) for word in part.split()]:
                    calls.append(Call(tuple(words), task.cwd, variables, moved=True))
    return calls


def _script(words: list[Word], fed_text: str) -> str:
    """The text that a shell is given: by `-c`, or through its standard input; empty if it runs a file."""
    at, commands = 0, False
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        word = words[at]
        commands = (
            commands
            or (word.startswith("-") and not word.startswith("--") and "c" in word)
            or word == "--command"
        )
        at += 2 if word in _SHELL_VALUES else 1
    if commands:
        return words[at] if at < len(words) else ""
    standard_input = at == len(words) or any(word == "-s" for word in words[:at])
    return fed_text if standard_input else ""


def _module(words: list[Word]) -> list[Word]:
    """`python -m NAME …` as NAME and its words."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return words[at + 1 :]
        at += 2 if words[at] in _PYTHON_VALUES else 1
    return []


_INTERPRETERS = frozenset("php node nodejs ruby bun deno".split())
_TOOL_FILE = re.compile(
    r"(?:.*/)?(?:bin|\.bin|exe)/[^/]+|.*node_modules/.+|(?:.*/)?(?:artisan|setup\.py|manage\.py)"
)
_ENDING = re.compile(r"\.(?:js|cjs|mjs|phar|rb)$")
_MAIN_FILES = frozenset("index cli main bin".split())


def _interpreted(name: str, words: list[Word]) -> list[Word]:
    """`php vendor/bin/dep deploy` as `dep deploy`: a tool that its interpreter is given as a file."""
    if len(words) < 2 or not (_PYTHON.fullmatch(name) or name in _INTERPRETERS):
        return []
    if not _TOOL_FILE.fullmatch(words[1]):
        return []
    tool = _ENDING.sub("", os.path.basename(words[1]))
    if tool in _MAIN_FILES and "node_modules/" in words[1]:
        tool = words[1].rpartition("node_modules/")[2].split("/")[0]
    return [Word.of(tool, words[1].known), *words[2:]]


_COMMAND = re.compile(r"-[A-Za-z]*c|--command")
_WATCH_VALUES = ("-n", "--interval", "-q", "--equexit")


def _shell_text(name: str, words: list[Word]) -> str:
    """The text that a program other than a shell hands to one, empty if it does not."""
    if name in ("su", "script", "runuser"):
        for at, word in enumerate(words[:-1], start=1):
            if at > 1 and _COMMAND.fullmatch(word):
                return words[at]
        return next((word.partition("=")[2] for word in words if word.startswith("--command=")), "")
    if name in ("npx", "npm", "pnpm", "nix", "nix-shell", "sops"):
        return _given_text(name, words)
    if name == "concurrently":
        return "\n".join(word for word in words[1:] if not word.startswith("-"))
    if name == "trap" and len(words) > 2 and not words[1].startswith("-"):
        return words[1]
    if name == "watch":
        at = 1
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in _WATCH_VALUES else 1
        return " ".join(words[at:])
    return ""


_TEXT_OPTIONS = {
    "npx": ("-c", "--call"),
    "npm": ("-c", "--call"),
    "pnpm": ("-c", "--shell-mode"),
    "nix": ("-c", "--command"),
    "nix-shell": ("--run", "--command"),
}


def _given_text(name: str, words: list[Word]) -> str:
    """`npx -c TEXT`, `nix develop -c WORDS`, `sops exec-env FILE TEXT`."""
    if name == "sops":
        return words[3] if len(words) == 4 and words[1] == "exec-env" else ""
    if name in ("npm", "pnpm") and not any(word in ("exec", "x", "dlx") for word in words[1:4]):
        return ""
    for at, word in enumerate(words[1:], start=1):
        option, _, value = word.partition("=")
        if option in _TEXT_OPTIONS[name]:
            return value or " ".join(words[at + 1 :] if name == "nix" else words[at + 1 : at + 2])
        if word == "--":
            break
    return ""


def _from_find(
    words: list[Word], cwd: str | None, variables: Mapping[str, str], nesting: _Nesting
) -> list[Call]:
    calls = [Call(tuple(words), cwd, variables)]
    at = 0
    while at < len(words) and len(calls) < CALLS_MAX:
        if words[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((n for n in range(at + 1, len(words)) if words[n] in (";", "+")), len(words))
            started = [Word.of(word, word.known and "{}" not in word) for word in words[at + 1 : end]]
            calls += _unwrapped(started, cwd, variables, False, "", nesting.deeper())
            at = end
        at += 1
    return calls
