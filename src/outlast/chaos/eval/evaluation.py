"""`outlast chaos eval`: kills every task under every design at every instant, resumes it, compares it with its twin."""

import contextlib
import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast import faults
from outlast.chaos.eval import pool
from outlast.chaos.eval.designs import DESIGNS
from outlast.chaos.eval.trial import Bench, Final, Trial
from outlast.chaos.tasks.catalog import TASKS
from outlast.core.text import did_you_mean
from outlast.errors import UsageError

INSTANTS_MAX = 5_000
SECOND_KILL_OF = 6  # one kill in so many is followed by another during the resume
SECOND_KILL_WITHIN = 24
QUICK_KILLS = {"prompt": 2, "act-then-save": 2, "outlast": 6}
PARTS = {"outlast": 3}  # long units are split so that all workers end together
COLD_STARTS, COLD_STARTS_QUICK = 6, 2
FAILURES_MAX = 50
MEMORY, MEMORY_BYTES_MIN = Path("/dev/shm"), 256 << 20
NAIVE = ("prompt", "act-then-save")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of an evaluation. The seed determines everything random."""

    seed: int
    tasks: tuple[str, ...] = tuple(TASKS)
    designs: tuple[str, ...] = tuple(DESIGNS)
    jobs: int = 2
    quick: bool = False
    folder: Path | None = None  # where the trials' stores are; None: in memory if quick, else on disk


@dataclass(slots=True)
class Row:
    """One design in the table. Times run from the start of a fresh interpreter to the first new beat."""

    design: str
    trials: int = 0
    survived: int = 0
    duplicates: int = 0
    lost: int = 0
    in_doubt: int = 0
    unstopped: int = 0
    beats_lost: int = 0
    beats_lost_max: int = 0
    paid_twice: int = 0
    decisions_repeated: int = 0
    cold_start_ms: list[float] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        self.trials += 1
        self.survived += trial.survived
        self.duplicates += trial.duplicates
        self.lost += trial.lost
        self.in_doubt += trial.doubts
        self.unstopped += trial.unstopped
        self.beats_lost += trial.beats_lost
        self.beats_lost_max = max(self.beats_lost_max, trial.beats_lost)
        self.paid_twice += trial.paid_twice
        self.decisions_repeated += trial.decisions_repeated


@dataclass(slots=True)
class Report:
    """The whole evaluation: rows, failures, and whether it proves anything."""

    plan: Plan
    rows: dict[str, Row]
    failures: list[Trial] = field(default_factory=list)
    failed: int = 0
    examples: dict[str, Trial] = field(default_factory=dict)  # of how the other designs fail
    points_met: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def bars(self) -> list[tuple[str, bool]]:
        """The bars that must hold, and whether they did."""
        bars: list[tuple[str, bool]] = []
        if (row := self.rows.get("outlast")) is not None:
            bars += [
                (
                    "outlast: every run survives, its final state equal to the twin's",
                    row.survived == row.trials,
                ),
                ("outlast: no effect is done twice, none is lost", row.duplicates == row.lost == 0),
                ("outlast: no beat is repeated but the one in flight", row.beats_lost == 0),
                ("outlast: no recorded answer is asked for again", row.paid_twice == 0),
                (
                    "outlast: an act that can be neither reissued nor probed stops in doubt",
                    row.unstopped == 0,
                ),
            ]
        for name in NAIVE:
            if (row := self.rows.get(name)) is not None:
                fails = row.survived < row.trials and row.duplicates > 0
                bars.append((f"{name}: fails as in life, else this proves nothing", fails))
        return bars

    @property
    def passed(self) -> bool:
        return all(holds for _, holds in self.bars())


def check_names(tasks: tuple[str, ...], designs: tuple[str, ...]) -> None:
    """Raise UsageError for an unknown task or design."""
    for given, known, what in ((tasks, TASKS, "task"), (designs, DESIGNS, "design")):
        for name in given:
            if name not in known:
                raise UsageError(
                    f"no such {what}: {name}",
                    hint=did_you_mean(name, known) or f"give one of {', '.join(known)}",
                )


def evaluate(plan: Plan, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Run everything and count. Calls `progress` with the number of trials so far."""
    check_names(plan.tasks, plan.designs)
    began = time.monotonic()
    report = Report(plan, {design: Row(design) for design in plan.designs})
    folder = plan.folder or (_memory() if plan.quick else None)
    with tempfile.TemporaryDirectory(prefix="outlast-chaos-", dir=folder) as base:
        with contextlib.closing(pool.run(_units(plan), _work, Path(base), plan.jobs)) as trials:
            for done, value in enumerate(trials, start=1):
                _take(report, Trial.from_dict(value))
                progress(done)
        for design, ms in _cold_starts(plan, Path(base)):
            report.rows[design].cold_start_ms.append(ms)
    report.seconds = time.monotonic() - began
    return report


