"""Settings and where each comes from: flag > OUTLAST_* > outlast.toml of the repository > the user's file > default.

A repository's file comes with a clone, and agents can edit it: KEYS says of each setting what that file may do to it."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from outlast import decoders
from outlast.core.setting_values import addresses, quiet_hours
from outlast.core.text import did_you_mean
from outlast.errors import BadSetting, UsageError

REPOSITORY_FILE = "outlast.toml"
_FLAG = "flag"  # the origin of what an option of the command line gave
FILE_MAX_CHARS = 1 << 20
_NO_HOME = Path("/nonexistent")  # as in passwd: a folder that is never there
YEAR_S = 365 * 86_400
AGE_MAX_S = 100 * YEAR_S
_AGE = re.compile(r"([0-9]{1,10})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def age(text: str) -> timedelta:
    """An age as people write it: `30d`, `12h`, `2w`."""
    matched = _AGE.fullmatch(text.strip().lower())
    seconds = int(matched[1]) * _SECONDS[matched[2]] if matched else AGE_MAX_S + 1
    if seconds > AGE_MAX_S:
        raise UsageError(f"not an age: {text!r:.40}", hint="like 30d, 12h or 2w, at most 100 years")
    return timedelta(seconds=seconds)


def percentages(text: str) -> tuple[int, ...]:
    """Whole percentages, as in `75,90`; none in an empty text."""
    words = text.split(",") if text.strip() else []
    if not all(re.fullmatch(r"\s*(100|[1-9][0-9]?)\s*", word) for word in words):
        raise UsageError(
            f"not a list of percentages: {text!r:.40}", hint="like 75,90: whole numbers from 1 to 100"
        )
    return tuple(int(word) for word in words)


def words(text: str) -> tuple[str, ...]:
    """A list as a setting holds it: words with commas between them."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _place(text: str) -> None:
    scheme, separator, _ = text.partition("://")
    if separator and scheme not in ("sqlite", "postgresql", "postgres"):
        raise UsageError(
            f"no such kind of store: {scheme:.40}",
            hint="give a folder, sqlite:///path or postgresql://user@host/database",
        )
    if "\0" in text:
        raise UsageError("a path cannot contain a NUL character", hint="give a folder, or sqlite:///path")
    try:
        Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError("no such user for `~`", hint="give the whole path") from error


def _whole_path(text: str) -> None:
    if text and not text.startswith(("/", "~/")):
        raise UsageError(
            f"not a whole path: {text!r:.60}", hint="like ~/outlast.jsonl: runs work in many folders"
        )


def _patterns(text: str) -> None:
    for pattern in words(text):
        if pattern.startswith(("/", "!")) or ".." in pattern.split("/") or "\0" in pattern:
            raise UsageError(
                f"not a pattern of files in the workspace: {pattern!r:.60}",
                hint="like fixtures/ or *.sample.txt: a name, or a path from the top",
            )


def _one_of(*words: str) -> Callable[[Any], object]:
    def read(text: str) -> None:
        if text not in words:
            raise UsageError(
                f"it must be {' or '.join(words)}, got {text!r:.40}",
                hint=did_you_mean(text, words) or f"give {' or '.join(words)}",
            )

    return read


class FromRepository(msgspec.Struct, frozen=True):
    """What a repository's file may do to a setting: set it, only make it stricter, or nothing (then `why_not` says why)."""

    stricter: Callable[[Any, Any], bool] | None = None  # (what it says, what holds without it)
    adds: bool = False  # what it says is put on top of what holds without it
    why_not: str = ""


_MAY = FromRepository()  # it changes only how runs of this repository work
_ACTS = FromRepository(why_not="runs commands or reaches outside")
_OWN_TERMINAL = FromRepository(why_not="decides what you read at your terminal")
_STORE = FromRepository(why_not="decides whose runs every command here sees and resumes")
_LEASE = FromRepository(why_not="decides when a run may be taken from a live process")
_EVERY_RUN = FromRepository(why_not="also concerns runs of other repositories")
_ON = FromRepository(stricter=lambda says, own: says or not own)
_LESS = FromRepository(stricter=lambda says, own: says <= own)
_MORE = FromRepository(adds=True)
_SOONER = FromRepository(
    stricter=lambda says, own: timedelta() < age(says) and (age(says) <= age(own) or not age(own))
)
_APART = FromRepository(stricter=lambda says, own: says == "shadow" or own != "shadow")


