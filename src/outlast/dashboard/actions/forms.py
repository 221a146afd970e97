"""The texts of a wish, read with their limits: they come from a form or another program. Nothing is changed here."""

import contextlib
import os
import re
import shlex
from pathlib import Path

import msgspec

from outlast import decoders, settings
from outlast.core.secrets import mask
from outlast.core.text import pasteable, short
from outlast.core.values import scrub
from outlast.dashboard.documents import Wish
from outlast.errors import OutlastError, StoreRefused, UnknownRun, UsageError, WorkspaceRefused
from outlast.operations import requests
from outlast.runs.engine.questions import REPLY_CHARS_MAX
from outlast.store import locate, plain_url
from outlast.store.protocol import Store, Summary
from outlast.workspace.restore.restore import refuse_full

SENTENCE_CHARS_MAX = 600
BY_CHARS_MAX = 200
FOLDER_BYTES_MAX = 1_000
_CHARS_MAX = {
    "amounts": 200, "limit_was": 300, "effect": 40, "result": requests.RESULT_MAX_BYTES, "task": 200, "save": 100,
    "folder": FOLDER_BYTES_MAX, "question": 120, "text": REPLY_CHARS_MAX,
}  # fmt: skip
_UNTIL = "until="
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
            raise UsageError(f"the {field.replace('_', ' ')} is not valid text", hint="give it as UTF-8")
    return wish


def run_of(store: Store, wish: Wish) -> Summary:
    """The run that is meant, by its whole id. Raises UnknownRun."""
    if not _RUN.fullmatch(wish.run):
        raise UnknownRun(short(wish.run, 40))
    return requests.summary_of(store, wish.run)


def line(text: object) -> str:
    """A sentence to be shown: on one line, bounded, without what looks like a secret."""
    return mask(short(text, SENTENCE_CHARS_MAX))[0]


def error_lines(error: OutlastError | OSError) -> tuple[str, str]:
    """The error and the next thing to do, each on one line."""
    if isinstance(error, OutlastError):
        return line(error), line(error.hint)
    return line(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")), "see `outlast doctor`"


def who(by: str) -> str:
    """The name of the person who asks, for the record."""
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


# -- effects ---------------------------------------------------------------------------------------------------------


def result(wish: Wish) -> bytes | None:
    """The result of an effect as JSON, None where none is given. A text that does not look like JSON is a text."""
    text = wish.result.strip()
    if not text:
        return None
    try:
        decoders.decode(text.encode(), msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        if text[0] not in '{["':
            return msgspec.json.encode(text)
    return text.encode()  # if it is no JSON after all, the act says so


# -- folders ---------------------------------------------------------------------------------------------------------


def new_folder(given: str) -> Path:
    """The new folder that is meant: its real place, in a folder that is there. Whether it may be used, the act says."""
    path = _path(given.strip())
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="make it first, or give another one")
    if Path(os.path.realpath(path.parent)) != path.parent or path.is_symlink():
        there = os.path.realpath(path)
        raise UsageError(f"{path} leads elsewhere by a symbolic link", hint=f"give its real place, {there}")
    return path


def _path(text: str) -> Path:
    if not text:
        raise UsageError("no folder is given", hint="give a new one by its whole path, like ~/looked-at")
    if len(os.fsencode(text)) > FOLDER_BYTES_MAX or not text.isprintable():
        raise UsageError(
            f"{short(text, 60)!r} cannot be the name of a folder", hint="give a shorter, printable one"
        )
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


def beside(summary: Summary, commit: str) -> str:
    """A folder beside the workspace of a run for the files of a save; empty if something lies there already."""
    place = Path(summary.state.workspace or "/nowhere")
    path = place.with_name(f"{place.name}-{commit[:7]}")
    try:
        refuse_full(path)
    except (WorkspaceRefused, OSError):
        return ""
    return str(path)
