"""`outlast service`: install what resumes runs after a reboot, check that it works, and remove it.

It uses a systemd user unit with lingering and a timer, or else two lines in the crontab."""

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec

from outlast import settings
from outlast.errors import OutlastError, UsageError
from outlast.processes.programs import ProgramMissing, find_program
from outlast.store import locate, open_store
from outlast.supervisor.control import service_units
from outlast.supervisor.control.service_units import UNIT, WAKE_TIMER, WAKE_UNIT, Boot
from outlast.supervisor.launch import launch
from outlast.supervisor.timing import Timing

LINGER_FOLDER = "/var/lib/systemd/linger"

NOT_WOKEN = "runs are not woken when their quota is back; `outlast service install` again"

How = Literal["systemd", "cron"]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The installed service. `problems`: why it would not work, each with the command to type; `works`: there are none."""

    how: How | None
    path: str | None
    command: tuple[str, ...]
    lingering: bool | None
    works: bool
    problems: tuple[str, ...]


# -- asking the system -------------------------------------------------------------------------------------------


class Tool(msgspec.Struct, frozen=True):
    """A program's answer; `code` is 127 where the program is missing."""

    code: int
    out: str
    err: str = ""


def ask(*words: str, given: str = "") -> Tool:
    """Run a program of the system with a limit. Never raises."""
    limit_s = Timing.current().tool_limit_s
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, errors="surrogateescape", timeout=limit_s,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return Tool(127, "", str(error))
    return Tool(done.returncode, done.stdout, done.stderr.strip())


def user_name() -> str:
    """Our user's name to the system, whatever the environment says; a uid without a name is its number."""
    entry = _passwd()
    return str(os.getuid()) if entry is None else entry.pw_name


def _passwd() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


def has_systemd() -> bool:
    """Whether this user has a systemd of their own to ask."""
    return ask("systemctl", "--user", "show-environment").code == 0


def is_lingering(user: str) -> bool:
    """Whether the user's services start at boot, without a login."""
    if os.path.exists(f"{LINGER_FOLDER}/{user}"):
        return True
    return ask("loginctl", "show-user", user, "--property=Linger", "--value").out.strip() == "yes"


def unit_path() -> Path:
    """Where the user's units lie. Raises UsageError for a user without a home."""
    home = settings.home()
    if home is None:
        raise UsageError(
            f"there is no home to install a service in: HOME is not set, and uid {os.getuid()} has none in passwd",
            hint="set HOME, or have `outlast resume --all` run at boot by other means",
        )
    return home / ".config" / "systemd" / "user" / UNIT


def crontab() -> str | None:
    """The user's crontab, empty if there is none yet; None if there is no cron."""
    answer = ask("crontab", "-l")
    if answer.code == 127:
        return None
    return answer.out if answer.code == 0 else ""


# -- installing --------------------------------------------------------------------------------------------------


def boot_command(store: str | None) -> Boot:
    """The command for boot: this program with its whole path, on this store, independent of the environment."""
    place = locate(settings.load(flags={"store": store})["store"] or None)
    beside = Path(sys.executable).with_name("outlast")
    program = [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "outlast"]
    variables = []
    entry = _passwd()  # at boot there is no HOME but this
    if entry is None or settings.user_folder().parent != Path(entry.pw_dir) / ".config":
        variables.append(("XDG_CONFIG_HOME", str(settings.user_folder().parent)))
    words = (*program, "--store", place.option, "resume", "--all")
    return Boot(words, tuple(variables), str(place.folder_of("walls") or ""))


def install(store: str | None) -> Service:
    """Install the service; safe to repeat. Raises UsageError if there is neither systemd nor cron, or no home."""
    unit_path()
    boot = boot_command(store)
    if has_systemd():
        _install_unit(boot)
    else:
        table = crontab()
        if table is None:
            raise UsageError(
                "there is neither a systemd user session nor cron here",
                hint=f"have this run at boot: {service_units.cron_line(boot).removeprefix('@reboot ')}",
            )
        _write_crontab(
            service_units.with_cron_lines(
                table, service_units.cron_line(boot), service_units.cron_wake_line(boot)
            )
        )
    return status(store)


