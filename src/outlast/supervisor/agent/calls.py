"""The calls of an agent we did not write, as effects: an intent before, an outcome after; a response with its batch is a beat.

What an agent does is told by its hooks, by shims below it and by its transcript, whichever comes first, each possibly
from a thread of its own; so everything here is under the desk's lock, and everything may be told twice.
"""

import os
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import msgspec

from outlast.agents import Response, Text, ToolEnd, ToolStart
from outlast.agents.outward.classify import runs_text
from outlast.core import events as ev, values
from outlast.core.values import SessionMark, clip
from outlast.errors import OutlastError
from outlast.runs.engine.beat import BeatEngine
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import append
from outlast.supervisor.socket.script_calls import ScriptCalls

OUTPUT_BYTES_MAX = 100_000
TEXT_BYTES_MAX = 2_000
CALLS_NAMED_MAX = 32
REASON_BYTES_MAX = 1_500
BY_SHIM = "shim"
SHIM = "shim-"  # begins the key of what only a shim saw


class OutwardCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a call does outside: verb and target, and what a probe needs to find out whether it happened."""

    kind: str
    signature: str
    words: tuple[str, ...] = ()
    cwd: str = ""
    probe: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    sure: bool = True  # exit code 0 of its program says that it happened


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the intent of an agent's call holds. `answered`: it was not performed, the finding on that effect was told."""

    tool: str
    input: Any = None
    lane: str = ""
    cwd: str = ""
    outward: tuple[OutwardCall, ...] = ()
    answered: str = ""
    call: str = ""  # the agent's own id of the call, where the effect's key is another
    below: tuple[str, ...] = ()  # of what only a shim saw: the agent's calls that it may be part of

    @property
    def name(self) -> str:
        """As a person reads it: where it goes, else which tool it is."""
        return ", ".join(each.signature for each in self.outward) or self.tool


class Unrecorded(OutlastError):
    """A call that could not be put on record. It must not happen; the attempt goes on."""


class _Open(msgspec.Struct, frozen=True):
    beat: int
    n: int
    lane: str
    is_outward: bool
    recorded: tuple[str, ...] = ()  # the signatures that its intent holds
    signatures: tuple[str, ...] = ()  # of what no shim has seen yet
    waits: int = 0  # programs that a shim saw begin and not end well yet
    failed: ToolEnd | None = None  # what the agent says of a call that reaches outside and failed
    runs: bool = False  # programs, so that a shim may see what it does
    sure: bool = True  # the exit codes so far say that it happened
    below: tuple[str, ...] = ()
    ended: ToolEnd | None = None  # well, below a call that has not ended
    live: int = 0  # programs that a shim saw begin and not end
    lost: bool = (
        False  # one of them was killed: whatever the call's own result says, nobody knows what it did
    )
    returned: ToolEnd | None = None  # what the agent was told, while a program of it runs on


