"""Queries over many runs or over a long journal, for display. Each is one query, whatever the size."""

import contextlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw

from outlast.core import events as ev
from outlast.core.state import START_TAGS, RunState, with_start
from outlast.core.statuses import CLOSED
from outlast.errors import OutlastError, StoreTooNew
from outlast.store import rows as rows_of
from outlast.store.protocol import PAGE_MAX, Changes, RecordedEvent, decoded
from outlast.store.sqlite.database import Database, row_in

CHANGES_MAX = 50_000  # events; a reader further behind reads everything anew, which is cheaper then

_CHANGES = """
WITH news AS MATERIALIZED (SELECT run FROM events WHERE n > ?1 LIMIT ?2),
newest AS MATERIALIZED (SELECT coalesce(max(n), 0) AS n FROM events),
traces AS (SELECT n, run || ' ' || seq || ' ' || hex(substr(data, -?3)) AS trace FROM events)
SELECT (SELECT n FROM newest), (SELECT count(*) FROM news), (SELECT trace FROM traces WHERE n = (SELECT n FROM newest)),
       (SELECT trace FROM traces WHERE n = ?1)
UNION ALL
SELECT NULL, NULL, e.run, r.run FROM (SELECT DISTINCT run FROM news) e LEFT JOIN runs r ON r.id = e.run
"""

# All ends if they are few. Else the first of each stretch of equal length, which a seek finds, and the last.
_SAMPLED = """
WITH RECURSIVE
ends(first, last) AS MATERIALIZED (
    SELECT (SELECT seq FROM events WHERE run = (SELECT id FROM runs WHERE run = ?1) AND (kind IS NULL OR kind = 'beat_done') ORDER BY seq LIMIT 1),
           (SELECT seq FROM events WHERE run = (SELECT id FROM runs WHERE run = ?1) AND (kind IS NULL OR kind = 'beat_done') ORDER BY seq DESC LIMIT 1)
),
few AS MATERIALIZED (
    SELECT seq FROM events WHERE run = (SELECT id FROM runs WHERE run = ?1) AND (kind IS NULL OR kind = 'beat_done') ORDER BY seq LIMIT ?2 + 1
),
steps(step) AS (SELECT 0 WHERE (SELECT count(*) FROM few) > ?2 UNION ALL SELECT step + 1 FROM steps WHERE step < ?2 - 2),
picked AS (
    SELECT (
        SELECT seq FROM events
        WHERE run = (SELECT id FROM runs WHERE run = ?1) AND (kind IS NULL OR kind = 'beat_done')
          AND seq >= ends.first + (ends.last - ends.first) * step / (?2 - 1)
          AND seq < ends.first + (ends.last - ends.first) * (step + 1) / (?2 - 1)
        ORDER BY seq LIMIT 1
    ) AS seq
    FROM steps, ends
    UNION SELECT last FROM ends
    UNION SELECT seq FROM few WHERE (SELECT count(*) FROM few) <= ?2
)
SELECT e.n, e.seq, e.data FROM picked p CROSS JOIN events e ON e.run = (SELECT id FROM runs WHERE run = ?1) AND e.seq = p.seq ORDER BY e.seq
"""

# Uses the index alone, run by run; only the result is read from the table.
_ACROSS = """
SELECT e.n, f.name, e.seq, e.data
FROM (
    SELECT k.n AS n, r.run AS name
    FROM runs r CROSS JOIN events k INDEXED BY events_by_kind
        ON k.run = r.id AND k.kind IN ({kinds}) AND (?1 = 0 OR k.n < ?1)
    ORDER BY k.n DESC LIMIT ?2
) f CROSS JOIN events e ON e.n = f.n
ORDER BY e.n DESC
"""

_ENDS = """
SELECT n, seq, data FROM events
WHERE run = (SELECT id FROM runs WHERE run = ?1) AND (?2 = 0 OR seq < ?2) AND (kind IS NULL OR kind = 'beat_done')
ORDER BY seq DESC LIMIT ?3
"""

# Each kind by the index alone: the cost does not depend on where in a long journal its events are.
_OF_KIND = """
SELECT * FROM (
    SELECT n, seq FROM events INDEXED BY events_by_kind
    WHERE run = (SELECT id FROM runs WHERE run = ?1) AND kind = ?{place} AND seq > ?2 AND (?3 = 0 OR seq < ?3)
    ORDER BY {order} LIMIT ?4
)
"""
_OF_KINDS = (
    "SELECT e.n, e.seq, e.data FROM ({found}) f CROSS JOIN events e ON e.n = f.n ORDER BY e.{order} LIMIT ?4"
)

_TAILS = """
SELECT e.run, CAST(e.data AS BLOB)
FROM json_each(?1) j CROSS JOIN events e ON e.run = j.value ->> 0 AND e.seq > j.value ->> 1
ORDER BY e.run, e.seq LIMIT ?2
"""

# By the index alone which events these are: few, however long the journal.
_STARTS = """
SELECT e.run, CAST(e.data AS BLOB)
FROM json_each(?1) j CROSS JOIN events e INDEXED BY events_by_kind
    ON e.run = j.value ->> 0 AND e.kind IN ({kinds}) AND e.seq <= j.value ->> 1
ORDER BY e.run, e.seq
""".format(kinds=",".join(f"'{tag}'" for tag in START_TAGS))


