"""The URL of a PostgreSQL store: its parts, its form without a password, and a connection to it.

A password given in a URL is used by this process alone: it is not stored, shown or handed on."""

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from outlast.errors import StoreRefused, StoreUnreachable
from outlast.store import credentials
from outlast.store.timing import Timing

if TYPE_CHECKING:
    import psycopg

# Else a part of a password that was not escaped would be taken for something that may be shown.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^:/@\[\]]*)(:[0-9]*)?")
_OPTION = re.compile(r"[a-z_]+")
_SECRET = ("password", "sslpassword")
INSTALL = "pip install 'outlast[postgres]'"


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL. `options` are libpq's, without passwords."""

    user: str
    hosts: str
    database: str
    options: tuple[tuple[str, str], ...]

    @property
    def url(self) -> str:
        """The one form of this address, without a password."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        options = "&".join(f"{name}={quote(value, safe='/:,')}" for name, value in self.options)
        return f"postgresql://{user}{self.hosts}/{quote(self.database, safe='')}{'?' if options else ''}{options}"


def parse(text: str) -> Address:
    """The address in a URL, with or without its scheme. Its password is remembered for `connect`."""
    rest = re.sub(r"^postgres(ql)?://", "", text)
    rest, _, query = rest.partition("?")
    place, _, database = rest.partition("/")
    given, _, hosts = place.rpartition("@")
    user, _, password = given.partition(":")
    options = parse_qsl(query, keep_blank_values=True)
    if not _is_plain(hosts, database, options):
        raise StoreRefused(
            "not a URL of a PostgreSQL store: it has no USER@HOST:PORT/DATABASE after the //",
            hint="in user and password, write % as %25, / as %2F, ? as %3F, # as %23, @ as %40 and : as %3A",
        )
    secrets = {name: value for name, value in options if name in _SECRET}
    if password and "password" not in secrets:
        secrets["password"] = unquote(password)
    plain_options = tuple(sorted((name, value) for name, value in options if name not in _SECRET))
    found = Address(unquote(user), hosts, unquote(database), plain_options)
    if not found.database and not any(name == "dbname" for name, _ in plain_options):
        raise StoreRefused(
            f"the URL {found.url} names no database", hint="give postgresql://USER@HOST/DATABASE"
        )
    if secrets:
        credentials.remember(found.url, secrets)
    return found


def _is_plain(hosts: str, database: str, options: Sequence[tuple[str, str]]) -> bool:
    """Whether the parts look as they should."""
    return (
        all(_HOST.fullmatch(host) for host in hosts.split(","))
        and "@" not in database
        and "#" not in f"{hosts}{database}"
        and all(_OPTION.fullmatch(name) for name, _ in options)
    )


def shown(url: str) -> str:
    """A URL for people, without its password."""
    return parse(url).url


def require_driver() -> None:
    """Raise StoreRefused without psycopg."""
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        raise StoreRefused(
            "a PostgreSQL store needs psycopg, which is not installed", hint=INSTALL
        ) from error


def connect(url: str, *, reading: bool = False) -> "psycopg.Connection[Any]":
    """A connection of its own in autocommit. Raises StoreUnreachable, or StoreRefused without psycopg."""
    require_driver()
    import psycopg

    plain = parse(url).url
    timing = Timing.current()
    try:
        connection = psycopg.connect(
            plain,
            autocommit=True,
            application_name="outlast",
            **_defaults(plain, timing, reading=reading),
        )
    except psycopg.OperationalError as error:
        raise unreachable(plain, error) from None  # libpq's error names host and user, never the password
    except psycopg.ProgrammingError as error:
        raise StoreRefused(
            f"not a URL of a PostgreSQL store: {plain}: {first_line(error)}", hint=_FORM
        ) from None
    if connection.pgconn.used_password and "password" not in credentials.of(plain):
        credentials.take_from_environment(plain)
    return connection


_FORM = "give postgresql://USER@HOST/DATABASE"
_HINTS = (
    ("no password supplied", "put the password into ~/.pgpass, or set PGPASSWORD"),
    ("password authentication failed", "check the password in ~/.pgpass or PGPASSWORD, and the user"),
    ("does not exist", "check the names of database and user, or create them"),
    ("SSL", "check sslmode and the certificates in the URL"),
    ("certificate", "check sslmode and the certificates in the URL"),
    ("too many", "raise max_connections of the server, or close other connections"),
    ("remaining connection slots", "raise max_connections of the server, or close other connections"),
)


def unreachable(url: str, error: Exception) -> StoreUnreachable:
    """The error for a server that does not let us in, with what libpq said in one line."""
    text = first_line(error)
    hint = next(
        (hint for word, hint in _HINTS if word in text), "check that the server runs and can be reached"
    )
    return StoreUnreachable(f"cannot reach the store {shown(url)}: {text}", hint=hint)


def not_permitted(url: str, error: Exception) -> StoreRefused:
    """The error for what the role in the URL may not do."""
    return StoreRefused(
        f"the role of {shown(url)} may not do this: {first_line(error)}",
        hint="connect as the owner of the store, or ask the owner to grant it",
    )


def first_line(error: Exception) -> str:
    """The first line of a database error, without what names every address that was tried."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _defaults(url: str, timing: Timing, *, reading: bool) -> dict[str, Any]:
    """libpq's options, but for those that the URL names."""
    named = {name for name, _ in parse(url).options}
    wanted: dict[str, Any] = {
        "connect_timeout": timing.connect_s,
        "keepalives_idle": timing.keepalive_s,
        "keepalives_interval": timing.keepalive_s,
        "keepalives_count": 3,
        "tcp_user_timeout": timing.silence_ms,
    }
    if "," in parse(url).hosts and not reading:
        wanted["target_session_attrs"] = "read-write"  # of several servers the primary, wherever it is now
    return credentials.of(url) | {name: value for name, value in wanted.items() if name not in named}
