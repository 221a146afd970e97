"""Reads every row of a PostgreSQL store and says which are not as they were written, and puts right what events prove.

PostgreSQL checks its own pages (`pg_amcheck`); here is what only outlast knows: checksums, order, folds, heads."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from outlast.core import events as ev, state
from outlast.core.text import count_of
from outlast.errors import StoreTooNew
from outlast.store import checksums, rows as rows_of
from outlast.store.postgres.commits import head_columns, index_keys
from outlast.store.postgres.database import Connection, Server
from outlast.store.protocol import Flaw, RunHealth

PAGE = 2_000
_RUNS = "SELECT id FROM runs ORDER BY id"
_ROW = """
SELECT r.id, r.run, r.project, r.task, r.parent, r.parent_beat, l.epoch, (SELECT run FROM runs WHERE id = r.root)
FROM runs r LEFT JOIN leases l ON l.run = r.id WHERE r.id = %s
"""
_EVENTS = "SELECT n, seq, kind, key, data FROM events WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s"
_HEAD = "SELECT seq, status, updated_at, state FROM heads WHERE id = %s"
_TAKEN = "SELECT id, taken FROM requests WHERE run = %s ORDER BY id"
_ORPHANS = """
SELECT 'event ' || n FROM events e WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = e.run)
    AND NOT (e.run = 0 AND e.seq = e.n AND e.kind IS NULL AND e.key IS NULL AND e.data = '')
UNION ALL SELECT 'head ' || id FROM heads h WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = h.id)
UNION ALL SELECT 'lease ' || run FROM leases l WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = l.run)
UNION ALL SELECT 'request ' || id FROM requests q WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = q.run)
LIMIT 20
"""
_INVALID = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = to_regnamespace('outlast') AND NOT (i.indisvalid AND i.indisready) ORDER BY c.relname
"""
_FILE = "UPDATE events SET kind = %s, key = %s WHERE run = %s AND seq = %s"
_PUT_HEAD = """
INSERT INTO heads(id, seq, status, updated_at, state) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, status = excluded.status, updated_at = excluded.updated_at, state = excluded.state
"""


class ServerRow(NamedTuple):
    """A run's row in the table of runs, with its epoch and its root."""

    id: int
    run: str
    project: str
    task: str
    parent: str
    parent_beat: int
    epoch: int | None
    root: str | None


def store_flaws(database: Server) -> list[Flaw]:
    """Rows that belong to no run, and indexes that PostgreSQL does not use."""
    flaws = [
        Flaw("file", f"the index {name} is not valid; an administrator types REINDEX INDEX outlast.{name}")
        for (name,) in database.read(_INVALID)
    ]
    return flaws + [Flaw("orphan", f"{what} belongs to no run") for (what,) in database.read(_ORPHANS)]


def runs(database: Server) -> Iterator[RunHealth]:
    """Every run, with what is wrong with it, each as of one moment. The server is left at the end."""
    try:
        for (number,) in database.read(_RUNS):
            connection = database.new()
            try:
                with connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                    found = _examined(connection, number)
            finally:
                connection.close()
            if found is not None:
                yield found.health()
    finally:
        database.close()


def repair(database: Server) -> list[str]:
    """Heads, and kinds and keys of events, made afresh from whole events. Says what it did."""

    def one(connection: Connection, number: int) -> list[str]:
        # As an append does, so that nobody appends meanwhile; FOR UPDATE also waits for those under way.
        connection.execute(
            "SELECT 1 FROM leases WHERE run = (SELECT root FROM runs WHERE id = %s) FOR UPDATE", (number,)
        )
        found = _examined(connection, number)
        return [] if found is None else found.repaired()

    done: list[str] = []
    for (number,) in database.read(_RUNS):
        done += database.write(lambda connection, number=number: one(connection, number))  # type: ignore[misc]
    return done


def _examined(connection: Connection, number: int) -> "_ServerRun | None":
    """The run in a row; None if somebody has forgotten it."""
    found = connection.execute(_ROW, (number,)).fetchone()
    return None if found is None else _ServerRun(connection, ServerRow(*found))


