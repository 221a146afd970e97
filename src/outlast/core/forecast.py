"""Forecasts of a run's need: p50 and p90 of tokens and of time, learnt from finished runs.

`Learner` describes the method; `inspect/forecast.py` reads the history from a store."""

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

HISTORY_MIN = 8  # with fewer finished runs nothing is learnt: the forecast is the default
WINDOW = 150
WORDS_MAX = 24
FILES_MAX = 64
HISTORY_MAX = 2_000  # the newest; older ones say little about today's models and prices
SIMILAR_AT = 0.45
NEAREST_MAX = 3
_WORD = re.compile(r"[^\W_]{2,}")
_EMPTY = frozenset(
    "the and for with that this from into not are was all its it is in on of to an by as at be or".split()
)
_Z90 = 1.2815515655446004

# The prior of an effect, as a variance of log cost.
_PRIOR = {"bias": 4.0, "plan": 0.25, "project": 0.3, "agent": 0.3, "model": 0.3, "word": 0.4, "file": 0.2}
_NOISE, _NOISE_MIN = 0.5, 0.001  # variance of the cost itself, until it is learnt
_WANDER = 0.0004  # how much an effect may change from one run that has it to the next
_CLIP = 2.5  # an error larger than so many standard deviations teaches no more than this
_PLAN_LOG = 2.0  # the log of a usual plan's length

Sureness = Literal["default", "guess", "rough", "fair", "good"]
Unit = Literal["tokens", "time_s"]
UNITS: tuple[Unit, ...] = ("tokens", "time_s")


class Range(msgspec.Struct, frozen=True):
    """A bound that suffices in half of the cases, and one that suffices in nine of ten."""

    p50: int
    p90: int


DEFAULT: dict[Unit, Range] = {"tokens": Range(500_000, 2_000_000), "time_s": Range(1_800, 7_200)}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a run before it starts; empty or None where unknown. `files`: those it is meant to touch."""

    goal: str
    plan: int | None = None
    project: str = ""
    agent: str = ""
    model: str = ""
    files: tuple[str, ...] = ()


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its cost. `finished`: it reached its goal; otherwise its cost is only a lower bound.

    A cost of 0 was not metered. `touched`: the files it touched, unknown at its start.
    """

    run: str
    name: str
    task: Task
    started_at: datetime
    ended_at: datetime
    tokens: int
    time_s: int
    finished: bool = True
    touched: tuple[str, ...] = ()

    def cost(self, unit: Unit) -> int:
        """The cost in one unit."""
        return self.tokens if unit == "tokens" else self.time_s

    def cost_at(self, unit: Unit, now: datetime) -> float:
        """The cost up to `now`, if it was spent evenly."""
        whole, passed = self.ended_at - self.started_at, now - self.started_at
        return self.cost(unit) * max(0.0, min(1.0, passed / whole)) if whole else float(self.cost(unit))


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction in one unit. `runs`: how many finished runs it was learnt from. `similar`: how many are alike."""

    p50: int
    p90: int
    runs: int
    similar: int
    sure: Sureness


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The whole need of a run, and the runs most like it."""

    tokens: Estimate
    time_s: Estimate
    nearest: tuple[str, ...] = ()

    def of(self, unit: Unit) -> Estimate:
        """The estimate in one unit."""
        return self.tokens if unit == "tokens" else self.time_s


