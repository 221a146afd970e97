"""Settle: a person's word on an effect in doubt. What the run does with it is `runs.inbox.settled`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import msgspec

from outlast import decoders
from outlast.acts.plan import TAKEN_IN, WRITES, ActOutcome, called, effects, next_act, root_of, stands
from outlast.core.events import Finding
from outlast.core.state import Status
from outlast.core.text import short
from outlast.errors import RunRefused, UsageError
from outlast.inspect import find, show
from outlast.operations import requests
from outlast.processes.proc import describe
from outlast.processes.roster import Roster
from outlast.runs.inbox import SettleArgs
from outlast.store.protocol import Store, Summary

ACT_CHARS = 400
RESULT_CHARS = 200

PersonsFinding = Literal["happened", "did_not", "give_up"]


class _Word(NamedTuple):
    """The name of a person's finding, and its consequence."""

    clause: str
    option: str
    state: show.EffectWord
    then: str


WORDS: dict[PersonsFinding, _Word] = {
    "happened": _Word("happened", "--happened", "confirmed", "It is not done again; the agent gets {result} as its result."),
    "did_not": _Word(
        "did not happen", "--did-not", "failed",
        "The next attempt does it. If it did happen after all, it happens twice.",
    ),
    "give_up": _Word("is given up", "--give-up", "given_up", "It is not done again, and the run goes on without it."),
}  # fmt: skip


def clause(finding: Finding) -> str:
    """A finding within a sentence: what became of the effect."""
    return "is still in doubt" if finding == "cannot_tell" else WORDS[finding].clause


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """A word on an effect worked out. `settled_by` said the same before, if anybody did."""

    store: Store
    run: Summary
    root: Summary
    effect: str
    finding: PersonsFinding
    result: bytes | None
    settled_by: str
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same."""
        result = () if self.result is None else ("--result", self.result.decode())
        return ("settle", self.run.run, self.effect, WORDS[self.finding].option, *result)

    def apply(self, by: str = "") -> ActOutcome:
        """Record it, or ask the run's holder to. The same word again changes nothing."""
        root, effect = self.root, f"Effect {self.effect} {clause(self.finding)}"
        with requests.alone(self.store, root.run, WRITES):
            now = plan(self.store, self.run, self.effect, self.finding, self.result)
            if now.settled_by:
                then, hint = next_act(self.store, root.run)
                says = f"{effect} already, as {now.settled_by} said."
                return ActOutcome(says=says, hint=hint, changed=False, link=root.run, next=then)
            outcome = requests.settle(
                self.store, self.run.run, self.effect, self.finding, self.result or b"null", by=by
            )
        if outcome.in_inbox:
            again = "" if outcome.changed else "asked already; "
            return ActOutcome(
                says=f"{effect}: {again}{TAKEN_IN}.", changed=outcome.changed, link=self.run.run
            )
        left = len(find.doubts(self.store, requests.summary_of(self.store, root.run).state))
        rest = f"{left:,} more in doubt" if left else f"nothing more of {called(root)} is in doubt"
        then, hint = next_act(self.store, root.run)
        return ActOutcome(says=f"{effect}; {rest}.", hint=hint, link=root.run, next=then)


def plan(
    store: Store, summary: Summary, effect: str, finding: Finding, result: bytes | None = None
) -> SettlePlan:
    """Work out what a person's word on an effect would do; `result` is JSON. Raises UsageError, RunRefused."""
    root, status = root_of(store, summary)
    requests.allow(root.state, status, "settle")
    if finding == "cannot_tell":
        raise UsageError(
            "`cannot_tell` leaves the effect in doubt, as it is",
            hint=f"find out, then say one of: {', '.join(get_args(PersonsFinding))}",
        )
    if result is not None and finding != "happened":
        raise UsageError(
            "only an effect that happened has a result", hint="leave out the result, or say that it happened"
        )
    found = effect_of(store, summary, effect)
    name = f"Effect {effect}" + (f", {found.name}," if found is not None else "")
    if found is not None and _is_settled_so(found, finding, result):
        so = (f"{name} {clause(finding)} already, as {found.settled_by} said: nothing changes.",)
        return SettlePlan(store, summary, root, effect, finding, result, found.settled_by, so)
    if finding == "did_not" and found is not None:
        _refuse_living(store, root, summary.run, found)
    args = requests.settling(store, summary.run, effect, finding, result or b"null")
    _require_one_word(store, root, args)
    shown = short(bytes(args.result).decode(), RESULT_CHARS)
    sentences = (
        *about(found), f"{name} is recorded as: it {clause(finding)}, by your word.", WORDS[finding].then.format(result=shown),
        _taken_in(store, root, status),
    )  # fmt: skip
    return SettlePlan(store, summary, root, effect, finding, result, "", sentences)


def about(effect: show.Effect | None) -> Iterator[str]:
    """An effect's act with all its arguments: two payments differ by nothing else."""
    if effect is not None:
        yield f"Effect {effect.id} is: {short(show.act_words(effect), ACT_CHARS)}"


def effect_of(store: Store, summary: Summary, effect: str) -> show.Effect | None:
    """The effect of this id, as far as its journal tells."""
    return next((each for each in show.effects(store, summary) if each.id == effect), None)


def _taken_in(store: Store, root: Summary, status: Status) -> str:
    if status == "running":
        return f"It is running: {TAKEN_IN}."
    left = len(find.doubts(store, root.state)) - 1
    more = f"; {effects(left)} in doubt then" if left > 0 else ""
    return f"The run is {stands(store, root)}, and is not started by this{more}."


def _refuse_living(store: Store, root: Summary, run: str, effect: show.Effect) -> None:
    """Refuse to say that an effect did not happen while a process of it lives, as far as this host can see: it may do it yet."""
    alive = Roster(store.local.roster(root.run)).alive(effect.key)
    if alive:
        oldest = min(alive, key=lambda each: each.start_ticks)
        raise RunRefused(
            f"effect {effect.id} may still be under way in {describe(oldest.pid)}",
            hint=f"wait until that has ended, or end it; then look, and say it again: `outlast settle {run} {effect.id} --did-not`",
        )


def _is_settled_so(found: show.Effect, finding: PersonsFinding, result: bytes | None) -> bool:
    """Whether the effect is settled already with this finding and this result."""
    if not found.settled_by or found.state != WORDS[finding].state:
        return False
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        given = msgspec.json.decode(result or b"null")
        return finding != "happened" or given == msgspec.json.decode(found.result)
    return False


def _require_one_word(store: Store, root: Summary, args: SettleArgs) -> None:
    """Refuse a second, different finding about an effect while the first one waits for the running process: the first would count."""
    for request in store.inbox.pending(root.run):
        if request.what != "settle":
            continue
        try:
            waits = decoders.decode(request.args, SettleArgs)
        except msgspec.MsgspecError:
            continue
        if (waits.run, waits.effect) == (args.run, args.effect) and waits != args:
            raise RunRefused(
                f"{request.by} said already that effect {args.effect} {clause(waits.finding)}",
                hint="the running process applies it soon; check then",
            )
