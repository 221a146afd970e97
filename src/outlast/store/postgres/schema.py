"""The PostgreSQL schema: numbered migrations, and how `outlast store init` and `migrate` bring a database to them.

An opened store changes no schema: hosts of another version may be using it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from outlast import faults
from outlast.errors import UPGRADE, StoreRefused, StoreTooNew
from outlast.store.postgres import address, roles

SERVER_VERSION_MIN = 140_000
NUMBERS_APART = 1 << 44  # more than a server that was lost can have given since
CLIENT = 1  # what this outlast understands; a store that asks for more is refused

# `kind` is NULL for beat ends, by far the most frequent events. `n` is made of the transaction's id and is unique and
# ordered, not dense: a number is shown to readers only when no smaller one can come (`queries.STABLE`). ServerLeases and
# sessions change often: no index is on what changes, and half of each page is room for the next version of its rows.
_V1 = """
CREATE TABLE runs(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL UNIQUE,
    project text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    generation int NOT NULL,
    parent text COLLATE "C" NOT NULL,
    parent_beat bigint NOT NULL,
    root bigint NOT NULL
);
CREATE UNIQUE INDEX runs_by_identity ON runs(md5(project), md5(task), parent, parent_beat, generation);
CREATE INDEX runs_by_root ON runs(root);
CREATE TABLE sessions(
    id uuid PRIMARY KEY,
    host uuid NOT NULL,
    machine text NOT NULL,
    holder bytea NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    beats bigint NOT NULL DEFAULT 0,
    uptime_s bigint NOT NULL DEFAULT 0,
    renewed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE TABLE leases(
    run bigint PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT 0,
    placement bigint NOT NULL DEFAULT 0,
    session uuid REFERENCES sessions,
    holder bytea,
    seen_s bigint NOT NULL DEFAULT 0,
    ttl_ms bigint NOT NULL DEFAULT 0,
    proven bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE heads(
    id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    status text NOT NULL,
    updated_at text NOT NULL,
    state bytea NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE events(
    n bigint NOT NULL CHECK (n > 0),
    run bigint NOT NULL,
    seq bigint NOT NULL,
    kind text COLLATE "C",
    key bytea,
    data bytea NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE UNIQUE INDEX events_by_number ON events(n);
CREATE INDEX events_by_kind ON events(run, kind, seq) WHERE kind IS NOT NULL;
CREATE INDEX events_by_key ON events(run, md5(key)) WHERE key IS NOT NULL;
CREATE TABLE requests(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    given uuid NOT NULL UNIQUE,
    run bigint NOT NULL,
    at timestamptz NOT NULL,
    by text NOT NULL,
    what text NOT NULL,
    args bytea NOT NULL,
    taken boolean NOT NULL DEFAULT false
);
CREATE INDEX requests_waiting ON requests(run, id) WHERE NOT taken;
CREATE TABLE blobs(
    digest text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    data bytea NOT NULL
);
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE shelf(
    kind text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    data bytea NOT NULL,
    PRIMARY KEY (kind, name)
);
"""
MIGRATIONS: tuple[str, ...] = (_V1,)
VERSION = len(MIGRATIONS)

# `base` is added to every event's number; it grows when a person accepts a server that lost its newest transactions.
_META = """
CREATE TABLE meta(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    store uuid NOT NULL,
    version int NOT NULL,
    min_client int NOT NULL,
    base bigint NOT NULL,
    cluster bigint NOT NULL,
    timeline bigint NOT NULL,
    made oid NOT NULL
)
"""
# Which server this is: its identity, its timeline, and the events' table as it was made. A restored backup or a failover
# changes one of them.
ORIGIN = """
SELECT (SELECT system_identifier FROM pg_control_system()),
       ('x' || lpad(left(pg_walfile_name(pg_current_wal_lsn()), 8), 16, '0'))::bit(64)::bigint,
       to_regclass('outlast.events')::oid
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('outlast.schema', 0))"


def init(url: str, *, with_roles: bool = False) -> list[str]:
    """Make the schema in a database; where there is one already, nothing changes. Says what it did.

    `with_roles`: make the roles of `roles` too, and give them their rights.
    """
    with _changing(url) as connection:
        made = _made(url, connection)
        return made + (roles.make(url, connection) if with_roles else [])


def _made(url: str, connection: "psycopg.Connection[Any]") -> list[str]:
    _refuse_server(url, connection)
    connection.execute(_LOCK)
    found = _meta(connection)
    if found is not None:
        _refuse_version(url, *found)
        return []
    _refuse_foreign(url, connection)
    connection.execute("CREATE SCHEMA outlast")
    connection.execute("SET LOCAL search_path = outlast")
    for each in MIGRATIONS:
        connection.execute(each)
    connection.execute(_META)
    cluster, timeline, made = _one(connection, ORIGIN)
    connection.execute(
        "INSERT INTO meta(store, version, min_client, base, cluster, timeline, made)"
        " VALUES (gen_random_uuid(), %s, %s, 0, %s, %s, %s)",
        (VERSION, CLIENT, cluster, timeline, made),
    )
    faults.point("migrate.before_commit")
    return [f"made the store in {address.shown(url)}"]


def migrate(url: str) -> list[str]:
    """Bring the schema to this version; one that is there already stays as it is. Says what it did."""
    with _changing(url) as connection:
        _refuse_server(url, connection)
        connection.execute(_LOCK)
        found = _meta(connection)
        if found is None:
            raise not_initialised(url)
        version, min_client = found
        _refuse_version(url, version, min_client)
        connection.execute("SET LOCAL search_path = outlast")
        for number in range(version, VERSION):
            connection.execute(MIGRATIONS[number])
        if version == VERSION:
            return []
        connection.execute("UPDATE meta SET version = %s", (VERSION,))
        roles.grant(connection)
        faults.point("migrate.before_commit")
        return [f"migrated the store in {address.shown(url)} from version {version} to {VERSION}"]


def accept(url: str) -> list[str]:
    """Take the server as it is now for the store's: nothing is claimed on another one before. Says what it did.

    Numbers of events begin anew above all that were given: a lost server gave some that this one would give again.
    """
    with _changing(url) as connection:
        _refuse_server(url, connection)
        connection.execute(_LOCK)
        found = _meta(connection)
        if found is None:
            raise not_initialised(url)
        _refuse_version(url, *found)
        connection.execute("SET LOCAL search_path = outlast")
        recorded = _one(connection, "SELECT cluster, timeline, made FROM meta FOR UPDATE")
        now = _one(connection, ORIGIN)
        if now == recorded:
            return []
        connection.execute("LOCK TABLE events IN EXCLUSIVE MODE")
        connection.execute(
            "UPDATE meta SET cluster = %s, timeline = %s, made = %s,"
            " base = greatest(base, (SELECT coalesce(max(n), 0) FROM events)) + %s",
            (*now, NUMBERS_APART),
        )
        return [f"accepted the server of {address.shown(url)} as it is now; new events have later numbers"]


def not_initialised(url: str) -> StoreRefused:
    return StoreRefused(
        f"there is no store in {address.shown(url)}",
        hint=f"make one with `outlast store init {address.shown(url)}`",
    )


def refuse_old_server(url: str, version: int) -> None:
    """Refuse a server that lacks what the store needs."""
    if version < SERVER_VERSION_MIN:
        raise StoreRefused(
            f"{address.shown(url)} is PostgreSQL {version // 10_000}; outlast needs 14 or newer",
            hint="upgrade the server, or name another --store",
        )


def refuse_pooler(url: str, connection: "psycopg.Connection[Any]", pid: int) -> None:
    """Refuse a pooler: a document of the shelf is held by the session of a connection, which it would share."""
    if pid != connection.info.backend_pid:
        raise StoreRefused(
            f"{address.shown(url)} is a connection pooler, which gives one connection to many sessions",
            hint="name the PostgreSQL server itself",
        )


def refuse_version(url: str, version: int, min_client: int) -> None:
    """Refuse a store whose schema this outlast does not know, or that must be migrated first."""
    _refuse_version(url, version, min_client)
    if version < VERSION:
        raise StoreRefused(
            f"the store in {address.shown(url)} has version {version}, this outlast needs {VERSION}",
            hint=f"`outlast store migrate {address.shown(url)}`",
        )


@contextlib.contextmanager
def _changing(url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A transaction of its own. Raises StoreError for whatever the server refuses; then nothing was changed."""
    try:
        with address.connect(url) as connection, connection.transaction():
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise address.not_permitted(url, error) from None
    except psycopg.OperationalError as error:
        raise address.unreachable(url, error) from error
    except psycopg.Error as error:
        raise StoreRefused(
            f"PostgreSQL refused to change the store in {address.shown(url)}: {address.first_line(error)}",
            hint="nothing was changed; see the log of the server",
        ) from error


def _refuse_server(url: str, connection: "psycopg.Connection[Any]") -> None:
    refuse_old_server(url, connection.info.server_version)
    pid, encoding, recovering, may = _one(
        connection,
        "SELECT pg_backend_pid(), current_setting('server_encoding'), pg_is_in_recovery(),"
        " has_database_privilege(current_database(), 'CREATE')",
    )
    refuse_pooler(url, connection, pid)
    if encoding != "UTF8":
        raise StoreRefused(
            f"the database {address.shown(url)} has the encoding {encoding}; outlast needs UTF8",
            hint="make another with `createdb --encoding UTF8 --template template0 NAME`",
        )
    if recovering:
        raise StoreRefused(
            f"{address.shown(url)} is a standby, which only reads", hint="name the primary server"
        )
    if not may:
        raise StoreRefused(
            f"the role {connection.info.user} may not create a schema in {address.shown(url)}",
            hint=f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {connection.info.user}",
        )


def _refuse_version(url: str, version: int, min_client: int) -> None:
    if version > VERSION and min_client > CLIENT:
        raise StoreTooNew(
            f"the store in {address.shown(url)} has version {version}, this outlast knows up to {VERSION};"
            " it was not changed",
            hint=UPGRADE,
        )


def _refuse_foreign(url: str, connection: "psycopg.Connection[Any]") -> None:
    (foreign,) = _one(connection, "SELECT to_regnamespace('outlast') IS NOT NULL")
    if foreign:
        raise StoreRefused(
            f"the database {address.shown(url)} has a schema `outlast` that outlast did not make; it was not changed",
            hint="name another database",
        )


def _meta(connection: "psycopg.Connection[Any]") -> tuple[int, int] | None:
    """Version and least client of the store in the database; None if there is none."""
    if _one(connection, "SELECT to_regclass('outlast.meta') IS NULL")[0]:
        return None
    version, min_client = _one(connection, "SELECT version, min_client FROM outlast.meta")
    return int(version), int(min_client)


def _one(connection: "psycopg.Connection[Any]", query: Any) -> Any:
    found = connection.execute(query).fetchone()
    assert found is not None, "the query has one row"
    return found
