"""The embedded store: puts the parts together to the `Store` of the protocol.

The parts: `database` (the file), `commits`, `leases`, `locks` (who lives), `durable` (folders, blobs), `shelf`."""

import contextlib
import json
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from outlast import faults
from outlast.core import events as ev, recovery, state
from outlast.errors import OutlastError, RunExists, StoreBusy, StoreRewound
from outlast.store import checksums, durable, locks, rows
from outlast.store.local import Local
from outlast.store.protocol import (
    LEASE_TTL_S,
    PAGE_MAX,
    Batch,
    Blobs,
    Changes,
    EventGlimpse,
    History,
    Inbox,
    Lease,
    RecordedEvent,
    Request,
    RunFilter,
    Shelf,
    Summary,
    Wake,
)
from outlast.store.sqlite import health, queries, schema
from outlast.store.sqlite.commits import Commits, index_keys, write_head
from outlast.store.sqlite.database import Database, row_in
from outlast.store.sqlite.leases import Leases, readable_holder
from outlast.store.sqlite.shelf import FileShelf, locked
from outlast.store.timing import Timing

# As bytes: one damaged text would else keep all runs from being listed.
_SUMMARY = """
SELECT r.id, CAST(r.run AS BLOB), CAST(r.task AS BLOB), CAST(r.project AS BLOB), r.generation, CAST(r.parent AS BLOB),
       r.parent_beat, CAST((SELECT run FROM runs WHERE id = r.root) AS BLOB), r.epoch, r.holder,
       CAST(h.state AS BLOB), h.seq, (SELECT max(seq) FROM events WHERE run = r.id)
FROM runs r LEFT JOIN heads h ON h.id = r.id
"""
PENDING_MAX = 10_000
_ALL_PENDING = """
SELECT q.id, r.run, q.at, q.by, q.what, q.args FROM requests q INDEXED BY requests_waiting JOIN runs r ON r.id = q.run
WHERE q.taken = 0 ORDER BY q.id LIMIT ?
"""
# A start that names this run is younger than it: found by the index, and the bytes of younger starts alone.
_STARTED_WITHIN = """
EXISTS (
    SELECT 1 FROM (SELECT ? AS run) w JOIN events k INDEXED BY events_by_kind ON k.run = r.id AND k.kind = 'attempt_started'
    WHERE k.n > (SELECT n FROM events WHERE run = (SELECT id FROM runs WHERE run = w.run) AND seq = 1)
      AND instr(k.data, CAST(w.run AS BLOB))
)
"""
BLOBS = "blobs"
_STORED_HEAD = "SELECT id, CAST(state AS BLOB) FROM heads WHERE id = (SELECT id FROM runs WHERE run = ?)"
Journal = tuple[ev.RunOpened, Sequence[ev.AnyEvent]]

_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()


