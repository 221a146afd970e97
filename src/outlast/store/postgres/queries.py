"""Queries over many runs or over a long journal. Each is one statement, whatever the size.

What is read across runs ends below the oldest open transaction, so that nobody hears of an event too late."""

from collections.abc import Sequence
from typing import Any

from outlast.core import events as ev
from outlast.core.state import RunState
from outlast.errors import OutlastError, UnknownRun
from outlast.store import rows as rows_of
from outlast.store.postgres.database import Server
from outlast.store.protocol import PAGE_MAX, Changes, RecordedEvent, RunFilter, decoded

CHANGES_MAX = 50_000  # events; a reader further behind reads everything anew, which is cheaper then
# Every event below it is decided: an event that is not there yet gets a greater number. A reader's cursor is the number of
# the last event, never this bound: a killed server gives transaction numbers again.
STABLE = "((SELECT base FROM meta) + (pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20))"

_SUMMARIES = """
SELECT r.id, r.run, r.task, r.project, r.generation, r.parent, r.parent_beat, (SELECT run FROM runs WHERE id = r.root), l.epoch,
       l.holder, h.state, (SELECT max(seq) FROM events WHERE run = r.id)
FROM runs r JOIN leases l ON l.run = r.id LEFT JOIN heads h ON h.id = r.id
"""
# A start that names this run is younger than it: found by the index, and the bytes of younger starts alone.
_STARTED_WITHIN = """
EXISTS (
    SELECT 1 FROM events k WHERE k.run = r.id AND k.kind = 'attempt_started'
      AND k.n > (SELECT n FROM events WHERE run = (SELECT id FROM runs WHERE run = %(within)s) AND seq = 1)
      AND position(convert_to(%(within)s, 'UTF8') IN k.data) > 0
)
"""
_READ = "SELECT n, seq, data FROM events WHERE run = %(run)s AND seq > %(after)s"
_HEAD = "SELECT r.id, h.state FROM runs r LEFT JOIN heads h ON h.id = r.id WHERE r.run = %s"
_TAILS = """
SELECT e.run, e.data FROM unnest(%s::bigint[], %s::bigint[]) AS p(run, seq) JOIN events e ON e.run = p.run AND e.seq > p.seq
ORDER BY e.run, e.seq LIMIT %s
"""
_AFTER = f"""
SELECT e.n, r.run, e.seq, e.data FROM events e JOIN runs r ON r.id = e.run WHERE e.n > %s AND e.n < {STABLE} ORDER BY e.n LIMIT %s
"""
_LAST = f"SELECT coalesce(max(n), 0) FROM events WHERE n < {STABLE}"
_TRACE = "SELECT run, seq, right(encode(data, 'hex'), %(digits)s) AS trace FROM events WHERE n ="
# One statement, one snapshot: all of it is of one moment.
_CHANGES = f"""
WITH bound AS MATERIALIZED (SELECT {STABLE} AS n),
news AS MATERIALIZED (SELECT run FROM events WHERE n > %(after)s AND n < (SELECT n FROM bound) LIMIT %(most)s),
newest AS MATERIALIZED (SELECT coalesce(max(n), 0) AS n FROM events WHERE n < (SELECT n FROM bound))
SELECT (SELECT n FROM newest), (SELECT count(*) FROM news),
       (SELECT run || ' ' || seq || ' ' || trace FROM ({_TRACE} (SELECT n FROM newest)) t),
       (SELECT run || ' ' || seq || ' ' || trace FROM ({_TRACE} %(after)s) t),
       ARRAY(SELECT r.run FROM (SELECT DISTINCT run FROM news) e LEFT JOIN runs r ON r.id = e.run)
"""
# All ends if they are few. Else the first of each stretch of equal length, which a seek finds, and the last.
_SAMPLED = """
WITH wanted AS MATERIALIZED (
    SELECT min(seq) AS first, max(seq) AS last FROM events WHERE run = %(run)s AND (kind IS NULL OR kind = 'beat_done')
), few AS MATERIALIZED (
    SELECT seq FROM events WHERE run = %(run)s AND (kind IS NULL OR kind = 'beat_done') ORDER BY seq LIMIT %(count)s + 1
), picked AS (
    SELECT (
        SELECT seq FROM events WHERE run = %(run)s AND (kind IS NULL OR kind = 'beat_done')
          AND seq >= w.first + (w.last - w.first) * step / (%(count)s - 1)
          AND seq < w.first + (w.last - w.first) * (step + 1) / (%(count)s - 1)
        ORDER BY seq LIMIT 1
    ) AS seq
    FROM wanted w, generate_series(0, %(count)s - 2) AS step WHERE (SELECT count(*) FROM few) > %(count)s
    UNION SELECT last FROM wanted
    UNION SELECT seq FROM few WHERE (SELECT count(*) FROM few) <= %(count)s
)
SELECT e.n, e.seq, e.data FROM picked p JOIN events e ON e.run = %(run)s AND e.seq = p.seq ORDER BY e.seq
"""
_ENDS = """
SELECT n, seq, data FROM events
WHERE run = %(run)s AND (%(before)s = 0 OR seq < %(before)s) AND (kind IS NULL OR kind = 'beat_done') ORDER BY seq DESC LIMIT %(limit)s
"""
_ACROSS = """
SELECT e.n, r.run, e.seq, e.data FROM events e JOIN runs r ON r.id = e.run
WHERE e.kind = ANY(%(tags)s) AND (%(before)s = 0 OR e.n < %(before)s) ORDER BY e.n DESC LIMIT %(limit)s
"""


