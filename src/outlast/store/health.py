"""Looking at a store from outside, without changing it: is the file whole, were events lost, what lies about."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast.errors import StoreCorrupt
from outlast.store import liveness, schema

PROBLEMS_MAX = 20


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a store's file and folder."""

    version: int
    version_known: int
    problems: tuple[str, ...]
    rewound: tuple[str, ...]
    stale_locks: tuple[str, ...]
    size_bytes: int
    wal_bytes: int


def sqlite_version() -> str:
    """The version of the SQLite library that is linked in."""
    return str(apsw.sqlite_lib_version())


def apsw_version() -> str:
    """The version of the binding."""
    return str(apsw.apsw_version())


def examine(root: Path, database: Path) -> Health:
    """Read everything once. Raises StoreCorrupt for a file that cannot be read at all."""
    size_bytes = database.stat().st_size
    wal = database.with_name(database.name + "-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    with _reading(database) as connection:
        problems = _problems(connection)
        # In a damaged file nothing can be said about lost events: that it is damaged is enough to know.
        rewound, stale = ((), ()) if problems else _locks(connection, root / "runs")
        return Health(
            version=schema.version_of(connection), version_known=schema.VERSION, problems=problems,
            rewound=rewound, stale_locks=stale, size_bytes=size_bytes, wal_bytes=wal_bytes,
        )  # fmt: skip


def sweep_locks(root: Path, database: Path) -> int:
    """Remove the lock files of runs that were forgotten; how many. Those that prove a rewound store are kept."""
    with _reading(database) as connection:
        _, stale = _locks(connection, root / "runs")
    for run in stale:
        path = root / "runs" / f"{run}.lock"
        lock = liveness.try_lock(path)
        if lock is not None:
            for each in (path, path.with_suffix(".act")):
                each.unlink(missing_ok=True)
            lock.close()
    return len(stale)


@contextlib.contextmanager
def _reading(database: Path) -> Iterator[apsw.Connection]:
    try:
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(10_000)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreCorrupt(
            f"the store {database} is damaged: {error}", hint="keep a copy, then restore it from a backup"
        ) from error


def _problems(connection: apsw.Connection) -> tuple[str, ...]:
    try:
        rows = connection.execute(f"PRAGMA quick_check({PROBLEMS_MAX})").fetchall()
    except apsw.Error as error:
        return (str(error),)
    return tuple(str(text) for (text,) in rows if text != "ok")


def _locks(connection: apsw.Connection, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Runs whose last acknowledged event is gone, and runs of which only a lock file is left."""
    # Files first: a run that is made meanwhile then has a row and no file here, never a file and no row.
    paths = sorted(folder.glob("*.lock"))
    rows: list[Any] = connection.execute("SELECT run, root FROM runs").fetchall()
    known: dict[str, int] = dict(rows)
    last = connection.execute("SELECT coalesce(max(n), 0) FROM events").get
    rewound, stale = [], []
    for path in paths:
        mark = liveness.read_mark(path)
        owner = connection.execute(
            "SELECT root FROM runs WHERE id = (SELECT run FROM events WHERE n = ?)", (mark,)
        ).get
        run = path.stem
        if mark > last or (run in known and mark > 0 and owner != known[run]):
            rewound.append(run)
        elif run not in known and not liveness.is_locked(path):
            stale.append(run)
    return tuple(rewound), tuple(stale)
