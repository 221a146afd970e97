"""The baseline of the PostgreSQL subjects: an insert of one row, or of one row of each run, committed at once, through psycopg."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from benchmarks.measure import RESULT, Lap, Place
from benchmarks.race import Race

BODY = RESULT.encode()
TABLE = "CREATE TABLE IF NOT EXISTS {} (id bigserial PRIMARY KEY, body bytea NOT NULL)"


def steps(place: Place, lap: Lap) -> None:
    with psycopg.connect(place.postgres_url, autocommit=True) as connection:
        connection.execute(TABLE.format("raw_steps").encode())
        cursor = connection.cursor()
        while True:
            cursor.execute("INSERT INTO raw_steps (body) VALUES (%s)", (BODY,))
            lap()


def race_all(place: Place, races: Iterator[Race]) -> None:
    """Group commit at its best: one statement holds one row of every run."""
    with psycopg.connect(place.postgres_url, autocommit=True) as connection:
        connection.execute(TABLE.format("raw_groups").encode())
        cursor: psycopg.Cursor[Any] = connection.cursor()
        for race in races:
            bodies = [BODY] * race.runs
            race.start()
            for _ in range(race.beats):
                cursor.execute("INSERT INTO raw_groups (body) SELECT * FROM unnest(%s::bytea[])", (bodies,))
            race.stop()
