"""Roles with fewer rights than the owner's: what a host, a reader and a person may do with the tables of a store.

They are groups without a login: you grant them to the roles that log in."""

from typing import Any

import psycopg

from outlast.errors import StoreRefused
from outlast.store.postgres import address

HOST, READER, PERSON = "outlast_host", "outlast_reader", "outlast_person"
MEANINGS = {
    HOST: "works on runs: everything but migrating the store and accepting another server",
    READER: "looks: `outlast ls`, `show`, `ui --read-only`",
    PERSON: "looks, and asks things of runs that are being worked on (`pause`, `settle`, `budget`)",
}
_MAKE = "CREATE ROLE {role} NOLOGIN"
# A request that is put again after a lost answer is found by an UPDATE that changes nothing.
GRANTS = (
    f"GRANT USAGE ON SCHEMA outlast TO {HOST}, {READER}, {PERSON}",
    f"GRANT SELECT ON ALL TABLES IN SCHEMA outlast TO {HOST}, {READER}, {PERSON}",
    f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA outlast TO {HOST}",
    f"REVOKE INSERT, UPDATE, DELETE ON outlast.meta FROM {HOST}",
    f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA outlast TO {HOST}",
    f"GRANT INSERT, UPDATE (what) ON outlast.requests TO {PERSON}",
)


def statements() -> list[str]:
    """The SQL that makes the roles and gives them their rights, for an administrator to run."""
    return [*(f"{_MAKE.format(role=role)};" for role in MEANINGS), *(f"{each};" for each in GRANTS)]


def make(url: str, connection: "psycopg.Connection[Any]") -> list[str]:
    """Make the roles that are missing, and give all of them their rights. Says what it did."""
    known = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
    try:
        for role in MEANINGS.keys() - known:
            connection.execute(_MAKE.format(role=role).encode())
    except psycopg.errors.InsufficientPrivilege:
        raise StoreRefused(
            f"the role {connection.info.user} may not make roles in {address.shown(url)}; nothing was changed",
            hint=f"let an administrator run what `outlast store init {address.shown(url)} --print-roles` prints",
        ) from None
    grant(connection)
    return [f"{role}: {text}" for role, text in MEANINGS.items()]


def grant(connection: "psycopg.Connection[Any]") -> None:
    """Give the roles their rights on every table there is now, if there are these roles."""
    found = connection.execute(
        "SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)", (list(MEANINGS),)
    ).fetchone()
    if found == (len(MEANINGS),):
        for each in GRANTS:
            connection.execute(each.encode())
