"""The baseline: a single-row insert through the same apsw and page size as outlast, WAL with synchronous=FULL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import apsw

from benchmarks.measure import RESULT, Lap, Place

if TYPE_CHECKING:
    from benchmarks.race import Race

INSERT = "INSERT INTO steps (body) VALUES (?)"
BODY = RESULT.encode()


def connect(place: Place) -> apsw.Connection:
    database = apsw.Connection(place.path("raw.db"))
    database.execute(f"PRAGMA page_size={place.page_bytes}")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return database


def steps(place: Place, lap: Lap) -> None:
    execute = connect(place).execute
    for _ in count():
        execute(INSERT, (BODY,))
        lap()


def race_all(place: Place, races: Iterator[Race]) -> None:
    """Group commit at its best: one transaction holds one row of every run."""
    database = connect(place)
    for race in races:
        race.start()
        for _ in range(race.beats):
            with database:
                database.executemany(INSERT, ((BODY,) for _ in range(race.runs)))
        race.stop()
