"""The one verdict on a run: how it stands, what it needs, and whether it is woken. Every surface and exit code asks here.

Pure: the head, its status for readers, the time and its children. `inspect/standing.py` has the sentences and commands."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

import msgspec

from outlast.core import budget as budgets, questions, restarts
from outlast.core.events import AttemptEnded, Cause
from outlast.core.state import OpenEffect, RunState, Status
from outlast.core.values import Usage

Word = Literal[
    "running", "restarting", "not_started", "ready", "killed", "rebooted", "died", "signalled", "stopped", "left",
    "checks_failed", "out_of_budget", "stalled", "disk_full", "paused", "parked", "due", "blocked", "in_doubt", "unsettled",
    "failed", "quarantined", "done", "cancelled", "handed_off", "waiting",
]  # fmt: skip
Need = Literal["nothing", "time", "start", "budget", "person"]
# What each way to stand asks for. `start`: `outlast resume`, or its program. `budget` and `person` wait for somebody.
NEEDS: dict[Word, Need] = {
    "running": "nothing", "restarting": "nothing", "not_started": "start", "ready": "start", "killed": "start",
    "rebooted": "start", "died": "start", "signalled": "start", "stopped": "start", "left": "start",
    "checks_failed": "start", "out_of_budget": "budget", "stalled": "person", "disk_full": "person", "paused": "start",
    "parked": "time", "due": "start", "blocked": "person", "in_doubt": "person", "unsettled": "start", "failed": "person",
    "quarantined": "person", "done": "nothing", "cancelled": "nothing", "handed_off": "nothing",
    "waiting": "person",
}  # fmt: skip
NEEDS_SOMEBODY: tuple[Need, ...] = ("person", "budget")

EXIT_DONE, EXIT_FAILED, EXIT_PERSON, EXIT_BUDGET, EXIT_PARKED = 0, 1, 3, 4, 5
# The exit code of a command that leaves a run so, and the notice that goes with it. All others: failed.
_EXITS: dict[Word, int] = {
    "done": EXIT_DONE, "in_doubt": EXIT_PERSON, "waiting": EXIT_PERSON, "stalled": EXIT_PERSON, "quarantined": EXIT_PERSON,
    "out_of_budget": EXIT_BUDGET, "parked": EXIT_PARKED, "due": EXIT_PARKED, "blocked": EXIT_PARKED,
}  # fmt: skip
_NOTICES: dict[Word, str] = {
    "done": "done", "in_doubt": "needs a person", "waiting": "needs a person", "stalled": "needs a person", "quarantined": "quarantined",
    "out_of_budget": "budget", "parked": "parked", "due": "parked", "blocked": "parked",
}  # fmt: skip

# Interrupted for one of these causes, without a request: the supervisor would have gone on, had it not died too.
WOKEN: tuple[Cause, ...] = (*restarts.PASSING, *restarts.MENDABLE, *restarts.WAITING, "person")
START_ITS_PROGRAM = "not started by `outlast run`: start its program"
NEVER_STARTED = "ended before its first attempt was on record: type its command again, or start its program"
DIED = "its attempt died without a word"  # as JSON has it
_DUE = "parked, and the time has come"  # as JSON has it
_UNANSWERED = "nobody answered in time"
OWN_LIMITS = (
    "turn limit of the agent's own",
    "budget of the agent's own",
)  # how the evidence of such an end begins

# What stands behind a call that is held: these wait for a person, or for whoever starts the run. The others go on by themselves.
_BEFORE_A_PERSON: tuple[Word, ...] = tuple(
    word for word in NEEDS if word not in ("running", "restarting", "parked", "due", "done", "cancelled", "handed_off")
)  # fmt: skip
_ENDED_IN_DOUBT = ("EffectInDoubt: ", "UnreachedEffect: ")  # how the evidence of such an end begins
_WISHES: dict[str, Word] = {"kill": "stopped", "open": "stopped", "resume": "ready", "take_back": "ready"}
_REQUEST = re.compile(r"(\w+) (?:asked )?by ")  # how a request is told as evidence
_ENDS: dict[str, Word] = {
    "host": "rebooted", "checks": "checks_failed", "invariant": "checks_failed", "stall": "stalled", "disk": "disk_full",
    "quota": "ready", "quarantine": "quarantined", "person": "ready",
}  # fmt: skip
_RESTING: dict[Status, str] = {
    "paused": "paused", "failed": "failed", "done": "done", "cancelled": "cancelled", "handed_off": "handed off",
    "running": "running",
}  # fmt: skip

Children = Callable[[RunState], Iterable[RunState]]  # the child runs of a run's open beat


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that no head has.

    `waits`: its supervisor lives and is about to start the next attempt. `was_signalled`: a signal had told it to stop before it
    died, as its guardian noted. `boot_id`: of this boot; an attempt of another one died with its machine. `limits`: how many
    attempts its supervisor would have made, where that is known.
    """

    waits: bool = False
    was_signalled: bool = False
    boot_id: str = ""
    limits: restarts.Limits | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands and what it needs.

    `wakes`: nothing that its journal tells keeps `outlast resume --all` from starting it; `why` says why, or why not. What no
    journal tells, `supervisor/control/wake.py` asks besides. `unasked`: it stopped although nobody asked it to.
    """

    word: Word
    need: Need
    wakes: bool
    why: str
    unasked: bool

    @property
    def needs_somebody(self) -> bool:
        """Whether it stays where it is until a person does more than start it."""
        return self.need in NEEDS_SOMEBODY


def childless(_: RunState) -> Iterable[RunState]:
    """The children of a run that is known to have none."""
    return ()


def of(
    state: RunState,
    status: Status,
    now: datetime,
    children: Children = childless,
    facts: HostFacts | None = None,
) -> Verdict:
    """The verdict. `status` is the one for readers: it takes the life of its holder into account."""
    known = facts or HostFacts()
    word = _word(state, status, now, children, known)
    wakes, why = _wake(word, state, status, now, known)
    if not wakes and word in _BEFORE_A_PERSON and held(state):
        word = "in_doubt"
    unasked = not known.was_signalled and _is_unasked(word, state, status)
    return Verdict(word=word, need=NEEDS[word], wakes=wakes, why=why, unasked=unasked)


def exit_code(word: Word, cause: Cause | None) -> int:
    """The exit code of `outlast run` and `outlast resume` when they leave a run so."""
    return _EXITS.get(_left(word, cause), EXIT_FAILED)


def notice(word: Word, cause: Cause | None) -> str:
    """The notice to a person when a command leaves a run so."""
    return _NOTICES.get(_left(word, cause), "failed")


def _left(word: Word, cause: Cause | None) -> Word:
    """The word that sets exit code and notice when a command leaves a run."""
    if word == "failed" and cause == "quota":
        return "stalled"
    return "out_of_budget" if cause == "budget" and word in ("ready", "unsettled") else word


# -- the word ----------------------------------------------------------------------------------------------------------


def _word(state: RunState, status: Status, now: datetime, children: Children, facts: HostFacts) -> Word:
    match status:
        case "interrupted" | "in_doubt" if facts.waits:
            return "restarting"
        case "in_doubt" | "paused" | "parked" | "failed" if _counts(asks(children, state)):
            return "in_doubt"
        case "interrupted" | "in_doubt" | "parked" if state.awaits_start:
            return "not_started"
        case "interrupted":
            return _interrupted(state, now, children, facts)
        case "in_doubt":
            word = _interrupted(state, now, children, facts)
            others = [doubt for doubt in doubts_among(children, state) if doubt not in held(state)]
            return "unsettled" if _counts(others) and NEEDS[word] not in NEEDS_SOMEBODY else word
        case "parked" if state.waits:
            return "waiting" if is_waiting(state, now) else "ready"
        case "parked":
            until = state.parked_until
            return "blocked" if until is None else "parked" if until > now else "due"
        case "failed":
            return "quarantined" if state.cause == "quarantine" else "failed"
        case _:
            return status


def is_waiting(state: RunState, now: datetime) -> bool:
    """Whether a parked run waits for a person: nobody has answered, and the time for it is not over."""
    return any(not each.is_overdue(now) for each in questions.waited_for(state.questions, state.waits))


def _interrupted(state: RunState, now: datetime, children: Children, facts: HostFacts) -> Word:
    """The word for an interrupted run."""
    if not state.attempts and (state.cause is None or state.cause == "operator"):
        return "not_started"
    if state.attempt is not None:  # it recorded no end
        if facts.was_signalled:
            return "signalled"
        return "rebooted" if facts.boot_id not in ("", state.attempt.boot_id) else "killed"
    word = _ended(state)
    return "out_of_budget" if word == "ready" and is_out_of_budget(state, now, children) else word


def _ended(state: RunState) -> Word:
    """The word for an attempt's recorded end, its budget aside."""
    match state.cause:
        case "operator":
            request = _REQUEST.match(state.evidence)
            return _WISHES.get(request[1], "left") if request is not None else "left"
        case "signal":
            return "signalled" if state.wanted else "died"
        case "budget":
            return "ready"
        case "crash" if has_ended_in_doubt(state):
            return "ready"
        case _:
            return _ENDS.get(state.cause or "", "died")


