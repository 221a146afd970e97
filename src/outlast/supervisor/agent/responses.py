"""The beats of an agent: a response of its model, with the calls that it requests, is one beat."""

from typing import Any, Protocol

from outlast.agents.events import Response, Text, ToolEnd, ToolStart
from outlast.core import events as ev
from outlast.core.text import act_words, call_words
from outlast.core.values import SessionMark, clip
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.record import SHIM, CallRecord
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.lifecycle import Lifecycle

TEXT_BYTES_MAX = 2_000
CALLS_NAMED_MAX = 32
CALL_BYTES_MAX = 100


class KeepsSession(Protocol):
    """Follows the agent's session."""

    @property
    def tells_calls(self) -> bool:
        """Whether its transcript has every call too."""

    @property
    def tells_steps(self) -> bool:
        """Whether its transcript tells where each response ends, and all calls of one ask before the first runs."""

    @property
    def is_followed(self) -> bool:
        """Whether its transcript is there and read as it grows."""

    def keep(self) -> SessionMark | None:
        """The session as far as it is known now, durable."""

    def beat_ended(self) -> None:
        """A beat ended, so everything counted so far is on record."""


class EndedAhead:
    """The responses whose beats a hook ended before the transcript had all of them, the oldest first.

    An agent writes its transcript behind its hooks. What the transcript still tells of such a response opens no beat
    and ends none. A response that the transcript has not begun to tell has no key yet.
    """

    def __init__(self) -> None:
        self._keys: list[str] = []

    def add(self, key: str) -> None:
        """The beat of this response ended, perhaps before the transcript had all of it."""
        self._keys.append(key)

    def takes(self, key: str) -> bool:
        """The transcript reached this response: return whether its beat is over. If not, nothing late is left."""
        if self._keys and self._keys[0] not in ("", key):
            self._keys.pop(0)
        if not self._keys:
            return False
        self._keys[0] = key
        return True

    def takes_text(self) -> bool:
        """Whether the text that the transcript reached belongs to a response whose beat is over."""
        return bool(self._keys)

    def takes_end(self) -> bool:
        """The transcript reached the end of a response: return whether its beat is over."""
        return bool(self._keys and self._keys[0] and self._keys.pop(0))


