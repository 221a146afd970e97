"""The connections of a store to its server: taken from a few that are kept, given up when they stay silent.

A statement that lost its answer is `Unanswered`: whether it was carried out is for its caller to find out."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg

from outlast.errors import (
    StoreBusy,
    StoreError,
    StoreGone,
    StoreRefused,
    StoreRewound,
    StoreUnreachable,
    UnknownRun,
)
from outlast.store.locks import boottime_s
from outlast.store.postgres import address, schema
from outlast.store.timing import Timing

T = TypeVar("T")
Connection = psycopg.Connection[Any]

SPARE_MAX = 4  # connections that are kept open although nobody uses them
_SEARCH = "-c search_path=outlast"
# What is asked of every new connection, in one round trip. A store whose commits are not flushed acknowledges nothing.
_HELLO = """
SELECT m.store, m.version, m.min_client, m.cluster, m.timeline, m.made, pg_backend_pid(), pg_is_in_recovery(),
       CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', false) END,
       set_config('lock_timeout', %s, false), set_config('statement_timeout', '0', false),
       set_config('idle_in_transaction_session_timeout', %s, false), set_config('search_path', 'outlast', false),
       set_config('bytea_output', 'hex', false), set_config('default_transaction_isolation', 'read committed', false)
FROM outlast.meta m
"""
_LOST = ("08", "57P")  # SQLSTATEs of a connection that broke or a server that is going away
_NOT_WAITED = (
    "01000",
    "57P01",
)  # of warnings: a commit did not wait for its standby, and says that it succeeded
AGAIN = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)  # certainly not carried out
_FULL = ("53100", "53200")
_BUSY = ("55P03", "40P01", "40001", "53300", "53400")
_ROW = "SELECT id, root FROM runs WHERE run = %s"


class Unanswered(Exception):
    """The connection broke, or the server stayed silent: the statement may be carried out, or may be yet."""


class Server:
    """The server as one process sees it. Every method may be called by several threads."""

    def __init__(self, url: str, timing: Timing, *, reading: bool) -> None:
        self.url = url
        self.reading = reading
        self.timing = timing
        self.disk_is_full = False
        self._pid = os.getpid()
        self._closed = False
        self._gone: StoreError | None = None
        self._spare: list[Connection] = []
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[int, int]] = {}
        self._silence = _Silence(timing)
        self.store = ""
        self._not_waited: set[int] = set()  # connections on which a commit did not wait for its standby
        with self.connection():
            pass  # the first one tells which store this is

    # -- connections ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for this block. Raises Unanswered where it is lost inside, StoreUnreachable where there is none.

        A commit whose wait for the standby was cancelled answers success, and may be lost with its server: Unanswered too.
        """
        connection = self._take()
        self._not_waited.discard(id(connection))
        try:
            yield connection
            if id(connection) in self._not_waited:
                connection.close()
                raise Unanswered("the server did not wait for its standby")
        except psycopg.Error as error:
            if is_lost(connection, error):
                connection.close()
                raise Unanswered(address.first_line(error)) from error
            self._give_back(connection)
            raise
        except BaseException:  # Ctrl-C: nobody knows in which state it is
            connection.close()
            raise
        self._give_back(connection)

    def new(self) -> Connection:
        """A connection of the caller's own, which closes it. Raises StoreError."""
        self.check_usable()
        connection = address.connect(self.url, reading=self.reading)
        try:
            with self._silence.limit(connection, True):
                self._greet(connection)
        except BaseException:
            connection.close()
            raise
        connection.add_notice_handler(lambda notice: self._note(connection, notice))
        return connection

    def _note(self, connection: Connection, notice: "psycopg.errors.Diagnostic") -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in _NOT_WAITED:
            self._not_waited.add(id(connection))

    def _take(self) -> Connection:
        self.check_usable()
        with self._lock:
            if self._spare:
                return self._spare.pop()
        return self.new()

    def _give_back(self, connection: Connection) -> None:
        clean = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if clean and not self._closed and len(self._spare) < SPARE_MAX and not connection.closed:
                self._spare.append(connection)
                return
        connection.close()

    def _greet(self, connection: Connection) -> None:
        """Check what a new connection leads to. Raises StoreError."""
        url = self.url
        schema.refuse_old_server(url, connection.info.server_version)
        limits = (f"{self.timing.busy_ms}ms", f"{self.timing.busy_ms}ms")
        found = self._first_row(connection, _HELLO, limits)
        if found is None:
            raise schema.not_initialised(url)
        store, version, min_client, *origin, pid, recovering = found[:8]
        schema.refuse_pooler(url, connection, pid)
        schema.refuse_version(url, version, min_client)
        if recovering and not self.reading:
            raise StoreRefused(
                f"{address.shown(url)} is a standby, which only reads", hint="name the primary server"
            )
        if self.store and self.store != str(store):
            self._gone = StoreGone(address.shown(url))
            raise self._gone
        self.store = str(store)
        if not recovering:
            self._check_origin(connection, tuple(origin))

    def _check_origin(self, connection: Connection, recorded: tuple[Any, ...]) -> None:
        """Nothing is done on a server that may have lost what was acknowledged, until a person has looked."""
        if not self.reading and self._first_row(connection, schema.ORIGIN) != recorded:
            raise StoreRewound(
                f"the store {address.shown(self.url)} is on another server or timeline than before: after a failover or a"
                " restored backup acknowledged events may be gone",
                hint=f"look at what its runs did, then `outlast store accept {address.shown(self.url)}`",
            )

    def _first_row(self, connection: Connection, query: Any, values: Any = ()) -> Any:
        """The one row that a new connection answers. Raises StoreError, also where it is lost on the way."""
        try:
            return connection.execute(query, values).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise schema.not_initialised(self.url) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise address.not_permitted(self.url, error) from None
        except psycopg.Error as error:
            raise address.unreachable(self.url, error) from error

    # -- statements ----------------------------------------------------------------------------------------------

    def ask(self, query: Any, values: Any = (), *, limited: bool = True) -> list[tuple[Any, ...]]:
        """One statement, its own transaction. Raises Unanswered; `limited`: also where the server stays silent."""
        with self.connection() as connection, self._silence.limit(connection, limited):
            return _rows(connection.execute(query, values))

    def try_to(self, query: Any, values: Any = ()) -> None:
        """One statement that nobody depends on: carried out if the server can."""
        with contextlib.suppress(StoreError, Unanswered, psycopg.Error):
            self.ask(query, values)

    def read(self, query: Any, values: Any = ()) -> list[tuple[Any, ...]]:
        """A statement that changes nothing: asked again where its answer was lost. Raises StoreError."""
        return self.repeat(lambda: self.ask(query, values, limited=False))

    def repeat(self, do: Callable[[], T], *, until_s: float | None = None) -> T:
        """Do something that may be done twice, until it is answered or the time is over. Raises StoreError."""
        deadline_s = boottime_s() + self.timing.reconnect_s if until_s is None else until_s
        pause = threading.Event()
        while True:
            try:
                return do()
            except Unanswered as error:
                failure: StoreError = address.unreachable(self.url, error)
            except StoreUnreachable as error:
                failure = error
            except AGAIN as error:
                failure = self.translated(error)
            except psycopg.Error as error:
                raise self.translated(error) from error
            if boottime_s() >= deadline_s or self._closed:
                raise failure
            pause.wait(self.timing.reconnect_poll_s)

    def write(self, change: Callable[[Connection], T]) -> T:
        """A transaction that may be repeated: it finds what an earlier try left. Raises StoreError."""
        if self.reading:
            raise StoreRefused("the store is open for reading only", hint="open it for writing")

        def attempt() -> T:
            with (
                self.connection() as connection,
                self._silence.limit(connection, False),
                connection.transaction(),
            ):
                return change(connection)

        return self.repeat(attempt)

    def limit(self, connection: Connection) -> "contextlib.AbstractContextManager[None]":
        """Give the connection up inside the block when the server stays silent for too long."""
        return self._silence.limit(connection, True)

    def translated(self, error: psycopg.Error) -> StoreError:
        """The error for a statement that certainly failed."""
        state, text = error.sqlstate or "", address.first_line(error)
        if state in _FULL:
            self.disk_is_full = True
            return StoreError(
                f"the server of the store has no room: {text}",
                hint="make room on the server, then start it again",
            )
        if state in _BUSY:
            return StoreBusy(f"the store is locked by somebody else: {text}", hint="ask again in a moment")
        if state == "42501":
            return address.not_permitted(self.url, error)
        if state == "25006":
            return StoreRefused(
                f"{address.shown(self.url)} only reads: {text}", hint="name the primary server"
            )
        if state in ("42P01", "3F000"):
            self._gone = StoreGone(address.shown(self.url))
            return self._gone
        if isinstance(error, psycopg.DataError):
            return StoreRefused(f"PostgreSQL cannot store this: {text}", hint="names hold no NUL characters")
        return StoreError(f"PostgreSQL refused: {text} ({state or 'no code'})", hint="see `outlast doctor`")

    # -- rows of runs --------------------------------------------------------------------------------------------

    def row(self, run: str) -> tuple[int, int]:
        """The numbers of a run and of its root. A number is never used for another run."""
        found = self._rows.get(run)
        if found is None:
            rows = self.read(_ROW, (run,))
            if not rows:
                raise UnknownRun(run)
            found = self._rows[run] = (int(rows[0][0]), int(rows[0][1]))
        return found

    def forget_row(self, run: str) -> None:
        self._rows.pop(run, None)

    # -- the end -------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        return not self._closed and self._gone is None and not self.is_forked

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that opened the store: the connections are the parent's."""
        return self._pid != os.getpid()

    def check_usable(self) -> None:
        """Raise unless this object may be used. Costs no round trip."""
        if self._gone is not None:
            raise self._gone
        if self._closed:
            raise StoreRefused("the store is closed", hint="open it again")
        if self.is_forked:
            raise StoreRefused(
                "the store was opened before this process was forked", hint="open it in the child"
            )

    def mark_forked(self) -> None:
        """In a forked child: psycopg leaves the parent's connections alone, and no thread of ours is here."""
        self._lock = threading.Lock()
        self._spare = []
        self._silence = _Silence(self.timing)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, []
        if not self.is_forked:
            for connection in spare:
                connection.close()
        self._silence.close()


