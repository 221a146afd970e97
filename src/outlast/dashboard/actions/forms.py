"""Reading what somebody wants done: the texts of a wish, each with its limit, made into what the acts take.

Everything here comes from a form or another program. What cannot be meant is refused in one line; nothing is changed.
"""

import contextlib
import os
import re
import shlex
from pathlib import Path

import msgspec

from outlast import settings
from outlast.core.secrets import mask
from outlast.core.text import pasteable, short
from outlast.core.values import Allowance, scrub
from outlast.dashboard.documents import Wish
from outlast.errors import OutlastError, RunRefused, StoreRefused, UnknownRun, UsageError, WorkspaceRefused
from outlast.operations import requests
from outlast.runs.opening.terms import in_words
from outlast.store import locate, plain_url
from outlast.store.protocol import Store, Summary
from outlast.workspace.restore.restore import refuse_full

SAID_CHARS_MAX = 600
BY_CHARS_MAX = 200
FOLDER_BYTES_MAX = 1_000
_CHARS_MAX = {
    "amounts": 200, "limit_was": 300, "effect": 40, "result": requests.RESULT_MAX_BYTES, "task": 200, "save": 100,
    "folder": FOLDER_BYTES_MAX,
}  # fmt: skip
_UNTIL = "until="
_KERNELS = ("/proc", "/sys", "/dev")
_RUN = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def checked(wish: Wish) -> Wish:
    """The wish, if every text in it can be written and is not too long."""
    for field, chars_max in _CHARS_MAX.items():
        text: str = getattr(wish, field)
        if len(text) > chars_max:
            raise UsageError(
                f"the {field.replace('_', ' ')} has {len(text):,} characters; at most {chars_max:,} are taken",
                hint="say it shorter",
            )
        if scrub(text) != text or "\0" in text:
            raise UsageError(f"the {field.replace('_', ' ')} is no text", hint="give it as UTF-8")
    return wish


def run_of(store: Store, wish: Wish) -> Summary:
    """The run that is meant, by its whole id. Raises UnknownRun."""
    if not _RUN.fullmatch(wish.run):
        raise UnknownRun(short(wish.run, 40))
    return requests.summary_of(store, wish.run)


def line(text: object) -> str:
    """A sentence to be shown: on one line, bounded, without what looks like a secret."""
    return mask(short(text, SAID_CHARS_MAX))[0]


