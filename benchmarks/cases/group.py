"""A hundred async runs at once, which share commits, against raw group commit at the same batch size.

`raw_sqlite` sets the bar: a loop of transactions of a hundred rows. `raw_async` is what async code can reach."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.cases.step import rate
from benchmarks.driver import SUBJECTS, Bench, take_turns
from benchmarks.report import Bar, Section, number, spread

Answers = dict[str, list[dict[str, Any]]]

NAMES = ("raw_sqlite", "raw_async", "outlast", "langgraph", "dbos")
RUNS = 100
SHARE_OF_RAW_MIN = 0.5
TIMES_PEERS_MIN = 8.0


def measure(bench: Bench) -> Section:
    beats = bench.pick(full=50, quick=10)
    turns = take_turns(bench, dict.fromkeys(NAMES, beats), "races", RUNS, bench.rounds_of(full=5, quick=5))
    section = Section(
        f"group: {RUNS} runs at once × {beats} steps",
        ["", "steps/s", "CPU µs", "user µs", "B written", "× slower than raw", "than raw async"],
        notes=[
            f"raw: a loop of transactions of {RUNS} rows. raw async: {RUNS} tasks, each waiting for its row's commit.",
            "opening the runs and one warm-up step each are not timed.",
        ],
    )
    for name in NAMES:
        if name in turns.answers:
            section.rows.append(row(name, turns.answers))
        else:
            section.absent(SUBJECTS[name].label, turns.absent[name])
    section.bars = bars(turns.answers)
    section.data = {"answers": turns.answers, "absent": turns.absent, "runs": RUNS, "beats": beats}
    return section


def row(name: str, answers: Answers) -> list[str]:
    got = answers[name]
    steps = sum(answer["steps"] for answer in got)
    cpu_s, user_s, written = (
        sum(answer[key] for answer in got) / steps for key in ("cpu_s", "user_s", "written_bytes")
    )
    return [
        SUBJECTS[name].label,
        number(statistics.median(rate(answer) for answer in got)),
        number(cpu_s * 1e6),
        number(user_s * 1e6),
        number(written),
        spread(ratios(answers, "raw_sqlite", name)),
        spread(ratios(answers, "raw_async", name)),
    ]


def ratios(answers: Answers, above: str, below: str) -> list[float]:
    """How many times faster one was than the other, round by round; empty if one of them is absent."""
    pairs = zip(answers.get(above, []), answers.get(below, []), strict=False)
    return [rate(fast) / rate(slow) for fast, slow in pairs]


def bars(answers: Answers) -> list[Bar]:
    shares = ratios(answers, "outlast", "raw_sqlite")
    over_peers = [found for peer in ("langgraph", "dbos") if (found := ratios(answers, "outlast", peer))]
    over_best = [min(turn) for turn in zip(*over_peers, strict=True)]
    peers = "100 runs: against the best of DBOS and LangGraph"
    return [
        Bar("100 runs: share of raw group commit", median(shares), SHARE_OF_RAW_MIN, "× raw", at_least=True),
        Bar(peers, median(over_best), TIMES_PEERS_MIN, "×", at_least=True),
    ]


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
