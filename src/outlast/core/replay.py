"""The records of the open beat, matched by (kind, name, occurrence) when the beat is repeated."""

from typing import Literal

from outlast.core import events as ev
from outlast.core.values import Payload

RecordState = Literal["intended", "in_doubt", "did_not", "failed", "confirmed", "given_up"]


class EffectRecord:
    """One effect, folded from its events."""

    __slots__ = ("evidence", "failures", "final", "intent", "result", "state", "unencodable")

    def __init__(self, intent: ev.EffectIntended) -> None:
        self.intent = intent
        self.state: RecordState = "intended"
        self.result = Payload()
        self.failures = 0
        self.final = False  # the program was told that it failed, and may have gone another way
        self.evidence = ""
        self.unencodable = False

    @property
    def id(self) -> str:
        return f"{self.intent.beat}.{self.intent.n}"

    def take(self, event: ev.AnyEvent) -> None:
        """Fold one more event of this effect."""
        match event:
            case ev.EffectIntended():
                self.intent, self.state = event, "intended"
            case ev.EffectConfirmed():
                self.state, self.result, self.unencodable = "confirmed", event.result, event.unencodable
            case ev.EffectFailed():
                self.state, self.evidence, self.failures = "failed", event.error, self.failures + 1
                self.final = event.final
            case ev.EffectInDoubt():
                self.state, self.evidence = "in_doubt", event.evidence
            case ev.EffectSettled():
                self.evidence, self.result = event.evidence, event.result
                self.state = _FOUND[event.finding]
                self.final = False
                if (
                    event.by != "probe"
                ):  # a person's word allows a fresh start; a probe's "did not" is not a failure
                    self.failures = 0
            case _:
                raise AssertionError(f"not an event of an effect: {type(event).__name__}")


_FOUND: dict[str, RecordState] = {
    "happened": "confirmed",
    "did_not": "did_not",
    "cannot_tell": "in_doubt",
    "give_up": "given_up",
}


class BeatRecord:
    """The recorded decisions and effects of one beat."""

    __slots__ = ("_by_key", "_by_name", "_last_n", "beat", "begun", "decisions", "effects")

    def __init__(self, beat: int) -> None:
        self.beat = beat
        self.begun = False
        self.decisions: dict[tuple[str, int], ev.Decided] = {}
        self.effects: dict[int, EffectRecord] = {}
        self._by_name: dict[tuple[str, int], EffectRecord] = {}
        self._by_key: dict[str, EffectRecord] = {}
        self._last_n = 0

    def take(self, event: ev.AnyEvent) -> None:
        """Fold one more event. Events of other beats and kinds are ignored."""
        match event:
            case ev.BeatBegun(beat=self.beat):
                self.begun = True
            case ev.Decided(beat=self.beat):
                self.decisions[event.name, event.occurrence] = event
            case ev.EffectIntended(beat=self.beat) if event.n not in self.effects:
                self._open(EffectRecord(event))
            case (
                ev.EffectIntended(beat=self.beat)
                | ev.EffectConfirmed(beat=self.beat)
                | ev.EffectFailed(beat=self.beat)
                | ev.EffectInDoubt(beat=self.beat)
                | ev.EffectSettled(beat=self.beat)
            ):
                if event.n in self.effects:
                    self.effects[event.n].take(event)
            case _:
                pass

    def _open(self, record: EffectRecord) -> None:
        intent = record.intent
        self.effects[intent.n] = record
        self._last_n = max(self._last_n, intent.n)
        if intent.own_key:
            self._by_key[intent.key] = record
        else:
            self._by_name[intent.name, intent.occurrence] = record

    def effect(self, name: str, occurrence: int, own_key: str | None) -> EffectRecord | None:
        """The recorded effect that this call repeats, or None."""
        if own_key is not None:
            return self._by_key.get(own_key)
        return self._by_name.get((name, occurrence))

    def knows(self, kind: str, name: str, occurrence: int) -> bool:
        """Whether this call has a record."""
        place = (name, occurrence)
        return place in (self.decisions if kind == "decide" else self._by_name)

    def doubtful(self, name: str, up_to: int) -> int | None:
        """The occurrence of this name, among those already called, that is open or in doubt."""
        for (known, occurrence), record in self._by_name.items():
            if known == name and occurrence <= up_to and record.state in ("intended", "in_doubt"):
                return occurrence
        return None

    def next_n(self) -> int:
        """A fresh ordinal for a new effect of this beat, from 1."""
        self._last_n += 1
        return self._last_n

    def unsettled(self) -> list[EffectRecord]:
        """Effects whose outcome is open or in doubt."""
        return [record for record in self.effects.values() if record.state in ("intended", "in_doubt")]
