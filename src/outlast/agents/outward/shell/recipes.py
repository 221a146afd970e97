"""The shell texts behind a target: Makefile, justfile, Taskfile. Reads these files and runs nothing.
What only the tool itself could compute (functions of make, templates) stays in the text as an unknown variable.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

FILE_MAX = 1 << 18
TASKS_MAX = 200
TEXT_MAX = 1 << 16
EXPANSIONS_MAX = 10
INCLUDES_MAX = 20
PARENTS_MAX = 64


@dataclass(frozen=True, slots=True)
class Task:
    """A shell text that would run in a folder. `key` names it, so that one that calls itself is followed once."""

    key: str
    text: str
    cwd: str


@dataclass(slots=True)
class _Rule:
    needs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def read(path: str) -> str:
    """A small file's text, empty if it cannot be read or is large."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_MAX + 1)
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8", "replace") if len(data) <= FILE_MAX else ""


def started(program: str, words: Sequence[str], cwd: str) -> list[Task]:
    """The texts that these words would run, in order."""
    return _PROGRAMS[program](words, cwd)


# --- make -----------------------------------------------------------------------------------------------------------

_MAKE_VALUES = frozenset(
    "-C --directory -f --file --makefile -I --include-dir -o --old-file -W --what-if --new-file -l -E --eval -O".split()
)
_MAKE_DRY = re.compile(
    r"-[a-zA-Z]*[nqt][a-zA-Z]*|--dry-run|--just-print|--recon|--question|--touch|--version|--help"
)
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_SETS = re.compile(r"\s*(?:export\s+|override\s+)?([A-Za-z_][\w.-]*)\s*(\?=|:{1,3}=|\+=|!=|=)\s*(.*)")
_RULE = re.compile(r"([^\s:#=][^:#=]*?)\s*::?(?!=)\s*([^;#]*)(?:;(.*))?")


class _Makefile:
    def __init__(self) -> None:
        self.rules: dict[str, _Rule] = {}
        self.variables: dict[str, str] = {}
        self.first = ""
        self._read = 0

    def load(self, path: str) -> None:
        self._read += 1
        if self._read > INCLUDES_MAX:
            return
        open_rules: list[_Rule] = []
        for line in re.sub(r"\\\r?\n", " ", read(path)).splitlines():
            if line.startswith("\t") and open_rules:
                for rule in open_rules:
                    rule.lines.append(line.strip())
            elif line.strip() and not line.lstrip().startswith("#"):
                open_rules = self._take(line, os.path.dirname(path)) or (
                    open_rules if line[:1].isspace() else []
                )

    def _take(self, line: str, folder: str) -> list[_Rule]:
        words = line.split()
        if words[0] in ("include", "-include", "sinclude"):
            for name in self.expand(" ".join(words[1:]), {}).split():
                self.load(os.path.join(folder, name))
        elif given := _SETS.match(line):
            name, how, value = given.groups()
            if how == "+=":
                value = f"{self.variables.get(name, '')} {value}".strip()
            if how != "?=" or name not in self.variables:
                self.variables[name] = value if how != "!=" else f"$(shell {value})"
        elif (head := _RULE.match(line)) and not line[0].isspace():
            targets = self.expand(head[1], {}).split()
            made = [self.rules.setdefault(name, _Rule()) for name in targets]
            for rule in made:
                rule.needs += [need for need in self.expand(head[2], {}).split() if need != "|"]
                rule.lines += [head[3].strip()] if head[3] else []
            plain = next((name for name in targets if not name.startswith(".") and "%" not in name), "")
            self.first = self.first or plain
            return made
        return []

    def expand(self, text: str, own: Mapping[str, str], depth: int = 0) -> str:
        """With make's variables in place. What only make knows becomes a variable that no shell has."""
        out, at = [], 0
        while (place := text.find("$", at)) >= 0 and len(text) < TEXT_MAX:
            out.append(text[at:place])
            after = text[place + 1 : place + 2]
            if after in ("(", "{"):
                end = _closing(text, place + 1)
                out.append(self._value(text[place + 2 : end], own, depth))
                at = end + 1
            elif after == "$":
                out.append("$")
                at = place + 2
            else:
                out.append(own.get(after, f"${{{after}}}" if after.isalpha() else ""))
                at = place + 2
        return "".join(out) + text[at:]

    def _value(self, name: str, own: Mapping[str, str], depth: int) -> str:
        if name.startswith("shell "):
            return f"$({self.expand(name[6:], own, depth + 1)})" if depth < EXPANSIONS_MAX else ""
        if name == "MAKE":
            return "make"
        if name in own:
            return own[name]
        if name in self.variables and depth < EXPANSIONS_MAX:
            return self.expand(self.variables[name], own, depth + 1)
        return f"${{{name}}}" if re.fullmatch(r"[A-Za-z_]\w*", name) else "${OUTLAST_UNKNOWN}"

    def tasks(self, target: str, folder: str, seen: set[str]) -> Iterator[Task]:
        rule, stem = self._rule(target)
        if rule is None or target in seen or len(seen) >= TASKS_MAX:
            return
        seen.add(target)
        needs = [need.replace("%", stem) for need in rule.needs]
        for need in needs:
            yield from self.tasks(need, folder, seen)
        own = {"@": target, "<": needs[0] if needs else "", "^": " ".join(needs), "*": stem}
        for number, line in enumerate(rule.lines):
            text = self.expand(line.lstrip("@+- \t"), own)
            yield Task(f"{folder}/Makefile {target} {number}", text, folder)

    def _rule(self, target: str) -> tuple[_Rule | None, str]:
        if target in self.rules:
            return self.rules[target], ""
        for name, rule in self.rules.items():
            before, percent, after = name.partition("%")
            if percent and rule.lines and target.startswith(before) and target.endswith(after):
                return rule, target[len(before) : len(target) - len(after)]
        return None, ""


