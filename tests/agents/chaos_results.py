"""The results file of `./dev chaos-agents`: one line of JSON for each trial that ended, so that a stopped campaign goes on.

What a trial is, and whether it was good, is said elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.agents.trial_judge import Outcome


@dataclass(frozen=True, slots=True)
class Line:
    """What is kept of one trial."""

    seed: int
    trial: int
    agent: str
    parts: tuple[str, ...]
    failures: tuple[str, ...]
    kills: int
    starts: int
    wanted: int
    acts: int
    settled: int
    again: int
    twice: int
    lost: int
    stuck: int
    took_s: float


def line_of(out: Outcome) -> Line:
    plan = out.plan
    return Line(
        plan.seed, plan.trial, plan.key, plan.parts, tuple(out.failures), len(out.kills), out.starts, out.wanted, out.acts,
        out.settled, out.repeated, out.twice, out.lost, out.stuck, round(out.took_s, 1),
    )  # fmt: skip


class Results:
    """The file, or nothing where none was named. A line that was torn by a kill is left out, and its trial done again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self, seed: int) -> dict[int, Line]:
        """The trials of this seed by number; the last line of each counts."""
        if self._path is None or not self._path.exists():
            return {}
        lines = [_parsed(text) for text in self._path.read_text().splitlines()]
        return {line.trial: line for line in lines if line is not None and line.seed == seed}

    def add(self, line: Line) -> None:
        """On disk when this returns."""
        if self._path is None:
            return
        with self._path.open("a+b") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - 1))
            torn = size > 0 and file.read(1) != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(asdict(line)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _parsed(text: str) -> Line | None:
    try:
        given = json.loads(text)
        return Line(**given | {"parts": tuple(given["parts"]), "failures": tuple(given["failures"])})
    except (ValueError, TypeError, KeyError):
        return None


def table(lines: Iterable[Line], *, by: str) -> Iterator[str]:
    """A line for each agent, or for each part."""
    heads = [
        by,
        "trials",
        "failed",
        "kills",
        "starts",
        "wanted",
        "acts",
        "twice",
        "lost",
        "stuck",
        "settled",
        "again",
        "longest",
    ]
    groups: dict[str, list[Line]] = {}
    for line in lines:
        for key in line.parts if by == "part" else (line.agent,):
            groups.setdefault(key, []).append(line)
    rows = [heads, *(_row(key, groups[key]) for key in sorted(groups))]
    widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(key: str, lines: list[Line]) -> list[str]:
    counts = [
        (x.kills, x.starts, x.wanted, x.acts, x.twice, x.lost, x.stuck, x.settled, x.again) for x in lines
    ]
    sums = [sum(each) for each in zip(*counts, strict=True)]
    failed = sum(bool(line.failures) for line in lines)
    return [key, *map(str, (len(lines), failed, *sums)), f"{max(line.took_s for line in lines):.0f} s"]
