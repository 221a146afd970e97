"""Reads every row of a store and says which are not as they were written. Changes nothing: see `health` for the quick look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from outlast.core import events as ev, state
from outlast.errors import StoreTooNew
from outlast.store import checksums, rows as rows_of
from outlast.store.protocol import Flaw, RunHealth
from outlast.store.sqlite import health, schema
from outlast.store.sqlite.commits import index_keys
from outlast.store.sqlite.leases import readable_holder

_ROW = """
SELECT r.id, r.run, r.project, r.task, r.parent, r.parent_beat, r.epoch, r.holder, (SELECT run FROM runs WHERE id = r.root),
       r.generation, (SELECT max(generation) FROM runs s WHERE s.project = r.project AND s.task = r.task
                      AND s.parent = r.parent AND s.parent_beat = r.parent_beat AND s.id < r.id)
FROM runs r WHERE r.id = ?
"""
_EVENTS = "SELECT n, seq, CAST(kind AS BLOB), CAST(key AS BLOB), typeof(data), CAST(data AS BLOB) FROM events WHERE run = ? ORDER BY seq"
_HEAD = "SELECT seq, CAST(status AS BLOB), CAST(updated_at AS BLOB), typeof(state), CAST(state AS BLOB) FROM heads WHERE id = ?"
_REQUESTS = """
SELECT r.id, r.at, r.by, r.what, r.args, r.taken, s.sum FROM requests r LEFT JOIN request_sums s ON s.id = r.id
WHERE r.run = ? ORDER BY r.id
"""
_ORPHANS = """
SELECT 'event ' || n FROM events e WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = e.run)
    AND NOT (e.run = 0 AND e.seq = e.n AND e.kind IS NULL AND e.key IS NULL AND e.data = '')
UNION ALL SELECT 'head ' || id FROM heads h WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = h.id)
UNION ALL SELECT 'request ' || id FROM requests q WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = q.run)
"""


class Row(NamedTuple):
    """A run's row in the table of runs."""

    id: int
    run: str
    project: str
    task: str
    parent: str
    parent_beat: int
    epoch: int
    holder: object
    root: str | None
    generation: int
    generation_before: int | None


def store_flaws(database: Path) -> list[Flaw]:
    """The flaws of the file itself, and the rows that belong to no run."""
    with health.reading(database) as connection:
        damage = [
            str(text)
            for (text,) in connection.execute("PRAGMA integrity_check(20)").fetchall()
            if text != "ok"
        ]
        if damage:
            return [Flaw("file", text, is_index_damage(text)) for text in damage]
        flaws = [
            Flaw("schema", f"the schema is not as it was made: {text[:60]}")
            for text in _odd_schema(connection)
        ]
        rows: list[Any] = connection.execute(_ORPHANS).fetchall()
        return flaws + [Flaw("orphan", f"{what} belongs to no run") for (what,) in rows]


def is_index_damage(text: str) -> bool:
    """Whether only an index is damaged, by what SQLite says: it can be built afresh from its table."""
    return "missing from index" in text or "wrong # of entries in index" in text


def runs(database: Path) -> Iterator[RunHealth]:
    """Every run, with what is wrong with it. One moment of the store, whatever is written meanwhile."""
    with health.reading(database) as connection:
        connection.execute("BEGIN")
        try:
            for number in rows_of_runs(connection):
                yield examine_run(connection, number)
        finally:
            connection.execute("ROLLBACK")


def rows_of_runs(connection: apsw.Connection) -> list[int]:
    """The rows of all runs, in their order."""
    rows: list[Any] = connection.execute("SELECT id FROM runs ORDER BY id").fetchall()
    return [number for (number,) in rows]


def examine_run(connection: apsw.Connection, number: int) -> RunHealth:
    """The run in a row, with what is wrong with it."""
    try:
        rows: list[Any] = connection.execute(_ROW, (number,)).fetchall()
        return _Examination(connection, Row(*rows[0])).result()
    except (apsw.Error, UnicodeDecodeError) as error:
        flaw = Flaw("identity", f"its row cannot be read: {error}")
        return RunHealth(
            run=f"(row {number})", task="", events=0, unchecked=0, flaws=(flaw,), blobs=frozenset(), state=None
        )  # fmt: skip


def _odd_schema(connection: apsw.Connection) -> set[str]:
    found = {
        str(sql)
        for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    }
    return (found ^ schema.statements()) - {"CREATE TABLE sqlite_sequence(name,seq)"}