class _Silence:
    """Gives up connections on which a limited statement gets no answer: a stopped server keeps its connections open."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._until: dict[int, tuple[float, int]] = {}
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False

    @contextlib.contextmanager
    def limit(self, connection: Connection, wanted: bool) -> Iterator[None]:
        if not wanted:
            yield
            return
        place, fd = id(connection), connection.fileno()
        with self._lock:
            self._until[place] = (boottime_s() + self._timing.silence_ms / 1000, fd)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="outlast-silence", daemon=True)
                self._thread.start()
        if not self._work.is_set():
            self._work.set()
        try:
            yield
        finally:
            with self._lock:
                self._until.pop(place, None)

    def _watch(self) -> None:
        pause = threading.Event()
        while not self._closing:
            self._work.wait()
            pause.wait(self._timing.silence_look_s)
            with self._lock:
                now_s = boottime_s()
                for until_s, fd in self._until.values():
                    if now_s > until_s:
                        _shut(fd)
                if not self._until:
                    self._work.clear()

    def close(self) -> None:
        self._closing = True
        self._work.set()


def _shut(fd: int) -> None:
    """End a connection under whoever waits for its answer. The descriptor stays its owner's."""
    with contextlib.suppress(OSError):
        found = socket.socket(fileno=os.dup(fd))
        with found:
            found.shutdown(socket.SHUT_RDWR)


def _rows(cursor: "psycopg.Cursor[Any]") -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description is not None else []


def is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Whether the answer to a statement was lost, so that it is unknown what became of it."""
    state = error.sqlstate
    if state is not None:
        return state.startswith(_LOST)
    return connection.closed or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
