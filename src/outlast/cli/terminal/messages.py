"""What the terminal is told: data on stdout, the rest on stderr, and nothing an agent wrote can steer it."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from outlast.core import text as core_text
from outlast.core.statuses import AGAIN
from outlast.core.text import safe as safe, short as short
from outlast.errors import UsageError

_STEERING = re.compile("[\x7f-\x9f]")

_repeated = ""


def say(line: str = "") -> None:
    """A line of data. Whoever calls it has made the foreign parts safe."""
    sys.stdout.write(line + "\n")


def repeat(**options: str | None) -> None:
    """Say which options of this command line every command in a hint must repeat."""
    global _repeated
    given = {name: value for name, value in options.items() if value is not None}
    _repeated = "".join(f"--{name} {shlex.quote(value)} " for name, value in given.items())


def pasteable(text: str) -> str:
    """A text whose `outlast …` commands can be pasted: they lead to the same store and project as this one did."""
    return core_text.pasteable(text, _repeated.rstrip(" "))


def command(words: str) -> str:
    """A command of ours to be typed next, with the same options."""
    return f"outlast {_repeated}{words}"


def tell(line: str) -> None:
    """A line for the person, not for the next program."""
    sys.stderr.write(safe(pasteable(line)) + "\n")


def complain(message: str, hint: str = "") -> None:
    """What went wrong, and what to type next."""
    tell(f"error: {message}")
    if hint:
        tell(f"hint: {hint}")


def refuse_blank(arguments: argparse.Namespace, *options: str) -> None:
    """An option that was given nothing, as an unset variable of a script gives it, is refused and not taken for absent."""
    for option in options:
        given = getattr(arguments, option.removeprefix("--"))
        if any(not text.strip() for text in ([given] if isinstance(given, str) else given or ())):
            raise UsageError(
                f"{option} was given nothing",
                hint=f"give it a value, or leave it out; `outlast {arguments.command} --help` shows how",
            )


def say_json(value: object) -> None:
    """A document, indented."""
    say(_harmless(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def say_json_line(value: object) -> None:
    """A document on one line, for streams."""
    say(_harmless(msgspec.json.encode(value)))


def _harmless(document: bytes) -> str:
    """JSON must escape only the older control characters; the newer ones, which stand in texts alone, steer too."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as aligned lines; the last column is as long as it is."""
    made = [[safe(cell) for cell in row] for row in rows]
    if not made:
        return []
    widths = [max(len(row[column]) for row in made) for column in range(len(made[0]))]
    widths[-1] = 0
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in made
    ]


def clock(at: datetime | None, now: datetime | None = None) -> str:
    """A time as the person's own clock shows it; with the day if that was another."""
    if at is None:
        return "-"
    local, today = at.astimezone(), (now or datetime.now(UTC)).astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%Y-%m-%d %H:%M")


# -- Hints of the library in the words of the command line: what a program writes as `amend=True` is typed as `--amend`.

# Commands behind which there is a command line or a script, and no program that calls the library.
COMMANDS = ("run", "resume", "open", "step", "effect", "stage", "remember", "__attach")
_OPTIONS = {"invariants": "--invariant"}
_FLAG = re.compile(r"(?<![-\w])(amend|again|moved)=True\b")
_VALUE = re.compile(
    r"(?<![-\w.])(goal|done|invariants|budget|workspace|project|store|files)="
    r"""(?:\[?("[^"\]]*")\]?|(?=[\s`,;)]|$))"""
)


def typed(text: str, command: str = "run") -> str:
    """The text with our parameters as options; everything else stays. What is resumed may be a program all the same."""
    again = AGAIN if command == "resume" else "`--again`"
    text, *rest = (_VALUE.sub(_option, _FLAG.sub(r"--\1", part)) for part in text.split(AGAIN))
    return again.join((text, *rest)).replace("`beat.decide`", "`outlast step`")


def _option(found: re.Match[str]) -> str:
    option = _OPTIONS.get(found[1], f"--{found[1]}")
    return f"{option} {found[2]}" if found[2] else option
