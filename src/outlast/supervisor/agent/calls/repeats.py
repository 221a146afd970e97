"""Repeated external calls: held while the first one's outcome is unknown, answered once it is known.

`identity` says which call is the same one again; `history` says which calls were made before."""

import shlex
from collections.abc import Container, Mapping, Sequence
from typing import Final

import msgspec

from outlast.agents.outward import content
from outlast.core import events as ev
from outlast.core.replay import EffectRecord
from outlast.core.state import OpenEffect
from outlast.core.values import shorten
from outlast.runs.journal import Journal
from outlast.supervisor.agent.calls import history
from outlast.supervisor.agent.calls.history import History, PastCall, order
from outlast.supervisor.agent.calls.identity import RANK, SAME, Likeness, likeness as likeness_of, nearest
from outlast.supervisor.agent.calls.open_call import printed_again
from outlast.supervisor.agent.calls.record import (
    CallRecord,
    EndedProgram,
    OutwardCall,
    call_record_of,
    has_result,
)
from outlast.supervisor.socket.script_calls import steps_on_record

UNSURE = "Its program ended with exit code 0, which does not say that the server accepted it."
WRITE_OUT = (
    "What this call sends is not known before it runs, so it counts as the same. If it is another one, make it in a call of its "
    "own with all that it sends written out: no pipe, no $(…), no file or commit that the same command makes."
)
BESIDE = (
    "Its words are the same, and they do not hold all that it sends: files, a folder, settings may. So nobody can tell whether it "
    "is another one."
)
ASIDE = "It differs only in who asks, or in what differs from try to try, so it counts as the same."
UNKNOWN = "It ended, and its result is not known."
COMMAND_CHARS, OUTPUT_CHARS = 300, 500
FRESH: Final = ("", "")  # a session that knows of nothing


class Held(msgspec.Struct, frozen=True):
    """Why outlast does not let a call through: the effect it would repeat, and the text for its agent."""

    effect: str
    text: str
    is_known: bool  # whether the outcome of the first one is known: then the call is answered once
    again: bytes | None = None  # what it printed, if the very same call is known to have ended well
    owed: EndedProgram | None = None  # a program of this attempt, whose caller never heard how it ended


