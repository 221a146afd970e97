"""The outward calls of a run's agent, from its journal: each call, its outcome, and which session knows of it."""

from collections import defaultdict
from collections.abc import Container
from typing import Final

import msgspec

from outlast import decoders
from outlast.core import events as ev
from outlast.core.replay import EffectRecord
from outlast.runs.journal import Journal
from outlast.supervisor.agent.calls.identity import takes_place
from outlast.supervisor.agent.calls.record import SHIM, CallRecord, OutwardCall, call_record_of, has_result

ANOTHER: Final = "another"  # a request: what an effect held is another call
_OF_EFFECTS = ("effect_intended", "effect_confirmed", "effect_failed", "effect_in_doubt", "effect_settled")
_TAGS = ("attempt_started", "session_known", *_OF_EFFECTS, "requested")
SPOKEN_BEATS = 2  # an agent that made calls so often since has surely been told: its next request may have been under way
_Outcome = ev.EffectConfirmed | ev.EffectFailed | ev.EffectInDoubt | ev.EffectSettled


class Named(msgspec.Struct, frozen=True):
    """The arguments of a request `another`: the effect whose held calls are other calls."""

    effect: str


class PastCall:
    """One call that reaches outside. `memory` knows that it was made; `was_reported`: its agent also got its result."""

    __slots__ = ("call", "happened", "memory", "record", "was_found", "was_reported")

    def __init__(self, call: CallRecord, record: EffectRecord, memory: int) -> None:
        self.call, self.record, self.memory = call, record, memory
        self.was_reported = self.was_found = self.happened = False

    def take(self, event: ev.AnyEvent) -> None:
        """Apply one more event of its effect."""
        self.was_reported = self.was_reported or isinstance(event, ev.EffectConfirmed)
        self.was_found = self.was_found or (isinstance(event, ev.EffectSettled) and event.by != "policy")
        self.happened = self.happened or (isinstance(event, ev.EffectSettled) and event.finding == "happened")
        self.record.take(event)

    def done(self, result: object) -> tuple[OutwardCall, ...]:
        """The acts that this call did, according to its result. Of a failed call: those that its shims saw end well."""
        if not isinstance(result, dict):
            return self.call.outward
        if result.get("ok") is not False:
            refused = result.get("not_done", ())
            return tuple(each for each in self.call.outward if each.signature not in refused)
        ended = result.get("done", ())
        if not ended and self.happened:
            return self.call.outward
        return tuple(each for at, each in enumerate(self.call.outward) if at in ended)


class Memories:
    """Numbers the memories of agents: an attempt has a memory of its own, unless it goes on in a session of an earlier
    attempt."""

    def __init__(self) -> None:
        self._of_session: dict[tuple[str, str], int] = {}
        self._is: dict[int, int] = {}  # a memory that turned out to be an earlier one
        self._count, self._agent = 0, ""
        self.now = 0

    def take(self, event: ev.AttemptStarted | ev.SessionKnown) -> None:
        if isinstance(event, ev.AttemptStarted):
            self._agent = ""
            self._begin()
            return
        session = (event.session.agent, event.session.session)
        known = self._of_session.get(session)
        if not self._agent and known is not None:
            self._is[self.now], self.now = known, known
        elif self._agent not in ("", event.session.agent):  # another agent knows nothing of what this one did
            self.now = known if known is not None else self._begin()
        self._agent = event.session.agent
        self._of_session.setdefault(session, self.now)

    def _begin(self) -> int:
        self._count += 1
        self.now = self._count
        return self.now

    def of(self, memory: int) -> int:
        """The memory that this number stands for."""
        return self._is.get(memory, memory)

    def of_session(self, agent: str, session: str) -> int | None:
        """The memory of a session; None if it has none yet."""
        return self._of_session.get((agent, session))