class SqliteStore:
    """All runs of one state folder. Opened for `reading`, it creates and changes nothing: see `Database`."""

    def __init__(
        self,
        local: Local,
        database: Path,
        *,
        vfs: str | None = None,
        reading: bool = False,
        timing: Timing | None = None,
    ) -> None:
        root = local.folder
        durable.refuse_network(root)
        if not reading:
            _make_folders(local)
        self.url = f"sqlite://{database}"
        self.local = local
        self.reading = reading
        self._timing = timing or Timing.current()
        self._db = Database(database, self._timing, vfs=vfs, reading=reading, turn=local.turn)
        self._mark = self._marked(local.mark)
        self._commits = Commits(self._db, local.ballast, self._mark)
        self._leases = Leases(self._db, local, self._timing)
        self._db.thaw = self._leases.thaw
        self.blobs: Blobs = durable.FolderBlobs(root / BLOBS, self._commits)
        self.inbox: Inbox = _SqliteInbox(self._db, local)
        self.shelf: Shelf = FileShelf(root)
        if not reading and not self._has_ballast(local.ballast):
            self._commits.low = True
        _stores.add(self)

    def _marked(self, path: Path) -> locks.Mark:
        try:
            return locks.Mark(path, reading=self.reading)
        except OSError as error:
            self._db.close()
            raise durable.store_refused(path, error) from error

    def _has_ballast(self, path: Path) -> bool:
        try:
            return durable.make_ballast(path)
        except OSError as error:
            self.close()
            raise durable.store_refused(path, error) from error

    @property
    def usable(self) -> bool:
        """Whether this object can still write."""
        return self._db.usable

    @property
    def host_id(self) -> str:
        """Empty: only one host has this store."""
        return ""

    def check_exists(self) -> None:
        """Raise StoreGone, now and at every later write, if the file was deleted or replaced. Costs one stat."""
        self._db.check_exists()

    @property
    def disk_is_full(self) -> bool:
        """Whether the disk was found full: work in progress may end, nothing new may begin."""
        return self._commits.low

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, wake: Wake | None = None) -> None:
        """Append if epoch and sequence number match, else raise LeaseLost. Durable when it returns."""
        self._commits.append(batch, wake)

    def create(
        self,
        opened: ev.RunOpened,
        events: Sequence[ev.AnyEvent] = (),
        *,
        after: str = "",
        children: Sequence[Journal] = (),
    ) -> str:
        """Create the run unless its identity exists; return the id of the run that has this identity now. Durable."""
        try:
            return self._create(opened, events, after, children)
        except StoreBusy:
            if not self._leases.thaw():
                raise
            return self._create(opened, events, after, children)

    def _create(
        self, opened: ev.RunOpened, events: Sequence[ev.AnyEvent], after: str, children: Sequence[Journal]
    ) -> str:
        def make(connection: apsw.Connection) -> str:
            _refuse_known(connection, [opened, *(child for child, _ in children)])
            found = connection.execute(
                "SELECT run, generation FROM runs WHERE project = ? AND task = ? AND parent = ? AND parent_beat = ?"
                " ORDER BY generation DESC LIMIT 1",
                _identity(opened),
            ).get
            if found is not None and found[0] != after:
                return str(found[0])
            _refuse_rewound(connection, self._mark.path)
            _insert_run(connection, opened, events, (found[1] if found else 0) + 1)
            for child, journal in children:
                _insert_run(connection, child, journal, 1)
            faults.point("store.before_commit")
            return opened.run

        made = self._db.write(make)
        if made == opened.run:
            faults.point("store.created")
        return made

    def forget(self, run: str) -> None:
        """Remove a run and its children. A marker event keeps their event numbers from being reused."""

        def remove(connection: apsw.Connection) -> list[Any]:
            row = row_in(connection, run)
            sql = "SELECT id, run FROM runs WHERE root = ? OR id = ?"
            rows: list[Any] = connection.execute(sql, (row, row)).fetchall()
            ids = ",".join(str(number) for number, _ in rows)
            last = connection.execute("SELECT max(n) FROM events").get
            for table, column in (("events", "run"), ("requests", "run"), ("heads", "id"), ("runs", "id")):
                connection.execute(f"DELETE FROM {table} WHERE {column} IN ({ids})")
            connection.execute("DELETE FROM request_sums WHERE id NOT IN (SELECT id FROM requests)")
            connection.execute("INSERT INTO events(n, run, seq, data) VALUES (?1, 0, ?1, '')", (last + 1,))
            return rows

        self._db.forget_rows({number for number, _ in self._db.write(remove)})
        faults.point("gc.forgotten")
        locks.remove(self.local.run_lock(run))

    def sweep_locks(self) -> int:
        """Remove the lock files of forgotten runs, except those that prove a rewound store; return how many."""
        return health.sweep_locks(self.local, self._db.path)

    # -- leases --------------------------------------------------------------------------------------------------

    def claim(self, run: str, *, ttl_s: float = LEASE_TTL_S, placement: int = 0) -> Lease:
        """Become the only writer, under a new epoch. Raises RunHeld, or StoreRewound if a mark shows lost events."""
        return self._leases.claim(run, ttl_s, placement)

    def renew(self, leases: Iterable[Lease], *, ttl_s: float = LEASE_TTL_S) -> dict[str, str]:
        """Extend leases; return the runs whose lease is lost, with the reason."""
        return self._leases.renew(leases, ttl_s=ttl_s)

    def release(self, lease: Lease) -> None:
        """Release the run."""
        self._leases.release(lease)

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run, judged by its lock."""
        return locks.is_locked(self.local.run_lock(run))

    def accept_rewind(self, run: str) -> None:
        """Forget the mark of a run that lost events, after a person has looked."""
        self._leases.accept_rewind(run)

    @contextlib.contextmanager
    def exclusive(self, run: str, what: str, *, wait_s: float) -> Iterator[None]:
        """Hold this kind of act on a run: one process at a time. Raises StoreBusy after `wait_s`."""
        path = self.local.kind_lock(run, what)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with locked(path, time.monotonic() + wait_s):
            yield

    # -- reading -------------------------------------------------------------------------------------------------

    def list(
        self, where: RunFilter, *, after: int = 0, limit: int = PAGE_MAX, unreadable: bool = False
    ) -> list[Summary]:
        """Runs, newest first, from below the cursor `after`. With `unreadable`, runs that cannot be read are included."""
        return rows.whole_page(lambda at: self._page(where, at, limit, unreadable), where, after, limit)

    def _page(self, where: RunFilter, after: int, limit: int, unreadable: bool) -> Sequence[Summary]:
        clauses, values = _where(where, after)
        sql = f"{_SUMMARY} WHERE {' AND '.join(clauses)} ORDER BY r.id DESC LIMIT ?"
        found: Sequence[Any] = self._db.read(
            lambda connection: [_texts(row) for row in connection.execute(sql, (*values, limit))]
        )
        heads = {row: rows.head(run, stored) for row, run, *_, stored, _, _ in found}
        behind = {row: heads[row] for row, *_, last in found if (last or 0) > heads[row].seq}
        caught, problems = queries.catch_up(self._db, behind)
        if problems and not unreadable:
            raise next(iter(problems.values()))
        heads |= caught
        if any(map(queries.lacks_start, heads.values())):
            heads = self._db.read(lambda connection: queries.with_starts(connection, heads))
        return [_summary(row, heads[row[0]], problems.get(row[0])) for row in found]

    def read(
        self,
        run: str,
        *,
        after: int | None = None,
        limit: int = PAGE_MAX,
        tags: Sequence[str] = (),
        key: str = "",
        newest: bool = False,
        before: int = 0,
        ends: bool = False,
    ) -> History:
        """Events after a sequence number; with `after=None` the newest stored head and all events after it."""
        clauses: list[str] = ["run = (SELECT id FROM runs WHERE run = ?)", "seq > ?"]
        values: list[Any] = []
        if tags:
            wanted = f"kind IN ({','.join('?' * len(tags))})"
            clauses.append(f"(kind IS NULL OR {wanted})" if ends else wanted)
            values += tags
        if key:
            clauses.append("key = ?")
            values.append(key)
        if before:
            clauses.append("seq < ?")
            values.append(before)
        order = "seq DESC" if newest else "seq"
        sql = f"SELECT n, seq, data FROM events WHERE {' AND '.join(clauses)} ORDER BY {order} LIMIT ?"

        def ask(connection: apsw.Connection) -> tuple[state.RunState, list[Any]]:
            head, since = state.RunState(), after
            if since is None:
                head = _stored_head(connection, run)
                since = head.seq
            if tags and not key and not ends:
                rows = queries.of_kinds(run, tags, since, before, limit, order, connection)
            else:
                rows = connection.execute(sql, (run, since, *values, limit)).fetchall()
            return head, queries.rows_of_run(run, rows, connection)

        head, rows = self._db.read(ask)
        if newest:
            rows.reverse()
        return History(head, [RecordedEvent(n, run, seq, ev.decode(data)) for n, seq, data in rows])

    def subscribe(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """Events of all runs after a store-wide number, as soon as there are some; empty after `wait_s`."""
        rows = self._awaited(after, wait_s, limit)
        return [RecordedEvent(n, run, seq, ev.decode(data)) for n, run, seq, data in rows]

    def glimpses(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[EventGlimpse]:
        """Events of all runs for display, each decoded if it can be."""
        return [rows.glimpse(*row) for row in self._awaited(after, wait_s, limit)]

    def _awaited(self, after: int, wait_s: float, limit: int) -> Sequence[tuple[int, str, int, bytes]]:
        deadline_s = locks.boottime_s() + wait_s
        quiet = threading.Event()
        seen: object = None
        while True:
            version, rows = self._db.read(partial(_news, seen, after, limit))
            if rows or locks.boottime_s() >= deadline_s:
                return rows
            seen = version
            quiet.wait(self._timing.poll_s)

    # -- queries for display -------------------------------------------------------------------------------------

    def last_number(self) -> int:
        """The number of the newest event in the store; 0 if it is empty."""
        sql = "SELECT coalesce(max(n), 0) FROM events"
        return int(self._db.read(lambda connection: connection.execute(sql).get))

    def changes(self, after: int, trace: str = "") -> Changes:
        """The runs that have events after a store-wide number, at once and without reading the events.

        `trace` came with the changes up to `after`. If that event has another trace now, the store was put back.
        """
        return self._db.read(partial(queries.changes, after, trace))

    def beat_end_sample(self, run: str, count: int) -> Sequence[RecordedEvent]:
        """At most `count` beat ends, spread evenly over the journal, with the first and the last; all if they are few."""
        return self._db.read(partial(queries.sample_beat_ends, run, count))

    def beat_ends(self, run: str, *, before: int = 0, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """The beat ends of a run, newest first, from below the sequence number `before`."""
        return self._db.read(partial(queries.beat_ends, run, before, limit))

    def event_counts(self, run: str) -> dict[str, int]:
        """How many events of each kind a run has; of the beat ends only those that extended the plan."""
        return self._db.read(partial(queries.event_counts, run))

    def events_of_kinds(
        self, tags: Sequence[str], *, before: int = 0, limit: int = PAGE_MAX
    ) -> Sequence[RecordedEvent]:
        """Events of these kinds of all runs, newest first, from below the number `before`."""
        return self._db.read(partial(queries.events_of_kinds, tags, before, limit))

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close files and threads. Leases that were not released end with the process."""
        self._commits.close()
        self._leases.close()
        self._db.close()
        self._mark.close()
        _stores.discard(self)

    def after_fork(self) -> None:
        """In a forked child: the parent keeps the leases, so the child must drop their locks."""
        self._db.mark_forked()
        self._leases.abandon()


