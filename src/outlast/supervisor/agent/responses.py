"""The beats of an agent: a response of its model, with the calls that it asks for, is one beat."""

from typing import Any, Protocol

from outlast.agents.events import Response, Text, ToolStart
from outlast.core import events as ev
from outlast.core.values import SessionMark, clip
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.calls.calls import AgentCalls
from outlast.supervisor.agent.calls.record import SHIM, CallRecord
from outlast.supervisor.beat_in_flight import BeatInFlight
from outlast.supervisor.lifecycle import Lifecycle

TEXT_BYTES_MAX = 2_000
CALLS_NAMED_MAX = 32


class KeepsSession(Protocol):
    """Whoever follows the agent's session."""

    @property
    def tells_calls(self) -> bool:
        """Whether its transcript tells of every call too."""

    def keep(self) -> SessionMark | None:
        """The session as far as it is known now, durable."""

    def beat_ended(self) -> None:
        """What was counted so far is on record."""


class Responses:
    """Ends a beat when the calls of a response have ended and the transcript tells of them.

    Whatever begins a call comes through here, so that the beat before is over first.
    """

    def __init__(
        self, beats: BeatInFlight, calls: AgentCalls, session: KeepsSession, lifecycle: Lifecycle
    ) -> None:
        self._beats, self._run, self._lock = beats, beats.run, beats.lock
        self._calls, self._session, self._lifecycle = calls, session, lifecycle
        recorded = self._run.journal.record.effects.values()
        self._names = [clip(known.intent.name, 100) for known in recorded]
        self._used = bool(recorded)  # whether anything happened in the open beat
        self._response = ""
        self._text = ""
        self._unwritten: set[str] = set()  # calls of this beat whose result the transcript does not hold yet
        self._due = False  # the batch has ended; the beat ends when that is written

    # -- what is told ----------------------------------------------------------------------------------------------

    def response(self, told: Response) -> None:
        """The model answers. Another answer than the one before: that one's beat is over."""
        if told.lane:
            return
        with self._lock:
            if self._response != told.key:
                self._calls.went_on()
            if self._response and self._response != told.key:
                self.end_now()
            self._response, self._used = told.key, True

    def text(self, told: Text) -> None:
        """What the model said."""
        if not told.lane:
            with self._lock:
                self._text, self._used = told.text, True

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
        """Put a call of an earlier attempt on record that only the transcript tells of."""
        with self._lock:
            self._calls.found(start.id, record)
            self._use(record)

    def _note(self, call: str, record: CallRecord) -> None:
        # The transcript will tell its result, unless only a shim saw it: of that no transcript tells.
        if self._session.tells_calls and not record.lane and not call.startswith(SHIM):
            self._unwritten.add(call)
        self._use(record)

    def _use(self, record: CallRecord) -> None:
        self._used = True
        self._names.append(clip(record.name, 100))

    # -- ends ------------------------------------------------------------------------------------------------------

    @property
    def rests(self) -> bool:
        """Whether no call is under way and no beat is begun."""
        with self._lock:
            return not self._calls.is_busy and not self._used

    def end_batch(self) -> None:
        """All calls of a response have ended, and with them its beat, as soon as the transcript tells of them too."""
        with self._lock:
            self._due = self._used and not self._calls.is_busy
            if self._due and not self._unwritten:
                self._end(None)

    def end_now(self) -> None:
        """The beat is over, whatever the transcript tells yet, unless something of it is still under way."""
        with self._lock:
            if self._used and not self._calls.is_busy:
                self._end(None)

    def end_due(self) -> None:
        """The beat is over if its batch has ended, whatever the transcript tells yet."""
        with self._lock:
            if self._due:
                self.end_now()

    def written(self, call: str) -> None:
        """The transcript holds the result of a call."""
        with self._lock:
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

    def leave(self) -> None:
        """A person left the agent: as `finish`, but of nothing no beat is made, and nothing is given up."""
        with self._lock:
            self._settle()
            if self._used:
                self._end(None)
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

    def _end(self, result: object) -> None:
        beat, meter = self._beats.now(), self._run.meter
        beat.session = self._session.keep()
        beat.window = meter.take_window()
        beat.metered = meter.begin_settling().total
        try:
            beat.done(self._summary() or result)
        except BaseException:
            meter.stop_settling()
            raise
        meter.end_settling()
        self._session.beat_ended()
        self._response, self._text, self._used, self._due, self._names = "", "", False, False, []
        self._unwritten.clear()
        self._lifecycle.beat_ended()

    def _summary(self) -> dict[str, Any]:
        """What a person reads of the beat, and a fresh session is told of it."""
        told: dict[str, Any] = {"calls": self._names[:CALLS_NAMED_MAX]} if self._names else {}
        return told | ({"said": clip(self._text, TEXT_BYTES_MAX)} if self._text else {})
