"""The fenced append: one statement and one round trip for all batches that wait. A lost answer is looked for.

When it is unknown whether a batch is in the journal: shut the door behind it, look, go on (`ServerCommits._find_out`)."""

import contextlib
import threading
from collections import deque
from typing import Any

import psycopg

from outlast import faults
from outlast.core import events as ev, state
from outlast.errors import AppendUnknown, LeaseLost, OutlastError, StoreUnreachable, UnknownRun
from outlast.store import checksums
from outlast.store.locks import boottime_s
from outlast.store.postgres.database import AGAIN, Server, Unanswered
from outlast.store.postgres.lease import PostgresLease
from outlast.store.postgres.leases import ServerLeases
from outlast.store.protocol import Batch, Wake

GROUP_MAX = 512
NUMBERS = "(SELECT base FROM meta) + (pg_current_xact_id()::text::bigint << 20)"

# FOR SHARE is the fence: a claim's UPDATE waits for this append, or this append sees the new epoch. A session is named
# because an epoch's number can be given twice, when a server is lost that had given it and not shipped it; a turn, because
# a statement whose answer was lost may arrive after its writer has looked. A batch goes in whole or not at all.
_HELD = """
WITH batches AS (
    SELECT * FROM unnest(%(rows)s::bigint[], %(leases)s::bigint[], %(epochs)s::bigint[], %(turns)s::bigint[], %(afters)s::bigint[])
        WITH ORDINALITY AS b(run, lease, epoch, turn, after, no)
), held AS MATERIALIZED (
    SELECT b.no, b.run, b.after FROM leases l JOIN batches b ON l.run = b.lease AND l.epoch = b.epoch AND l.turn = b.turn
    WHERE l.session = %(me)s FOR SHARE OF l
), fits AS MATERIALIZED (
    SELECT h.no, h.run, h.after FROM held h WHERE EXISTS (SELECT 1 FROM events e WHERE e.run = h.run AND e.seq = h.after)
), news AS (
    INSERT INTO events(n, run, seq, kind, key, data)
    SELECT """ + NUMBERS + """ + e.o, f.run, f.after + e.i, e.kind, e.key, e.data
    FROM unnest(%(nos)s::bigint[], %(places)s::bigint[], %(kinds)s::text[], %(keys)s::bytea[], %(datas)s::bytea[])
        WITH ORDINALITY AS e(no, i, kind, key, data, o) JOIN fits f ON f.no = e.no
)"""  # fmt: skip
_REST = """, taken AS (
    UPDATE requests SET taken = true FROM unnest(%(taken_nos)s::bigint[], %(taken)s::bigint[]) AS t(no, id) JOIN fits f ON f.no = t.no
    WHERE requests.id = t.id
), newest AS (
    INSERT INTO heads(id, seq, status, updated_at, state)
    SELECT f.run, h.seq, h.status, h.updated_at, h.state
    FROM unnest(%(head_nos)s::bigint[], %(seqs)s::bigint[], %(statuses)s::text[], %(updated)s::text[], %(states)s::bytea[])
        AS h(no, seq, status, updated_at, state) JOIN fits f ON f.no = h.no
    ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, status = excluded.status, updated_at = excluded.updated_at, state = excluded.state
)"""
_ANSWER = " SELECT no FROM fits"
_APPEND = _HELD + _ANSWER
_APPEND_WITH_REST = _HELD + _REST + _ANSWER
_DOOR = (
    "UPDATE leases SET turn = %s WHERE run = %s AND epoch = %s AND session = %s AND turn < %s RETURNING turn"
)
_THERE = "SELECT data FROM events WHERE run = %s AND seq > %s AND seq <= %s ORDER BY seq"


class _Pending:
    """A batch on its way into a commit."""

    __slots__ = ("batch", "error", "finished", "row", "sealed", "wake")

    def __init__(self, batch: Batch, wake: Wake | None) -> None:
        encoded = batch.encoded or tuple([ev.encode(event) for event in batch.events])
        self.batch = batch
        self.wake = wake
        self.row = 0
        self.finished = False
        self.error: Exception | None = None
        self.sealed = [
            checksums.sealed(data, batch.run, seq) for seq, data in enumerate(encoded, batch.after + 1)
        ]

    @property
    def lease(self) -> PostgresLease:
        lease = self.batch.lease
        assert isinstance(lease, PostgresLease), "a lease works only with the store that gave it"
        return lease


