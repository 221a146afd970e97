"""fsync and fdatasync calls per step, counted by strace between two marks that the subject leaves."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import SUBJECTS, Bench, SubjectFailed, Worker
from benchmarks.report import Bar, Section

SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync")
MARK = "getpriority("
STEPS = 100
WARM_UP = 20
# A checkpoint of the WAL, spread over the steps, does not count as a sync too many.
SLACK = 0.1

# A step with it, and the syncs the whole step may cost.
EXPECTED = {
    "outlast": ("outlast: done", 1),
    "outlast.decide_steps": ("outlast: decide, done", 2),
    "outlast.lazy_steps": ("outlast: lazy decide, done", 1),
    "outlast.act_steps": ("outlast: act, done", 3),
}
PEERS = ("raw_append", "raw_sqlite", "langgraph", "dbos")


@dataclass(frozen=True, slots=True)
class Traced:
    """The calls between the marks."""

    lines: list[str]
    steps: int


def strace_missing() -> str | None:
    """Why calls cannot be traced here, or None: strace may be installed and still not be allowed."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"strace: {tried.stderr.strip()}"


def trace(bench: Bench, name: str, calls: str, steps: int) -> Traced:
    reason = strace_missing() or bench.unavailable(name)
    if reason is not None:
        raise SubjectFailed(reason)
    folder = bench.folder(f"trace-{name}")
    output = folder / "strace.txt"
    prefix = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", f"trace={calls},getpriority", "-e", "signal=none"]
    worker = Worker(bench, name, "laps", WARM_UP, folder, [*prefix, "-o", str(output)])
    try:
        worker.answer()
        worker.go(steps)
    finally:
        worker.close()
    return Traced(between_marks(output), steps)


def between_marks(output: Path) -> list[str]:
    """The first mark starts the slice and the second ends it."""
    lines = output.read_text(errors="replace").splitlines()
    marks = [index for index, line in enumerate(lines) if MARK in line]
    assert len(marks) >= 2, f"strace shows {len(marks)} marks where a slice leaves two"
    return lines[marks[0] + 1 : marks[1]]


def syncs_per_step(traced: Traced) -> float:
    # With several threads strace shows a call twice, unfinished and resumed; only the first has the bracket.
    begun = sum(any(f" {call}(" in line for call in SYNCS) for line in traced.lines)
    return begun / traced.steps


def measure(bench: Bench) -> Section:
    section = Section("syncs: fsync and fdatasync calls per step", ["", "syncs/step", "expected"])
    for name, (label, expected) in EXPECTED.items():
        found = one_row(bench, section, name, label, str(expected))
        section.bars.append(Bar(f"syncs: {label}", found, expected + SLACK, "a beat", floor=expected))
    for name in PEERS:
        one_row(bench, section, name, SUBJECTS[name].label, "–")
    return section


def one_row(bench: Bench, section: Section, name: str, label: str, expected: str) -> float | None:
    try:
        found = syncs_per_step(trace(bench, name, ",".join(SYNCS), STEPS))
    except SubjectFailed as failure:
        section.absent(label, str(failure))
        return None
    section.rows.append([label, f"{found:.2f}", expected])
    section.data[name] = found
    return found