class Trial(msgspec.Struct, frozen=True):
    """A past run and the prediction made at its start."""

    past: PastRun
    p50: int
    p90: int


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How good the predictions were: shares of finished runs within their bounds, and the mean pinball loss in logs.

    `runs`: predicted and finished. `unfinished`: predicted and cut off; `above`: those of them beyond their p90.
    """

    runs: int
    p50_covers: float
    p90_covers: float
    p50_loss: float
    p90_loss: float
    unfinished: int
    above: int


# -- the mean: a sum of effects, learnt online -------------------------------------------------------------------------

Features = list[tuple[str, float, float]]  # name, weight, prior standard deviation of its effect
Prediction = tuple[float, float]  # mean of the log cost, and the variance of its uncertain effects


def words(text: str) -> list[str]:
    """The words that may say what a text is about: each once, in order, without numbers and fillers."""
    found = (word for word in _WORD.findall(text.lower()) if not word.isdigit() and word not in _EMPTY)
    return list(dict.fromkeys(found))[:WORDS_MAX]


def features(task: Task) -> Features:
    """The facts that the cost may depend on. The words of a goal share one weight."""
    found: Features = [("bias", 1.0, _PRIOR["bias"])]
    if task.plan is None:
        found.append(("plan ?", 1.0, _PRIOR["plan"]))
    else:
        found.append(("plan", math.log1p(task.plan) - _PLAN_LOG, _PRIOR["plan"]))
    for kind in ("project", "agent", "model"):
        if value := getattr(task, kind):
            found.append((f"{kind} {value}", 1.0, _PRIOR[kind]))
    return found + _texts("word", words(task.goal)) + of_files(task.files)


def of_files(files: Sequence[str]) -> Features:
    """The features of files: the words of their names."""
    return _texts("file", words(" ".join(files[:FILES_MAX]))) if files else []


def _texts(kind: str, texts: list[str]) -> Features:
    weight = 1.0 / math.sqrt(len(texts) or 1)
    return [(f"{kind} {text}", weight, _PRIOR[kind]) for text in texts]


class Model:
    """log cost = a sum of effects. Each effect has a mean and a variance: learning moves both, forgetting widens."""

    __slots__ = ("_effects", "_seen", "noise")

    def __init__(self, usual: float) -> None:
        self._effects: dict[str, list[float]] = {"bias": [math.log(usual), _PRIOR["bias"]]}
        self.noise = _NOISE
        self._seen = 0

    def predict(self, given: Features) -> Prediction:
        """Mean of the log cost, and the variance of its effects."""
        mean, doubt = 0.0, 0.0
        for name, weight, prior in given:
            known = self._effects.get(name)
            if known is None:
                doubt += prior * weight * weight
            else:
                mean += known[0] * weight
                doubt += known[1] * weight * weight
        return mean, doubt

    def learn(self, given: Features, log_cost: float, *, finished: bool) -> None:
        """Learn from a run that is over. One that was cut off counts as the average of runs that cost at least as much."""
        mean, doubt = self.predict(given)
        variance = self.noise + doubt
        spread = math.sqrt(variance)
        error = (log_cost - mean) / spread
        if not finished:
            error = _beyond(error)
        error = max(-_CLIP, min(_CLIP, error))
        self._seen += 1
        step = error / spread
        for name, weight, prior in given:
            known = self._effects.get(name)
            if known is None:
                known = self._effects[name] = [0.0, prior]
            gain = known[1] * weight
            known[0] += gain * step
            if finished:  # never negative: the gain's square is a part of the spread's
                known[1] += _WANDER - gain * gain / variance
        if finished:
            rate = max(0.01, 1.0 / (self._seen + 10))
            self.noise = max(_NOISE_MIN, self.noise + rate * self.noise * (error * error - 1.0))


def _beyond(at: float) -> float:
    """The mean of a standard normal error, given that it is above `at`."""
    if at > 6.0:
        return at + 1.0 / at
    tail = 0.5 * math.erfc(at / math.sqrt(2.0))
    return math.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi) / tail


# -- the bounds: points of the last errors -----------------------------------------------------------------------------

# Before there are errors of our own: those of a slightly wider normal curve, with the weight of these few runs.
_ASSUMED = [(z, True, 0.5) for z in (-1.53, -0.89, -0.49, -0.16, 0.16, 0.49, 0.89, 1.53)]

Error = tuple[float, bool]


def quantiles(errors: Iterable[Error], shares: Sequence[float]) -> list[float]:
    """The errors that such shares of all stay below. Cut-off runs count as "at least" (Kaplan and Meier).

    Where too many runs were cut off to see that far, the tail is taken to be normal. Otherwise a budget that stops every
    third run would be suggested for ever.
    """
    ranked = sorted([(z, sure, 1.0) for z, sure in errors] + _ASSUMED)
    left = (
        sum(weight for _, _, weight in ranked) + 0.5
    )  # one more for the run being predicted: it may be the worst of all
    survive, last, found, wanted = 1.0, ranked[0][0], [], sorted(shares)
    for z, sure, weight in ranked:
        if sure:
            survive, last = survive * (1.0 - weight / left), z
            while wanted and survive <= 1.0 - wanted[0] + 1e-12:
                found.append(z)
                del wanted[0]
        left -= weight
    seen = _normal_point(min(1.0 - survive, 0.9999))
    return found + [last + max(0.0, _normal_point(share) - seen) for share in wanted]


class ReadRun:
    """A past run with its features computed once: those known at its start, and those known at its end."""

    __slots__ = ("files", "given", "learnt", "past", "words")

    def __init__(self, past: PastRun) -> None:
        self.past = past
        self.given = features(past.task)
        files = of_files(past.touched)
        self.learnt = self.given + files
        self.words = frozenset(words(past.task.goal))
        self.files = frozenset(name.removeprefix("file ") for name, _, _ in files)


class PredictedRun:
    """A past run as the learner meets it, with the prediction made at its start."""

    __slots__ = ("is_over", "prediction", "read")

    def __init__(self, read: ReadRun, prediction: Prediction) -> None:
        self.read = read
        self.prediction = prediction
        self.is_over = False

    def error_at(self, unit: Unit, now: datetime, noise: float) -> Error:
        """How far its cost lies from the prediction, in standard deviations; for a run under way, at least so far."""
        past, (mean, doubt) = self.read.past, self.prediction
        if self.is_over:
            return (math.log(past.cost(unit)) - mean) / math.sqrt(noise + doubt), past.finished
        return (math.log(max(1.0, past.cost_at(unit, now))) - mean) / math.sqrt(noise + doubt), False


class Learner:
    """One unit's model and its last errors. Call `begin` and `end` in the order of time.

    The learner meets each past run twice: at its start it predicts the run from the runs that were over by then, and at
    its end it learns from it. So every error behind the bounds is the error of a true prediction. There are two layers:

    - the mean: log cost as a sum of effects (words of the goal and of file names, project, agent, model, length of the
      plan), each with its own variance. A rarely seen effect keeps its variance and widens the bound;
    - the bounds: the 50 % and 90 % points of the last `WINDOW` errors, in standard deviations. No shape is assumed.

    A run that was cancelled, failed or stopped by its budget counts as "at least this much" in both layers. The window
    holds the last runs that *started*: among the last that ended, on a busy day, too many would be short.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit
        self.finished = 0
        self._model = Model(DEFAULT[unit].p50)
        self._last: deque[PredictedRun] = deque(maxlen=WINDOW)

    def begin(self, read: ReadRun) -> PredictedRun:
        """A run starts: predict it."""
        case = PredictedRun(read, self._model.predict(read.given))
        self._last.append(case)
        return case

    def end(self, case: PredictedRun) -> None:
        """A run ends: learn from it."""
        past = case.read.past
        case.is_over = True
        self._model.learn(case.read.learnt, math.log(past.cost(self.unit)), finished=past.finished)
        self.finished += past.finished

    def bounds(self, given: Features, now: datetime) -> Range:
        """p50 and p90 for a run that would start now; the default while too little is known."""
        if self.finished < HISTORY_MIN:
            return DEFAULT[self.unit]
        mean, doubt = self._model.predict(given)
        noise = (
            self._model.noise
        )  # today's noise also for old errors: the estimate may have been far off when they were made
        spread = math.sqrt(noise + doubt)
        errors = [case.error_at(self.unit, now, noise) for case in self._last]
        p50, p90 = (_whole(mean + spread * each) for each in quantiles(errors, (0.5, 0.9)))
        return Range(p50, max(p50, p90))


