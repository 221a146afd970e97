"""The programs that a text, or a list of words, would call: wrappers such as `sudo` and `sh -c` taken off.
Not followed: scripts in files, make, programs that a program calls by itself, containers.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from outlast.agents.outward.shell import parser
from outlast.agents.outward.shell.parser import Allowance, Simple, Unparsable, Word

CALLS_MAX = 4096
NESTED_MAX = 8

SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish".split())
_SHELL_VALUES = ("-o", "+o", "-O", "--rcfile", "--init-file")

# Wrappers: the options of theirs that take a value, and how many words of their own they have before the command.
_WRAPPERS: Mapping[str, tuple[str, int]] = {
    "sudo": ("-u -g -h -p -C -D -R -T -U -r -t --user --group --host --prompt --chdir --role --type", 0),
    "doas": ("-u -C", 0),
    "env": ("-u -C --unset --chdir", 0),
    "nohup": ("", 0),
    "timeout": ("-k -s --kill-after --signal", 1),
    "time": ("-f -o --format --output", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p --class --classdata", 0),
    "chrt": ("", 1),
    "taskset": ("", 1),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "setsid": ("", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "xargs": (
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --replace --max-lines",
        0,
    ),
    "parallel": ("-j -a -I --jobs --arg-file", 0),
    "systemd-run": (
        "-p -u -E -M -H -G -t --unit --property --setenv --uid --gid --nice --working-directory --slice --description "
        "--machine --host --on-active --on-calendar --service-type",
        0,
    ),
    "strace": ("-e -o -p -s -u", 0),
    "ltrace": ("-e -o -p -s -u", 0),
    "unbuffer": ("", 0),
    "chronic": ("", 0),
    "faketime": ("", 1),
    "flock": ("-w -E --timeout", 1),
    "caffeinate": ("-t -w", 0),
    "npx": ("-p -c --package --call", 0),
    "bunx": ("-p --package", 0),
    "uvx": ("--from --with --python -p --index", 0),
    "pipx run": ("--spec --python", 0),
    "uv run": ("--with --python -p --project --directory --extra --group --env-file --index", 0),
    "uv tool run": ("--from --with --python -p", 0),
    "poetry run": ("", 0),
    "pdm run": ("-p", 0),
    "rye run": ("", 0),
    "hatch run": ("", 0),
    "pipenv run": ("", 0),
    "bundle exec": ("", 0),
    "npm exec": ("-p -c --package --call", 0),
    "pnpm exec": ("-C --dir", 0),
    "pnpm dlx": ("--package", 0),
    "yarn dlx": ("-p --package", 0),
    "yarn exec": ("", 0),
    "mise exec": ("-C", 0),
    "dotenv run": ("-f", 0),
}
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

    def deeper(self) -> "_Nesting":
        if self.depth >= NESTED_MAX:
            raise Unparsable(f"shells nested deeper than {NESTED_MAX}")
        return _Nesting(self.depth + 1, self.allowance)


def _from_text(text: str, cwd: str | None, environment: Mapping[str, str], nesting: _Nesting) -> list[Call]:
    found: list[Call] = []
    before: Simple | None = None
    moved = False
    for simple in parser.simples(text, cwd, environment, nesting.allowance):
        fed = simple.piped or simple.stdin
        fed_text = simple.body or (_printed(before) if simple.piped and before else "")
        sent = _sent(simple, before)
        for call in _unwrapped(simple.words, simple.cwd, simple.environment, fed, fed_text, nesting):
            found.append(replace(call, moved=moved, sent=sent if call.fed else None))
            moved = moved or not _leaves_still(call)
        moved = moved or simple.writes
        if len(found) > CALLS_MAX:
            raise Unparsable(f"more than {CALLS_MAX} calls")
        before = simple
    return found


def from_words(
    words: Iterable[str], cwd: str | None, environment: Mapping[str, str], *, fed: bool = False
) -> list[Call]:
    """The calls behind a list of words: one, unless it is a shell with a text. Raises Unparsable."""
    return _unwrapped([Word(word) for word in words], cwd, environment, fed, "", _Nesting(0, Allowance()))


def _sent(simple: Simple, before: Simple | None) -> str | None:
    """What a command reads from its standard input, where nothing but the text itself decides that."""
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


def _leaves_still(call: Call) -> bool:
    if call.program == "git":
        words = [word for word in call.words[1:] if not word.startswith("-")]
        return bool(words) and words[0] in _STILL_GIT
    return call.program in _STILL


def _printed(simple: Simple) -> str:
    """What a command in front of a pipe is known to write."""
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
        if _PYTHON.fullmatch(name) and (module := _module(words)):
            words = module
        elif rest := _wrapped(words, name, variables):
            if name == "flock" and len(rest) > 1 and rest[0] in ("-c", "--command"):
                return _from_text(rest[1], cwd, variables, nesting.deeper())
            words = rest
        else:
            return [Call((Word.of(name, words[0].known), *words[1:]), cwd, variables, fed)]
    return []


def _wrapped(words: list[Word], name: str, variables: dict[str, str]) -> list[Word]:
    """What a wrapper would call, empty if this is none. Assignments of `env` and `sudo` go into the variables."""
    for taken in (3, 2, 1):
        spec = _WRAPPERS.get(" ".join([name, *words[1:taken]])) if len(words) > taken else None
        if spec:
            break
    else:
        return []
    values, own = frozenset(spec[0].split()), spec[1]
    at = taken
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if name == "command" and words[at][1:2] in ("v", "V"):
            return []
        if words[at] == "--":
            at += 1
            break
        if name == "env" and words[at] in ("-S", "--split-string"):
            return [Word(word) for text in words[at + 1 :] for word in text.split()]
        at += 2 if words[at] in values else 1
    at += own
    if name in ("env", "sudo", "doas"):
        while at < len(words) and re.match(r"[A-Za-z_]\w*=", words[at]):
            key, _, value = words[at].partition("=")
            variables[key] = value
            at += 1
    if at < len(words) and words[at] == "--":
        at += 1
    return words[at:]


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


_COMMAND = re.compile(r"-[A-Za-z]*c|--command")
_WATCH_VALUES = ("-n", "--interval", "-q", "--equexit")


def _shell_text(name: str, words: list[Word]) -> str:
    """The text that a program other than a shell hands to one, empty if it does not."""
    if name in ("su", "script", "runuser"):
        for at, word in enumerate(words[:-1], start=1):
            if at > 1 and _COMMAND.fullmatch(word):
                return words[at]
        return next((word.partition("=")[2] for word in words if word.startswith("--command=")), "")
    if name == "trap" and len(words) > 2 and not words[1].startswith("-"):
        return words[1]
    if name == "watch":
        at = 1
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in _WATCH_VALUES else 1
        return " ".join(words[at:])
    return ""


def _from_find(
    words: list[Word], cwd: str | None, variables: Mapping[str, str], nesting: _Nesting
) -> list[Call]:
    calls = [Call(tuple(words), cwd, variables)]
    at = 0
    while at < len(words) and len(calls) < CALLS_MAX:
        if words[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((n for n in range(at + 1, len(words)) if words[n] in (";", "+")), len(words))
            calls += _unwrapped(words[at + 1 : end], cwd, variables, False, "", nesting.deeper())
            at = end
        at += 1
    return calls
