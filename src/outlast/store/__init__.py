"""Where runs are kept: the seam (`protocol`), the embedded backend (`sqlite`), and how a store is found."""

import os
from pathlib import Path

from outlast.errors import StoreRefused
from outlast.store.protocol import Store
from outlast.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "Store", "default_url", "locate", "open_store", "plain_url"]

_DATABASE = "outlast.db"
_FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def default_url() -> str:
    """OUTLAST_STORE, else `outlast` in the user's state folder. Raises StoreRefused for a user without a home."""
    return os.environ.get("OUTLAST_STORE") or plain_url()


def plain_url() -> str:
    """Where runs are kept when nothing says otherwise. Raises StoreRefused for a user without a home."""
    try:
        state_home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    except RuntimeError as error:
        hint = "set OUTLAST_STORE to a folder, or HOME"
        raise StoreRefused("there is no home to keep runs in", hint=hint) from error
    return str(Path(state_home) / "outlast")


def locate(url: str | os.PathLike[str] | None = None) -> tuple[Path, Path]:
    """Folder and database file of the store at a folder, a database file, or a `sqlite://` URL. Makes nothing."""
    text = os.fspath(url) if url is not None else default_url()
    scheme, separator, rest = text.partition("://")
    if separator:
        if scheme != "sqlite":
            raise StoreRefused(f"unknown kind of store {scheme!r}", hint="give a folder, or sqlite:///path")
        text = rest
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise StoreRefused(f"the store {text!r} lies in nobody's home", hint="give the whole path") from error
    if path.name == _DATABASE:
        return path.parent, path  # a store's own URL leads back to it, and to the same locks
    if path.suffix in _FILE_SUFFIXES or path.is_file():
        return path.with_name(path.name + ".d"), path
    return path, path / _DATABASE


def open_store(url: str | os.PathLike[str] | None = None, *, vfs: str | None = None) -> SqliteStore:
    """Open the store at a folder, a database file, or a `sqlite://` URL; made if it is not there."""
    root, database = locate(url)
    return SqliteStore(root, database, vfs=vfs)
