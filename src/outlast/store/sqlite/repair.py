"""Makes indexes, heads and keys again from whole events. Never changes events."""

from pathlib import Path
from typing import Any

import apsw

from outlast.core import events as ev
from outlast.core.text import count_of
from outlast.errors import StoreCorrupt
from outlast.store.protocol import RunHealth
from outlast.store.sqlite import examination
from outlast.store.sqlite.commits import index_keys, write_head
from outlast.store.sqlite.database import Database


def repair(database: Path) -> list[str]:
    """Repair all that can be, each run in a transaction of its own; say what was done."""
    done = []
    opened = Database(database)
    try:
        if any(flaw.repairable for flaw in examination.store_flaws(database)):
            opened.write(lambda connection: connection.execute("REINDEX").fetchall())
            done.append("the indexes were built afresh")
        for number in opened.read(examination.rows_of_runs):
            done += opened.write(lambda connection, number=number: _repair_run(connection, number))  # type: ignore[misc]
    except apsw.Error as error:
        raise StoreCorrupt(
            f"the store {database} is damaged: {error}", hint="keep a copy, then restore it from a backup"
        ) from error
    finally:
        opened.close()
    return done


def _repair_run(connection: apsw.Connection, number: int) -> list[str]:
    run = examination.examine_run(connection, number)
    wanted = {flaw.what for flaw in run.flaws if flaw.repairable}
    done = []
    if "index" in wanted:
        count = _file_again(connection, number)
        done.append(f"run {run.run} ({run.task}): {count_of(count, 'event')} filed again")
    if "head" in wanted and run.state is not None:
        done.append(_make_head(connection, number, run))
    return done


def _make_head(connection: apsw.Connection, number: int, run: RunHealth) -> str:
    assert run.state is not None, "only a run that can be folded has a head to be made"
    write_head(connection, number, run.state)
    return f"run {run.run} ({run.task}): its head was made again from its {count_of(run.events, 'event')}"


def _file_again(connection: apsw.Connection, number: int) -> int:
    rows: list[Any] = connection.execute(
        "SELECT n, kind, key, data FROM events WHERE run = ?", (number,)
    ).fetchall()
    count = 0
    for n, kind, key, data in rows:
        wanted = index_keys(ev.decode(data))
        if wanted != (kind, key):
            connection.execute("UPDATE events SET kind = ?, key = ? WHERE n = ?", (*wanted, n))
            count += 1
    return count
