"""Looks at a PostgreSQL store from outside, without changing it: is it reached, how large is it, what do this host's marks say."""

from typing import TYPE_CHECKING

from outlast.store import locks
from outlast.store.postgres import schema
from outlast.store.postgres.database import Server
from outlast.store.protocol import Health
from outlast.store.timing import Timing

if TYPE_CHECKING:
    from outlast.store.postgres.place import PostgresPlace

_SIZES = """
SELECT (SELECT version FROM meta),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
        WHERE c.relnamespace = to_regnamespace('outlast') AND c.relkind = 'r')
"""
_LAST = """
SELECT r.run, coalesce((SELECT max(seq) FROM events WHERE run = r.id), 0) FROM runs r WHERE r.run = ANY(%s)
"""
# Whoever writes for long keeps every page from showing what is newer.
_HOGS = """
SELECT pid, datname, extract(epoch FROM clock_timestamp() - xact_start)::bigint FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND xact_start < clock_timestamp() - interval '30 s' ORDER BY xact_start LIMIT 20
"""


def examine(place: "PostgresPlace") -> Health:
    """Ask once. Raises StoreError."""
    database = Server(place.url, Timing.current(), reading=True)
    try:
        version, size_bytes = database.read(_SIZES)[0]
        marks = {path: locks.read_mark(path) for path in sorted(place.local.runs.glob("*.lock"))}
        last = {str(run): int(seq) for run, seq in database.read(_LAST, ([path.stem for path in marks],))}
        hogs = database.read(_HOGS)
    finally:
        database.close()
    return Health(
        version=version, version_known=schema.VERSION,
        problems=(),
        missing=None,
        rewound=tuple(path.stem for path, mark in marks.items() if mark > last.get(path.stem, mark)),
        lost=(),
        stale_locks=tuple(path.stem for path in marks if path.stem not in last and not locks.is_locked(path)),
        hindrances=tuple(f"process {pid} of the server has had a transaction open in {name} for {age_s} s; pages show nothing newer" for pid, name, age_s in hogs),
        size_bytes=size_bytes, wal_bytes=0,
    )  # fmt: skip