def _memory() -> Path | None:
    """A file system in memory: SIGKILL loses nothing that was written, so the result is the same, and sooner."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    stat = os.statvfs(MEMORY)
    return MEMORY if stat.f_bavail * stat.f_frsize > MEMORY_BYTES_MIN else None


def replay(word: str) -> Trial:
    """Repeat one trial: TASK:DESIGN:N, or N+M for a second kill during the resume; with N = 0 nothing is killed."""
    task, design, kills = parse_replay(word)
    with tempfile.TemporaryDirectory(prefix="outlast-chaos-") as base:
        bench = Bench(Path(base))
        try:
            twin = bench.reference(task)
            whole, journal = bench.run(task, design, (), twin)
            return bench.run(task, design, kills, twin, journal)[0] if kills else whole
        finally:
            bench.close()


def parse_replay(word: str) -> tuple[str, str, tuple[int, ...]]:
    """The parts of a replay word."""
    task, design, numbers = [*word.split(":"), "", ""][:3]
    check_names((task,), (design,))
    try:
        kills = tuple(int(number) for number in numbers.split("+"))
    except ValueError:
        kills = (-1,)
    if min(kills) < 0 or word.count(":") != 2:
        raise UsageError(
            f"no such trial: {word}",
            hint="give TASK:DESIGN:N, as a failing trial prints it; N counts the instants from 1",
        )
    return task, design, tuple(kill for kill in kills if kill)


def _take(report: Report, trial: Trial) -> None:
    report.rows[trial.design].add(trial)
    report.points_met |= {name for name in (*trial.instants, *trial.at) if name in faults.POINTS}
    if trial.design in NAIVE:
        if not trial.survived and trial.kills:
            report.examples.setdefault(trial.design, trial)
    elif trial.wrong or trial.beats_lost or trial.paid_twice or trial.unstopped:
        report.failed += 1
        if len(report.failures) < FAILURES_MAX:
            report.failures.append(trial)


# -- the trials of one task under one design -----------------------------------------------------------------------


def _units(plan: Plan) -> list[dict[str, Any]]:
    """The work in pieces, the long ones first."""
    units = []
    for task, design in itertools.product(plan.tasks, plan.designs):
        parts = 1 if plan.quick else PARTS.get(design, 1)
        for part in range(parts):
            unit = {"task": task, "design": design, "part": part, "parts": parts}
            units.append(unit | {"seed": plan.seed, "quick": plan.quick})
    return sorted(units, key=lambda unit: (unit["design"] != "outlast", -_weight(TASKS[unit["task"]])))


def _weight(task: Any) -> int:
    steps = len(task.script.plan) if isinstance(task.script.plan, list) else 4
    return steps + 10 * any(fault.mode.startswith("late") for fault in task.faults)


def _work(bench: Bench, unit: dict[str, Any]) -> Iterator[Any]:
    task, design = unit["task"], unit["design"]
    twin = bench.reference(task)
    whole, journal = bench.run(task, design, (), twin)
    if unit["part"] == 0:
        yield whole.as_dict()
    rng = random.Random(f"{unit['seed']} {task} {design} {unit['part']}")
    if unit["quick"]:
        yield from _sample(bench, whole, twin, journal, rng)
        return
    for number in range(1 + unit["part"], INSTANTS_MAX, unit["parts"]):
        trial, _ = bench.run(task, design, (number,), twin, journal)
        yield trial.as_dict()
        if not trial.at:
            return  # it met none: there are no more instants to kill at
        if rng.randrange(SECOND_KILL_OF) == 0:
            kills = (number, rng.randint(1, SECOND_KILL_WITHIN))
            yield bench.run(task, design, kills, twin, journal)[0].as_dict()
    raise AssertionError(f"{task} under {design} meets more than {INSTANTS_MAX} instants")


def _sample(
    bench: Bench, whole: Trial, twin: Final, journal: dict[str, Any], rng: random.Random
) -> Iterator[Any]:
    """Some instants, preferably of different names; one of them with a second kill."""
    wanted = QUICK_KILLS[whole.design]
    numbered = list(enumerate(whole.instants, start=1))
    rng.shuffle(numbered)
    by_name = {name: number for number, name in numbered}
    chosen = rng.sample(sorted(by_name.values()), min(wanted, len(by_name)))
    kills = [(number,) for number in chosen] + [(chosen[0], rng.randint(1, SECOND_KILL_WITHIN))]
    for each in kills:
        yield bench.run(whole.task, whole.design, each, twin, journal)[0].as_dict()


# -- cold starts ---------------------------------------------------------------------------------------------------


def _cold_starts(plan: Plan, base: Path) -> Iterator[tuple[str, float]]:
    """Kill halfway, start a fresh interpreter, and time it until it begins a beat that was not finished.

    A task without a beat left after that shows nothing; take the next one.
    """
    count = COLD_STARTS_QUICK if plan.quick else COLD_STARTS
    tasks = random.Random(f"{plan.seed} cold").sample(plan.tasks, len(plan.tasks))
    (base / "cold").mkdir()
    bench = Bench(base / "cold")
    try:
        for design in plan.designs:
            timed = (ms for task in tasks if (ms := bench.cold_start(task, design)) is not None)
            yield from ((design, ms) for ms in itertools.islice(timed, count))
    finally:
        bench.close()


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
