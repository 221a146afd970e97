"""Sequential durable steps with results of 200 bytes, against a raw insert in the same round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import chain
from typing import Any

from benchmarks.driver import SUBJECTS, Bench, Turns, take_turns
from benchmarks.report import Bar, Section, number, percentile, spread

# Slow subjects take fewer steps per turn: a round should be short, so that all share its noise.
SLICES = {
    "raw_append": 400,
    "raw_sqlite": 400,
    "outlast": 400,
    "langgraph": 80,
    "dbos": 40,
    "raw_postgres": 200,
    "absurd": 100,
    "dbos_postgres": 40,
}
WARM_UP = 60
RATE_MIN = 0.85
USER_CPU_ABOVE_RAW_MAX_US = 40


@dataclass(frozen=True, slots=True)
class Figures:
    """One subject's rounds, summed up. CPU is a sum over all rounds: the kernel's tick is too coarse for one."""

    rate: float
    p50_ms: float
    p99_ms: float
    user_us: float
    cpu_us: float
    written_bytes: float
    ratios: list[float]

    @classmethod
    def of(cls, answers: list[dict[str, Any]], base: list[dict[str, Any]]) -> Figures:
        laps_ms = [lap / 1e6 for lap in chain.from_iterable(answer["laps_ns"] for answer in answers)]
        steps = len(laps_ms)
        return cls(
            rate=statistics.median(rate(answer) for answer in answers),
            p50_ms=percentile(laps_ms, 50),
            p99_ms=percentile(laps_ms, 99),
            user_us=sum(answer["user_s"] for answer in answers) / steps * 1e6,
            cpu_us=sum(answer["cpu_s"] for answer in answers) / steps * 1e6,
            written_bytes=sum(answer["written_bytes"] for answer in answers) / steps,
            ratios=[rate(raw) / rate(answer) for raw, answer in zip(base, answers, strict=True)],
        )

    def cells(self, label: str, *, is_base: bool, client_only: bool) -> list[str]:
        written = "–" if client_only else number(self.written_bytes)
        times_raw = "1" if is_base else spread(self.ratios)
        figures = [self.rate, self.p50_ms, self.p99_ms, self.cpu_us, self.user_us]
        return [label, *(number(value) for value in figures), written, times_raw]


def rate(answer: dict[str, Any]) -> float:
    return float(answer["steps"] / answer["wall_s"])


def base_of(name: str) -> str:
    return "raw_postgres" if SUBJECTS[name].postgres else "raw_sqlite"


def figures(turns: Turns) -> dict[str, Figures]:
    answers = turns.answers
    return {
        name: Figures.of(got, answers[base_of(name)])
        for name, got in answers.items()
        if base_of(name) in answers
    }


def measure(bench: Bench) -> Section:
    turns = take_turns(bench, SLICES, "laps", WARM_UP, bench.rounds_of(full=25, quick=7))
    found = figures(turns)
    section = Section(
        "step: one durable step after another, 200-byte results",
        ["", "steps/s", "p50 ms", "p99 ms", "CPU µs", "user µs", "B written", "× slower than raw"],
        notes=[
            "CPU is the client's process; the PostgreSQL subjects are held against the raw PostgreSQL insert."
        ],
    )
    for name in SLICES:
        subject = SUBJECTS[name]
        if name in found:
            is_base = name == base_of(name)
            section.rows.append(
                found[name].cells(subject.label, is_base=is_base, client_only=subject.postgres)
            )
        else:
            section.absent(subject.label, turns.absent.get(name, "its baseline is absent"))
    section.bars = bars(found)
    section.data = {
        name: {slot: getattr(figure, slot) for slot in Figures.__slots__} for name, figure in found.items()
    } | {"absent": turns.absent}
    return section


def bars(found: dict[str, Figures]) -> list[Bar]:
    ours, raw = found.get("outlast"), found.get("raw_sqlite")
    share = above = None
    if ours and raw:
        share = statistics.median(1 / ratio for ratio in ours.ratios)
        above = ours.user_us - raw.user_us
    return [
        Bar("one done: share of the raw rate", share, RATE_MIN, "× raw", at_least=True),
        Bar("one done: user CPU above raw", above, USER_CPU_ABOVE_RAW_MAX_US, "µs"),
    ]
