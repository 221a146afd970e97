"""Stores opened by this process, shared by all its runs so that they share commits; closed with the last run."""

import contextlib
import os
import shlex
import threading

from outlast import settings
from outlast.errors import OutlastError
from outlast.store import locate, open_store
from outlast.store.protocol import Store

_lock = threading.Lock()
_open: dict[tuple[int, str], tuple[Store, int]] = {}


def acquire(url: str | os.PathLike[str] | None = None) -> Store:
    """The store behind a path or URL; give it back with `give_back`."""
    key = os.getpid(), locate(url or None).url
    with _lock:
        found = _open.get(key)
        store = found[0] if found and found[0].usable else open_store(key[1])
        _open[key] = (store, found[1] + 1 if found and found[0] is store else 1)
        return store


def give_back(store: Store) -> None:
    """Give a shared store back. The last user closes it."""
    with _lock:
        for key, (opened, users) in list(_open.items()):
            if opened is not store:
                continue
            if users > 1:
                _open[key] = (store, users - 1)
                return
            del _open[key]
    store.close()


def option_of(store: Store) -> str:
    """The option that leads a command to the store; empty if its settings lead there anyway."""
    place = locate(store.url)
    with contextlib.suppress(OSError, OutlastError):
        if locate(settings.load()["store"] or None).real_url == place.real_url:
            return ""
    return f" --store {shlex.quote(place.option)}"


def _forget_after_fork() -> None:
    """In a forked child the lock may be held by a thread that is not there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
