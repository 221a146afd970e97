"""The embedded store: SQLite in WAL mode with synchronous=FULL, group commit, leases with fencing epochs.

An append is one fenced statement: it inserts only if the run's epoch and last sequence number are the expected
ones. Threads and event loops that append at the same time share one commit. A failing write is *unknown*: the
store is closed for writing then and there, and what became of the write shows after the next opening.
"""

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast import faults
from outlast.core import events as ev
from outlast.core import recovery, state
from outlast.errors import (
    AppendUnknown,
    LeaseLost,
    RunExists,
    RunHeld,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreRewound,
    UnknownRun,
)
from outlast.store import files, liveness, schema
from outlast.store.protocol import (
    LEASE_TTL_S,
    PAGE_MAX,
    Batch,
    History,
    Holder,
    Lease,
    Recorded,
    Request,
    Summary,
    Where,
)

BUSY_MS = 10_000
GROUP_MAX = 512
POLL_S = 0.05
MARGIN_S = 1.0
WAKEUP_GRACE_S = 2.0
PAGE_BYTES = 4096

# The fence: with a stale epoch or an unexpected sequence number one of the two subqueries is NULL, which the columns
# refuse. Written as VALUES because INSERT … SELECT from the table it inserts into goes through a temporary table.
_INSERT = """
INSERT INTO events(run, seq, kind, key, data)
VALUES ((SELECT ?1 FROM runs WHERE id = ?6 AND epoch = ?7), (SELECT ?2 FROM events WHERE run = ?1 AND seq = ?2 - 1),
        ?3, ?4, ?5)
RETURNING n, EXISTS (SELECT 1 FROM requests WHERE run = ?6 AND taken = 0)
"""
_HEAD = """
INSERT INTO heads(id, seq, status, updated_at, state) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET seq = ?2, status = ?3, updated_at = ?4, state = ?5
"""
_SUMMARY = """
SELECT r.id, r.run, r.task, r.project, r.generation, r.parent, r.parent_beat,
       (SELECT run FROM runs WHERE id = r.root), r.epoch, r.holder,
       h.state, h.seq, (SELECT max(seq) FROM events WHERE run = r.id)
FROM runs r JOIN heads h ON h.id = r.id
"""

_holder_decoder = msgspec.json.Decoder(Holder)
_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()


