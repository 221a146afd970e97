"""What a caller asks of a run: task, contract, budget, places. Parsed once, refused early."""

import os
from collections.abc import Sequence

import msgspec

from outlast.core import budget as budgets
from outlast.core.values import Allowance
from outlast.errors import UsageError

_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TASK_CHARS_MAX = 200


def new_id() -> str:
    """A fresh run id: twelve characters, the first a letter, so that it is never taken for an issue number."""
    first, *rest = os.urandom(12)
    return _ID_ALPHABET[first % 16] + "".join(_ID_ALPHABET[byte % 32] for byte in rest)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller asks for; None where nothing was said."""

    task: str
    goal: str | None = None
    checks: tuple[str, ...] | None = None
    invariants: tuple[str, ...] | None = None
    budget: Allowance | None = None
    project: str = ""
    workspace: str = ""
    store: str | None = None
    amend: bool = False
    again: bool = False


def task_name(given: object) -> str:
    """The name of a task: short, printable, not empty."""
    name = str(given)
    if not name.strip() or len(name) > TASK_CHARS_MAX or not name.isprintable():
        raise UsageError(f"{name!r:.60} is no name for a task", hint="use an issue number or a short slug")
    return name


def budget_of(given: object) -> Allowance | None:
    """A budget that can be kept here: tokens, money, beats."""
    budget = budgets.parse(given)
    if budget is not None and (budget.time_s is not None or budget.window_pct is not None):
        raise UsageError("time= and window= budgets are not kept yet", hint="give tokens, usd= or beats=")
    return budget


def commands_of(given: Sequence[str] | str | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    commands = (given,) if isinstance(given, str) else tuple(given)
    if not all(command.strip() for command in commands):
        raise UsageError(f"{what}= takes shell commands", hint=f'like {what}=["make test"]')
    return commands
