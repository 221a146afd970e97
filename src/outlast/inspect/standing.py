"""How a run stands: one word, one sentence and the next step for each situation. `status` and `cause` stay as recorded.

Every surface takes the word from here: `ls`, `show`, `top`, `report`, the page, the API and notifications."""

import re
from datetime import datetime
from typing import Literal

import msgspec

from outlast.agents.events import is_own_limit
from outlast.core import budget as budgets, wakeups
from outlast.core.state import RunState, Status
from outlast.core.values import Usage
from outlast.inspect import find, show

Word = Literal[
    "running", "restarting", "not_started", "ready", "killed", "rebooted", "died", "signalled", "stopped", "left",
    "checks_failed", "out_of_budget", "stalled", "disk_full", "paused", "parked", "due", "blocked", "in_doubt", "unsettled",
    "failed", "quarantined", "done", "cancelled", "handed_off",
]  # fmt: skip

# Said of every run that stopped unasked.
RESTARTED_BY = "nothing restarts it but `outlast resume` (the service does that at boot)"
# What each word means. A person reads the sentence with the evidence behind it.
MEANINGS: dict[Word, str] = {
    "running": "an attempt is at work",
    "restarting": "its attempt ended; its supervisor is about to start the next one",
    "not_started": "it has not started yet",
    "ready": "nothing holds it back; it has not started again yet",
    "killed": f"killed without warning (no exit recorded); {RESTARTED_BY}",
    "rebooted": f"the machine went down; {RESTARTED_BY}",
    "died": f"its attempt failed; {RESTARTED_BY}",
    "signalled": "a signal told it to stop",
    "stopped": "a person stopped it",
    "left": "the program or person at work left it before it was done",
    "checks_failed": "its checks failed, and no supervisor is there to send it back",
    "out_of_budget": "its budget is spent",
    "stalled": "the agent did nothing new for many beats",
    "disk_full": "the disk is full",
    "paused": "a person paused it",
    "parked": "it waits for the end of a usage limit",
    "due": "the usage limit is over; it has not started again yet",
    "blocked": "something is missing that only a person can provide",
    "in_doubt": "it is not known whether an effect happened; a person must look",
    "unsettled": "an effect has no outcome; the next attempt finds out by itself",
    "failed": "it failed, and its tries are used up",
    "quarantined": "too many attempts came to nothing",
    "done": "done",
    "cancelled": "a person cancelled it",
    "handed_off": "it goes on in another store",
}
_WISHES: dict[str, Word] = {"kill": "stopped", "open": "stopped", "resume": "ready", "take_back": "ready"}
_ASKED = re.compile(
    r"(\w+) (?:asked )?by "
)  # how a request is told as evidence, of a live run and of a resting one
_SETTLED = ("EffectInDoubt: ", "UnreachedEffect: ")  # how an attempt ended whose doubt is settled since
_ENDS: dict[str, Word] = {
    "host": "rebooted", "checks": "checks_failed", "invariant": "checks_failed", "stall": "stalled", "disk": "disk_full",
    "quota": "ready", "quarantine": "quarantined",
}  # fmt: skip


class Standing(msgspec.Struct, frozen=True):
    """How a run stands. `says` is one sentence; `next` a command to type, or what else to do; empty for nothing."""

    word: Word
    says: str
    next: str = ""


def of(
    state: RunState, status: Status, now: datetime, children: find.Children, *, waits: bool = False, was_told: bool = False
) -> Standing:  # fmt: skip
    """How a run stands. `status` takes the life of its holder into account.

    `waits`: its supervisor lives and is about to start the next attempt. `was_told`: a signal had told it to stop before it
    died, as its guardian noted.
    """
    word = _word(state, status, now, children, waits=waits, was_told=was_told)
    _, evidence = show.why(state, status)
    quiet = word in ("running", "done", "handed_off", "not_started")
    says = f"{MEANINGS[word]}: {evidence}" if evidence and not quiet else MEANINGS[word]
    return Standing(word, says, _next(word, state, now, children))


def words(word: str) -> str:
    """`in_doubt` as people write it."""
    return word.replace("_", " ")


def _word(
    state: RunState, status: Status, now: datetime, children: find.Children, *, waits: bool, was_told: bool
) -> Word:  # fmt: skip
    match status:
        case "interrupted" | "in_doubt" if waits:
            return "restarting"
        case "interrupted":
            return _interrupted(state, now, children, was_told=was_told)
        case "in_doubt":
            return "unsettled" if wakeups.needs_no_person(state) else "in_doubt"
        case "parked":
            until = state.parked_until
            return "blocked" if until is None else "parked" if until > now else "due"
        case "failed":
            return "quarantined" if state.cause == "quarantine" else "failed"
        case _:
            return status


