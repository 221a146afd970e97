"""Where runs live: the seam (`protocol`), this host's half (`local`), the backends, and how a store is found.

Only this package knows its backends. A backend is imported when its store is located: locks need no database."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from outlast.errors import StoreRefused
from outlast.store import credentials

if TYPE_CHECKING:
    from outlast.store.protocol import Store, StorePlace

__all__ = ["default_url", "locate", "open_store", "plain_url"]

# URL scheme, and the module whose `place` locates such a store. The first is the default.
_BACKENDS = {
    "sqlite": "outlast.store.sqlite.place",
    "postgresql": "outlast.store.postgres.place",
    "postgres": "outlast.store.postgres.place",
}


def default_url() -> str:
    """OUTLAST_STORE, else the folder `outlast` in the user's state folder. Raises StoreRefused for a user without a home."""
    return os.environ.get("OUTLAST_STORE") or plain_url()


def plain_url() -> str:
    """The default place. Raises StoreRefused for a user without a home."""
    try:
        given = os.environ.get("XDG_STATE_HOME", "")  # a relative one is void by its standard
        state_home = given if os.path.isabs(given) else str(Path.home() / ".local" / "state")
    except RuntimeError as error:
        hint = "set OUTLAST_STORE to a folder, or HOME"
        raise StoreRefused("no home folder to put the store in", hint=hint) from error
    return str(Path(state_home) / "outlast")


def locate(url: str | os.PathLike[str] | None = None) -> "StorePlace":
    """Where the store at a folder, a database file, or a URL is. Creates nothing."""
    text = os.fspath(url) if url is not None else default_url()
    credentials.hide_in_environment()
    scheme, separator, rest = text.partition("://")
    if separator and scheme not in _BACKENDS:
        raise StoreRefused(
            f"no such kind of store: {scheme:.40}",
            hint="give a folder, sqlite:///path or postgresql://user@host/database",
        )
    backend = importlib.import_module(_BACKENDS[scheme if separator else next(iter(_BACKENDS))])
    return cast("StorePlace", backend.place(rest if separator else text))


def open_store(url: str | os.PathLike[str] | None = None, *, reading: bool = False) -> "Store":
    """Open the store at a folder, a database file, or a URL. Creates a missing one.

    Opened for `reading`, it creates and changes nothing.
    """
    return locate(url).open(reading=reading)
