"""The shelf of a PostgreSQL store: small documents, each a row, held by the session of one connection.

Who holds a document reads and writes it by that connection alone, so a hold that the server gave up writes nothing."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from outlast.errors import StoreBusy, StoreUnreachable
from outlast.store import rows
from outlast.store.locks import boottime_s
from outlast.store.postgres.address import first_line
from outlast.store.postgres.database import Connection, Server, Unanswered, is_lost
from outlast.store.protocol import SHELF_BYTES_MAX, Document, ShelfKind

_GET = "SELECT substring(data FROM 1 FOR %s) FROM shelf WHERE kind = %s AND name = %s"
_PUT = """
INSERT INTO shelf(kind, name, data) VALUES (%s, %s, %s)
ON CONFLICT (kind, name) DO UPDATE SET at = clock_timestamp(), data = excluded.data
"""
_DELETE = "DELETE FROM shelf WHERE kind = %s AND name = %s"
_EVERY = "SELECT name, substring(data FROM 1 FOR %s) FROM shelf WHERE kind = %s ORDER BY name"
_OLD = """
SELECT name FROM (SELECT name, at, row_number() OVER (ORDER BY at DESC, name) AS place FROM shelf WHERE kind = %s) s
WHERE place > %s OR at < clock_timestamp() - %s * interval '1 s'
"""
_TRY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_LET_GO = "SELECT pg_advisory_unlock_all()"


class RowShelf:
    """The documents of one store."""

    def __init__(self, database: Server) -> None:
        self._db = database

    def get(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document, or None."""
        found = self._db.read(_GET, (SHELF_BYTES_MAX, kind, _key(name)))
        return bytes(found[0][0]) if found else None

    def get_unheld(self, kind: ShelfKind, name: str) -> bytes | None:
        """The document, or None if it does not exist or somebody holds it."""
        try:
            with self.hold(kind, name, wait_s=0.0) as held:
                return held.get()
        except StoreBusy:
            return None

    def change(
        self, kind: ShelfKind, name: str, change: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        """Replace the document and return the new content. Durable when it returns."""
        with self.hold(kind, name) as held:
            return rows.changed(held, change)

    @contextlib.contextmanager
    def hold(self, kind: ShelfKind, name: str, *, wait_s: float | None = None) -> Iterator[Document]:
        """Hold the document exclusively. Raises StoreBusy if another process holds it for too long."""
        with held_name(self._db, f"shelf {kind} {name}", wait_s) as connection:
            yield _HeldRow(self._db, connection, kind, _key(name))

    def every(self, kind: ShelfKind) -> Iterator[tuple[str, bytes]]:
        """All documents of a kind, by name."""
        for name, data in self._db.read(_EVERY, (SHELF_BYTES_MAX, kind)):
            yield bytes(name).decode(errors="surrogatepass"), bytes(data)

    def sweep(self, kind: ShelfKind, *, newest: int, older_than_s: float) -> int:
        """Delete documents that are old or beyond the `newest`, except held ones; return how many."""
        removed = 0
        for (key,) in self._db.read(_OLD, (kind, newest, older_than_s)):
            name = bytes(key).decode(errors="surrogatepass")
            with contextlib.suppress(StoreBusy), self.hold(kind, name, wait_s=0.0) as held:
                held.put(None)
                removed += 1
        return removed


class _HeldRow:
    """A document that is a row, while it is held."""

    def __init__(self, database: Server, connection: Connection, kind: ShelfKind, key: bytes) -> None:
        self._db, self._connection, self._kind, self._key = database, connection, kind, key

    def get(self) -> bytes | None:
        found = self._do(_GET, (SHELF_BYTES_MAX, self._kind, self._key)).fetchall()
        return bytes(found[0][0]) if found else None

    def put(self, data: bytes | None, *, room: int = 0) -> None:
        if data is None:
            self._do(_DELETE, (self._kind, self._key))
        else:
            assert self._kind != "pressed" or data.endswith(b"\n"), "the document consists of whole lines"
            self._do(_PUT, (self._kind, self._key, data))

    def _do(self, query: str, values: Any) -> "psycopg.Cursor[Any]":
        try:
            with self._db.limit(self._connection):
                return self._connection.execute(query, values)
        except psycopg.Error as error:
            if is_lost(self._connection, error):
                raise StoreUnreachable(
                    "the connection that held a document of the store is lost; its last change may be there",
                    hint="look, then do it again",
                ) from error
            raise self._db.translated(error) from error


@contextlib.contextmanager
def held_name(database: Server, name: str, wait_s: float | None) -> Iterator[Connection]:
    """A connection whose session alone has this name until the block ends, or the connection does."""
    deadline_s = None if wait_s is None else boottime_s() + wait_s
    connection = database.repeat(lambda: _taken(database, name, deadline_s))
    try:
        yield connection
    finally:
        _let_go(database, connection)


def _let_go(database: Server, connection: Connection) -> None:
    """Close it, when the server has let its name go: by itself it sees later that a connection is closed."""
    try:
        with contextlib.suppress(psycopg.Error), database.limit(connection):
            connection.execute(_LET_GO)
    finally:
        connection.close()


def _taken(database: Server, name: str, deadline_s: float | None) -> Connection:
    """A new connection that has the name. One that is lost on the way has let it go."""
    pause = threading.Event()
    connection = database.new()
    try:
        while not _has(database, connection, name):
            if deadline_s is not None and boottime_s() >= deadline_s:
                raise StoreBusy(f"another process holds {name!r} of the store", hint="ask again in a moment")
            pause.wait(database.timing.shelf_look_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _has(database: Server, connection: Connection, name: str) -> bool:
    try:
        with database.limit(connection):
            found = connection.execute(_TRY, (name.encode(errors="surrogatepass").hex(),)).fetchone()
    except psycopg.Error as error:
        if is_lost(connection, error):
            raise Unanswered(first_line(error)) from error
        raise
    return found is not None and bool(found[0])


def _key(name: str) -> bytes:
    return name.encode(errors="surrogatepass")
