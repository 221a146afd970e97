"""Where a SQLite store is: a folder with the database in it, or a database file with a folder beside it.

Nothing here imports SQLite before the store is opened."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.errors import StoreRefused, StoreRewound
from outlast.store import durable, locks
from outlast.store.local import Local
from outlast.store.protocol import Flaw, Health, RunHealth, ShelfKind, Store
from outlast.store.sqlite import shelf

_DATABASE = "outlast.db"
_FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """A database file and the folder beside it."""

    local: Local
    database: Path

    @property
    def url(self) -> str:
        """The store's one URL, however it was named (links are not resolved)."""
        return f"sqlite://{self.database}"

    @property
    def real_url(self) -> str:
        """The store's one URL, however it was named, with links resolved."""
        return f"sqlite://{os.path.realpath(self.database)}"

    @property
    def name(self) -> str:
        """The name for people."""
        return str(self.database)

    @property
    def option(self) -> str:
        """The value of `--store` that leads to it."""
        folder = self.local.folder
        return str(folder if self.database.parent == folder else self.database)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folder and the file, existing or not."""
        return self.local.folder, self.database

    def exists(self) -> bool:
        """Whether a store was created there. Raises StoreRewound for one that is gone, and StoreRefused."""
        try:
            durable.require_file(self.database)
            if self.database.exists():
                return True
        except OSError as error:
            raise durable.store_refused(self.database, error) from error
        count = locks.read_mark(self.local.mark)
        if count:
            raise StoreRewound(
                f"the database {self.database} is gone, and {count:,} events were recorded in it",
                hint=f"put it back from a backup; to begin with an empty one, `rm {shlex.quote(str(self.local.mark))}`",
            )
        return False

    def open(self, *, reading: bool = False) -> Store:
        """Open the store. Creates a missing one, except for `reading`. Raises StoreError."""
        from outlast.store.sqlite.store import SqliteStore

        durable.require_file(self.database)
        return SqliteStore(self.local, self.database, reading=reading)

    def examine(self) -> Health:
        """Read everything once. Raises StoreCorrupt for a file that cannot be read at all."""
        from outlast.store.sqlite import health

        return health.examine(self.local, self.database)

    def examine_all(self) -> tuple[list[Flaw], Iterator[RunHealth]]:
        """Read every event: what is wrong with the file itself, and then each run."""
        from outlast.store.sqlite import examination

        flaws = examination.store_flaws(self.database)
        return flaws, examination.runs(self.database)

    def repair(self) -> list[str]:
        """Build indexes, heads and the columns of events afresh where they are not as the events say."""
        from outlast.store.sqlite import repair

        return repair.repair(self.database)

    def versions(self) -> str:
        """The versions of SQLite and of its binding."""
        from outlast.store.sqlite import health

        return f"SQLite {health.sqlite_version()}, apsw {health.apsw_version()}"

    def folder_of(self, kind: ShelfKind) -> Path | None:
        """The folder that is empty or missing while the shelf has no document of this kind; None if there is no such folder."""
        return shelf.folder_of(self.local.folder, kind)


def place(text: str) -> SqlitePlace:
    """Where the store at a folder or a database file is."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise StoreRefused(f"no home folder for the store {text!r}", hint="give the whole path") from error
    if path.name == _DATABASE:
        return SqlitePlace(
            Local(path.parent), path
        )  # a store's own URL must lead back to it, and to the same locks
    if path.suffix in _FILE_SUFFIXES or path.is_file():
        return SqlitePlace(Local(path.with_name(path.name + ".d")), path)
    return SqlitePlace(Local(path), path / _DATABASE)