def of_end(event: AttemptEnded) -> str:
    """The word for how an attempt ended, by its end alone: the run may stand otherwise since, as when it got more budget."""
    if event.status != "interrupted":
        return "quarantined" if event.cause == "quarantine" else event.status
    if event.evidence.startswith(_ENDED_IN_DOUBT):
        return "in_doubt"
    ends: dict[Cause, str] = {"budget": "out_of_budget", "quota": "parked", "person": "waiting"}
    head = RunState(cause=event.cause, evidence=event.evidence, wanted=event.wanted)
    return ends.get(event.cause) or _ended(head)


# -- what is in doubt --------------------------------------------------------------------------------------------------


def doubts_among(children: Children, state: RunState) -> list[tuple[str, OpenEffect]]:
    """Effects in doubt of a run and of its open beat's children, each with the run it belongs to."""
    found = [(state.run, effect) for effect in state.in_doubt]
    for child in children(state):
        found += doubts_among(children, child)
    return found


def asks(children: Children, state: RunState) -> list[tuple[str, OpenEffect]]:
    """The effects in doubt that only a person settles.

    Once a command has ended although an effect was in doubt, that is all of them: its agent knew and left it so, or its
    program did not reach it again. The next attempt would end the same way.
    """
    doubts = doubts_among(children, state)
    if has_ended_in_doubt(state):
        return doubts
    return [item for item in doubts if not next_attempt_settles(item[1])]