class _Examination:
    """Examines one run event by event."""

    def __init__(self, connection: apsw.Connection, row: Row) -> None:
        self._connection = connection
        self._row = row
        self._flaws: list[Flaw] = []
        self._events = self._unchecked = 0
        self._state = state.RunState()
        self._folds = True
        self._opened: ev.AnyEvent | None = None
        self._epoch = 0
        self._blobs: set[str] = set()
        self._taken: dict[int, str] = {}

    def result(self) -> RunHealth:
        """Examine all of it."""
        try:
            stored = self._connection.execute(_HEAD, (self._row.id,)).fetchall()
            self._journal(stored[0][0] if stored else 0, stored)
            self._requests()
        except (apsw.Error, UnicodeDecodeError) as error:
            self._flaw("journal", f"cannot be read: {error}")
            self._folds = False
        return RunHealth(
            run=str(self._row.run), task=str(self._row.task), events=self._events, unchecked=self._unchecked,
            flaws=tuple(self._flaws), blobs=frozenset(self._blobs), state=self._state if self._folds else None,
        )  # fmt: skip

    def _flaw(self, what: str, text: str, repairable: bool = False) -> None:
        self._flaws.append(Flaw(what, text, repairable))

    # -- the journal -----------------------------------------------------------------------------------------------

    def _journal(self, head_seq: object, stored: list[Any]) -> None:
        expected, last_n, head_state = 1, 0, None
        rows: Any = self._connection.execute(_EVENTS, (self._row.id,))
        for n, seq, kind, key, type_, data in rows:
            if seq != expected:
                self._flaw("journal", f"events {expected} to {seq - 1} are missing")
                self._folds = False
            if n <= last_n:
                self._flaw("journal", f"event {seq} stands in the wrong place")
            expected, last_n = seq + 1, n
            self._events += 1
            self._event(seq, (kind, key), data if type_ == "blob" else None)
            if seq == head_seq and self._folds:
                head_state = self._state
        if not self._events:
            self._flaw("journal", "it has no events")
        self._identity()
        if self._folds and self._events:
            self._head(stored, head_state)

    def _event(self, seq: int, filed: tuple[bytes | None, bytes | None], data: bytes | None) -> None:
        verdict = "damaged" if data is None else checksums.verdict(data, self._row.run, seq)
        self._unchecked += verdict == "unchecked"
        if data is None or verdict == "damaged":
            self._flaw("journal", f"event {seq} is damaged")
            event = None
        else:
            event = self._decoded(seq, data, verdict)
        if event is None:
            self._folds = False
            return
        if tuple(key.encode() if key is not None else None for key in index_keys(event)) != filed:
            self._flaw("index", f"event {seq} is filed under another kind or key", repairable=True)
        self._blobs.update(payload.blob for payload in ev.blobs_in(event))
        if seq == 1:
            self._opened = event
        elif isinstance(event, ev.AttemptStarted):
            self._epoch = max(self._epoch, event.epoch)
        elif isinstance(event, ev.Requested):
            self._taken[event.id] = event.at.isoformat()
        if self._folds:
            self._fold(seq, event)

    def _decoded(self, seq: int, data: bytes, verdict: checksums.Verdict) -> ev.AnyEvent | None:
        try:
            return ev.decode(data)
        except (StoreTooNew, UnicodeDecodeError) as error:
            newer = "a newer outlast wrote it" if verdict == "whole" else "it is damaged"
            self._flaw("journal", f"event {seq} cannot be read: {newer} ({str(error).splitlines()[0]})")
            return None

    def _fold(self, seq: int, event: ev.AnyEvent) -> None:
        try:
            self._state = state.fold(self._state, [event])
        except Exception as error:  # whatever damaged values lead to: the other runs are still examined
            why = f"{type(error).__name__}: {error}"
            self._flaw("journal", f"event {seq} does not follow from those before it: {why}")
            self._folds = False

    # -- what repeats the journal ----------------------------------------------------------------------------------

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
        if row.generation <= (row.generation_before or 0):
            self._flaw(
                "identity", f"it is number {row.generation} of its task, after number {row.generation_before}"
            )
        if row.holder and readable_holder(row.holder) is None:
            self._flaw("identity", "it does not say who held it last")
        if row.epoch < self._epoch and not row.parent:
            self._flaw("identity", f"its epoch is {row.epoch}, and an attempt of it had {self._epoch}")

    def _head(self, stored: list[Any], at_head: state.RunState | None) -> None:
        if not stored:
            self._flaw("head", "it has no stored head", repairable=True)
            return
        seq, status, updated_at, type_, data = stored[0]
        if at_head is None:
            self._flaw(
                "head", f"its stored head is of event {seq}, and it has {self._events}", repairable=True
            )
            return
        updated = "" if at_head.updated_at is None else at_head.updated_at.isoformat()
        is_damaged = type_ != "blob" or checksums.verdict(data, self._row.run, seq) == "damaged"
        if (
            is_damaged
            or (status, updated_at) != (at_head.status.encode(), updated.encode())
            or not _is_same(data, at_head)
        ):
            self._flaw("head", "its stored head does not equal its events", repairable=True)

    def _requests(self) -> None:
        rows: Any = self._connection.execute(_REQUESTS, (self._row.id,)).fetchall()
        for number, at, by, what, args, taken, wanted in rows:
            texts = (
                isinstance(at, str)
                and isinstance(by, str)
                and isinstance(what, str)
                and isinstance(args, bytes)
            )
            if not texts or (
                wanted is not None and schema.request_sum(self._row.id, at, by, what, args) != wanted
            ):
                self._flaw("request", f"request {number} is damaged")
            was_taken = self._taken.get(number, "") >= str(
                at
            )  # an imported journal may have had the same number earlier
            if taken != was_taken:
                state = (
                    "is marked as taken in, and no event says so"
                    if taken
                    else "was taken in, and waits again"
                )
                self._flaw("request", f"request {number} {state}")


def _is_same(data: bytes, head: state.RunState) -> bool:
    """Whether a stored head equals its events. One that an older outlast made may lack what is read in its place."""
    try:
        stored = state.restore(data)
        if not stored.start_known:
            head = msgspec.structs.replace(head, start=stored.start, start_known=False)
        return stored == head
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