class SqliteLease:
    """A claimed run in this process."""

    def __init__(
        self, store: "SqliteStore", run: str, row: int, epoch: int, holder: Holder, lock: liveness.RunLock
    ) -> None:
        self.run = run
        self.row = row
        self.epoch = epoch
        self.holder = holder
        self.lock = lock
        self.deadline_s = 0.0
        self._store = store

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Inside it the lease is valid, and a taker on this host waits for the end or kills this process."""
        with self.lock.acting():
            if liveness.boottime_s() > self.deadline_s - MARGIN_S:
                lost = self._store.renew([self])
                if lost:
                    raise LeaseLost(self.run, held=self.epoch, current=self._store.epoch_of(self.row))
            yield


class _Pending:
    """A batch on its way into a commit."""

    __slots__ = ("batch", "error", "finished", "waiting", "wake")

    def __init__(self, batch: Batch, wake: Callable[[Exception | None, bool], None] | None) -> None:
        self.batch = batch
        self.wake = wake
        self.finished = False
        self.error: Exception | None = None
        self.waiting = False


class SqliteStore:
    """All runs of one state folder."""

    def __init__(self, root: Path, database: Path, *, vfs: str | None = None) -> None:
        files.refuse_network(root)
        self._path = database
        self._root = root
        self._vfs = vfs
        self._prepare_folders()
        self.url = f"sqlite://{database}"
        self.blobs = files.FolderBlobs(root / "blobs")
        self.inbox = _SqliteInbox(self)
        self.low = False
        self._rows: dict[str, int] = {}
        self._queue: deque[_Pending] = deque()
        self._broken: Exception | None = None
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._leases: dict[str, SqliteLease] = {}
        self._thread: threading.Thread | None = None
        self._work = threading.Event()
        self._closing = False
        self._forked = False
        self._writer = self._connect()
        self._reader = self._connect()
        files.make_ballast(self._ballast)
        _stores.add(self)

    # -- opening -------------------------------------------------------------------------------------------------

    def _prepare_folders(self) -> None:
        try:
            for folder in (self._root, self._path.parent, self._root / "runs", self._root / "blobs"):
                files.make_folder(folder)
            if self._path.exists():
                schema.inspect(self._path)
            else:
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                files.sync_folder(self._path.parent)
        except OSError as error:
            raise StoreRefused(
                f"the store {self._root} cannot be used: {error.strerror or error}",
                hint="point --store or OUTLAST_STORE to a folder you may write",
            ) from error

    def _connect(self) -> apsw.Connection:
        try:
            connection = apsw.Connection(str(self._path), vfs=self._vfs)
            connection.set_busy_timeout(BUSY_MS)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            if schema.version_of(connection) > schema.VERSION:
                raise schema.too_new(self._path, schema.version_of(connection))
            connection.pragma("synchronous", "full")
            connection.pragma("fullfsync", 1)
            schema.migrate(connection, self._path)
            connection.pragma("journal_mode", "wal")
            return connection
        except apsw.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: apsw.Error) -> StoreError:
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return StoreCorrupt(f"the store {self._path} is damaged: {error}", hint="see `outlast doctor`")
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StoreBusy(
                f"the store {self._path} stayed locked for {BUSY_MS // 1000} s", hint="see `outlast doctor`"
            )
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
            return StoreRefused(
                f"the store {self._path} cannot be written: {error}", hint="see `outlast doctor`"
            )
        return AppendUnknown(f"the store {self._path} failed: {error}", hint="see `outlast doctor`")

    @property
    def _ballast(self) -> Path:
        return self._root / "ballast"

    def _lock_path(self, run: str) -> Path:
        return self._root / "runs" / f"{run}.lock"

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, wake: Callable[[Exception | None, bool], None] | None = None) -> bool:
        """Append when epoch and sequence number fit, else LeaseLost. Returns when durable: whether requests wait."""
        pending = _Pending(batch, wake)
        self._queue.append(pending)
        if wake is not None:
            self._start_writer()
            self._work.set()
            return False
        while not pending.finished:
            with self._write_lock:
                if not pending.finished:
                    self._commit_queue()
        if pending.error is not None:
            raise pending.error
        return pending.waiting

    def _start_writer(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_loop, name="outlast-commit", daemon=True)
            self._thread.start()

    def _write_loop(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while self._queue:
                with self._write_lock:
                    self._commit_queue()

    def _commit_queue(self) -> None:
        """Commit everything that waits, up to a limit, in one transaction. Called with the write lock held."""
        group = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_MAX))]
        if not group:
            return
        try:
            self._check_usable()
            self._commit(group)
        except Exception as error:
            for pending in group:
                pending.error = pending.error or error
        for pending in group:
            pending.finished = True
            if pending.wake is not None:
                pending.wake(pending.error, pending.waiting)

    def _check_usable(self) -> None:
        if self._forked:
            raise StoreRefused(
                "this store was opened before a fork", hint="open it again in the child process"
            )
        if self._broken is not None:
            raise AppendUnknown(
                f"the store is closed after a failed write: {self._broken}", hint="start the run again"
            )

    def _commit(self, group: list[_Pending]) -> None:
        try:
            self._write(group)
        except apsw.FullError:
            # A full disk stops the frame from being written, so nothing of it can surface later. Give the ballast
            # back and write once more: an outcome and the cause must still fit.
            self._rollback()
            self._ballast.unlink(missing_ok=True)
            self.low = True
            self._write_or_break(group)
        except apsw.Error as error:
            self._fail(error)

    def _write_or_break(self, group: list[_Pending]) -> None:
        try:
            self._write(group)
        except apsw.Error as error:
            self._fail(error)

    def _fail(self, error: apsw.Error) -> None:
        self._rollback()
        translated = self._translate(error)
        if not isinstance(translated, StoreBusy):
            self._broken = error
        raise translated from error

    def _rollback(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _write(self, group: list[_Pending]) -> None:
        marks: list[tuple[SqliteLease, int]] = []
        batch = group[0].batch
        if len(group) == 1 and len(batch.events) == 1 and not batch.takes and batch.head is None:
            faults.point("store.before_commit")
            self._insert(group[0], marks)
        else:
            self._writer.execute("BEGIN IMMEDIATE")
            for pending in group:
                self._insert(pending, marks)
            faults.point("store.before_commit")
            self._writer.execute("COMMIT")
        faults.point("store.after_commit")
        for lease, n in marks:
            lease.lock.mark(n)

    def _insert(self, pending: _Pending, marks: list[tuple[SqliteLease, int]]) -> None:
        """Insert one batch behind its fence; a stale one fails alone."""
        batch = pending.batch
        lease = batch.lease
        assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
        row = self._row(batch.run)
        seq, n = batch.after, 0
        execute = self._writer.execute
        for event in batch.events:
            seq += 1
            try:
                n, waiting = execute(_INSERT, (row, seq, *_columns(event), lease.row, lease.epoch)).get
            except apsw.ConstraintError:
                pending.error = LeaseLost(batch.run, held=lease.epoch, current=self.epoch_of(lease.row))
                return
            pending.waiting = bool(waiting)
        if batch.takes:
            ids = ",".join(str(int(taken)) for taken in batch.takes)
            execute(f"UPDATE requests SET taken = 1 WHERE id IN ({ids})")
        if batch.head is not None:
            self._write_head(row, batch.head)
        marks.append((lease, n))

    def _write_head(self, row: int, head: state.RunState) -> None:
        updated = "" if head.updated_at is None else head.updated_at.isoformat()
        self._writer.execute(_HEAD, (row, head.seq, head.status, updated, state.snapshot(head)))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """A write outside the group commit: claims, requests, new runs. Durable when the block ends."""
        with self._write_lock:
            self._check_usable()
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except apsw.Error as error:
                self._fail(error)
            except BaseException:
                self._rollback()
                raise

    def create(self, opened: ev.RunOpened, events: Sequence[ev.AnyEvent] = (), *, again: bool = False) -> str:
        """Make the run unless its identity exists; the id of the run that has it now. Durable when it returns."""
        parent = opened.parent
        identity = (opened.project, opened.task, parent.run if parent else "", parent.beat if parent else 0)
        with self._transaction() as connection:
            if connection.execute("SELECT 1 FROM runs WHERE run = ?", (opened.run,)).get is not None:
                raise RunExists(
                    f"run {opened.run} is already in this store", hint=f"see `outlast show {opened.run}`"
                )
            found = connection.execute(
                "SELECT run, generation FROM runs WHERE project = ? AND task = ? AND parent = ? AND parent_beat = ?"
                " ORDER BY generation DESC LIMIT 1",
                identity,
            ).get
            if found is not None and not again:
                return str(found[0])
            root = None if parent is None else self._row_in(connection, parent.root)
            self._create_in(
                connection, opened, [opened, *events], identity, (found[1] if found else 0) + 1, root
            )
            faults.point("store.before_commit")
        faults.point("store.created")
        return opened.run

    def _create_in(
        self,
        connection: apsw.Connection,
        opened: ev.RunOpened,
        journal: list[ev.AnyEvent],
        identity: tuple[str, str, str, int],
        generation: int,
        root: int | None,
    ) -> None:
        row = connection.execute(
            "INSERT INTO runs(run, project, task, parent, parent_beat, generation, root)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (opened.run, *identity, generation, root or 0),
        ).get
        if root is None:
            connection.execute("UPDATE runs SET root = id WHERE id = ?", (row,))
        connection.executemany(
            "INSERT INTO events(run, seq, kind, key, data) VALUES (?, ?, ?, ?, ?)",
            [(row, seq, *_columns(event)) for seq, event in enumerate(journal, 1)],
        )
        self._write_head(row, state.fold(state.RunState(), journal))

    def forget(self, run: str) -> None:
        """Remove a run and its children. A marker keeps event numbers from being used twice."""
        with self._transaction() as connection:
            row = self._row_in(connection, run)
            rows = [
                r for (r,) in connection.execute("SELECT id FROM runs WHERE root = ? OR id = ?", (row, row))
            ]
            ids = ",".join(str(r) for r in rows)
            last = connection.execute("SELECT max(n) FROM events").get
            for table, column in (("events", "run"), ("requests", "run"), ("heads", "id"), ("runs", "id")):
                connection.execute(f"DELETE FROM {table} WHERE {column} IN ({ids})")
            connection.execute("INSERT INTO events(n, run, seq, data) VALUES (?1, 0, ?1, '')", (last + 1,))
        self._rows.pop(run, None)
        faults.point("gc.forgotten")
        for path in (self._lock_path(run), self._lock_path(run).with_suffix(".act")):
            path.unlink(missing_ok=True)

    # -- leases --------------------------------------------------------------------------------------------------

    def claim(self, run: str, *, ttl_s: float = LEASE_TTL_S, placement: int = 0) -> SqliteLease:
        """Become the one writer under a new epoch, or RunHeld. Raises StoreRewound where a mark shows it."""
        path = self._lock_path(run)
        lock = liveness.try_lock(path)
        if lock is None:
            lock = self._take_over(run, path)
        try:
            self._check_mark(run, path)
            lease = self._take(run, lock, ttl_s, placement)
        except BaseException:
            lock.close()
            raise
        self._leases[run] = lease
        faults.point("store.claimed")
        return lease

    def _take(self, run: str, lock: liveness.RunLock, ttl_s: float, placement: int) -> SqliteLease:
        holder = liveness.myself()
        now = liveness.boottime_s()
        with self._transaction() as connection:
            row = self._row_in(connection, run)
            epoch = connection.execute(
                "UPDATE runs SET epoch = epoch + 1, holder = ?, expires_s = ?, placement = max(placement, ?)"
                " WHERE id = ? RETURNING epoch",
                (msgspec.json.encode(holder), int(now + ttl_s) + 1, placement, row),
            ).get
        lease = SqliteLease(self, run, row, epoch, holder, lock)
        lease.deadline_s = now + ttl_s
        return lease

    def _take_over(self, run: str, path: Path) -> liveness.RunLock:
        """The lock is held by a living process: robbed only when its lease is over and it does not wake up."""
        deadline = liveness.boottime_s() + WAKEUP_GRACE_S
        while True:
            holder, expires_s = self._holder(run)
            if expires_s > liveness.boottime_s():
                raise _held(run, holder)
            lock = liveness.try_lock(path)
            if lock is not None:
                return lock
            if liveness.boottime_s() > deadline:
                break
            self._work.wait(POLL_S)
        lock = liveness.seize(path)
        if lock is not None:
            return lock
        # Frozen inside an act: only its death proves that it will not go on acting after we took over.
        if holder is not None and liveness.kill(holder):
            lock = liveness.try_lock(path)
        if lock is None:
            raise _held(run, holder, ", stopped inside an act")
        return lock

    def _holder(self, run: str) -> tuple[Holder | None, int]:
        with self._reading() as connection:
            found = connection.execute("SELECT holder, expires_s FROM runs WHERE run = ?", (run,)).get
        if found is None:
            raise UnknownRun(run)
        return (_holder_decoder.decode(found[0]) if found[0] else None), found[1]

    def _check_mark(self, run: str, path: Path) -> None:
        mark = liveness.read_mark(path)
        if mark == 0:
            return
        with self._reading() as connection:
            last = connection.execute("SELECT coalesce(max(n), 0) FROM events").get
            owner = connection.execute(
                "SELECT root FROM runs WHERE id = (SELECT run FROM events WHERE n = ?)", (mark,)
            ).get
            mine = connection.execute("SELECT id FROM runs WHERE run = ?", (run,)).get
        if recovery.rewound(last, [mark]) is not None or owner != mine:
            raise StoreRewound(
                f"the store lost events of run {run}: event {mark} was acknowledged and is gone",
                hint=f"look at what the run did, then `outlast resume {run} --accept-rewind`",
            )

    def renew(self, leases: Iterable[Lease], *, ttl_s: float = LEASE_TTL_S) -> dict[str, str]:
        """Prolong leases; the runs that were lost, with the reason."""
        now = liveness.boottime_s()
        lost: dict[str, str] = {}
        with self._transaction() as connection:
            for lease in leases:
                assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
                kept = connection.execute(
                    "UPDATE runs SET expires_s = ? WHERE id = ? AND epoch = ? RETURNING 1",
                    (int(now + ttl_s) + 1, lease.row, lease.epoch),
                ).get
                if kept is None:
                    lost[lease.run] = "another attempt claimed it"
                else:
                    lease.deadline_s = now + ttl_s
        return lost

    def release(self, lease: Lease) -> None:
        """Give the run back. A lease that was lost meanwhile is simply forgotten."""
        assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
        self._leases.pop(lease.run, None)
        try:
            if self._broken is None and not self._forked:
                with self._transaction() as connection:
                    connection.execute(
                        "UPDATE runs SET expires_s = 0, holder = NULL WHERE id = ? AND epoch = ?",
                        (lease.row, lease.epoch),
                    )
        finally:
            lease.lock.close()

    def epoch_of(self, row: int) -> int:
        """The run's current epoch, 0 where the run is gone."""
        with self._reading() as connection:
            return connection.execute("SELECT epoch FROM runs WHERE id = ?", (row,)).get or 0

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run, by its lock."""
        return liveness.is_locked(self._lock_path(run))

    def accept_rewind(self, run: str) -> None:
        """A person has looked: forget the mark of a run whose events were lost."""
        lock = liveness.try_lock(self._lock_path(run))
        if lock is None:
            raise _held(run, self._holder(run)[0])
        lock.mark(0)
        lock.close()

    # -- reading -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._read_lock:
            try:
                yield self._reader
            except apsw.Error as error:
                raise self._translate(error) from error

    def list(self, where: Where, *, after: int = 0, limit: int = PAGE_MAX) -> list[Summary]:
        """Runs, newest first, from below the cursor `after`."""
        clauses, values = _where(where, after)
        sql = f"{_SUMMARY} WHERE {' AND '.join(clauses)} ORDER BY r.id DESC LIMIT ?"
        with self._reading() as connection:
            rows = connection.execute(sql, (*values, limit)).fetchall()
        return [summary for row in rows if _fits(summary := self._summary(row), where)]

    def _summary(self, row: tuple[Any, ...]) -> Summary:
        *columns, holder, stored, seq, last = row
        head = state.restore(stored)
        if last > seq:
            head = self._caught_up(columns[1], head)
        names = ("id", "run", "task", "project", "generation", "parent", "parent_beat", "root", "epoch")
        fields = dict(zip(names, columns, strict=True))
        return Summary(holder=_holder_decoder.decode(holder) if holder else None, state=head, **fields)

    def _caught_up(self, run: str, head: state.RunState) -> state.RunState:
        while page := self.read(run, after=head.seq).events:
            head = state.fold(head, [item.event for item in page])
        return head

    def read(
        self,
        run: str,
        *,
        after: int | None = None,
        limit: int = PAGE_MAX,
        tags: Sequence[str] = (),
        key: str = "",
    ) -> History:
        """Events after a sequence number; with `after=None` the newest stored head and all that follows it."""
        row = self._row(run)
        head = state.RunState()
        with self._reading() as connection:
            if after is None:
                stored = connection.execute("SELECT state FROM heads WHERE id = ?", (row,)).get
                head = state.restore(stored) if stored else head
                after = head.seq
            clauses, values = ["run = ?", "seq > ?"], [row, after]
            if tags:
                clauses.append(f"kind IN ({','.join('?' * len(tags))})")
                values += tags
            if key:
                clauses.append("key = ?")
                values.append(key)
            sql = f"SELECT n, seq, data FROM events WHERE {' AND '.join(clauses)} ORDER BY seq LIMIT ?"
            rows = connection.execute(sql, (*values, limit)).fetchall()
        return History(head, [Recorded(n, run, seq, ev.decode(data)) for n, seq, data in rows])

    def subscribe(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> "list[Recorded]":
        """Events of all runs after a store-wide number, as soon as there are some; empty after `wait_s`."""
        deadline = liveness.boottime_s() + wait_s
        quiet = threading.Event()
        seen: object = None
        while True:
            with self._reading() as connection:
                version = connection.pragma("data_version")
                rows = [] if version == seen else self._after(connection, after, limit)
            if rows or liveness.boottime_s() >= deadline:
                return [Recorded(n, run, seq, ev.decode(data)) for n, run, seq, data in rows]
            seen = version
            quiet.wait(POLL_S)

    @staticmethod
    def _after(connection: apsw.Connection, after: int, limit: int) -> "list[tuple[int, str, int, bytes]]":
        sql = (
            "SELECT e.n, r.run, e.seq, e.data FROM events e JOIN runs r ON r.id = e.run WHERE e.n > ?"
            " ORDER BY e.n LIMIT ?"
        )
        return connection.execute(sql, (after, limit)).fetchall()

    def _row(self, run: str) -> int:
        row = self._rows.get(run)
        if row is None:
            with self._reading() as connection:
                row = self._rows[run] = self._row_in(connection, run)
        return row

    @staticmethod
    def _row_in(connection: apsw.Connection, run: str) -> int:
        row = connection.execute("SELECT id FROM runs WHERE run = ?", (run,)).get
        if row is None:
            raise UnknownRun(run)
        return int(row)

    @property
    def usable(self) -> bool:
        """Whether anything can still be written through this object."""
        return self._broken is None and not self._forked and not self._closing

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of files and threads. Leases that are not released end with the process."""
        self._closing = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for lease in list(self._leases.values()):
            lease.lock.close()
        self._leases.clear()
        _stores.discard(self)
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    def _after_fork(self) -> None:
        """In a forked child: the parent keeps the lease, so the child must not keep its lock alive."""
        self._forked = True
        for lease in self._leases.values():
            lease.lock.close()