class Responses:
    """Ends a beat when the calls of a response have ended and the transcript has them.

    Every begin of a call passes here, so that the beat before ends first. Each response is one beat, in
    whichever order hooks and transcript tell of it.
    """

    def __init__(
        self, beats: BeatInFlight, calls: AgentCalls, session: KeepsSession, lifecycle: Lifecycle
    ) -> None:
        self._beats, self._run, self._lock = beats, beats.run, beats.lock
        self._calls, self._session, self._lifecycle = calls, session, lifecycle
        recorded = self._run.journal.record.effects.values()
        self._names = [clip(_words(known.intent), CALL_BYTES_MAX) for known in recorded]
        self._used = bool(recorded)  # whether anything happened in the open beat
        self._response = ""
        self._text = ""
        self._unwritten: set[str] = set()  # calls of this beat whose result the transcript does not hold yet
        self._due = False  # the batch has ended; the beat ends when that is written
        self.ends_late = False  # whether a hook may end a batch whose calls the transcript is to end
        self._over = (
            False  # the batch has ended, and the transcript will tell of which calls that is not known yet
        )
        self._ran = False  # a call of this beat has run to its end
        self._owed = 0  # further responses in this beat: their calls were reported before them
        self._ahead = EndedAhead()
        self._missed: set[str] = set()  # calls whose result was not in the transcript in time
        self.awaits_answer = False  # the last report was of a call: the model has not answered it yet

    # -- what hooks and the transcript report ----------------------------------------------------------------------

    def response(self, response: Response) -> None:
        """The model began or continued a response. A new response ends the beat of the one before."""
        if response.lane:
            return
        with self._lock:
            self.awaits_answer = False
            if self._ahead.takes(response.key):
                return
            if self._response != response.key:
                self._calls.went_on()
            if self._response and self._response != response.key:
                if self._calls.is_busy:  # with a call of the new response, which a hook reported before
                    self._owed += 1
                self.end_now()
            self._response, self._used = response.key, True

    def call_reported(self, lane: str) -> None:
        """The transcript or a hook reported a call, so the model's words before it are not its last."""
        if not lane:
            self.awaits_answer = True

    def result_reported(self, end: ToolEnd) -> None:
        """The transcript or a hook reported a call's result. Some CLIs do not wait for that hook: it may come after the
        transcript has the model's answer to this very result, and then changes nothing."""
        if not self._session.tells_calls or end.id in self._unwritten:
            self.call_reported(end.lane)

    def text(self, words: Text) -> None:
        """Take the model's words."""
        if words.lane:
            return
        with self._lock:
            self.awaits_answer = False
            if not self._ahead.takes_text():
                self._text, self._used = words.text, True

    # -- calls -----------------------------------------------------------------------------------------------------

    def intend(self, start: ToolStart, record: CallRecord) -> None:
        """Put a call on record, durable when this returns. One that is under way and known changes nothing.

        Raises Unrecorded where the call under way under this id is on record as another one.
        """
        with self._lock:
            if self._calls.is_under_way(start.id, record):
                return
            self._calls.went_on()
            self.end_due()
            self._calls.intend(start.id, record)
            self._note(start.id, record)

    def refuse(self, start: ToolStart, record: CallRecord, reason: str) -> None:
        """Put a call on record that was not let through. One that is known changes nothing."""
        with self._lock:
            if self._calls.knows(start.id):
                return
            self._calls.went_on()
            self.end_due()
            self._calls.refuse(start, record, reason)
            self._note(start.id, record)

    def found(self, start: ToolStart, record: CallRecord) -> None:
        """Record a call of an earlier attempt that only the transcript has."""
        with self._lock:
            self._calls.found(start.id, record)
            self._use(record)

    def cut_off(self, start: ToolStart, record: CallRecord) -> None:
        """Record that a local call of an earlier attempt, which only the transcript has, was cut off."""
        with self._lock:
            if self._calls.cut_off(start.id, record):
                self._use(record)

    def call_ended(self, end: ToolEnd) -> None:
        """A hook or the transcript reported that a call ran to its end."""
        with self._lock:
            self._ran = self._ran or end.id in self._unwritten
            if self._over and not self._calls.is_busy:
                self.end_batch()

    def _note(self, call: str, record: CallRecord) -> None:
        # The transcript will tell its result, unless only a shim saw it: of that no transcript tells.
        if self._session.tells_calls and not record.lane and not call.startswith(SHIM):
            self._unwritten.add(call)
            self.awaits_answer = True
        self._use(record)

    def _use(self, record: CallRecord) -> None:
        self._used = True
        self._names.append(clip(call_words(record.tool, record.input), CALL_BYTES_MAX))

    # -- ends ------------------------------------------------------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether no call is under way and no beat is begun."""
        with self._lock:
            return not self._calls.is_busy and not self._used

    def is_behind(self, *, is_end: bool) -> bool:
        """Whether the transcript has yet to tell how the open beat ended, at a hook that comes after it.

        `is_end`: the hook says that the response has ended; else it is about a new call.
        """
        with self._lock:
            if self._missed or not self._used or self._calls.is_busy or not self._session.is_followed:
                return False
            if self._due and self._unwritten:
                return True
            return self._session.tells_steps and (is_end or self._ran)

    @property
    def is_due(self) -> bool:
        """Whether the batch of the open beat has ended, and the transcript has not told all of it."""
        with self._lock:
            return self._used and (self._over or (self._due and not self._calls.is_busy))

    @property
    def has_results(self) -> bool:
        """Whether the transcript tells how calls end."""
        return self._session.tells_calls and self._session.is_followed

    def stop_waiting(self) -> None:
        """The transcript did not have the results in time. Do not wait for them again: they may never come."""
        self._missed |= self._unwritten

    def step_ended(self) -> None:
        """The transcript reports that a response and its calls have ended."""
        with self._lock:
            if not self._ahead.takes_end():
                self.end_batch()

    def end_batch(self, *, by_hook: bool = False) -> None:
        """All calls of a response have ended: end its beat as soon as the transcript has them too."""
        with self._lock:
            self._over = self.ends_late and by_hook and self._used and self._calls.is_busy
            self._due = self._used and not self._calls.is_busy
            if self._due and not self._unwritten:
                self._end(None, ahead=by_hook)

    def end_now(self) -> None:
        """End the beat, whatever the transcript still lacks, unless a call of it is under way."""
        with self._lock:
            if self._used and not self._calls.is_busy:
                self._end(None)

    def end_due(self) -> None:
        """End the beat if its batch has ended, whatever the transcript still lacks."""
        with self._lock:
            if self._due and self._used and not self._calls.is_busy:
                self._end(None, ahead=bool(self._unwritten))

    def written(self, call: str) -> None:
        """The transcript holds the result of a call."""
        with self._lock:
            if call in self._missed:
                self._missed.clear()
            self._unwritten.discard(call)
            if self._due and not self._unwritten:
                self._end(None)

    def finish(self, result: object, *, accept_unknown: bool = False) -> None:
        """The agent ended well: a beat that is still open is done. Raises EffectInDoubt while a call of it is."""
        with self._lock:
            self._settle()
            if self._used or self._beats.is_open:
                self._end(result)
            if accept_unknown:
                self._give_up()
            self._raise_doubt()

    def leave(self, *, accept_unknown: bool = False) -> None:
        """A person left the agent, or it had finished before: as `finish`, but an empty beat is not recorded."""
        with self._lock:
            self._settle()
            if self._used:
                self._end(None)
            if accept_unknown:
                self._give_up()
            self._raise_doubt()

    def _settle(self) -> None:
        self._calls.went_on()
        self._calls.settle_rest()

    def _raise_doubt(self) -> None:
        doubt = self._beats.doubt()
        if doubt is not None:
            raise doubt

    def _give_up(self) -> None:
        for effect in self._run.state.in_doubt:
            if effect.policy == "tell":
                at, by = self._run.journal.now(), "--accept-unknown"
                settled = ev.EffectSettled(at=at, beat=effect.beat, n=effect.n, finding="give_up", by=by)
                self._run.drive(append(settled))

    def _end(self, result: object, *, ahead: bool = False) -> None:
        """End the beat, and one more for each further response in it. `ahead`: more of it may yet come in the transcript."""
        if ahead and (self._response or self._text or self._unwritten):
            self._ahead.add(self._response)
        owed, self._owed = self._owed, 0
        self._end_one(self._summary() or result)
        for _ in range(owed):
            self._end_one(None)

    def _end_one(self, result: object) -> None:
        beat, meter = self._beats.now(), self._run.meter
        beat.session = self._session.keep()
        beat.window = meter.take_window()
        beat.metered = meter.begin_settling().total
        try:
            with self._beats.telling_full_disk():
                beat.done(result)
        except BaseException:
            meter.stop_settling()
            raise
        meter.end_settling()
        self._session.beat_ended()
        self._response, self._text, self._used, self._due, self._names = "", "", False, False, []
        self._ran = self._over = False
        self._unwritten.clear()
        self._lifecycle.beat_ended()

    def _summary(self) -> dict[str, Any]:
        """The summary of the beat, for a person and for a fresh session."""
        summary: dict[str, Any] = {"calls": self._names[:CALLS_NAMED_MAX]} if self._names else {}
        return summary | ({"said": clip(self._text, TEXT_BYTES_MAX)} if self._text else {})


def _words(intent: ev.EffectIntended) -> str:
    return intent.name if intent.args.blob else act_words(intent.name, bytes(intent.args.v))
