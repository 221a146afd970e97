"""What the terminal is told: data on stdout, the rest on stderr, and nothing an agent wrote can steer it."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from outlast.core import plaintext
from outlast.core.plaintext import safe as safe
from outlast.core.plaintext import short as short
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
    return plaintext.pasteable(text, _repeated.rstrip(" "))


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