class History:
    """The outward calls of a run, read from the whole journal."""

    def __init__(self, journal: Journal) -> None:
        self.memories = Memories()
        self.calls: dict[str, PastCall] = {}
        self._answered: list[tuple[int, str, CallRecord]] = []  # in which memory, which effect and call
        self.named: defaultdict[str, set[str]] = defaultdict(
            set
        )  # by effect, the contents that are other calls
        self._held: defaultdict[str, set[str]] = defaultdict(
            set
        )  # by effect, the contents that it held so far
        self._requests = 0  # of the kind `another`, taken so far
        self._unheard = unheard(journal)
        self._journal = journal
        for event in journal.events(*_TAGS):
            self._take(journal, event)

    def _take(self, journal: Journal, event: ev.AnyEvent) -> None:
        match event:
            case ev.AttemptStarted() | ev.SessionKnown():
                self.memories.take(event)
            case ev.EffectIntended(policy="tell"):
                self._intended(journal, event)
            case ev.EffectConfirmed() | ev.EffectFailed() | ev.EffectInDoubt() | ev.EffectSettled():
                if (past := self.calls.get(f"{event.beat}.{event.n}")) is not None:
                    past.take(event)
            case ev.Requested() if event.what == ANOTHER:
                self._take_named(journal, event)
            case _:
                pass

    def _intended(self, journal: Journal, intent: ev.EffectIntended) -> None:
        call = call_record_of(journal, intent)
        if call is None:
            return
        if call.answered:
            self._answered.append((self.memories.now, f"{intent.beat}.{intent.n}", call))
        if call.held:
            self.held(call.held, call)
        past = PastCall(call, EffectRecord(intent), self.memories.now)
        self.calls[past.record.id] = past

    def held(self, effect: str, call: CallRecord) -> None:
        """A call was held because of an effect."""
        self._held[effect] |= {each.content for each in call.outward if each.content}

    def refresh_named(self, journal: Journal) -> None:
        """Apply the requests `another` that came since the journal was read."""
        events = journal.events("requested")
        requests = [event for event in events if isinstance(event, ev.Requested) and event.what == ANOTHER]
        for request in requests[self._requests :]:
            self._take_named(journal, request)

    def _take_named(self, journal: Journal, request: ev.Requested) -> None:
        """Apply a request by which the agent declared that the calls held by an effect are other calls."""
        self._requests += 1
        try:
            effect = decoders.convert(journal.value(request.args), Named).effect
        except (msgspec.ValidationError, msgspec.DecodeError):
            return
        self.named[effect] |= self._held[effect]

    def known(self, memory: int | None, of_subagents: Container[str] = ()) -> dict[str, PastCall]:
        """Past calls whose outcome this session may not know; None: a session that knows all.

        Of its own calls: those in doubt; those whose outcome outlast found out later and has not reported; those that ended in
        the background just before the session was cut off; those with a program whose caller did not hear that it ended well;
        those that only a sub-agent heard of (`of_subagents`). Of another session's calls: all.
        """
        return {
            effect: past
            for effect, past in self.calls.items()
            if past.record.state in ("intended", "in_doubt")
            or (past.was_found and not past.was_reported)
            or effect in self._unheard
            or effect in of_subagents
            or self._was_unheard(past)
            or not (memory is None or self.memories.of(past.memory) == memory)
        }

    def _was_unheard(self, past: PastCall) -> bool:
        if not (past.was_reported and has_result(past.record)):
            return False
        result = self._journal.value(past.record.result)
        return isinstance(result, dict) and bool(result.get("unheard"))

    def answers(self, memory: int | None, of_subagents: Container[str] = ()) -> list[CallRecord]:
        """The calls that outlast answered in a memory; None: in any. An answer that only a sub-agent heard is none."""
        return [
            call
            for where, effect, call in self._answered
            if (memory is None or self.memories.of(where) == memory) and effect not in of_subagents
        ]


def unheard(journal: Journal) -> set[str]:
    """Calls whose result may not have reached their agent: they ended in the background after their beat was over, and the
    agent has hardly made a call since."""
    found, over, after = set(), 0, _spoken(journal, SPOKEN_BEATS)
    tags = ("beat_begun", "beat_done", "effect_confirmed")
    while page := journal.store.read(journal.run, after=after, tags=tags, ends=True).events:
        for item in page:
            match item.event:
                case ev.BeatBegun(beat=beat):
                    over = max(over, beat - 1)
                case ev.BeatDone(beat=beat):
                    over = max(over, beat)
                case ev.EffectConfirmed(beat=beat, n=n) if beat <= over:
                    found.add(f"{beat}.{n}")
                case _:
                    pass
        after = page[-1].seq
    return found


def is_undone(journal: Journal, effect: str, first: OutwardCall) -> bool:
    """Whether a later call of the run may have put something else in the place of what this one had left."""
    return any(
        order(each) > order(effect)
        and past.record.state not in ("failed", "did_not")
        and not past.call.asks
        and any(takes_place(later, first) for later in past.call.outward)
        for each, past in History(journal).calls.items()
    )


def order(effect: str) -> tuple[int, int]:
    """The order of an effect among the effects of its run."""
    beat, n = effect.split(".")
    return int(beat), int(n)


def doubted(journal: Journal) -> set[str]:
    """Calls that were found to be in doubt, and whose agent has made no call since."""
    events = journal.events("effect_in_doubt", "effect_settled", after=_spoken(journal, 1))
    return {
        f"{event.beat}.{event.n}" for event in events
        if isinstance(event, ev.EffectInDoubt | ev.EffectSettled) and getattr(event, "finding", "cannot_tell") == "cannot_tell"
    }  # fmt: skip


def _spoken(journal: Journal, beats: int) -> int:
    """The journal's position just before the last `beats` beats in which the agent made calls; 0 if there are fewer."""
    begun = journal.store.read(journal.run, after=0, limit=beats, tags=("beat_begun",), newest=True).events
    return begun[0].seq - 1 if len(begun) == beats else 0


def seen_by_shims_alone(journal: Journal) -> dict[str, tuple[CallRecord, EffectRecord]]:
    """Calls that only a shim saw end well; the agent may not know of them.

    Of several alike the last one counts. Looks at the open beat and at the one before it, which may have ended with the very
    answer that made the call.
    """
    found: dict[tuple[str, ...], tuple[CallRecord, EffectRecord]] = {}
    for record in _effects_of_last_beats(journal).values():
        call = call_record_of(journal, record.intent)
        if call is None or not record.intent.key.startswith(SHIM):
            found = {} if call is not None and record.state != "failed" else found
        elif not call.below and not call.answered and not call.asks and record.state == "confirmed":
            found[tuple(f"{each.signature} {each.content}" for each in call.outward)] = call, record
    return {record.id: (call, record) for call, record in found.values()}


def _effects_of_last_beats(journal: Journal) -> dict[str, EffectRecord]:
    """The effects of the beat that ended last and of everything after it, in order."""
    ends = journal.store.read(
        journal.run, after=0, limit=2, tags=("beat_done",), newest=True, ends=True
    ).events
    found: dict[str, EffectRecord] = {}
    for event in journal.events(*_OF_EFFECTS, after=ends[0].seq if len(ends) == 2 else 0):
        if isinstance(event, ev.EffectIntended):
            record = EffectRecord(event)
            found[record.id] = record
        elif isinstance(event, _Outcome) and (known := found.get(f"{event.beat}.{event.n}")) is not None:
            known.take(event)
    return found
