"""Where a PostgreSQL store is: a database named by URL, and this host's folder for it, named by the store's own id.

psycopg is imported when the server is asked."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.store.local import Local, place_of
from outlast.store.postgres import address
from outlast.store.protocol import Flaw, Health, RunHealth, ShelfKind, Store
from outlast.store.timing import Timing


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A database, and the folder of all shared stores of this host."""

    url: str
    fleets: Path

    @property
    def real_url(self) -> str:
        """The store's one URL."""
        return self.url

    @property
    def name(self) -> str:
        """The name for people."""
        return self.url

    @property
    def option(self) -> str:
        """The value of `--store` that leads to it."""
        return self.url

    @property
    def local(self) -> Local:
        """This host's folder for the store: as noted when it was opened last, else the server is asked."""
        try:
            return Local(self.fleets / self._note.read_text().strip())
        except OSError:
            store = self.open(reading=True)
            store.close()
            return store.local

    @property
    def paths(self) -> tuple[Path, ...]:
        """The local folder."""
        return (self.local.folder,)

    @property
    def _note(self) -> Path:
        return self.fleets / "by-url" / place_of(Path(self.url))

    def exists(self) -> bool:
        """True. Raises StoreRefused where there is no store, and StoreUnreachable."""
        self.open(reading=True).close()
        return True

    def open(self, *, reading: bool = False) -> Store:
        """Open the store. Never creates one: `outlast store init` does. Raises StoreError."""
        address.require_driver()
        from outlast.store.postgres.database import Server
        from outlast.store.postgres.store import PostgresStore

        database = Server(self.url, Timing.current(), reading=reading)
        try:
            folder = self.fleets / database.store
            self._remember(database.store)
            return PostgresStore(self.url, Local(folder), database)
        except BaseException:
            database.close()
            raise

    def _remember(self, store: str) -> None:
        from outlast.store import durable

        try:
            if self._note.exists() and self._note.read_text().strip() == store:
                return
            durable.make_folder(self._note.parent)
            durable.write_durably(self._note, f"{store}\n".encode())
        except OSError as error:
            raise durable.store_refused(self.fleets, error) from error

    def init(self, *, with_roles: bool = False) -> list[str]:
        """Make the store, and its roles if they are wanted; where there is one already, nothing changes."""
        address.require_driver()
        from outlast.store.postgres import schema

        return schema.init(self.url, with_roles=with_roles)

    def roles(self) -> list[str]:
        """The SQL that makes the roles of hosts, readers and persons. The server is not asked."""
        address.require_driver()
        from outlast.store.postgres import roles

        return roles.statements()

    def migrate(self) -> list[str]:
        """Bring the schema to this version."""
        address.require_driver()
        from outlast.store.postgres import schema

        return schema.migrate(self.url)

    def accept(self) -> list[str]:
        """Work on with the server as it is now, although it may have lost acknowledged events."""
        address.require_driver()
        from outlast.store.postgres import schema

        return schema.accept(self.url)

    def examine(self) -> Health:
        """Look at the store's size, version and marks."""
        from outlast.store.postgres import health

        return health.examine(self)

    def examine_all(self) -> tuple[list[Flaw], Iterator[RunHealth]]:
        """What is wrong with the store, and each run, looked at event by event."""
        address.require_driver()
        from outlast.store.postgres import examination
        from outlast.store.postgres.database import Server

        database = Server(self.url, Timing.current(), reading=True)
        try:
            return examination.store_flaws(database), examination.runs(database)
        except BaseException:
            database.close()
            raise

    def repair(self) -> list[str]:
        """Make heads, and kinds and keys of events, again from whole events."""
        address.require_driver()
        from outlast.store.postgres import examination
        from outlast.store.postgres.database import Server

        database = Server(self.url, Timing.current(), reading=False)
        try:
            return examination.repair(database)
        finally:
            database.close()

    def versions(self) -> str:
        """The versions of psycopg and libpq."""
        address.require_driver()
        import psycopg

        return f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version()}"

    def folder_of(self, kind: ShelfKind) -> Path | None:
        """None: the shelf's documents are rows."""
        return None


def place(text: str) -> PostgresPlace:
    """Where the store at a URL is, given with or without its scheme."""
    from outlast.store import plain_url

    state_home = Path(plain_url())
    return PostgresPlace(address.parse(text).url, Path(os.path.abspath(state_home)) / "fleets")