def _whole(log_cost: float) -> int:
    return max(1, math.ceil(math.exp(min(log_cost, 40.0))))


# -- predicting and measuring ------------------------------------------------------------------------------------------


class Predictor:
    """Learns once from the newest `HISTORY_MAX` runs of a history, then predicts any number of tasks.

    Runs under way belong to the history too: as unfinished, cut off now.
    """

    def __init__(self, history: Sequence[PastRun], now: datetime) -> None:
        newest = sorted(history, key=lambda past: past.started_at)[-HISTORY_MAX:]
        self._read = [ReadRun(past) for past in newest]
        self._now = now
        self._learners = {unit: Learner(unit) for unit in UNITS}
        for learner in self._learners.values():
            for _ in _walked(self._read, learner, bounds=False):
                pass
        self._rarity = _rarity([read.words for read in self._read])

    def of(self, task: Task) -> Forecast:
        """The need of a run of this task."""
        likeness = self._alike(task)
        near = [(value, at) for at, value in enumerate(likeness) if value >= SIMILAR_AT]
        similar = [self._read[at].past for _, at in near if self._read[at].past.finished]
        tokens, time_s = (self._estimate(unit, task, similar) for unit in UNITS)
        nearest = tuple(self._read[at].past.name for _, at in sorted(near, reverse=True)[:NEAREST_MAX])
        return Forecast(tokens=tokens, time_s=time_s, nearest=nearest)

    def _estimate(self, unit: Unit, task: Task, similar: Sequence[PastRun]) -> Estimate:
        learner = self._learners[unit]
        bounds = learner.bounds(features(task), self._now)
        count = sum(past.cost(unit) > 0 for past in similar)
        sure = _sureness(learner.finished, count, bounds)
        return Estimate(p50=bounds.p50, p90=bounds.p90, runs=learner.finished, similar=count, sure=sure)

    def _alike(self, task: Task) -> list[float]:
        """How similar each past run is to the task, 0 to 1: words by their rarity, files, project, agent, plan, model."""
        mine = frozenset(words(" ".join((task.goal, *task.files))))
        rarity, unseen = self._rarity, math.log(1 + len(self._read)) + 0.5
        whole = sum(rarity.get(word, unseen) for word in mine)
        found = []
        for read in self._read:
            common = sum(rarity.get(word, unseen) for word in mine & (read.words | read.files))
            either = whole + sum(rarity[word] for word in read.words - mine)
            found.append((0.5 * common / either if either else 0.0) + _same(read.past.task, task))
        return found


