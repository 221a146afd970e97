"""Settings and where each comes from: flag > OUTLAST_* > outlast.toml of the repository > the user's file > default.

Keys that run commands or reach out count only from the user's own file, because agents can edit the repository's.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from outlast.errors import BadSetting

REPOSITORY_FILE = "outlast.toml"


class Key(msgspec.Struct, frozen=True):
    """One setting: its type, default, what it means, and whether only the user's own file may set it."""

    name: str
    type: type
    default: Any
    doc: str
    own_file_only: bool = False
    at_least: float | None = None
    at_most: float | None = None


KEYS: tuple[Key, ...] = (
    Key("store", str, "", "folder or URL of the store; empty is the user's state folder"),
    Key("lease_s", float, 30.0, "how long a silent holder keeps a run", at_least=1, at_most=86_400),
    Key("check_timeout_s", float, 1800.0, "how long one check or invariant may take", at_least=0.1),
    Key("key_ttl_s", int, 86_400, "how old a key may be to be reissued", at_least=0),
    Key("context_tokens_max", int, 8_000, "size of a rebuilt context when nothing is said", at_least=200),
    Key("gc_older_than", str, "30d", "age from which `gc` forgets closed runs"),
    Key("warn_at", str, "75,90", "percentages of a budget at which the agent is warned (not used yet)"),
    Key("notify", str, "", "command that is told about causes (not used yet)", own_file_only=True),
    Key(
        "gateway",
        bool,
        False,
        "put the metering gateway between agent and model (not used yet)",
        own_file_only=True,
    ),
)
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
    """The settings for a folder. Raises BadSetting for a value that makes no sense."""
    found = {key.name: Setting(key.name, key.default, "default", key.doc) for key in KEYS}
    user_file = user_folder() / "config.toml"
    for path, own in ((user_file, True), (_repository_file(folder or Path.cwd()), False)):
        if path is None:
            continue
        for name, value in _read(path).items():
            found[name] = _setting(name, _anchored(name, value, path), str(path), own=own)
    for key in KEYS:
        given = os.environ.get(f"OUTLAST_{key.name.upper()}")
        if given is not None:
            found[key.name] = _setting(key.name, given, f"OUTLAST_{key.name.upper()}", own=True)
    for name, value in (flags or {}).items():
        if value is not None:
            found[name] = _setting(name, value, "flag", own=True)
    return Settings(found)


def user_folder() -> Path:
    """Where the user's own configuration lives."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "outlast"


def user_name() -> str:
    """Who asks, for the record."""
    name = os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid {os.getuid()}"
    return name.encode("utf-8", "backslashreplace").decode()


def _repository_file(folder: Path) -> Path | None:
    for here in (folder, *folder.parents):
        if (here / REPOSITORY_FILE).is_file():
            return here / REPOSITORY_FILE
        if (here / ".git").exists():
            return None
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}", hint=f"mend or remove {path}") from error
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path} cannot be read: {error}", hint=f"mend or remove {path}") from error


def _anchored(name: str, value: object, path: Path) -> object:
    """A store that a file names relatively lies beside that file, wherever the program is started."""
    if name != "store" or not isinstance(value, str) or not value or "://" in value:
        return value
    return str(path.parent / Path(value).expanduser())


def _setting(name: str, value: object, origin: str, *, own: bool) -> Setting:
    key = _BY_NAME.get(name)
    if key is None:
        raise BadSetting(f"{origin}: unknown setting {name!r}", hint="`outlast config` lists them all")
    if key.own_file_only and not own:
        raise BadSetting(
            f"{origin}: {name!r} runs commands or reaches out and counts only from your own file",
            hint=f"put it into {user_folder() / 'config.toml'}",
        )
    return Setting(name, _convert(key, value, origin), origin, key.doc)


def _convert(key: Key, value: object, origin: str) -> object:
    try:
        converted: object = msgspec.convert(value, key.type, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(
            f"{origin}: {key.name} = {value!r} makes no sense: {error}", hint="see `outlast config`"
        ) from None
    if key.at_least is not None and not (isinstance(converted, int | float) and converted >= key.at_least):
        raise BadSetting(
            f"{origin}: {key.name} = {value!r} must be at least {key.at_least:g}", hint="see `outlast config`"
        )
    if key.at_most is not None and not (isinstance(converted, int | float) and converted <= key.at_most):
        raise BadSetting(
            f"{origin}: {key.name} = {value!r} must be at most {key.at_most:g}", hint="see `outlast config`"
        )
    return converted
