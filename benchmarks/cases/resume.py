"""From the start of a process to its first new durable step, after SIGKILL ended the process before it."""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import SUBJECTS, Bench, SubjectFailed, Worker
from benchmarks.report import Bar, Section, number

STEPS_BEFORE_DEATH = 3
MORE_THAN_SHORT_MAX_MS = 20.0
WHOLE_MAX_S = 0.25
TIMES_PEERS_MIN = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A subject with a history of so many steps."""

    name: str
    steps: int


@dataclass(slots=True)
class Results:
    times_s: dict[Entry, list[float]]
    absent: dict[Entry, str]


def lengths(bench: Bench) -> tuple[int, int, int]:
    """The short, the peers' and the long history."""
    return (100, bench.pick(full=10_000, quick=1_000), bench.pick(full=100_000, quick=10_000))


def resume_once(bench: Bench, entry: Entry, folder: Path) -> float:
    """Resume what was killed, and leave it killed again in the middle of a step."""
    worker = Worker(bench, entry.name, "die", STEPS_BEFORE_DEATH, folder)
    try:
        first_at_ns = worker.answer()["first_at_ns"]
        worker.died()
    finally:
        worker.close()
    return float(first_at_ns - worker.started_at_ns) / 1e9


def prepare(bench: Bench, entries: list[Entry], results: Results) -> dict[Entry, Path]:
    folders = {}
    for entry in entries:
        folder = bench.folder(f"resume-{entry.name}-{entry.steps}")
        try:
            shutil.copytree(bench.history(entry.name, entry.steps), folder, dirs_exist_ok=True)
            resume_once(bench, entry, folder)  # fills the page cache, and makes a fresh kill on this disk
        except SubjectFailed as failure:
            results.absent[entry] = str(failure)
        else:
            folders[entry] = folder
    return folders


def run_rounds(bench: Bench, entries: list[Entry], rounds: int) -> Results:
    results = Results({}, {})
    folders = prepare(bench, entries, results)
    results.times_s = {entry: [] for entry in folders}
    for turn in range(rounds):
        for entry in list(folders) if turn % 2 == 0 else list(reversed(folders)):
            results.times_s[entry].append(resume_once(bench, entry, folders[entry]))
        bench.say(f"  round {turn + 1} of {rounds}")
    return results


def measure(bench: Bench) -> Section:
    short, middle, long = lengths(bench)
    ours = [Entry("outlast", steps) for steps in (short, middle, long)]
    peers = [Entry(name, middle) for name in ("langgraph", "dbos")]
    results = run_rounds(bench, ours + peers, bench.rounds_of(full=7, quick=5))
    section = Section(
        "resume: killed by SIGKILL, process started → first new durable step",
        ["", "history", "median s", "fastest", "slowest"],
        notes=["from before exec, so the interpreter's start and all imports are in it; page cache warm."],
    )
    for entry in ours + peers:
        label = SUBJECTS[entry.name].label
        times = results.times_s.get(entry)
        if times:
            figures = (statistics.median(times), min(times), max(times))
            section.rows.append([label, f"{entry.steps:,}", *(f"{figure:.3f}" for figure in figures)])
        else:
            section.absent(f"{label} {number(entry.steps)}", results.absent[entry])
    section.bars = bars(results, ours, peers)
    section.data = {
        "times_s": {f"{entry.name}@{entry.steps}": times for entry, times in results.times_s.items()},
        "absent": {f"{entry.name}@{entry.steps}": reason for entry, reason in results.absent.items()},
    }
    return section


def bars(results: Results, ours: list[Entry], peers: list[Entry]) -> list[Bar]:
    short, middle, long = ours
    times = results.times_s
    more_ms = whole_s = None
    if short in times and long in times:
        pairs = zip(times[long], times[short], strict=True)
        more_ms = statistics.median((slow - fast) * 1e3 for slow, fast in pairs)
        whole_s = max(statistics.median(times[entry]) for entry in ours)
    found = [
        Bar(
            f"resume: {long.steps:,} beats cost more than {short.steps}",
            more_ms,
            MORE_THAN_SHORT_MAX_MS,
            "ms",
        ),
        Bar("resume: the whole, from exec", whole_s, WHOLE_MAX_S, "s"),
    ]
    for peer in peers:
        faster = None
        if middle in times and peer in times:
            pairs = zip(times[peer], times[middle], strict=True)
            faster = statistics.median(theirs / mine for theirs, mine in pairs)
        what = f"resume: faster than {SUBJECTS[peer.name].label} at {peer.steps:,}"
        found.append(Bar(what, faster, TIMES_PEERS_MIN, "×", at_least=True))
    return found
