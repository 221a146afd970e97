"""The store that hosts share: puts the parts together to the `Store` of the protocol.

The parts: `database` (connections), `commits`, `leases`, `queries`, `inbox` (requests, payloads), `shelf`."""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg

from outlast import faults
from outlast.core import events as ev, state
from outlast.errors import RunExists, StoreUnreachable, UnknownRun
from outlast.store import checksums, durable, locks, rows
from outlast.store.local import Local
from outlast.store.locks import boottime_s
from outlast.store.postgres import queries
from outlast.store.postgres.commits import NUMBERS, ServerCommits, head_columns, index_keys
from outlast.store.postgres.database import Connection, Server
from outlast.store.postgres.host import Host
from outlast.store.postgres.inbox import PostgresInbox, RowBlobs
from outlast.store.postgres.lease import readable_holder
from outlast.store.postgres.leases import ServerLeases
from outlast.store.postgres.shelf import RowShelf, held_name
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
    RunFilter,
    Shelf,
    Summary,
    Wake,
)

Journal = tuple[ev.RunOpened, Sequence[ev.AnyEvent]]
CREATE_TRIES = 20  # each loses against another process that made a run of this identity
_FOUND = """
SELECT run, generation FROM runs WHERE md5(project) = md5(%s) AND md5(task) = md5(%s) AND project = %s AND task = %s
AND parent = %s AND parent_beat = %s ORDER BY generation DESC LIMIT 1
"""
_NEW = """
INSERT INTO runs(run, project, task, parent, parent_beat, generation, root)
VALUES (%s, %s, %s, %s, %s, %s, coalesce(%s, currval(pg_get_serial_sequence('runs', 'id')))) RETURNING id
"""
_JOURNAL = f"""
INSERT INTO events(n, run, seq, kind, key, data)
SELECT {NUMBERS} + %s + e.o, %s, e.o, e.kind, e.key, e.data
FROM unnest(%s::text[], %s::bytea[], %s::bytea[]) WITH ORDINALITY AS e(kind, key, data, o)
"""
_HEAD = "INSERT INTO heads(id, seq, status, updated_at, state) VALUES (%s, %s, %s, %s, %s)"
_stores: "weakref.WeakSet[PostgresStore]" = weakref.WeakSet()


