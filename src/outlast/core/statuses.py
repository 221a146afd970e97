"""Which command is allowed in which status: one table, as data. Each cell is the next status, or a refusal with its hint."""

from typing import Literal

import msgspec

from outlast.core.state import Status

Command = Literal[
    "start", "pause", "resume", "cancel", "handoff", "take_back", "settle", "fork", "export", "amend",
    "kill", "answer",
]  # fmt: skip
STATUSES: tuple[Status, ...] = (
    "running", "paused", "interrupted", "in_doubt", "parked", "done", "failed", "cancelled", "handed_off",
)  # fmt: skip
COMMANDS: tuple[Command, ...] = (
    "start", "pause", "resume", "cancel", "handoff", "take_back", "settle", "fork", "export", "amend",
    "kill", "answer",
)  # fmt: skip
CLOSED: tuple[Status, ...] = ("done", "cancelled", "handed_off")  # such a run does not go on here by itself
ENDED: tuple[Status, ...] = ("done", "failed", "cancelled", "handed_off")


class Refusal(msgspec.Struct, frozen=True):
    """Why the command is refused now, and what to type instead. `{run}` is filled in."""

    why: str
    hint: str


_HELD = Refusal(
    "is running", "wait for it, or `outlast pause {run}`; where it hangs or is stopped, `outlast kill {run}`"
)
AGAIN = "`outlast.run(…, again=True)`"  # how a program starts a finished task again
_DONE = Refusal("is done", f"see `outlast show {{run}}`; {AGAIN} starts a new run of the task")
HAS_FAILED = "has failed"
_FAILED = Refusal(HAS_FAILED, "`outlast resume {run}` allows another try")
_CANCELLED = Refusal("is cancelled", f"{AGAIN} starts a new run of the task")
_SEALED = Refusal("is handed off to another store", "`outlast handoff {run} --take-back` undoes that")
_PAUSED = Refusal("is paused", "`outlast resume {run}` lets it go on")
_NOT_SEALED = Refusal("is not handed off", "see `outlast show {run}`")
_NOT_RUNNING = Refusal("is not running", "see `outlast show {run}`")

TABLE: dict[Status, dict[Command, Status | Refusal]] = {
    "running": {
        "start": _HELD, "pause": "paused", "resume": _HELD, "cancel": "cancelled", "handoff": "handed_off",
        "take_back": _NOT_SEALED, "settle": "running", "fork": "running", "export": _HELD, "amend": "running",
        "kill": "interrupted", "answer": "running",
    },
    "paused": {
        "start": _PAUSED, "pause": "paused", "resume": "interrupted", "cancel": "cancelled",
        "handoff": "handed_off", "take_back": _NOT_SEALED, "settle": "paused", "fork": "paused",
        "export": "handed_off", "amend": "paused",
        "kill": _NOT_RUNNING, "answer": "paused",
    },
    "interrupted": {
        "start": "running", "pause": "paused", "resume": "interrupted", "cancel": "cancelled",
        "handoff": "handed_off", "take_back": _NOT_SEALED, "settle": "interrupted", "fork": "interrupted",
        "export": "handed_off", "amend": "interrupted",
        "kill": "interrupted", "answer": "interrupted",
    },
    "in_doubt": {
        "start": "running", "pause": "paused", "resume": "in_doubt", "cancel": "cancelled",
        "handoff": "handed_off", "take_back": _NOT_SEALED, "settle": "interrupted", "fork": "in_doubt",
        "export": "handed_off", "amend": "in_doubt",
        "kill": "in_doubt", "answer": "in_doubt",
    },
    "parked": {
        "start": "running", "pause": "paused", "resume": "interrupted", "cancel": "cancelled",
        "handoff": "handed_off", "take_back": _NOT_SEALED, "settle": "parked", "fork": "parked",
        "export": "handed_off", "amend": "parked",
        "kill": _NOT_RUNNING, "answer": "parked",
    },
    "done": {
        "start": "done", "pause": _DONE, "resume": _DONE, "cancel": _DONE, "handoff": _DONE,
        "take_back": _NOT_SEALED, "settle": _DONE, "fork": "done", "export": "handed_off", "amend": _DONE,
        "kill": _DONE, "answer": _DONE,
    },
    "failed": {
        "start": _FAILED, "pause": _FAILED, "resume": "interrupted", "cancel": "cancelled",
        "handoff": "handed_off", "take_back": _NOT_SEALED, "settle": "failed", "fork": "failed",
        "export": "handed_off", "amend": "failed",
        "kill": _NOT_RUNNING, "answer": "failed",
    },
    "cancelled": {
        "start": _CANCELLED, "pause": _CANCELLED, "resume": _CANCELLED, "cancel": "cancelled",
        "handoff": _CANCELLED, "take_back": _NOT_SEALED, "settle": "cancelled", "fork": "cancelled",
        "export": "handed_off", "amend": _CANCELLED,
        "kill": _NOT_RUNNING, "answer": _CANCELLED,
    },
    "handed_off": {
        "start": _SEALED, "pause": _SEALED, "resume": _SEALED, "cancel": _SEALED, "handoff": "handed_off",
        "take_back": "interrupted", "settle": _SEALED, "fork": _SEALED, "export": "handed_off",
        "amend": _SEALED,
        "kill": _SEALED, "answer": _SEALED,
    },
}  # fmt: skip


def after(status: Status, command: Command) -> Status | Refusal:
    """The status a command leads to, or why it is refused."""
    return TABLE[status][command]


def shown_status(status: Status, *, holder_lives: bool, in_doubt: bool) -> Status:
    """The status for readers: a run whose holder is dead is interrupted, or in doubt if an effect is."""
    if status not in ("running", "interrupted", "in_doubt") or (status == "running" and holder_lives):
        return status
    return "in_doubt" if in_doubt else "interrupted"
