"""Whether the predicted p90 of tokens and time holds: on invented histories of runs, each predicted at its start."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from benchmarks import histories
from benchmarks.driver import Bench
from benchmarks.histories import History
from benchmarks.report import Bar, Section, number
from outlast.core import forecast
from outlast.core.forecast import Range, Trial, Unit

HISTORIES = 20
RUNS = 500
COVERS_MIN, COVERS_MAX = 85.0, 95.0
LONG = 5_000
PREDICT_MAX_MS = 200.0
REPRICE_MAX_US = 100.0
LOSS_MAX = 0.9
BEATS_MIN = 4
NAMES: dict[Unit, str] = {"tokens": "tokens", "time_s": "time"}


def true_cost(history: History, trial: Trial, unit: Unit) -> int:
    return history.truth[trial.past.run][forecast.UNITS.index(unit)]


def covered(history: History, trials: Sequence[Trial], unit: Unit) -> float:
    """In % of all runs, also of those that somebody stopped: would p90 have been enough?"""
    return 100 * statistics.mean(true_cost(history, trial, unit) <= trial.p90 for trial in trials)


def plain(history: History, trials: Sequence[Trial], unit: Unit) -> float:
    """The loss without any knowledge of tasks: the p90 of the last runs that were over at the start."""
    finished = [past for past in history.runs if past.finished]
    losses = []
    for trial in trials:
        known = [past.cost(unit) for past in finished if past.ended_at <= trial.past.started_at][
            -forecast.WINDOW :
        ]
        bound = int(statistics.quantiles(known, n=10, method="inclusive")[-1])
        losses.append(forecast.pinball(true_cost(history, trial, unit), bound, 0.9))
    return statistics.mean(losses)


def again(history: History, trials: Sequence[Trial], done: float) -> tuple[int, int]:
    """Of the runs with a plan: how often the p90 given at this point of the plan was enough, and of how many."""
    hits = count = 0
    for trial in trials:
        beats, plan = history.beats[trial.past.run], trial.past.task.plan
        if plan is None or plan < BEATS_MIN:
            continue
        reached = int(plan * done)
        bound = forecast.reprice(
            Range(trial.p50, trial.p90), spent=sum(beats[:reached]), beats=reached, plan_total=plan
        )
        hits += true_cost(history, trial, "tokens") <= bound.p90
        count += 1
    return hits, count


def predict_ms(rounds: int) -> float:
    """CPU of learning from a long history and predicting one task, which `suggest` does each time."""
    history = histories.make(0, LONG).runs
    times = []
    for _ in range(rounds):
        started = time.process_time()
        forecast.Predictor(history, history[-1].ended_at).of(history[-1].task)
        times.append((time.process_time() - started) * 1e3)
    return statistics.median(times)


def reprice_us() -> float:
    started = time.process_time()
    for spent in range(1_000):
        forecast.reprice(Range(400_000, 1_200_000), spent=spent * 1_000, beats=7, plan_total=40)
    return (time.process_time() - started) * 1e3


def measure(bench: Bench) -> Section:
    section = Section(
        f"forecast: p90 of {HISTORIES} histories of {RUNS} runs, each run predicted at its start",
        ["", "covers % (lowest)", "median", "highest", "finished runs %", "loss × plain p90"],
        notes=[
            "covers: of all runs, by what they would have cost, in the worst and best history. finished runs: of those"
            " alone, as `outlast budget suggest --measure` sees them. plain: the p90 of the runs before, whatever they were."
        ],
    )
    made = [histories.make(seed, RUNS) for seed in range(HISTORIES)]
    for unit in forecast.UNITS:
        add_unit(section, made, unit)
    add_again(section, made)
    section.bars += [
        Bar(
            f"forecast: learn {LONG:,} runs and predict, CPU",
            predict_ms(bench.pick(full=9, quick=3)),
            PREDICT_MAX_MS,
            "ms",
        ),
        Bar("forecast: again at a beat, CPU", reprice_us(), REPRICE_MAX_US, "µs"),
    ]
    return section


def add_unit(section: Section, made: Sequence[History], unit: Unit) -> None:
    trials = [list(forecast.trials(history.runs, unit)) for history in made]
    covers = [covered(history, told, unit) for history, told in zip(made, trials, strict=True)]
    own = [100 * forecast.measure(history.runs, unit).p90_covers for history in made]
    losses = [
        statistics.mean(forecast.pinball(true_cost(history, trial, unit), trial.p90, 0.9) for trial in told)
        / plain(history, told, unit)
        for history, told in zip(made, trials, strict=True)
    ]
    loss = statistics.median(losses)
    figures = [min(covers), statistics.median(covers), max(covers)]
    section.rows.append(
        [NAMES[unit], *map(number, figures), f"{number(min(own))}–{number(max(own))}", number(loss)]
    )
    section.data[unit] = {"covers": covers, "covers_finished": own, "loss": losses}
    for name, each in (("", covers), (" of finished runs", own)):
        what = f"forecast: p90 of {NAMES[unit]}{name}, in the %s history"
        section.bars += [
            Bar(what % "worst", min(each), COVERS_MAX, "%", floor=COVERS_MIN),
            Bar(what % "best", max(each), COVERS_MAX, "%", floor=COVERS_MIN),
        ]
    section.bars.append(Bar(f"forecast: loss of p90 of {NAMES[unit]}, median", loss, LOSS_MAX, "× plain"))


def add_again(section: Section, made: Sequence[History]) -> None:
    trials = [list(forecast.trials(history.runs, "tokens")) for history in made]
    for done in (0.25, 0.5, 0.75):
        found = [again(history, told, done) for history, told in zip(made, trials, strict=True)]
        share = 100 * sum(hits for hits, _ in found) / sum(count for _, count in found)
        section.rows.append([f"tokens, {done:.0%} of the plan done", "", number(share), "", "", ""])
        section.data[f"again@{done}"] = share
        section.bars.append(
            Bar(f"forecast: p90 told at {done:.0%} of the plan", share, COVERS_MAX, "%", floor=COVERS_MIN)
        )
