"""Starting an agent without touching the user's files: its name in a command, and files and a home of the run's own.
What is written into such files is each agent's own matter.
"""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

from outlast.agents.common import versions
from outlast.agents.release import Names

SETTINGS_MAX_BYTES = 4 << 20
ENTRIES_MAX = 10_000
RUNNER_WORDS_MAX = 12
HEAD_BYTES = 512

_RUNNERS = frozenset("npx bunx pnpx pnpm yarn npm bun deno node volta mise uvx uv pipx".split())
_STEPS = frozenset("exec dlx x run tool".split())
# What these runners' own flags take: a word that is not the program.
_VALUED = frozenset("--package --from --with --python --node-options --import --require -p -r".split())
_PYTHON = re.compile(r"(?:pypy|python)[\d.]*")
_VERSIONED = re.compile(r"(?P<name>@?[^@=<>~!\[]+)(?:\[[\w,]*\])?(?:(?:@|[=<>~!]=?).*)?")


def now() -> datetime:
    """The clock of an agent that is given no other."""
    return datetime.now(UTC)


def fresh_id() -> str:
    """A session id, for an agent that takes one."""
    return str(uuid4())


def uuid_or_empty(text: str | None) -> str:
    """The text where it is a UUID, as CLIs write one; empty for any other name of a session."""
    try:
        return str(UUID(text)) if text else ""
    except ValueError:
        return ""


# Programs that become, or wait for, the command that they are given, in the same place: their flags that take a word, and
# how many words of their own stand before the command. `env` counts with assignments alone.
_PREFIXES: Mapping[str, tuple[str, int]] = {
    "env": ("", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n --class --classdata", 0),
    "nohup": ("", 0),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "time": ("-f -o --format --output", 0),
    "timeout": ("-k -s --kill-after --signal", 1),
}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


def prefix(words: Sequence[str]) -> int:
    """How many words of such programs stand before the command itself; 0 where there are none, or none to be seen through."""
    at = 0
    while at < min(len(words), RUNNER_WORDS_MAX):
        name = os.path.basename(words[at])
        if name not in _PREFIXES:
            return at
        after = _behind(words, at, name)
        if after is None or after >= len(words):
            return 0
        at = after
    return 0


def _behind(words: Sequence[str], at: int, name: str) -> int | None:
    values, own = frozenset(_PREFIXES[name][0].split()), _PREFIXES[name][1]
    at += 1
    while at < len(words) and words[at].startswith("-"):
        if name == "env":
            return None  # another folder, or less of the environment: nobody knows then where its files are
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in values else 1
    while name == "env" and at < len(words) and _ASSIGNED.match(words[at]):
        at += 1
    return at + own


def env_assignments(words: Sequence[str]) -> dict[str, str]:
    """The variables that `env` in front of a command sets."""
    pairs = [word.partition("=") for word in words[: prefix(words)] if _ASSIGNED.match(word)]
    return {name: value for name, _, value in pairs}


def start(words: Sequence[str], program: str, names: Names) -> int | None:
    """How many words stand before the agent's own; None if this is not that agent."""
    before = prefix(words)
    if before:
        found = start(words[before:], "", names)
        return None if found is None else before + found
    if not words:
        return None
    first = os.path.basename(words[0])
    if any(names.is_ours(path) for path in (words[0], program, versions.real(program))):
        return 1
    if _PYTHON.fullmatch(first):
        return _module(words, names)
    return _run(words, names) if first in _RUNNERS else None


def _module(words: Sequence[str], names: Names) -> int | None:
    for index, word in enumerate(words[1:RUNNER_WORDS_MAX], start=1):
        if word == "-m":
            return index + 2 if index + 1 < len(words) and words[index + 1] in names.modules else None
        if not word.startswith("-"):
            return index + 1 if os.path.basename(word) in names.programs or names.is_file(word) else None
    return None


def _run(words: Sequence[str], names: Names) -> int | None:
    skipped = False
    for index, word in enumerate(words[1:RUNNER_WORDS_MAX], start=1):
        if skipped or word.startswith("-") or word in _STEPS:
            skipped = word in _VALUED and not skipped
            continue
        found = _VERSIONED.fullmatch(word)
        name = found["name"] if found else word
        known = name in names.packages or name in names.programs or names.is_file(word)
        return index + 1 if known else None
    return None


def is_python(program: str) -> bool:
    """Whether a program is a script that Python runs."""
    try:
        with open(program, "rb") as file:
            head = file.read(HEAD_BYTES).split(b"\n", 3)
    except (OSError, ValueError):
        return False
    # A path too long for a shebang hides behind sh: '''exec' "/very/long/python" "$0" "$@"
    return head[0].startswith(b"#!") and any(b"python" in line for line in head[:2])


def shell(command: Sequence[str]) -> str:
    """A hook's command, for a CLI that gives it to a shell."""
    return shlex.join(command)


def home(ask_environment: Mapping[str, str], variable: str, below: str) -> Path | None:
    """A CLI's own folder: where its variable says, else in the user's home; None where neither is known."""
    named = ask_environment.get(variable, "")
    if named:
        return Path(named)
    user = ask_environment.get("HOME", "")
    return Path(user) / below if user else None


def private(path: Path, data: bytes) -> Path:
    """A file of the run's own, whole or not there, for the user's eyes alone: settings hold keys."""
    part = path.with_name(path.name + ".part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(part, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    os.replace(part, path)
    return path


def settings(path: Path) -> bytes:
    """The content of a settings file of the user's; nothing if it is missing. Raises OSError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(SETTINGS_MAX_BYTES)
    except FileNotFoundError:
        return b""


def overlay(
    folder: Path,
    real: Path,
    own: Mapping[str, bytes],
    *,
    folders: Iterable[str] = (),
    files: Iterable[str] = (),
) -> Path:
    """A folder that is `real` in everything but the files in `own`, by links.

    `folders` and `files` are those that the CLI will make there: made (the folders) or linked beforehand, so that they
    end up in the user's home as without us. A file that the CLI replaced in the overlay by renaming stays.
    """
    real.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in folders:
        (real / name).mkdir(exist_ok=True, mode=0o700)
    present = sorted(entry.name for entry in list(os.scandir(real))[:ENTRIES_MAX])
    for name in {*present, *files} - set(own):
        link = folder / name
        if not os.path.lexists(link):
            link.symlink_to(real / name)
    for name, data in own.items():
        private(folder / name, data)
    return folder


def without_comments(source: str) -> str:
    """JSON without the comments that agents allow in theirs, and without commas before a closing bracket."""
    uncommented = _TOKENS.sub(lambda found: found[0] if found[0].startswith('"') else " ", source)
    return _TRAILING.sub(lambda found: found[1] or found[2], uncommented)


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,\s*([}\]])', re.DOTALL)
