"""Repeated external calls: held while the first one's outcome is unknown, answered once it is known.

Two calls are the same when they have the same signature: verb and target, whatever their flags and words."""

from collections.abc import Iterable, Sequence

import msgspec

from outlast.core import events as ev
from outlast.core.replay import EffectRecord
from outlast.core.state import OpenEffect
from outlast.runs.journal import Journal
from outlast.supervisor.agent.calls.calls import SHIM, CallRecord

UNSURE = "Its program ended with exit code 0, which does not say that the server accepted it."
_TAGS = ("effect_intended", "effect_confirmed", "effect_failed", "effect_in_doubt", "effect_settled")


class Held(msgspec.Struct, frozen=True):
    """Why a call is not let through: the effect it would repeat, and what its agent is told."""

    effect: str
    text: str
    is_known: bool  # whether it was found out what became of the first one: then it is said once


class Holds:
    """What must not be repeated, as the journal tells. Read at first; what is settled meanwhile is looked up when asked."""

    def __init__(self, journal: Journal, settle: str) -> None:
        self._journal, self._settle = journal, settle
        self._past: dict[str, tuple[CallRecord, EffectRecord]] = {}
        self._answered: set[str] = set()
        self.read()

    def read(self) -> None:
        """Read the journal anew, and forget what was answered in this attempt but for what the journal tells of it."""
        self._past, self._answered = {}, set()
        self._read_past()
        self._read_alone()

    def _read_past(self) -> None:
        journal = self._journal
        doubts = {effect.id for effect in journal.state.effects_open if effect.policy == "tell"}
        settled = [
            event for event in journal.events("effect_settled")
            if isinstance(event, ev.EffectSettled) and event.by != "policy"
        ]  # fmt: skip
        wanted = doubts | {f"{event.beat}.{event.n}" for event in settled}
        if not wanted:
            return
        for event in journal.events(*_TAGS):
            if isinstance(event, ev.EffectIntended) and event.policy == "tell":
                self._take_intent(event, wanted)
            else:
                self._follow(event)

    def _read_alone(self) -> None:
        """What only a shim saw, of an agent that tells nothing of its calls, ended well: nobody knows whether the agent was
        told, unless it went on with a call or a beat that we saw. Of several alike the last one counts."""
        found: dict[tuple[str, ...], tuple[CallRecord, EffectRecord]] = {}
        for record in self._journal.record.effects.values():
            told = told_of(self._journal, record.intent)
            if told is None or not record.intent.key.startswith(SHIM):
                found = {} if told is not None and record.state != "failed" else found
                continue
            if told.answered:
                self.answered(told.answered)
            elif not told.below and record.state == "confirmed" and record.id not in self._past:
                found[tuple(each.signature for each in told.outward)] = told, record
        self._past |= {record.id: (told, record) for told, record in found.values()}

    def _follow(self, event: ev.AnyEvent) -> None:
        """What became of one of them. Of a call that ended and was told its agent nothing has to be said."""
        known = f"{getattr(event, 'beat', 0)}.{getattr(event, 'n', 0)}"
        if known in self._past and isinstance(event, ev.EffectConfirmed):
            del self._past[known]
        elif known in self._past:
            self._past[known][1].take(event)

    def _take_intent(self, intent: ev.EffectIntended, wanted: Iterable[str]) -> None:
        told = told_of(self._journal, intent)
        if told is None:
            return
        if told.answered:
            self._answered.add(told.answered)
        record = EffectRecord(intent)
        if record.id in wanted:
            self._past[record.id] = (told, record)

    def add(self, effect: OpenEffect) -> None:
        """One more that nobody knows the outcome of."""
        intents = self._journal.store.read(self._journal.run, after=0, key=effect.key).events
        for item in intents:
            if isinstance(item.event, ev.EffectIntended):
                self._take_intent(item.event, (effect.id,))

    def judge(self, signatures: Sequence[str]) -> Held | None:
        """Whether a call with these signatures may go; None where nothing stands against it."""
        open_now = {effect.id: effect for effect in self._journal.state.effects_open}
        for known, effect in open_now.items():
            if effect.policy == "tell" and effect.state == "in_doubt" and known not in self._past:
                self.add(effect)
        for known, (told, record) in self._past.items():
            same = [each.signature for each in told.outward if each.signature in signatures]
            if not same:
                continue
            if known in open_now:
                if open_now[known].state == "in_doubt":
                    return Held(known, self._held(known, same[0], told), is_known=False)
            elif known not in self._answered:
                answer = self._found(known, same[0], record, sure=all(each.sure for each in told.outward))
                if answer:
                    return Held(known, answer, is_known=True)
        return None

    def answered(self, effect: str) -> None:
        """The finding was told: the next call like it is another one."""
        self._answered.add(effect)

    def _held(self, effect: str, signature: str, told: CallRecord) -> str:
        words = f" ({' '.join(told.outward[0].words)[:200]})" if told.outward[0].words else ""
        return (
            f"outlast holds this call. The same was begun before as effect {effect}: {signature}{words}; it was cut off, and "
            f"it is not known whether it happened. Look first. Then say what you found: `{self._settle} {effect} --happened` or "
            "`--did-not`. After --did-not you may make the call again."
        )

    def _found(self, effect: str, signature: str, record: EffectRecord, *, sure: bool) -> str:
        self._refresh(record)
        if record.state == "confirmed" and has_result(record) and not sure:
            return (
                f"outlast did not repeat this call: {signature} was made before, as effect {effect}. {UNSURE} Look first. If it "
                "has to be made again, make the call once more."
            )
        if record.state == "confirmed":
            return (
                f"outlast did not repeat this call: {signature} happened before, as effect {effect}"
                f"{': ' + record.evidence if record.evidence else ''}. Take it as done. If you mean a further one, "
                "make the call once more."
            )
        if record.state == "given_up":
            return (
                f"outlast did not repeat this call: {signature} was begun before as effect {effect}, and it was given up to find "
                "out whether it happened. If you mean to do it all the same, make the call once more."
            )
        return ""

    def _refresh(self, record: EffectRecord) -> None:
        """What was settled in this attempt is in the journal, not in what was read at its beginning."""
        if record.state in ("intended", "in_doubt"):
            for event in self._journal.events("effect_settled"):
                if isinstance(event, ev.EffectSettled) and f"{event.beat}.{event.n}" == record.id:
                    record.take(event)


def has_result(record: EffectRecord) -> bool:
    """Whether it ended with one. What was found out to have happened has none."""
    return record.state == "confirmed" and (
        bool(record.result.blob) or bytes(record.result.v) not in (b"", b"null")
    )


def told_of(journal: Journal, intent: ev.EffectIntended) -> CallRecord | None:
    """What an intent says of an agent's call; None where it is no such call."""
    try:
        return msgspec.convert(journal.value(intent.args), CallRecord)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
