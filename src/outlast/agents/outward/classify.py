"""Finds an agent's outward calls, and their acts and targets. Reads small files; standard library only."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from outlast.agents.outward import content, rules
from outlast.agents.outward.rules import Rules
from outlast.agents.outward.shell import programs, runners, tasks
from outlast.agents.outward.shell.parser import Unparsable, Word
from outlast.agents.outward.shell.programs import Call
from outlast.agents.outward.targets import (
    arguments,
    base,
    database,
    forge,
    git,
    git_config,
    hosts,
    http,
    image,
    package,
)
from outlast.agents.outward.targets.base import Matched, ReadBack, Target

__all__ = ["Outward", "ReadBack", "classify", "classify_argv"]

OUTWARD_MAX = 64
WORDS_MAX = 64
WORD_LETTERS_MAX = 256
LOOSE_WORDS_MAX = 64
LOOSE_LETTERS_MAX = 4096
LOOSE_PLACES_MAX = 1000
LOOSE_TEXT_MAX = 4 << 20

_TEXT_KEYS = ("command", "cmd", "script", "commands", "chars", "code")
_FOLDER_KEYS = ("workdir", "cwd", "dir_path", "directory", "working_directory")
_TOOL = re.compile(r"mcp(?:__|[_:.])(.+?)(?:__|[_:./])(.+)", re.DOTALL)
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Outward:
    """One outward command. `words` are for people and cut; they may hold what the user typed, secrets included."""

    kind: str
    signature: str
    words: tuple[str, ...]
    cwd: str
    probe: ReadBack | None = None
    parsed: bool = True
    sure: bool = True  # exit code 0 of its program says that it happened
    content: str = (
        ""  # what it brings to its target, part by part; empty: nothing of that is known before it runs
    )
    another: rules.Another = rules.HELD  # what another content for the same target is
    apart: bool = False  # nobody waits for it: the call may end well before it has begun


# The variables that a call's target is read from, and those that make it go elsewhere than its words say. None holds a
# secret that would not stand in a command line as well.
VARIABLES = (
    "HOME", "XDG_CONFIG_HOME", "CURL_HOME", "GIT_DIR", "GH_HOST", "GH_REPO", "GITLAB_HOST", "GITEA_SERVER_URL", "npm_config_registry",
    "NPM_CONFIG_REGISTRY", "TWINE_REPOSITORY", "TWINE_REPOSITORY_URL", "UV_PUBLISH_URL",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT",
    *(f"GIT_CONFIG_{part}_{number}" for part in ("KEY", "VALUE") for number in range(git_config.GIVEN_MAX)),
    "CARGO_HOME", "JJ_CONFIG", "GH_CONFIG_DIR", "GLAB_CONFIG_DIR", "WGETRC",
    *arguments.STEERING, *database.STAGES, *hosts.PROXIES, *hosts.UNPROXIED, *image.ELSEWHERE, *base.COPY_ELSEWHERE,
)  # fmt: skip

_RESOLVERS: Mapping[str, Callable[[Matched], Target | None]] = {
    "words": base.words,
    "ssh": base.ssh,
    "copy": base.copy,
    "bucket": base.bucket,
    "gradle": base.gradle,
    "bq-query": base.bq_query,
    "mail": base.recipients,
    "database": database.resolve,
    "far-database": database.far,
    "production": database.production,
    "git-push": git.push,
    "forge": forge.resolve,
    "http": http.resolve,
    "package": package.resolve,
    "image": image.resolve,
}


def classify(
    tool: str,
    input: object,  # noqa: A002  # what every agent calls it
    cwd: str | None,
    *,
    environment: Mapping[str, str] = _NOTHING,
    known: Rules | None = None,
) -> list[Outward]:
    """The outward commands in one tool call, in the order in which they would run; none: the call is local.

    `input` is the tool's own: an object, a JSON text of one, or a shell text. `environment` is what the call would
    run with, as far as known. `known` comes from `rules.load`, with the user's tables; else the shipped ones.

    Never raises. A text that cannot be understood is searched for the names of programs, and `parsed` is false.
    """
    known = known or rules.load()
    given = _object(input)
    if server := _TOOL.fullmatch(tool):
        return _of_tool(tool, server, given, str(cwd or ""), known)
    found: list[Outward] = []
    folder = _folder(given, cwd)
    for text in _texts(input, given):
        if isinstance(text, str):
            found += _of_text(text, folder, environment, known)
        else:
            found += classify_argv(text, folder, environment=environment, known=known)
    return found[:OUTWARD_MAX]


def runs_text(given: object) -> bool:
    """Whether a tool with this input runs programs: below it shims may see some."""
    return any(True for _ in _texts(given, _object(given)))


def classify_argv(
    argv: Sequence[str],
    cwd: str | None,
    *,
    environment: Mapping[str, str] = _NOTHING,
    known: Rules | None = None,
    fed: bool = False,
    sent: str | None = None,
) -> list[Outward]:
    """The same for a program that is about to be called with these words.

    `fed`: with data on its standard input. `sent`: these data, where somebody has read them.
    """
    known = known or rules.load()
    try:
        found = programs.from_words(argv, cwd, environment, fed=fed, sent=sent)
    except Unparsable:
        return _loose(" ".join(argv), cwd, environment, known)
    return _of_calls(found, known)


# --- what a tool is given -------------------------------------------------------------------------------------------


def _object(given: object) -> Mapping[str, object]:
    if isinstance(given, str) and given[:1] == "{":
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    if isinstance(given, Mapping):
        inner = given.get("action")
        return inner if isinstance(inner, Mapping) and "command" in inner else given
    return {}


def _texts(given: object, fields: Mapping[str, object]) -> Iterator[str | list[str]]:
    if isinstance(given, str) and not fields:
        yield given
    for key in _TEXT_KEYS:
        value = fields.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            if key == "commands":
                yield from value
            elif value:
                yield list(value)


def _folder(fields: Mapping[str, object], cwd: str | None) -> str | None:
    cwd = str(cwd) if cwd else None
    for key in _FOLDER_KEYS:
        value = fields.get(key)
        if isinstance(value, str) and value:
            return os.path.normpath(os.path.join(cwd or "/", value)) if cwd or os.path.isabs(value) else None
    return cwd


# --- shell ----------------------------------------------------------------------------------------------------------


def _of_text(text: str, cwd: str | None, environment: Mapping[str, str], known: Rules) -> list[Outward]:
    if not _mention(known.programs).search(text):
        return []
    try:
        found = programs.from_text(text, cwd, environment)
    except Unparsable:
        return _loose(text, cwd, environment, known)
    return _of_calls(found, known)


@cache
def _mention(named: frozenset[str]) -> re.Pattern[str]:
    """Finds a program that reaches outside, or one that may start such a one by another name."""
    return rules.mention(named | runners.FETCHERS | tasks.PROGRAMS | {"git"})


_BUMPERS = frozenset("bumpversion bump2version bump-my-version standard-version changeset cz tbump".split())
_MANIFESTS = ("package.json", "pyproject.toml", "Cargo.toml")


def _of_calls(found: list[Call], known: Rules) -> list[Outward]:
    """Remembers what earlier calls of the same text change for later ones: the branch, the version."""
    outward: list[Outward] = []
    branches: dict[str | None, str] = {}
    bumped = False
    for call in found:
        if (one := _of_call(call, known, branches.get(call.cwd, ""), bumped)) and len(outward) < OUTWARD_MAX:
            outward.append(one)
        if call.program == "git" and (branch := git.branch_after(call.words, call.cwd, call.environment)):
            branches[call.cwd] = branch
        bumped = bumped or _bumps(call)
    return outward


def _bumps(call: Call) -> bool:
    if call.program in _BUMPERS or "version" in call.words[1:3]:
        return True
    return call.program in ("sed", "jq", "tee", "perl") and any(
        word.endswith(_MANIFESTS) for word in call.words
    )


def _of_call(call: Call, known: Rules, branch: str, bumped: bool, *, parsed: bool = True) -> Outward | None:
    for rule in reversed(known.of_program(call.program)):
        words = rules.parse(rule, call.words[1:])
        length = rules.matched(rule, words)
        if length is None:
            continue
        if rule.local:
            return None
        matched = Matched(
            call, rule, words, words.positionals[:length], words.positionals[length:], branch, bumped
        )
        found = _resolved(matched)
        if found is None or (parsed and not known.loopback and _stays_here(found)):
            return None
        shown = tuple(word[:WORD_LETTERS_MAX] for word in call.words[:WORDS_MAX])
        return Outward(
            found.kind or rule.kind, found.signature, shown, call.cwd or "", found.probe, parsed, found.sure,
            found.content if parsed else "", found.another or rule.another, call.apart,
        )  # fmt: skip
    return None


def _stays_here(found: Target) -> bool:
    """Whether it goes to this machine and nowhere else."""
    return bool(found.hosts) and all(map(hosts.is_loopback, found.hosts))


def _resolved(matched: Matched) -> Target | None:
    """A way of naming that fails on strange words must not let the call pass."""
    resolver = _RESOLVERS[matched.rule.resolve]
    try:
        return resolver(matched)
    except (ValueError, IndexError, KeyError, OSError, RecursionError):
        return base.words(matched)


_SEPARATORS = re.compile(r"[;&|()\n`{}]+")
_STRIPPED = "'\"$\\"
_LONE_AND = re.compile(r"(?<![&<>|])&(?![&>])")


def _loose(text: str, cwd: str | None, environment: Mapping[str, str], known: Rules) -> list[Outward]:
    """The possible outward calls in a text that we cannot parse as shell: wherever a program's name stands."""
    found: list[Outward] = []
    apart = bool(_LONE_AND.search(text, 0, LOOSE_TEXT_MAX))
    places = rules.mention(known.programs).finditer(text, 0, LOOSE_TEXT_MAX)
    for number, place in enumerate(places):
        if number >= LOOSE_PLACES_MAX or len(found) >= OUTWARD_MAX:
            break
        segment = _SEPARATORS.split(text[place.end() : place.end() + LOOSE_LETTERS_MAX], maxsplit=1)[0]
        words = [word for word in (raw.strip(_STRIPPED) for raw in segment.split()) if word]
        read = (Word(place[0]), *map(Word, words[:LOOSE_WORDS_MAX]))
        call = Call(read, cwd, environment, moved=True, apart=apart)
        if one := _of_call(call, known, "", True, parsed=False):
            found.append(one)
    else:
        if len(text) <= LOOSE_TEXT_MAX:
            return found
    # Longer than we look is not the same as harmless.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return [*found[: OUTWARD_MAX - 1], Outward("unread", f"unread {digest}", (), cwd or "", parsed=False)]