def _rarity(texts: Sequence[frozenset[str]]) -> dict[str, float]:
    seen: dict[str, int] = {}
    for text in texts:
        for word in text:
            seen[word] = seen.get(word, 0) + 1
    return {word: math.log((1 + len(texts)) / (1 + count)) + 0.5 for word, count in seen.items()}


def trials(history: Sequence[PastRun], unit: Unit) -> Iterator[Trial]:
    """Every metered past run and the prediction it would have got at its start, in the order of their ends."""
    return _walked([ReadRun(past) for past in history], Learner(unit), bounds=True)


def measure(history: Sequence[PastRun], unit: Unit) -> Accuracy:
    """How good the predictions of a history's own runs would have been, without those before `HISTORY_MIN` runs."""
    tried = list(trials(history, unit))
    costs = [(trial, trial.past.cost(unit)) for trial in tried if trial.past.finished]
    cut = [trial for trial in tried if not trial.past.finished]
    total = max(1, len(costs))
    return Accuracy(
        runs=len(costs),
        p50_covers=sum(cost <= trial.p50 for trial, cost in costs) / total,
        p90_covers=sum(cost <= trial.p90 for trial, cost in costs) / total,
        p50_loss=sum(pinball(cost, trial.p50, 0.5) for trial, cost in costs) / total,
        p90_loss=sum(pinball(cost, trial.p90, 0.9) for trial, cost in costs) / total,
        unfinished=len(cut),
        above=sum(trial.past.cost(unit) > trial.p90 for trial in cut),
    )


def pinball(cost: int, bound: int, share: float) -> float:
    """The pinball loss of a bound: its distance in logs, weighted by the share where it was too low."""
    off = math.log(max(1, cost)) - math.log(max(1, bound))
    return off * share if off > 0 else -off * (1.0 - share)


def _walked(history: Sequence[ReadRun], learner: Learner, *, bounds: bool) -> Iterator[Trial]:
    """Go through starts and ends in the order of time: a start knows nothing that ended later."""
    metered = [read for read in history if read.past.cost(learner.unit) > 0]
    moments = sorted(
        [(read.past.started_at, 1, at) for at, read in enumerate(metered)]
        + [(max(read.past.ended_at, read.past.started_at), 2, at) for at, read in enumerate(metered)]
    )
    under_way: dict[int, PredictedRun] = {}
    promised: dict[int, Range] = {}
    for now, kind, at in moments:
        if kind == 1:
            if bounds and learner.finished >= HISTORY_MIN:
                promised[at] = learner.bounds(metered[at].given, now)
            under_way[at] = learner.begin(metered[at])
            continue
        learner.end(under_way.pop(at))
        if (bound := promised.pop(at, None)) is not None:
            yield Trial(metered[at].past, bound.p50, bound.p90)