class ServerCommits:
    """The queue of batches and the thread that commits them for event loops."""

    def __init__(self, database: Server, leases: ServerLeases) -> None:
        self._db = database
        self._leases = leases
        self._queue: deque[_Pending] = deque()
        self._write_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work = threading.Event()
        self._closing = False
        self._doors = 0
        self._group_last = 1  # how many batches were in the last statement

    def append(self, batch: Batch, wake: Wake | None) -> None:
        """See `Store.append`. Without `wake` the calling thread commits, for itself and for all that wait."""
        self._db.check_usable()
        pending = _Pending(batch, wake)
        if wake is not None:
            self._queue.append(pending)
            self._start_thread()
            self._work.set()
            return
        try:
            self._queue.append(
                pending
            )  # inside: after Ctrl-C between the two, the next append would commit this batch
            while not pending.finished:
                with self._write_lock:
                    if not pending.finished:
                        self._commit_queue()
        except BaseException:
            with self._write_lock, contextlib.suppress(ValueError):
                self._queue.remove(pending)
            raise
        if pending.error is not None:
            raise pending.error

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work_off, name="outlast-commit", daemon=True)
            self._thread.start()

    def _work_off(self) -> None:
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while self._queue:
                self._gather()
                with self._write_lock:
                    self._commit_queue()

    def _gather(self) -> None:
        """Wait as long as more batches come: runs whose answers were just given are about to write again.

        Without it they go in two halves, and each half waits for the other's flush. One run alone is not waited with.
        """
        waiting, until_s = len(self._queue), boottime_s() + self._db.timing.gather_s
        if max(waiting, self._group_last) == 1:
            return
        pause = threading.Event()
        while not self._closing and boottime_s() < until_s and waiting < GROUP_MAX:
            pause.wait(self._db.timing.gather_look_s)
            if len(self._queue) == waiting:
                return
            waiting = len(self._queue)

    def _commit_queue(self) -> None:
        """Commit the waiting batches, one of each run, in one statement. Call it with the write lock held."""
        group: list[_Pending] = []
        try:
            self._fill(group)
            if group:
                self._group_last = len(group)
                self._db.check_usable()
                self._commit([pending for pending in group if self._is_writable(pending)])
        except BaseException as error:
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

    def _fill(self, group: list[_Pending]) -> None:
        """Take the group from the queue. What follows on another batch of the group waits for the next statement."""
        later: list[_Pending] = []
        runs: set[str] = set()
        while self._queue and len(group) < GROUP_MAX:
            pending = self._queue[0]
            if not pending.finished:
                (later if pending.batch.run in runs else group).append(pending)
                runs.add(pending.batch.run)
            self._queue.popleft()
        self._queue.extendleft(reversed(later))

    def _is_writable(self, pending: _Pending) -> bool:
        lease, batch = pending.lease, pending.batch
        try:
            pending.row, root = self._db.row(batch.run)
            if batch.head is not None:
                state.snapshot(batch.head)  # a head beyond its limit fails its own batch
            if root != lease.row and pending.row != lease.row:
                raise UnknownRun(batch.run)
            if lease.released or lease.lost:
                raise self._lost(pending)
        except (OutlastError, AssertionError) as error:
            pending.error = error
            return False
        return True

    def _commit(self, group: list[_Pending]) -> None:
        if not group:
            return
        faults.point("store.before_commit")
        try:
            sent_s, gone_in = self._send(group)
        except psycopg.errors.UniqueViolation:
            if len(group) == 1:
                group[0].error = self._lost(group[0])
                return
            for pending in group:  # one of them is stale and must fail alone
                self._commit([pending])
            return
        except (Unanswered, StoreUnreachable, *AGAIN):
            for pending in group:
                self._find_out(pending)
            return
        except psycopg.Error as error:
            raise self._db.translated(error) from error
        faults.point("store.after_commit")
        for no, pending in enumerate(group, 1):
            if no in gone_in:
                self._acknowledge(pending, sent_s)
            else:
                pending.error = self._lost(pending)

    def _send(self, group: list[_Pending]) -> tuple[float, set[int]]:
        """One statement for the group: when it was sent, and which of its batches are in the journal."""
        query, values = _statement(group, self._leases.session)
        with self._db.connection() as connection, self._db.limit(connection):
            sent_s = boottime_s()
            rows = connection.execute(query, values).fetchall()
        return sent_s, {int(no) for (no,) in rows}

    def _acknowledge(self, pending: _Pending, sent_s: float) -> None:
        lease, batch = pending.lease, pending.batch
        lease.vouch(sent_s)
        if batch.run == lease.run:
            lease.lock.mark(batch.after + len(pending.sealed))

    def _find_out(self, pending: _Pending) -> None:
        """The answer was lost. Shut the door, look, go on: all before the lease is over, else it stays unknown.

        A door is a turn that only this writer counts, tried until one is acknowledged: a statement still on its way carries an
        older turn and is refused when it arrives. So what is not in the journal then will never be, and is sent again.
        """
        lease = pending.lease
        pause = threading.Event()
        while boottime_s() < lease.deadline_s and not self._closing:
            try:
                self._shut_door(lease)
                if self._is_there(pending):
                    self._acknowledge(pending, 0.0)
                    return
                sent_s, gone_in = self._send([pending])
                if not gone_in:
                    raise self._lost(pending)
                self._acknowledge(pending, sent_s)
                return
            except (Unanswered, StoreUnreachable):
                pause.wait(self._db.timing.reconnect_poll_s)
            except (psycopg.errors.LockNotAvailable, *AGAIN):
                pause.wait(self._db.timing.reconnect_poll_s)  # certainly not carried out
            except psycopg.errors.UniqueViolation:
                pending.error = self._lost(pending)
                return
            except psycopg.Error as error:
                pending.error = self._db.translated(error)
                return
            except LeaseLost as error:
                pending.error = error
                return
        lease.lost = True  # it may be there: nothing more is written or done under this lease
        pending.error = AppendUnknown(
            "the store did not answer until the lease was over; the last event may or may not be there",
        )
        pending.error.hint = (
            f"when the store answers, see `outlast show {pending.batch.run}` and start it again"
        )

    def _shut_door(self, lease: PostgresLease) -> None:
        self._doors += 1
        turn = max(self._doors, lease.turn + 1)
        self._doors = turn
        if not self._db.ask(_DOOR, (turn, lease.row, lease.epoch, self._leases.session, turn)):
            lease.lost = True
            raise self._leases.lease_lost(lease)
        lease.turn = turn

    def _is_there(self, pending: _Pending) -> bool:
        """Whether exactly this batch is in the journal. Raises LeaseLost for somebody else's events."""
        after = pending.batch.after
        rows = self._db.ask(_THERE, (pending.row, after, after + len(pending.sealed)))
        found = [bytes(data) for (data,) in rows]
        if found and found != pending.sealed:
            raise self._lost(pending)
        return bool(found)

    def _lost(self, pending: _Pending) -> LeaseLost:
        error = self._leases.lease_lost(pending.lease)
        if pending.batch.run == pending.lease.run:
            return error
        return LeaseLost(pending.batch.run, held=pending.lease.epoch, current=pending.lease.epoch)

    def close(self) -> None:
        """Stop the thread. What waits is refused."""
        self._closing = True
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _statement(group: list[_Pending], session: object) -> tuple[str, dict[str, Any]]:
    """The statement for a group, with its values as arrays."""
    leases = [pending.lease for pending in group]
    values: dict[str, Any] = {
        "me": session,
        "rows": [pending.row for pending in group],
        "leases": [lease.row for lease in leases],
        "epochs": [lease.epoch for lease in leases],
        "turns": [lease.turn for lease in leases],
        "afters": [pending.batch.after for pending in group],
    }
    events = [
        (no, place, *index_keys(event), data)
        for no, pending in enumerate(group, 1)
        for place, (event, data) in enumerate(zip(pending.batch.events, pending.sealed, strict=True), 1)
    ]
    for name, column in zip(
        ("nos", "places", "kinds", "keys", "datas"), zip(*events, strict=True), strict=True
    ):
        values[name] = list(column)
    taken = [(no, id_) for no, pending in enumerate(group, 1) for id_ in pending.batch.takes]
    heads = [
        (no, *head_columns(pending.batch.head))
        for no, pending in enumerate(group, 1)
        if pending.batch.head is not None
    ]
    if not taken and not heads:
        return _APPEND, values
    values["taken_nos"], values["taken"] = [no for no, _ in taken], [id_ for _, id_ in taken]
    names = ("head_nos", "seqs", "statuses", "updated", "states")
    values |= {name: [head[at] for head in heads] for at, name in enumerate(names)}
    return _APPEND_WITH_REST, values


def head_columns(head: state.RunState) -> tuple[int, str, str, bytes]:
    """A head as its row, so that readers need not fold from the beginning."""
    updated = "" if head.updated_at is None else head.updated_at.isoformat()
    return head.seq, head.status, updated, checksums.sealed(state.snapshot(head), head.run, head.seq)


def index_keys(event: ev.AnyEvent) -> tuple[str | None, bytes | None]:
    """Kind and key for the index. Beat ends are indexed by kind only if they extend the plan."""
    if type(event) is ev.BeatDone and not event.extended:
        return None, None
    key = (
        event.key.encode(errors="surrogatepass")
        if isinstance(event, ev.EffectIntended) and event.own_key
        else None
    )
    return ev.tag_of(event), key
