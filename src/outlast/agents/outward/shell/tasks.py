"""The shell texts behind a script's name: `npm run deploy`, `pnpm deploy`, `turbo run deploy`, `composer deploy`, `poe deploy`.
Reads project files, runs nothing. Files with a syntax of their own (make, just, Taskfile) are read by `recipes.py`.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from outlast.agents.outward.shell import recipes
from outlast.agents.outward.shell.parser import Word
from outlast.agents.outward.shell.recipes import Task, read

PACKAGES_MAX = 200
PARENTS_MAX = 64


@dataclass(frozen=True, slots=True)
class Started:
    """The things that a call starts: named scripts, or another program in its place (`pnpm changeset publish`)."""

    tasks: tuple[Task, ...] = ()
    words: tuple[Word, ...] = ()
    cwd: str = ""  # where those words run


def started(words: Sequence[Word], name: str, cwd: str | None) -> Started | None:
    """The scripts that this call starts by a name in a file; None: it is no runner of scripts, or starts nothing by name."""
    reader = _READERS.get(name)
    if reader is None or not cwd or not os.path.isabs(cwd):
        return None
    try:
        return reader(list(words), cwd)
    except (ValueError, KeyError, TypeError, IndexError, OSError, RecursionError):
        return None


# --- package.json ---------------------------------------------------------------------------------------------------

VALUES: Mapping[str, frozenset[str]] = {
    "npm": frozenset(
        "-C --prefix -w --workspace --registry --userconfig --loglevel --tag --access --otp".split()
    ),
    "pnpm": frozenset("-C --dir -F --filter --filter-prod --registry --loglevel --reporter".split()),
    "yarn": frozenset("--cwd --registry --from --include --exclude -j --jobs".split()),
    "bun": frozenset("--cwd --filter -F -c --config --env-file".split()),
}
_FOLDERS = frozenset(["-C", "--prefix", "--dir", "--cwd"])
_FILTERS = frozenset(["-w", "--workspace", "-F", "--filter", "--filter-prod", "--include"])
_EVERY = frozenset(["-r", "--recursive", "--workspaces", "-ws", "--all", "-A", "-W"])
_RUN = frozenset(["run", "run-script", "rum", "urn"])
_OF_THEIR_OWN: Mapping[str, str] = {"t": "test", "tst": "test", "test": "test", "start": "start", "stop": "stop", "restart": "restart"}  # fmt: skip
_LIFECYCLE: Mapping[str, tuple[str, ...]] = {
    "version": ("preversion", "version", "postversion"),
    "publish": ("prepublishOnly", "prepack", "postpack", "publish", "postpublish"),
}
# The commands by which a package manager starts scripts, of this package or of others.
STARTING = _RUN | frozenset([*_OF_THEIR_OWN, *_LIFECYCLE, "workspace", "workspaces"])
# Commands of pnpm, yarn or bun themselves.
COMMANDS = frozenset(
    "add audit bin cache ci config create dedupe deploy-key dist-tag doctor env exec explain fetch fund help import info init "
    "install i instal isntall link list ls la ll licenses login logout npm outdated owner pack patch patch-commit plugin plugins "
    "prune publish rebuild remove rm root search server set setup store tag team unlink uninstall un up update upgrade "
    "upgrade-interactive version versions view whoami why workspaces workspace global generate-lock-entry policies constraints "
    "stage node pm repl build-scripts autoclean check dlx x".split()
)
# Of these a script of the same name is started by `run` alone, whichever of the three it is, and of whatever age. Any other one
# is a script's name to some of them (`pnpm check`, `bun stage`).
OWN = frozenset(
    "add audit cache config create exec info init install i instal isntall link outdated pack publish remove rm unlink un "
    "uninstall up update upgrade version view why dlx x".split()
)


@dataclass(slots=True)
class _Manager:
    """The words that may stand between a package manager and its command."""

    name: str
    at: int = 1
    folder: str = ""
    filters: tuple[str, ...] = ()
    every: bool = False


def _package_manager(words: list[Word], cwd: str) -> Started | None:
    manager = _options(words, os.path.basename(words[0]), cwd)
    if manager.at >= len(words):
        return None
    command, rest = words[manager.at], words[manager.at + 1 :]
    if manager.name == "yarn" and command == "workspace" and len(rest) > 1:
        folder = next(iter(_packages(manager.folder, (rest[0],))), manager.folder)
        return Started(words=(words[0], *rest[1:]), cwd=folder)
    if manager.name == "yarn" and command == "workspaces" and rest:
        rest = rest[1:]
        after = _options([words[0], *rest], "yarn", cwd)
        return Started(words=(words[0], *rest[after.at - 1 :]), cwd=manager.folder)
    if command in _RUN:
        after = _options([words[0], *rest], manager.name, manager.folder)
        rest = rest[after.at - 1 :]
        manager.filters += after.filters
        manager.every = manager.every or after.every
        return _scripts(manager, rest[0], rest[1:], anew=True) if rest else None
    if command in _LIFECYCLE:
        names = _LIFECYCLE[command]
        return Started(tuple(task for name in names for task in _of_package(manager.folder, name, "")))
    if manager.name == "npm":
        own = _OF_THEIR_OWN.get(command)
        return _scripts(manager, Word(own), rest, anew=True) if own else None
    if command in OWN:
        return None
    found = _scripts(manager, command, rest, anew=False)
    return found if command not in COMMANDS or (found is not None and found.tasks) else None


def _options(words: Sequence[Word], name: str, cwd: str) -> _Manager:
    found, values = _Manager(name, folder=cwd), VALUES[name]
    while found.at < len(words) and words[found.at].startswith("-"):
        option, equals, value = words[found.at].partition("=")
        if not equals and option in values:
            value = words[found.at + 1] if found.at + 1 < len(words) else ""
            found.at += 1
        found.at += 1
        if option in _FOLDERS and value:
            found.folder = os.path.normpath(os.path.join(found.folder, value))
        elif option in _FILTERS and value:
            found.filters += (value,)
        found.every = found.every or option in _EVERY
    return found


def _scripts(manager: _Manager, name: Word, rest: Sequence[Word], *, anew: bool) -> Started | None:
    """The script of that name in the package, or in those that were chosen; else the program of that name."""
    if manager.filters or manager.every:
        folders = [manager.folder, *_packages(manager.folder, manager.filters)]
    else:
        folders = [manager.folder]
    rest = [word for at, word in enumerate(rest) if word not in ("--", "--if-present") or at]
    found = [task for folder in folders for task in _of_package(folder, name, quoted(rest))]
    if found:
        return Started(tuple(found))
    return None if anew and manager.name == "npm" else Started(words=(name, *rest), cwd=folders[-1])


_PLAIN = re.compile(r"[$]?[{]?[\w./:=@-]+[}]?")


def quoted(words: Sequence[str]) -> str:
    """The words as they would be typed, each after a blank."""
    return "".join(f" {word if _PLAIN.fullmatch(word) else shlex.quote(word)}" for word in words)


def _of_package(folder: str, name: str, rest: str) -> Iterator[Task]:
    place, package = _package(folder)
    scripts = package.get("scripts")
    if not isinstance(scripts, dict) or not isinstance(scripts.get(name), str):
        return
    for each, more in ((f"pre{name}", ""), (name, rest), (f"post{name}", "")):
        if isinstance(text := scripts.get(each), str) and text:
            yield Task(f"{place}/package.json {each}", text + more, place)


def _package(folder: str) -> tuple[str, Mapping[str, object]]:
    """The nearest package.json from here upwards."""
    for place in _upwards(folder):
        path = os.path.join(place, "package.json")
        if os.path.isfile(path):
            return place, _json(path)
    return folder, {}


def _upwards(folder: str) -> Iterator[str]:
    for _ in range(PARENTS_MAX):
        yield folder
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _packages(folder: str, filters: Sequence[str] = ()) -> list[str]:
    """The folders of the workspace's packages, those that a filter names first, else all."""
    import glob  # few calls need it, and every shim would pay for it

    root, patterns = folder, ["packages/*", "apps/*"]
    for place in _upwards(folder):
        given = _json(os.path.join(place, "package.json")).get("workspaces")
        given = given.get("packages") if isinstance(given, dict) else given
        if isinstance(given, list):
            root, patterns = place, [str(each) for each in given]
            break
        if text := read(os.path.join(place, "pnpm-workspace.yaml")):
            root, patterns = place, re.findall(r"^\s*-\s*['\"]?([^'\"!\s]+)", text, re.MULTILINE)
            break
    found: dict[str, str] = {}
    for pattern in patterns:
        for path in glob.iglob(
            os.path.join(glob.escape(root), pattern.strip("/"), "package.json"), recursive=True
        ):
            if len(found) < PACKAGES_MAX and "node_modules" not in path:
                found[os.path.dirname(path)] = str(_json(path).get("name", ""))
    wanted = [each.strip(".^{}!").rstrip("/") for each in filters]
    named = [
        place
        for place, name in found.items()
        if any(each in (name, name.rpartition("/")[2], os.path.relpath(place, root)) for each in wanted)
    ]
    return named or list(found)


