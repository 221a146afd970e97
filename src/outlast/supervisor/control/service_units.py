"""The texts of the service: systemd user units, or lines for cron. Nothing is installed here.

At boot the service wakes every run that died; each minute it wakes the runs whose usage limit is over."""

import shlex
from collections.abc import Sequence

import msgspec

UNIT = "outlast-resume.service"
WAKE_UNIT, WAKE_TIMER = "outlast-wake.service", "outlast-wake.timer"
MADE_BY = "# Made by `outlast service install`; `outlast service remove` takes it away."
LINGER_MARK = "# lingering was off before this unit came"
CRON_MARK = "# outlast resume --all, put here by `outlast service install`"


class Boot(msgspec.Struct, frozen=True):
    """The command that runs at boot, the variables that it needs, and the folder where quota walls are recorded."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    walls: str = ""

    @property
    def to_wake(self) -> tuple[str, ...]:
        """The command that wakes the runs whose wall is gone."""
        return (*self.words, "--parked")


def unit(boot: Boot, *, lingering_is_ours: bool) -> str:
    """The systemd user unit. It ends at once; the processes that it started live on (KillMode=process)."""
    lines = [
        MADE_BY,
        *([LINGER_MARK] if lingering_is_ours else []),
        "[Unit]",
        "Description=Resume outlast runs that nobody stopped",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *_service(boot, boot.words),
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def wake_unit(boot: Boot) -> str:
    """The unit that the timer starts. systemd skips it while no wall is recorded."""
    lines = [
        MADE_BY,
        "[Unit]",
        "Description=Go on with outlast runs whose quota wall is gone",
        f"ConditionDirectoryNotEmpty={boot.walls.replace('%', '%%')}",
        "",
        "[Service]",
        "Type=oneshot",
        "StandardOutput=null",
        *_service(boot, boot.to_wake),
    ]
    return "\n".join(lines) + "\n"


def wake_timer() -> str:
    """The timer that starts the wake unit once a minute."""
    lines = [
        MADE_BY,
        "[Unit]",
        "Description=Look for outlast runs whose quota wall is gone",
        "",
        "[Timer]",
        "OnCalendar=minutely",
        "AccuracySec=5s",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


def _service(boot: Boot, words: Sequence[str]) -> list[str]:
    """The unit of a command whose child processes live on after it ends."""
    return [
        "KillMode=process",
        "OOMPolicy=continue",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in boot.variables),
        f"ExecStart={' '.join(_word(word, first=not at) for at, word in enumerate(words))}",
    ]


def _word(word: str, *, first: bool) -> str:
    """A word of ExecStart; a dollar is a variable everywhere but in the program's own path."""
    return _quoted(word if first else word.replace("$", "$$"))


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    plain = escaped == word and word and not set(word) & set(" ';#")
    return word if plain else f'"{escaped}"'


def exec_start(text: str) -> list[str]:
    """The words of a unit's ExecStart."""
    line = next((line for line in text.splitlines() if line.startswith("ExecStart=")), "ExecStart=")
    return [_unescaped(word) for word in _split(line.removeprefix("ExecStart="))]


def _split(line: str) -> list[str]:
    """Words between blanks, where a word in double quotes may hold some."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", '"'
    return list(lexer)


def _unescaped(word: str) -> str:
    return word.replace("%%", "%").replace("$$", "$")


def cron_line(boot: Boot) -> str:
    """One line of a crontab; a per cent sign would end the command there."""
    return f"@reboot {_escaped(_command(boot, boot.words))}"


def cron_wake_line(boot: Boot) -> str:
    """The line that wakes the runs whose wall is gone, each minute. It does not start outlast while there is no wall."""
    none = f'[ -z "$(ls -A {shlex.quote(boot.walls)} 2>/dev/null)" ]'
    return f"* * * * * {_escaped(f'{none} || {_command(boot, boot.to_wake)} >/dev/null 2>&1')}"


def _command(boot: Boot, words: Sequence[str]) -> str:
    set_first = [f"{name}={shlex.quote(value)}" for name, value in boot.variables]
    return " ".join([*(["env"] if set_first else []), *set_first, shlex.join(words)])


def _escaped(command: str) -> str:
    return command.replace("%", chr(92) + "%")


def with_cron_lines(table: str, *ours: str) -> str:
    """A crontab with our lines at its end, each below our mark; older lines of ours are replaced."""
    others = without_cron_line(table)
    between = "" if not others or others.endswith("\n") else "\n"
    return f"{others}{between}{''.join(f'{CRON_MARK}{chr(10)}{line}{chr(10)}' for line in ours)}"


def without_cron_line(table: str) -> str:
    """A crontab without ours; all other lines as they were, to the byte."""
    lines = table.splitlines(keepends=True)
    ours = {at for at, line in enumerate(lines) if line.rstrip("\n") == CRON_MARK}
    return "".join(line for at, line in enumerate(lines) if at not in ours and at - 1 not in ours)


def cron_words(table: str) -> Sequence[str]:
    """The words of our line in a crontab, without the variables before the command; empty if our line is missing."""
    lines = table.splitlines()
    line = lines[lines.index(CRON_MARK) + 1] if CRON_MARK in lines[:-1] else ""
    words = shlex.split(line.removeprefix("@reboot ").replace("\\%", "%"))
    if words[:1] == ["env"]:
        words = words[1:]
        while words and "=" in words[0]:
            words = words[1:]
    return words
