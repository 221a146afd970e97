"""The baseline of the PostgreSQL subjects: a single-row insert, committed at once, through psycopg."""

from __future__ import annotations

import psycopg

from benchmarks.measure import RESULT, Lap, Place

BODY = RESULT.encode()


def steps(place: Place, lap: Lap) -> None:
    with psycopg.connect(place.postgres_url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS raw_steps (id bigserial PRIMARY KEY, body bytea NOT NULL)"
        )
        cursor = connection.cursor()
        while True:
            cursor.execute("INSERT INTO raw_steps (body) VALUES (%s)", (BODY,))
            lap()
