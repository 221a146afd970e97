"""Where a SQLite store is: a folder with the database in it, or a database file with a folder beside it.

Nothing here needs SQLite before the store is opened.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from outlast.errors import StoreRefused
from outlast.store.local import Local
from outlast.store.protocol import Health, ShelfKind, Store
from outlast.store.sqlite import shelf

_DATABASE = "outlast.db"
_FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """A database file and the folder of what lies beside it."""

    local: Local
    database: Path

    @property
    def url(self) -> str:
        """The same for every way to name it, but for links."""
        return f"sqlite://{self.database}"

    @property
    def real_url(self) -> str:
        """The same for every way to name it."""
        return f"sqlite://{os.path.realpath(self.database)}"

    @property
    def name(self) -> str:
        """As people know it."""
        return str(self.database)

    @property
    def option(self) -> str:
        """What `--store` leads to it with."""
        folder = self.local.folder
        return str(folder if self.database.parent == folder else self.database)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folder and the file, which need not be there."""
        return self.local.folder, self.database

    def exists(self) -> bool:
        """Whether a store was made there."""
        return self.database.exists()

    def open(self, *, reading: bool = False) -> Store:
        """Open it; made if it is not there and not opened for `reading`."""
        from outlast.store.sqlite.store import SqliteStore

        return SqliteStore(self.local, self.database, reading=reading)

    def examine(self) -> Health:
        """Read everything once. Raises StoreCorrupt for a file that cannot be read at all."""
        from outlast.store.sqlite import health

        return health.examine(self.local, self.database)

    def versions(self) -> str:
        """Of what it is kept with."""
        from outlast.store.sqlite import health

        return f"SQLite {health.sqlite_version()}, apsw {health.apsw_version()}"

    def folder_of(self, kind: ShelfKind) -> Path | None:
        """Empty, or not there, while the shelf has no document of this kind; None where no folder tells."""
        return shelf.folder_of(self.local.folder, kind)


def place(text: str) -> SqlitePlace:
    """Where the store at a folder or a database file is."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise StoreRefused(f"the store {text!r} lies in nobody's home", hint="give the whole path") from error
    if path.name == _DATABASE:
        return SqlitePlace(
            Local(path.parent), path
        )  # a store's own URL leads back to it, and to the same locks
    if path.suffix in _FILE_SUFFIXES or path.is_file():
        return SqlitePlace(Local(path.with_name(path.name + ".d")), path)
    return SqlitePlace(Local(path), path / _DATABASE)