def _interrupted(state: RunState, now: datetime, children: find.Children, *, was_told: bool) -> Word:
    """What `interrupted` means for this run."""
    if not state.attempts and (state.cause is None or state.cause == "operator"):
        return "not_started"
    if state.attempt is not None:  # it recorded no end
        if was_told:
            return "signalled"
        return "rebooted" if show.why(state, "interrupted")[0] == "host" else "killed"
    word = _ended(state)
    return "out_of_budget" if word == "ready" and is_out_of_budget(state, now, children) else word


def _ended(state: RunState) -> Word:
    """What an attempt's recorded end means, its budget aside."""
    match state.cause:
        case "operator":
            asked = _ASKED.match(state.evidence)
            return _WISHES.get(asked[1], "left") if asked is not None else "left"
        case "signal":
            return "signalled" if state.wanted else "died"
        case "budget":
            return "ready"
        case "crash" if state.evidence.startswith(_SETTLED):
            return "ready"
        case _:
            return _ENDS.get(state.cause or "", "died")


def is_other_limit(evidence: str) -> bool:
    """Whether the limit was not one of ours, which more budget would raise."""
    return is_own_limit(evidence) or evidence.startswith(budgets.NO_PRICE)


def is_out_of_budget(state: RunState, now: datetime, children: find.Children) -> bool:
    """Whether a run would meet its budget at once: nobody has raised what is spent, and no window has passed."""
    if state.budget is None and state.cause != "budget":
        return False
    head, live = with_children(state, children), budgets.Live(now)
    if state.cause != "budget":
        return bool(budgets.limit_reached(head, live))
    return is_other_limit(state.evidence) or budgets.is_spent(head, live)


def with_children(state: RunState, children: find.Children) -> RunState:
    """The head with what the runs below its open beat have spent; those of a done beat are in the beat's own sum."""
    return msgspec.structs.replace(state, spent=state.spent.plus(spent_below(children, state)))


def spent_below(children: find.Children, state: RunState) -> Usage:
    """What the runs below an open beat have spent."""
    total = Usage()
    for child in children(state):
        total = total.plus(child.spent).plus(spent_below(children, child))
    return total


# -- the next step -----------------------------------------------------------------------------------------------------

_NOTHING = ("done", "cancelled")
_NEEDS_RESUME = (
    "paused",
    "failed",
    "quarantined",
    "blocked",
)  # a program of somebody's own too, before it is started


def _next(word: Word, state: RunState, now: datetime, children: find.Children) -> str:
    run = state.run
    if word in _NOTHING:
        return ""
    if word in ("running", "restarting"):
        return f"outlast output {run} -f" if state.supervised else f"outlast log {run} --follow"
    if word == "handed_off":
        return f"outlast handoff {run} --take-back"
    command = go_on_command(state, now, children)
    is_bare = command == f"outlast resume {run}"
    return (
        command
        if not is_bare or state.supervised or word in (*_NEEDS_RESUME, "out_of_budget")
        else "start its program"
    )


def go_on_command(state: RunState, now: datetime, children: find.Children) -> str:
    """The command that lets a run that rests go on: it is settled first where it is in doubt, and gets the budget it lacks.

    A program of somebody's own is started after it.
    """
    doubts = find.doubts_among(children, state)
    if not all(wakeups.next_attempt_settles(effect) for _, effect in doubts):
        return settle_command(children, state)
    other = state.cause == "budget" and is_other_limit(state.evidence)
    if other or not is_out_of_budget(state, now, children):
        return f"outlast resume {state.run}"
    return f"outlast resume {state.run} {budgets.increase_hint(with_children(state, children), budgets.Live(now))}"


def settle_hint(command: str) -> str:
    """The settle command as a person pastes it, once they have looked."""
    line = command.partition(" (")[0]
    return f"look whether it happened, then `{line} --happened` or `{line} --did-not`"


def settle_command(children: find.Children, state: RunState) -> str:
    """How the first effect in doubt is settled, once a person has looked."""
    doubts = find.doubts_among(children, state)
    found = [item for item in doubts if not wakeups.next_attempt_settles(item[1])] or doubts
    return f"outlast settle {found[0][0]} {found[0][1].id} (--happened | --did-not)"
