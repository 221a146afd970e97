"""Which call is the same one again: verb, target and content. Whatever judges a repeated call asks here."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from outlast.agents.outward import content
from outlast.supervisor.agent.calls.record import OutwardCall

Likeness = Literal["unrelated", "same", "unclear", "reworded", "named", "free"]
# What stands for the first call, as far as anybody can tell before it runs.
SAME: tuple[Likeness, ...] = ("same", "unclear", "reworded")
RANK: tuple[Likeness, ...] = ("same", "unclear", "reworded", "named", "free", "unrelated")


def likeness(first: OutwardCall, again: OutwardCall) -> Likeness:
    """How a call compares with an earlier one.

    | verb and target | content                   | the class's policy | it is                                           |
    |-----------------|---------------------------|--------------------|-------------------------------------------------|
    | others          |                           |                    | `unrelated`                                     |
    | the same        | the same                  |                    | the `same`                                      |
    | the same        | a part of it is not known |                    | `unclear`: counts as the same                   |
    | the same        | another                   | held               | `reworded`: the target names the act            |
    | the same        | another                   | named              | `named`: another one, once the agent says so    |
    | the same        | another                   | free               | `free`: another one                             |

    A single part that is known of both and differs makes another content. Calls in a journal without contents, or with
    contents of an earlier outlast, have no known part.
    """
    if not _is_one_target(first.signature, again.signature):
        return "unrelated"
    compared = content.compare(first.content, again.content)
    if compared != "another":
        return compared
    return "reworded" if again.another == "held" else again.another


def _is_one_target(first: str, again: str) -> bool:
    """Whether two signatures name one target. That of a GraphQL call also names its mutations, where they could be read."""
    shorter, longer = sorted((first, again), key=len)
    return shorter == longer or (shorter.endswith("/graphql") and longer.startswith(f"{shorter} "))


_STATES = frozenset(
    ["PUT", "PATCH", "DELETE"]
)  # what such a request leaves behind, the next one to its address replaces


def takes_place(later: OutwardCall, first: OutwardCall) -> bool:
    """Whether a later call replaced what the first one had left at its target: then the first one is undone."""
    if later.signature == first.signature and content.compare(first.content, later.content) == "same":
        return False
    after, before = later.signature.split(" "), first.signature.split(" ")
    if before[0] in ("push", "push-delete") and after[0] in ("push", "push-delete"):
        return before[1:2] == after[1:2] and _have_one_ref(before[2:], after[2:])
    return before[0] in _STATES and after[0] in _STATES and before[1:] == after[1:]


def _have_one_ref(first: Sequence[str], others: Sequence[str]) -> bool:
    return any(fnmatchcase(one, other) or fnmatchcase(other, one) for one in first for other in others)


def nearest(
    first: Sequence[OutwardCall], again: Sequence[OutwardCall]
) -> tuple[Likeness, OutwardCall | None]:
    """How two calls with several outward acts stand to each other: by the pair of acts that is most alike. Also returns the
    first call's act of that pair."""
    found = sorted(
        ((likeness(one, other), one) for one in first for other in again),
        key=lambda each: RANK.index(each[0]),
    )
    return found[0] if found and found[0][0] != "unrelated" else ("unrelated", None)


def is_part(program: OutwardCall, recorded: Sequence[OutwardCall]) -> bool:
    """Whether a program is about to do one of the acts that the recorded call names."""
    return any(likeness(each, program) in ("same", "unclear") for each in recorded)
