"""What each tool of `outlast mcp` takes and gives, for both ends of the socket. Served in `tool_calls`; described in `outlast.mcp`."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from outlast.core.questions import CHOICES_MAX

NAME_CHARS_MAX, TEXT_CHARS_MAX = 200, 4_000
EFFECTS_MAX = 200
ACT_CHARS = 600

# An agent says what it found when it looked. That nobody can find out, only a person says.
AgentsFinding = Literal["happened", "did_not"]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all arguments: what a tool does not know it refuses."""


class NoArguments(Arguments, frozen=True):
    """It takes none."""


class StageArguments(Arguments, frozen=True):
    """How far the work is."""

    name: Annotated[
        str, Meta(min_length=1, max_length=NAME_CHARS_MAX, description="a short word, such as reviewing")
    ]


class RememberArguments(Arguments, frozen=True):
    """Where something is."""

    name: Annotated[str, Meta(min_length=1, max_length=128, description="what you call it")]
    path: Annotated[
        str, Meta(min_length=1, max_length=1024, description="a file or a URI; its content is not stored")
    ]


class EffectsArguments(Arguments, frozen=True):
    """Which effects to list."""

    in_doubt: Annotated[bool, Meta(description="only those whose outcome is unknown")] = False
    last: Annotated[int, Meta(ge=1, le=EFFECTS_MAX, description="at most so many, the newest")] = 50


class SettleArguments(Arguments, frozen=True):
    """What looking outside showed about an effect in doubt."""

    effect: Annotated[
        str,
        Meta(min_length=1, max_length=40, description="id of the effect, such as 41.1; see the tool effects"),
    ]
    finding: Annotated[
        AgentsFinding,
        Meta(description="happened: you looked, and it is done. did_not: you looked, and it is not there"),
    ]
    result: Annotated[
        Any, Meta(description="with happened: what the call would have returned, any JSON value")
    ] = None


class AskArguments(Arguments, frozen=True):
    """A question to a person."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=TEXT_CHARS_MAX,
            description="the question, with all that a person must know",
        ),
    ]
    choices: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...],
        Meta(max_length=CHOICES_MAX, description="the answers that it takes; none: any text"),
    ] = ()
    within: Annotated[
        str, Meta(max_length=20, description="how long it waits for an answer, like 8h; empty: for ever")
    ] = ""


class SaveArguments(Arguments, frozen=True):
    """A save of the files."""

    message: Annotated[str, Meta(max_length=200, description="why you save, in your words")] = ""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of the budget. Money in micro-dollars, time in seconds, a window in hundredths of a percent."""

    unit: str
    limit: int
    spent: int
    reserved: int
    left: int
    text: str


class BudgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of the run. `wraps_up`: only the reserve is left, so commit, write down the state of the work, and stop."""

    run: str
    task: str
    beats: int
    tokens_spent: int
    cost_microusd: int
    estimated: bool
    limits: tuple[Limit, ...]
    wraps_up: bool
    warning: str


class ContextResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that an agent must know to go on: goal, plan, what is done, memory, what is in doubt."""

    run: str
    context: str


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that is on record now."""

    stage: str


class RememberResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record now."""

    name: str
    uri: str


class EffectLine(msgspec.Struct, frozen=True, kw_only=True):
    """One effect. `settles`: who may say what became of it: you (after you looked), a person, or nobody any more."""

    id: str
    name: str
    state: str
    act: str
    policy: str
    beat: int
    evidence: str
    settled_by: str
    intended_at: datetime
    settles: Literal["you", "person", "nobody"]


class EffectsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The effects, oldest first. `left_out`: how many older ones there are."""

    run: str
    effects: tuple[EffectLine, ...]
    left_out: int


class SettleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record about the effect now."""

    effect: str
    state: str
    settled_by: str


class AskResult(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer."""

    answer: str


class SaveResult(msgspec.Struct, frozen=True, kw_only=True):
    """The save; `commit` is empty when there was nothing to save."""

    commit: str
    left_out: tuple[str, ...]
    text: str
