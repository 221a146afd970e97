"""One SQLite file with its two connections, a writer and a reader, and the translation of SQLite's errors.

After a failed write its outcome is *unknown*: this object writes nothing more, and the next opening shows it."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from outlast.errors import (
    AppendUnknown,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreGone,
    StoreRefused,
    UnknownRun,
)
from outlast.store import durable, notices
from outlast.store.sqlite import log_readers, schema
from outlast.store.sqlite.turns import Turns
from outlast.store.timing import Timing

T = TypeVar("T")


class Database:
    """The open file. Writes go through `write` or the group commit, reads through `read`.

    Both take a function instead of being context managers: Ctrl-C could strike after a lock is taken in `__enter__` and
    before the block begins, and the traceback would keep the lock from the code that records how the run ended. A plain
    `with` on a `threading.Lock` has no such gap.

    Opened for `reading`, it creates and writes nothing except SQLite's own `-shm`, where readers tell writers what they
    still need. On a read-only file system it writes nothing at all.
    """

    def __init__(
        self,
        path: Path,
        timing: Timing | None = None,
        *,
        vfs: str | None = None,
        reading: bool = False,
        turn: Path | None = None,
    ) -> None:
        self._timing = timing or Timing.current()
        self.thaw: Callable[[], object] | None = None  # frees the file of processes that will never let go
        self.path = path
        self.reading = reading
        self.write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._rows: dict[tuple[int, str], int] = {}
        self._broken: Exception | None = None
        self._forked = False
        self._closed = False
        self._vfs = vfs
        _prepare(path, vfs, reading)
        self._frozen = _frozen(path) if reading else None
        self._identity = _identity(path)
        self.writer = self._connect()
        self._reader = self._connect()
        self.check_exists()
        self._turns = (  # last: a store that cannot be opened leaves no file open
            None
            if turn is None or reading
            else Turns(turn, self._timing.turn_wait_s, self._timing.turn_pause_s)
        )

    def _connect(self) -> apsw.Connection:
        """Open, and wait for others that open: SQLite does not wait by itself for locks on a change to WAL."""
        deadline_s = time.monotonic() + self._timing.busy_ms / 1000
        while True:
            try:
                return self._connect_once()
            except StoreBusy:
                if time.monotonic() > deadline_s:
                    if not notices.waits_on(self._busy()):
                        raise
                    deadline_s = time.monotonic() + self._timing.busy_ms / 1000
                time.sleep(self._timing.busy_poll_s)

    def _connect_reading(self) -> apsw.Connection:
        """A connection that cannot write. SQLite registers readers in `-shm`. On a read-only file system without `-shm`
        and log, SQLite opens the file only if told that it never changes.
        """
        name, flags = str(self.path), apsw.SQLITE_OPEN_READONLY
        if self._frozen is not None:
            name, flags = f"{self.path.as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI
        try:
            connection = apsw.Connection(name, flags=flags, vfs=self._vfs)
            connection.set_busy_timeout(int(self._timing.busy_ms))
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            version = schema.version_of(connection)
        except apsw.Error as error:
            raise self._translate(error) from error
        if version > schema.VERSION:
            raise schema.too_new(self.path, version)
        if version < schema.VERSION:
            raise StoreRefused(
                f"the store {self.path} has an older version, and it is open for reading only",
                hint="migrate it with `outlast ls --all`",
            )
        return connection

    def _connect_once(self) -> apsw.Connection:
        if self.reading:
            return self._connect_reading()
        try:
            connection = apsw.Connection(str(self.path), vfs=self._vfs)
            connection.set_busy_timeout(int(self._timing.busy_ms))
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if schema.version_of(connection) > schema.VERSION:
                raise schema.too_new(self.path, schema.version_of(connection))
            connection.pragma("synchronous", "full")
            connection.pragma("fullfsync", 1)
            schema.migrate(connection, self.path)
            connection.pragma("journal_mode", "wal")
            connection.pragma("journal_size_limit", log_readers.FLOOR_BYTES)
            return connection
        except apsw.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: apsw.Error) -> StoreError:
        hint = "see `outlast doctor`"
        match error:
            case apsw.CorruptError() | apsw.NotADBError():
                return StoreCorrupt(f"the store {self.path} is damaged: {error}", hint=hint)
            case apsw.BusyError() | apsw.LockedError():
                return StoreBusy(self._busy(), hint=hint)
            case apsw.CantOpenError() if self.reading:
                return StoreRefused(
                    f"cannot read the store {self.path} in place: {error}",
                    hint="copy its folder, with the -wal file, to a folder you may write",
                )
            case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
                return StoreRefused(f"cannot write the store {self.path}: {error}", hint=durable.ONLY_READ)
            case _:
                return AppendUnknown(f"the store {self.path} failed: {error}", hint=hint)

    def _busy(self) -> str:
        return f"the store {self.path} stayed locked for {self._timing.busy_ms / 1000:g} s"

    @property
    def usable(self) -> bool:
        """Whether this object can still write."""
        return self._broken is None and not self._forked and not self._closed

    def check_usable(self) -> None:
        """Raise unless this object can still write."""
        if self._forked:
            raise StoreRefused(
                "this store was opened before a fork", hint="open it again in the child process"
            )
        if self._closed:
            raise StoreRefused("this store is closed", hint="use a run inside its `with` block")
        if self.reading:
            raise StoreRefused("this store is open for reading only", hint="open it for writing, too")
        if isinstance(self._broken, StoreGone):
            raise StoreGone(self.path)
        if self._broken is not None:
            raise AppendUnknown(
                f"the store is closed after a failed write: {self._broken}", hint="start the run again"
            )

    def check_exists(self) -> None:
        """Raise StoreGone, now and at every later write, if the open file is not the one at the path.

        Claims and the heartbeat ask; appends do not, because each would pay for it.
        """
        if self._identity is None or _identity(self.path) != self._identity:
            self._broken = self._broken or StoreGone(self.path)
            raise StoreGone(self.path)
        if self._frozen is not None and self._broken is None and _frozen(self.path) != self._frozen:
            self._broken = StoreGone(self.path)  # it exists after all, elsewhere: it must be opened anew

    def mark_forked(self) -> None:
        """In a forked child: the parent's connections must not be used here."""
        self._forked = True

    def fail(self, error: apsw.Error) -> StoreError:
        """The error for a failed write. Unless the store was only busy, this object writes nothing more."""
        self.rollback()
        translated = self._translate(error)
        if not isinstance(translated, StoreBusy):
            self._broken = error
        return translated

    def in_turn(self, act: Callable[[], T]) -> T:
        """Write when it is our turn; with the write lock held. What meets a locked database has written nothing."""
        while True:
            try:
                if self._turns is not None:
                    self._turns.take()
                return act()
            except apsw.BusyError:
                self.rollback()
            finally:
                if self._turns is not None:
                    self._turns.leave()
            if not notices.waits_on(self._busy()):
                raise StoreBusy(self._busy(), hint="see `outlast doctor`")
            if self.thaw is not None:
                self.thaw()

    def rollback(self) -> None:
        """Undo an open transaction, if the file still allows it."""
        with contextlib.suppress(apsw.Error):
            if self.writer.in_transaction:
                self.writer.execute("ROLLBACK")

    def write(self, change: Callable[[apsw.Connection], T]) -> T:
        """A write outside the group commit: claims, requests, new runs. Durable when it returns."""
        self.check_usable()
        with self.write_lock:
            self.check_usable()
            try:
                changed = self.in_turn(lambda: self._transaction(change))
            except apsw.Error as error:
                raise self.fail(error) from error
            except BaseException:
                self.rollback()
                raise
            return changed

    def _transaction(self, change: Callable[[apsw.Connection], T]) -> T:
        # IMMEDIATE: take the write lock now, so we never fail to upgrade halfway.
        self.writer.execute("BEGIN IMMEDIATE")
        changed = change(self.writer)
        self.writer.execute("COMMIT")
        return changed

    def read(self, ask: Callable[[apsw.Connection], T]) -> T:
        """Query the reading connection, one thread at a time."""
        if self._forked:
            self.check_usable()
        with self._read_lock:
            try:
                return ask(self._reader)
            except apsw.Error as error:
                raise self._translate(error) from error
            except UnicodeDecodeError as error:  # SQLite does not check the text that it stores
                raise StoreCorrupt(
                    f"the store {self.path} is damaged: {error}", hint="see `outlast doctor --all`"
                ) from error

    def row_under(self, root: int, run: str) -> int:
        """The table row of a run in the tree of `root`, for appends. Cached: the fence checks the root's row anyway.

        Readers must look it up: a run that another process forgot and brought back has another row.
        """
        row = self._rows.get((root, run))
        if row is None:
            row = self._rows[root, run] = self.read(lambda connection: row_in(connection, run))
        return row

    def forget_rows(self, gone: set[int]) -> None:
        """Remove these rows from the cache."""
        self._rows = {place: row for place, row in self._rows.items() if row not in gone}

    def epoch_of(self, row: int) -> int:
        """The run's current epoch; 0 if the run is gone."""
        sql = "SELECT epoch FROM runs WHERE id = ?"
        return self.read(lambda connection: connection.execute(sql, (row,)).get) or 0

    def close(self) -> None:
        """Close the file."""
        whole = self.usable and not self.reading
        self._closed = True
        with self.write_lock, self._read_lock, contextlib.suppress(apsw.Error):
            if whole:  # a checkpoint, so that the next opening has less to recover
                self.writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._reader.close()
            self.writer.close()
        if self._turns is not None and not self._forked:
            self._turns.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file whatever its name; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def row_in(connection: apsw.Connection, run: str) -> int:
    """The table row of a run, inside a transaction."""
    row = connection.execute("SELECT id FROM runs WHERE run = ?", (run,)).get
    if row is None:
        raise UnknownRun(run)
    return int(row)


def _frozen(path: Path) -> tuple[int, int] | None:
    """Size and time of a file that cannot be written through this path and has no log; else None."""
    try:
        log, readers = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
        has_log = log.exists() and log.stat().st_size > 0
        if has_log or readers.exists() or not os.statvfs(path).f_flag & os.ST_RDONLY:
            return None
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _prepare(path: Path, vfs: str | None, reading: bool) -> None:
    """Inspect the file before SQLite may touch it, or create an empty private one with a durable name."""
    try:
        if reading:
            _inspect(path, vfs)
            return
        durable.make_folder(path.parent)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            _inspect(path, vfs)
            return
        durable.sync_upwards(path.parent)
    except OSError as error:
        raise durable.store_refused(path, error) from error


def _inspect(path: Path, vfs: str | None) -> None:
    try:
        schema.inspect(path, vfs)
    except apsw.Error as error:
        raise StoreRefused(f"cannot open the store {path}: {error}", hint="see `outlast doctor`") from error