def _everywhere(words: list[Word], cwd: str) -> Started | None:
    """`turbo run a b`, `lerna run a`, `nx run-many -t a`, `nx run app:a`: scripts of that name in every package."""
    names = [
        word for word in words[1:] if not word.startswith("-") and word not in ("run", "run-many", "affected")
    ]
    parts = [part for word in names for part in re.split(r"[:,#]", word)]
    folders = dict.fromkeys([_package(cwd)[0], *_packages(cwd)])
    found = [task for name in parts for folder in folders for task in _of_package(folder, name, "")]
    return Started(tuple(found)) if found else None


def _run_all(words: list[Word], cwd: str) -> Started | None:
    """`npm-run-all build deploy:*`, `run-s`, `run-p`."""
    place, package = _package(cwd)
    scripts = package.get("scripts")
    names = list(scripts) if isinstance(scripts, dict) else []
    chosen = [
        name
        for word in words[1:]
        if not word.startswith("-")
        for name in names
        if re.fullmatch(re.escape(word.split(" ")[0]).replace(r"\*\*", ".*").replace(r"\*", "[^:]*"), name)
    ]
    return Started(tuple(task for name in chosen for task in _of_package(place, name, "")))


# --- other files ----------------------------------------------------------------------------------------------------


def _deno(words: list[Word], cwd: str) -> Started | None:
    if len(words) < 3 or words[1] != "task":
        return None
    for place in _upwards(cwd):
        for name in ("deno.json", "deno.jsonc"):
            tasks = _json(os.path.join(place, name)).get("tasks")
            if isinstance(tasks, dict) and (text := tasks.get(words[2])):
                text = text.get("command", "") if isinstance(text, dict) else text
                return Started((Task(f"{place}/{name} {words[2]}", text + quoted(words[3:]), place),))
    return _scripts(_Manager("deno", folder=cwd), words[2], words[3:], anew=True)


