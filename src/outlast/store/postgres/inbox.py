"""Requests to runs, and payloads, as rows. What may have been written when an answer was lost is written again."""

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Any

from outlast import faults
from outlast.errors import StoreCorrupt, UnknownRun
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.postgres.database import Connection, Server
from outlast.store.protocol import Request

PENDING_MAX = 10_000
_PUT = """
INSERT INTO requests(given, run, at, by, what, args)
SELECT %s, id, %s, %s, %s, %s FROM runs WHERE run = %s
ON CONFLICT (given) DO UPDATE SET what = requests.what RETURNING id
"""
_PENDING = "SELECT q.id, r.run, q.at, q.by, q.what, q.args FROM requests q JOIN runs r ON r.id = q.run WHERE NOT q.taken"
_KNOWN = "SELECT 1 FROM runs WHERE run = %s"
_PUT_BLOB = """
INSERT INTO blobs(digest, data) VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET at = clock_timestamp()
"""
_SWEEP = """
WITH old AS (
    SELECT digest FROM blobs WHERE at <= clock_timestamp() - %s * interval '1 s' AND digest <> ALL(%s)
    ORDER BY digest FOR UPDATE SKIP LOCKED
)
DELETE FROM blobs b USING old WHERE b.digest = old.digest AND b.at <= clock_timestamp() - %s * interval '1 s'
"""


class PostgresInbox:
    """Requests that a run's holder has not taken in yet."""

    def __init__(self, database: Server, local: Local) -> None:
        self._db = database
        self._local = local

    def put(self, run: str, *, by: str, what: str, args: bytes = b"null") -> int:
        """Add a request and return its id. Durable when it returns."""
        values = (uuid.uuid4(), datetime.now(UTC), by, what, args, run)

        def insert(connection: Connection) -> int:
            found = connection.execute(_PUT, values).fetchone()
            if found is None:
                raise UnknownRun(run)
            return int(found[0])

        number = self._db.write(insert)
        locks.ring(self._local.run_lock(run))  # a holder elsewhere hears of it with its next renewal
        return number

    def pending(self, run: str) -> list[Request]:
        """Requests not taken in yet, oldest first."""
        rows = self._db.read(f"{_PENDING} AND r.run = %s ORDER BY q.id", (run,))
        if not rows and not self._db.read(_KNOWN, (run,)):
            raise UnknownRun(run)
        return [_request(row) for row in rows]

    def all_pending(self) -> list[Request]:
        """The pending requests of all runs, for display."""
        return [_request(row) for row in self._db.read(f"{_PENDING} ORDER BY q.id LIMIT %s", (PENDING_MAX,))]


def _request(row: tuple[Any, ...]) -> Request:
    number, run, at, by, what, args = row
    return Request(number, run, at.astimezone(UTC), by, what, bytes(args))


class RowBlobs:
    """Content-addressed payloads, one row each."""

    def __init__(self, database: Server) -> None:
        self._db = database

    def put(self, data: bytes) -> str:
        """Store a payload and return its digest. Durable when it returns."""
        digest = _name(data)
        self._db.write(lambda connection: connection.execute(_PUT_BLOB, (digest, data)))
        faults.point("blob.written")
        return digest

    def get(self, digest: str) -> bytes:
        """The payload, verified against its name."""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise StoreCorrupt(f"not a blob's name: {digest!r:.80}", hint="see `outlast doctor`")
        rows = self._db.read("SELECT data FROM blobs WHERE digest = %s", (digest,))
        if not rows:
            raise StoreCorrupt(f"blob {digest[:16]} is missing from the store", hint="see `outlast doctor`")
        data = bytes(rows[0][0])
        if _name(data) != digest:
            raise StoreCorrupt(f"blob {digest[:16]} in the store is damaged", hint="see `outlast doctor`")
        return data

    def sweep(self, keep: set[str], *, older_than_s: float) -> int:
        """Remove old blobs that are not in `keep`, by the server's clock; return how many."""
        values = (older_than_s, list(keep), older_than_s)
        return self._db.write(lambda connection: connection.execute(_SWEEP, values).rowcount)


def _name(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()
