"""absurd on PostgreSQL: one task whose handler checkpoints one step after another.

Its schema comes with absurdctl, which carries it as a string; the command itself would need psql.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import psycopg
from absurd_sdk import Absurd, TaskContext
from absurdctl import BUNDLED_SCHEMA_SQL  # type: ignore[import-untyped]

from benchmarks.measure import RESULT, Lap, Place

CLAIM_TIMEOUT_S = 3600


def install_schema(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace('absurd')").fetchone() == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL)


def steps(place: Place, lap: Lap) -> None:
    install_schema(place.postgres_url)
    app = Absurd(place.postgres_url, queue_name="bench")
    app.create_queue("bench")

    @app.register_task(name="bench")
    def task(params: Any, context: TaskContext) -> None:
        for number in count():
            context.step(f"step-{number}", lambda: RESULT)
            lap()

    app.spawn("bench", {})
    app.work_batch(claim_timeout=CLAIM_TIMEOUT_S)
