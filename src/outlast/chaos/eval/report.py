"""The evaluation as text or as a document: its table, its bars, and how to replay a failing trial."""

from typing import Any

from outlast import faults
from outlast.chaos.eval.evaluation import Report, Row, median
from outlast.chaos.eval.trial import Trial

FAILURES_SHOWN = 20
HEADER = (
    "design", "trials", "survived", "done twice", "lost", "in doubt", "beats lost", "paid twice", "asked again",
    "cold start",
)  # fmt: skip
LEGEND = (
    "survived: finished with the same files, results and effects as an uninterrupted twin",
    "done twice, lost: effects, as the external witness counted them",
    "in doubt: stops for a person, where the far side can neither dedupe nor be looked up",
    "beats lost: repeated beyond the one in flight; in brackets the most in one trial",
    "paid twice: recorded answers asked for again; asked again: answers that were never recorded",
    "cold start: fresh interpreter to first new beat, median (most)",
)


def table(report: Report) -> list[list[str]]:
    """The rows, header first."""
    return [list(HEADER), *(_cells(row) for row in report.rows.values())]


def _cells(row: Row) -> list[str]:
    share = f"{row.survived:,} ({100 * row.survived // max(1, row.trials)} %)"
    numbers = (row.duplicates, row.lost, row.in_doubt)
    return [
        row.design, f"{row.trials:,}", share, *(f"{number:,}" for number in numbers),
        f"{row.beats_lost:,} ({row.beats_lost_max})", f"{row.paid_twice:,}", f"{row.decisions_repeated:,}", _cold(row),
    ]  # fmt: skip


def _cold(row: Row) -> str:
    middle = median(row.cold_start_ms)
    return "-" if middle is None else f"{middle:.0f} ms ({max(row.cold_start_ms):.0f})"


def verdict(report: Report) -> list[str]:
    """Each bar, and whether it held."""
    return [f"{'ok  ' if holds else 'FAIL'} {text}" for text, holds in report.bars()]


def failures(report: Report) -> list[str]:
    """A line for each failing trial, with the command that repeats it."""
    shown = [failure(trial, report.plan.seed) for trial in report.failures[:FAILURES_SHOWN]]
    more = report.failed - len(shown)
    return [*shown, *([f"… and {more:,} more"] if more > 0 else [])]


def failure(trial: Trial, seed: int) -> str:
    """One failing trial in words."""
    wrong = list(trial.wrong)
    wrong += [f"{trial.beats_lost} beats lost"] if trial.beats_lost else []
    wrong += [f"{trial.paid_twice} answers paid twice"] if trial.paid_twice else []
    wrong += ["killed inside a blind act, but did not stop in doubt"] if trial.unstopped else []
    at = ", then ".join(trial.at) or "never"
    reasons = "; ".join(text.strip().splitlines()[-1] for text in wrong)
    return f"{trial.replay} (killed at {at}): {reasons}; replay: outlast chaos eval --replay {trial.replay} --seed {seed}"


def document(report: Report) -> dict[str, Any]:
    """The whole report for another program."""
    plan = report.plan
    return {
        "seed": plan.seed,
        "quick": plan.quick,
        "tasks": list(plan.tasks),
        "passed": report.passed,
        "seconds": round(report.seconds, 1),
        "designs": {row.design: _row(row) for row in report.rows.values()},
        "bars": [{"bar": text, "holds": holds} for text, holds in report.bars()],
        "failed": report.failed,
        "failures": [trial_document(trial) for trial in report.failures],
        "examples": {design: trial_document(trial) for design, trial in report.examples.items()},
        "crash_points_met": sorted(report.points_met),
        "crash_points_elsewhere": sorted(set(faults.POINTS) - report.points_met),
    }


def _row(row: Row) -> dict[str, Any]:
    middle = median(row.cold_start_ms)
    return {
        "trials": row.trials,
        "survived": row.survived,
        "duplicate_effects": row.duplicates,
        "lost_effects": row.lost,
        "in_doubt": row.in_doubt,
        "not_stopped_in_doubt": row.unstopped,
        "beats_lost": row.beats_lost,
        "beats_lost_max": row.beats_lost_max,
        "decisions_paid_twice": row.paid_twice,
        "decisions_asked_again": row.decisions_repeated,
        "cold_start_ms_median": None if middle is None else round(middle, 1),
        "cold_start_ms_max": round(max(row.cold_start_ms), 1) if row.cold_start_ms else None,
    }


def trial_document(trial: Trial) -> dict[str, Any]:
    """One trial for another program."""
    return {"replay": trial.replay, "survived": trial.survived, **trial.as_dict()}
