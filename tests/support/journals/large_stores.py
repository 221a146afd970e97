"""Stores too large to read: ten thousand runs, a run of ten thousand beats. Made from a seed; nothing of it ever ran."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outlast.core.plan import Step
from outlast.core.values import Allowance
from tests.support.inprocess import reading
from tests.support.journals.cast import AGENTS, CLAUDE, PEOPLE, SEED, Cast
from tests.support.journals.scribe import Scribe

BULK_RUNS = 500  # in one transaction


def many_runs(
    root: Path, runs: int = 10_000, *, seed: int = SEED, now: datetime | None = None, projects: int = 40
) -> Path:
    """So many runs in projects of very different size; one in ten is a child. The store's folder."""
    rng, now = random.Random(f"many {seed}"), now or datetime.now(UTC)
    made: list[Scribe] = []
    with reading(root) as store:
        while len(made) < runs:
            part = [
                _one_of_many(rng, now, len(made) + n, projects, made)
                for n in range(min(BULK_RUNS, runs - len(made)))
            ]
            first, *others = [scribe.journal for scribe in part]
            store.create(*first, children=others)
            made += part
    return root


def _one_of_many(rng: random.Random, now: datetime, number: int, projects: int, made: list[Scribe]) -> Scribe:
    name = f"project-{int(projects * rng.random() ** 2):02}"
    agent = rng.choice((*AGENTS, None))
    at = now - timedelta(minutes=rng.uniform(30, 60 * 24 * 14))
    goal = f"{rng.choice(('fix', 'add', 'move', 'test'))} the {rng.choice(('cart', 'login', 'search', 'report'))} of {name}"
    scribe = Scribe(
        rng, at, f"{number}", f"/srv/code/{name}/.git", goal, agent, "", Allowance(tokens=500_000)
    )
    if made and rng.random() < 0.1:
        older = rng.choice(made)
        if older.parent is None:
            scribe.parent, scribe.project = older.child_of(1), older.project
    scribe.start()
    for _ in range(rng.randint(1, 3)):
        scribe.beat("went on", tokens=rng.randrange(1_000, 150_000), seconds=30)
    end = rng.random()
    if end < 0.85:
        return scribe.done()
    if end < 0.9:
        scribe.warn("wrap-up of tokens", "told to wrap up")
        return scribe.stop("budget", "all but the reserve is spent", wanted=True)
    if end < 0.95:
        return scribe.stop("signal", "SIGTERM from pid 1 (root: systemd)", wanted=True)
    return scribe.end("failed", "checks", "pytest -q still failed after 5 rounds")


def long_run(root: Path, beats: int = 10_000, *, seed: int = SEED, now: datetime | None = None) -> str:
    """One run of so many beats and everything that belongs to them; its id."""
    now = now or datetime.now(UTC)
    cast = Cast(random.Random(f"long {seed}"), now)
    hours = beats * 61 / 3600 + 1
    scribe = cast.run(
        "long", "shop", "Carry on for days", CLAUDE, hours, budget=Allowance(tokens=beats * 60_000)
    )
    scribe.plan(
        (
            Step("begin"),
            *(
                Step(f"part {n // 100}", tuple(Step(f"step {n + m}") for m in range(100)))
                for n in range(0, beats, 100)
            ),
        )
    )
    attempts = 20
    for number in range(attempts):
        cast.work(scribe.start(), beats // attempts, seconds=55)
        scribe.warn(f"budget {number}", f"{number * 5}% of the budget is spent")
        if number + 1 < attempts:
            scribe.stop("signal", "killed (SIGKILL), sender unknown").wait(5)
    scribe.ask("pause", PEOPLE[0]).end("paused", "operator", f"pause by {PEOPLE[0]}", wanted=True)
    with reading(root) as store:
        return store.create(*scribe.journal)
