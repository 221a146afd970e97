"""Calls of sub-agents whose agent does not know of them, as the call that the sub-agent worked for was cut off.

Not here: how a sub-agent's call gets its outcome. That is the same for every call (`calls`)."""

from collections.abc import Iterable, Mapping

from outlast.agents.outward.classify import runs_text
from outlast.core import events as ev
from outlast.runs.journal import Journal
from outlast.supervisor.agent.calls.record import CallRecord, call_record_of

_OF_EFFECTS = ("effect_intended", "effect_confirmed", "effect_failed", "effect_settled")
_TAGS = ("attempt_started", *_OF_EFFECTS)
_Outcome = ev.EffectConfirmed | ev.EffectFailed | ev.EffectSettled


class _Call:
    """One call on record. `around`: the calls under way when it was about to begin, of an outward call."""

    __slots__ = ("around", "ended", "intent", "outcome")

    def __init__(self, intent: ev.EffectIntended, around: Iterable["_Call"]) -> None:
        self.intent, self.around = intent, tuple(around)
        self.outcome: _Outcome | None = None
        self.ended = 0  # when its outcome was put on record, as a count of events


def unheard(journal: Journal, lanes: Mapping[str, str]) -> set[str]:
    """The effects that a sub-agent got the outcome of, and that its agent did not hear of.

    `lanes`: the sub-agent that made a call, by the agent's own id of the call, as far as the transcripts say; empty for the
    agent's own calls.
    """
    if not (outward := _outward_calls(journal)):
        return set()
    calls = _Calls(journal, lanes)
    made = {known: call for known, call in outward.items() if not calls.is_agents_own(call)}
    named = _named(journal, {lane for call in made.values() if (lane := calls.lane(call))})
    return {known for known, call in made.items() if not calls.is_heard(call, named)}


class _Calls:
    """Whose calls are, and which call may have begun the sub-agent that made another one."""

    def __init__(self, journal: Journal, lanes: Mapping[str, str]) -> None:
        self._journal, self._lanes = journal, lanes
        self._records: dict[str, CallRecord | None] = {}  # by the effect's key

    def is_heard(self, call: _Call, named: Mapping[str, int]) -> bool:
        """Whether each call that its sub-agent may work for ended well, so that the agent got the sub-agent's last words.

        | the sub-agent         | its call is heard of                                                        |
        |-----------------------|-----------------------------------------------------------------------------|
        | is waited for         | when no call around it was cut off or failed                                |
        | runs apart            | never: no call of the agent ends with it                                    |
        | is not known as such  | as of one that is waited for, also where no call was around it: its agent's |
        """
        around = [each for each in call.around if self._may_have_begun(each, call)]
        if not all(self._went_well(each) for each in around):
            return False
        lane = self.lane(call)
        return not lane or (bool(around) and not named.get(lane, call.ended) < call.ended)

    def is_agents_own(self, call: _Call) -> bool:
        """Whether the transcripts say that no sub-agent made it."""
        return not self.lane(call) and self._lanes.get(self._id(call)) == ""

    def lane(self, call: _Call) -> str:
        """The sub-agent that made it, or that a call made which it may be part of; empty: none, or not known."""
        if (record := self._record(call.intent)) is None:
            return ""
        lanes = (record.lane or self._lanes.get(self._id(call), ""), *map(self._lane_of, record.below))
        return next(filter(None, lanes), "")

    def _lane_of(self, call_id: str) -> str:
        if lane := self._lanes.get(call_id, ""):
            return lane
        for item in self._journal.store.read(self._journal.run, after=0, key=call_id).events:
            if isinstance(item.event, ev.EffectIntended) and (record := self._record(item.event)) is not None:
                return record.lane
        return ""

    def _may_have_begun(self, around: _Call, call: _Call) -> bool:
        """Whether the sub-agent that made a call may work for another one: a call that is no shell's, of another lane."""
        record = self._record(around.intent)
        if record is None or isinstance(around.outcome, ev.EffectFailed) or _is_shell(record):
            return False
        if around.ended and around.ended < call.ended and self._went_well(around):
            return False  # it did not wait for it
        lane = self.lane(call)
        return not lane or self.lane(around) != lane

    def _went_well(self, call: _Call) -> bool:
        if not isinstance(call.outcome, ev.EffectConfirmed):
            return False
        result = self._journal.value(call.outcome.result)
        return not isinstance(result, dict) or result.get("ok") is not False

    def _id(self, call: _Call) -> str:
        record = self._record(call.intent)
        return record.call if record is not None and record.call else call.intent.key

    def _record(self, intent: ev.EffectIntended) -> CallRecord | None:
        if intent.key not in self._records:
            self._records[intent.key] = call_record_of(self._journal, intent)
        return self._records[intent.key]


def _is_shell(record: CallRecord) -> bool:
    """Whether a call runs a text. One that begins a sub-agent has a prompt, whatever it says besides."""
    return runs_text(record.input) and not (isinstance(record.input, dict) and "prompt" in record.input)


def _outward_calls(journal: Journal) -> dict[str, _Call]:
    """The calls that reach outside, by effect, each with the calls that were under way around it."""
    found: dict[str, _Call] = {}
    opened: dict[str, _Call] = {}  # nothing of a dead attempt goes on in the next one
    for at, event in enumerate(journal.events(*_TAGS), start=1):
        match event:
            case ev.AttemptStarted():
                opened = {}
            case ev.EffectIntended(own_key=True, policy="tell"):
                found[f"{event.beat}.{event.n}"] = _Call(event, opened.values())
            case ev.EffectIntended(own_key=True):
                opened[f"{event.beat}.{event.n}"] = _Call(event, ())
            case ev.EffectConfirmed() | ev.EffectFailed() | ev.EffectSettled():
                effect = f"{event.beat}.{event.n}"
                call = found.get(effect) or opened.pop(effect, None)
                if call is not None:
                    call.outcome, call.ended = event, at
            case _:
                pass
    return found


def _named(journal: Journal, lanes: set[str]) -> dict[str, int]:
    """When the result of a call first named a sub-agent, as a count of events: one named before its own calls runs apart."""
    if not lanes:
        return {}
    found: dict[str, int] = {}
    for at, event in enumerate(journal.events(*_TAGS), start=1):
        if isinstance(event, ev.EffectConfirmed) and not event.result.blob:
            result = bytes(event.result.v)
            for lane in lanes - found.keys():
                if lane.encode() in result:
                    found[lane] = at
    return found