class Key(msgspec.Struct, frozen=True):
    """One setting: its type, default, meaning, what a repository's file may do to it, and its limits.

    `read` raises UsageError for an invalid value of the right type.
    """

    name: str
    type: type
    default: Any
    doc: str
    repository: FromRepository
    at_least: float | None = None
    at_most: float | None = None
    read: Callable[[Any], object] | None = None


KEYS: tuple[Key, ...] = (
    Key(
        "store", str, "", "folder or URL of the store; empty is the user's state folder",
        _STORE, read=_place,
    ),
    Key(
        "lease_s", float, 30.0, "how long a run stays held by a process that gives no sign of life",
        _LEASE, at_least=1, at_most=86_400,
    ),
    Key(
        "check_timeout_s", float, 1800.0, "how long one check or invariant may take",
        _MAY, at_least=0.1, at_most=YEAR_S,
    ),
    Key(
        "key_ttl_s", int, 86_400, "how old an idempotency key may be to be used again",
        _LESS, at_least=0, at_most=AGE_MAX_S,
    ),
    Key(
        "context_tokens_max", int, 8_000, "size of a rebuilt context, if the program gives none",
        _MAY, at_least=200, at_most=10_000_000,
    ),
    Key(
        "gc_older_than", str, "30d", "age from which `gc` forgets closed runs",
        _EVERY_RUN, read=age,
    ),
    Key(
        "save_branch", bool, False, "also put emergency and final saves on the branch outlast/<task>",
        _MAY,
    ),
    Key(
        "save_where", str, "repository", "what is saved: the files with the HEAD, index and history of their repository, or only the files (shadow)",
        _APART, read=_one_of("repository", "shadow"),
    ),
    Key(
        "save_big_file_bytes", int, 10 << 20, "untracked files larger than this are listed, not saved",
        _MAY, at_least=1024, at_most=1 << 40,
    ),
    Key(
        "save_folder_files", int, 20_000, "untracked folders with more files are listed, not saved",
        _MAY, at_least=10, at_most=100_000_000,
    ),
    Key(
        "save_folder_bytes", int, 500 << 20, "untracked folders with more bytes are listed, not saved",
        _MAY, at_least=1024, at_most=1 << 50,
    ),
    Key(
        "save_not_secret", str, "", "untracked files that are no secrets whatever they look like, as in `fixtures/, *.sample.txt`; or a list",
        _MAY, read=_patterns,
    ),
    Key(
        "save_disk_budget_bytes", int, 2 << 30, "how much disk the saves of one repository may take before `gc` thins them",
        _EVERY_RUN, at_least=1 << 20, at_most=1 << 50,
    ),
    Key(
        "save_deadline_s", float, 5.0, "how long an emergency save may take; what is not saved by then is listed",
        _MAY, at_least=0.1, at_most=3600,
    ),
    Key(
        "worktree_copy", str, "", "untracked files to copy into a new worktree, as in `.env*, config/local.yml`; or a list",
        _MAY,
    ),
    Key(
        "worktree_setup", str, "", "command to run once in a new worktree",
        _ACTS,
    ),
    Key(
        "loopback", str, "local", "whether an agent's requests to this machine itself (localhost) are outward calls: outward, or local",
        _ACTS, read=_one_of("local", "outward"),
    ),
    Key(
        "warn_at", str, "75,90", "percentages of a budget at which the agent is warned",
        _MAY, read=percentages,
    ),
    Key(
        "notify", str, "", "command that gets JSON on its input: needs a person, done, failed, quarantined, parked, budget",
        _ACTS,
    ),
    Key("notify_desktop", bool, False, "notify with `notify-send`, where there is a desktop", _ACTS),
    Key("notify_webhook", str, "", "URL that gets each notice as JSON, or a file of mode 600 that holds it", _ACTS, read=addresses.url_or_file),
    Key("notify_webhook_secret", str, "", "file of mode 600 with the secret that signs what the webhook gets", _ACTS, read=addresses.whole_path),
    Key("notify_ntfy", str, "", "URL of an ntfy topic, as in https://ntfy.sh/TOPIC, or a file of mode 600 that holds it", _ACTS, read=addresses.url_or_file),
    Key("notify_ntfy_token", str, "", "file of mode 600 with the access token of that ntfy server", _ACTS, read=addresses.whole_path),
    Key("notify_slack", str, "", "file of mode 600 with the URL of a Slack incoming webhook, or that URL", _ACTS, read=addresses.url_or_file),
    Key("notify_quiet", str, "", "quiet hours, as in 22:00-07:00: notices wait until they end, and come as one", _ACTS, read=quiet_hours.read),
    Key("notify_urgent", bool, False, "whether what needs a person passes in the quiet hours", _ACTS),
    Key("ui_url", str, "", "where you reach the page from elsewhere, for the links in notices and as `ui --url`", _ACTS, read=addresses.site),
    Key(
        "quiet", bool, False, "print nothing about a run but errors and what needs a person, as --quiet does",
        _OWN_TERMINAL,
    ),
    Key(
        "json_lines", str, "", "file or FIFO that gets a line of JSON for each event of every run, as --json-lines does",
        _ACTS, read=_whole_path,
    ),
    Key(
        "idle_s", float, 1800.0, "how long a command may print nothing before outlast mentions it; 0: never",
        _MAY, at_least=0, at_most=YEAR_S,
    ),
    Key(
        "restart_wait_s", float, 5.0, "how long to wait before a dead command is started again; doubles up to 5 min",
        _MAY, at_least=0, at_most=86_400,
    ),
    Key(
        "wake_apart_s", float, 20.0, "how far apart runs of one account start again after a usage limit",
        _EVERY_RUN, at_least=0, at_most=86_400,
    ),
    Key(
        "run_guard", bool, False, "guard the outward calls of every command that `outlast run` starts, as --guard does",
        _ON,
    ),
    Key(
        "run_mcp", bool, False, "give agents this run's tools by MCP: budget, context, effects, stage, remember, settle, save, ask",
        _MAY,
    ),
    Key(
        "approve_classes", str, "", "classes of outward calls that wait for a person, as in `push, publish, deploy`; `all` for every outward call",
        _MORE,
    ),
    Key(
        "approve_targets", str, "", "patterns of targets whose calls wait for a person, as in `*prod*, registry.npmjs.org/*`",
        _MORE,
    ),
    Key(
        "approve_within", str, "24h", "how long such a call waits before it counts as rejected; 0s: for ever",
        _SOONER, read=age,
    ),
    Key(
        "gateway", bool, False, "put the metering gateway between an agent and its model",
        _ACTS,
    ),
)  # fmt: skip
_BY_NAME = {key.name: key for key in KEYS}


