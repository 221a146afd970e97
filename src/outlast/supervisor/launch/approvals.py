"""Which outward calls of a run wait for a person: `--approve` and the settings, as the launch keeps them for every attempt."""

from collections.abc import Collection

import msgspec

from outlast import settings
from outlast.core.questions import EVERY, Approvals
from outlast.core.text import did_you_mean
from outlast.errors import UsageError
from outlast.supervisor.launch.launch import Launch

_OF_TARGETS = frozenset("*?[]/.:@")


def of(launch: Launch, found: settings.Settings) -> Approvals:
    """Which calls wait, by the launch and the settings of now: none of them can take back what the other asks for."""
    mine = _of_settings(found)
    kinds, targets = (*launch.approve_kinds, *mine.kinds), (*launch.approve_targets, *mine.targets)
    within = launch.approve_within or found["approve_within"]
    return Approvals(
        kinds=tuple(dict.fromkeys(kinds)), targets=tuple(dict.fromkeys(targets)), within_s=seconds(within)
    )


def recorded(
    launch: Launch, given: str | None, within: str | None, found: settings.Settings, kinds: Collection[str]
) -> Launch:
    """The launch with what waits from the first attempt on: `--approve`, and the settings as they are now.

    An agent can edit the file of its repository, so what that asked for at the start holds. Raises UsageError.
    """
    asks, mine = parsed(given or "", kinds), _of_settings(found)
    _refuse_unknown(mine.kinds, kinds)
    if within is not None:
        seconds(within)
    return msgspec.structs.replace(
        launch, approve_kinds=tuple(dict.fromkeys((*asks.kinds, *mine.kinds))),
        approve_targets=tuple(dict.fromkeys((*asks.targets, *mine.targets))), approve_within=within or "",
    )  # fmt: skip


def on_top(launch: Launch, last: Launch | None) -> Launch:
    """The launch with what its run was started with before: typing the command again without `--approve` takes nothing back."""
    if last is None:
        return launch
    return msgspec.structs.replace(
        launch, approve_kinds=tuple(dict.fromkeys((*launch.approve_kinds, *last.approve_kinds))),
        approve_targets=tuple(dict.fromkeys((*launch.approve_targets, *last.approve_targets))),
        approve_within=launch.approve_within or last.approve_within,
    )  # fmt: skip


def parsed(text: str, kinds: Collection[str]) -> Approvals:
    """What `--approve` asks for: classes of calls, and patterns of targets, with commas between them. Raises UsageError."""
    words = settings.words(text)
    targets = tuple(word for word in words if _OF_TARGETS & set(word))
    classes = tuple(word for word in words if word not in targets)
    _refuse_unknown(classes, kinds)
    return Approvals(kinds=classes, targets=targets)


def seconds(text: str) -> int:
    """How long a call waits for its approval; 0: for ever. Raises UsageError."""
    return int(settings.age(text).total_seconds())


def _of_settings(found: settings.Settings) -> Approvals:
    return Approvals(
        kinds=settings.words(found["approve_classes"]), targets=settings.words(found["approve_targets"])
    )


def _refuse_unknown(classes: Collection[str], kinds: Collection[str]) -> None:
    """Raise UsageError for a class that no rule has: it would let every call pass unasked."""
    every = sorted((*kinds, EVERY))
    for word in classes:
        if word not in every:
            raise UsageError(
                f"no such class of calls: {word:.60}",
                hint=did_you_mean(word, every)
                or f"the classes are {', '.join(every)}; a target has a `*` or `/`: `*prod*`",
            )