class _SqliteInbox:
    """Requests to runs, in a table of the same file."""

    def __init__(self, database: Database, local: Local) -> None:
        self._db = database
        self._local = local

    def put(self, run: str, *, by: str, what: str, args: bytes = b"null") -> int:
        """Add a request and return its id. Durable when it returns."""
        values = (datetime.now(UTC).isoformat(), by, what, args)
        number = self._db.write(
            lambda connection: _insert_request(connection, row_in(connection, run), *values)
        )
        locks.ring(self._local.run_lock(run))
        return int(number)

    def pending(self, run: str) -> list[Request]:
        """Requests not taken in yet, oldest first."""
        sql = "SELECT id, at, by, what, args FROM requests WHERE run = ? AND taken = 0 ORDER BY id"
        rows: list[Any] = self._db.read(
            lambda connection: connection.execute(sql, (row_in(connection, run),)).fetchall()
        )
        return [
            Request(id_, run, datetime.fromisoformat(at), by, what, args) for id_, at, by, what, args in rows
        ]

    def all_pending(self) -> list[Request]:
        """The pending requests of all runs, for display."""
        rows: list[Any] = self._db.read(
            lambda connection: connection.execute(_ALL_PENDING, (PENDING_MAX,)).fetchall()
        )
        return [request for row in rows if (request := _readable(*row)) is not None]