class Setting(msgspec.Struct, frozen=True):
    """A value and its origin, as `outlast config` prints them."""

    name: str
    value: Any
    origin: str
    doc: str


class Settings:
    """All settings in force."""

    def __init__(self, found: Mapping[str, Setting]) -> None:
        self._found = dict(found)

    def __getitem__(self, name: str) -> Any:
        return self._found[name].value

    def all(self) -> list[Setting]:
        """Every setting with its origin."""
        return list(self._found.values())


def load(folder: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings for a folder. Raises BadSetting for an invalid value."""
    found = {key.name: Setting(key.name, key.default, "default", key.doc) for key in KEYS}
    found |= {each.name: each for each in _from_own_file()}
    path = _repository_file(folder or Path.cwd())
    if path is not None:
        for each in _from_repository(path):
            if _may(each, found[each.name].value):
                found[each.name] = _on_top(each, found[each.name])
    for key in KEYS:
        given = os.environ.get(f"OUTLAST_{key.name.upper()}")
        if given is not None:
            found[key.name] = _setting(key.name, given, f"OUTLAST_{key.name.upper()}", own=True)
    for name, value in (flags or {}).items():
        if value is not None:
            found[name] = _setting(name, value, _FLAG, own=True)
    return Settings(found)


def _may(setting: Setting, own: object) -> bool:
    """Whether what a repository's file says counts: where it may only be stricter than what holds without it, if it is."""
    stricter = _BY_NAME[setting.name].repository.stricter
    return stricter is None or stricter(setting.value, own)


def _on_top(setting: Setting, own: Setting) -> Setting:
    """What a repository's file says, with what holds without it where it may only add to that."""
    if not _BY_NAME[setting.name].repository.adds or not own.value:
        return setting
    both = ",".join(dict.fromkeys((*words(own.value), *words(setting.value))))
    return msgspec.structs.replace(setting, value=both)


_warn: Callable[[BadSetting], None] | None = None


def tolerate(warn: Callable[[BadSetting], None] | None) -> None:
    """From now on in this process, warn once of each invalid setting in a repository's file and ignore it.
    With None, refuse it as usual.

    For commands that only look or stop: an agent can write that file, and must not keep a person from using them.
    """
    global _warn
    warned: set[str] = set()

    def once(error: BadSetting) -> None:
        if str(error) not in warned:
            warned.add(str(error))
            assert warn is not None, "it is called where there is one"
            warn(error)

    _warn = once if warn is not None else None


def _from_repository(path: Path) -> list[Setting]:
    """The settings of a repository's file. Raises BadSetting; if that is tolerated, returns the valid ones."""
    found, refused = list[Setting](), list[BadSetting]()
    try:
        for name, value in _flat(_read(path)):
            try:
                found.append(_setting(name, _anchored(name, value, path), str(path), own=False))
            except BadSetting as error:
                refused.append(error)
    except BadSetting as error:
        refused.append(error)
    if refused and _warn is None:
        raise refused[0]
    if refused and _warn is not None:
        _warn(refused[0])
    return found


def _from_own_file() -> list[Setting]:
    path = user_folder() / "config.toml"
    return [
        _setting(name, _anchored(name, value, path), str(path), own=True)
        for name, value in _flat(_read(path))
    ]


def user_folder() -> Path:
    """Where the user's own configuration lives."""
    given = os.environ.get(
        "XDG_CONFIG_HOME", ""
    )  # a relative one is void by its standard: a repository could lie there
    return (Path(given) if os.path.isabs(given) else (home() or _NO_HOME) / ".config") / "outlast"


def home() -> Path | None:
    """The user's own folder; None for a bare uid, as in a container, with neither HOME nor an entry in passwd."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def has_screen() -> bool:
    """Whether a browser has a display. Without one, a text browser would take over the terminal."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def environment(*, without: str, **changes: str) -> dict[str, str]:
    """The environment for a program we start: ours, without the variables of this prefix, with these changes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(without)} | changes


def given_for(prefix: str) -> dict[str, str]:
    """The settings in the environment whose names begin so, by their variables."""
    return {name: value for name, value in given().items() if name.startswith(f"OUTLAST_{prefix.upper()}")}


def given() -> dict[str, str]:
    """The settings in the environment, by their variables, without the store."""
    names = (f"OUTLAST_{key.name.upper()}" for key in KEYS if key.name != "store")
    return {name: os.environ[name] for name in names if name in os.environ}


def adopt(variables: Mapping[str, str]) -> None:
    """Set these variables: this process goes on with a run that another process started in them."""
    os.environ.update(variables)


def inherited(**changes: str) -> dict[str, str]:
    """All of our environment, with these changes."""
    return dict(os.environ) | changes


def went_to(variables: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables as a shell would have them that went to this folder: many programs believe PWD before they ask."""
    was = variables.get("PWD", "")
    if os.path.isabs(was) and os.path.realpath(was) == os.path.realpath(folder):
        return dict(variables)
    found = {name: value for name, value in variables.items() if name != "OLDPWD"}
    return found | {"PWD": folder} | ({"OLDPWD": was} if os.path.isabs(was) else {})


def variable(name: str) -> str:
    """One variable of the environment, empty where it is not set."""
    return os.environ.get(name, "")


# -- how long things wait, for tests (docs/testing.md) ---------------------------------------------------------------

TIMING = "OUTLAST_TIMING"
# Each has a `timing.py` with its durations.
TIMED = (
    "acts", "agents", "chaos", "cli", "dashboard", "gateway", "inspect", "mcp", "notifications", "operations", "processes", "runs", "store", "supervisor", "web", "workspace",
)  # fmt: skip
_Timing = TypeVar("_Timing")
_timings: dict[tuple[str, str], Any] = {}  # made once for each package and text


def timing(package: str, standard: type[_Timing]) -> _Timing:
    """A package's durations: the standard ones, with what OUTLAST_TIMING=`package.field=seconds,…` changes.

    Raises BadSetting where that names a package or field that is not there, or something that is no number.
    """
    text = os.environ.get(TIMING, "")
    found: _Timing | None = _timings.get((text, package))
    if found is None:
        found = _timings[text, package] = standard(**_changes(text, package, standard.__annotations__))
    return found


def timing_given() -> dict[str, str]:
    """The variable that changes durations, where there is one: what we start shall wait no longer than we do."""
    given = os.environ.get(TIMING)
    return {TIMING: given} if given else {}


def _changes(text: str, package: str, fields: Mapping[str, object]) -> dict[str, float]:
    changed = dict[str, float]()
    for word in words(text):
        name, _, number = word.partition("=")
        where, _, field = name.strip().partition(".")
        if where not in TIMED:
            raise BadSetting(f"{TIMING}: unknown {name!r:.60}", hint=f"there are {', '.join(TIMED)}")
        if where == package and field not in fields:
            raise BadSetting(f"{TIMING}: unknown {name!r:.60}", hint=f"`{package}` has {', '.join(fields)}")
        if not re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", number):
            raise BadSetting(f"{TIMING}: {word!r:.60} has no number", hint=f"like {TIMING}={name}=0.5")
        if where == package:
            changed[field] = int(float(number)) if fields[field] is int else float(number)
    return changed


def user_name() -> str:
    """The name of the user, for the journal."""
    name = os.environ.get("USER") or os.environ.get("LOGNAME") or name_of(os.getuid())
    return name.encode("utf-8", "backslashreplace").decode()


def name_of(uid: int) -> str:
    """A user's name in the password database, for services and bare shells; `uid N` if there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name or f"uid {uid}"
    except KeyError:
        return f"uid {uid}"


def _repository_file(folder: Path) -> Path | None:
    for here in (folder, *folder.parents):
        path = here / REPOSITORY_FILE
        if path.is_file() and _is_trusted(path, folder):
            return path
        if _is_top_level(here / ".git"):
            return None
    return None


def _is_trusted(path: Path, folder: Path) -> bool:
    """Whether a settings file above belongs to us, to root or to the folder's owner. Another user's could weaken how runs here are protected."""
    try:
        return path.stat().st_uid in (os.geteuid(), 0, folder.stat().st_uid)
    except OSError:
        return False


def _is_top_level(marker: Path) -> bool:
    """Whether this is the top level of a repository. An empty folder called `.git` does not count, and hides no settings."""
    return marker.is_file() or os.path.lexists(marker / "HEAD")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open() as file:
            text = file.read(FILE_MAX_CHARS + 1)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {error}", hint=f"correct or remove {path}") from error
    import tomllib

    if len(text) > FILE_MAX_CHARS:
        raise BadSetting(
            f"cannot read {path}: it has more than {FILE_MAX_CHARS:,} characters",
            hint=f"correct or remove {path}",
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"cannot read {path}: {error}", hint=f"correct or remove {path}") from error
    except RecursionError as error:
        raise BadSetting(
            f"cannot read {path}: it is nested too deeply", hint=f"correct or remove {path}"
        ) from error


_IN_TABLES = {"notify_command": "notify"}  # a file cannot have `notify` as a value and as a table


def _flat(read: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Tables are groups of settings: `[save] branch` is `save_branch`."""
    for name, value in read.items():
        if isinstance(value, dict):
            yield from (
                (_IN_TABLES.get(f"{name}_{inner}", f"{name}_{inner}"), held) for inner, held in value.items()
            )
        else:
            yield name, value


def _anchored(name: str, value: object, path: Path) -> object:
    """A store that a file names relatively lies beside that file, wherever the program is started."""
    if name != "store" or not isinstance(value, str) or not value or "://" in value or value[0] == "~":
        return value
    return str(path.parent / value)


def _setting(name: str, value: object, origin: str, *, own: bool) -> Setting:
    key = _BY_NAME.get(name)
    if key is None:
        raise BadSetting(
            f"{origin}: no such setting: {name:.60}",
            hint=did_you_mean(name, _BY_NAME) or f"the settings are {', '.join(_BY_NAME)}",
        )
    if key.repository.why_not and not own:
        raise BadSetting(
            f"{origin}: {name} {key.repository.why_not}, so only your own file may set it",
            hint=f"put it into {user_folder() / 'config.toml'}",
        )
    is_text = (
        origin.startswith("OUTLAST_") or origin == "flag"
    )  # in a file a number is a number, and "true" is a text
    return Setting(name, _convert(key, value, origin, strict=not is_text), origin, key.doc)


def _convert(key: Key, value: object, origin: str, *, strict: bool) -> object:
    given = f"{origin}: {key.name} = {value!r:.60}"
    hint = f"{key.name}: {key.doc} (default {key.default!r})"
    if key.type is str and isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = ",".join(value)
    try:
        converted: object = decoders.convert(value, key.type, strict=strict)
        if key.read is not None:
            key.read(converted)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{given} is invalid: {error}", hint=hint) from None
    except UsageError as error:
        problem = f"--{key.name}: {error}" if origin == _FLAG else f"{given} is invalid: {error}"
        raise BadSetting(problem, hint=error.hint) from None
    if key.at_least is not None and not (isinstance(converted, int | float) and converted >= key.at_least):
        raise BadSetting(f"{given} must be at least {key.at_least:,}", hint=hint)
    if key.at_most is not None and not (isinstance(converted, int | float) and converted <= key.at_most):
        raise BadSetting(f"{given} must be at most {key.at_most:,}", hint=hint)
    return converted
