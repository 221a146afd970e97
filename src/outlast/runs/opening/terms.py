"""The terms that a caller asks of a run: task, contract, budget, places. Parsed once, refused early."""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeGuard

import msgspec

from outlast import settings
from outlast.core import budget as budgets
from outlast.core.state import RunState
from outlast.core.text import did_you_mean
from outlast.core.values import Allowance, Origin, scrub
from outlast.errors import UsageError

Mode = Literal["keep", "rewind"]
_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TASK_CHARS_MAX = 200
PROJECT_BYTES_MAX = 4_096
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_UNTIL = "like 07:00, +8h or 2026-11-16T07:00"
NO_LIMIT = "give it without + to set one"  # the hint for a unit that has no limit to raise


def new_id() -> str:
    """A fresh run id: twelve characters, the first a letter, so that it is never taken for an issue number."""
    first, *rest = os.urandom(12)
    return _ID_ALPHABET[first % 16] + "".join(_ID_ALPHABET[byte % 32] for byte in rest)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms that the caller asks for; None where the caller left one open."""

    task: str
    goal: str | None = None
    checks: tuple[str, ...] | None = None
    invariants: tuple[str, ...] | None = None
    budget: Allowance | None = None
    project: str = ""
    project_given: bool = False
    workspace: str = ""
    workspace_given: bool = True
    origin: Origin | None = None
    store: str | None = None
    amend: bool = False
    again: bool = False
    files: Mode = "rewind"
    moved: bool = False


def task_name(given: object) -> str:
    """The name of a task: a text or a number; short, printable, not empty."""
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not name.strip() or len(name) > TASK_CHARS_MAX or not name.isprintable():
        raise UsageError(
            f"a task needs a short, printable name, got {given!r:.60}",
            hint="use an issue number or a short slug",
        )
    return name


def goal_of(given: object) -> str | None:
    """The goal: any text that can be written."""
    if given is None or _is_text(given):
        return given
    raise UsageError(f"goal= takes a text, not {given!r:.60}", hint='like goal="Trap exit signals"')


def project_name(given: object) -> str | None:
    """The name of a project, None where the folder decides."""
    if given is not None and not isinstance(given, str):
        raise UsageError(f"project= takes a name, not {given!r:.60}", hint='like project="app"')
    if given is not None and len(msgspec.json.encode(scrub(given))) > PROJECT_BYTES_MAX:
        raise UsageError(
            f"a project's name has at most {PROJECT_BYTES_MAX:,} bytes", hint="give a shorter project="
        )
    return given


def path_of(given: object, what: str) -> str | None:
    """A path as a text; None where none is given."""
    path = given.__fspath__() if isinstance(given, os.PathLike) else given
    if path is None or (isinstance(path, str) and "\0" not in path):
        return path
    raise UsageError(f"{what}= takes a path, not {given!r:.60}", hint=f'like {what}="folder"')


def workspace_of(given: object) -> Path | None:
    """The folder that a run works in, None where that is the current one. `~` is the home, as in a shell."""
    path = path_of(given, "workspace")
    if path is None:
        return None
    folder = Path(os.path.expanduser(path)).absolute()
    if os.path.lexists(folder) and not folder.is_dir():
        raise not_a_folder(folder)
    if scrub(str(folder)) != str(folder):
        raise UsageError(
            f"the workspace {scrub(str(folder))} has a name that is not UTF-8, and could not be found again by it",
            hint="rename it, or work in another folder",
        )
    return folder


def not_a_folder(folder: Path) -> UsageError:
    """A workspace that is not there, and of which there is no save to bring it back from."""
    return UsageError(f"the workspace {folder} is not a folder", hint="make it, or give another workspace=")


def files_mode(given: object) -> Mode:
    """What to do with the files on resume."""
    if given == "keep" or given == "rewind":
        return given
    raise UsageError(
        f"files must be 'keep' or 'rewind', got {given!r:.40}",
        hint=did_you_mean(str(given), ("keep", "rewind")) or "like files='keep'",
    )


def budget_of(given: object, until: object = None, reserve: object = None) -> Allowance | None:
    """A budget: tokens, money, time, beats, a share of a window; until when; and how much of it is kept for the ending."""
    budget = budgets.parse(given)
    if until is not None:
        moment = until_of(until, datetime.now(UTC))
        budget = msgspec.structs.replace(budget or Allowance(), until=moment)
    if reserve is None:
        return budget
    share = budgets.reserve(str(reserve))
    if budget is None:
        raise UsageError(
            "--reserve needs --budget",
            hint="give a budget too, like 400k or usd=12",
        )
    return msgspec.structs.replace(budget, reserve_pct=share)


def raised(head: RunState, given: Sequence[str], until: str | None = None) -> Allowance:
    """The budget of a run after a change: `+200k` is put on top, `400k` is the limit from now on; the others stay.

    Raises UsageError where nothing would be left to go on with.
    """
    more, anew = (
        budgets.parse([text for text, adds in map(_added, given) if adds is wanted]) or Allowance()
        for wanted in (True, False)
    )
    budget = head.budget or Allowance()
    for field, unit in budgets.UNITS.items():
        if getattr(more, field) is not None and getattr(anew, field) is not None:
            raise UsageError(f"the budget names {unit} twice", hint="give each unit once")
        if getattr(more, field) is not None and getattr(budget, field) is None:
            raise UsageError(f"run {head.run} has no limit of {unit} to raise", hint=NO_LIMIT)
    changes = {field: getattr(anew, field) for field in budgets.UNITS if getattr(anew, field) is not None}
    now = datetime.now(UTC)
    if until is not None:
        changes["until"] = until_of(until, now)
    after = msgspec.structs.replace(budgets.with_more(budget, more), **changes)
    short = budgets.limit_reached(msgspec.structs.replace(head, budget=after), budgets.Live(now))
    if short:
        raise NotEnough(
            f"run {head.run} would stop at once: {short}",
            hint=f"`outlast resume {head.run} {_enough(head, given, until, after, now)}` is enough",
        )
    return after


class NotEnough(UsageError):
    """A budget that is spent already."""


def _enough(head: RunState, given: Sequence[str], until: str | None, after: Allowance, now: datetime) -> str:
    """The options that ask for the same and leave something to go on with: more of each limit that would be spent."""
    live = budgets.Live(now)
    spent = {line.unit: line for line in budgets.lines(head, live) if line.is_reached}
    options = [f"--budget {text}" for text in given if unit_of(text) not in spent]
    options += [f"--until {until}"] if until is not None else []
    for line in budgets.lines(msgspec.structs.replace(head, budget=after), live):
        if line.is_reached and line.unit == "until":
            options = [*(text for text in options if not text.startswith("--until")), "--until +8h"]
        elif line.is_reached and line.unit in spent:
            options.append(f"--budget {budgets.half_of(spent[line.unit], head)}")
        elif line.is_reached:
            options = [text for text in options if unit_of(text.removeprefix("--budget ")) != line.unit]
            options.append(f"--budget {budgets.limit_above(line)}")
    return " ".join(options)


def unit_of(text: str) -> str:
    """The unit of an amount as one types it."""
    return text.rpartition("=")[0].strip().lower() or "tokens"


def topped(head: RunState, given: Sequence[str]) -> tuple[Allowance, Allowance]:
    """The amount on top of a run's budget, and the budget after it; `200k` and `+200k` are the same here."""
    plain = [_added(text)[0] for text in given]
    more = budgets.parse(plain)
    if more is None:
        raise UsageError("nothing is to be added", hint="say how much, like +200k, usd=+5 or time=+2h")
    return more, raised(head, [f"+{text}" for text in plain])