class _ServerRun:
    """One run, examined event by event in the connection's transaction."""

    def __init__(self, connection: Connection, row: ServerRow) -> None:
        self._connection, self._row = connection, row
        self._flaws: list[Flaw] = []
        self._count = self._unchecked = self._epoch = 0
        self._state: state.RunState | None = state.RunState()
        self._at_head: state.RunState | None = None
        self._opened: ev.AnyEvent | None = None
        self._blobs: set[str] = set()
        self._taken: set[int] = set()
        self._misfiled: list[tuple[int, str | None, bytes | None]] = []
        stored = connection.execute(_HEAD, (row.id,)).fetchone()
        self._journal(stored[0] if stored else 0)
        self._identity()
        self._head(stored)
        self._requests()

    def health(self) -> RunHealth:
        return RunHealth(
            run=self._row.run, task=self._row.task, events=self._count, unchecked=self._unchecked,
            flaws=tuple(self._flaws), blobs=frozenset(self._blobs), state=self._state if self._count else None,
        )  # fmt: skip

    def repaired(self) -> list[str]:
        """Put right what whole events prove, in the same transaction."""
        row, done = self._row, list[str]()
        for seq, kind, key in self._misfiled:
            self._connection.execute(_FILE, (kind, key, row.id, seq))
        if self._misfiled:
            done.append(f"run {row.run} ({row.task}): {count_of(len(self._misfiled), 'event')} filed again")
        if self._state is not None and self._count and any(flaw.what == "head" for flaw in self._flaws):
            self._connection.execute(_PUT_HEAD, (row.id, *head_columns(self._state)))
            done.append(
                f"run {row.run} ({row.task}): its head was made from its {count_of(self._count, 'event')}"
            )
        return done

    def _flaw(self, what: str, text: str, *, repairable: bool = False) -> None:
        self._flaws.append(Flaw(what, text, repairable))

    # -- the journal ---------------------------------------------------------------------------------------------

    def _journal(self, head_seq: int) -> None:
        last_seq = last_n = 0
        while page := self._connection.execute(_EVENTS, (self._row.id, last_seq, PAGE)).fetchall():
            for n, seq, kind, key, data in page:
                if seq != last_seq + 1:
                    self._flaw("journal", f"events {last_seq + 1} to {seq - 1} are missing")
                    self._state = None
                if n <= last_n:
                    self._flaw("journal", f"event {seq} stands in the wrong place")
                last_seq, last_n = seq, n
                self._count += 1
                self._event(seq, kind, key, bytes(data))
                if seq == head_seq:
                    self._at_head = self._state
        if not self._count:
            self._flaw("journal", "it has no events")

    def _event(self, seq: int, kind: str | None, key: bytes | None, data: bytes) -> None:
        event = self._decoded(seq, data)
        if event is None:
            self._state = None
            return
        wanted_kind, wanted_key = index_keys(event)
        if (wanted_kind, wanted_key) != (kind, None if key is None else bytes(key)):
            self._flaw("index", f"event {seq} is filed under another kind or key", repairable=True)
            self._misfiled.append((seq, wanted_kind, wanted_key))
        self._blobs.update(payload.blob for payload in ev.blobs_in(event))
        if seq == 1:
            self._opened = event
        elif isinstance(event, ev.AttemptStarted):
            self._epoch = max(self._epoch, event.epoch)
        elif isinstance(event, ev.Requested):
            self._taken.add(event.id)
        if self._state is not None:
            try:
                self._state = state.fold(self._state, [event])
            except Exception as error:  # whatever damaged values lead to: the other runs are still examined
                self._flaw(
                    "journal",
                    f"event {seq} does not follow from those before it: {type(error).__name__}: {error}",
                )
                self._state = None

    def _decoded(self, seq: int, data: bytes) -> ev.AnyEvent | None:
        verdict = checksums.verdict(data, self._row.run, seq)
        self._unchecked += verdict == "unchecked"
        if verdict == "damaged":
            self._flaw("journal", f"event {seq} is damaged")
            return None
        try:
            return ev.decode(data)
        except (StoreTooNew, UnicodeDecodeError) as error:
            newer = "a newer outlast wrote it" if verdict == "whole" else "it is damaged"
            self._flaw("journal", f"event {seq} cannot be read: {newer} ({str(error).splitlines()[0]})")
            return None

    # -- what repeats the journal --------------------------------------------------------------------------------

    def _identity(self) -> None:
        row, opened = self._row, self._opened
        if not isinstance(opened, ev.RunOpened):
            if opened is not None:
                self._flaw("journal", "its first event does not open it")
            return
        if (row.run, row.project, row.task, row.parent, row.parent_beat, row.root) != rows_of.identity(
            opened
        ):
            self._flaw("identity", "its row does not say what its first event says")
        if row.epoch is None:
            self._flaw("identity", "it has no lease, so nobody can work on it")
        elif row.epoch < self._epoch and not row.parent:
            self._flaw("identity", f"its epoch is {row.epoch}, and an attempt of it had {self._epoch}")

    def _head(self, stored: Any) -> None:
        if self._state is None or not self._count:
            return
        if stored is None:
            self._flaw("head", "it has no stored head", repairable=True)
        elif self._at_head is None:
            self._flaw(
                "head", f"its stored head is of event {stored[0]}, and it has {self._count}", repairable=True
            )
        elif (stored[0], stored[1], stored[2]) != head_columns(self._at_head)[:3] or not self._is_same(
            bytes(stored[3])
        ):
            self._flaw("head", "its stored head does not equal its events", repairable=True)

    def _is_same(self, data: bytes) -> bool:
        """Whether a stored head equals its events. One that an older outlast made may lack what is read in its place."""
        found, wanted = rows_of.head(self._row.run, data), self._at_head
        if wanted is not None and not found.start_known:
            wanted = msgspec.structs.replace(wanted, start=found.start, start_known=False)
        return found == wanted

    def _requests(self) -> None:
        for number, taken in self._connection.execute(_TAKEN, (self._row.id,)).fetchall():
            # One that waits may have the number of another one, in a journal that was imported.
            if taken and self._state is not None and number not in self._taken:
                self._flaw("request", f"request {number} is marked as taken in, and no event says so")
