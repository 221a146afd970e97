"""What importing outlast costs above a bare interpreter, and what `outlast --version` costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import Bench, environment, importable
from benchmarks.report import Bar, Section, number

IMPORT_MAX_MS = 60.0
VERSION_MAX_MS = 120.0
OURS = "import outlast"
VERSION = "outlast --version"
BARE = "python -c pass"


@dataclass(frozen=True, slots=True)
class Spent:
    cpu_ms: float
    wall_ms: float


def commands() -> dict[str, list[str]]:
    def python(code: str) -> list[str]:
        return [sys.executable, "-P", "-c", code]

    return {
        BARE: python("pass"),
        OURS: python(OURS),
        VERSION: [str(Path(sys.executable).with_name("outlast")), "--version"],
        "import langgraph.graph": python("import langgraph.graph, langgraph.checkpoint.sqlite"),
        "import dbos": python("import dbos"),
        "import absurd_sdk": python("import absurd_sdk"),
    }


def absent(name: str) -> str | None:
    package = "outlast" if name == VERSION else name.removeprefix("import ").partition(".")[0]
    return None if name == BARE or importable(package) else f"not installed: {package}"


def spend(command: list[str], env: dict[str, str]) -> Spent:
    started = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter() - started) * 1e3
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"exit {process.returncode}")
    return Spent((usage.ru_utime + usage.ru_stime) * 1e3, wall_ms)


def run_rounds(bench: Bench, rounds: int) -> tuple[dict[str, list[Spent]], dict[str, str]]:
    """The slow peers only in the first rounds; the very first round warms the caches."""
    env = environment(bench.folder("import")) | {"PYTHONPATH": ""}
    found: dict[str, list[Spent]] = {name: [] for name in commands()}
    why_not = {name: reason for name in commands() if (reason := absent(name)) is not None}
    for turn in range(rounds + 1):
        for name, command in commands().items():
            if name in why_not or (turn > 5 and name not in (BARE, OURS, VERSION)):
                continue
            try:
                spent = spend(command, env)
            except (OSError, RuntimeError) as failure:
                why_not[name] = str(failure)
                continue
            if turn > 0:
                found[name].append(spent)
    return found, why_not


def measure(bench: Bench) -> Section:
    found, why_not = run_rounds(bench, max(20, bench.rounds_of(full=20, quick=20)))
    section = Section("import: the cost of being there", ["", "CPU ms", "above bare", "wall ms"])
    bare = found[BARE]
    above: dict[str, float] = {}
    for name, spent in found.items():
        if name in why_not:
            section.absent(name, why_not[name])
            continue
        above[name] = statistics.median(
            one.cpu_ms - base.cpu_ms for one, base in zip(spent, bare, strict=False)
        )
        wall_ms = statistics.median(one.wall_ms for one in spent)
        cpu_ms = statistics.median(one.cpu_ms for one in spent)
        section.rows.append(
            [name, number(cpu_ms), "–" if name == BARE else number(above[name]), number(wall_ms)]
        )
        section.data[name] = {"cpu_ms": cpu_ms, "above_bare_ms": above[name], "wall_ms": wall_ms}
    version_ms = section.data.get(VERSION, {}).get("wall_ms")
    section.bars = [
        Bar("import outlast: CPU above bare", above.get(OURS), IMPORT_MAX_MS, "ms"),
        Bar("outlast --version: wall", version_ms, VERSION_MAX_MS, "ms"),
    ]
    return section
