"""What a caller asks of a run: task, contract, budget, places. Parsed once, refused early."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeGuard

import msgspec

from outlast.core import budget as budgets
from outlast.core.values import Allowance, scrub
from outlast.errors import UsageError

Mode = Literal["keep", "rewind"]
_ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TASK_CHARS_MAX = 200
PROJECT_BYTES_MAX = 4_096


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
    project_given: bool = False
    workspace: str = ""
    store: str | None = None
    amend: bool = False
    again: bool = False
    files: Mode = "rewind"
    moved: bool = False


def task_name(given: object) -> str:
    """The name of a task: a text or a number; short, printable, not empty."""
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not name.strip() or len(name) > TASK_CHARS_MAX or not name.isprintable():
        raise UsageError(f"{given!r:.60} is no name for a task", hint="use an issue number or a short slug")
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
    """A path as a text, None where nothing was said."""
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
    """What becomes of the files on resume."""
    if given == "keep" or given == "rewind":
        return given
    raise UsageError(f"files={given!r:.40} is unknown", hint='give "keep" or "rewind"')


def budget_of(given: object) -> Allowance | None:
    """A budget that can be kept here: tokens, money, beats."""
    budget = budgets.parse(given)
    if budget is not None and (budget.time_s is not None or budget.window_pct is not None):
        raise UsageError("time= and window= budgets are not kept yet", hint="give tokens, usd= or beats=")
    return budget


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