def _composer(words: list[Word], cwd: str) -> Started | None:
    names = [word for word in words[1:] if not word.startswith("-") and word not in ("run-script", "run")]
    for place in _upwards(cwd):
        scripts = _json(os.path.join(place, "composer.json")).get("scripts")
        if isinstance(scripts, dict):
            return Started(tuple(_of_composer(scripts, names[0] if names else "", place, set())))
    return None


def _of_composer(scripts: Mapping[str, object], name: str, place: str, seen: set[str]) -> Iterator[Task]:
    given = scripts.get(name, [])
    if name in seen:
        return
    seen.add(name)
    for text in given if isinstance(given, list) else [given]:
        if not isinstance(text, str) or text.startswith("@putenv"):
            continue
        first = text.split(" ")[0]
        if first in ("@php", "@composer"):
            yield Task(f"{place}/composer.json {name}", text[1:], place)
        elif first.startswith("@"):
            yield from _of_composer(scripts, first[1:], place, seen)
        else:
            yield Task(f"{place}/composer.json {name}", text, place)


_TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "poe": ("pyproject.toml", ("tool", "poe", "tasks")),
    "pdm": ("pyproject.toml", ("tool", "pdm", "scripts")),
    "rye": ("pyproject.toml", ("tool", "rye", "scripts")),
    "hatch": ("pyproject.toml", ("tool", "hatch", "envs", "default", "scripts")),
    "pixi": ("pixi.toml", ("tasks",)),
    "pipenv": ("Pipfile", ("scripts",)),
    "mise": ("mise.toml", ("tasks",)),
}