def _readable(number: int, run: str, at: object, by: object, what: object, args: object) -> Request | None:
    """A request; None where a damaged row holds no such values."""
    if not (
        isinstance(at, str) and isinstance(by, str) and isinstance(what, str) and isinstance(args, bytes)
    ):
        return None
    try:
        return Request(number, run, datetime.fromisoformat(at), by, what, args)
    except ValueError:
        return None


def _insert_request(connection: apsw.Connection, row: int, at: str, by: str, what: str, args: bytes) -> int:
    sql = "INSERT INTO requests(run, at, by, what, args) VALUES (?, ?, ?, ?, ?) RETURNING id"
    number = int(connection.execute(sql, (row, at, by, what, args)).get)
    checksum = schema.request_sum(row, at, by, what, args)
    connection.execute("INSERT OR REPLACE INTO request_sums(id, sum) VALUES (?, ?)", (number, checksum))
    return number


def _make_folders(local: Local) -> None:
    try:
        for folder in (local.folder, local.runs, local.folder / BLOBS):
            durable.make_folder(folder)
    except OSError as error:
        raise durable.store_refused(local.folder, error) from error


def _stored_head(connection: apsw.Connection, run: str) -> state.RunState:
    found: list[Any] = connection.execute(_STORED_HEAD, (run,)).fetchall()
    heads = {row: rows.head(run, stored) for row, stored in found}
    return next(iter(queries.with_starts(connection, heads).values()), state.RunState())