def only_adds(given: Sequence[str]) -> bool:
    """Whether every limit of these is put on top, and none set."""
    return all(adds for _, adds in map(_added, given))


def _added(text: str) -> tuple[str, bool]:
    """One limit without its plus, and whether it had one: `+200k`, `usd=+5`, `+usd=5`."""
    unit, equals, amount = text.strip().rpartition("=")
    bare, plain = unit.removeprefix("+"), amount.strip().removeprefix("+")
    return f"{bare}{equals}{plain}", (bare, plain) != (unit, amount.strip())


def until_of(given: object, now: datetime) -> datetime:
    """The moment ahead that a person means: the next 07:00 of their clock, in 8 hours, or a date with its time."""
    try:
        moment = given if isinstance(given, datetime) else _moment(str(given).strip(), now)
        moment = moment.astimezone(UTC)  # without a zone of its own it is the person's
    except (UsageError, ValueError, OverflowError):
        raise UsageError(f"the time {given!s:.40} cannot be read", hint=_UNTIL) from None
    if moment <= now:
        raise UsageError(f"the time {given!s:.40} is past already", hint=_UNTIL)
    return moment


def _moment(text: str, now: datetime) -> datetime:
    clock = _CLOCK.fullmatch(text)
    if clock:
        here = now.astimezone().replace(
            tzinfo=None
        )  # days are counted by the wall clock: one has 23 or 25 hours at times
        today = here.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return today if today > here else today + timedelta(days=1)
    if text.startswith("+"):
        return now + settings.age(text[1:])
    if "T" not in text and " " not in text:
        raise ValueError("a day needs a time of day")
    return datetime.fromisoformat(text)


def in_words(budget: Allowance) -> str:
    """Limits as a person reads them."""
    found = [
        f"{budget.tokens:,} tokens" if budget.tokens is not None else "",
        f"${budget.cost_microusd / 1e6:.2f}" if budget.cost_microusd is not None else "",
        f"{timedelta(seconds=budget.time_s)} h" if budget.time_s is not None else "",
        f"{budget.beats:,} beat{'' if budget.beats == 1 else 's'}" if budget.beats is not None else "",
        f"{budget.window_pct} % of the window" if budget.window_pct is not None else "",
        f"until {budget.until.astimezone():%Y-%m-%d %H:%M}" if budget.until is not None else "",
    ]
    return ", ".join(part for part in found if part) or "no limit"


def commands_of(given: object, what: str) -> tuple[str, ...] | None:
    """Shell commands in their order: a text, or a list of texts."""
    if given is None:
        return None
    commands = (
        (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (None,)
    )
    if not all(_is_text(command) and command.strip() and "\0" not in command for command in commands):
        raise UsageError(
            f"{what}= takes shell commands, not {given!r:.60}", hint=f'like {what}=["make test"]'
        )
    return commands


def _is_text(given: object) -> TypeGuard[str]:
    """Whether it is a text without half characters, which could not be written."""
    return isinstance(given, str) and scrub(given) == given
