"""Bytes per step in the database file after a checkpoint, as the run grows; and separately, what the WAL took."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw

from benchmarks.cases.syncs import Traced, trace
from benchmarks.driver import SUBJECTS, Bench, SubjectFailed
from benchmarks.report import Bar, Section, number

BYTES_MAX = 400.0
GROWTH_MAX = 1.05
LENGTHS = 3
SQLITE_MAGIC = b"SQLite format 3\0"
WRITES = "write,pwrite64,writev,pwritev"


@dataclass(frozen=True, slots=True)
class Size:
    steps: int
    database_bytes: int
    other_bytes: int

    @property
    def each(self) -> float:
        return self.database_bytes / self.steps


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def size_of(bench: Bench, name: str, steps: int) -> Size:
    """Of a checkpointed copy: the history itself stays as the kill left it."""
    copy = bench.folder(f"size-{name}-{steps}")
    shutil.copytree(bench.history(name, steps), copy, dirs_exist_ok=True)
    databases = [path for path in copy.rglob("*") if path.is_file() and is_database(path)]
    for path in databases:
        connection = apsw.Connection(str(path))
        connection.execute(
            "SELECT count(*) FROM sqlite_master"
        ).fetchall()  # else SQLite does not notice the WAL
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.close()
    in_databases = sum(path.stat().st_size for path in databases)
    everything = sum(path.stat().st_blocks * 512 for path in copy.rglob("*") if path.is_file())
    others = everything - sum(path.stat().st_blocks * 512 for path in databases)
    shutil.rmtree(copy)
    return Size(steps, in_databases, others)


def wal_bytes(traced: Traced) -> float:
    """Bytes a step put into files ending in -wal, by the written lengths strace saw."""
    pattern = re.compile(r"(?:write|pwrite64|writev|pwritev)\(\d+<[^>]*-wal>.* = (\d+)$")
    found = (pattern.search(line) for line in traced.lines)
    return sum(int(match.group(1)) for match in found if match) / traced.steps


def wal_of(bench: Bench, name: str) -> str:
    try:
        return number(wal_bytes(trace(bench, name, WRITES, steps=200)))
    except SubjectFailed:
        return "not traced"


def entries(bench: Bench) -> list[tuple[str, int]]:
    ours = (1_000, 5_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    assert len(ours) == LENGTHS, "the growth bar compares the first gap between lengths with the second"
    peers = bench.pick(full=10_000, quick=1_000)
    raw = [("raw_sqlite", peers)]
    return raw + [("outlast", steps) for steps in ours] + [(name, peers) for name in ("langgraph", "dbos")]


def measure(bench: Bench) -> Section:
    section = Section(
        "size: bytes a step, 200-byte results, after a checkpoint",
        ["", "steps", "B/step in the file", "other files B", "WAL B written/step"],
        notes=[
            "other files: the rest of the subject's folder in all, as blocks on the disk, our own log included."
        ],
    )
    ours: list[Size] = []
    for name, steps in entries(bench):
        try:
            size = size_of(bench, name, steps)
        except SubjectFailed as failure:
            section.absent(f"{SUBJECTS[name].label} {steps:,}", str(failure))
            continue
        ours += [size] if name == "outlast" else []
        figures = [f"{steps:,}", number(size.each), number(size.other_bytes), wal_of(bench, name)]
        section.rows.append([SUBJECTS[name].label, *figures])
        section.data[f"{name}@{steps}"] = {"database": size.database_bytes, "other": size.other_bytes}
    section.bars = bars(ours)
    return section


def added_each(before: Size, after: Size) -> float:
    return (after.database_bytes - before.database_bytes) / (after.steps - before.steps)


def bars(sizes: list[Size]) -> list[Bar]:
    largest = growth = None
    if len(sizes) == LENGTHS:
        largest = max(size.each for size in sizes)
        # The file's fixed part weighs on short runs, so the bar compares added beats, not the average.
        short, middle, long = sizes
        growth = added_each(middle, long) / added_each(short, middle)
    return [
        Bar("size: bytes per beat, the largest of all lengths", largest, BYTES_MAX, "B"),
        Bar("size: a late beat against an early one", growth, GROWTH_MAX, "×"),
    ]