def changes(after: int, trace: str, connection: apsw.Connection) -> Changes:
    """See `Store.changes`. A forgotten run leaves a marker event that belongs to no run."""
    rows: list[Any] = connection.execute(_CHANGES, (after, CHANGES_MAX + 1, rows_of.TRACE_BYTES)).fetchall()
    (number, count, newest, here), *runs = rows
    put_back = number < after or (trace != "" and trace != here)
    anew = put_back or count > CHANGES_MAX or any(name is None for _, _, _, name in runs)
    return Changes(number, tuple(name for _, _, _, name in runs if name is not None), anew, newest or "")


def sample_beat_ends(run: str, count: int, connection: apsw.Connection) -> list[RecordedEvent]:
    """See `Store.beat_end_sample`."""
    assert count >= 2, "a sample includes the first and the last"
    rows = rows_of_run(run, connection.execute(_SAMPLED, (run, count)).fetchall(), connection)
    return [RecordedEvent(n, run, seq, ev.decode(data)) for n, seq, data in rows]


def beat_ends(run: str, before: int, limit: int, connection: apsw.Connection) -> list[RecordedEvent]:
    """See `Store.beat_ends`."""
    rows = rows_of_run(run, connection.execute(_ENDS, (run, before, limit)).fetchall(), connection)
    return [RecordedEvent(n, run, seq, ev.decode(data)) for n, seq, data in rows]


def rows_of_run(run: str, rows: list[Any], connection: apsw.Connection) -> list[Any]:
    """The rows found for a run, by its name: another process may have forgotten the run and brought it back in another
    row. If there are none, checks that the run exists: raises UnknownRun.
    """
    if not rows:
        row_in(connection, run)
    return rows


def of_kinds(
    run: str,
    tags: Sequence[str],
    after: int,
    before: int,
    limit: int,
    order: str,
    connection: apsw.Connection,
) -> list[Any]:
    """Rows of events of these kinds between two sequence numbers, in this order."""
    kinds = range(5, 5 + len(tags))
    found = " UNION ALL ".join(_OF_KIND.format(place=place, order=order) for place in kinds)
    sql = _OF_KINDS.format(found=found, order=order)
    return connection.execute(sql, (run, after, before, limit, *tags)).fetchall()


def event_counts(run: str, connection: apsw.Connection) -> dict[str, int]:
    """See `Store.event_counts`."""
    sql = (
        "SELECT kind, count(*) FROM events WHERE run = (SELECT id FROM runs WHERE run = ?) AND kind IS NOT NULL"
        " GROUP BY kind"
    )
    return dict(rows_of_run(run, connection.execute(sql, (run,)).fetchall(), connection))


def events_of_kinds(
    tags: Sequence[str], before: int, limit: int, connection: apsw.Connection
) -> list[RecordedEvent]:
    """See `Store.events_of_kinds`. Events that cannot be decoded are left out."""
    assert ev.BeatDone.__struct_config__.tag not in tags, "beat beat_ends are not indexed by kind"
    sql = _ACROSS.format(kinds=",".join(f"?{number}" for number in range(3, 3 + len(tags))))
    found: list[RecordedEvent] = []
    while len(found) < limit:
        rows: list[Any] = connection.execute(sql, (before, limit, *tags)).fetchall()
        found += decoded([rows_of.glimpse(*row) for row in rows])
        if len(rows) < limit:
            break
        before = rows[-1][0]
    return found[:limit]


def catch_up(
    database: Database, heads: dict[int, RunState]
) -> tuple[dict[int, RunState], dict[int, OutlastError]]:
    """Heads, by their runs' rows, with all later events folded in. Needs one query per page of events.

    Where an event cannot be decoded: the head before it, and the error.
    """
    found = dict(heads)
    problems: dict[int, OutlastError] = {}
    while found.keys() - problems.keys():
        places = json.dumps([[row, head.seq] for row, head in found.items() if row not in problems])
        rows: list[Any] = database.read(partial(_tails, places))
        rows_of.fold_tails(rows, found, problems)
        if len(rows) < PAGE_MAX:
            break
    return found, problems


def lacks_start(head: RunState) -> bool:
    """Whether an older outlast made the head of an open run, without whether somebody asked to start it here."""
    return bool(head.run) and not head.start_known and head.status not in CLOSED


def with_starts(connection: apsw.Connection, heads: dict[int, RunState]) -> dict[int, RunState]:
    """Heads, by their runs' rows. Those of open runs that an older outlast made get what they lack: nothing wakes an import
    that nobody has started, whoever made it. One query for all of them, and none for heads of this outlast."""
    wanted = {row: head for row, head in heads.items() if lacks_start(head)}
    if not wanted:
        return heads
    places = json.dumps([[row, head.seq] for row, head in wanted.items()])
    found: dict[int, list[ev.AnyEvent]] = {row: [] for row in wanted}
    rows: list[Any] = connection.execute(_STARTS, (places,)).fetchall()
    for row, data in rows:
        with contextlib.suppress(StoreTooNew):  # who reads the whole journal says so
            found[row].append(ev.decode(data))
    return heads | {row: with_start(head, found[row]) for row, head in wanted.items()}


def _tails(places: str, connection: apsw.Connection) -> list[Any]:
    return connection.execute(_TAILS, (places, PAGE_MAX)).fetchall()
