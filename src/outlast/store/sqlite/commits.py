"""Group commit: appends from several threads or event loops at the same time share one transaction and one flush.

An append is one fenced statement. A stale one fails alone; an I/O error fails every append in the commit."""

import contextlib
import threading
from collections import deque
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast import faults
from outlast.core import events as ev, state
from outlast.errors import AppendUnknown, LeaseLost, OutlastError, UnknownRun
from outlast.store import checksums
from outlast.store.locks import Mark
from outlast.store.protocol import Batch, Wake
from outlast.store.sqlite.database import Database
from outlast.store.sqlite.leases import SqliteLease

GROUP_MAX = 512
_UNFILED = (None, None)

# The fence: with a stale epoch or an unexpected sequence number one of the two subqueries is NULL, and the columns
# are NOT NULL. It is VALUES because INSERT … SELECT from the table it inserts into needs a temporary table.
_INSERT = """
INSERT INTO events(run, seq, kind, key, data)
VALUES ((SELECT ?1 FROM runs WHERE id = ?6 AND epoch = ?7), (SELECT ?2 FROM events WHERE run = ?1 AND seq = ?2 - 1),
        ?3, ?4, ?5)
"""
_HEAD = """
INSERT INTO heads(id, seq, status, updated_at, state) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET seq = ?2, status = ?3, updated_at = ?4, state = ?5
"""


class _Pending:
    """A batch on its way into a commit."""

    __slots__ = ("batch", "error", "finished", "last", "wake")

    def __init__(self, batch: Batch, wake: Wake | None) -> None:
        if not batch.encoded:
            # The caller encodes, so that an event that cannot be encoded fails nobody else in the commit.
            encoded = tuple([ev.encode(event) for event in batch.events])
            batch = msgspec.structs.replace(batch, encoded=encoded)
        self.batch = batch
        self.wake = wake
        self.last = 0
        self.finished = False
        self.error: Exception | None = None


