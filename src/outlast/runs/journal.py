"""One run's journal in this process: its folded head, its lease, and the one way to append to it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from outlast.core import events as ev, state as st
from outlast.core.replay import BeatRecord, EffectRecord
from outlast.core.values import NOTHING, PAYLOAD_INLINE_MAX_BYTES, Payload
from outlast.errors import NotEncodable, StoreTooNew
from outlast.runs.engine.steps import Append, Block, Steps
from outlast.store.locks import boottime_s
from outlast.store.protocol import Batch, Lease, Store

HEAD_EVERY = 256
JSON_DEPTH_MAX = 200
_PLAIN = (str, int, bool, type(None))
_HEAD_EVENTS = (
    ev.AttemptStarted, ev.AttemptEnded, ev.Finished, ev.Parked, ev.Woken, ev.Requested, ev.ContractAmended, ev.PlanSet,
    ev.QuestionAsked, ev.QuestionAnswered,
)  # fmt: skip

_encoder = msgspec.json.Encoder()
_sorted = msgspec.json.Encoder(order="sorted")
_read = msgspec.json.Decoder().decode


def encode(value: object, *, canonical: bool = False) -> bytes:
    """A value as JSON that can be read back, or NotEncodable that says what stood in the way."""
    try:
        data = (_sorted if canonical else _encoder).encode(value)
        if type(value) not in _PLAIN:
            _check_depth(_read(data))  # it may hold JSON of the caller's own making
        return data
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        raise NotEncodable(
            f"{type(value).__name__} cannot be written as JSON: {error}",
            hint="return or pass plain data: numbers, texts, lists, dicts, dataclasses",
        ) from error


def _check_depth(value: object) -> None:
    """Refuse values nested deeper than anybody writes by hand: outlast could not show or export them."""
    level: list[object] = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {JSON_DEPTH_MAX} deep")


class Owner(Protocol):
    """The run in this process that a journal is written for."""

    @property
    def saves_effects(self) -> bool:
        """Whether the files go back with the run, so that each confirmed effect names a save of them."""

    def save_effect(self) -> str:
        """Save the files as they are after an effect; the commit."""

    def take_requests(self, *, if_rung: bool = False) -> Steps:
        """Take in what people asked of the run."""


# Hears of events that are durable, in order, with the head after them. It must not wait, and must not raise.
Listener = Callable[[tuple[ev.AnyEvent, ...], st.RunState], None]


class Journal:
    """Appends events in order and keeps the head up to date. After a failed append it is of no more use."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        head: st.RunState,
        owner: Owner | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.store = store
        self.lease = lease
        self.mutex = threading.RLock()
        self._lazy: list[tuple[ev.AnyEvent, bytes]] = []  # part of the head already, and in no commit yet
        self._unfolded: deque[ev.BeatDone] = deque(maxlen=st.RECENT_MAX)
        self.uncertain = False  # an append was interrupted: what is in memory may not be in the journal
        self.standing = head  # as of the last fold: what no plain beat changes is read here without one
        self.seq, self.beats, self.cursor, self.over = head.seq, head.beats, head.cursor, head.over
        self.record = BeatRecord(head.beats + 1)
        self.since_s = time.monotonic()
        self._clock = clock or _utc_now
        self._owner = owner
        self.step = ""
        self.loop: Any = None  # the one event loop it is written from, in an async run
        self.listener: Listener | None = None

    @property
    def run(self) -> str:
        return self.standing.run

    @property
    def state(self) -> st.RunState:
        """The folded head. The ends of plain beats are folded when somebody looks."""
        if self._unfolded:
            with self.mutex:
                ends = [
                    end for end in self._unfolded if end.beat > self.standing.beats
                ]  # Ctrl-C may have hit here before
                if ends:
                    self.standing = st.fold_plain(self.standing, ends, self.seq)
                self._unfolded.clear()
        return self.standing

    def now(self) -> datetime:
        return self._clock()

    def uptime_s(self) -> int:
        return int(boottime_s())

    def age_s(self, intent: ev.EffectIntended) -> int | None:
        """How old an intent is: by uptime within one boot, else by wall clock, None where the clocks disagree."""
        wall = int((self.now() - intent.at).total_seconds())
        if wall < 0:
            return None
        return max(wall, self.uptime_s() - intent.uptime_s) if intent.uptime_s <= self.uptime_s() else wall

    # -- payloads ------------------------------------------------------------------------------------------------

    def payload(self, value: object, *, canonical: bool = False) -> Payload:
        """A value to record; large ones become a durable blob first."""
        data = encode(value, canonical=canonical)
        if len(data) <= PAYLOAD_INLINE_MAX_BYTES:
            return Payload(v=msgspec.Raw(data))
        return Payload(blob=self.store.blobs.put(data), size=len(data))

    def keep(self, value: object, *, canonical: bool = False) -> Steps:
        """A value to record, as steps: an event loop does not wait for the blob of a large one."""
        data = encode(value, canonical=canonical)
        if len(data) <= PAYLOAD_INLINE_MAX_BYTES:
            return Payload(msgspec.Raw(data)) if data != b"null" else NOTHING
        blob = yield Block(lambda: self.store.blobs.put(data))
        return Payload(blob=blob, size=len(data))

    def value(self, payload: Payload) -> Any:
        """The recorded value, as plain data."""
        return msgspec.json.decode(self.raw(payload))

    def returned(self, value: Any, payload: Payload) -> Any:
        """The value that a call returns now: the same plain data that a replay of it would return."""
        return value if type(value) in _PLAIN else self.value(payload)

    def raw(self, payload: Payload) -> bytes:
        """The recorded value as JSON."""
        return self.store.blobs.get(payload.blob) if payload.blob else bytes(payload.v)

    # -- appending -----------------------------------------------------------------------------------------------

    def in_beat(self, event: ev.AnyEvent) -> Append:
        """An event of the open beat, preceded by the beat's beginning if it is the first to be committed."""
        return Append((event,), in_beat=True)

    def saved(self) -> Steps:
        """The save that a confirmed effect names, where the files are to go back with the run; else nothing."""
        owner = self._owner
        return (yield Block(owner.save_effect)) if owner is not None and owner.saves_effects else ""

    def take_requests(self, *, if_rung: bool = False) -> Steps:
        """Take in what people asked of the run, where this journal is written for one."""
        if self._owner is not None:
            yield from self._owner.take_requests(if_rung=if_rung)

    def later(self, event: ev.AnyEvent) -> None:
        """Let an event of the open beat ride on the next commit."""
        with self.mutex:
            events = [(item, _readable(item)) for item in (*self._begin(), event)]
            self._lazy += events
            for item, _ in events:
                self._take(item)

    @property
    def waits(self) -> bool:
        """Whether an event waits for the next commit."""
        return bool(self._lazy)

    def _begin(self) -> tuple[ev.AnyEvent, ...]:
        if self.record.begun:
            return ()
        return (ev.BeatBegun(at=self.now(), beat=self.record.beat, step=self.step, cursor=self.cursor),)

    def batch(self, append: Append) -> Batch:
        """The next commit: the events that waited, then these. The head moves on at once, in order."""
        events = (*self._begin(), *append.events) if append.in_beat else append.events
        encoded = tuple([_readable(event) for event in events])
        before, lazy = self.seq, self._lazy
        for event in events:
            self._take(event)
        if lazy:
            self._lazy = []
            before -= len(lazy)
            events, encoded = (*(item for item, _ in lazy), *events), (*(data for _, data in lazy), *encoded)
        due = before // HEAD_EVERY != self.seq // HEAD_EVERY or _marks_head(append.events)
        head = self.state if due else None
        return Batch(self.lease, self.standing.run, before, events, append.takes, head, encoded)

    def committed(self, batch: Batch) -> None:
        """A batch of ours is durable: tell whoever listens. A supervisor appends in order, one batch at a time."""
        if self.listener is not None:
            self.listener(batch.events, self.state)

    def _take(self, event: ev.AnyEvent) -> None:
        if type(event) is ev.BeatDone and st.is_plain(event):
            self.seq += 1
            self.beats, self.cursor, self.over = event.beat, event.cursor, event.over
            self._unfolded.append(event)
        else:
            self._stand(st.apply(self.state, event))
            self.record.take(event)

    def _stand(self, head: st.RunState) -> None:
        self.standing = head
        self.seq, self.beats, self.cursor, self.over = head.seq, head.beats, head.cursor, head.over

    def restart(self, head: st.RunState) -> None:
        """Go on from a head that was read back; what still waited to ride along is dropped with its beat."""
        self._lazy = []
        self._unfolded.clear()
        self._stand(head)
        self.uncertain = False

    def next_beat(self, step: str) -> None:
        """Open a fresh record for the beat after the last one done."""
        if not self.record.begun:
            self.record.beat = self.beats + 1
        elif self.record.beat != self.beats + 1:  # what is recorded of a beat that is still open stays known
            self.record = BeatRecord(self.beats + 1)
        self.step = step

    @property
    def act_lock(self) -> Path:
        """The file that is locked while an act of the run, or of its root, is performed."""
        return self.store.local.act_lock(self.lease.run)

    @property
    def roster(self) -> Path:
        """The file of the processes that were started for the run's calls."""
        return self.store.local.roster(self.lease.run)

    def load_open_beat(self, step: str) -> None:
        """Read back what an earlier attempt recorded of the beat in flight."""
        self.record = BeatRecord(self.beats + 1)
        self.step = step
        opened = self.state.open_beat
        if opened is None:
            return
        after = opened.seq - 1
        while page := self.store.read(self.run, after=after).events:
            for item in page:
                self.record.take(item.event)
            after = page[-1].seq

    def effect(self, n: int) -> EffectRecord | None:
        """The recorded effect with this ordinal in the open beat."""
        return self.record.effects.get(n)

    def events(self, *tags: str, after: int = 0) -> Iterable[ev.AnyEvent]:
        """All events with these tags after a sequence number, oldest first."""
        while page := self.store.read(self.run, after=after, tags=tags).events:
            for item in page:
                yield item.event
            after = page[-1].seq

    def event_at(self, seq: int) -> ev.AnyEvent:
        """One event by its sequence number."""
        return self.store.read(self.run, after=seq - 1, limit=1).events[0].event


def _readable(event: ev.AnyEvent) -> bytes:
    """An event as JSON that can be read back: what cannot must not get into a journal, where it would spoil the run."""
    try:
        data = ev.encode(event)
        if type(event) is not ev.BeatDone or not st.is_plain(event):  # what `encode` gave is readable
            ev.decode(data)
    except (StoreTooNew, TypeError, ValueError, OverflowError, RecursionError) as error:
        cause = error.__cause__ or error
        raise NotEncodable(
            f"a {ev.tag_of(event)} cannot be recorded: {cause}",
            hint="names and texts are str, amounts are int",
        ) from error
    return data


def _marks_head(events: tuple[ev.AnyEvent, ...]) -> bool:
    return any(isinstance(event, _HEAD_EVENTS) for event in events)


def _utc_now() -> datetime:
    return datetime.now(UTC)
