"""Printing: data on stdout, the rest on stderr, and no control character of an agent reaches the terminal."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from outlast.core import text as core_text
from outlast.core.statuses import AGAIN
from outlast.core.text import safe as safe, short as short
from outlast.errors import UsageError

if TYPE_CHECKING:
    from outlast.acts.plan import ActOutcome

_STEERING = re.compile("[\x7f-\x9f]")

_repeated = ""


def say(line: str = "") -> None:
    """Print a line of data. The caller has made foreign texts safe."""
    sys.stdout.write(line + "\n")


def say_bytes(output: bytes) -> None:
    """Print git's output unchanged to a program; to a terminal without control characters."""
    sys.stdout.flush()
    if not sys.stdout.isatty() and hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(output)
        return
    for line in output.decode(errors="backslashreplace").split("\n")[:-1]:
        say("\t".join(safe(part) for part in line.split("\t")))


def repeat(**options: str | None) -> None:
    """Set the options of this command line that every command in a hint repeats."""
    global _repeated
    given = {name: value for name, value in options.items() if value is not None}
    _repeated = "".join(f"--{name} {shlex.quote(value)} " for name, value in given.items())


def pasteable(text: str) -> str:
    """A text whose `outlast …` commands can be pasted: they work on the same store and project as this one."""
    return core_text.pasteable(text, _repeated.rstrip(" "))


def command(words: str) -> str:
    """The next command to type, with the same options."""
    return f"outlast {_repeated}{words}"


def tell(line: str) -> None:
    """Print a line for the person on stderr."""
    sys.stderr.write(safe(pasteable(line)) + "\n")


def tell_outcome(outcome: "ActOutcome") -> None:
    """Print the outcome of an act, and what to type next. Raises the error that stopped the act."""
    tell(outcome.says)
    if outcome.error is not None:
        raise outcome.error
    if outcome.hint:
        tell(outcome.hint)


def complain(message: str, hint: str = "") -> None:
    """Print the error, and what to type next."""
    tell(f"error: {_cut(message)}")
    if hint:
        tell(f"hint: {_cut(hint)}")


COMPLAINT_CHARS_MAX = 2000


def _cut(text: str) -> str:
    """A complaint without most of a word that was given and goes on for pages."""
    half = COMPLAINT_CHARS_MAX // 2
    return text if len(text) <= COMPLAINT_CHARS_MAX else f"{text[:half]} … {text[-half:]}"


def refuse_blank(arguments: argparse.Namespace, *options: str) -> None:
    """Refuse an empty option, as an unset variable of a script gives it: it does not count as left out."""
    for option in options:
        given = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if any(not text.strip() for text in ([given] if isinstance(given, str) else given or ())):
            raise UsageError(
                f"{option} is empty",
                hint=f"give it a value, or leave it out; `outlast {arguments.command} --help` explains it",
            )


def say_json(value: object) -> None:
    """Print a document as indented JSON."""
    say(_harmless(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def say_json_line(value: object) -> None:
    """Print a document as JSON on one line, for streams."""
    say(_harmless(msgspec.json.encode(value)))


def _harmless(document: bytes) -> str:
    """JSON with the control characters from U+007F to U+009F escaped too: JSON allows them, terminals obey them."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as aligned lines; the last column is not padded."""
    made = [[safe(cell) for cell in row] for row in rows]
    if not made:
        return []
    widths = [max(len(row[column]) for row in made) for column in range(len(made[0]))]
    widths[-1] = 0
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in made
    ]


def clock(at: datetime | None, now: datetime | None = None) -> str:
    """A time in the local time zone; with the date if it is not today."""
    if at is None:
        return "-"
    local, today = at.astimezone(), (now or datetime.now(UTC)).astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%Y-%m-%d %H:%M")


_UTC = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}) UTC\b")


def local(text: str) -> str:
    """The text with its moments in UTC, as JSON has them, by the clock of the person who reads it."""
    return _UTC.sub(
        lambda found: f"{datetime.fromisoformat(f'{found[1]}Z').astimezone():%Y-%m-%d %H:%M}", text
    )


# -- hints of the library, for the command line: `amend=True` becomes `--amend`

# Commands whose hints go to a command line or a script, not to a program that calls the library.
COMMANDS = ("run", "resume", "open", "step", "effect", "stage", "remember", "__attach")
_OPTIONS = {"invariants": "--invariant"}
_FLAG = re.compile(r"(?<![-\w])(amend|again|moved)=True\b")
_VALUE = re.compile(
    r"(?<![-\w.])(goal|done|invariants|budget|workspace|project|store|files)="
    r"""(?:\[?("[^"\]]*")\]?|(?=[\s`,;)]|$))"""
)


def typed(text: str, command: str = "run") -> str:
    """The text with parameters of the library as options. A resumed run may belong to a program: its `again` stays."""
    again = AGAIN if command == "resume" else "`--again`"
    text, *rest = (_VALUE.sub(_option, _FLAG.sub(r"--\1", part)) for part in text.split(AGAIN))
    return again.join((text, *rest)).replace("`beat.decide`", "`outlast step`")


def _option(found: re.Match[str]) -> str:
    option = _OPTIONS.get(found[1], f"--{found[1]}")
    return f"{option} {found[2]}" if found[2] else option