class Commits:
    """The queue of batches and the thread that commits them for event loops."""

    def __init__(self, database: Database, ballast: Path, mark: Mark) -> None:
        self.low = False
        self._mark = mark
        self._db = database
        self._ballast = ballast
        self._queue: deque[_Pending] = deque()
        self._thread: threading.Thread | None = None
        self._work = threading.Event()
        self._closing = False

    def append(self, batch: Batch, wake: Wake | None) -> None:
        """See `Store.append`. Without `wake` the calling thread commits, for itself and for all that wait."""
        if wake is None and not self._queue and not self._db.write_lock.locked() and _is_single(batch):
            self._commit_alone(batch)
            return
        self._db.check_usable()
        pending = _Pending(batch, wake)
        if wake is not None:
            self._queue.append(pending)
            self._start_thread()
            if not self._work.is_set():
                self._work.set()
        else:
            self._commit_shared(pending)

    def _commit_alone(self, batch: Batch) -> None:
        """The frequent case: one event of one run, and nobody else waits. The statement is its own transaction."""
        db, lease = self._db, batch.lease
        assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
        row = (
            self._row(batch),
            batch.after + 1,
            *index_keys(batch.events[0]),
            checksums.sealed(batch.encoded[0], batch.run, batch.after + 1),
            lease.row,
            lease.epoch,
        )
        with db.write_lock:
            db.check_usable()
            if lease.released:
                raise self._lost(batch)
            faults.point("store.before_commit")
            try:
                try:
                    db.in_turn(lambda: db.writer.execute(_INSERT, row))
                except apsw.FullError:
                    self._make_room_after_failing()
                    db.in_turn(lambda: db.writer.execute(_INSERT, row))
            except apsw.ConstraintError:
                raise self._lost(batch) from None
            except apsw.Error as error:
                raise db.fail(error) from error
            except BaseException:
                db.rollback()
                raise
            n = db.writer.last_insert_rowid()
            faults.point("store.after_commit")
            lease.lock.mark(n)
            self._mark.set(n)

    def _commit_shared(self, pending: _Pending) -> None:
        try:
            # Inside the try: after Ctrl-C between the two, the next append would commit this batch.
            self._queue.append(pending)
            while not pending.finished:
                with self._db.write_lock:
                    if not pending.finished:
                        self._commit_queue()
        except BaseException:
            self._withdraw(pending)
            raise
        if pending.error is not None:
            raise pending.error

    def _withdraw(self, pending: _Pending) -> None:
        """Take back an interrupted caller's batch, so that nobody else commits it later."""
        with self._db.write_lock, contextlib.suppress(ValueError):
            self._queue.remove(pending)

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work_off, name="outlast-commit", daemon=True)
            self._thread.start()

    def _work_off(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while self._queue:
                with self._db.write_lock:
                    self._commit_queue()

    def _commit_queue(self) -> None:
        """Commit all waiting batches, up to a limit, in one transaction. Call it with the write lock held."""
        group: list[_Pending] = []
        try:
            while self._queue and len(group) < GROUP_MAX:
                if not self._queue[0].finished:  # an interrupt may leave an answered batch in the queue
                    group.append(self._queue[0])
                self._queue.popleft()
            if not group:
                return
            self._db.check_usable()
            self._commit(group)
        except BaseException as error:
            self._db.rollback()
            known = (
                error if isinstance(error, OutlastError) else AppendUnknown("interrupted while committing")
            )
            for pending in group:
                pending.error = pending.error or known
            if known is not error:
                raise
        finally:
            for pending in group:
                pending.finished = True
                if pending.wake is not None:
                    pending.wake(pending.error)

    def _commit(self, group: list[_Pending]) -> None:
        try:
            try:
                self._db.in_turn(lambda: self._write(group))
            except apsw.FullError:
                self._make_room_after_failing()
                self._db.in_turn(lambda: self._write(group))
        except apsw.Error as error:
            raise self._db.fail(error) from error

    def _make_room_after_failing(self) -> None:
        """On a full disk the frame is not written at all, so nothing of it can surface later. Release the ballast and
        write once more: an outcome and the cause of the stop must still fit."""
        self._db.rollback()
        self.make_room()

    def make_room(self) -> None:
        """The disk is full: release the ballast. From now on work in progress may end, nothing new may begin."""
        self._ballast.unlink(missing_ok=True)
        self.low = True

    def _write(self, group: list[_Pending]) -> None:
        self._write_many(group)
        faults.point("store.after_commit")
        for pending in group:
            lease = pending.batch.lease
            if pending.error is None and isinstance(lease, SqliteLease):
                lease.lock.mark(pending.last)
        if last := max([pending.last for pending in group]):
            self._mark.set(last)

    def _write_many(self, group: list[_Pending]) -> None:
        writer = self._db.writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            writer.executemany(_INSERT, [row for pending in group for row in self._rows(pending)])
        except apsw.ConstraintError:
            # One of them is stale. It must fail alone, so try each by itself.
            writer.execute("ROLLBACK")
            writer.execute("BEGIN IMMEDIATE")
            for pending in group:
                self._insert(pending)
        else:
            n = writer.last_insert_rowid()
            for pending in reversed(group):
                if pending.error is None:
                    pending.last = n
                    n -= len(pending.batch.events)
        for pending in group:
            if pending.error is None:
                self._write_rest(pending.batch)
        faults.point("store.before_commit")
        writer.execute("COMMIT")

    def _insert(self, pending: _Pending) -> None:
        """Insert one batch through the fence. A stale one fails alone."""
        writer = self._db.writer
        rows = self._rows(pending)
        if pending.error is not None:
            return
        try:
            for row in rows:
                writer.execute(_INSERT, row)
        except apsw.ConstraintError:
            pending.error = self._lost(pending.batch)
        else:
            pending.last = writer.last_insert_rowid()

    def _rows(self, pending: _Pending) -> list[tuple[Any, ...]]:
        """The events of a batch as rows; empty if the batch is already known to be stale."""
        batch = pending.batch
        lease, seq = batch.lease, batch.after
        assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
        if lease.released:
            pending.error = self._lost(batch)
            return []
        try:
            run = self._row(batch)
        except UnknownRun as error:
            pending.error = error
            return []
        rows = []
        for event, data in zip(batch.events, batch.encoded, strict=True):
            seq += 1
            stored = checksums.sealed(data, batch.run, seq)
            rows.append((run, seq, *index_keys(event), stored, lease.row, lease.epoch))
        return rows

    def _row(self, batch: Batch) -> int:
        lease = batch.lease
        assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
        return lease.row if batch.run == lease.run else self._db.row_under(lease.row, batch.run)

    def _lost(self, batch: Batch) -> LeaseLost:
        lease = batch.lease
        assert isinstance(lease, SqliteLease), "a lease works only with the store that gave it"
        return LeaseLost(batch.run, held=lease.epoch, current=self._db.epoch_of(lease.row))

    def _write_rest(self, batch: Batch) -> None:
        if batch.takes:
            ids = ",".join(str(int(taken)) for taken in batch.takes)
            self._db.writer.execute(f"UPDATE requests SET taken = 1 WHERE id IN ({ids})")
        if batch.head is not None:
            write_head(self._db.writer, self._row(batch), batch.head)

    def close(self) -> None:
        """Stop the thread."""
        self._closing = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _is_single(batch: Batch) -> bool:
    return len(batch.encoded) == 1 and not batch.takes and batch.head is None


def write_head(connection: apsw.Connection, row: int, head: state.RunState) -> None:
    """Store a run's head, so that readers need not fold from the beginning."""
    updated = "" if head.updated_at is None else head.updated_at.isoformat()
    stored = checksums.sealed(state.snapshot(head), head.run, head.seq)
    connection.execute(_HEAD, (row, head.seq, head.status, updated, stored))


def index_keys(event: ev.AnyEvent) -> tuple[str | None, str | None]:
    """Kind and key for the index. Beat ends are indexed by kind only if they extend the plan."""
    if type(event) is ev.BeatDone and not event.extended:
        return _UNFILED
    key = event.key if isinstance(event, ev.EffectIntended) and event.own_key else None
    return ev.tag_of(event), key
