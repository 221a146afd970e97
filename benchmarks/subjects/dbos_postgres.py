"""DBOS on PostgreSQL."""

from __future__ import annotations

from benchmarks.measure import Lap, Place
from benchmarks.subjects.dbos import forever


def steps(place: Place, lap: Lap) -> None:
    forever(place.postgres_url.rsplit("/", 1)[0] + "/dbos_bench", lap, resuming=False)