def _closing(text: str, at: int) -> int:
    """Where the parenthesis or brace at this place is closed, or the text's end."""
    opening, closing, depth = text[at], ")" if text[at] == "(" else "}", 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if not depth:
            return place
    return len(text)


def _make(words: Sequence[str], cwd: str) -> list[Task]:
    targets, given, folder, file = [], {}, cwd, ""
    at = 1
    while at < len(words):
        option, equals, value = words[at].partition("=")
        if _MAKE_DRY.fullmatch(words[at]):
            return []
        if option.startswith("-"):
            if option[:2] in ("-C", "-f") and len(option) > 2 and not option.startswith("--"):
                option, value = option[:2], option[2:]
            elif option in _MAKE_VALUES and not equals:
                at += 1
                value = words[at] if at < len(words) else ""
            folder = os.path.join(folder, value) if option in ("-C", "--directory") else folder
            file = value if option in ("-f", "--file", "--makefile") else file
        elif equals:
            given[option.rstrip(":?+")] = value
        elif not words[at].isdigit():
            targets.append(words[at])
        at += 1
    makefile, folder = _Makefile(), os.path.normpath(folder)
    makefile.variables |= {"CURDIR": folder}
    path = os.path.join(folder, file) if file else _first_file(folder, _MAKEFILES)
    if not path:
        return []
    makefile.load(path)
    makefile.variables |= given
    seen: set[str] = set()
    first = makefile.variables.get(".DEFAULT_GOAL", makefile.first)
    return [task for target in targets or [first] for task in makefile.tasks(target, folder, seen)]


def _first_file(folder: str, names: Sequence[str]) -> str:
    return next((path for name in names if os.path.isfile(path := os.path.join(folder, name))), "")


def _upwards_file(folder: str, names: Sequence[str]) -> str:
    for _ in range(PARENTS_MAX):
        if found := _first_file(folder, names):
            return found
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    return ""


# --- just -----------------------------------------------------------------------------------------------------------

_JUSTFILES = ("justfile", "Justfile", ".justfile", "JUSTFILE")
_RECIPE = re.compile(r"@?([A-Za-z_][\w-]*)((?:\s+[^:]*?)?)\s*:(?!=)\s*(.*)")
_JUST_SETS = re.compile(r"(?:export\s+)?([A-Za-z_][\w-]*)\s*:=\s*(['\"]?)(.*?)\2\s*")
_JUST_ALIAS = re.compile(r"alias\s+([\w-]+)\s*:=\s*([\w-]+)")
_JUST_VALUES = frozenset(
    "-f --justfile -d --working-directory --set --shell --dotenv-path --dotenv-filename".split()
)


def _just(words: Sequence[str], cwd: str) -> list[Task]:
    names: list[str] = []
    file, at = "", 1
    while at < len(words):
        if words[at] in ("-n", "--dry-run", "-l", "--list", "--show", "-s", "--summary", "--evaluate"):
            return []
        if words[at].startswith("-"):
            if words[at] in _JUST_VALUES:
                at += 1
                file = words[at] if words[at - 1] in ("-f", "--justfile") and at < len(words) else file
        elif "=" not in words[at]:
            names.append(words[at])
        at += 1
    path = os.path.join(cwd, file) if file else _upwards_file(cwd, _JUSTFILES)
    recipes, parameters, variables, aliases = _justfile(read(path))
    if not recipes:
        return []
    first = aliases.get(names[0], names[0]) if names else next(iter(recipes))
    given = dict(zip(parameters.get(first, []), names[1:], strict=False))
    # With several names each may be a recipe or an argument of the one before: all that are recipes are followed.
    wanted = [first, *(name for name in names[1:] if name in recipes)]
    tasks: list[Task] = []
    seen: set[str] = set()
    for name in wanted:
        _just_tasks(recipes, variables | given, name, os.path.dirname(path), seen, tasks)
    return tasks


