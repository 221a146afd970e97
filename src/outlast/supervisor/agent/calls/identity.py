"""Which call is the same one again: verb, target and content. Whatever judges a repeated call asks here."""

from collections.abc import Sequence
from typing import Literal

from outlast.supervisor.agent.calls.record import OutwardCall

Likeness = Literal["unrelated", "same", "unclear", "reworded", "named", "free"]
# What stands for the first call, as far as anybody can tell before it runs.
SAME: tuple[Likeness, ...] = ("same", "unclear", "reworded")
RANK: tuple[Likeness, ...] = ("same", "unclear", "reworded", "named", "free", "unrelated")


def likeness(first: OutwardCall, again: OutwardCall) -> Likeness:
    """How a call stands to an earlier one.

    | verb and target | content                   | the class's policy | it is                                           |
    |-----------------|---------------------------|--------------------|-------------------------------------------------|
    | others          |                           |                    | `unrelated`                                     |
    | the same        | the same                  |                    | the `same`                                      |
    | the same        | not known of one of them  |                    | `unclear`: counts as the same                   |
    | the same        | another                   | held               | `reworded`: the target names the act            |
    | the same        | another                   | named              | `named`: another one, once the agent says so    |
    | the same        | another                   | free               | `free`: another one                             |

    A call of a journal without contents has none that is known.
    """
    if not _is_one_target(first.signature, again.signature):
        return "unrelated"
    if not first.content or not again.content:
        return "unclear"
    if first.content == again.content:
        return "same"
    return "reworded" if again.another == "held" else again.another


def _is_one_target(first: str, again: str) -> bool:
    """Whether two signatures name one target. That of a GraphQL call also names its mutations, where they could be read."""
    shorter, longer = sorted((first, again), key=len)
    return shorter == longer or (shorter.endswith("/graphql") and longer.startswith(f"{shorter} "))


def nearest(
    first: Sequence[OutwardCall], again: Sequence[OutwardCall]
) -> tuple[Likeness, OutwardCall | None]:
    """How two calls that do several things outside stand to each other: by the two of them that are most alike."""
    found = sorted(
        ((likeness(one, other), one) for one in first for other in again),
        key=lambda each: RANK.index(each[0]),
    )
    return found[0] if found and found[0][0] != "unrelated" else ("unrelated", None)


def is_part(program: OutwardCall, recorded: Sequence[OutwardCall]) -> bool:
    """Whether a program is about to do one of the acts that the recorded call names."""
    return any(likeness(each, program) in ("same", "unclear") for each in recorded)
