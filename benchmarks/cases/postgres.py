"""A store in PostgreSQL beside a raw insert, absurd and DBOS on the same server: one by one, and 50 runs of a process at once."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.cases.step import Figures, rate
from benchmarks.driver import SUBJECTS, Bench, take_turns
from benchmarks.report import Bar, Section, number, spread

Answers = dict[str, list[dict[str, Any]]]

SLICES = {"raw_postgres": 200, "outlast_postgres": 200, "absurd": 100, "dbos_postgres": 40}
GROUP = ("raw_postgres", "outlast_postgres")
WARM_UP = 60
RUNS = 50
SHARE_OF_RAW_MIN = 0.75
SHARE_OF_RAW_GROUP_MIN = 0.5
TIMES_ABSURD_MIN = 2.0
TIMES_DBOS_MIN = 4.0


def measure(bench: Bench) -> Section:
    section = Section(
        "postgres: a store in PostgreSQL, 200-byte results",
        ["", "steps/s", "p50 ms", "p99 ms", "CPU µs", "user µs", "B written", "× slower than raw"],
        notes=[
            "CPU is the client's process, without the server's. All subjects use one server with its defaults, fsync on.",
            f"{RUNS} runs: of one process, at once, held against one insert of {RUNS} rows.",
        ],
    )
    turns = take_turns(bench, SLICES, "laps", WARM_UP, bench.rounds_of(full=25, quick=7))
    raw = turns.answers.get("raw_postgres", [])
    for name in SLICES:
        if name in turns.answers and raw:
            found = Figures.of(turns.answers[name], raw)
            is_base = name == "raw_postgres"
            section.rows.append(found.cells(SUBJECTS[name].label, is_base=is_base, client_only=True))
        else:
            section.absent(SUBJECTS[name].label, turns.absent.get(name, "its baseline is absent"))
    beats = bench.pick(full=50, quick=20)
    group = take_turns(bench, dict.fromkeys(GROUP, beats), "races", RUNS, bench.rounds_of(full=9, quick=5))
    for name in GROUP:
        if name in group.answers:
            section.rows.append(_group_row(name, group.answers))
        else:
            section.absent(f"{SUBJECTS[name].label}, {RUNS} runs", group.absent[name])
    section.bars = bars(turns.answers, group.answers)
    section.data = {
        "one": turns.answers, "group": group.answers, "absent": turns.absent | group.absent, "runs": RUNS, "beats": beats
    }  # fmt: skip
    return section


def _group_row(name: str, answers: Answers) -> list[str]:
    got = answers[name]
    steps = sum(answer["steps"] for answer in got)
    cpu_us, user_us = (sum(answer[key] for answer in got) / steps * 1e6 for key in ("cpu_s", "user_s"))
    rates = number(statistics.median(rate(answer) for answer in got))
    times = "1" if name == "raw_postgres" else spread(ratios(answers, "raw_postgres", name))
    label = f"{SUBJECTS[name].label}, {RUNS} runs"
    return [label, rates, "–", "–", number(cpu_us), number(user_us), "–", times]


def ratios(answers: Answers, above: str, below: str) -> list[float]:
    """How many times faster one was than the other, round by round; empty if one of them is absent."""
    pairs = zip(answers.get(above, []), answers.get(below, []), strict=False)
    return [rate(fast) / rate(slow) for fast, slow in pairs]


def bars(one: Answers, group: Answers) -> list[Bar]:
    ours = "outlast_postgres"
    wanted = (
        ("one by one: share of a raw insert", one, "raw_postgres", SHARE_OF_RAW_MIN, "× raw"),
        (f"{RUNS} runs: share of a raw insert of {RUNS} rows", group, "raw_postgres", SHARE_OF_RAW_GROUP_MIN, "× raw"),
        ("one by one: against absurd", one, "absurd", TIMES_ABSURD_MIN, "×"),
        ("one by one: against DBOS", one, "dbos_postgres", TIMES_DBOS_MIN, "×"),
    )  # fmt: skip
    return [
        Bar(what, _median(ratios(answers, ours, peer)), limit, unit, at_least=True)
        for what, answers, peer, limit, unit in wanted
    ]


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
