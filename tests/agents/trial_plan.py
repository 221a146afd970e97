"""A random trial of a real agent, by its seed alone: what its model asks for, and who is killed when.

The model is a sensible one: it asks for what the conversation does not show as done, and believes what it is told about
its calls. In a share of the trials it makes a call of which nobody knows the outcome again, as models do.
"""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from dataclasses import dataclass, field
from typing import Literal

from tests.agents.script import Call, Fault, History, Step, Usage, bash, write

AGENTS: tuple[tuple[str, str | None], ...] = (
    ("claude", "2.1.325"), ("claude", "2.1.197"), ("codex", None), ("kimi-code", None), ("kimi-cli", "1.51.0"),
    ("gemini", None), ("opencode", None),
)  # fmt: skip
BATCHES_MIN, BATCHES_MAX = 3, 5
KILLS_MAX = 3
ASKED_MAX = 6  # so often a sensible model asks for the same thing, whatever it is told
INPUT_TOKENS = 1000  # of every response, so that a response that is counted twice shows in the sum

Kind = Literal["local", "write", "post"]
When = Literal["hold", "hang", "act", "asked", "start"]
Repeats = Literal["never", "verbatim", "flags", "words", "settles"]
Known = Literal["asked", "lost", "unknown", "undone", "done"]
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
    hold: Literal["", "before", "after"] = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """Who dies when: at a held call, in a hanging response, right after an act, after a request, after a start."""

    when: When
    at: str  # the task, the number of the batch, or nothing
    delay_s: float
    victims: tuple[str, ...]
    number: int

    def __str__(self) -> str:
        name = signal.Signals(self.number).name
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

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for batch in self.batches for task in batch}

    @property
    def key(self) -> str:
        return "-".join(filter(None, (self.agent, self.version)))


def plan(seed: int, trial: int) -> Plan:
    """The trial of that number. Its agent depends on the number alone, so that each has its share."""
    agent, version = AGENTS[trial % len(AGENTS)]
    rng = random.Random(f"{seed}:{trial}")
    numbers = iter(range(100))
    batches = [_batch(rng, numbers, trial) for _ in range(rng.randint(BATCHES_MIN, BATCHES_MAX))]
    if not any(task.kind == "post" for batch in batches for task in batch):
        batches[-1] = (*batches[-1], Task(f"x{trial}n{next(numbers)}e", "post"))
    kills, held = _kills(rng, batches)
    batches = [
        tuple(Task(task.name, task.kind, held.get(task.name, "")) for task in batch) for batch in batches
    ]
    repeats: Repeats = rng.choice(["never", "verbatim", "flags", "words", "settles"])
    return Plan(
        seed, trial, agent, version, tuple(batches), kills, repeats, hasty=rng.random() < 0.3,
        ways=tuple(rng.choice(("run", "resume")) for _ in range(8)), hang_after=rng.randint(1, 3),
    )  # fmt: skip


def _batch(rng: random.Random, numbers: object, trial: int) -> tuple[Task, ...]:
    size = rng.choice((1, 1, 1, 2, 2, 3))
    kinds: list[Kind] = rng.choices(["local", "write", "post"], weights=[3, 2, 5], k=size)
    return tuple(Task(f"x{trial}n{next(numbers)}e", kind) for kind in kinds)  # type: ignore[call-overload]


def _kills(
    rng: random.Random, batches: list[tuple[Task, ...]]
) -> tuple[tuple[Kill, ...], dict[str, Literal["", "before", "after"]]]:
    """In the order in which they can come, so that nobody waits for what lies behind a call that is held."""
    places = sorted(rng.randrange(len(batches)) for _ in range(rng.choice((1, 1, 2, 2, KILLS_MAX))))
    kills: list[Kill] = []
    held: dict[str, Literal["", "before", "after"]] = {}
    for place in places:
        victims = rng.choice(VICTIMS)
        number = signal.SIGTERM if rng.random() < 0.15 else signal.SIGKILL
        when = rng.choices(_WHENS, weights=[4, 2, 3, 3, 2])[0]
        task = rng.choice(batches[place])
        posts = [each for each in batches[place] if each.kind == "post"]
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


# --- the model ------------------------------------------------------------------------------------------------------

# What outlast says of a call, and what it means to a sensible model; the first that is found counts.
_SAID: tuple[tuple[Known, re.Pattern[str]], ...] = (
    ("unknown", re.compile(r"not known whether it happened|outlast holds|given up to find")),
    ("done", re.compile(r"done-x\d+n\d+e|Take it as done|it did happen|it happened")),
    ("undone", re.compile(r"not started|nothing tells that this call was started|Nothing (?:of it )?was done|before it did anything|was not (?:made|run)|did not happen")),
    ("lost", re.compile(r"cut off by the interruption")),
)  # fmt: skip
_SETTLE = re.compile(r"`(\S*outlast'? settle \S+ \S+) --happened`")


