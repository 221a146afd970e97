"""A random trial of a real agent, by its seed alone: what its model asks for, what befalls it and when.

trial_parts.py names the parts, trial_model.py is the model, trial.py carries a plan out.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from tests.agents import trial_parts
from tests.agents.trial_parts import Part

AGENTS: tuple[tuple[str, str | None], ...] = (
    ("claude", "2.1.325"), ("claude", "2.1.197"), ("codex", None), ("kimi-code", None), ("kimi-cli", "1.51.0"),
    ("gemini", None), ("opencode", None), ("mini-swe-agent", None), ("aider", None),
)  # fmt: skip
OTHERS = ("claude", "codex", "kimi-code", "gemini", "opencode")  # those that `--agent` changes to
PROMPT = "do the task"
BATCHES_MIN, BATCHES_MAX = 3, 5
KILLS_MAX = 3
INPUT_TOKENS = 1000  # of every response, so that a response that is counted twice shows in the sum
PAST_LEASE_S = 33.0  # a process that was stopped for so long has lost its lease

Kind = Literal["local", "write", "post", "same", "make", "npm", "background", "task", "mcp", "sub"]
When = Literal["hold", "hang", "act", "asked", "start"]
How = Literal["kill", "program", "stop", "takeover", "fill"]
Repeats = Literal["never", "verbatim", "flags", "words", "settles"]
Hold = Literal["", "before", "after"]
_WHENS: tuple[When, ...] = ("hold", "hang", "act", "asked", "start")
VICTIMS: tuple[tuple[str, ...], ...] = (
    ("agent",), ("supervisor",), ("guardian",), ("agent", "supervisor"), ("agent", "guardian"),
    ("supervisor", "guardian"), ("all",), ("all",), ("agent group",), ("outer group",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """One call. `hold`: it waits for the trial, before or after what it does."""

    name: str
    kind: Kind
    hold: Hold = ""

    @property
    def outward(self) -> bool:
        return self.kind not in ("local", "write")


@dataclass(frozen=True, slots=True)
class Kill:
    """Who is hit when, and how: at a held call, in a hanging response, right after an act, after a request, after a start.

    `kill` sends `number` to the victims. `program` kills what a call started, while the world answers late. `stop` and
    `takeover` stop the victims for `lasts_s`, the latter with a second start meanwhile. `fill` fills the disk so long.
    """

    when: When
    at: str  # the task, the number of the batch, or nothing
    delay_s: float
    victims: tuple[str, ...]
    number: int
    how: How = "kill"
    lasts_s: float = 0.0

    def __str__(self) -> str:
        name = signal.Signals(self.number).name if self.how == "kill" else f"{self.how} {self.lasts_s:.1f}s"
        return f"{name} {' and '.join(self.victims)} at {self.when} {self.at}+{self.delay_s:.2f}s"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole trial."""

    seed: int
    trial: int
    agent: str
    version: str | None
    batches: tuple[tuple[Task, ...], ...]
    kills: tuple[Kill, ...]
    repeats: Repeats
    hasty: bool  # started again at once, whoever still cleans up
    ways: tuple[str, ...]  # how it is started again: the same line, or `outlast resume`
    hang_after: int = 1
    parts: tuple[Part, ...] = ("plain",)
    between: Part = "plain"  # what happens before the second start
    other: str = ""  # the agent that goes on from the second start
    careless: bool = False  # the model believes its own conversation alone

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for batch in self.batches for task in batch}

    @property
    def key(self) -> str:
        return "-".join(filter(None, (self.agent, self.version)))

    @property
    def forgets(self) -> bool:
        """Whether what was done locally may be done again: a session that knows nothing goes on."""
        return bool({"fresh", "deleted", "agent"} & set(self.parts)) or self.agent in (
            "mini-swe-agent",
            "aider",
        )


def plan(seed: int, trial: int) -> Plan:
    """The trial of that number. Its agent depends on the number alone, so that each has its share."""
    agent, version = AGENTS[trial % len(AGENTS)]
    rng = random.Random(f"{seed}:{trial}")
    parts = trial_parts.drawn(seed, trial, agent, rng)
    between = next((part for part in parts if part in trial_parts.BETWEEN), "plain")
    batches = _batches(rng, trial, agent, parts)
    kills, held = _kills(rng, batches)
    kills = _with_blows(rng, kills, batches, parts)
    if between != "plain":
        kills = _with_pause(rng, kills, batches)
    batches = [tuple(replace(task, hold=held.get(task.name, "")) for task in batch) for batch in batches]
    repeats: Repeats = rng.choice(["never", "verbatim", "flags", "words", "settles"])
    hasty = rng.random() < 0.3 and between == "plain"
    ways = tuple(rng.choice(("run", "resume")) for _ in range(8))
    other = rng.choice([name for name in OTHERS if name != agent])
    careless = rng.random() < 0.5 and between in ("fresh", "agent")
    return Plan(
        seed, trial, agent, version, tuple(batches), kills, repeats, hasty, ways, hang_after=rng.randint(1, 3),
        parts=parts, between=between, other=other if between == "agent" else "", careless=careless,
    )  # fmt: skip


# --- calls ----------------------------------------------------------------------------------------------------------