def _refuse_rewound(connection: apsw.Connection, mark: Path) -> None:
    """Refuse new runs in a store that lost its newest events: it may have lost this very run, which would run twice."""
    last = connection.execute("SELECT coalesce(max(n), 0) FROM events").get
    missing = recovery.missing_event(last, [locks.read_mark(mark)])
    if missing is not None:
        raise StoreRewound(
            f"the store lost events: number {missing} was acknowledged, the last one is {last}; no new run is created",
            hint=f"see `outlast doctor`; if that is as it should be, `rm {mark}`",
        )


def _identity(opened: ev.RunOpened) -> tuple[str, str, str, int]:
    parent = opened.parent
    return opened.project, opened.task, parent.run if parent else "", parent.beat if parent else 0


def _refuse_known(connection: apsw.Connection, journals: Sequence[ev.RunOpened]) -> None:
    for opened in journals:
        if connection.execute("SELECT 1 FROM runs WHERE run = ?", (opened.run,)).get is not None:
            raise RunExists(
                f"run {opened.run} is already in this store", hint=f"see `outlast show {opened.run}`"
            )


def _insert_run(
    connection: apsw.Connection, opened: ev.RunOpened, events: Sequence[ev.AnyEvent], generation: int
) -> None:
    """Insert a run with its journal so far, and its head."""
    root = None if opened.parent is None else row_in(connection, opened.parent.root)
    row = connection.execute(
        "INSERT INTO runs(run, project, task, parent, parent_beat, generation, root)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (opened.run, *_identity(opened), generation, root or 0),
    ).get
    if root is None:
        connection.execute("UPDATE runs SET root = id WHERE id = ?", (row,))
    journal = [opened, *events]
    connection.executemany(
        "INSERT INTO events(run, seq, kind, key, data) VALUES (?, ?, ?, ?, ?)",
        [
            (row, seq, *index_keys(event), checksums.sealed(ev.encode(event), opened.run, seq))
            for seq, event in enumerate(journal, 1)
        ],
    )
    write_head(connection, row, state.fold(state.RunState(), journal))


def _news(
    seen: object, after: int, limit: int, connection: apsw.Connection
) -> tuple[object, list[tuple[int, str, int, bytes]]]:
    """The version of the file, and the new events if the version changed since `seen`."""
    version = connection.pragma("data_version")
    return version, [] if version == seen else _after(connection, after, limit)


def _after(connection: apsw.Connection, after: int, limit: int) -> list[tuple[int, str, int, bytes]]:
    sql = (
        "SELECT e.n, r.run, e.seq, e.data FROM events e JOIN runs r ON r.id = e.run WHERE e.n > ?"
        " ORDER BY e.n LIMIT ?"
    )
    rows: list[Any] = connection.execute(sql, (after, limit)).fetchall()
    return rows


def _texts(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with its texts as such; what is no UTF-8 in them is replaced."""
    *named, holder, stored, seq, last = row
    return (
        *(each.decode(errors="replace") if isinstance(each, bytes) else each for each in named),
        holder,
        stored,
        seq,
        last,
    )


def _summary(row: tuple[Any, ...], head: state.RunState, problem: OutlastError | None) -> Summary:
    *identity, holder, _, _, _ = row
    names = ("id", "run", "task", "project", "generation", "parent", "parent_beat", "root", "epoch")
    return rows.summary(dict(zip(names, identity, strict=True)), readable_holder(holder), head, problem)


def _where(where: RunFilter, after: int) -> tuple[list[str], list[Any]]:
    wanted: list[tuple[str, Any, bool]] = [
        ("r.id < ?", after, after > 0),
        ("r.run IN (SELECT value FROM json_each(?))", json.dumps(where.runs), bool(where.runs)),
        ("instr(r.run, ?) = 1", where.run_prefix, bool(where.run_prefix)),
        ("r.project = ?", where.project, bool(where.project)),
        ("r.task = ?", where.task, bool(where.task)),
        ("r.parent = ?", where.parent, where.parent is not None),
        ("r.parent_beat = ?", where.parent_beat, where.parent_beat is not None),
        (_STARTED_WITHIN, where.within, bool(where.within)),
    ]
    given = [(clause, value) for clause, value, is_wanted in wanted if is_wanted]
    return [clause for clause, _ in given] or ["true"], [value for _, value in given]


def _fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork()


os.register_at_fork(after_in_child=_fork_in_child)