class Holds:
    """The calls that must not be repeated, from the journal. Read once; `judge` looks up effects that were settled meanwhile.

    | an earlier call is      | in doubt                       | known to have happened, or given up                        |
    |-------------------------|--------------------------------|------------------------------------------------------------|
    | the same, or unclear    | held until it is settled       | answered once, where the agent's session may not know of it |
    | reworded                | held until it is settled       | answered once, likewise                                    |
    | at the same address     | held until the agent says that | passes                                                     |
    | with another content    | it is another call             |                                                            |
    | a push of other commits | passes                         | passes                                                     |

    Nobody reads an answer below a guarded command: it gets the first one's output in the place of an answer, if it is the
    same, and where it is only alike a person is asked (`CallRecord.asks`).

    `session` (agent and id) is the one that the agent goes on in; without it every call of the run is known to the agent.
    """

    def __init__(self, journal: Journal, settle: str) -> None:
        self._journal, self._settle = journal, settle
        self.read(None)

    def read(self, session: tuple[str, str] | None, of_subagents: Container[str] = ()) -> None:
        """Read the journal again, for a session of the agent. `of_subagents`: effects that only a sub-agent heard of."""
        journal = self._journal
        self._history = History(journal)
        memory = None if session is None else self._history.memories.of_session(*session)
        memory = -1 if session is not None and memory is None else memory
        self._past = self._history.known(memory, of_subagents)
        self._answered: set[str] = set()
        self._released: set[str] = set()  # by these a person let a call pass
        self._insisted: set[tuple[str, str]] = set()
        for call in self._history.answers(memory, of_subagents):
            self.answered(call.answered, call)
        for effect, (call, record) in history.seen_by_shims_alone(journal).items():
            self._past.setdefault(effect, PastCall(call, record, 0))

    def judge(
        self,
        again: Sequence[OutwardCall],
        begun: Mapping[str, Sequence[OutwardCall]] | None = None,
        steps: Sequence[str] = (),
    ) -> Held | None:
        """Why a call that does this may not pass; None if it may.

        `begun`: of calls of this attempt that lost a program, what of them is in doubt. `steps`: those of a script that the
        call is below.
        """
        opened = {effect.id: effect for effect in self._journal.state.effects_open}
        for doubt in opened.values():
            if doubt.policy == "tell" and doubt.state == "in_doubt" and doubt.id not in self._past:
                self._add(doubt)
        alike: list[tuple[Likeness, OutwardCall, PastCall]] = []
        for known, past in self._past.items():
            likeness, first = nearest((begun or {}).get(known, past.call.outward), again)
            if first is not None and not self._belongs_to_a_step(past, steps):
                alike.append((likeness, first, past))
        same = [past for likeness, _, past in alike if likeness == "same"]
        in_question = {past.call.asks for past in same}
        is_on_record = any(
            self._stands_for_itself(past) and past.record.id not in in_question for past in same
        )
        if not is_on_record and (ruling := self._ruling_by_a_person(alike)) is not None:
            return ruling
        before = (0, 0) if is_on_record else self._release(alike)
        for likeness, first, past in sorted(alike, key=lambda each: RANK.index(each[0])):
            effect = past.record.id
            if past.call.asks:
                continue
            if effect in opened:
                if opened[effect].state == "in_doubt" and self._is_held(effect, likeness, first, again):
                    return Held(effect, self._held(effect, likeness, first, again), is_known=False)
                continue
            if order(effect) < before:
                continue
            if first.another == "free" and history.is_undone(self._journal, effect, first):
                continue
            is_answered = effect in self._answered or self._is_meant(likeness, first, again)
            answer = "" if is_answered else self._found(past, again)
            if answer:
                rest = sum(self._may_be_answered(*each, again) for each in alike if each[2] is not past)
                text = f"{answer} {_MORE.format(rest)}" if rest else answer
                return Held(effect, text, is_known=True, again=self._printed(past, again))
        return None

    def _belongs_to_a_step(self, past: PastCall, steps: Sequence[str]) -> bool:
        """Whether a call that has ended was made below a step on record: it ends again with that step, as it did, and stands for
        no call elsewhere."""
        made_below = past.call.steps
        if not made_below or past.record.state in ("intended", "in_doubt") or set(made_below) & set(steps):
            return False
        return not steps_on_record(self._journal).isdisjoint(made_below)

    # -- calls that a person was asked about ---------------------------------------------------------------------------

    def question(self, effect: str, about: str) -> str:
        """The text about a call that outlast recorded as `effect` and holds, because it may repeat the effect `about`."""
        return (
            f"outlast holds this call: it may be effect {about} again, which was made before. If it is: `{self._settle} {effect} "
            "--happened`, and it counts as done (with --result '\"TEXT\"', it prints TEXT). If it is another one: "
            f"`{self._settle} {effect} --did-not`, and it is made. Then start the command again."
        )

    def _stands_for_itself(self, past: PastCall) -> bool:
        """Whether a call was made, or may have been, and this attempt has not been answered with it yet."""
        was_made = past.record.state not in ("failed", "did_not")
        return was_made and not past.call.asks and past.record.id not in self._answered

    def _ruling_by_a_person(self, alike: Sequence[tuple[Likeness, OutwardCall, PastCall]]) -> Held | None:
        """What a person decided about a similar call: this one waits for that decision, or counts as done."""
        for likeness, _, past in alike:
            effect, about = past.record.id, past.call.asks
            if not about or likeness not in SAME or effect in self._answered:
                continue
            self._refresh(past.record)
            if past.record.state in ("intended", "in_doubt"):
                return Held(effect, self.question(effect, about), is_known=False)
            if past.record.state == "confirmed":
                first = past if has_result(past.record) else self._past.get(about, past)
                result = self._journal.value(first.record.result)
                text = f"outlast did not make this call: somebody said that it is effect {about} again."
                return Held(effect, text, is_known=True, again=printed_again(result) or b"")
        return None

    def _release(self, alike: Sequence[tuple[Likeness, OutwardCall, PastCall]]) -> tuple[int, int]:
        """If a person said that a call is another one, one call like it passes everything that ended before that call.
        Returns that call's place in the order of effects, else (0, 0)."""
        for likeness, _, past in alike:
            effect = past.record.id
            is_another = past.call.asks and past.record.state == "did_not" and effect not in self._released
            if is_another and likeness in SAME:
                self._released.add(effect)
                return order(effect)
        return (0, 0)

    def _printed(self, past: PastCall, again: Sequence[OutwardCall]) -> bytes | None:
        """The first call's output; None if this is not the very same call, or the first one failed, is undone, or printed too much."""
        record = past.record
        result = self._journal.value(record.result) if has_result(record) else None
        done = past.done(result)
        is_same = all(any(likeness_of(one, each) == "same" for one in done) for each in again)
        is_well = not isinstance(result, dict) or result.get("ok", True) is True
        if record.state != "confirmed" or not is_same or not is_well:
            return None
        is_undone = any(history.is_undone(self._journal, record.id, each) for each in done)
        return None if is_undone else printed_again(result)

    def _may_be_answered(
        self, likeness: Likeness, first: OutwardCall, past: PastCall, again: Sequence[OutwardCall]
    ) -> bool:
        """Whether the same call, made once more, would be answered with this one."""
        is_over = past.record.state in ("confirmed", "given_up") and past.record.id not in self._answered
        is_known = likeness != "same" and all(content.is_whole(each.content) for each in again)
        return is_over and likeness in SAME and not is_known

    def answered(self, effect: str, call: CallRecord) -> None:
        """The agent got this outcome; the next similar call counts as new."""
        self._answered.add(effect)
        if effect in self._past and (about := self._past[effect].call.asks):
            self._answered.add(about)
        self._insist(call)

    def take_back(self, effect: str, call: CallRecord) -> None:
        """The answer did not reach the agent after all: the next similar call is answered again."""
        self._answered.discard(effect)
        if effect in self._past and (about := self._past[effect].call.asks):
            self._answered.discard(about)
        self._insisted -= {(each.signature, each.content) for each in call.outward}

    def _insist(self, call: CallRecord) -> None:
        whole = [each for each in call.outward if content.is_whole(each.content)]
        self._insisted |= {(each.signature, each.content) for each in whole}

    def _is_meant(self, likeness: Likeness, first: OutwardCall, again: Sequence[OutwardCall]) -> bool:
        """Whether a call that is only similar was answered before with the very same content: then its agent insists on it.

        If its content is unknown, every call it may equal is answered.
        """
        alike = [each for each in again if likeness_of(first, each) == likeness]
        return likeness != "same" and all((each.signature, each.content) in self._insisted for each in alike)

    def held(self, effect: str, call: CallRecord) -> None:
        """A call was held because of this effect. Its agent may say that it is another call."""
        self._history.held(effect, call)

    def _add(self, effect: OpenEffect) -> None:
        """Add one more effect whose outcome is unknown."""
        for item in self._journal.store.read(self._journal.run, after=0, key=effect.key).events:
            if isinstance(item.event, ev.EffectIntended) and (
                call := call_record_of(self._journal, item.event)
            ):
                self._past[effect.id] = PastCall(call, EffectRecord(item.event), 0)

    def _is_held(
        self, effect: str, likeness: Likeness, first: OutwardCall, again: Sequence[OutwardCall]
    ) -> bool:
        """Whether a call is held while this effect is in doubt. A call that the agent declared to be another one is not."""
        if likeness != "named":
            return likeness in SAME
        self._history.refresh_named(self._journal)
        contents = {each.content for each in again if likeness_of(first, each) != "unrelated"}
        return not contents <= self._history.named[effect]

    # -- in words for the agent ------------------------------------------------------------------------------------

    def _held(self, effect: str, likeness: Likeness, first: OutwardCall, again: Sequence[OutwardCall]) -> str:
        before = f"as effect {effect}: {first.signature}{_command(first)}; it was cut off, and it is not known whether it happened."
        say = (
            f"Look first. Then say what you found: `{self._settle} {effect} --happened` or `--did-not`. After --did-not you may "
            "make the call again."
        )
        if likeness == "named":
            return (
                f"outlast holds this call. Another one went to the same address before, {before} If this is that call in other "
                f"words: {say} If it is another call: say so with `{self._settle} {effect} --another`, then make it again."
            )
        if likeness == "reworded":
            return f"outlast holds this call. The same was begun before with other words, {before} {say}"
        unclear = [each for each in again if likeness_of(first, each) == "unclear"]
        if unclear and all(content.is_whole(each.content) for each in unclear):
            return f"outlast holds this call. The same was begun before {before} {say} {ASIDE}"
        if unclear:
            words = WRITE_OUT if not all(content.can_differ(each.content) for each in unclear) else BESIDE
            return f"outlast holds this call. The same was begun before {before} {say} {words}"
        return f"outlast holds this call. The same was begun before {before} {say}"

    def _found(self, past: PastCall, again: Sequence[OutwardCall]) -> str:
        """The outcome of the first call; empty if it is no reason to stop the agent."""
        self._refresh(past.record)
        record, effect = past.record, past.record.id
        result = self._journal.value(record.result) if has_result(record) else None
        likeness, first = nearest(past.done(result), again)
        if first is None or likeness not in SAME or record.state not in ("given_up", "confirmed"):
            return ""  # it did not happen, or failed, and may be tried again
        before = f"as effect {effect}{_command(first)}"
        head = f"outlast did not repeat this call: {first.signature}"
        if record.state == "given_up":
            return (
                f"{head} was begun before {before}, and somebody gave up finding out whether it happened. If you mean to do it "
                "anyway, make the call once more."
            )
        is_unknown = isinstance(result, dict) and result.get("ok", True) is None
        if is_unknown or (result is not None and not all(each.sure for each in past.call.outward)):
            return (
                f"{head} was made before, {before}. {UNKNOWN if is_unknown else UNSURE} Look first. If it has to be made again, make "
                "the call once more."
            )
        how = record.evidence or _output(result)
        return (
            f"{head} happened before, {before}{f': {how}' if how else ''}. {_UNLESS[likeness]}, make "
            "the call once more."
        )

    def _refresh(self, record: EffectRecord) -> None:
        """Look up whether the effect was settled during this attempt, after `read`."""
        if record.state in ("intended", "in_doubt"):
            for event in self._journal.events("effect_settled"):
                if isinstance(event, ev.EffectSettled) and f"{event.beat}.{event.n}" == record.id:
                    record.take(event)


_MORE = "Calls like it are on record {} more times; each is answered once."
_UNLESS: dict[Likeness, str] = {
    "same": "Take it as done. If you mean a further one",
    "unclear": "What the two of them send cannot be compared. If it is the same, take it as done. If you mean a further one",
    "reworded": "It had other words. If it is the same, take it as done. If you mean a further one",
}


def _command(first: OutwardCall) -> str:
    """The command that did it, as far as it is on record."""
    return f" ({shorten(shlex.join(first.words), COMMAND_CHARS)})" if first.words else ""


def _output(result: object) -> str:
    output = result.get("output") if isinstance(result, dict) else None
    return f"it ended with {shorten(output, OUTPUT_CHARS)!r}" if isinstance(output, str) and output else ""
