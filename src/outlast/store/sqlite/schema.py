"""The SQLite schema: numbered migrations, and the checks made on a file before SQLite may touch it."""

from pathlib import Path

import apsw

from outlast import faults
from outlast.errors import UPGRADE, StoreCorrupt, StoreTooNew
from outlast.store import checksums

APPLICATION_ID = 0x6F75746C  # "outl"

# `kind` is NULL for beat ends, by far the most frequent events: so the index by kind stays small and a beat's end
# dirties only two pages. `n` numbers all events of the store in the order of their commits.
_V1 = """
CREATE TABLE runs(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    task TEXT NOT NULL,
    generation INTEGER NOT NULL,
    parent TEXT NOT NULL,
    parent_beat INTEGER NOT NULL,
    root INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    placement INTEGER NOT NULL DEFAULT 0,
    holder BLOB,
    expires_s INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project, task, parent, parent_beat, generation)
);
CREATE TABLE heads(
    id INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    state BLOB NOT NULL
);
CREATE TABLE events(
    n INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT,
    key TEXT,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX events_by_run ON events(run, seq);
CREATE INDEX events_by_kind ON events(run, kind, seq) WHERE kind IS NOT NULL;
CREATE INDEX events_by_key ON events(run, key) WHERE key IS NOT NULL;
CREATE TABLE requests(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    at TEXT NOT NULL,
    by TEXT NOT NULL,
    what TEXT NOT NULL,
    args BLOB NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX requests_waiting ON requests(run, id) WHERE taken = 0;
"""
MIGRATIONS: tuple[str, ...] = (_V1,)
# Not versions of their own: an older outlast knows nothing of these and works on beside them.
_BESIDE = (
    "CREATE TABLE IF NOT EXISTS request_sums(id INTEGER PRIMARY KEY, sum INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS runs_by_parent ON runs(parent)",  # lists ask for the children of every run
)
VERSION = len(MIGRATIONS)


def inspect(path: Path, vfs: str | None = None) -> None:
    """Refuse a torn or foreign file or one from a newer version, by reading it, before SQLite can change it."""
    size = path.stat().st_size
    header = _header(path, vfs) if size >= 100 else b""
    if size == 0 or _exists(path, "-journal"):
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise _corrupt(path, "it is not an SQLite file")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application != APPLICATION_ID:
        raise _corrupt(path, "it is not an outlast store")
    if version > VERSION:
        raise too_new(path, version)
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    missing = pages - size // max(page_bytes, 1)
    if missing > _wal_frames(path, page_bytes):
        raise _corrupt(path, f"it is truncated: {size:,} bytes of {pages * page_bytes:,}")


def _header(path: Path, vfs: str | None) -> bytes:
    """The first 100 bytes, read through SQLite's own layer: closing any other descriptor of the file would drop the
    locks that this process's connections have on it."""
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile(vfs or "", str(path), flags)
    try:
        return file.xRead(100, 0)
    finally:
        file.xClose()


def _exists(path: Path, suffix: str) -> bool:
    other = path.with_name(path.name + suffix)
    return other.exists() and other.stat().st_size > 0


def _wal_frames(path: Path, page_bytes: int) -> int:
    wal = path.with_name(path.name + "-wal")
    return max(0, wal.stat().st_size - 32) // (page_bytes + 24) if wal.exists() else 0


def _corrupt(path: Path, why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"cannot use the store {path}: {why}; it was not changed",
        hint="restore the file from a backup, or point --store elsewhere",
    )


def too_new(path: Path, version: int) -> StoreTooNew:
    return StoreTooNew(
        f"the store {path} has version {version}, this outlast knows up to {VERSION}; it was not changed",
        hint=UPGRADE,
    )


def request_sum(row: int, at: str, by: str, what: str, args: bytes) -> int:
    """The checksum of a request in the form in which it was put."""
    return checksums.number(str(row).encode(), at.encode(), by.encode(), what.encode(), args)


def statements() -> set[str]:
    """The schema as a store of this version has it, one text for each table and index."""
    connection = apsw.Connection(":memory:")
    for each in (*MIGRATIONS, *_BESIDE):
        connection.execute(each)
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {str(sql) for (sql,) in rows}


def version_of(connection: apsw.Connection) -> int:
    """The store's schema version; 0 if it is empty."""
    return int(connection.pragma("user_version"))


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Migrate the store to this version, one transaction per step. Safe to repeat after a kill."""
    if version_of(connection) == VERSION:
        _add_beside(connection)
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        found = version_of(connection)
        if found > VERSION:
            raise too_new(path, found)
        for number in range(found, VERSION):
            connection.execute(MIGRATIONS[number])
        _add_beside(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        faults.point("migrate.before_commit")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_beside(connection: apsw.Connection) -> None:
    for statement in _BESIDE:
        connection.execute(statement)
