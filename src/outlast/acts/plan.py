"""The common parts of all plans of an act: sentences beforehand, an outcome afterwards, and names of runs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from outlast.core import statuses
from outlast.core.state import Status
from outlast.errors import OutlastError
from outlast.inspect import find
from outlast.inspect.standing import go_on_command, settle_hint, words
from outlast.operations import requests
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control import standing

ActName = Literal[
    "pause", "resume", "cancel", "budget", "settle", "fork", "restore", "approve", "reject", "answer"
]

# No supervisor stays with a run of such a status.
RESTING: tuple[Status, ...] = ("paused", "parked", "failed")
WRITES = "acting"  # the turn of an act that writes to a journal
TAKEN_IN = "the running process applies it at its next beat or act"


class ActOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an act ended. `changed` is false where all was so already; `link` is the run to look at now.

    `next` is the act that most likely comes next. `error`: the act was begun and could not be ended.
    """

    says: str
    link: str
    hint: str = ""
    changed: bool = True
    next: ActName | None = None
    folder: str = ""
    error: OutlastError | OSError | None = None

    @property
    def ok(self) -> bool:
        """Whether all of it was done."""
        return self.error is None


class Plan(Protocol):
    """An act worked out against a run as it is now. Nothing is written before `apply`.

    A function `plan` makes it, and raises what is refused: UsageError for a wish that makes no sense, RunRefused for a run
    that is not so. `apply` looks again first, and raises the same where that has changed.
    """

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences that tell a person beforehand what will happen."""
        ...

    @property
    def command(self) -> tuple[str, ...]:
        """The words after `outlast` that do the same."""
        ...

    def apply(self, by: str = "") -> ActOutcome:
        """Do it on behalf of `by`, else of this process's user. It is durable when this returns."""
        ...


# -- names -----------------------------------------------------------------------------------------------------------


def stands(store: Store, summary: Summary) -> str:
    """The word for how a run stands now, as every list has it."""
    return words(standing.of(store, summary).word)


def called(summary: Summary) -> str:
    """A run within a sentence."""
    return f"run {summary.run} of task {summary.task}"


def name(summary: Summary) -> str:
    """A run at the beginning of a sentence."""
    return f"Run {summary.run} of task {summary.task}"


def effects(count: int) -> str:
    """A count of effects, to stand before `in doubt`."""
    return "1 effect is" if count == 1 else f"{count:,} effects are"


# -- the run that is meant -------------------------------------------------------------------------------------------


def root_of(store: Store, summary: Summary) -> tuple[Summary, Status]:
    """The run that an act goes to, which is the root of a child, and its status now."""
    root = requests.root_of(store, summary.run)
    return root, find.shown_status(store, root.state, root.run)


def about_child(summary: Summary, root: Summary) -> Iterator[str]:
    """A sentence for who named a child."""
    if summary.run != root.run:
        yield f"Run {summary.run} is part of run {root.run}; the request goes to run {root.run}."


def next_act(store: Store, run: str, *, typed: str = "") -> tuple[ActName | None, str]:
    """The next act that helps a root run on, and the same as a sentence with the command to type.

    `typed` is how the person named the run.
    """
    root = requests.summary_of(store, run)
    status = find.shown_status(store, root.state, run)
    if status == "running" or isinstance(statuses.after(status, "resume"), statuses.Refusal):
        return None, ""
    command = go_on_command(root.state, datetime.now(UTC), find.children_in(store))
    if command.startswith("outlast settle"):
        return "settle", f"{settle_hint(command)}; `outlast effects {run}` shows what else is in doubt"
    if command.startswith(("outlast approve", "outlast answer")):
        act: ActName = "approve" if command.startswith("outlast approve") else "answer"
        return act, f"`{command.replace(run, typed or run, 1)}` lets it go on"
    if root.state.supervised or status in RESTING or command != f"outlast resume {run}":
        return "resume", f"`{command.replace(run, typed or run, 1)}` lets it go on"
    return None, "start its program, and it goes on"