def held(state: RunState) -> list[tuple[str, OpenEffect]]:
    """The calls of a guarded command that are held until a person settles them.

    Its next attempt goes on without them, so they do not keep it from being woken. Whoever acts on the run settles them first.
    """
    doubts = state.in_doubt if state.guarded else ()
    return [(state.run, effect) for effect in doubts if effect.policy == "tell" and effect.looked]


def to_settle(children: Children, state: RunState) -> list[tuple[str, OpenEffect]]:
    """The effects that a person settles before anything else is done with a run that rests."""
    return asks(children, state) or held(state)


def _counts(doubts: list[tuple[str, OpenEffect]]) -> bool:
    """Whether anything of this puts a run in doubt: what may be given up does not."""
    return any(effect.policy != "give_up" for _, effect in doubts)


def has_ended_in_doubt(state: RunState) -> bool:
    """Whether the last attempt came to its end, and only effects in doubt kept it from being done."""
    return state.attempt is None and state.evidence.startswith(_ENDED_IN_DOUBT)


def next_attempt_settles(effect: OpenEffect) -> bool:
    """Whether the next attempt settles this effect: by a probe not asked yet, by reissuing it, or by giving it up."""
    match effect.policy:
        case "probe":
            return not effect.looked
        case "reissue":
            return effect.state == "intended"
        case "give_up" | "tell":  # the next attempt tells the agent what it cannot find out, and goes on
            return True
        case "ask":
            return False


# -- the budget --------------------------------------------------------------------------------------------------------


