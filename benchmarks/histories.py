"""Invented histories of runs: what a fleet's store looks like after some months, made from a seed. See `World`."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from outlast.core.forecast import PastRun, Task

BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
KINDS = {
    "fix": (0.0, "fix repair correct mend handle"),
    "typo": (-1.2, "typo wording readme docs comment spelling"),
    "test": (-0.2, "test coverage flaky suite cases assert"),
    "feature": (0.7, "add support implement introduce new option"),
    "refactor": (1.0, "refactor split move rename extract clean"),
    "migrate": (1.5, "migrate port upgrade rewrite replace convert"),
    "research": (0.4, "investigate measure profile find why compare"),
}
THINGS = (
    "parser login cache gateway store schema queue worker retry timeout session token budget export import "
    "index search page form button layout email invoice payment webhook signal process daemon socket lock file "
    "folder archive backup report chart metric log trace config flag secret key user team role audit"
).split()
HARD = {
    "schema": 0.5,
    "payment": 0.6,
    "lock": 0.5,
    "daemon": 0.4,
    "button": -0.5,
    "flag": -0.4,
    "email": -0.2,
}
AGENTS = ("claude", "codex", "kimi", "gemini", "opencode", "")
MODELS = ("large", "small", "mini", "")
SECONDS_A_TOKEN = 1 / 250


@dataclass(frozen=True, slots=True)
class World:
    """What one history's costs are made of. Every history draws its own world.

    Costs are heavy-tailed (log-normal, with a second wider bell for tasks that went wrong) and depend on the kind of goal
    and its words, on the length of the plan, on repository, agent and model. Some kinds are hard in some repositories
    only, and some repositories are noisier than others. Costs drift, and jump one day when a model changes. Work comes in
    phases, so a repository may be new half-way. Up to some twenty runs work at once, so the long ones end late. Some runs
    are cancelled or stopped by their budget: the store knows only what they spent, `truth` what they would have cost.
    """

    projects: dict[str, float]
    noisy: dict[str, float]
    phase: dict[str, float]
    crossed: dict[tuple[str, str], float]
    agents: dict[str, float]
    models: dict[str, float]
    words: dict[str, float]
    base: float
    at_once: float
    plan_slope: float
    plan_known: float
    noise: float
    astray: float
    drift: float
    jump_at: float
    jump: float
    files_known: bool
    cancelled: float
    budgeted: float


@dataclass(slots=True)
class History:
    """Runs in the order of their starts, and what each would have cost if nobody had stopped it: tokens and seconds."""

    runs: list[PastRun] = field(default_factory=list)
    truth: dict[str, tuple[int, int]] = field(default_factory=dict)
    beats: dict[str, list[int]] = field(default_factory=dict)


def world(rng: random.Random) -> World:
    projects = {f"repo{n}": rng.gauss(0, 0.5) for n in range(rng.choice((1, 2, 4, 8, 20)))}
    agents = {name: rng.gauss(0, 0.4) for name in rng.sample(AGENTS, rng.randint(1, 4))}
    models = {name: rng.gauss(0, 0.5) for name in rng.sample(MODELS, rng.randint(1, 3))}
    words = {word: HARD.get(word, 0.0) + rng.gauss(0, 0.15) for word in THINGS}
    return World(
        projects=projects, noisy={name: rng.uniform(0.7, 1.4) for name in projects},
        phase={name: rng.random() for name in projects},
        crossed={(name, kind): rng.gauss(0, 0.25) for name in projects for kind in KINDS}, agents=agents, models=models, words=words,
        base=math.log(rng.choice((60_000, 250_000, 900_000, 3_000_000))),
        at_once=rng.choice((0.3, 1, 4, 16)), plan_slope=rng.uniform(0.2, 0.9), plan_known=rng.choice((0.0, 0.4, 0.8, 1.0)),
        noise=rng.uniform(0.35, 0.9), astray=rng.uniform(0.0, 0.08), drift=rng.uniform(-0.8, 0.8),
        jump_at=rng.random(), jump=rng.choice((0.0, 0.0, -0.5, 0.4)),
        files_known=rng.random() < 0.5, cancelled=rng.choice((0.0, 0.03, 0.1)), budgeted=rng.choice((0.0, 0.2, 0.6)),
    )  # fmt: skip


def make(seed: int, runs: int = 500) -> History:
    """A history of so many runs; the same for the same seed."""
    rng = random.Random(f"history {seed}")
    made, here, at = History(), world(rng), BEGIN
    for number in range(runs):
        past, tokens, seconds = _run(rng, here, f"s{seed}r{number}", at, number / runs)
        at += timedelta(seconds=rng.expovariate(here.at_once / seconds))
        made.runs.append(past)
        made.truth[past.run] = tokens, seconds
        made.beats[past.run] = _beats(rng, tokens, past.task.plan)
    return made


def _run(rng: random.Random, here: World, run: str, at: datetime, age: float) -> tuple[PastRun, int, int]:
    kind = rng.choices(list(KINDS), weights=(8, 3, 4, 5, 3, 1, 2))[0]
    things = rng.sample(THINGS, rng.randint(1, 3))
    said = rng.sample(KINDS[kind][1].split(), rng.randint(1, 2))
    goal = " ".join(
        [*said, "the", *things, rng.choice(("", "of the app", f"for issue {rng.randint(1, 9999)}"))]
    )
    steps = max(1, round(math.exp(rng.gauss(1.6 + 0.4 * KINDS[kind][0], 0.6))))
    busy = [math.exp(-((age - phase) ** 2) * 12) + 0.02 for phase in here.phase.values()]
    project, agent = rng.choices(list(here.projects), busy)[0], rng.choice(list(here.agents))
    model = rng.choice(list(here.models))
    mean = here.base + KINDS[kind][0] + sum(here.words[thing] for thing in things) / len(things)
    mean += here.projects[project] + here.agents[agent] + here.models[model]
    mean += here.plan_slope * (math.log(steps) - 1.6) + here.drift * age + here.jump * (age > here.jump_at)
    likely = mean = mean + here.crossed[project, kind]
    mean += rng.gauss(0, here.noise * here.noisy[project]) + (
        abs(rng.gauss(0, 1.5)) if rng.random() < here.astray else 0.0
    )
    tokens = max(500, int(math.exp(mean)))
    seconds = max(1, int(tokens * SECONDS_A_TOKEN * math.exp(rng.gauss(0, 0.4))))
    kept, finished = _spent(rng, here, tokens, likely)
    lasted = max(1, seconds * kept // tokens)
    known = rng.random() < here.plan_known
    task = Task(goal=goal, plan=steps if known else None, project=project, agent=agent, model=model)
    past = PastRun(
        run=run, name=run, task=task, started_at=at, ended_at=at + timedelta(seconds=lasted), tokens=kept,
        time_s=lasted, finished=finished, touched=_touched(rng, things, tokens) if here.files_known else (),
    )  # fmt: skip
    return past, tokens, seconds


def _spent(rng: random.Random, here: World, tokens: int, likely: float) -> tuple[int, bool]:
    """What was spent before the run was done, cancelled on the way, or out of budget: a budget that somebody guessed for
    this task, or one that is the same for all."""
    if rng.random() < here.cancelled:
        return max(1, int(tokens * rng.random())), False
    limit = math.exp(rng.choice((likely + 0.8, here.base + 2.0)) + rng.gauss(0, 0.5))
    if rng.random() < here.budgeted and limit < tokens:
        return max(1, int(limit)), False
    return tokens, True


def _touched(rng: random.Random, things: list[str], tokens: int) -> tuple[str, ...]:
    """Files named after the subject of the goal, and more others the longer it took."""
    others = rng.choices(THINGS, k=min(12, int(math.log10(tokens))))
    return tuple(dict.fromkeys(f"src/{thing}.py" for thing in [*things, *others]))


def _beats(rng: random.Random, tokens: int, plan: int | None) -> list[int]:
    """What each beat cost, adding up to the whole; without a plan a beat is a turn of the agent."""
    count = plan or max(1, round(math.exp(rng.gauss(2.5, 0.6))))
    weights = [math.exp(rng.gauss(0, 0.7)) for _ in range(count)]
    ends = [int(tokens * sum(weights[: n + 1]) / sum(weights)) for n in range(count)]
    ends[-1] = tokens
    return [after - before for before, after in zip([0, *ends], ends, strict=False)]