def _same(past: Task, task: Task) -> float:
    same = 0.15 * (past.project == task.project) + 0.15 * (past.agent == task.agent)
    same += 0.05 * (past.model == task.model)
    if past.plan is None or task.plan is None:
        return same + 0.15 * (past.plan == task.plan)
    return same + 0.15 * max(0.0, 1.0 - abs(math.log1p(past.plan) - math.log1p(task.plan)))


def _sureness(runs: int, similar: int, bounds: Range) -> Sureness:
    """One word for how sure the estimate is: by how many runs are alike, and by the width of the bounds."""
    if runs < HISTORY_MIN:
        return "default"
    wide = bounds.p90 > 6 * bounds.p50
    if similar < 3:
        return "guess"
    if similar < 10 or wide:
        return "rough"
    return "fair" if similar < 40 else "good"


# -- again at every beat -----------------------------------------------------------------------------------------------

_PACE = 0.9  # standard deviation of log cost from beat to beat: how little one beat says about the whole


def reprice(first: Range, *, spent: int, beats: int, plan_total: int | None) -> Range:
    """The cost of the whole run, given the spending so far and how many of the plan's beats are done.

    Weighs the first prediction and the pace so far by how sure each is. p50 and p90 are never below what is spent. It
    costs a few operations, so every beat can afford it.
    """
    spent = max(0, spent)
    mean = math.log(max(1, first.p50))
    spread = max(0.05, (math.log(max(1, first.p90)) - mean) / _Z90)
    if plan_total is not None and 0 < beats <= plan_total:
        if beats == plan_total:
            return Range(spent, spent)
        pace = math.log(max(1, spent) * plan_total / beats)
        doubt = _PACE * _PACE * (1.0 - beats / plan_total) / beats
        weight = spread * spread / (spread * spread + doubt)
        mean += weight * (pace - mean)
        spread *= math.sqrt(1.0 - weight)
    p50, p90 = (_above(mean, spread, spent, share) for share in (0.5, 0.9))
    return Range(p50, max(p50, p90))


def _above(mean: float, spread: float, spent: int, share: float) -> int:
    """A quantile of a log-normal cost, given that the cost is above `spent`."""
    at = (math.log(spent) - mean) / spread if spent else -40.0
    if at > 5.0:
        z = at - math.log(1.0 - share) / at
    else:
        tail = 0.5 * math.erfc(at / math.sqrt(2.0)) * (1.0 - share)
        z = -_normal_point(tail)
    return max(spent, _whole(mean + spread * z))


def _normal_point(share: float) -> float:
    """The quantile of the normal curve at `share`, by halving."""
    low, high = -12.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if 0.5 * math.erfc(-middle / math.sqrt(2.0)) < share else (low, middle)
    return high


# -- one budget for many -----------------------------------------------------------------------------------------------


class Need(msgspec.Struct, frozen=True):
    """A waiting run: its spending so far, and the p90 of its spending in all."""

    spent: int
    p90: int


def smallest_total(needs: Sequence[Need], floor: int) -> int:
    """The smallest total that can be split: what is spent, plus the floor for each."""
    return sum(need.spent + floor for need in needs)


def split(total: int, needs: Sequence[Need], floor: int) -> list[int]:
    """A limit for each run: its spending, the floor, and a part of the rest in proportion to its need. Sums to `total`."""
    rest = total - smallest_total(needs, floor)
    assert rest >= 0, "the total must be at least `smallest_total`"
    weights = [max(0, need.p90 - need.spent - floor) for need in needs]
    if not any(weights):
        weights = [1] * len(needs)
    whole = sum(weights)
    parts = [rest * weight // whole for weight in weights]
    # The remainders of the division go one by one to the runs that lost most by rounding, so that the sum is exact.
    short = sorted(range(len(needs)), key=lambda at: (-(rest * weights[at] % whole), at))
    for at in short[: rest - sum(parts)]:
        parts[at] += 1
    return [need.spent + floor + part for need, part in zip(needs, parts, strict=True)]
