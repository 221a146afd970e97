"""How a command is started, and started again by nobody's hand: its words, its folder, and what of the environment counts.

Of the environment only PATH, locale and VIRTUAL_ENV are recorded with their values; of all other variables the names,
because their values may be secrets. Those come from `env` in the user's configuration folder, which must be private.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from outlast import settings
from outlast.errors import UsageError
from outlast.workspace.seam import raw, text

KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "TERM")
OURS = "OUTLAST_"
SECRETS_FILE = "env"
_SECRETS_MAX_BYTES = 1 << 20


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a start by nobody's hand needs. Texts that are not UTF-8 are written as `seam.text` does."""

    argv: tuple[str, ...]
    program: str
    cwd: str
    umask: int = 0o022
    environment: dict[str, str] = {}
    names: tuple[str, ...] = ()
    issue: str = ""
    rounds: int = 5
    restarts: int = 50
    share: bool = False
    interactive: bool = False
    setup: str = ""  # run once before the command, as a recorded step

    @property
    def words(self) -> list[str]:
        """The command as the system takes it."""
        return [os.fsdecode(raw(word)) for word in self.argv]


def recorded(
    words: Sequence[str], program: str, cwd: Path, environment: Mapping[str, str], **more: object
) -> Launch:
    """What is recorded of a start with this environment."""
    kept = {name: text(os.fsencode(value)) for name, value in environment.items() if _is_kept(name)}
    names = sorted(name for name in environment if not _is_kept(name) and not name.startswith(OURS))
    return msgspec.convert(
        {
            "argv": tuple(text(os.fsencode(word)) for word in words),
            "program": text(os.fsencode(program)),
            "cwd": text(os.fsencode(cwd)),
            "umask": _umask(),
            "environment": kept,
            "names": tuple(text(os.fsencode(name)) for name in names),
            **more,
        },
        Launch,
    )


def environment_of(launch: Launch, now: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment of a start by nobody's hand, and the names that were there at first and are missing now."""
    restored = {name: os.fsdecode(raw(value)) for name, value in launch.environment.items()}
    found = {"HOME": str(Path.home())} | dict(now) | secrets() | restored
    missing = [name for name in launch.names if os.fsdecode(raw(name)) not in found]
    return found, [name for name in missing if not name.startswith(_FLEETING)]


# Names that belong to a terminal or a login and mean nothing to the next one.
_FLEETING = (
    "SHLVL", "PWD", "OLDPWD", "_", "SSH_", "XDG_SESSION", "XDG_SEAT", "XDG_VTNR", "TMUX", "STY", "WINDOWID",
    "COLUMNS", "LINES", "DISPLAY", "DBUS_SESSION", "LS_COLORS", "TERM_", "COLORTERM", "INVOCATION_ID", "JOURNAL_STREAM",
)  # fmt: skip


def secrets() -> dict[str, str]:
    """The variables in the user's `env` file; none where there is no such file. Raises UsageError if others may read it."""
    path = settings.user_folder() / SECRETS_FILE
    try:
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            data = file.read(_SECRETS_MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=f"see `ls -l {path}`") from error
    if stat.S_IMODE(told.st_mode) & 0o077 or told.st_uid not in (os.getuid(), 0):
        raise UsageError(f"{path} holds secrets and others may read it", hint=f"`chmod 600 {path}`")
    return dict(_lines(data, path))


def _lines(data: bytes, path: Path) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(os.fsdecode(data).splitlines(), 1):
        stripped = line.strip().removeprefix("export ").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{path}, line {number} is no NAME=value", hint=f"mend it in {path}")
        found.append((name, _unquoted(value.strip())))
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith("LC_")


def _umask() -> int:
    """The umask of this process: it can only be read by setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now