class _SqliteInbox:
    """Requests to runs, in a table of the same file."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def put(self, run: str, *, by: str, what: str, args: bytes = b"null") -> int:
        """Durable when it returns; the id of the request."""
        with self._store._transaction() as connection:
            row = self._store._row_in(connection, run)
            at = datetime.now(UTC).isoformat()
            sql = "INSERT INTO requests(run, at, by, what, args) VALUES (?, ?, ?, ?, ?) RETURNING id"
            return int(connection.execute(sql, (row, at, by, what, args)).get)

    def pending(self, run: str) -> list[Request]:
        """Requests not taken in yet, oldest first."""
        row = self._store._row(run)
        sql = "SELECT id, at, by, what, args FROM requests WHERE run = ? AND taken = 0 ORDER BY id"
        with self._store._reading() as connection:
            rows = connection.execute(sql, (row,)).fetchall()
        return [
            Request(id_, run, datetime.fromisoformat(at), by, what, args) for id_, at, by, what, args in rows
        ]


def _columns(event: ev.AnyEvent) -> tuple[str | None, str | None, bytes]:
    """Kind, key and data of an event. Of the ends of beats only those that extend the plan are found by kind."""
    if type(event) is ev.BeatDone and not event.extended:
        return None, None, ev.encode(event)
    key = event.key if isinstance(event, ev.EffectIntended) and event.own_key else None
    return ev.tag_of(event), key, ev.encode(event)


def _where(where: Where, after: int) -> tuple[list[str], list[Any]]:
    clauses, values = ["(?1 = 0 OR r.id < ?1)"], [after]
    wanted: list[tuple[str, Any, bool]] = [
        ("r.run GLOB ? || '*'", where.run_prefix, bool(where.run_prefix)),
        ("r.project = ?", where.project, bool(where.project)),
        ("r.task = ?", where.task, bool(where.task)),
        ("r.parent = ?", where.parent, where.parent is not None),
        ("r.parent_beat = ?", where.parent_beat, where.parent_beat is not None),
    ]
    for clause, value, given in wanted:
        if given:
            clauses.append(clause)
            values.append(value)
    return clauses, values


_CLOSED = ("done", "cancelled", "handed_off")


def _fits(summary: Summary, where: Where) -> bool:
    if where.open_only and summary.state.status in _CLOSED:
        return False
    return not where.statuses or summary.state.status in where.statuses


def _held(run: str, holder: Holder | None, why: str = "") -> RunHeld:
    if holder is None:
        return RunHeld(run, pid=0, host="unknown", since="unknown", why=why)
    since = holder.since.strftime("%Y-%m-%d %H:%M:%SZ")
    return RunHeld(run, pid=holder.pid, host=holder.host, since=since, why=why)


def _fork_in_child() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_fork_in_child)