def _justfile(text: str) -> tuple[dict[str, _Rule], dict[str, list[str]], dict[str, str], dict[str, str]]:
    recipes: dict[str, _Rule] = {}
    parameters: dict[str, list[str]] = {}
    variables: dict[str, str] = {}
    aliases: dict[str, str] = {}
    rule: _Rule | None = None
    for line in text.splitlines():
        if line[:1].isspace() and rule is not None:
            rule.lines.append(line.strip())
        elif alias := _JUST_ALIAS.match(line):
            aliases[alias[1]] = alias[2]
        elif given := _JUST_SETS.fullmatch(line):
            variables[given[1]] = given[3]
        elif head := _RECIPE.match(line):
            rule = recipes.setdefault(head[1], _Rule())
            rule.needs += re.findall(r"[A-Za-z_][\w-]*", re.sub(r"#.*", "", head[3]))
            parameters[head[1]] = re.findall(r"[*+$]?([A-Za-z_][\w-]*)(?:\s*=\s*\S+)?", head[2])
    return recipes, parameters, variables, aliases


def _just_tasks(
    recipes: Mapping[str, _Rule],
    variables: Mapping[str, str],
    name: str,
    folder: str,
    seen: set[str],
    tasks: list[Task],
) -> None:
    rule = recipes.get(name)
    if rule is None or name in seen or len(seen) >= TASKS_MAX:
        return
    seen.add(name)
    for need in rule.needs:
        _just_tasks(recipes, variables, need, folder, seen, tasks)
    text = re.sub(
        r"\{\{\s*([\w-]*)[^}]*\}\}",
        lambda match: variables.get(
            match[1], "${" + (re.sub(r"\W", "_", match[1]) or "OUTLAST_UNKNOWN") + "}"
        ),
        "\n".join(line.lstrip("@-") for line in rule.lines),
    )
    if not text.startswith("#!") or re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", text):
        tasks.append(Task(f"{folder}/justfile {name}", text, folder))


# --- Taskfile -------------------------------------------------------------------------------------------------------

_TASKFILES = (
    "Taskfile.yml",
    "taskfile.yml",
    "Taskfile.yaml",
    "taskfile.yaml",
    "Taskfile.dist.yml",
    "Taskfile.dist.yaml",
)
_ABOUT = re.compile(
    r"(?:- )?(?:desc|summary|aliases|sources|generates|method|silent|internal|interactive|prompt|label|env|vars|dotenv|status|"
    r"preconditions|requires|run|platforms|ignore_error|set|shopt|watch|prefix|cmds|sh|msg|defer):\s*"
)


def _taskfile(words: Sequence[str], cwd: str) -> list[Task]:
    if any(
        word in ("-n", "--dry", "-l", "--list", "-a", "--list-all", "--summary", "--status")
        for word in words[1:]
    ):
        return []
    file = next((words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-t", "--taskfile")), "")
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word and word != file]
    path = os.path.join(cwd, file) if file else _upwards_file(cwd, _TASKFILES)
    blocks = _blocks(read(path))
    tasks: list[Task] = []
    seen: set[str] = set()
    for name in names or ["default"]:
        _taskfile_tasks(blocks, name, os.path.dirname(path), seen, tasks)
    return tasks


def _blocks(text: str) -> dict[str, list[str]]:
    """The lines below each name that stands one step below `tasks:`."""
    lines = text.partition("\ntasks:")[2].splitlines() if "\ntasks:" in f"\n{text}" else []
    if text.startswith("tasks:"):
        lines = text.splitlines()[1:]
    found: dict[str, list[str]] = {}
    step, block = 0, None
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        if not indent:
            break
        step = step or indent
        head = re.fullmatch(r"\s*['\"]?([\w:.*-]+?)['\"]?:\s*(.*)", line)
        if indent == step and head:
            block = found.setdefault(head[1], [])
            block += [head[2]] if head[2] and head[2] not in ("|", ">", "|-", ">-") else []
        elif block is not None:
            block.append(line.strip())
    return found


def _taskfile_tasks(
    blocks: Mapping[str, list[str]], name: str, folder: str, seen: set[str], tasks: list[Task]
) -> None:
    if name not in blocks or name in seen or len(seen) >= TASKS_MAX:
        return
    seen.add(name)
    texts, place = [], folder
    for line in blocks[name]:
        plain = re.sub(r"^(?:- )+", "", line)
        if needs := re.match(r"(?:task|deps):\s*\[?(.*?)\]?$", plain):
            for need in re.findall(r"[\w:.-]+", needs[1]):
                _taskfile_tasks(blocks, need, folder, seen, tasks)
        elif plain in blocks and line.startswith("-"):
            _taskfile_tasks(blocks, plain, folder, seen, tasks)
        elif where := re.match(r"dir:\s*['\"]?([^'\"]*)", plain):
            place = os.path.normpath(os.path.join(folder, where[1]))
        elif not _ABOUT.match(plain):
            text = re.sub(r"^cmd:\s*", "", plain)
            if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
                text = text[1:-1]
            texts.append(
                re.sub(r"\{\{\s*\.?(\w*)[^}]*\}\}", r"${\1}", text).replace("${}", "${OUTLAST_UNKNOWN}")
            )
    tasks.append(Task(f"{folder}/Taskfile {name}", "\n".join(texts), place))


_PROGRAMS: Mapping[str, Callable[[Sequence[str], str], list[Task]]] = {
    "make": _make,
    "gmake": _make,
    "just": _just,
    "task": _taskfile,
    "go-task": _taskfile,
}
PROGRAMS = frozenset(_PROGRAMS)