def _batches(rng: random.Random, trial: int, agent: str, parts: tuple[Part, ...]) -> list[tuple[Task, ...]]:
    """Some calls each; at least one of them reaches outside, in the way of the trial's part."""
    names = (f"x{trial}n{number}e" for number in count())
    if agent == "aider":  # it ends when its command went well, so there is one
        batches: list[tuple[Task, ...]] = [(Task(next(names), "post"),)]
    else:
        batches = [_batch(rng, names) for _ in range(rng.randint(BATCHES_MIN, BATCHES_MAX))]
    if not any(task.outward for batch in batches for task in batch):
        batches[-1] = (*batches[-1], Task(next(names), "post"))
    if "same" in parts and agent != "aider":  # two that may be taken for one
        batches += [(Task(next(names), "post"),), (Task(next(names), "post"),)]
    if "worktree" in parts:  # what is written there goes with it
        batches = [tuple(replace(t, kind="local") if t.kind == "write" else t for t in b) for b in batches]
    kind = next((part for part in parts if part in trial_parts.CALLS), None)
    return batches if kind is None else _in_the_way_of(rng, batches, kind)


def _batch(rng: random.Random, names: Iterator[str]) -> tuple[Task, ...]:
    size = rng.choice((1, 1, 1, 2, 2, 3))
    kinds: list[Kind] = rng.choices(["local", "write", "post"], weights=[3, 2, 5], k=size)
    return tuple(Task(next(names), kind) for kind in kinds)


def _in_the_way_of(rng: random.Random, batches: list[tuple[Task, ...]], kind: Part) -> list[tuple[Task, ...]]:
    """Most posts are made in that way, the last for certain."""
    posts = [task.name for batch in batches for task in batch if task.kind == "post"]
    chosen = {name for name in posts if rng.random() < 0.7} | set(
        posts[-2:] if kind == "same" else posts[-1:]
    )
    changed: Kind = kind  # type: ignore[assignment]  # every part of this family is a kind of call
    return [tuple(replace(t, kind=changed) if t.name in chosen else t for t in batch) for batch in batches]


# --- kills ----------------------------------------------------------------------------------------------------------


def _kills(rng: random.Random, batches: list[tuple[Task, ...]]) -> tuple[tuple[Kill, ...], dict[str, Hold]]:
    """In the order in which they can come, so that nobody waits for what lies behind a call that is held."""
    places = sorted(rng.randrange(len(batches)) for _ in range(rng.choice((1, 1, 2, 2, KILLS_MAX))))
    kills: list[Kill] = []
    held: dict[str, Hold] = {}
    for place in places:
        victims = rng.choice(VICTIMS)
        number = signal.SIGTERM if rng.random() < 0.15 else signal.SIGKILL
        when = rng.choices(_WHENS, weights=[4, 2, 3, 3, 2])[0]
        task = rng.choice(batches[place])
        posts = [each for each in batches[place] if each.outward]
        if when == "hold" and task.kind != "write" and task.name not in held:
            held[task.name] = rng.choice(("before", "after"))
            at, delay_s = task.name, rng.choice((0.0, rng.uniform(0, 0.5)))
        elif when == "act" and posts:
            at, delay_s = rng.choice(posts).name, rng.choice((0.0, 0.0, rng.uniform(0, 0.3)))
        elif when == "hang" and not any(kill.when == "hang" and kill.at == str(place) for kill in kills):
            at, delay_s = str(place), rng.uniform(0, 0.3)
        elif when == "start":
            at, delay_s = "", rng.uniform(0, 5.0)
        else:
            when, at, delay_s = "asked", str(place), rng.uniform(0, 1.0)
        kills.append(Kill(when, at, delay_s, victims, number))
        if rng.random() < 0.35:  # twice in a row: the next one dies while it resumes
            again = Kill("start", "", rng.uniform(0, 4.0), rng.choice(VICTIMS), signal.SIGKILL)
            kills.append(again)
    return tuple(kills[:KILLS_MAX]), held


def _with_blows(
    rng: random.Random, kills: tuple[Kill, ...], batches: list[tuple[Task, ...]], parts: tuple[Part, ...]
) -> tuple[Kill, ...]:
    """What befalls it by the trial's part."""
    part = next((each for each in parts if each in trial_parts.BLOWS), "plain")
    lasts_s = PAST_LEASE_S if rng.random() < 0.25 else rng.uniform(0.5, 5.0)
    match part:
        case "program":
            posts = [task.name for batch in batches for task in batch if task.kind in ("post", "make", "npm")]
            if not posts:
                return kills
            return (
                *kills,
                Kill("act", rng.choice(posts), rng.uniform(0, 0.2), ("program",), signal.SIGKILL, "program"),
            )
        case "stop":
            return (replace(kills[0], how="stop", lasts_s=lasts_s), *kills[1:])
        case "takeover":
            return (replace(kills[0], how="takeover", victims=("all",), lasts_s=lasts_s), *kills[1:])
        case "disk":
            return (replace(kills[0], how="fill", victims=(), lasts_s=rng.uniform(0.5, 5.0)), *kills[1:])
        case "twice":
            again = [Kill("start", "", rng.uniform(0, 4.0), ("all",), signal.SIGKILL) for _ in range(2)]
            return (replace(kills[0], victims=("all",), number=signal.SIGKILL), *again)
        case _:
            return kills


def _with_pause(
    rng: random.Random, kills: tuple[Kill, ...], batches: list[tuple[Task, ...]]
) -> tuple[Kill, ...]:
    """One kill ends everything, so that somebody starts it again; not before something was asked for."""
    at = next((n for n, kill in enumerate(kills) if kill.how == "kill"), None)
    asked = Kill("asked", str(rng.randrange(len(batches))), rng.uniform(0, 1.0), ("all",), signal.SIGKILL)
    if at is None:
        return (*kills, asked)
    first = (
        asked if kills[at].when == "start" else replace(kills[at], victims=("all",), number=signal.SIGKILL)
    )
    return (*kills[:at], first, *kills[at + 1 :])