def _install_unit(boot: Boot) -> None:
    user, path = user_name(), unit_path()
    was_ours = service_units.LINGER_MARK in _read(path)
    wants_linger = not is_lingering(user)
    if wants_linger:
        ask("loginctl", "enable-linger", user)
    is_ours = was_ours or (wants_linger and is_lingering(user))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(service_units.unit(boot, lingering_is_ours=is_ours))
    path.with_name(WAKE_UNIT).write_text(service_units.wake_unit(boot))
    path.with_name(WAKE_TIMER).write_text(service_units.wake_timer())
    ask("systemctl", "--user", "daemon-reload")
    for words in (("enable", UNIT), ("enable", "--now", WAKE_TIMER)):
        done = ask("systemctl", "--user", *words)
        if done.code != 0:
            raise OutlastError(
                f"systemd does not take {path.with_name(words[-1])}: {done.err}",
                hint=f"systemctl --user {' '.join(words)}",
            )


def _write_crontab(table: str) -> None:
    done = ask("crontab", "-", given=table) if table else ask("crontab", "-r")
    if done.code != 0:
        raise OutlastError(f"cron does not take the line: {done.err}", hint="`crontab -e` by hand")


def remove() -> Service:
    """Take away what `install` put there, and nothing else."""
    path, table = unit_path(), crontab()
    text = _read(path)
    if text:
        ask("systemctl", "--user", "disable", UNIT)
        ask("systemctl", "--user", "disable", "--now", WAKE_TIMER)
        for name in (UNIT, WAKE_UNIT, WAKE_TIMER):
            path.with_name(name).unlink(missing_ok=True)
        ask("systemctl", "--user", "daemon-reload")
        if service_units.LINGER_MARK in text:
            ask("loginctl", "disable-linger", user_name())
    if table is not None and service_units.CRON_MARK in table:
        _write_crontab(service_units.without_cron_line(table))
    return status(None)


# -- looking -----------------------------------------------------------------------------------------------------


def is_there() -> bool:
    """Whether there is anything of it."""
    return bool(_read(unit_path())) or service_units.CRON_MARK in (crontab() or "")


def restarts_at_boot(url: str) -> bool:
    """Whether the installed service resumes the runs of the store at `url` at boot. Does not check whether that would work."""
    try:
        text = _read(unit_path())
        words = service_units.exec_start(text) if text else service_units.cron_words(crontab() or "")
        return "--store" in words[:-1] and locate(words[words.index("--store") + 1]).url == url
    except OutlastError:
        return False


def status(store: str | None) -> Service:
    """Which of both is there, and whether it would work at the next boot."""
    text, table = _read(unit_path()), crontab() or ""
    how: How | None = "systemd" if text else "cron" if service_units.CRON_MARK in table else None
    words = tuple(service_units.exec_start(text) if how == "systemd" else service_units.cron_words(table))
    if how is None:
        return Service(
            how=None, path=None, command=(), lingering=None, works=False,
            problems=("nothing is installed; `outlast service install` does it",),
        )  # fmt: skip
    problems = [*_program(words), *_store(words, store), *_secrets()]
    lingering = is_lingering(user_name()) if how == "systemd" else None
    if how == "systemd":
        problems += _systemd(bool(lingering))
    elif table.count(service_units.CRON_MARK) < 2:
        problems.append(NOT_WOKEN)
    path = str(unit_path()) if how == "systemd" else None
    return Service(
        how=how, path=path, command=words, lingering=lingering, works=not problems, problems=tuple(problems)
    )


def _systemd(lingering: bool) -> list[str]:
    problems = []
    if ask("systemctl", "--user", "is-enabled", UNIT).out.strip() != "enabled":
        problems.append(f"the unit is not enabled; `systemctl --user enable {UNIT}`")
    if ask("systemctl", "--user", "is-enabled", WAKE_TIMER).out.strip() != "enabled":
        problems.append(NOT_WOKEN)
    if not lingering:
        user = user_name()
        problems.append(f"it starts at login, not at boot; `sudo loginctl enable-linger {user}`")
    return problems


def _program(words: tuple[str, ...]) -> list[str]:
    try:
        find_program(words[0] if words else "", "", "/")
    except ProgramMissing as error:
        return [f"the program is gone: {error}; `outlast service install` again"]
    return []


def _store(words: tuple[str, ...], given: str | None) -> list[str]:
    place = words[words.index("--store") + 1] if "--store" in words[:-1] else given
    try:
        if not locate(place).exists():
            return []  # no run was started yet, which is not an error
        open_store(place).close()
    except OutlastError as error:
        return [f"the store at {place} cannot be opened: {error}"]
    return []


def _secrets() -> list[str]:
    try:
        launch.secrets()
    except UsageError as error:
        return [f"{error}; {error.hint}"]
    return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