# --- an agent's own tools -------------------------------------------------------------------------------------------

_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def _of_tool(
    tool: str, match: re.Match[str], given: Mapping[str, object], cwd: str, known: Rules
) -> list[Outward]:
    server, name = match[1], match[2]
    for rule in reversed(known.all):
        if not any(fnmatchcase(tool[:WORD_LETTERS_MAX], pattern) for pattern in rule.tools):
            continue
        words = [word.lower() for word in _NAME_WORDS.findall(name[:WORD_LETTERS_MAX])]
        if rule.local or (_only_reads(words, rule) and not _changes(given)):
            return []
        shown = (tool[:WORD_LETTERS_MAX],)
        if found := _on_forge(words, given):
            return [Outward(found.kind, found.signature, shown, cwd, found.probe, content=found.content)]
        keys = [key for key in rule.identity if isinstance(given.get(key), str | int)]
        parts = [f"{key}={given[key]!s:.80}" for key in keys]
        signature = base.joined("mcp", server, name, *parts)
        return [Outward(rule.kind, signature, shown, cwd, content=_of_fields(given), another=rule.another)]
    return []


def _of_fields(given: Mapping[str, object]) -> str:
    """The digest of what a tool is given."""
    try:
        return content.of(
            given=json.dumps(given, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
        )
    except (ValueError, TypeError, RecursionError):
        return ""


def _only_reads(words: list[str], rule: rules.Rule) -> bool:
    """Whether a name says so: by its first word, unless an `and` or `or` adds an act (`get_or_create_page`)."""
    added = next((words[at:] for at, word in enumerate(words) if at and word in ("and", "or", "then")), [])
    if not words or rule.acting & set(added):
        return False
    if words[0] in rule.reading:
        return True
    return not rule.acting & set(words) and bool(rule.reading & set(words))


def _changes(given: Mapping[str, object]) -> bool:
    """Whether a fetching tool is asked to send."""
    method = given.get("method")
    return isinstance(method, str) and method.upper() in ("POST", "PUT", "PATCH", "DELETE")


def _on_forge(words: list[str], given: Mapping[str, object]) -> Target | None:
    """The tools that GitHub's and Gitea's servers have: their acts are those of gh, with the same signatures."""
    owner, repo = given.get("owner"), given.get("repo")
    if not isinstance(owner, str) or not isinstance(repo, str):
        return None
    place = forge.Place(f"{owner}/{repo}")
    title, body, head = (str(given.get(key) or "") for key in ("title", "body", "head"))
    texts = forge.texts_of(title, body)
    numbers = [
        given[k] for k in ("issue_number", "issueNumber", "pull_number", "pullNumber", "index") if k in given
    ]
    if "comment" in words and "review" not in words and numbers:
        return forge.act(place, "comment", str(numbers[0]), texts)
    if words == ["create", "issue"]:
        return forge.act(place, "issue-create", "", texts)
    if words == ["create", "pull", "request"]:
        return forge.act(place, "pr-create", head or "*", texts)
    if words == ["merge", "pull", "request"] and numbers:
        return forge.act(place, "merge", str(numbers[0]), texts)
    return None
