"""The floor of the disk: one append and one fdatasync a step."""

from __future__ import annotations

import os

from benchmarks.measure import RESULT, Lap, Place

RECORD = RESULT.encode() + b" " * 49 + b"\n"  # 250 bytes, what a row costs in the raw database


def steps(place: Place, lap: Lap) -> None:
    log = os.open(place.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        os.write(log, RECORD)
        os.fdatasync(log)
        lap()