def is_own_limit(evidence: str) -> bool:
    """Whether a limit of the agent's own ended an attempt, by the evidence on record."""
    return evidence.startswith(OWN_LIMITS)


def is_other_limit(evidence: str) -> bool:
    """Whether the limit was not one of ours, which more budget would raise."""
    return is_own_limit(evidence) or evidence.startswith(budgets.NO_PRICE)


def is_out_of_budget(state: RunState, now: datetime, children: Children) -> bool:
    """Whether a run would meet its budget at once: nobody has raised what is spent, and no window has passed."""
    if state.budget is None and state.cause != "budget":
        return False
    head, live = with_children(state, children), budgets.Live(now)
    if state.cause != "budget":
        return bool(budgets.limit_reached(head, live))
    return is_other_limit(state.evidence) or budgets.is_spent(head, live)


def with_children(state: RunState, children: Children) -> RunState:
    """The head with what the runs below its open beat have spent; those of a done beat are in the beat's own sum."""
    return msgspec.structs.replace(state, spent=state.spent.plus(spent_below(children, state)))


def spent_below(children: Children, state: RunState) -> Usage:
    """The spending of the runs below an open beat."""
    total = Usage()
    for child in children(state):
        total = total.plus(child.spent).plus(spent_below(children, child))
    return total


# -- waking ------------------------------------------------------------------------------------------------------------


def limit_reached(state: RunState, limits: restarts.Limits) -> restarts.Stop | None:
    """The limit that the run's attempts reached while its supervisor was dead, or None."""
    return None if state.wanted else restarts.limit_reached(state.cause, state.past, limits)


def _wake(word: Word, state: RunState, status: Status, now: datetime, facts: HostFacts) -> tuple[bool, str]:
    """Whether a run should go on by itself, and why or why not.

    What an attempt that was killed without warning achieved is found out by the next start, which checks its limits too.
    """
    if status in _RESTING:
        return False, "quarantined" if state.cause == "quarantine" else _RESTING[status]
    if state.awaits_start:
        what = "a fork" if state.start != "awaited" else "imported"
        return False, f"not started: {what}, and nobody has asked to start it"
    if word == "waiting":
        return False, f"waits for a person: {', '.join(state.waits)}"
    if not state.supervised:
        if word == "parked" and state.parked_until is not None:
            return False, f"{_until(state.parked_until)}: start its program then"
        return False, START_ITS_PROGRAM if state.attempts else NEVER_STARTED
    if word == "in_doubt":
        return False, "in doubt: settle it first"
    if status == "parked":
        return _wake_parked(state, now)
    if not state.attempts and state.cause is None:
        return True, "died before its first attempt was on record"
    if state.attempt is not None:
        return (False, "stopped: signal") if facts.was_signalled else (True, DIED)
    if facts.limits is not None and limit_reached(state, facts.limits) is not None:
        return False, "quarantined"
    if state.wanted or state.cause not in WOKEN:
        return False, f"stopped: {state.cause}"
    return (False, "stopped: out of budget") if word == "out_of_budget" else (True, f"died: {state.cause}")


def _wake_parked(state: RunState, now: datetime) -> tuple[bool, str]:
    if state.waits:  # and it does not wait any longer
        return True, _UNANSWERED
    if state.parked_until is None:
        return False, f"parked until a person looks: {state.cause}"
    if state.parked_until > now:
        return False, _until(state.parked_until)
    return True, _DUE


def _until(moment: datetime) -> str:
    return f"parked until {moment:%Y-%m-%d %H:%M} UTC"


def in_words(why: str) -> str:
    """`why` as a person reads it: programs rely on the value that JSON has."""
    words = why.replace(DIED, "its attempt was killed without warning (no exit recorded)")
    return words.replace(_DUE, "the usage limit is over")


def _is_unasked(word: Word, state: RunState, status: Status) -> bool:
    if word == "due":
        return True
    if word == "not_started":
        return state.supervised and not state.awaits_start
    if NEEDS[word] != "start" or status not in ("interrupted", "in_doubt"):
        return False
    return state.cause == "budget" or (not state.wanted and state.cause != "operator")