def _toml_table(words: list[Word], cwd: str) -> Started | None:
    """Scripts of Python's tools and of mise: a text, a list of texts, or a table with one of them in it."""
    program = os.path.basename(words[0])
    names = [word for word in words[1:] if not word.startswith("-")]
    if program != "poe":
        if names[:1] not in (["run"], ["r"]):
            return None
        names = names[1:]
    if not names:
        return None
    file, keys = _TABLES[program]
    for place in _upwards(cwd):
        table: object = _toml(os.path.join(place, file))
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and table:
            name = names[0].rpartition(":")[2] if program == "hatch" else names[0]
            rest = words[words.index(names[0]) + 1 :]
            texts = list(_toml_texts(table, table.get(name), 0))
            return (
                Started(tuple(Task(f"{place}/{file} {name}", text + quoted(rest), place) for text in texts))
                if texts
                else None
            )
    return None


def _toml_texts(table: Mapping[str, object], given: object, depth: int) -> Iterator[str]:
    if depth > 8:
        return
    if isinstance(given, str):
        if given in table and depth:
            yield from _toml_texts(table, table[given], depth + 1)
        else:
            yield given
    elif isinstance(given, list):
        for each in given:
            yield from _toml_texts(table, each, depth + 1)
    elif isinstance(given, dict):
        for key in ("depends", "deps", "cmd", "shell", "run", "sequence", "composite", "ref"):
            yield from _toml_texts(table, given.get(key, []), depth + 1)


def _json(path: str) -> Mapping[str, object]:
    text = read(path)
    if path.endswith("c"):
        text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(path: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(read(path))
    except (ValueError, RecursionError):
        return {}


def _recipes(words: list[Word], cwd: str) -> Started | None:
    found = recipes.started(os.path.basename(words[0]), words, cwd)
    return Started(tuple(found)) if found else None


_READERS: Mapping[str, Callable[[list[Word], str], Started | None]] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _package_manager),
    **dict.fromkeys(("turbo", "lerna", "nx", "rush", "rushx"), _everywhere),
    **dict.fromkeys(("npm-run-all", "npm-run-all2", "run-s", "run-p"), _run_all),
    **dict.fromkeys(_TABLES, _toml_table),
    **dict.fromkeys(recipes.PROGRAMS, _recipes),
    "deno": _deno,
    "composer": _composer,
}
PROGRAMS = frozenset(_READERS)

# What a shim of these looks for (patterns of sh). yarn, pnpm and bun take any script's name for a command. The others
# start too often to be asked about each time: only where a name sounds like an act.
_ACTS = tuple(
    f"*{word}*"
    for word in "deploy publish release upload push ship prod stag migrat notify announce live send".split()
)
_ANY = frozenset("yarn pnpm bun".split())
_NPM = ("run", "run-script", "rum", "urn", "version", "test", "tst", "t", "start", "stop", "restart")


def triggers(program: str) -> tuple[str, ...]:
    """The patterns that a shim of this runner of scripts looks for among its words; none: it is no such runner."""
    if program in _ANY:
        return ("*",)
    if program == "npm":
        return _NPM
    return _ACTS if program in PROGRAMS else ()