def stored_head(database: Server, run: str) -> tuple[int, RunState]:
    """The number of a run, and its stored head. Raises UnknownRun."""
    rows = database.read(_HEAD, (run,))
    if not rows:
        database.forget_row(run)
        raise UnknownRun(run)
    return int(rows[0][0]), rows_of.head(run, rows[0][1])


def events_of(
    database: Server,
    run: str,
    row: int,
    after: int,
    *,
    limit: int,
    tags: Sequence[str],
    key: str,
    newest: bool,
    before: int,
    ends: bool,
) -> list[RecordedEvent]:
    """See `Store.read`."""
    clauses = [_READ]
    if tags:
        clauses.append("(kind IS NULL OR kind = ANY(%(tags)s))" if ends else "kind = ANY(%(tags)s)")
    if key:
        clauses.append("key IS NOT NULL AND md5(key) = md5(%(key)s::bytea) AND key = %(key)s::bytea")
    if before:
        clauses.append("seq < %(before)s")
    query = f"{' AND '.join(clauses)} ORDER BY seq {'DESC' if newest else ''} LIMIT %(limit)s"
    values = {
        "run": row, "after": after, "tags": list(tags), "key": key.encode(errors="surrogatepass"), "before": before, "limit": limit,
    }  # fmt: skip
    found = database.read(query, values)
    if not found:
        require(database, run)
    if newest:
        found.reverse()
    return _recorded(run, found)


def require(database: Server, run: str) -> None:
    """Raise UnknownRun where somebody forgot the run."""
    if not database.read("SELECT 1 FROM runs WHERE run = %s", (run,)):
        database.forget_row(run)
        raise UnknownRun(run)


def _recorded(run: str, rows: Sequence[tuple[Any, ...]]) -> list[RecordedEvent]:
    return [RecordedEvent(n, run, seq, ev.decode(bytes(data))) for n, seq, data in rows]