class Calls(ScriptCalls):
    """Serves the scripts of an attempt too; their steps end no beat here, the agent's responses do."""

    def __init__(
        self,
        run: RunEngine,
        keep: Callable[[], SessionMark | None],
        on_beat: Callable[[], None] = lambda: None,
        *,
        follows: bool = False,
        accept_unknown: bool = False,
    ) -> None:
        self._keep = keep
        self._accept_unknown = accept_unknown
        self._follows = follows  # whether a transcript tells of every call too
        self._at_hand: BeatEngine | None = None
        super().__init__(run, on_beat)
        self.lock = self._lock
        self._open: dict[str, _Open] = {}
        self._response = ""
        self._names = [clip(known.intent.name, 100) for known in run.journal.record.effects.values()]
        self._text = ""
        self._used = bool(run.journal.record.effects)
        self._unwritten: set[str] = set()  # calls of this beat whose result the transcript does not hold yet
        self._due = False  # the batch has ended; the beat ends when that is written
        self._spent: dict[str, values.Usage] = {}
        self._paid = values.Usage()  # of that, what the end of an earlier attempt is on record with already
        self._window: values.Window | None = None

    # -- beats -----------------------------------------------------------------------------------------------------

    @property
    def _beat(self) -> BeatEngine:
        """The open beat; after the end of one the next is opened when something happens in it."""
        assert self._at_hand is not None, "a desk begins with a beat"
        if self._at_hand.closed:
            self._at_hand = self._next_beat()
        return self._at_hand

    @_beat.setter
    def _beat(self, beat: BeatEngine) -> None:
        self._at_hand = beat

    def _may_end(self) -> bool:
        return False

    def finish(self, result: object) -> None:
        """The agent ended well: a beat that is still open is done. Raises EffectInDoubt while a call of it is."""
        with self._lock:
            self._went_on()
            self._settle_open()
            if self._used or (self._at_hand is not None and not self._at_hand.closed):
                self._end_response(result)
            if self._accept_unknown:
                self._give_up()
            doubt = self._in_doubt()
            if doubt is not None:
                raise doubt

    def _give_up(self) -> None:
        for effect in self._run.state.in_doubt:
            if effect.policy == "tell":
                at, by = self._run.journal.now(), "--accept-unknown"
                settled = ev.EffectSettled(at=at, beat=effect.beat, n=effect.n, finding="give_up", by=by)
                self._run.drive(append(settled))

    def leave(self) -> None:
        """A person left the agent: as `finish`, but of nothing no beat is made, and nothing is given up."""
        with self._lock:
            self._went_on()
            self._settle_open()
            if self._used:
                self._end_response(None)
            doubt = self._in_doubt()
            if doubt is not None:
                raise doubt

    @property
    def rests(self) -> bool:
        """Whether no call is under way and no beat is begun."""
        with self._lock:
            return not self.is_busy and not self._used

    @property
    def is_busy(self) -> bool:
        """Whether a call of the agent is under way. What only a shim saw may run on: no beat waits for it."""
        return any(not call.startswith(SHIM) for call in self._open)

    def end_batch(self) -> None:
        """All calls of a response have ended, and with them its beat, as soon as the transcript tells of them too."""
        with self._lock:
            self._due = self._used and not self.is_busy
            if self._due and not self._unwritten:
                self._end_response(None)

    def end_now(self) -> None:
        """The beat is over, whatever the transcript tells yet, unless something of it is still under way."""
        with self._lock:
            if self._used and not self.is_busy:
                self._end_response(None)

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
                self._end_response(None)

    def _end_response(self, result: object) -> None:
        beat = self._beat
        beat.session = self._keep()
        beat.window, self._window = self._window, None
        beat.spend(self.unsettled())
        beat.done(self._summary() or result)
        self._response, self._text, self._used, self._due = "", "", False, False
        self._names, self._spent, self._paid = [], {}, values.Usage()
        self._unwritten.clear()
        self._on_beat()

    def _summary(self) -> dict[str, Any]:
        """What a person reads of the beat, and a fresh session is told of it."""
        told: dict[str, Any] = {"calls": self._names[:CALLS_NAMED_MAX]} if self._names else {}
        return told | ({"said": clip(self._text, TEXT_BYTES_MAX)} if self._text else {})

    # -- what is told of a response --------------------------------------------------------------------------------

    def response(self, told: Response) -> None:
        """The model answers. Another answer than the one before: that one's beat is over."""
        if told.lane:
            return
        with self._lock:
            if self._response != told.key:
                self._went_on()
            if self._response and self._response != told.key:
                self.end_now()
            self._response, self._used = told.key, True

    def text(self, told: Text) -> None:
        if not told.lane:
            with self._lock:
                self._text, self._used = told.text, True

    def usage(self, key: str, spent: values.Usage) -> None:
        """The last word on a response counts, once."""
        with self._lock:
            self._spent[key] = spent

    def paid(self, owed: values.Usage) -> None:
        """Of what is told so far, the earlier attempts of this beat were charged this much: it does not count twice."""
        with self._lock:
            told = self._total()
            self._paid = told.minus(told.minus(owed))

    def window(self, told: values.Window) -> None:
        with self._lock:
            self._window = told

    def unsettled(self) -> values.Usage:
        """What the open beat is known to have cost, of which no event tells yet."""
        with self._lock:
            return self._total().minus(self._paid)

    def _total(self) -> values.Usage:
        return reduce(values.Usage.plus, self._spent.values(), values.Usage())

    # -- what is told of a call ------------------------------------------------------------------------------------

    def knows(self, call: str) -> bool:
        """Whether an intent of this call is on record."""
        with self._lock:
            journal = self._run.journal
            return call in self._open or bool(
                journal.store.read(journal.run, after=0, limit=1, key=call).events
            )

    def intend(self, start: ToolStart, told: CallRecord) -> None:
        """Put the call on record, durable when this returns. One that is under way and known changes nothing.

        Raises Unrecorded where the call under way under this id is on record as another one.
        """
        with self._lock:
            opened = self._open.get(start.id)
            if opened is not None:
                if {each.signature for each in told.outward} <= set(opened.recorded):
                    return
                raise Unrecorded("another call is under way under its id", hint="make the call again")
            self._went_on()
            if self._due:
                self.end_now()
            key = self._key(start.id)
            told = told if key == start.id else msgspec.structs.replace(told, call=start.id)
            self._open[start.id] = self._put(key, told)
            self._expect(start.id, told)
            self._note(told)

    def _key(self, call: str) -> str:
        """A key that no effect has: some agents name a call by what it is, so that two alike have one name."""
        return call if not self.knows(call) else f"{call}~{os.urandom(6).hex()}"

    def found(self, start: ToolStart, told: CallRecord) -> None:
        """A call of an earlier attempt that only the transcript tells of: on record, and not under way."""
        with self._lock:
            key = self._key(start.id)
            self._put(key, told if key == start.id else msgspec.structs.replace(told, call=start.id))
            self._note(told)

    def covers(self, signatures: Iterable[str]) -> str:
        """The call under way that is on record as doing all of this; each is covered once. Empty where there is none, and where
        there are several: nobody knows whose program it is."""
        wanted = set(signatures)
        with self._lock:
            found = [call for call, opened in self._open.items() if wanted and wanted <= set(opened.recorded)]
            if len(found) != 1 or not wanted <= set(self._open[found[0]].signatures):
                return ""
            opened = self._open[found[0]]
            left = tuple(each for each in opened.signatures if each not in wanted)
            self._open[found[0]] = msgspec.structs.replace(
                opened, signatures=left, waits=opened.waits + 1, live=opened.live + 1
            )
            return found[0]

    def enclosing(self) -> tuple[str, ...]:
        """The calls under way that a program may be part of: those that run programs, if there are such."""
        with self._lock:
            calls = {call: opened for call, opened in self._open.items() if not call.startswith(SHIM)}
            return tuple(call for call, opened in calls.items() if opened.runs) or tuple(calls)

    def shimmed(self, call: str, code: int, *, sure: bool) -> None:
        """A program that belongs to a call ended. When all of them ended well, what the call does outside has happened,
        if their exit codes can say so (`sure`): that is on record before the call goes on, for what comes after may be
        cut off. One that only a shim saw is over when the call around it is: so long its agent has not been told."""
        with self._lock:
            opened = self._open.get(call)
            if opened is None:
                return
            if code >= 128:  # a signal: what it had done by then nobody knows
                self.shim_gone(call)
                return
            if call.startswith(SHIM):
                end = ToolEnd(call, code == 0, f"exit code {code}")
                if code != 0 or not self._is_below(opened):
                    self.outcome(end)
                    return
                self._open[call] = opened = msgspec.structs.replace(opened, ended=end, sure=sure)
            elif code != 0:
                self._open[call] = msgspec.structs.replace(opened, live=opened.live - 1)
                return
            else:
                waits, sure = opened.waits - 1, opened.sure and sure
                self._open[call] = opened = msgspec.structs.replace(
                    opened, waits=waits, live=opened.live - 1, sure=sure
                )
            if opened.waits == 0 and not opened.signatures and opened.sure:
                at, why = self._run.journal.now(), "its program ended with exit code 0"
                self._append(
                    ev.EffectSettled(
                        at=at, beat=opened.beat, n=opened.n, finding="happened", by=BY_SHIM, evidence=why
                    )
                )

    def shim_gone(self, call: str) -> None:
        """A program was killed, or its shim: nobody knows whether it did what it was started for."""
        with self._lock:
            opened = self._open.get(call)
            if opened is None:
                return
            if call.startswith(SHIM):
                self._doubt(call, "its program was killed")
            else:
                self._open[call] = msgspec.structs.replace(opened, live=opened.live - 1, lost=True)

    def _doubt(self, call: str, why: str) -> None:
        opened = self._open.pop(call)
        at = self._run.journal.now()
        self._append(ev.EffectInDoubt(at=at, beat=opened.beat, n=opened.n, evidence=why))

    def _is_below(self, opened: _Open) -> bool:
        return any(call in self._open for call in opened.below)

    def refuse(self, start: ToolStart, told: CallRecord, reason: str) -> None:
        """A call that was not let through is on record too."""
        with self._lock:
            if self.knows(start.id):
                return
            self._went_on()
            self.end_due()
            opened = self._put(start.id, told)
            self._expect(start.id, told)
            self._append(
                ev.EffectFailed(
                    at=self._run.journal.now(),
                    beat=opened.beat,
                    n=opened.n,
                    error=f"not done: {clip(reason, REASON_BYTES_MAX)}",
                )
            )
            self._note(told)

    def _put(self, key: str, told: CallRecord) -> _Open:
        beat, journal = self._beat, self._run.journal
        n = beat.number_effect()
        self._append(
            ev.EffectIntended(
                at=journal.now(), beat=beat.number, n=n, name=clip(told.name, 200), occurrence=0, key=key, own_key=True,
                args=journal.payload(msgspec.to_builtins(told)), policy="tell" if told.outward else "give_up",
                uptime_s=journal.uptime_s(),
            )
        )  # fmt: skip
        signatures = tuple(each.signature for each in told.outward)
        return _Open(
            beat.number, n, told.lane, bool(told.outward), signatures, () if key.startswith(SHIM) else signatures,
            runs=runs_text(told.input), below=told.below,
        )  # fmt: skip

    def _expect(self, call: str, told: CallRecord) -> None:
        """The transcript will tell its result, unless only a shim saw it: of that no transcript tells."""
        if self._follows and not told.lane and not call.startswith(SHIM):
            self._unwritten.add(call)

    def _note(self, told: CallRecord) -> None:
        self._used = True
        self._names.append(clip(told.name, 100))

    def outcome(self, end: ToolEnd) -> None:
        """What came of a call, with the files as it left them. One that is not open changes nothing.

        That a call which reaches outside failed is what an agent says too when it is killed in it, and it is not true
        then. So that counts only when the agent goes on.
        """
        with self._lock:
            opened = self._open.get(end.id)
            if opened is None:
                return
            if opened.is_outward and not (end.ok and end.sure):
                self._open[end.id] = msgspec.structs.replace(opened, failed=end)
                return
            self._confirm(end)

    def _went_on(self) -> None:
        """The model answers again: what it was told of failed calls was no dying word."""
        for opened in list(self._open.values()):
            if opened.failed is not None and opened.failed.id in self._open:
                self._confirm(opened.failed)

    def _confirm(self, end: ToolEnd) -> None:
        """Put a result on record, and those of the programs below it, which its agent knows now."""
        if self._open[end.id].lost:
            self._doubt(end.id, f"a program of it was killed; it ended with {clip(end.output, 200)!r}")
            return
        opened = self._open.pop(end.id)
        run, journal = self._run, self._run.journal
        save = run.files.save_effect(journal) if run.files is not None and opened.ended is None else ""
        result = journal.payload({"ok": end.ok, "output": clip(end.output, OUTPUT_BYTES_MAX)})
        self._append(
            ev.EffectConfirmed(at=journal.now(), beat=opened.beat, n=opened.n, result=result, save=save)
        )
        for below in list(self._open.values()):
            known = below.ended or below.failed
            if end.id in below.below and known is not None and not self._is_below(below):
                self._confirm(known)

    def _settle_open(self) -> None:
        """The agent ended and says nothing more of these: outward ones are in doubt, the others are over."""
        journal = self._run.journal
        for call, opened in list(self._open.items()):
            if opened.ended is not None:
                self._confirm(opened.ended)
                continue
            at, why = journal.now(), "the agent ended without a result for it"
            if opened.is_outward:
                self._append(ev.EffectInDoubt(at=at, beat=opened.beat, n=opened.n, evidence=why))
            else:
                self._append(
                    ev.EffectSettled(
                        at=at, beat=opened.beat, n=opened.n, finding="give_up", by="policy", evidence=why
                    )
                )
            del self._open[call]

    def _append(self, *events: ev.AnyEvent) -> None:
        self._run.drive(append(*events, in_beat=True))