class PostgresStore:
    """All runs of one database. Opened for `reading`, it creates and changes nothing, and a role that may only read is enough."""

    def __init__(self, url: str, local: Local, database: Server) -> None:
        self.url = url
        self.local = local
        self.reading = database.reading
        self._db = database
        self._timing = database.timing
        if not self.reading:
            durable.make_folder(local.runs)
        durable.refuse_network(local.folder)
        self._leases = None if self.reading else ServerLeases(database, local, Host(local))
        self._commits = None if self._leases is None else ServerCommits(database, self._leases)
        self.blobs: Blobs = RowBlobs(database)
        self.inbox: Inbox = PostgresInbox(database, local)
        self.shelf: Shelf = RowShelf(database)
        _stores.add(self)

    @property
    def usable(self) -> bool:
        """Whether this object can still write."""
        return self._db.usable

    @property
    def disk_is_full(self) -> bool:
        """Whether the server was found without room: work in progress may end, nothing new may begin."""
        return self._db.disk_is_full

    @property
    def host_id(self) -> str:
        """This host, as this store knows it."""
        return str(self._writer()[0].host_id)

    def check_exists(self) -> None:
        """Raise StoreGone if the store was deleted, and StoreUnreachable if the server has not answered for so long that a
        lease is over and somebody else may hold the run. Costs no round trip."""
        self._db.check_usable()
        over = None if self._leases is None else self._leases.overdue()
        if over is not None and not over.lost:
            raise StoreUnreachable(
                f"the store did not answer until the lease of run {over.run} was over",
                hint="start it again when the store answers",
            )

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, wake: Wake | None = None) -> None:
        """Append if epoch and sequence number match, else raise LeaseLost. Durable when it returns."""
        self._writer()[1].append(batch, wake)

    def _writer(self) -> tuple[ServerLeases, ServerCommits]:
        assert self._leases is not None, "a store open for reading holds nothing"
        assert self._commits is not None, "a store open for reading writes nothing"
        return self._leases, self._commits

    def create(
        self,
        opened: ev.RunOpened,
        events: Sequence[ev.AnyEvent] = (),
        *,
        after: str = "",
        children: Sequence[Journal] = (),
    ) -> str:
        """Create the run unless its identity exists; return the id of the run that has this identity now. Durable."""
        tries = iter(range(CREATE_TRIES))
        is_first = True

        def make(connection: Connection) -> str:
            nonlocal is_first
            was_first, is_first = is_first, False
            # First the names: an earlier try may arrive between the two looks, and is then found by the second.
            known = _known(connection, [opened, *(child for child, _ in children)])
            found = connection.execute(_FOUND, _lookup(opened)).fetchone()
            if found is not None and found[0] == opened.run and not was_first:
                return opened.run  # an earlier try made it, and its answer was lost
            if known:
                raise RunExists(f"run {known} is already in this store", hint=f"see `outlast show {known}`")
            if found is not None and found[0] != after:
                return str(found[0])
            at = _insert_run(connection, opened, events, (found[1] if found else 0) + 1, 0)
            for child, journal in children:
                at = _insert_run(connection, child, journal, 1, at)
            faults.point("store.before_commit")
            return opened.run

        def raced(connection: Connection) -> str:
            """Of two that make the same run at once, one waits for the other here, and then finds its run."""
            for _ in tries:
                with contextlib.suppress(psycopg.errors.UniqueViolation), connection.transaction():
                    return make(connection)
            raise RunExists(f"run {opened.run} is made by others at the same time", hint="start it again")

        made = self._db.write(raced)
        if made == opened.run:
            faults.point("store.created")
        return made

    def forget(self, run: str) -> None:
        """Remove a run and its children. A marker event tells readers to read everything anew."""
        removed: list[str] = []

        def remove(connection: Connection) -> None:
            found = connection.execute("SELECT id FROM runs WHERE run = %s", (run,)).fetchone()
            if found is None:
                if removed:
                    return  # an earlier try removed it, and its answer was lost
                raise UnknownRun(run)
            gone = connection.execute(
                "SELECT id, run FROM runs WHERE root = %s OR id = %s", (found[0], found[0])
            ).fetchall()
            removed[:] = [name for _, name in gone]
            ids = [number for number, _ in gone]
            connection.execute("SELECT 1 FROM leases WHERE run = ANY(%s) ORDER BY run FOR UPDATE", (ids,))
            for table, column in (
                ("events", "run"),
                ("requests", "run"),
                ("heads", "id"),
                ("leases", "run"),
                ("runs", "id"),
            ):
                connection.execute(f"DELETE FROM {table} WHERE {column} = ANY(%s)", (ids,))
            connection.execute(
                f"INSERT INTO events(n, run, seq, data) SELECT m, 0, m, '' FROM (SELECT {NUMBERS} + 1 AS m) s"
            )

        self._db.write(remove)
        for name in removed:
            self._db.forget_row(name)
        faults.point("gc.forgotten")
        locks.remove(self.local.run_lock(run))

    def sweep_locks(self) -> int:
        """Remove the lock files of forgotten runs, except those that prove a rewound store; return how many."""
        paths = {path.stem: path for path in self.local.runs.glob("*.lock")}
        known = {run for (run,) in self._db.read("SELECT run FROM runs WHERE run = ANY(%s)", (list(paths),))}
        removed = 0
        for run in paths.keys() - known:
            lock = locks.try_lock(paths[run])
            if lock is not None:
                locks.remove(paths[run])
                lock.close()
                removed += 1
        self._writer()[0].sweep()
        return removed

    # -- leases --------------------------------------------------------------------------------------------------

    def claim(self, run: str, *, ttl_s: float = LEASE_TTL_S, placement: int = 0) -> Lease:
        """Become the only writer, under a new epoch. Raises RunHeld, or StoreRewound if a mark shows lost events."""
        return self._writer()[0].claim(run, ttl_s, placement)

    def renew(self, leases: Iterable[Lease], *, ttl_s: float = LEASE_TTL_S) -> dict[str, str]:
        """Extend leases; return the runs whose lease is lost, with the reason."""
        return self._writer()[0].renew(leases)

    def release(self, lease: Lease) -> None:
        """Release the run."""
        self._writer()[0].release(lease)

    def holder_lives(self, run: str) -> bool:
        """Whether a living process holds the run, as far as can be told at once."""
        return (
            ServerLeases(self._db, self.local, Host(self.local)).holder_lives(run)
            if self._leases is None
            else self._leases.holder_lives(run)
        )

    def accept_rewind(self, run: str) -> None:
        """Forget the mark of a run that lost events, after a person has looked."""
        self._writer()[0].accept_rewind(run)

    @contextlib.contextmanager
    def exclusive(self, run: str, what: str, *, wait_s: float) -> Iterator[None]:
        """Hold this kind of act on a run: one process at a time. Raises StoreBusy after `wait_s`."""
        with held_name(self._db, f"act {run} {what}", wait_s):
            yield

    # -- reading -------------------------------------------------------------------------------------------------

    def list(
        self, where: RunFilter, *, after: int = 0, limit: int = PAGE_MAX, unreadable: bool = False
    ) -> list[Summary]:
        """Runs, newest first, from below the cursor `after`. With `unreadable`, runs that cannot be read are included."""
        return rows.whole_page(lambda at: self._page(where, at, limit, unreadable), where, after, limit)

    def _page(self, where: RunFilter, after: int, limit: int, unreadable: bool) -> Sequence[Summary]:
        page = queries.page(self._db, where, after, limit)
        heads = {row[0]: rows.head(row[1], row[10]) for row in page}
        behind = {row[0]: heads[row[0]] for row in page if (row[11] or 0) > heads[row[0]].seq}
        caught, problems = queries.catch_up(self._db, behind)
        if problems and not unreadable:
            raise next(iter(problems.values()))
        heads |= caught
        return [_summary(row, heads[row[0]], problems.get(row[0])) for row in page]

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
        head, since = state.RunState(), after
        if since is None:
            row, head = queries.stored_head(self._db, run)
            since = head.seq
        else:
            row, _ = self._db.row(run)
        found = queries.events_of(
            self._db,
            run,
            row,
            since,
            limit=limit,
            tags=tags,
            key=key,
            newest=newest,
            before=before,
            ends=ends,
        )
        return History(head, found)

    def subscribe(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """Events of all runs after a store-wide number, as soon as there are some; empty after `wait_s`."""
        return [
            RecordedEvent(n, run, seq, ev.decode(data))
            for n, run, seq, data in self._awaited(after, wait_s, limit)
        ]

    def glimpses(self, after: int, *, wait_s: float, limit: int = PAGE_MAX) -> Sequence[EventGlimpse]:
        """Events of all runs for display, each decoded if it can be."""
        return [rows.glimpse(*row) for row in self._awaited(after, wait_s, limit)]

    def _awaited(self, after: int, wait_s: float, limit: int) -> Sequence[tuple[int, str, int, bytes]]:
        deadline_s = boottime_s() + wait_s
        quiet = threading.Event()
        while True:
            found = queries.news(self._db, after, limit)
            if found or boottime_s() >= deadline_s:
                return found
            quiet.wait(min(self._timing.news_look_s, max(0.0, deadline_s - boottime_s())))

    # -- queries for display -------------------------------------------------------------------------------------

    def last_number(self) -> int:
        """The number of the newest event in the store, as far as they are decided; 0 if it is empty."""
        return queries.last_number(self._db)

    def changes(self, after: int, trace: str = "") -> Changes:
        """The runs that have events after a store-wide number, at once and without reading the events."""
        return queries.changes(self._db, after, trace)

    def beat_end_sample(self, run: str, count: int) -> Sequence[RecordedEvent]:
        """At most `count` beat ends, spread evenly over the journal, with the first and the last; all if they are few."""
        return queries.sample_beat_ends(self._db, run, count)

    def beat_ends(self, run: str, *, before: int = 0, limit: int = PAGE_MAX) -> Sequence[RecordedEvent]:
        """The beat ends of a run, newest first, from below the sequence number `before`."""
        return queries.beat_ends(self._db, run, before, limit)

    def event_counts(self, run: str) -> dict[str, int]:
        """How many events of each kind a run has; of the beat ends only those that extended the plan."""
        return queries.event_counts(self._db, run)

    def events_of_kinds(
        self, tags: Sequence[str], *, before: int = 0, limit: int = PAGE_MAX
    ) -> Sequence[RecordedEvent]:
        """Events of these kinds of all runs, newest first, from below the number `before`."""
        return queries.events_of_kinds(self._db, tags, before, limit)

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End threads, the session and the connections. ServerLeases that were not released end with it."""
        if self._commits is not None:
            self._commits.close()
        if self._leases is not None:
            self._leases.close()
        self._db.close()
        _stores.discard(self)

    def after_fork(self) -> None:
        """In a forked child: the parent keeps the leases and the connections."""
        self._db.mark_forked()
        if self._leases is not None:
            self._leases.abandon()


def _lookup(opened: ev.RunOpened) -> tuple[Any, ...]:
    return opened.project, opened.task, opened.project, opened.task, *_place(opened)


def _place(opened: ev.RunOpened) -> tuple[str, int]:
    return (opened.parent.run, opened.parent.beat) if opened.parent else ("", 0)


def _known(connection: Connection, journals: Sequence[ev.RunOpened]) -> str:
    """One of these runs that is in the store already, by name; else empty."""
    names = [opened.run for opened in journals]
    found = connection.execute("SELECT run FROM runs WHERE run = ANY(%s)", (names,)).fetchone()
    return "" if found is None else str(found[0])


def _insert_run(
    connection: Connection, opened: ev.RunOpened, events: Sequence[ev.AnyEvent], generation: int, at: int
) -> int:
    """Insert a run with its journal so far, its lease and its head; return how many events the transaction has now."""
    root = None
    if opened.parent is not None:
        found = connection.execute("SELECT id FROM runs WHERE run = %s", (opened.parent.root,)).fetchone()
        if found is None:
            raise UnknownRun(opened.parent.root)
        root = found[0]
    values = (opened.run, opened.project, opened.task, *_place(opened), generation, root)
    made = connection.execute(_NEW, values).fetchone()
    assert made is not None, "an insert returns its row"
    row = made[0]
    journal = [opened, *events]
    keys = [index_keys(event) for event in journal]
    datas = [checksums.sealed(ev.encode(event), opened.run, seq) for seq, event in enumerate(journal, 1)]
    connection.execute("INSERT INTO leases(run) VALUES (%s)", (row,))
    connection.execute(_JOURNAL, (at, row, [kind for kind, _ in keys], [key for _, key in keys], datas))
    connection.execute(_HEAD, (row, *head_columns(state.fold(state.RunState(), journal))))
    return at + len(journal)


def _summary(row: tuple[Any, ...], head: state.RunState, problem: Any) -> Summary:
    names = ("id", "run", "task", "project", "generation", "parent", "parent_beat", "root", "epoch")
    return rows.summary(dict(zip(names, row[:9], strict=True)), readable_holder(row[9]), head, problem)


def _fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork()


os.register_at_fork(after_in_child=_fork_in_child)