@dataclass
class Seen:
    """What a conversation tells of one task."""

    known: Known | None = None
    asked: int = 0
    repeated: bool = False
    settle: str = ""


@dataclass
class Modelled:
    """What the model says, as a function of the conversation. It is asked by one thread at a time."""

    plan: Plan
    witness: str
    folder: str
    work: str
    served: list[int] = field(default_factory=list)  # the batches that were asked for, in order
    hung: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, history: History, plays: int) -> Step:
        """Ask for the first batch that is not done, or say that all is."""
        seen = self.read(history)
        usage = Usage(input=INPUT_TOKENS, cache_read=0, cache_write=0, output=7, reasoning=0)
        for number, batch in enumerate(self.plan.batches):
            calls = tuple(call for task in batch for call in self._wanted(task, seen[task.name]))
            if calls:
                with self.lock:
                    self.served.append(number)
                return Step(f"Batch {number}.", calls, usage, self._fault(number))
        return Step("All of it is done.", (), usage)

    def _fault(self, number: int) -> Fault | None:
        targets = {kill.at for kill in self.plan.kills if kill.when == "hang"}
        if str(number) not in targets or number in self.hung:
            return None
        self.hung.add(number)
        return Fault(hang_after=self.plan.hang_after, times=None)

    def _wanted(self, task: Task, seen: Seen) -> list[Call]:
        if seen.known == "done" or seen.asked >= ASKED_MAX:
            return []
        if task.kind != "post" or seen.known in (None, "undone"):
            return [self.call(task)]
        # Nobody knows, says outlast, or the CLI says something of its own.
        if self.plan.repeats == "settles" and seen.settle:
            return [self._look(task, seen.settle)]
        if self.plan.repeats in ("verbatim", "flags", "words") and not seen.repeated:
            return [self.call(task, self.plan.repeats)]
        return []

    def call(self, task: Task, how: str = "") -> Call:
        """As it is asked for the first time, or in a model's way of repeating it."""
        hold = f"sh {self.folder}/hold.sh {task.name}"
        if task.kind == "write":
            return write(f"{self.work}/{task.name}.txt", f"done-{task.name}\n")
        if task.kind == "local":
            command = f"echo {task.name} >> {self.folder}/ran.log && echo done-{task.name}"
        else:
            flags = "--retry 1 -v" if how == "flags" else ""
            body = json.dumps({"body": "in other words" if how == "words" else "hello"})
            url = f"{self.witness}/act/blind/{task.name}"
            command = f"curl -sS -f {flags} -X POST -H 'Witness-Id: {task.name}' -d '{body}' {url} && echo done-{task.name}"
        if task.hold == "before":
            command = f"{hold}; {command}"
        elif task.hold == "after":
            command = f"{command}; {hold}"
        return bash(command)

    def _look(self, task: Task, settle: str) -> Call:
        """What outlast asks of an agent: look, then say what was found."""
        found = f"curl -sS {self.witness}/counts | grep -q '\"{task.name}\"'"
        return bash(
            f"if {found}; then {settle} --happened && echo done-{task.name}; "
            f"else {settle} --did-not && echo it did not happen; fi"
        )

    def read(self, history: History) -> dict[str, Seen]:
        """What became of each task, as far as the conversation tells: the last word counts."""
        seen = {name: Seen() for name in self.plan.tasks}
        owner: dict[str, str] = {}
        for turn in history.turns:
            for call in turn.calls:
                name = next((each for each in seen if each in call.input), None)
                if name is not None:
                    owner[call.id] = name
                    each = seen[name]
                    each.repeated = each.repeated or each.known in ("unknown", "lost")
                    each.asked, each.known = each.asked + 1, "asked"
            for result in turn.results:
                if result.call_id in owner:
                    _take(seen[owner[result.call_id]], result.text, self.plan.tasks[owner[result.call_id]])
            if turn.role == "user" or not turn.calls:
                self._read_words(turn.text, seen, owner)
        for each in seen.values():
            if each.known == "asked":
                each.known = "lost"
        return seen

    def _read_words(self, text: str, seen: dict[str, Seen], owner: dict[str, str]) -> None:
        """What is said of calls in a prompt, a line each: by their id, or by where they go."""
        for line in text.splitlines():
            if not line.startswith("- "):
                continue
            named = {owner[call] for call in owner if call and call in line}
            named |= {name for name in seen if name in line}
            for name in named:
                if any(pattern.search(line) for _, pattern in _SAID):
                    _take(seen[name], line, self.plan.tasks[name])


def _take(seen: Seen, text: str, task: Task) -> None:
    known = next((known for known, pattern in _SAID if pattern.search(text)), None)
    if known is None and task.kind == "write" and not re.search(r"interrupt|abort|cancel|reject", text):
        known = "done"  # each CLI has words of its own for a file that was written
    seen.known = known or "lost"
    found = _SETTLE.search(text)
    if found:
        seen.settle = found[1]
