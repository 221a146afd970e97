"""How a run stands in sentences: what its word means, and the next step to type. The verdict itself is `core/verdict.py`.

Every surface takes both from here: `ls`, `show`, `top`, `report`, the page, the API and notifications."""

from datetime import datetime

import msgspec

from outlast.core import budget as budgets, questions, verdict
from outlast.core.state import RunState, Status
from outlast.core.verdict import Children, Need, Verdict, Word
from outlast.inspect import show
from outlast.inspect.questions import answer_command
from outlast.store.locks import boot_id

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
    "quarantined": "too many attempts made no progress",
    "done": "done",
    "cancelled": "a person cancelled it",
    "handed_off": "it goes on in another store",
    "waiting": "it waits for a person to answer",
}


class Standing(msgspec.Struct, frozen=True):
    """How a run stands. `says` is one sentence; `next` a command to type, or what else to do; empty for nothing."""

    word: Word
    says: str
    next: str
    need: Need
    verdict: Verdict


def of(
    state: RunState, status: Status, now: datetime, children: Children, *, waits: bool = False, was_signalled: bool = False
) -> Standing:  # fmt: skip
    """How a run stands. `status` takes the life of its holder into account; `waits` and `was_signalled` as in `verdict.HostFacts`."""
    facts = verdict.HostFacts(waits=waits, was_signalled=was_signalled, boot_id=boot_id())
    found = verdict.of(state, status, now, children, facts)
    word = found.word
    _, evidence = show.why(state, status)
    quiet = word in ("running", "done", "handed_off", "not_started")
    if state.awaits_start and word == "not_started":
        quiet, evidence = False, found.why.removeprefix("not started: ")
    says = f"{MEANINGS[word]}: {evidence}" if evidence and not quiet else MEANINGS[word]
    return Standing(word, says, _next(word, state, now, children), found.need, found)


def words(word: str) -> str:
    """`in_doubt` as people write it."""
    return word.replace("_", " ")


# -- the next step -----------------------------------------------------------------------------------------------------

_NOTHING = ("done", "cancelled")
_NEEDS_RESUME = (
    "paused",
    "failed",
    "quarantined",
    "blocked",
)  # a program of somebody's own too, before it is started


def _next(word: Word, state: RunState, now: datetime, children: Children) -> str:
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


def go_on_command(state: RunState, now: datetime, children: Children) -> str:
    """The command that lets a run that rests go on: it is settled first where it is in doubt, and gets the budget it lacks.

    A program of somebody's own is started after it.
    """
    if verdict.to_settle(children, state):
        return settle_command(children, state)
    if state.status == "parked" and verdict.is_waiting(state, now):
        return answer_command(state.run, questions.waited_for(state.questions, state.waits)[0])
    return resume_command(state, now, children)


def resume_command(state: RunState, now: datetime, children: Children) -> str:
    """The command that starts a run that rests, with the budget that it lacks."""
    other = state.cause == "budget" and verdict.is_other_limit(state.evidence)
    if other or not verdict.is_out_of_budget(state, now, children):
        return f"outlast resume {state.run}"
    head = verdict.with_children(state, children)
    return f"outlast resume {state.run} {budgets.increase_hint(head, budgets.Live(now))}"


def typed(step: str) -> str:
    """A next step within a sentence: a command stands between backquotes, as it is pasted."""
    return f"`{step}`" if step.startswith("outlast ") else step


def settle_hint(command: str) -> str:
    """The settle command as a person pastes it, once they have looked."""
    return f"look whether it happened, then `{command} --happened` or `{command} --did-not`"


def settle_command(children: Children, state: RunState) -> str:
    """How the first effect in doubt is settled, once a person has looked. Without an answer the command asks for one."""
    found = verdict.to_settle(children, state) or verdict.doubts_among(children, state)
    return f"outlast settle {found[0][0]} {found[0][1].id}"
