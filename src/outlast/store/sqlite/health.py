"""Examines a store from outside, without changing it: is the file whole, were events lost, what is left over."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from outlast.core import recovery
from outlast.errors import StoreCorrupt
from outlast.store import locks
from outlast.store.local import Local
from outlast.store.protocol import Health
from outlast.store.sqlite import log_readers, schema

PROBLEMS_MAX = 20
_OWNER = "SELECT root FROM runs WHERE id = (SELECT run FROM events WHERE n = ?)"


def sqlite_version() -> str:
    """The version of the linked SQLite library."""
    return str(apsw.sqlite_lib_version())


def apsw_version() -> str:
    """The version of the binding."""
    return str(apsw.apsw_version())


def examine(local: Local, database: Path) -> Health:
    """Read everything once. Raises StoreCorrupt if the file cannot be read at all."""
    size_bytes = database.stat().st_size
    wal_bytes = log_readers.size(database)
    pinning = log_readers.readers(database) if wal_bytes > log_readers.LONG_BYTES else []
    with reading(database) as connection:
        problems = _problems(connection)
        # A damaged file says nothing reliable about lost events: report only the damage.
        marks = _Marks() if problems else _marks(connection, local)
        return Health(
            version=schema.version_of(connection), version_known=schema.VERSION, problems=problems,
            missing=marks.missing, rewound=marks.rewound, lost=marks.lost, stale_locks=marks.stale,
            size_bytes=size_bytes, wal_bytes=wal_bytes,
            hindrances=tuple(log_readers.in_words(reader, wal_bytes) for reader in pinning),
        )  # fmt: skip


def sweep_locks(local: Local, database: Path) -> int:
    """Remove the lock files of forgotten runs, except those that prove a rewound store; return how many."""
    with reading(database) as connection:
        stale = _marks(connection, local).stale
    for run in stale:
        path = local.run_lock(run)
        lock = locks.try_lock(path)
        if lock is not None:
            locks.remove(path)
            lock.close()
    return len(stale)


@contextlib.contextmanager
def reading(database: Path) -> Iterator[apsw.Connection]:
    """A connection of its own that writes nothing. Raises StoreCorrupt for a file that cannot be read at all."""
    try:
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(10_000)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            yield connection
        finally:
            connection.close()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"the store {database} is damaged: {error}", hint="keep a copy, then restore it from a backup"
        ) from error


def _problems(connection: apsw.Connection) -> tuple[str, ...]:
    try:
        rows = connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})").fetchall()
    except apsw.Error as error:
        return (str(error),)
    return tuple(str(text) for (text,) in rows if text != "ok")


class _Marks(NamedTuple):
    """The facts about the file in the marks beside it."""

    missing: int | None = None
    rewound: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def _marks(connection: apsw.Connection, local: Local) -> _Marks:
    # Read the marks first, then the file at one moment: events acknowledged meanwhile are in the file, not in a mark.
    whole = locks.read_mark(local.mark)
    marks = {path: locks.read_mark(path) for path in sorted(local.runs.glob("*.lock"))}
    with connection:
        last = connection.execute("SELECT coalesce(max(n), 0) FROM events").get
        rows: list[Any] = connection.execute("SELECT run, root FROM runs").fetchall()
        owners = {mark: connection.execute(_OWNER, (mark,)).get for mark in marks.values()}
    known: dict[str, int] = dict(rows)
    here = {path: mark for path, mark in marks.items() if path.stem in known}
    gone = {path: mark for path, mark in marks.items() if path.stem not in known}
    return _Marks(
        missing=recovery.missing_event(last, [whole]),
        rewound=tuple(path.stem for path, mark in here.items() if mark and owners[mark] != known[path.stem]),
        lost=tuple(path.stem for path, mark in gone.items() if mark > last),
        stale=tuple(path.stem for path, mark in gone.items() if mark <= last and not locks.is_locked(path)),
    )
