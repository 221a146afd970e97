"""The result of a benchmark, and how it is shown: as a table on the terminal, as Markdown, as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise with a number. If it was not measured, it was not kept."""

    what: str
    measured: float | None
    limit: float
    unit: str
    at_least: bool = False
    floor: float | None = None  # a lower value is wrong as well: with a sync too few it is not durable

    @property
    def passed(self) -> bool:
        if self.measured is None or (self.floor is not None and self.measured < self.floor):
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "pass" if self.passed else "FAIL"

    def cells(self) -> list[str]:
        sign = "≥" if self.at_least else "≤" if self.floor is None else f"{number(self.floor)} to"
        measured = "–" if self.measured is None else f"{number(self.measured)} {self.unit}"
        return [self.what, measured, f"{sign} {number(self.limit)} {self.unit}", self.verdict]


@dataclass(slots=True)
class Section:
    """The result of one benchmark."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def absent(self, label: str, reason: str) -> None:
        """A row for a subject that could not be measured: listed, not hidden."""
        self.rows.append([label, f"not measured: {reason}"])


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """The median with its quartiles."""
    if len(values) < 2:
        return number(values[0]) if values else "–"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{number(middle)} [{number(low)}–{number(high)}]"


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


BAR_COLUMNS = ["bar", "measured", "limit", ""]


def as_text(columns: list[str], rows: list[list[str]]) -> str:
    """Aligned columns; a row with only two cells is a remark and does not widen them."""
    whole = [row for row in [columns, *rows] if len(row) == len(columns)]
    widths = [max(len(row[place]) for row in whole) for place in range(len(columns))]
    widths[0] = max(len(row[0]) for row in [columns, *rows])
    lines = []
    for row in [columns, *rows]:
        first, rest = row[0].ljust(widths[0]), row[1:]
        if len(row) == len(columns):
            rest = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def as_markdown(columns: list[str], rows: list[list[str]]) -> str:
    padded = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
    table = [columns, ["---"] * len(columns), *padded]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def terminal(sections: list[Section]) -> str:
    parts = []
    for section in sections:
        parts.append(f"{section.title}\n{as_text(section.columns, section.rows)}")
        parts.extend(section.notes)
        parts.append("")
    bars = [bar.cells() for section in sections for bar in section.bars]
    if bars:
        parts.append(as_text(BAR_COLUMNS, bars))
    return "\n".join(parts)


def markdown(sections: list[Section], machine: dict[str, str]) -> str:
    parts = ["# Results", "", "Written by `./dev bench --write`; how it is measured is in README.md.", ""]
    parts += [f"- {key}: {value}" for key, value in machine.items()]
    bars = [bar.cells() for section in sections for bar in section.bars]
    parts += ["", "## Bars", "", as_markdown(BAR_COLUMNS, bars)]
    for section in sections:
        parts += ["", f"## {section.title}", "", as_markdown(section.columns, section.rows)]
        parts += ["", *section.notes] if section.notes else []
    return "\n".join(parts) + "\n"
