"""Where a person elsewhere reaches the page: the setting `ui_url`, else what a running `outlast ui` says of itself.

A page that listens on loopback alone says nothing: then a notice names the command."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from outlast.store import durable
from outlast.store.local import Local

_CHARS_MAX = 300


def reachable(local: Local, setting: str) -> str:
    """The page's address without a slash at its end; empty where nobody elsewhere reaches it."""
    return setting.rstrip("/") or _announced(local.page_note)


@contextlib.contextmanager
def announced(local: Local, url: str) -> Iterator[None]:
    """Say in the state folder that the page is reached here, while the block runs. Its lock proves that the page lives."""
    if not url or not local.folder.is_dir():
        yield
        return
    note = local.page_note
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            durable.replace_file(note, url.rstrip("/").encode())
            file = stack.enter_context(open(note, "rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _announced(note: Path) -> str:
    try:
        with open(note, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = os.fsdecode(file.read(_CHARS_MAX))
                return text if text.startswith(("http://", "https://")) and text.isprintable() else ""
    except OSError:
        pass
    return ""  # no page says so, or the one that did has ended
