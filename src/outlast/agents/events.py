"""An agent's acts in its transcript and hooks: one class per event. Each agent's module reads them."""

from datetime import datetime
from typing import Literal

import msgspec

from outlast.core import values, verdict
from outlast.core.events import Cause

# The share of a subscription's window, as it is recorded.
Window = values.Window


class Session(msgspec.Struct, frozen=True, tag="session"):
    """The agent's own session became known."""

    id: str
    transcript: str = ""


class Response(msgspec.Struct, frozen=True, tag="response"):
    """The model answers, or goes on answering. One response with its batch of calls is one beat."""

    key: str
    lane: str = ""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """The agent said something."""

    text: str
    lane: str = ""


class ToolStart(msgspec.Struct, frozen=True, tag="tool_start"):
    """The agent is about to call a tool."""

    id: str
    name: str
    input: msgspec.Raw
    lane: str = ""


class ToolEnd(msgspec.Struct, frozen=True, tag="tool_end"):
    """A tool call ended. Not `sure`: it is only known that it did, not how. With a `task`: what it began still runs.

    `code`: the exit code of a shell command, if the CLI gives it. Any but 0 is a failure, whatever the CLI calls it.
    """

    id: str
    ok: bool
    output: str = ""
    lane: str = ""
    sure: bool = True
    task: str = ""
    code: int | None = None


class ToolAside(msgspec.Struct, frozen=True, tag="tool_aside"):
    """A call was put aside: neither made nor denied. Resumed without a prompt, the agent asks about it again."""

    id: str


class TaskEnd(msgspec.Struct, frozen=True, tag="task_end"):
    """A process that a call left running in the background ended by itself."""

    task: str
    ok: bool
    output: str = ""
    code: int | None = None  # its exit code, if that is told


class BatchEnd(msgspec.Struct, frozen=True, tag="batch_end"):
    """Every call of a response has ended, or the agent's turn has."""

    lane: str = ""


class UsageReport(msgspec.Struct, frozen=True, tag="usage"):
    """Usage of one response, or the sum of a session or process. Counted once per key.

    Of several reports with one key the last one counts. `input` is what no cache held. No model: it is the one that
    the command or the settings name (`Billing.model`).
    """

    values: values.Usage
    scope: Literal["response", "session", "process"]
    key: str
    model: str = ""
    lane: str = ""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """The agent tries a call to its model again."""

    attempt: int
    reason: str = ""


class Limit(msgspec.Struct, frozen=True, tag="limit"):
    """A usage or rate limit was met."""

    reset_at: datetime | None
    reason: str = ""


Ending = Literal[
    "done", "turns", "budget", "context", "rate_limit", "usage_limit", "auth", "network", "refused", "crashed",
    "hook_stopped", "unusable",
]  # fmt: skip


class ModelCost(msgspec.Struct, frozen=True):
    """A line of the agent's own bill: what a model cost, and for which tokens."""

    model: str
    usage: values.Usage


class Final(msgspec.Struct, frozen=True, tag="final"):
    """The agent says that it is finished, or why it gave up. `bill`: its own bill, where it has one."""

    ending: Ending
    text: str = ""
    reset_at: datetime | None = None
    bill: tuple[ModelCost, ...] = ()

    @property
    def cause(self) -> Cause:
        return CAUSES[self.ending]


# What a supervisor does about an ending is decided by its cause (`core.restarts`).
CAUSES: dict[Ending, Cause] = {
    "done": "done",
    "turns": "budget",
    "budget": "budget",
    "context": "context",
    "rate_limit": "network",
    "usage_limit": "quota",
    "auth": "auth",
    "network": "network",
    "refused": "stall",
    "crashed": "crash",
    "hook_stopped": "operator",
    "unusable": "crash",
}

# Limits that the user gave the agent itself, not the run: a person must see that it is not the run's budget.
OWN_LIMITS: dict[Ending, str] = dict(zip(("turns", "budget"), verdict.OWN_LIMITS, strict=True))


AgentEvent = (
    Session | Response | Text | ToolStart | ToolEnd | ToolAside | TaskEnd | BatchEnd | UsageReport | Window | Retry | Limit | Final
)  # fmt: skip