def page(database: Server, where: RunFilter, after: int, limit: int) -> list[tuple[Any, ...]]:
    """Columns, head and last sequence number of the runs that fit, newest first."""
    wanted: list[tuple[str, str, Any, bool]] = [
        ("r.id < %(cursor)s", "cursor", after, after > 0),
        ("r.run = ANY(%(runs)s)", "runs", list(where.runs), bool(where.runs)),
        ("starts_with(r.run, %(prefix)s)", "prefix", where.run_prefix, bool(where.run_prefix)),
        ("r.project = %(project)s AND md5(r.project) = md5(%(project)s)", "project", where.project, bool(where.project)),
        ("r.task = %(task)s AND md5(r.task) = md5(%(task)s)", "task", where.task, bool(where.task)),
        ("r.parent = %(parent)s", "parent", where.parent, where.parent is not None),
        ("r.parent_beat = %(beat)s", "beat", where.parent_beat, where.parent_beat is not None),
        (_STARTED_WITHIN, "within", where.within, bool(where.within)),
    ]  # fmt: skip
    given = [(clause, name, value) for clause, name, value, is_wanted in wanted if is_wanted]
    clauses = " AND ".join(clause for clause, _, _ in given) or "true"
    values = {name: value for _, name, value in given} | {"limit": limit}
    return database.read(f"{_SUMMARIES} WHERE {clauses} ORDER BY r.id DESC LIMIT %(limit)s", values)


def catch_up(
    database: Server, heads: dict[int, RunState]
) -> tuple[dict[int, RunState], dict[int, OutlastError]]:
    """Heads, by their runs' rows, with all later events folded in. Needs one query per page of events."""
    found = dict(heads)
    problems: dict[int, OutlastError] = {}
    while open_rows := sorted(found.keys() - problems.keys()):
        seqs = [found[row].seq for row in open_rows]
        rows = database.read(_TAILS, (open_rows, seqs, PAGE_MAX))
        rows_of.fold_tails([(int(row), bytes(data)) for row, data in rows], found, problems)
        if len(rows) < PAGE_MAX:
            break
    return found, problems


def news(database: Server, after: int, limit: int) -> list[tuple[int, str, int, bytes]]:
    """Events of all runs after a number, in its order, as far as they are decided."""
    return [(n, run, seq, bytes(data)) for n, run, seq, data in database.read(_AFTER, (after, limit))]


def last_number(database: Server) -> int:
    """See `Store.last_number`."""
    return int(database.read(_LAST)[0][0])


def changes(database: Server, after: int, trace: str) -> Changes:
    """See `Store.changes`. A forgotten run leaves a marker event that belongs to no run."""
    values = {"after": after, "most": CHANGES_MAX + 1, "digits": 2 * rows_of.TRACE_BYTES}
    number, count, newest, here, runs = database.read(_CHANGES, values)[0]
    put_back = number < after or (trace != "" and trace != here)
    anew = put_back or count > CHANGES_MAX or None in runs
    return Changes(number, tuple(run for run in runs if run is not None), anew, newest or "")


def sample_beat_ends(database: Server, run: str, count: int) -> list[RecordedEvent]:
    """See `Store.beat_end_sample`."""
    assert count >= 2, "a sample includes the first and the last"
    row, _ = database.row(run)
    return _recorded(run, _of_run(database, run, _SAMPLED, {"run": row, "count": count}))


def beat_ends(database: Server, run: str, before: int, limit: int) -> list[RecordedEvent]:
    """See `Store.beat_ends`."""
    row, _ = database.row(run)
    return _recorded(run, _of_run(database, run, _ENDS, {"run": row, "before": before, "limit": limit}))


def event_counts(database: Server, run: str) -> dict[str, int]:
    """See `Store.event_counts`."""
    row, _ = database.row(run)
    query = "SELECT kind, count(*) FROM events WHERE run = %(run)s AND kind IS NOT NULL GROUP BY kind"
    return {str(kind): int(count) for kind, count in _of_run(database, run, query, {"run": row})}


def _of_run(database: Server, run: str, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = database.read(query, values)
    if not rows:
        require(database, run)
    return rows


def events_of_kinds(database: Server, tags: Sequence[str], before: int, limit: int) -> list[RecordedEvent]:
    """See `Store.events_of_kinds`. Events that cannot be decoded are left out."""
    assert ev.BeatDone.__struct_config__.tag not in tags, "beat ends are not indexed by kind"
    found: list[RecordedEvent] = []
    while len(found) < limit:
        rows = database.read(_ACROSS, {"tags": list(tags), "before": before, "limit": limit})
        found += decoded([rows_of.glimpse(n, run, seq, bytes(data)) for n, run, seq, data in rows])
        if len(rows) < limit:
            break
        before = rows[-1][0]
    return found[:limit]
