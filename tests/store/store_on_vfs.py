"""A SQLite store on a file system that a test made: what no URL says."""

from pathlib import Path

from outlast.store.protocol import Store
from outlast.store.sqlite.place import place
from outlast.store.sqlite.store import SqliteStore


def open_on(folder: Path, vfs: str) -> Store:
    """The store of a folder, with its database behind this VFS."""
    there = place(str(folder))
    return SqliteStore(there.local, there.database, vfs=vfs)
