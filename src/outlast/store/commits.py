"""Group commit: whoever appends at the same time, from threads or event loops, shares one transaction and one flush.

An append is one fenced statement. A stale one fails alone; an I/O error fails everyone who shared the commit.
"""

import contextlib
import threading
from collections import deque
from pathlib import Path

import apsw

from outlast import faults
from outlast.core import events as ev
from outlast.core import state
from outlast.errors import AppendUnknown, LeaseLost, UnknownRun
from outlast.store.database import Database
from outlast.store.leases import SqliteLease
from outlast.store.liveness import Mark
from outlast.store.protocol import Batch, Wake

GROUP_MAX = 512

# The fence: with a stale epoch or an unexpected sequence number one of the two subqueries is NULL, which the columns
# refuse. Written as VALUES because INSERT … SELECT from the table it inserts into goes through a temporary table.
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

    __slots__ = ("batch", "error", "finished", "rows", "wake")

    def __init__(self, batch: Batch, wake: Wake | None) -> None:
        self.batch = batch
        # Encoded here, by the caller, so that what cannot be written fails nobody else in the commit.
        encoded = batch.encoded or tuple(ev.encode(event) for event in batch.events)
        self.rows = [columns(event, data) for event, data in zip(batch.events, encoded, strict=True)]
        self.wake = wake
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
        """See `Store.append`. Without `wake` the calling thread commits, for itself and whoever waits."""
        self._db.check_usable()
        pending = _Pending(batch, wake)
        self._queue.append(pending)
        if wake is not None:
            self._start_thread()
            if not self._work.is_set():
                self._work.set()
            return
        try:
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
        """The caller was interrupted: it must not find its batch committed later by somebody else."""
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
        """Commit everything that waits, up to a limit, in one transaction. Called with the write lock held."""
        group = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_MAX))]
        if not group:
            return
        try:
            self._db.check_usable()
            self._commit(group)
        except BaseException as error:
            self._db.rollback()
            known = error if isinstance(error, Exception) else AppendUnknown("interrupted while committing")
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
                self._write(group)
            except apsw.FullError:
                # A full disk keeps the frame from being written, so nothing of it can surface later. Give the
                # ballast back and write once more: an outcome and the cause must still fit.
                self._db.rollback()
                self.make_room()
                self._write(group)
        except apsw.Error as error:
            raise self._db.fail(error) from error

    def make_room(self) -> None:
        """The disk is full: give the ballast back. From now on what is under way may end, nothing new may begin."""
        self._ballast.unlink(missing_ok=True)
        self.low = True

    def _write(self, group: list[_Pending]) -> None:
        marks: list[tuple[SqliteLease, int]] = []
        batch = group[0].batch
        if len(group) == 1 and len(batch.events) == 1 and not batch.takes and batch.head is None:
            faults.point("store.before_commit")
            self._insert(group[0], marks)
        else:
            self._db.writer.execute("BEGIN IMMEDIATE")
            for pending in group:
                self._insert(pending, marks)
            faults.point("store.before_commit")
            self._db.writer.execute("COMMIT")
        faults.point("store.after_commit")
        for lease, n in marks:
            lease.lock.mark(n)
        if marks:
            self._mark.set(marks[-1][1])

    def _insert(self, pending: _Pending, marks: list[tuple[SqliteLease, int]]) -> None:
        """Insert one batch behind its fence; a stale one fails alone."""
        batch = pending.batch
        lease = batch.lease
        assert isinstance(lease, SqliteLease), "a lease is used with the store that gave it"
        if lease.released:
            pending.error = LeaseLost(batch.run, held=lease.epoch, current=self._db.epoch_of(lease.row))
            return
        try:
            row = self._db.row(batch.run)
        except UnknownRun as error:
            pending.error = error
            return
        seq = batch.after
        execute = self._db.writer.execute
        for columns_of_event in pending.rows:
            seq += 1
            try:
                execute(_INSERT, (row, seq, *columns_of_event, lease.row, lease.epoch))
            except apsw.ConstraintError:
                pending.error = LeaseLost(batch.run, held=lease.epoch, current=self._db.epoch_of(lease.row))
                return
        marks.append((lease, self._db.writer.last_insert_rowid()))
        if batch.takes:
            ids = ",".join(str(int(taken)) for taken in batch.takes)
            execute(f"UPDATE requests SET taken = 1 WHERE id IN ({ids})")
        if batch.head is not None:
            write_head(self._db.writer, row, batch.head)

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def write_head(connection: apsw.Connection, row: int, head: state.RunState) -> None:
    """Store a run's head, so that it need not be folded from the beginning."""
    updated = "" if head.updated_at is None else head.updated_at.isoformat()
    connection.execute(_HEAD, (row, head.seq, head.status, updated, state.snapshot(head)))


def columns(event: ev.AnyEvent, data: bytes) -> tuple[str | None, str | None, bytes]:
    """Kind, key and data of an event. Of the ends of beats only those that extend the plan are found by kind."""
    if type(event) is ev.BeatDone and not event.extended:
        return None, None, data
    key = event.key if isinstance(event, ev.EffectIntended) and event.own_key else None
    return ev.tag_of(event), key, data
