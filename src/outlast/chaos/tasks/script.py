"""The parts of a scripted task: its body asks for operations, written once and carried out by every design.

A body is a generator: it yields an operation and receives its result. The design decides how that survives a kill."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from outlast.chaos.timing import Timing

EffectClass = Literal["keyed", "probed", "blind"]
Style = Literal["loop", "drive", "async", "async drive"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model. The answer ends with a tag: which decision, and how often it was asked."""

    name: str
    about: str
    lazy: bool = False
    size: int = 0  # pad the answer to so many characters


@dataclass(frozen=True, slots=True)
class Do:
    """An outward act. `keyed`: the far side dedupes; `probed`: it can be looked up; `blind`: neither."""

    name: str
    cls: EffectClass
    body: object
    key: str | None = None
    retry: int = 0
    timeout_s: float | None = None  # outlast's own limit
    patience_s: float | None = None  # the client's
    settle_s: float = Timing().settle_s


@dataclass(frozen=True, slots=True)
class Together:
    """Several acts at once if the design can, else one after the other."""

    acts: tuple[Do, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Write a whole file of the workspace: repeating it changes nothing."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Store a memory ref."""

    name: str
    uri: str


@dataclass(frozen=True, slots=True)
class Extend:
    """Add steps to the plan: at its `end`, or right after this one (`next`)."""

    steps: tuple[str, ...]
    where: str = "end"


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run with this beat."""

    result: object = None


@dataclass(frozen=True, slots=True)
class Sub:
    """Carry out a smaller task inside this beat; its result is sent back."""

    script: "Script"


Op = Ask | Do | Together | Write | Remember | Extend | Finish | Sub
Body = Generator[Op, Any, Any]


class Impossible(Exception):
    """Thrown into a body whose act certainly did not happen and will not."""


class BodyRun:
    """A body being carried out: the operation it waits for, or None at its end, and then its result."""

    def __init__(self, body: Body, value: object = None) -> None:
        self._body = body
        self.op: Op | None = None
        self.result: Any = None
        self._go(body.send, value)

    def answer(self, value: object) -> None:
        """The operation was carried out."""
        self._go(self._body.send, value)

    def refuse(self, why: str) -> None:
        """The operation certainly did not happen and will not."""
        self._go(self._body.throw, Impossible(why))

    def _go(self, resume: Callable[[Any], Op], value: object) -> None:
        try:
            self.op = resume(value)
        except StopIteration as stop:
            self.op, self.result = None, stop.value


@dataclass(slots=True)
class Here:
    """Where a body is. `label` names the beat across designs; calls of one name are counted within it."""

    label: str
    step: str
    number: int
    folder: Path
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, path: str) -> str:
        """A file of the workspace; empty if it does not exist."""
        file = self.folder / path
        return file.read_text() if file.exists() else ""

    def identity(self, kind: str, name: str) -> str:
        """The identity of a call within the task: beat, name, occurrence."""
        counted = f"{kind} {name}"
        self._counts[counted] = self._counts.get(counted, 0) + 1
        return f"{self.label}.{name}.{self._counts[counted]}"

    def inside(self, script: "Script") -> str:
        """The prefix of the labels of a smaller task's beats."""
        return f"{self.label}/{script.name}:"


Planner = Callable[[Callable[[str], str]], object]  # gets a function that asks the model


@dataclass(frozen=True, slots=True)
class Script:
    """A plan and what one beat of it does. Without a plan it goes on until a body yields Finish."""

    name: str
    body: Callable[[Here], Body]
    plan: object = None  # a list, a tree, or a Planner

    def planned(self, ask: Callable[[str, str], str], prefix: str) -> object:
        """The plan; a Planner makes it, asking the model under a name that no other plan of the task has."""
        return self.plan(lambda about: ask(f"{prefix}plan", about)) if callable(self.plan) else self.plan


class WitnessFault(NamedTuple):
    """Let the first `times` acts of that name go wrong in this mode (see `MODES` in `witness/server.py`)."""

    act: str
    mode: str
    times: int | None = 1
    late_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A script with the terms it is started under."""

    script: Script
    about: str
    style: Style = "loop"
    faults: tuple[WitnessFault, ...] = ()
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    budget: str | None = None

    @property
    def name(self) -> str:
        return self.script.name