def told(error: OutlastError | OSError) -> tuple[str, str]:
    """What went wrong, and what to do next."""
    if isinstance(error, OutlastError):
        return line(error), line(error.hint)
    return line(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")), "see `outlast doctor`"


def who(by: str) -> str:
    """Whoever asks, for the record."""
    return short(by, BY_CHARS_MAX).strip() or settings.user_name()


def command(store: Store, *words: str) -> str:
    """A command of ours that can be pasted and leads to this very store."""
    return mask(shlex.join(("outlast", *there(store.url), *words)))[0]


def led(store: Store, text: str) -> str:
    """A text whose `outlast …` commands can be pasted and lead to this very store."""
    return mask(pasteable(text, shlex.join(there(store.url))))[0]


def there(url: str) -> tuple[str, ...]:
    """The option that leads to this very store; none where every command finds it, wherever it is typed.

    What a variable or the file of a repository says counts here alone, so only the place that nothing has to name needs none.
    """
    with contextlib.suppress(StoreRefused):  # of a user without a home, who always has to name it
        plain, here = (locate(of).url for of in (plain_url(), settings.load()["store"] or None))
        if url == plain == here:
            return ()
    return ("--store", url)


# -- budgets ---------------------------------------------------------------------------------------------------------


def amounts(wish: Wish) -> tuple[list[str], str | None]:
    """The limits that are named, and until when it may work: `+200k`, `usd=+2 beats=+10`, `until=07:00`."""
    given = wish.amounts.replace(",", " ").split()
    moments = [text.removeprefix(_UNTIL) for text in given if text.startswith(_UNTIL)]
    if len(moments) > 1:
        raise UsageError("until is named twice", hint="give each unit once")
    return [text for text in given if not text.startswith(_UNTIL)], moments[0] if moments else None


def limit_words(budget: Allowance | None) -> str:
    """An allowance as `limit_was` has it."""
    return "no limit" if budget is None else in_words(budget)


def limit_now(store: Store, run: str) -> Allowance | None:
    """The allowance of a root run with what its holder was asked for and has not taken in yet."""
    return requests.standing(store, run).state.budget


def require_limit(wish: Wish, now: Allowance | None) -> None:
    """Refuse what was worked out from an allowance that is another one by now: somebody else has changed it."""
    if wish.limit_was and wish.limit_was != limit_words(now):
        raise RunRefused(
            f"the budget is {limit_words(now)} by now, and was {short(wish.limit_was, 100)}",
            hint="look at it and ask again",
        )


# -- effects ---------------------------------------------------------------------------------------------------------


def result(wish: Wish) -> bytes:
    """The result of an effect as JSON. A text that does not look like JSON is taken as a text."""
    text = wish.result.strip()
    if not text:
        return b"null"
    try:
        msgspec.json.decode(text.encode(), type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        if text[0] not in '{["':
            return msgspec.json.encode(text)
    return text.encode()  # if it is no JSON after all, the act says so


# -- folders ---------------------------------------------------------------------------------------------------------


def new_folder(store: Store, summary: Summary, given: str, *, full: bool = False) -> Path:
    """A folder that files may be written to: a new one, or an empty one unless `full`; nothing is ever overwritten.

    Its real place is what was given: no `..`, no symbolic link on the way, and nowhere in a repository's own folder, in the
    store, or in the workspace of the run, where its agent would find it.
    """
    path = _path(given.strip())
    parent, name = path.parent, path.name
    if not parent.is_dir():
        raise UsageError(f"there is no folder {parent}", hint="make it first, or give another one")
    real = Path(os.path.realpath(parent))
    if real != parent or path.is_symlink():
        there = os.path.realpath(path)
        raise UsageError(f"{path} leads elsewhere by a symbolic link", hint=f"give its real place, {there}")
    if any(_is_git(each) for each in (path, real, *real.parents)) or name.lower() == ".git":
        raise UsageError(f"{path} is inside a repository's own folder", hint="give a folder outside of it")
    inside = ((str(store.local.folder), "the store"), (summary.state.workspace, "the run's own workspace"))
    for closed, what in (*inside, *((kernel, "the kernel's own folder") for kernel in _KERNELS)):
        if closed and path.is_relative_to(os.path.realpath(closed)):
            raise UsageError(f"{path} is inside {what}", hint=f"give a folder outside of {closed}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"nothing may be written in {parent}", hint="give another folder")
    if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
        raise UsageError(f"{path} is somebody else's", hint="give a folder that does not exist yet")
    if not full:
        refuse_full(path)
    return path


def _path(text: str) -> Path:
    if not text:
        raise UsageError("no folder is given", hint="give a new one by its whole path, like ~/looked-at")
    if len(os.fsencode(text)) > FOLDER_BYTES_MAX or not text.isprintable():
        raise UsageError(f"{short(text, 60)!r} is no name for a folder", hint="give a shorter, printable one")
    if text == "~" or text.startswith("~/"):
        home = settings.home()
        text = f"{os.path.realpath(home)}{text[1:]}" if home is not None else text
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or path == Path("/") or path.parts[0] == "//":
        raise UsageError(
            f"{short(text, 100)} is not the whole path of a new folder",
            hint="begin with / or ~, without `..`",
        )
    return path


def _is_git(folder: Path) -> bool:
    """Whether a folder is where git keeps a repository, also a bare one."""
    parts = ("HEAD", "objects", "refs")
    return folder.name.lower() == ".git" or all(os.path.lexists(folder / part) for part in parts)


def beside(summary: Summary, commit: str) -> str:
    """A folder beside the workspace of a run for the files of a save; empty where that is taken."""
    place = Path(summary.state.workspace or "/nowhere")
    path = place.with_name(f"{place.name}-{commit[:7]}")
    try:
        refuse_full(path)
    except (WorkspaceRefused, OSError):
        return ""
    return str(path)
