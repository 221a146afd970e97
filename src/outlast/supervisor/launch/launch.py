"""How a command is started, and started again without a person: words, folder, and the recorded part of the environment."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.core.secrets import mask
from outlast.core.values import Usage
from outlast.errors import UsageError
from outlast.workspace.types import raw, text

RECORDED = ("PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "TERM")
OURS = "OUTLAST_"
SECRETS_FILE = "env"
_SECRETS_MAX_BYTES = 1 << 20
_SECRET_CHARS_MIN = 6  # what is shorter stands in every other text


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a start without a person needs. Texts that are not UTF-8 are written by `workspace.types.text`.

    PATH, locale, VIRTUAL_ENV and outlast's own settings are recorded with their values. Of all other variables, and of
    settings that look like secrets, only the names are. Their values come from `env` in the user's configuration folder,
    which must be private.
    """

    argv: tuple[str, ...]
    program: str
    cwd: str
    umask: int = 0o022
    environment: dict[str, str] = {}
    names: tuple[str, ...] = ()
    issue: str = ""
    rounds: int = 5
    restarts: int = 50
    parks: int = 6  # quota walls without progress in between before a person must look
    stall: int = 30  # beats of an agent without anything new before it is stopped; 0 is never
    share: bool = False
    interactive: bool = False
    opened: bool = False  # at a terminal this once (`outlast open`), although the command is headless
    plain: bool = False  # run as any command, also where it is an agent that is known
    guard: bool = False  # shims before the programs of a plain command
    accept_unknown: bool = False  # end well although it is not known whether some calls of the agent, or of a guarded command, happened
    settings: dict[str, str] = {}  # those that the environment gave, which the command itself does not get
    setup: str = ""  # run once before the command, as a recorded step
    gateway: bool = False  # meter it by a proxy between it and its model
    gateway_yes: bool = False  # also where a subscription pays: somebody said so
    account: str = ""  # whose limits the agent meets: a short name, no secret
    within: str = ""  # the run that it was started in, and that is charged with what it spends
    spent_before: Usage = Usage()  # what it had spent before that
    approve_kinds: tuple[str, ...] = ()  # classes of outward calls that wait for a person
    approve_targets: tuple[str, ...] = ()  # patterns of targets whose calls do
    approve_within: str = ""  # how long they wait; empty: as the settings say

    @property
    def words(self) -> list[str]:
        """The command as the system takes it."""
        return [os.fsdecode(raw(word)) for word in self.argv]


def recorded(
    words: Sequence[str], program: str, cwd: Path, environment: Mapping[str, str], **more: object
) -> Launch:
    """The record of a start with this environment."""
    values = _texts({name: value for name, value in environment.items() if _is_recorded(name)})
    given = {name: value for name, value in settings.given().items() if not mask(value)[1]}
    names = sorted(name for name in environment if not _is_recorded(name) and not name.startswith(OURS))
    names += sorted(settings.given().keys() - given.keys())
    return decoders.convert(
        {
            "argv": tuple(text(os.fsencode(word)) for word in words),
            "program": text(os.fsencode(program)),
            "cwd": text(os.fsencode(cwd)),
            "umask": _umask(),
            "environment": values,
            "settings": _texts(given),
            "names": tuple(text(os.fsencode(name)) for name in names),
            **more,
        },
        Launch,
    )


def environment_of(launch: Launch, now: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment of a start without a person, and the names of variables that are missing since the first start."""
    restored = {name: os.fsdecode(raw(value)) for name, value in launch.environment.items()}
    home = settings.home()
    found = ({} if home is None else {"HOME": str(home)}) | dict(now) | secrets() | restored
    known = found.keys() | settings.given().keys()
    missing = [name for name in launch.names if os.fsdecode(raw(name)) not in known]
    return found, [name for name in missing if not name.startswith(_FLEETING)]


def with_settings_of_now(launch: Launch) -> Launch:
    """Put the launch's settings in force; values of the present environment take precedence. Returns the launch with them."""
    recorded = {name: os.fsdecode(raw(value)) for name, value in launch.settings.items()}
    settings.adopt(recorded | settings.given())
    now = {name: value for name, value in settings.given().items() if not mask(value)[1]}
    return msgspec.structs.replace(launch, settings=_texts(now))


# Names that belong to a terminal or a login and mean nothing to the next one.
_FLEETING = (
    "SHLVL", "PWD", "OLDPWD", "_", "SSH_", "XDG_SESSION", "XDG_SEAT", "XDG_VTNR", "TMUX", "STY", "WINDOWID",
    "COLUMNS", "LINES", "DISPLAY", "DBUS_SESSION", "LS_COLORS", "TERM_", "COLORTERM", "INVOCATION_ID", "JOURNAL_STREAM",
)  # fmt: skip


def secrets() -> dict[str, str]:
    """The variables in the user's `env` file; none if there is no such file. Raises UsageError if others may read it."""
    path = settings.user_folder() / SECRETS_FILE
    try:
        data, status = _read(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=f"see `ls -l {path}`") from error
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (os.getuid(), 0):
        raise UsageError(f"{path} holds secrets and others may read it", hint=f"`chmod 600 {path}`")
    return dict(_lines(data, path))


def known_secrets() -> dict[str, str]:
    """The values of that file that must not be shown: each that is long enough to be a secret, with its name. Never raises."""
    path = settings.user_folder() / SECRETS_FILE
    try:
        found = _lines(_read(path)[0], path)
    except (OSError, UsageError):
        return {}
    return {value: name for name, value in found if len(value) >= _SECRET_CHARS_MIN}


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    with path.open("rb") as file:
        return file.read(_SECRETS_MAX_BYTES), os.fstat(file.fileno())


def _lines(data: bytes, path: Path) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(os.fsdecode(data).splitlines(), 1):
        stripped = line.strip().removeprefix("export ").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{path}, line {number} is not NAME=value", hint=f"correct it in {path}")
        found.append((name, _unquoted(value.strip())))
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _texts(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: text(os.fsencode(value)) for name, value in variables.items()}


def _is_recorded(name: str) -> bool:
    return name in RECORDED or name.startswith("LC_")


def _umask() -> int:
    """The umask of this process: it can only be read by setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now
