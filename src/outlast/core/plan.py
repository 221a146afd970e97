"""A plan is a tree of steps; its leaves are the beats, walked depth-first; a cursor is the path to the next leaf."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from outlast.core.events import Path
from outlast.errors import UsageError

STEPS_MAX = 1_000_000
DEPTH_MAX = 32


class Step(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A step: a leaf is one beat; a step with sub-steps only groups them."""

    name: str
    steps: tuple["Step", ...] = ()


def parse(given: object, depth: int = 0) -> tuple[Step, ...]:
    """Steps from what people write: names, (name, steps) pairs, {name: steps}, {"step": name, "steps": […]}."""
    if depth > DEPTH_MAX:
        raise UsageError(f"a plan is at most {DEPTH_MAX} levels deep")
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | Mapping):
        raise UsageError(f"a plan is a list of steps, not {type(given).__name__}")
    if isinstance(given, Mapping):
        return tuple(Step(_name(name), parse(steps or (), depth + 1)) for name, steps in given.items())
    return tuple(step for item in given for step in _parse_item(item, depth))


def _parse_item(item: object, depth: int) -> tuple[Step, ...]:
    if isinstance(item, Step):
        return (item,)
    if isinstance(item, str):
        return (Step(_name(item)),)
    if isinstance(item, Mapping) and "step" in item:
        return (Step(_name(item["step"]), parse(item.get("steps") or (), depth + 1)),)
    if isinstance(item, Mapping):
        return parse(item, depth)
    if isinstance(item, Sequence) and len(item) == 2 and isinstance(item[0], str):
        return (Step(_name(item[0]), parse(item[1], depth + 1)),)
    raise UsageError(f"a step is a name or a (name, steps) pair, not {item!r:.80}")


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"a step's name is a text, not {name!r:.80}")
    return name


def count(steps: Sequence[Step]) -> int:
    """How many leaves, that is beats, the steps have."""
    return sum(count(step.steps) if step.steps else 1 for step in steps)


def step_at(steps: Sequence[Step], path: Path) -> Step | None:
    """The step a path leads to, or None where the plan does not reach."""
    found: Step | None = None
    for index in path:
        if index >= len(steps):
            return None
        found = steps[index]
        steps = found.steps
    return found


def names_to(steps: Sequence[Step], path: Path) -> tuple[str, ...]:
    """The names along a path, from the outermost group to the leaf."""
    return tuple(
        step.name for depth in range(1, len(path) + 1) if (step := step_at(steps, path[:depth])) is not None
    )


def first_leaf(steps: Sequence[Step], path: Path = ()) -> Path | None:
    """The path to the first leaf below `path`, or None."""
    if not steps:
        return None
    return first_leaf(steps[0].steps, (*path, 0)) or (*path, 0)


def next_leaf(steps: Sequence[Step], path: Path) -> Path | None:
    """The leaf after the one at `path`, depth-first, or None at the end of the plan."""
    for depth in range(len(path) - 1, -1, -1):
        siblings = steps if depth == 0 else _children(steps, path[:depth])
        index = path[depth] + 1
        if index < len(siblings):
            here = (*path[:depth], index)
            return first_leaf(siblings[index].steps, here) or here
    return None


def _children(steps: Sequence[Step], path: Path) -> tuple[Step, ...]:
    step = step_at(steps, path)
    return step.steps if step else ()


def extend(steps: tuple[Step, ...], added: tuple[Step, ...], after: Path | None) -> tuple[Step, ...]:
    """The plan with steps added after the step at `after`, or at the end of the whole plan."""
    if after is None:
        return (*steps, *added)
    index, rest = after[0], after[1:]
    if not rest:
        return (*steps[: index + 1], *added, *steps[index + 1 :])
    grown = msgspec.structs.replace(steps[index], steps=extend(steps[index].steps, added, rest))
    return (*steps[:index], grown, *steps[index + 1 :])


def walk(steps: Sequence[Step], path: Path = ()) -> Iterator[tuple[Path, Step]]:
    """Every step with its path, depth-first."""
    for index, step in enumerate(steps):
        here = (*path, index)
        yield here, step
        yield from walk(step.steps, here)
